//! Ways and sockets of this node, asked for with a packet at hand, behind `proxy_common`'s trait.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_CURRENT_NETNS, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH,
        BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup as FibLookup, bpf_sock_tuple,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 as OfV4,
        bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 as OfV6,
    },
    helpers::generated::{bpf_fib_lookup, bpf_sk_lookup_udp, bpf_sk_release, bpf_skc_lookup_tcp},
};
use proxy_common::{
    address,
    packet::Version,
    socket::UDP,
    track::{ConnectionKey, Network, SourceKey, SourceValue, Sources, Work},
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
    fn has_socket(&self, key: &ConnectionKey, version: Version) -> bool {
        has_socket(self.context(), key, version)
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
    let is_v4 = matches!(work.header.version, Version::V4);
    // SAFETY: the memory is this packet's alone and of the same size; the context is the kernel's, with this
    // readable field.
    let answer = unsafe {
        (*asked).l4_protocol = work.key.protocol;
        (*asked).sport = work.key.source_port.to_be();
        (*asked).dport = work.value.port.to_be();
        (*asked).ifindex = (&raw const (*skb).ifindex).read_volatile();
        if is_v4 {
            (*asked).family = AF_INET;
            (*asked).__bindgen_anon_3.ipv4_src = from[3];
            (*asked).__bindgen_anon_4.ipv4_dst = to[3];
        } else {
            (*asked).family = AF_INET6;
            (*asked).__bindgen_anon_3.ipv6_src = from;
            (*asked).__bindgen_anon_4.ipv6_dst = to;
        }
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
        if is_v4 && (*asked).family == AF_INET {
            work.second.hop[3] = (*asked).__bindgen_anon_4.ipv4_dst;
        }
        work.second.device = (*asked).ifindex;
    }
}

/// Whether a socket gets what comes from the key's sender for its receiver: a connection, or one that waits
/// for any.
#[inline(never)]
fn has_socket(skb: *mut __sk_buff, key: &ConnectionKey, version: Version) -> bool {
    // SAFETY: plain numbers, of which zeros are values.
    let mut asked: bpf_sock_tuple = unsafe { MaybeUninit::zeroed().assume_init() };
    let (from, to) = (
        address::to_words(&key.source),
        address::to_words(&key.destination),
    );
    let (sport, dport) = (key.source_port.to_be(), key.destination_port.to_be());
    let size = if matches!(version, Version::V4) {
        asked.__bindgen_anon_1.ipv4 = OfV4 {
            saddr: from[3],
            daddr: to[3],
            sport,
            dport,
        };
        size_of::<OfV4>()
    } else {
        asked.__bindgen_anon_1.ipv6 = OfV6 {
            saddr: from,
            daddr: to,
            sport,
            dport,
        };
        size_of::<OfV6>()
    } as u32;
    let netns = i64::from(BPF_F_CURRENT_NETNS).cast_unsigned();
    // SAFETY: the context is the kernel's, and the tuple has this size. What is found is let go at once.
    unsafe {
        let socket = if key.protocol == UDP {
            bpf_sk_lookup_udp(skb.cast(), &raw mut asked, size, netns, 0)
        } else {
            bpf_skc_lookup_tcp(skb.cast(), &raw mut asked, size, netns, 0)
        };
        if socket.is_null() {
            return false;
        }
        bpf_sk_release(socket.cast());
    }
    true
}
