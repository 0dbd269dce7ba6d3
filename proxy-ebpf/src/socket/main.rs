//! Programs for the cgroup socket hooks: east-west traffic is translated once, when a socket
//! connects or sends, so that no packet of it is ever touched.
//!
//! Thin by rule: context access and map access. Decisions are in `proxy_common::socket`, what
//! sockets remember in `proxy_common::memory`.
#![no_std]
#![no_main]
#![expect(
    missing_docs,
    reason = "the attribute macros wrap each program in a function without its documentation"
)]
#![expect(
    unsafe_code,
    reason = "kernel context and map values are reached through pointers"
)]

mod dial;
mod maps;
#[path = "../object.rs"]
mod object;
mod peer;
mod places;
#[path = "../services.rs"]
mod services;
mod sockaddr;
mod tables;
mod task;

use aya_ebpf::{
    macros::{cgroup_sock, cgroup_sock_addr},
    programs::{SockAddrContext, SockContext},
};
use sockaddr::{V4, V6};

/// What a hook that must not refuse returns.
const PROCEED: i32 = 1;

/// `connect` of an `AF_INET` socket.
#[cgroup_sock_addr(connect4)]
pub fn culvert_conn4(ctx: SockAddrContext) -> i32 {
    dial::connect(&V4(ctx))
}

/// `connect` of an `AF_INET6` socket.
#[cgroup_sock_addr(connect6)]
pub fn culvert_conn6(ctx: SockAddrContext) -> i32 {
    dial::connect(&V6(ctx))
}

/// `sendto` and `sendmsg` of an `AF_INET` UDP socket.
#[cgroup_sock_addr(sendmsg4)]
pub fn culvert_send4(ctx: SockAddrContext) -> i32 {
    dial::send(&V4(ctx))
}

/// `sendto` and `sendmsg` of an `AF_INET6` UDP socket.
#[cgroup_sock_addr(sendmsg6)]
pub fn culvert_send6(ctx: SockAddrContext) -> i32 {
    dial::send(&V6(ctx))
}

/// `recvfrom` and `recvmsg` of an `AF_INET` UDP socket.
#[cgroup_sock_addr(recvmsg4)]
pub fn culvert_recv4(ctx: SockAddrContext) -> i32 {
    peer::received(&V4(ctx));
    PROCEED
}

/// `recvfrom` and `recvmsg` of an `AF_INET6` UDP socket.
#[cgroup_sock_addr(recvmsg6)]
pub fn culvert_recv6(ctx: SockAddrContext) -> i32 {
    peer::received(&V6(ctx));
    PROCEED
}

/// `getpeername` of an `AF_INET` socket.
#[cgroup_sock_addr(getpeername4)]
pub fn culvert_peer4(ctx: SockAddrContext) -> i32 {
    peer::asked(&V4(ctx));
    PROCEED
}

/// `getpeername` of an `AF_INET6` socket.
#[cgroup_sock_addr(getpeername6)]
pub fn culvert_peer6(ctx: SockAddrContext) -> i32 {
    peer::asked(&V6(ctx));
    PROCEED
}

/// `close` of any IPv4 or IPv6 socket.
#[cgroup_sock(sock_release)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "the macro passes a context of its own"
)]
pub fn culvert_close(ctx: SockContext) -> i32 {
    places::closed(&ctx);
    PROCEED
}
