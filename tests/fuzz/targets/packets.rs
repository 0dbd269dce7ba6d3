//! Feeds arbitrary packets to the decisions of the programs on devices.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxy_fuzz::packets::run(data));
