//! Programs for the cgroup socket hooks: east-west traffic is translated once, when a socket
//! connects or sends, so that no packet of it is ever touched.
//!
//! Thin by rule: context access and map access. Decisions are in `proxy_common::socket`, what
//! sockets remember in `proxy_common::flow`.
#![no_std]
#![no_main]
#![expect(
    unsafe_code,
    reason = "kernel context and map values are reached through pointers"
)]
#![expect(
    unreachable_pub,
    reason = "one binary: every item is private to it, and `pub(crate)` everywhere is noise"
)]

mod dial;
mod maps;
mod peer;
mod sockaddr;
mod tables;

use aya_ebpf::{macros::cgroup_sock_addr, programs::SockAddrContext};
use sockaddr::{V4, V6};

/// What a hook that must not refuse returns.
const PROCEED: i32 = 1;

#[cgroup_sock_addr(connect4)]
pub fn culvert_conn4(ctx: SockAddrContext) -> i32 {
    dial::connect(&V4(ctx))
}

#[cgroup_sock_addr(connect6)]
pub fn culvert_conn6(ctx: SockAddrContext) -> i32 {
    dial::connect(&V6(ctx))
}

#[cgroup_sock_addr(sendmsg4)]
pub fn culvert_send4(ctx: SockAddrContext) -> i32 {
    dial::send(&V4(ctx))
}

#[cgroup_sock_addr(sendmsg6)]
pub fn culvert_send6(ctx: SockAddrContext) -> i32 {
    dial::send(&V6(ctx))
}

#[cgroup_sock_addr(recvmsg4)]
pub fn culvert_recv4(ctx: SockAddrContext) -> i32 {
    peer::received(&V4(ctx));
    PROCEED
}

#[cgroup_sock_addr(recvmsg6)]
pub fn culvert_recv6(ctx: SockAddrContext) -> i32 {
    peer::received(&V6(ctx));
    PROCEED
}

#[cgroup_sock_addr(getpeername4)]
pub fn culvert_peer4(ctx: SockAddrContext) -> i32 {
    peer::asked(&V4(ctx));
    PROCEED
}

#[cgroup_sock_addr(getpeername6)]
pub fn culvert_peer6(ctx: SockAddrContext) -> i32 {
    peer::asked(&V6(ctx));
    PROCEED
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that can reach an endless loop: none can panic.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";
