//! SETTINGS: what the agent wants of the programs on devices.

use bytemuck::{Pod, Zeroable};

use crate::{
    address::{self, Address},
    packet::Words,
};

/// A number of [`Settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// [`Settings::seed`].
    Seed,
    /// [`Settings::flags`].
    Flags,
    /// [`Settings::most_flows`].
    MostFlows,
    /// [`Settings::udp_unanswered`].
    UdpUnanswered,
    /// [`Settings::udp_answered`].
    UdpAnswered,
    /// [`Settings::tcp_beneath`].
    TcpBeneath,
    /// [`Settings::tcp_established`].
    TcpEstablished,
    /// [`Settings::tcp_half_closed`].
    TcpHalfClosed,
    /// [`Settings::tcp_closed`].
    TcpClosed,
    /// [`Settings::tcp_reset`].
    TcpReset,
    /// [`Settings::first_port`].
    FirstPort,
    /// [`Settings::last_port`].
    LastPort,
}

/// The only value of SETTINGS: what the agent wants of the programs on devices.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Settings {
    /// Makes the choice of endpoints unpredictable for whoever chooses ports.
    pub seed: u32,
    /// [`LEAVING`].
    pub flags: u32,
    /// Flows that TRACK shall hold at most.
    pub most_flows: u32,
    /// Seconds after which an unanswered flow of UDP begins anew.
    pub udp_unanswered: u32,
    /// Seconds after which an answered flow of UDP begins anew.
    pub udp_answered: u32,
    /// Seconds for which a TCP flow that was left to the layer beneath stays there.
    pub tcp_beneath: u32,
    /// Seconds that a connection of TCP may be idle.
    pub tcp_established: u32,
    /// Seconds that it may be idle once one side is done.
    pub tcp_half_closed: u32,
    /// Seconds that it is remembered once both sides are done.
    pub tcp_closed: u32,
    /// Seconds that it is remembered once it was broken.
    pub tcp_reset: u32,
    /// The first port from which endpoints are reached in the place of clients.
    pub first_port: u32,
    /// The last one.
    pub last_port: u32,
    /// Where the addresses of pods come from, in each family that has [`PODS_V4`] or [`PODS_V6`].
    pub pods: [Prefix; 2],
}

/// A range of addresses.
#[repr(C, align(4))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Prefix {
    /// Its first address.
    pub address: Address,
    /// The bits that all of its addresses have in common.
    pub mask: Address,
}

/// Flows that one run of the sweeping program looks at, at most. The verifier goes through each turn of a
/// loop by itself: for 64, this program took as long to load as all others.
pub const SWEPT_AT_ONCE: u32 = 8;

/// [`Settings::flags`]: no flow begins any more; those that there are go on.
pub const LEAVING: u32 = 1 << 0;
/// [`Settings::flags`]: the first of [`Settings::pods`] counts.
pub const PODS_V4: u32 = 1 << 1;
/// [`Settings::flags`]: the second of [`Settings::pods`] counts.
pub const PODS_V6: u32 = 1 << 2;
/// [`Settings::flags`]: no layer beneath gets what is passed on.
pub const ALONE: u32 = 1 << 3;

impl Settings {
    /// Where `which` is.
    ///
    /// # Safety
    ///
    /// `settings` must point to live settings.
    #[expect(unsafe_code, reason = "a field of what must not be referred to")]
    #[inline(always)]
    pub const unsafe fn of(settings: *const Self, which: Setting) -> *const u32 {
        // SAFETY: the caller's settings are live, and nothing is read.
        unsafe {
            match which {
                Setting::Seed => &raw const (*settings).seed,
                Setting::Flags => &raw const (*settings).flags,
                Setting::MostFlows => &raw const (*settings).most_flows,
                Setting::UdpUnanswered => &raw const (*settings).udp_unanswered,
                Setting::UdpAnswered => &raw const (*settings).udp_answered,
                Setting::TcpBeneath => &raw const (*settings).tcp_beneath,
                Setting::TcpEstablished => &raw const (*settings).tcp_established,
                Setting::TcpHalfClosed => &raw const (*settings).tcp_half_closed,
                Setting::TcpClosed => &raw const (*settings).tcp_closed,
                Setting::TcpReset => &raw const (*settings).tcp_reset,
                Setting::FirstPort => &raw const (*settings).first_port,
                Setting::LastPort => &raw const (*settings).last_port,
            }
        }
    }

    /// The number that `which` names.
    #[expect(unsafe_code, reason = "as programs find it")]
    pub const fn get(&self, which: Setting) -> u32 {
        // SAFETY: these settings are live, and nobody writes them meanwhile.
        unsafe { *Self::of(self, which) }
    }

    /// Whether `address` is a pod's, which the Service contract treats as a client of this node.
    #[inline(always)]
    pub fn is_pod(&self, address: &Words) -> bool {
        (self.flags & PODS_V4 != 0 && self.pods[0].contains(address))
            || (self.flags & PODS_V6 != 0 && self.pods[1].contains(address))
    }
}

impl Prefix {
    /// Whether `address` is in it.
    #[inline(always)]
    pub fn contains(&self, address: &Words) -> bool {
        let (first, mask) = (
            address::to_words(&self.address),
            address::to_words(&self.mask),
        );
        let mut differs = 0;
        let mut word = 0;
        while word < 4 {
            differs |= (address[word] & mask[word]) ^ first[word];
            word += 1;
        }
        differs == 0
    }
}
