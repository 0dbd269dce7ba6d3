//! Feeds arbitrary manifests to all that reads objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::objects::run(data));
