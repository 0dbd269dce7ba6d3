//! Packets as a fuzzer makes them, through the decisions of the programs on devices: between clients,
//! frontends and endpoints that are there, while endpoints come and go, and time passes.
//!
//! Whatever comes, a packet is passed on as it is, dropped with a reason, or translated: then nothing
//! but addresses, ports and sums is another, sums are as right as they were, and the other program
//! makes it what it was. Nothing is ever left half.

mod fields;
mod judged;
mod site;
mod step;

use proxy_common::{
    in_memory::{Bytes, Hook},
    packet::{Version, parse::flags},
    socket::TCP,
    track::reason::Outcome,
};

use fields::Layout;
use judged::Met;
use site::Site;
use step::Step;

/// More steps than this teach a fuzzer nothing new.
const STEPS: usize = 64;

/// Reads `data` as packets, and what happens between them.
///
/// # Panics
///
/// If a packet is mangled, or a flow is left half, or anything else is broken.
pub fn run(data: &[u8]) {
    play(data);
}

/// The same. What became of each packet.
fn play(data: &[u8]) -> Vec<Outcome> {
    let mut play = Play::default();
    let mut rest = data;
    for _ in 0..STEPS {
        let Some(step) = step::read(&mut rest) else {
            break;
        };
        play.take(step);
    }
    play.site.ends();
    play.outcomes
}

/// What was played so far.
#[derive(Default)]
struct Play {
    site: Site,
    /// The last packet as it was.
    last: Option<(Hook, Version, Bytes)>,
    /// The last one that was translated, as it became.
    translated: Option<(Hook, Version, Bytes)>,
    outcomes: Vec<Outcome>,
}

impl Play {
    fn take(&mut self, step: Step) {
        match step {
            Step::Packet(hook, version, bytes) => self.meets(hook, version, Bytes(bytes)),
            Step::Again { at, change } => {
                if let Some((hook, version, mut packet)) = self.last.clone() {
                    if let Some(byte) = packet.0.get_mut(usize::from(at)) {
                        *byte ^= change;
                    }
                    self.meets(hook, version, packet);
                }
            }
            Step::Answer(said) => {
                if let Some((hook, version, packet)) = &self.translated {
                    let (hook, version) = (site::other(*hook), *version);
                    self.meets(hook, version, answer(version, packet, said));
                }
            }
            Step::On { to_pod } => {
                if let Some((Hook::Ingress | Hook::FromPod, version, packet)) = &self.translated {
                    let hook = if to_pod { Hook::ToPod } else { Hook::Egress };
                    let (version, packet) = (*version, packet.clone());
                    self.meets(hook, version, packet);
                }
            }
            Step::Pass(seconds) => self.site.pass(seconds.into()),
            Step::Sweep => self.site.sweep(),
            Step::Lead(mask) => self.site.lead(mask),
            Step::Leaving => self.site.turn_leaving(),
        }
        self.site.is_whole();
    }

    fn meets(&mut self, hook: Hook, version: Version, packet: Bytes) {
        let (outcome, after) = self.site.meets(hook, version, &packet);
        let met = Met {
            hook,
            version,
            before: &packet,
            outcome,
            after: &after,
        };
        met.judge(&self.site);
        if outcome == Outcome::TRANSLATED {
            self.translated = Some((hook, version, after));
        }
        self.last = Some((hook, version, packet));
        self.outcomes.push(outcome);
    }
}

/// What the receiver of a packet sends back. TCP has these flags, continues the sender's numbers, and
/// acknowledges a byte: so that two answers to an opening make a connection.
fn answer(version: Version, packet: &Bytes, said: u8) -> Bytes {
    let Some(layout) = Layout::of(version, &packet.0) else {
        return packet.clone();
    };
    let mut bytes = layout.mirrored(&packet.0);
    let tcp = layout.outer.body..layout.outer.body + 20;
    if layout.outer.has_ports()
        && layout.outer.protocol == TCP
        && let Some(header) = bytes.get_mut(tcp)
    {
        let number = |at: usize| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_be_bytes(word)
        };
        let (sequence, acknowledged) = (number(8), number(4).wrapping_add(1));
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        header[13] = said;
    }
    Bytes(bytes)
}

/// Whether these flags of TCP open a connection.
fn opens(said: u8) -> bool {
    let counting = flags::SYN | flags::ACK | flags::RST | flags::FIN;
    u32::from(said) & counting == flags::SYN
}

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;
