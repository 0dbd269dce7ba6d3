//! Programs at ingress and egress of devices: requests from outside are sent to endpoints, and their replies as
//! from the address that the client dialled. Where endpoints must see this node in the place of clients, programs
//! on the devices that lead to them, those of pods included, do the rest.
//!
//! Thin by rule: context access and map access. Decisions are in `proxy_common::track`, what is done
//! to packets in `proxy_common::packet`.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    missing_docs,
    reason = "the attribute macros wrap each program in a function without its documentation"
)]
#![expect(
    unsafe_code,
    reason = "kernel context and map values are reached through pointers"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "so the attribute macros hand the context over"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes of types, sums of 32 bits, and seconds since boot"
)]

mod connections;
mod maps;
mod network;
#[path = "../object.rs"]
mod object;
#[path = "../services.rs"]
mod services;
mod skb;
mod swept;
mod tables;

use aya_ebpf::{macros::classifier, programs::TcContext};
use proxy_common::track::{egress, ingress, pods, reason::Outcome};

use crate::{skb::Skb, tables::EDGE};

/// What lets the programs behind this one run (`TCX_NEXT`, `TC_ACT_UNSPEC`).
const NEXT: i32 = -1;
/// What ends a packet.
const SHOT: i32 = 2;

/// Bytes before the IP header on Ethernet.
const ETHERNET: u32 = 14;

/// Ingress of a device with Ethernet headers.
#[classifier]
pub fn culvert_eth_in(ctx: TcContext) -> i32 {
    incoming(&ctx, ETHERNET)
}

/// Egress of such a device.
#[classifier]
pub fn culvert_eth_out(ctx: TcContext) -> i32 {
    outgoing(&ctx, ETHERNET)
}

/// Ingress of a device whose packets begin with the IP header.
#[classifier]
pub fn culvert_ip_in(ctx: TcContext) -> i32 {
    incoming(&ctx, 0)
}

/// Egress of such a device.
#[classifier]
pub fn culvert_ip_out(ctx: TcContext) -> i32 {
    outgoing(&ctx, 0)
}

/// Ingress of the device of a pod.
#[classifier]
pub fn culvert_pod_in(ctx: TcContext) -> i32 {
    let mut skb = Skb::<false>::of(&ctx, ETHERNET);
    let Some(version) = skb.version() else {
        return NEXT;
    };
    let Some(work) = maps::work(maps::OF_PACKETS) else {
        return NEXT;
    };
    let outcome = pods::from(&mut skb, version, &EDGE, work);
    end(&skb, outcome)
}

/// Egress of the device of a pod.
#[classifier]
pub fn culvert_pod_out(ctx: TcContext) -> i32 {
    let mut skb = Skb::<false>::of(&ctx, ETHERNET);
    let Some(version) = skb.version() else {
        return NEXT;
    };
    let Some(work) = maps::work(maps::OF_PACKETS) else {
        return NEXT;
    };
    let outcome = pods::to(&mut skb, version, &EDGE, work);
    end(&skb, outcome)
}

/// Removes answered flows that are over; attached nowhere, run by the agent.
#[classifier]
pub fn culvert_sweep(ctx: TcContext) -> i32 {
    swept::sweep(&ctx)
}

#[inline(always)]
fn incoming(ctx: &TcContext, link: u32) -> i32 {
    let mut skb = Skb::<true>::of(ctx, link);
    let Some(version) = skb.version() else {
        return NEXT;
    };
    let Some(work) = maps::work(maps::OF_PACKETS) else {
        return NEXT;
    };
    let outcome = ingress::handle(&mut skb, version, &EDGE, work);
    end(&skb, outcome)
}

#[inline(always)]
fn outgoing(ctx: &TcContext, link: u32) -> i32 {
    let mut skb = Skb::<false>::of(ctx, link);
    let Some(version) = skb.version() else {
        return NEXT;
    };
    let Some(work) = maps::work(maps::OF_PACKETS) else {
        return NEXT;
    };
    let outcome = egress::handle(&mut skb, version, &EDGE, work);
    end(&skb, outcome)
}

/// What the kernel is to do.
#[inline(always)]
fn end<const DIRECT: bool>(skb: &Skb<DIRECT>, outcome: Outcome) -> i32 {
    if outcome.reason() != 0 {
        maps::count(skb.device(), outcome.reason());
    }
    if outcome.is_dropped() { SHOT } else { NEXT }
}
