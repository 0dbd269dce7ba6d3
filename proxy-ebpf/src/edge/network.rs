//! Ways and sockets of this node, asked for with a packet at hand, behind `proxy_common`'s trait.

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_CURRENT_NETNS, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH,
        BPF_FIB_LKUP_RET_SUCCESS, BPF_TCP_TIME_WAIT, bpf_fib_lookup as FibLookup, bpf_sock_tuple,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 as OfV4,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 as OfV6,
    },
    helpers::generated::{bpf_fib_lookup, bpf_sk_lookup_udp, bpf_sk_release, bpf_skc_lookup_tcp},
};
use proxy_common::{
    address,
    packet::{Version, Words},
    socket::UDP,
    track::{Network, SourceKey, SourceValue, Sources, Work, second::Second},
};

use crate::{
    maps,
    services::{self, Tables},
    skb::Skb,
    tables::Packets,
};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl<const DIRECT: bool> Network for Skb<DIRECT> {
    #[inline(always)]
    fn find_way(&self, work: &mut Work) {
        find_way(self.context(), work);
    }

    #[inline(always)]
    fn has_socket(&self, work: &mut Work) -> bool {
        has_socket(self.context(), work)
    }
}

impl Sources for Tables<Packets> {
    #[inline(always)]
    fn source(&self, key: &SourceKey, value: &mut SourceValue) -> bool {
        let Some(found) = maps::SOURCES.get_ptr(key) else {
            return false;
        };
        // SAFETY: the map returned a live value of this type.
        unsafe { services::copy_to(found, value) };
        true
    }

    #[inline(always)]
    fn is_reserved(&self, port: u16) -> bool {
        // SAFETY: the map returned a live word.
        maps::PORTS
            .get_ptr(u32::from(port) / u32::BITS)
            .is_none_or(|word| unsafe { word.read_volatile() } >> (port % 32) & 1 != 0)
    }
}

/// 1 if the packet is one of IPv6, otherwise 0.
// Arithmetic with it has no branches: the verifier would go through all that follows a branch once for each family.
#[inline(always)]
fn is_v6(work: &Work) -> u32 {
    // SAFETY: a version is a byte. The compiler, which knows that it is 0 or 1, would leave out the bound by which
    // the verifier knows that, too.
    let version = unsafe {
        (&raw const work.header.version)
            .cast::<u8>()
            .read_volatile()
    };
    u32::from(version & Version::V6 as u8)
}

/// Asks for the route of a packet that is forwarded, as it is between both translations. Whether its
/// neighbour is known yet, and whether it would have to be taken apart, does not matter.
// Functions of their own: what they keep on the stack would stand there for every packet.
#[inline(never)]
fn find_way(skb: *mut __sk_buff, work: &mut Work) {
    const SIZE: i32 = 64;
    const { assert!(size_of::<FibLookup>() == SIZE as usize && size_of::<[u64; 8]>() == SIZE as usize) };
    let (from, to) = (&work.key.source, &work.value.address);
    let (from, to) = (address::to_words(from), address::to_words(to));
    work.second.asked = [0; 8];
    work.second.device = 0;
    let asked = (&raw mut work.second.asked).cast::<FibLookup>();
    let is_v6 = is_v6(work);
    // An address of IPv4 is the last word here, and the first one there.
    let first = |words: Words| words[0] * is_v6 + words[3] * (1 - is_v6);
    // SAFETY: the memory is this packet's alone and of the same size; the context is the kernel's, with this
    // readable field.
    let answer = unsafe {
        (*asked).family = AF_INET + (AF_INET6 - AF_INET) * is_v6 as u8;
        (*asked).l4_protocol = work.key.protocol;
        (*asked).sport = work.key.source_port.to_be();
        (*asked).dport = work.value.port.to_be();
        (*asked).ifindex = (&raw const (*skb).ifindex).read_volatile();
        (*asked).__bindgen_anon_3.ipv6_src = [first(from), from[1], from[2], from[3]];
        (*asked).__bindgen_anon_4.ipv6_dst = [first(to), to[1], to[2], to[3]];
        bpf_fib_lookup(skb.cast(), asked, SIZE, 0)
    };
    let Ok(answer) = u32::try_from(answer) else {
        return;
    };
    let is_found = answer == BPF_FIB_LKUP_RET_SUCCESS
        || answer == BPF_FIB_LKUP_RET_NO_NEIGH
        || answer == BPF_FIB_LKUP_RET_FRAG_NEEDED;
    if !is_found {
        return;
    }
    work.second.hop = to;
    // SAFETY: as above; the kernel wrote the next hop, or left the endpoint there.
    unsafe {
        if (*asked).family == AF_INET {
            work.second.hop[3] = (*asked).__bindgen_anon_4.ipv4_dst;
        }
        work.second.device = (*asked).ifindex;
    }
}

/// What the kernel is asked about sockets, in each family.
#[repr(C)]
struct Asked {
    v4: OfV4,
    v6: OfV6,
}

/// Whether a socket gets what comes from the sender of `work.second.back` for its receiver: a connection, or one
/// that waits for any.
// Both families are written, and one is pointed to, without a branch.
#[inline(never)]
fn has_socket(skb: *mut __sk_buff, work: &mut Work) -> bool {
    const V4: u32 = size_of::<OfV4>() as u32;
    const V6: u32 = size_of::<OfV6>() as u32;
    const { assert!(size_of::<Asked>() <= size_of::<[u64; 8]>()) };
    let is_v6 = is_v6(work);
    let Second { back, asked, .. } = &mut work.second;
    let (from, to) = (
        address::to_words(&back.source),
        address::to_words(&back.destination),
    );
    let (sport, dport) = (back.source_port.to_be(), back.destination_port.to_be());
    let asked = (&raw mut *asked).cast::<Asked>();
    let netns = i64::from(BPF_F_CURRENT_NETNS).cast_unsigned();
    // SAFETY: the memory is this packet's alone, and has room; the context is the kernel's, and what it is pointed
    // to has this size. What is found is let go at once.
    unsafe {
        (*asked).v4 = OfV4 {
            saddr: from[3],
            daddr: to[3],
            sport,
            dport,
        };
        (*asked).v6 = OfV6 {
            saddr: from,
            daddr: to,
            sport,
            dport,
        };
        let tuple = asked
            .byte_add((V4 * is_v6) as usize)
            .cast::<bpf_sock_tuple>();
        let size = V4 + (V6 - V4) * is_v6;
        // Two ends, because what they find is of different types to the verifier.
        if back.protocol == UDP {
            let socket = bpf_sk_lookup_udp(skb.cast(), tuple, size, netns, 0);
            if socket.is_null() {
                return false;
            }
            bpf_sk_release(socket.cast());
            return true;
        }
        let socket = bpf_skc_lookup_tcp(skb.cast(), tuple, size, netns, 0);
        if socket.is_null() {
            return false;
        }
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        state != BPF_TCP_TIME_WAIT
    }
}
