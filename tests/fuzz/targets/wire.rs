//! Feeds arbitrary bytes to the client of the node API.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::wire::run(data));
