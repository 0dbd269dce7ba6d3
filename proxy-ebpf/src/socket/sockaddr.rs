//! The address in a `bpf_sock_addr` context, as `proxy_common` sees addresses, for both families.

use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::programs::SockAddrContext;
use proxy_common::address::{self, Address};

/// Number of the IPv6 address family.
const AF_INET6: u32 = 10;

/// A socket hook's view of the address it may rewrite: the destination of connect and sendmsg,
/// the source of recvmsg, the peer of getpeername.
pub trait SockAddr {
    /// The context.
    fn ctx(&self) -> &SockAddrContext;

    /// The address as four words in memory order.
    fn words(&self) -> [u32; 4];

    /// The address.
    #[inline(always)]
    fn address(&self) -> Address {
        address::from_words(self.words())
    }

    /// Replaces the address. For an `AF_INET` socket it must be an IPv4 one, which holds because
    /// frontends of a family have endpoints of that family.
    fn set_address(&self, address: &Address);

    /// The port, host order.
    #[inline(always)]
    fn port(&self) -> u16 {
        // SAFETY: the kernel passes a valid context; `user_port` is a readable four byte field
        // that holds the port in network order in its first two bytes.
        let port = unsafe { addr_of!((*self.ctx().sock_addr).user_port).read_volatile() };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the other two bytes are unused"
        )]
        u16::from_be(port as u16)
    }

    /// Replaces the port, host order.
    #[inline(always)]
    fn set_port(&self, port: u16) {
        // SAFETY: as in `port`; the field is writable in all hooks used here.
        unsafe {
            addr_of_mut!((*self.ctx().sock_addr).user_port).write_volatile(u32::from(port.to_be()));
        }
    }

    /// Whether an `AF_INET6` socket sends to the IPv4 peer that it is connected to. The kernel then
    /// asks the IPv4 hook, for each datagram, as if the peer had been named with it; it asks no hook
    /// about other connected sockets. A socket that does name its peer cannot be told apart.
    fn sends_to_mapped_peer(&self) -> bool;

    /// Whether the socket is connected.
    #[inline(always)]
    fn is_connected(&self) -> bool {
        // SAFETY: the kernel passes a valid context with a valid socket; its destination port is
        // zero as long as it has no peer.
        unsafe {
            let sk = addr_of!((*self.ctx().sock_addr).__bindgen_anon_1.sk).read_volatile();
            addr_of!((*sk).dst_port).read_volatile() != 0
        }
    }

    /// The socket's protocol number.
    #[inline(always)]
    fn protocol(&self) -> u32 {
        // SAFETY: the kernel passes a valid context with this readable field.
        unsafe { addr_of!((*self.ctx().sock_addr).protocol).read_volatile() }
    }
}

/// `AF_INET` hooks.
pub struct V4(pub SockAddrContext);

impl SockAddr for V4 {
    #[inline(always)]
    fn ctx(&self) -> &SockAddrContext {
        &self.0
    }

    #[inline(always)]
    fn words(&self) -> [u32; 4] {
        // SAFETY: the kernel passes a valid context; the field is readable in IPv4 hooks.
        address::mapped_words(unsafe { addr_of!((*self.0.sock_addr).user_ip4).read_volatile() })
    }

    #[inline(always)]
    fn set_address(&self, address: &Address) {
        // SAFETY: as above, and writable.
        unsafe {
            addr_of_mut!((*self.0.sock_addr).user_ip4)
                .write_volatile(address::to_kernel_v4(address));
        }
    }

    #[inline(always)]
    fn sends_to_mapped_peer(&self) -> bool {
        let to = self.words();
        // SAFETY: as above; the socket's family, and the address and port of its peer, are readable
        // fields.
        unsafe {
            let ctx = self.0.sock_addr;
            if addr_of!((*ctx).family).read_volatile() != AF_INET6 {
                return false;
            }
            let sk = addr_of!((*ctx).__bindgen_anon_1.sk).read_volatile();
            let peer = addr_of!((*sk).dst_ip6).cast::<u32>();
            let port = u16::from_be(addr_of!((*sk).dst_port).read_volatile());
            peer.add(2).read_volatile() == to[2]
                && peer.add(3).read_volatile() == to[3]
                && port == self.port()
        }
    }
}

/// `AF_INET6` hooks; they see IPv4 destinations of `AF_INET6` sockets as mapped addresses.
pub struct V6(pub SockAddrContext);

impl SockAddr for V6 {
    #[inline(always)]
    fn ctx(&self) -> &SockAddrContext {
        &self.0
    }

    #[inline(always)]
    fn words(&self) -> [u32; 4] {
        // SAFETY: the kernel passes a valid context; four readable words in IPv6 hooks, one
        // access each, as the verifier wants.
        unsafe {
            let field = addr_of!((*self.0.sock_addr).user_ip6).cast::<u32>();
            [
                field.read_volatile(),
                field.add(1).read_volatile(),
                field.add(2).read_volatile(),
                field.add(3).read_volatile(),
            ]
        }
    }

    #[inline(always)]
    fn set_address(&self, address: &Address) {
        let words = address::to_words(address);
        // SAFETY: as above, and writable.
        unsafe {
            let field = addr_of_mut!((*self.0.sock_addr).user_ip6).cast::<u32>();
            field.write_volatile(words[0]);
            field.add(1).write_volatile(words[1]);
            field.add(2).write_volatile(words[2]);
            field.add(3).write_volatile(words[3]);
        }
    }

    #[inline(always)]
    fn sends_to_mapped_peer(&self) -> bool {
        false
    }
}
