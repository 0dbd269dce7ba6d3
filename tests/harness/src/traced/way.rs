//! The way of a packet through the hooks of a host.
//!
//! ```text
//! from elsewhere ──> prerouting ─┬─> input       to the host itself
//!                                └─> forward ──> postrouting ──>
//! from the host ───> output ─────────────────> postrouting ─┬─>
//!                                                           └─> prerouting ──> input
//! ```

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use proxy_model::oracle::Packet;

use super::{End, Run, choices::Choices};

/// More chains than the kernel follows in one another.
pub const TOO_DEEP: usize = 16;

/// A hook of netfilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Whatever comes in, before it is routed.
    Prerouting,
    /// What is for the host itself.
    Input,
    /// What is for others.
    Forward,
    /// What the host sends.
    Output,
    /// Whatever goes out, after it was routed.
    Postrouting,
}

/// A packet, and what has become of it so far.
pub struct Underway<'a> {
    /// As it was sent.
    pub packet: &'a Packet,
    /// Which addresses are the host's.
    pub is_own: &'a dyn Fn(IpAddr) -> bool,
    /// The destination that it has now.
    pub destination: SocketAddr,
    /// The mark that it has now.
    pub mark: u64,
    /// A rule gave it a destination.
    pub is_led: bool,
    /// The host is its source now.
    pub is_masqueraded: bool,
    /// No rule gives it another destination any more.
    pub has_destination: bool,
    interface: &'a str,
}

impl<'a> Underway<'a> {
    /// One that was just sent.
    pub fn new(packet: &'a Packet, is_own: &'a dyn Fn(IpAddr) -> bool) -> Self {
        Self {
            packet,
            is_own,
            destination: packet.destination,
            mark: 0,
            is_led: false,
            is_masqueraded: false,
            has_destination: false,
            interface: packet.interface.as_deref().unwrap_or_default(),
        }
    }

    /// The interface on which it arrived, where rules of this hook see one; empty otherwise.
    pub const fn arrived_on(&self, place: Place) -> &'a str {
        match place {
            Place::Prerouting | Place::Input | Place::Forward => self.interface,
            Place::Output | Place::Postrouting => "",
        }
    }

    /// Whether conntrack has it as one that was given another destination: led to where it goes anyway, it
    /// is not.
    pub fn is_translated(&self) -> bool {
        self.destination != self.packet.destination
    }

    /// Whether rules that translate are not asked any more in this hook: one of them has.
    pub const fn is_settled(&self, place: Place) -> bool {
        match place {
            Place::Postrouting => self.is_masqueraded,
            _ => self.has_destination,
        }
    }
}

/// Rules as a packet meets them.
pub trait Met<'a> {
    /// The packet.
    fn underway(&mut self) -> &mut Underway<'a>;

    /// Has it go through what is at a hook. What became of it, if it is gone.
    fn meet(&mut self, place: Place) -> Result<Option<End>>;
}

/// What becomes of a packet that meets these rules.
pub fn end<'a>(rules: &mut impl Met<'a>) -> Result<End> {
    let is_sent = {
        let on = rules.underway();
        (on.is_own)(on.packet.source)
    };
    let first: &[Place] = if is_sent {
        &[Place::Output, Place::Postrouting]
    } else {
        &[Place::Prerouting]
    };
    if let Some(end) = meet_all(rules, first)? {
        return Ok(end);
    }
    // The routing decision, by the destination that it has now.
    let on = rules.underway();
    let then: &[Place] = match ((on.is_own)(on.destination.ip()), is_sent) {
        (true, true) => {
            on.interface = "lo";
            &[Place::Prerouting, Place::Input]
        }
        (true, false) => &[Place::Input],
        (false, true) => &[],
        (false, false) => &[Place::Forward, Place::Postrouting],
    };
    if let Some(end) = meet_all(rules, then)? {
        return Ok(end);
    }
    let on = rules.underway();
    match (on.is_led, on.is_masqueraded) {
        (true, masqueraded) => Ok(End::Led(on.destination, masqueraded)),
        (false, false) => Ok(End::Untouched),
        (false, true) => bail!("it is masqueraded, and not led anywhere"),
    }
}

fn meet_all<'a>(rules: &mut impl Met<'a>, places: &[Place]) -> Result<Option<End>> {
    for place in places {
        if let Some(end) = rules.meet(*place)? {
            return Ok(Some(end));
        }
        // Also what was not translated here will not be any more.
        let on = rules.underway();
        on.has_destination |= matches!(place, Place::Output | Place::Prerouting);
    }
    Ok(None)
}

/// Every way that a packet may go: `go` has it go one way, by these choices, and says what is remembered of it.
pub fn every_way<K>(
    mut go: impl FnMut(&mut Choices) -> Result<(End, Vec<K>)>,
) -> Result<Vec<Run<K>>> {
    let mut choices = Choices::default();
    let mut runs = Vec::new();
    loop {
        let (end, kept) = go(&mut choices)?;
        let chance = choices.chance();
        runs.push(Run { end, chance, kept });
        if !choices.go_on() {
            return Ok(runs);
        }
    }
}
