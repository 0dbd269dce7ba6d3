//! Packets as the programs on devices see them: what a program may do to one (`Packet`), what its
//! headers say (`parse`), how an address and a port in it are replaced (`rewrite`), and what an ICMP
//! error quotes (`quoted`), and what becomes of sums (`sum`).
//!
//! Offsets count from the IP header, in bytes. Addresses are four native words whose memory is in
//! network order, IPv4 mapped into IPv6, as in [`crate::address`]; ports are in host order.

pub mod parse;
pub mod quoted;
pub mod rewrite;
pub mod sum;
#[cfg(test)]
mod tests;

pub use bytemuck::Pod;

/// An address as words, see [`crate::address::from_words`].
pub type Words = [u32; 4];

/// IP version of a packet.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a sum covers besides the bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    /// Nothing: what is replaced stands in the packet itself.
    Data,
    /// The addresses of the IP header, as a pseudo header (RFC 9293 section 3.1, RFC 8200 section
    /// 8.1).
    PseudoHeader,
}

/// A packet that a program may change. What returns a `bool` says whether it could be done: after a
/// false one the packet may be half changed, and must not go on.
///
/// Sums of transport headers are changed by what was replaced, never computed anew: of a packet whose
/// sum the device will fill in, only the part that is there already may change, and only the kernel
/// knows which. Of a sum over the whole packet, which a device may have left with it, `fix_sum` alone
/// may change anything: it takes what is written to be made up for by the sums that are changed.
pub trait Packet {
    /// Reads `T` at `at`.
    fn read<T: Pod>(&self, at: u32) -> Option<T>;

    /// Writes `value` at `at`.
    fn write<T: Pod>(&mut self, at: u32, value: &T) -> bool;

    /// The same for a part of the headers, in whole words.
    #[inline(always)]
    fn write_header<T: Pod>(&mut self, at: u32, value: &T) -> bool {
        self.write(at, value)
    }

    /// Changes the sum of a transport header, at `at`, for an address that was replaced.
    fn fix_sum(&mut self, at: u32, from: &Words, to: &Words, covers: Covers, sum: Sum) -> bool;

    /// Changes the sum of a transport header, at `at`, for two bytes that were replaced.
    fn fix_sum_half(&mut self, at: u32, from: u16, to: u16, sum: Sum) -> bool;
}

/// The same memory as larger words.
#[inline(always)]
pub(crate) fn pairs(words: &Words) -> [u64; 2] {
    let [a, b, c, d] = *words;
    [bytemuck::cast([a, b]), bytemuck::cast([c, d])]
}

/// What a sum of zero means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// A sum like any other.
    Plain,
    /// That there is none; a computed zero is written as its complement (RFC 768).
    ZeroIsNone,
}

/// Whether two addresses are equal. `==` on arrays calls `bcmp`, which the BPF target lacks.
#[inline(always)]
pub const fn is_same(one: &Words, other: &Words) -> bool {
    ((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) | (one[3] ^ other[3])) == 0
}
