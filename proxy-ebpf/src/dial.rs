//! connect and sendmsg: where a socket is led, and what is remembered of it.

use aya_ebpf::helpers::{bpf_get_socket_cookie, generated::bpf_set_retval};
use aya_log_ebpf::debug;
use proxy_common::{
    counters::Event,
    endpoint::EndpointValue,
    flow::{Remembered, TcpPeer, Translation, UdpFlows, tcp_peer_index},
    frontend::{FrontendKey, SCOPE_ANY},
    socket::{self, Route, UDP},
};

use crate::{
    PROCEED, maps,
    sockaddr::SockAddr,
    tables::{Kernel, count},
};

const REFUSE: i32 = 0;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

/// A TCP or UDP socket connects.
#[inline(always)]
pub fn connect<S: SockAddr>(socket: &S) -> i32 {
    let Some(protocol) = socket::service_protocol(socket.protocol()) else {
        return PROCEED;
    };
    let key = frontend_key(socket, protocol);
    match socket::route(&Kernel, &key, None) {
        Route::Untouched => {
            if protocol == UDP {
                forget_udp(socket, &key);
            } else {
                forget_tcp(socket);
            }
            PROCEED
        }
        Route::Endpoint(endpoint) => {
            let translation = translation(&key, &endpoint);
            if protocol == UDP {
                remember_udp(socket, translation);
            } else {
                remember_tcp(socket, translation);
            }
            lead(socket, &key, &endpoint)
        }
        Route::Refused => refuse(socket, &key, ECONNREFUSED),
        Route::Unreachable => refuse(socket, &key, EHOSTUNREACH),
    }
}

/// A UDP socket sends to an address given with the datagram.
#[inline(always)]
pub fn send<S: SockAddr>(socket: &S) -> i32 {
    let key = frontend_key(socket, UDP);
    // SAFETY: the context is the kernel's.
    let flows = unsafe { maps::UDP_FLOWS.get_ptr_mut(socket.ctx()) };
    // SAFETY: not null; the kernel frees a socket's storage only after its programs have ended.
    let flows: Option<&mut UdpFlows> = unsafe { flows.as_mut() };
    let kept = flows
        .as_ref()
        .and_then(|flows| flows.endpoint_of(&key.address, key.port));
    let kept_id = kept.as_ref().map(|flow| flow.endpoint_id);
    match socket::route(&Kernel, &key, kept_id) {
        Route::Untouched => {
            if let Some(flows) = flows {
                flows.forget(&key.address, key.port);
            }
            PROCEED
        }
        Route::Endpoint(endpoint) => {
            match (flows, kept) {
                (Some(flows), Some(kept))
                    if kept.endpoint_id == endpoint.endpoint
                        && kept.leads_to(&endpoint.address, endpoint.port) =>
                {
                    flows.touch(&key.address, key.port);
                }
                _ => remember_udp(socket, translation(&key, &endpoint)),
            }
            lead(socket, &key, &endpoint)
        }
        Route::Refused => refuse(socket, &key, ECONNREFUSED),
        Route::Unreachable => refuse(socket, &key, EHOSTUNREACH),
    }
}

#[inline(always)]
fn frontend_key<S: SockAddr>(socket: &S, protocol: u8) -> FrontendKey {
    FrontendKey {
        address: socket.address(),
        port: socket.port(),
        protocol,
        scope: SCOPE_ANY,
    }
}

#[inline(always)]
fn translation(key: &FrontendKey, endpoint: &EndpointValue) -> Translation {
    Translation {
        frontend: key.address,
        endpoint: endpoint.address,
        frontend_port: key.port,
        endpoint_port: endpoint.port,
        endpoint_id: endpoint.endpoint,
        check: 0,
    }
}

#[inline(always)]
fn lead<S: SockAddr>(socket: &S, key: &FrontendKey, endpoint: &EndpointValue) -> i32 {
    debug!(
        socket.ctx(),
        "{:i} port {} protocol {} leads to {:i} port {}",
        key.address,
        key.port,
        key.protocol,
        endpoint.address,
        endpoint.port
    );
    socket.set_address(&endpoint.address);
    socket.set_port(endpoint.port);
    PROCEED
}

/// Fails the system call with `errno`, or with EPERM where the kernel lacks `bpf_set_retval` in
/// these hooks (before 6.1).
#[inline(always)]
fn refuse<S: SockAddr>(socket: &S, key: &FrontendKey, errno: i32) -> i32 {
    debug!(
        socket.ctx(),
        "{:i} port {} protocol {} is refused with errno {}",
        key.address,
        key.port,
        key.protocol,
        errno
    );
    if maps::HAS_SET_RETVAL.load() != 0 {
        // SAFETY: a negative errno is what the helper takes.
        unsafe { bpf_set_retval(-errno) };
    }
    REFUSE
}

#[inline(always)]
fn remember_udp<S: SockAddr>(socket: &S, translation: Translation) {
    // SAFETY: the context is the kernel's; new storage is zeroed, which means empty.
    let flows = unsafe { maps::UDP_FLOWS.get_or_insert_ptr_mut(socket.ctx(), None) };
    // SAFETY: not null; the kernel frees a socket's storage only after its programs have ended.
    match unsafe { flows.as_mut() } {
        Some(flows) => {
            if flows.remember(translation) == Remembered::Replaced {
                count(Event::FlowReplaced);
            }
        }
        None => count(Event::FlowNotKept),
    }
}

/// The socket now talks to an address itself that may also be an endpoint it was led to before.
#[inline(always)]
fn forget_udp<S: SockAddr>(socket: &S, key: &FrontendKey) {
    // SAFETY: the context is the kernel's.
    let flows = unsafe { maps::UDP_FLOWS.get_ptr_mut(socket.ctx()) };
    // SAFETY: not null; the kernel frees a socket's storage only after its programs have ended.
    if let Some(flows) = unsafe { flows.as_mut() } {
        flows.forget(&key.address, key.port);
    }
}

#[inline(always)]
fn remember_tcp<S: SockAddr>(socket: &S, translation: Translation) {
    let cookie = cookie(socket);
    if let Some(place) = maps::TCP_PEERS.get_ptr_mut(tcp_peer_index(cookie)) {
        let value = TcpPeer {
            cookie,
            peer: translation.sealed(cookie),
            padding: 0,
        };
        // SAFETY: the map returned a live value. Another CPU may write it too; the record's check
        // voids a mixture.
        unsafe { place.write(value) };
    }
}

#[inline(always)]
fn forget_tcp<S: SockAddr>(socket: &S) {
    let cookie = cookie(socket);
    if let Some(place) = maps::TCP_PEERS.get_ptr_mut(tcp_peer_index(cookie)) {
        // SAFETY: the map returned a live value.
        unsafe {
            if (*place).cookie == cookie {
                (*place).cookie = 0;
            }
        }
    }
}

/// The socket's cookie: unique on this host until it restarts.
#[inline(always)]
pub fn cookie<S: SockAddr>(socket: &S) -> u64 {
    // SAFETY: the context is the kernel's.
    unsafe { bpf_get_socket_cookie(socket.ctx().sock_addr.cast()) }
}
