//! COUNTERS: what the programs did that is worth counting. All of it is rare, so that forwarding
//! itself pays for no counter.

use bytemuck::{Pod, Zeroable};

/// The only value of COUNTERS, per CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct Counters {
    /// Connects and sends refused: the Service has no endpoint.
    pub refused: u64,
    /// Connects and sends answered "host unreachable": endpoints exist, policy allows none here.
    pub unreachable: u64,
    /// Look-ups repeated because the Service changed under the program.
    pub looked_again: u64,
    /// Connects and sends refused because it still changed after two repetitions.
    pub gave_up: u64,
    /// UDP sockets that talk to more frontends at once than are remembered, so that the oldest
    /// was forgotten: its late replies carry the endpoint's address.
    pub flow_replaced: u64,
    /// UDP sockets for which the kernel had no memory to remember a frontend.
    pub flow_not_kept: u64,
    /// Of those that are refused: sockets of the kernel itself that were left alone instead.
    pub kernel_left_alone: u64,
}

/// An event that is counted: a field of [`Counters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// [`Counters::refused`].
    Refused,
    /// [`Counters::unreachable`].
    Unreachable,
    /// [`Counters::looked_again`].
    LookedAgain,
    /// [`Counters::gave_up`].
    GaveUp,
    /// [`Counters::flow_replaced`].
    FlowReplaced,
    /// [`Counters::flow_not_kept`].
    FlowNotKept,
    /// [`Counters::kernel_left_alone`].
    KernelLeftAlone,
}

impl Counters {
    /// Where the counter of `event` is. No reference: whoever reads the map, and a program that
    /// interrupts this one, reach it at the same time.
    ///
    /// # Safety
    ///
    /// `counters` must point to live counters.
    #[expect(unsafe_code, reason = "a field of what must not be referred to")]
    #[inline(always)]
    pub const unsafe fn of(counters: *mut Self, event: Event) -> *mut u64 {
        // SAFETY: the caller's counters are live, and nothing is read.
        unsafe {
            match event {
                Event::Refused => &raw mut (*counters).refused,
                Event::Unreachable => &raw mut (*counters).unreachable,
                Event::LookedAgain => &raw mut (*counters).looked_again,
                Event::GaveUp => &raw mut (*counters).gave_up,
                Event::FlowReplaced => &raw mut (*counters).flow_replaced,
                Event::FlowNotKept => &raw mut (*counters).flow_not_kept,
                Event::KernelLeftAlone => &raw mut (*counters).kernel_left_alone,
            }
        }
    }
}
