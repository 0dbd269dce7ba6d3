//! Why a packet to a frontend was not translated, or not let through.

use bytemuck::{Pod, Zeroable};

/// Why. The names are those of metrics; numbers are never given anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// Passed on: the flow was left to the layer beneath before.
    Beneath = 1,
    /// Passed on: IP options or extension headers in the first packet.
    Options = 2,
    /// Passed on: data in the packet that opens a connection (TCP Fast Open).
    FastOpen = 3,
    /// Passed on: no endpoint. The layer beneath rejects or drops.
    NoEndpoint = 4,
    /// Passed on: the endpoint is a frontend itself, which the layer beneath would lead on from.
    Frontend = 5,
    /// Passed on: the client is in none of the source ranges of the Service.
    SourceRanges = 6,
    /// Passed on: the source is of this node, or of its pods, or the endpoint itself.
    LocalSource = 7,
    /// Passed on: with this client and its port, every endpoint that was tried is taken, by another
    /// frontend's flow or by a direct one.
    Collision = 8,
    /// Passed on: no room for another flow. Of a flow that had begun: dropped.
    TableFull = 9,
    /// Passed on: the Service changed again and again under the program.
    Changed = 10,
    /// Passed on: no flow begins any more, because this layer is to end.
    Leaving = 11,
    /// Dropped: the kernel did not let the packet be changed.
    NotChanged = 12,
    /// Dropped: the flow's place was taken by a later one.
    Superseded = 13,
    /// Dropped: an ICMP redirect about a translated flow would show the client what is behind it.
    Redirect = 14,
    /// Passed on: the first fragment of a datagram of which a later one came before it, and was left to the
    /// layer beneath. Of a flow that is there: dropped.
    Fragment = 15,
    /// Passed on: nothing says what becomes of clients outside, as in maps of an earlier version.
    Unsaid = 16,
    /// Passed on: a client and an endpoint talk to each other directly, from the port from which the
    /// client has just dialled a frontend. That flow is left to the layer beneath.
    Direct = 17,
    /// Passed on: the endpoint must see this node, and no route leads there.
    NoRoute = 18,
    /// Passed on: the endpoint must see this node as the client, and is reached by a device without an
    /// address for that, or that is not served.
    NoSource = 19,
    /// Passed on: the endpoint must see this node as the client, and every port that was tried is taken. Dropped:
    /// a connection of this node has the port of such a client's, and none is free for it.
    NoPort = 20,
    /// Dropped: the client goes on with a connection that its endpoint, which sees this node, has not taken.
    Unanswered = 21,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Beneath,
        Self::Options,
        Self::FastOpen,
        Self::NoEndpoint,
        Self::Frontend,
        Self::SourceRanges,
        Self::LocalSource,
        Self::Collision,
        Self::TableFull,
        Self::Changed,
        Self::Leaving,
        Self::NotChanged,
        Self::Superseded,
        Self::Redirect,
        Self::Fragment,
        Self::Unsaid,
        Self::Direct,
        Self::NoRoute,
        Self::NoSource,
        Self::NoPort,
        Self::Unanswered,
    ];

    /// The name used in output and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Beneath => "beneath",
            Self::Options => "options",
            Self::FastOpen => "fast-open",
            Self::NoEndpoint => "no-endpoint",
            Self::Frontend => "frontend",
            Self::SourceRanges => "source-ranges",
            Self::LocalSource => "local-source",
            Self::Collision => "collision",
            Self::TableFull => "table-full",
            Self::Changed => "changed",
            Self::Leaving => "leaving",
            Self::NotChanged => "not-changed",
            Self::Superseded => "superseded",
            Self::Redirect => "redirect",
            Self::Fragment => "fragment",
            Self::Unsaid => "unsaid",
            Self::Direct => "direct",
            Self::NoRoute => "no-route",
            Self::NoSource => "no-source",
            Self::NoPort => "no-port",
            Self::Unanswered => "unanswered",
        }
    }

    /// Whether a flow that is passed on for the reason with this number would be passed on again,
    /// whatever else happens: then it need not be remembered.
    pub(super) const fn is_lasting(number: u32) -> bool {
        number == Self::NoEndpoint as u32
            || number == Self::SourceRanges as u32
            || number == Self::LocalSource as u32
    }
}

/// Room for as many reasons.
const COUNTS: usize = 32;

/// How often each reason was met, by its number: the value of REASONS, per CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Counted {
    /// Counts; those without a reason stay zero.
    pub counts: [u64; COUNTS],
}

impl Counted {
    /// Adds those of another CPU, or device.
    pub fn add(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().zip(other.counts);
        counts.for_each(|(sum, one)| *sum = sum.wrapping_add(one));
    }

    /// Where the count of the reason with this number is. No reference: others reach it at the same time.
    ///
    /// # Safety
    ///
    /// `counted` must point to live counts.
    #[expect(unsafe_code, reason = "a part of what must not be referred to")]
    #[inline(always)]
    pub const unsafe fn of(counted: *mut Self, reason: u32) -> *mut u64 {
        // SAFETY: the caller's counts are live, and the number is made one below 32.
        unsafe {
            (&raw mut (*counted).counts)
                .cast::<u64>()
                .add(reason as usize % COUNTS)
        }
    }
}

/// What became of a packet. One number: a function of the programs returns no more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome(u32);

const REASON: u32 = 0xff;
const DROPPED: u32 = 1 << 8;

impl Outcome {
    /// It is nobody's here: left as it is.
    pub const UNTOUCHED: Self = Self(0);
    /// Translated.
    pub const TRANSLATED: Self = Self(1 << 9);
    /// Nothing yet: the flow that it seemed to be of is over, and it begins another.
    pub(super) const BEGINS: Self = Self(1 << 10);
    /// Nothing yet: it begins a flow, whose place behind the translation is taken.
    pub(super) const CLAIMED: Self = Self(1 << 11);

    /// Left as it is, to the layer beneath.
    #[inline(always)]
    pub const fn passed(reason: Reason) -> Self {
        Self(reason as u32)
    }

    /// It must go no further.
    #[inline(always)]
    pub const fn dropped(reason: Reason) -> Self {
        Self(reason as u32 | DROPPED)
    }

    /// The same, but it must go no further.
    #[inline(always)]
    pub(super) const fn and_dropped(self) -> Self {
        Self(self.0 | DROPPED)
    }

    /// The number of the reason why it was not translated; 0 without one.
    #[inline(always)]
    pub const fn reason(self) -> u32 {
        self.0 & REASON
    }

    /// Whether it must go no further.
    #[inline(always)]
    pub const fn is_dropped(self) -> bool {
        self.0 & DROPPED != 0
    }
}

impl core::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let reason = Reason::ALL.iter().find(|one| **one as u32 == self.reason());
        match (*self, reason) {
            (Self::UNTOUCHED, _) => f.write_str("untouched"),
            (Self::TRANSLATED, _) => f.write_str("translated"),
            (_, Some(reason)) if self.is_dropped() => write!(f, "dropped: {}", reason.as_str()),
            (_, Some(reason)) => write!(f, "passed: {}", reason.as_str()),
            (Self::CLAIMED, _) => f.write_str("begins a flow"),
            (_, None) => f.write_str("begins another flow"),
        }
    }
}
