//! Packets in memory: what is rewritten must be what a host would have sent that has these addresses
//! and ports.

mod rewritten;
