//! Feeds arbitrary configuration files to all that reads and converts them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::configuration::run(data));
