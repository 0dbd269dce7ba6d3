//! The program that removes flows. The agent runs it with the keys as data, behind as many bytes as
//! an Ethernet header has.

use aya_ebpf::programs::TcContext;
use proxy_common::{
    packet::Packet as _,
    track::{ConnectionKey, SWEPT_AT_ONCE, sweep},
};

use crate::{ETHERNET, maps, skb::Skb, tables::EDGE};

/// Sweeps up to [`SWEPT_AT_ONCE`] flows. Returns how many were removed.
#[inline(always)]
pub fn sweep(ctx: &TcContext) -> i32 {
    let keys = Skb::<false>::of(ctx, ETHERNET);
    let mut removed = 0;
    let mut index = 0;
    while index < SWEPT_AT_ONCE {
        let at = index * size_of::<ConnectionKey>() as u32;
        let Some(key) = keys.read::<ConnectionKey>(at) else {
            break;
        };
        removed += one(&key);
        index += 1;
    }
    removed
}

/// One flow. A function of its own, so that the programs do not hold it once for each.
#[inline(never)]
fn one(key: &ConnectionKey) -> i32 {
    let Some(work) = maps::work(maps::OF_SWEEPS) else {
        return 0;
    };
    work.key = *key;
    sweep::sweep(&EDGE, work).into()
}
