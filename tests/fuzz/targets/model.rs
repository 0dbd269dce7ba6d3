//! Feeds arbitrary events to the model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::model::run(data));
