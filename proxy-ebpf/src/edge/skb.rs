//! A packet in the kernel, behind `proxy_common`'s trait.

use core::{arch::asm, mem::MaybeUninit, ptr::addr_of};

use aya_ebpf::{
    bindings::{__sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR},
    helpers::generated::{
        bpf_csum_update, bpf_l4_csum_replace, bpf_skb_load_bytes, bpf_skb_store_bytes,
    },
    programs::TcContext,
};
use proxy_common::packet::{Covers, Packet, Pod, Sum, Version, Words, sum::difference};

const ETH_P_IP: u32 = 0x0800;
const ETH_P_IPV6: u32 = 0x86dd;

/// How far the kernel is told to look for headers: it wants to know that there is an end.
const MOST_AT_HAND: u32 = 1 << 10;

/// A packet on a device with so many bytes before the IP header. `DIRECT`: its headers are written in place,
/// which takes no call. Then the kernel makes each packet writable that is a clone before the program runs,
/// also those that it leaves as they are: what processes send nearly always is one, so that this is not
/// for packets that leave.
pub struct Skb<const DIRECT: bool> {
    skb: *mut __sk_buff,
    link: u32,
}

impl<const DIRECT: bool> Skb<DIRECT> {
    /// The packet that a program was called for.
    #[inline(always)]
    pub fn of(ctx: &TcContext, link: u32) -> Self {
        Self {
            skb: ctx.skb.skb,
            link,
        }
    }

    /// What the kernel calls it.
    #[inline(always)]
    pub const fn context(&self) -> *mut __sk_buff {
        self.skb
    }

    /// The device that the program runs on.
    #[inline(always)]
    pub fn device(&self) -> u32 {
        // SAFETY: the kernel passes a valid context with this readable field.
        unsafe { addr_of!((*self.skb).ifindex).read_volatile() }
    }

    /// IP version; `None` if it is no IP packet. One with a VLAN tag is met again, without it, on the
    /// VLAN's own device.
    #[inline(always)]
    pub fn version(&self) -> Option<Version> {
        // SAFETY: the kernel passes a valid context with these readable fields.
        let (tagged, protocol) = unsafe {
            (
                addr_of!((*self.skb).vlan_present).read_volatile(),
                addr_of!((*self.skb).protocol).read_volatile(),
            )
        };
        if tagged != 0 {
            return None;
        }
        if protocol == ETH_P_IP.to_be() >> 16 {
            Some(Version::V4)
        } else if protocol == ETH_P_IPV6.to_be() >> 16 {
            Some(Version::V6)
        } else {
            None
        }
    }

    /// Where a `T` is that need not be fetched: headers nearly always are in the packet's first piece.
    #[inline(always)]
    fn at_hand<T: Pod>(&self, at: u32) -> Option<usize> {
        // SAFETY: the kernel passes a valid context with these readable fields.
        let (data, end) = unsafe {
            (
                addr_of!((*self.skb).data).read_volatile() as usize,
                addr_of!((*self.skb).data_end).read_volatile() as usize,
            )
        };
        let at = self.link + at;
        if at >= MOST_AT_HAND {
            return None;
        }
        let begin = data + at as usize;
        (begin + size_of::<T>() <= end).then_some(begin)
    }

    #[inline(always)]
    const fn flags(sum: Sum) -> u64 {
        match sum {
            Sum::Plain => 0,
            Sum::ZeroIsNone => BPF_F_MARK_MANGLED_0 as u64,
        }
    }
}

impl<const DIRECT: bool> Packet for Skb<DIRECT> {
    #[inline(always)]
    fn read<T: Pod>(&self, at: u32) -> Option<T> {
        let mut value = MaybeUninit::<T>::uninit();
        if let Some(begin) = self.at_hand::<T>(at) {
            // SAFETY: all of it is before the end of the piece.
            unsafe { copy_words(begin, value.as_mut_ptr()) };
        } else {
            // SAFETY: the context is the kernel's, and there is room for the bytes that are asked for.
            let failed = unsafe {
                bpf_skb_load_bytes(
                    self.skb.cast_const().cast(),
                    self.link + at,
                    value.as_mut_ptr().cast(),
                    size_of::<T>() as u32,
                )
            };
            if failed != 0 {
                return None;
            }
        }
        // SAFETY: all of it was written, and any bytes are a value.
        Some(unsafe { value.assume_init() })
    }

    #[inline(always)]
    fn write<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        // SAFETY: the context is the kernel's, and so many bytes of `value` are there.
        let failed = unsafe {
            bpf_skb_store_bytes(
                self.skb,
                self.link + at,
                core::ptr::from_ref(value).cast(),
                size_of::<T>() as u32,
                0,
            )
        };
        failed == 0
    }

    #[inline(always)]
    fn write_header<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        if DIRECT && let Some(begin) = self.at_hand::<T>(at) {
            // SAFETY: all of it is before the end of the piece, which no other packet has.
            unsafe { put_words(value, begin) };
            return true;
        }
        self.write(at, value)
    }

    #[inline(always)]
    fn fix_sum(&mut self, at: u32, from: &Words, to: &Words, covers: Covers, sum: Sum) -> bool {
        let mut flags = Self::flags(sum);
        if covers == Covers::PseudoHeader {
            flags |= u64::from(BPF_F_PSEUDO_HDR);
        }
        let at = self.link + at;
        // An IPv4 address is the last word alone.
        if (from[0] ^ to[0]) | (from[1] ^ to[1]) | (from[2] ^ to[2]) == 0 {
            // SAFETY: the context is the kernel's.
            let failed = unsafe {
                bpf_l4_csum_replace(self.skb, at, from[3].into(), to[3].into(), flags | 4)
            };
            return failed == 0;
        }
        let change = difference(from, to);
        // SAFETY: the context is the kernel's.
        let failed = unsafe { bpf_l4_csum_replace(self.skb, at, 0, change.into(), flags) };
        if failed != 0 {
            return false;
        }
        if covers == Covers::PseudoHeader {
            // The helper takes the address to be IPv4's, whose header has a sum of its own. Of a
            // packet that the device has summed up, this puts the sum right; of any other the kernel
            // answers that there is none.
            // SAFETY: the context is the kernel's.
            unsafe { bpf_csum_update(self.skb, change) };
        }
        true
    }

    #[inline(always)]
    fn fix_sum_half(&mut self, at: u32, from: u16, to: u16, sum: Sum) -> bool {
        // SAFETY: the context is the kernel's.
        let failed = unsafe {
            bpf_l4_csum_replace(
                self.skb,
                self.link + at,
                from.to_be().into(),
                to.to_be().into(),
                Self::flags(sum) | 2,
            )
        };
        failed == 0
    }
}

/// Copies a part of a packet, which may begin anywhere, as words. By itself the compiler would take it
/// apart into bytes: it does not know that the kernel lets programs read packets so where the processor
/// can (and otherwise refuses them).
///
/// # Safety
///
/// A `T` must be there to read at `from`, and room for it at `to`.
#[inline(always)]
unsafe fn copy_words<T: Pod>(from: usize, to: *mut T) {
    const WORD: usize = size_of::<u32>();
    let words = if align_of::<T>() < WORD {
        0
    } else {
        size_of::<T>() / WORD
    };
    let mut index = 0;
    while index < words {
        let word: u64;
        // SAFETY: within what the caller says, and aligned where it is written.
        unsafe {
            asm!("{0} = *(u32 *)({1} + 0)", out(reg) word, in(reg) from + WORD * index, options(nostack, readonly, pure));
            to.cast::<u32>().add(index).write(word as u32);
        }
        index += 1;
    }
    let mut at = WORD * words;
    while at < size_of::<T>() {
        // SAFETY: as above.
        unsafe {
            to.cast::<u8>()
                .add(at)
                .write(((from + at) as *const u8).read());
        };
        at += 1;
    }
}

/// The inverse, for whole words.
///
/// # Safety
///
/// There must be room for a `T` at `to`.
#[inline(always)]
unsafe fn put_words<T: Pod>(from: &T, to: usize) {
    const WORD: usize = size_of::<u32>();
    const { assert!(align_of::<T>() >= WORD && size_of::<T>().is_multiple_of(WORD)) };
    let mut index = 0;
    while index < size_of::<T>() / WORD {
        // SAFETY: within what the caller says, and aligned where it is read.
        unsafe {
            let word = core::ptr::from_ref(from).cast::<u32>().add(index).read();
            asm!("*(u32 *)({0} + 0) = {1}", in(reg) to + WORD * index, in(reg) u64::from(word), options(nostack));
        }
        index += 1;
    }
}
