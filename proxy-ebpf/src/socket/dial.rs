//! connect and sendmsg: where a socket is led, and what is remembered of it.

use aya_ebpf::helpers::generated::bpf_set_retval;
use aya_log_ebpf::debug;
use proxy_common::{
    caller::{self, Answer},
    counters::Event,
    endpoint::Endpoint,
    flow::{Remembered, Translation},
    frontend::FrontendKey,
    memory::{self, By},
    socket::{self, Route, UDP},
};

use crate::{
    PROCEED, maps,
    places::Socket,
    services::Tables,
    sockaddr::SockAddr,
    tables::{Hook, count},
    task,
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
    match socket::route(&Tables(Hook(socket.ctx())), &key, None) {
        Route::Untouched => {
            memory::forget(&mut Socket::of(socket), &key.address, key.port);
            PROCEED
        }
        Route::Endpoint(endpoint) => {
            let translation = translation(&key, &endpoint);
            let by = if protocol == UDP {
                By::UdpConnect
            } else {
                By::TcpConnect
            };
            note(memory::remember(&mut Socket::of(socket), &translation, by));
            lead(socket, &key, &endpoint)
        }
        Route::Refused => refuse(socket, &key, ECONNREFUSED),
        Route::Unreachable => refuse(socket, &key, EHOSTUNREACH),
    }
}

/// A UDP socket sends to an address given with the datagram.
#[inline(always)]
pub fn send<S: SockAddr>(socket: &S) -> i32 {
    // UDP-Lite comes through the same hook.
    if socket::service_protocol(socket.protocol()) != Some(UDP) {
        return PROCEED;
    }
    // Where `connect` has led it, it stays: that may be some other frontend by its looks.
    if socket.sends_to_mapped_peer() {
        return PROCEED;
    }
    let key = frontend_key(socket, UDP);
    let mut memory = Socket::of(socket);
    let kept = memory::endpoint_of(&mut memory, &key.address, key.port);
    let kept_number = kept.map(|endpoint| endpoint.number);
    match socket::route(&Tables(Hook(socket.ctx())), &key, kept) {
        Route::Untouched => {
            // What a connected socket remembers is its peer's.
            if !socket.is_connected() {
                memory::forget(&mut memory, &key.address, key.port);
            }
            PROCEED
        }
        Route::Endpoint(endpoint) => {
            if kept_number == Some(endpoint.number) {
                memory::used(&mut memory, &key.address, key.port);
            } else {
                let translation = translation(&key, &endpoint);
                note(memory::remember(&mut memory, &translation, By::UdpSend));
            }
            lead(socket, &key, &endpoint)
        }
        Route::Refused => refuse(socket, &key, ECONNREFUSED),
        Route::Unreachable => refuse(socket, &key, EHOSTUNREACH),
    }
}

/// Counts what was not remembered as it should be.
#[inline(always)]
fn note(remembered: Remembered) {
    match remembered {
        Remembered::Kept => {}
        Remembered::Replaced => count(Event::FlowReplaced),
        Remembered::Lost => count(Event::FlowNotKept),
    }
}

#[inline(always)]
fn frontend_key<S: SockAddr>(socket: &S, protocol: u8) -> FrontendKey {
    FrontendKey::new(socket.words(), socket.port(), protocol)
}

#[inline(always)]
fn translation(key: &FrontendKey, endpoint: &Endpoint) -> Translation {
    Translation {
        frontend: key.address,
        endpoint: endpoint.address,
        frontend_port: key.port,
        endpoint_port: endpoint.port,
        endpoint_id: endpoint.number,
        check: 0,
    }
}

#[inline(always)]
fn lead<S: SockAddr>(socket: &S, key: &FrontendKey, endpoint: &Endpoint) -> i32 {
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
/// these hooks (before 6.1); a socket of the kernel itself is left alone there.
#[inline(always)]
fn refuse<S: SockAddr>(socket: &S, key: &FrontendKey, errno: i32) -> i32 {
    match caller::answer(maps::HAS_SET_RETVAL.load() != 0, task::is_kernel) {
        Answer::LeftAlone => {
            count(Event::KernelLeftAlone);
            return PROCEED;
        }
        // SAFETY: a negative errno is what the helper takes.
        Answer::Named => drop(unsafe { bpf_set_retval(-errno) }),
        Answer::Denied => {}
    }
    debug!(
        socket.ctx(),
        "{:i} port {} protocol {} is refused with errno {}",
        key.address,
        key.port,
        key.protocol,
        errno
    );
    REFUSE
}
