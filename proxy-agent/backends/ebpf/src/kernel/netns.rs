//! Which network namespace is the node's: only there loopback addresses are its own.

#![expect(unsafe_code, reason = "nix does not know this socket option")]

use std::{fs, io, net::UdpSocket, os::fd::AsRawFd as _};

/// The cookie of this process's network namespace, which is the node's, for the programs; 0 stands
/// for the initial one.
pub fn host() -> u64 {
    cookie().unwrap_or_else(|error| {
        // Before Linux 5.14 it cannot be asked for.
        if is_initial() {
            return 0;
        }
        tracing::warn!(
            %error,
            "this kernel does not let the agent distinguish network namespaces: NodePorts do not \
             answer on loopback addresses; run the agent in the initial one (hostNetwork)"
        );
        u64::MAX
    })
}

/// `SO_NETNS_COOKIE` of a socket of this process.
fn cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    let mut cookie = 0_u64;
    let mut size = libc::socklen_t::try_from(size_of::<u64>()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the kernel writes at most `size` bytes to `cookie`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    if result == 0 {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether process 1 shares the network namespace; true also where that cannot be seen.
fn is_initial() -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (of("1"), of("self")) {
        (Ok(first), Ok(own)) => first == own,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_has_one_cookie() {
        // Where the kernel has none, 0 or the largest number is as constant.
        assert_eq!(host(), host());
    }
}
