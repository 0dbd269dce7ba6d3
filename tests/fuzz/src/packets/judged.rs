//! What must hold of a packet after a program met it.

use std::{iter, ops::Range};

use proxy_common::{
    in_memory::{Bytes, Hook, folded},
    packet::{Version, rewrite::End},
    socket::{TCP, UDP},
    track::reason::{Outcome, Reason},
};

use super::{
    fields::{Header, Layout, Side},
    opens,
    site::{Site, other},
};

/// Why a packet may be dropped.
const DROPPED: [Reason; 7] = [
    Reason::TableFull,
    Reason::NotChanged,
    Reason::Superseded,
    Reason::Unanswered,
    Reason::NoPort,
    Reason::Redirect,
    Reason::Fragment,
];

/// A packet before and after a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met<'a> {
    pub(super) hook: Hook,
    pub(super) version: Version,
    pub(super) before: &'a Bytes,
    pub(super) outcome: Outcome,
    pub(super) after: &'a Bytes,
}

/// A sum, and what it covers.
struct Sum {
    at: Range<usize>,
    covers: Vec<Range<usize>>,
    /// Zero says that there is none; and is never written for a sum that comes to it (RFC 768).
    zero_is_none: bool,
}

impl Met<'_> {
    /// Asserts all of it. That what is passed on or dropped is as it was, [`Hook::meets`] does.
    pub(super) fn judge(&self, site: &Site) {
        let layout = Layout::of(self.version, &self.before.0);
        if self.outcome.is_dropped() {
            let reasons = DROPPED.map(Outcome::dropped);
            assert!(reasons.contains(&self.outcome), "{self:?}");
        }
        if self.outcome == Outcome::dropped(Reason::NotChanged) {
            let layout = layout.expect("it was found to be of a flow");
            self.is_cut_off(&layout);
        } else if self.outcome == Outcome::TRANSLATED {
            let layout = layout.expect("it was found to be of a flow");
            assert_eq!(Layout::of(self.version, &self.after.0), Some(layout));
            self.changes_ends_alone(&layout);
            self.leads_to_what_is_served(&layout);
            self.has_sums_as_before(&layout);
            self.comes_back(&layout, site);
        }
    }

    /// Only what has no room for its sum cannot be changed as a whole.
    fn is_cut_off(&self, layout: &Layout) {
        let outer = layout.outer;
        assert!(
            outer.has_ports() && outer.transport_sum().end > self.before.0.len(),
            "{self:?}"
        );
    }

    /// The header and the end that are translated, and that end of the error which quotes it.
    fn translated(&self, layout: &Layout) -> (Header, End, Option<End>) {
        match (layout.quoted, self.hook) {
            (None, Hook::Ingress | Hook::FromPod) => (layout.outer, End::Destination, None),
            (None, Hook::Egress | Hook::ToPod) => (layout.outer, End::Source, None),
            (Some(quoted), Hook::Ingress | Hook::FromPod) => {
                (quoted, End::Source, Some(End::Destination))
            }
            (Some(quoted), Hook::Egress | Hook::ToPod) => {
                (quoted, End::Destination, Some(End::Source))
            }
        }
    }

    /// What the end is outside of the translation, the frontend or this node; and inside, the endpoint or the client.
    const fn ordered(&self, from: Side, to: Side) -> (Side, Side) {
        match self.hook {
            Hook::Ingress | Hook::FromPod => (from, to),
            Hook::Egress | Hook::ToPod => (to, from),
        }
    }

    fn changes_ends_alone(&self, layout: &Layout) {
        let (header, end, outer_end) = self.translated(layout);
        let mut may_change = vec![header.address(end)];
        if header.has_ports() {
            may_change.push(header.port(end));
        }
        may_change.extend(outer_end.map(|end| layout.outer.address(end)));
        may_change.extend(sums(layout, &self.before.0).into_iter().map(|sum| sum.at));
        assert_eq!(self.before.0.len(), self.after.0.len(), "{self:?}");
        let mut expected = self.before.0.clone();
        for range in may_change {
            expected[range.clone()].copy_from_slice(&self.after.0[range]);
        }
        assert_eq!(expected, self.after.0, "{self:?}");
    }

    fn leads_to_what_is_served(&self, layout: &Layout) {
        let (header, end, outer_end) = self.translated(layout);
        let from = header.side(&self.before.0, end);
        let to = header.side(&self.after.0, end);
        let (outer, inner) = self.ordered(from, to);
        let is_second =
            Site::is_own(outer) && Site::is_endpoint(header.side(&self.before.0, opposite(end)));
        let is_first = Site::is_frontend(outer) && Site::is_endpoint(inner);
        let at_pod = matches!(self.hook, Hook::FromPod | Hook::ToPod);
        assert!(is_second || is_first && !at_pod, "{self:?}");
        assert!(
            header.is_later() || from.1.is_some() && to.1.is_some(),
            "{self:?}"
        );
        // An error is from or for the same, or a router's.
        if let Some(end) = outer_end {
            let (outer, _) = layout.outer.side(&self.before.0, end);
            let expected = if outer == from.0 { to.0 } else { outer };
            assert_eq!(
                layout.outer.side(&self.after.0, end).0,
                expected,
                "{self:?}"
            );
        }
    }

    fn has_sums_as_before(&self, layout: &Layout) {
        let after = sums(layout, &self.after.0);
        for (before, after) in sums(layout, &self.before.0).into_iter().zip(after) {
            assert_eq!(before.at, after.at);
            let [was, is] = [self.before, self.after].map(|packet| &packet.0[before.at.clone()]);
            if before.zero_is_none && (was == [0, 0] || is == [0, 0]) {
                assert_eq!(was, is, "{self:?}");
                continue;
            }
            // By how much a sum is wrong.
            let [was, is] = [(self.before, &before), (self.after, &after)]
                .map(|(packet, sum)| sum.total(&packet.0) % 0xffff);
            assert_eq!(was, is, "the sum at {:?}: {self:?}", before.at);
        }
    }

    /// The answer to what the packet became is translated to the answer to it.
    fn comes_back(&self, layout: &Layout, site: &Site) {
        let (header, end, outer_end) = self.translated(layout);
        if header.is_later() {
            // It follows the first one of its own direction.
            return;
        }
        let far = opposite(end);
        let from = header.side(&self.before.0, end);
        let to = header.side(&self.after.0, end);
        if let Some(end) = outer_end
            && layout.outer.side(&self.before.0, end).0 == to.0
        {
            // A router with the address that is put in is not to be told from what was put in.
            return;
        }
        let copy = site.copy();
        let mirrored = Bytes(layout.mirrored(&self.after.0));
        let (outcome, back) = copy.meets(other(self.hook), self.version, &mirrored);
        copy.is_whole();
        if outcome == Outcome::dropped(Reason::Fragment) {
            // A later one with its number came from there before.
            return;
        }
        let begins = self.hook == Hook::Egress
            && layout.quoted.is_none()
            && header.protocol == TCP
            && opens(self.before.0[header.body + 13]);
        let (outer, inner) = self.ordered(from, to);
        let other_end = header.side(&self.before.0, far);
        let stays = !begins
            && (site.is_tracked(other_end, outer, inner, header.protocol)
                || site.is_seen_as(inner, outer, other_end, header.protocol));
        // What is not answered yet may begin anew, and with another endpoint.
        let is_same = outcome == Outcome::TRANSLATED && header.side(&back.0, far) == from;
        if stays || is_same {
            assert_eq!(outcome, Outcome::TRANSLATED, "back: {self:?}");
            let expected = Bytes(layout.mirrored(&self.before.0));
            let [back, expected] = [back, expected].map(|packet| normal(layout, packet));
            assert_eq!(back, expected, "back: {self:?}");
        }
    }
}

/// The other end.
fn opposite(end: End) -> End {
    match end {
        End::Source => End::Destination,
        End::Destination => End::Source,
    }
}

/// The sums of a packet that is translated.
fn sums(layout: &Layout, bytes: &[u8]) -> Vec<Sum> {
    let mut sums = Vec::new();
    let addresses =
        |header: &Header| [End::Source, End::Destination].map(|end| header.address(end));
    for header in layout.headers() {
        sums.extend(header.own_sum().map(|at| Sum {
            at,
            covers: iter::once(header.at..header.body.min(bytes.len())).collect(),
            zero_is_none: false,
        }));
    }
    let outer = layout.outer;
    let rest = outer.body..bytes.len();
    let Some(quoted) = layout.quoted else {
        if outer.has_ports() {
            let mut covers = addresses(&outer).to_vec();
            covers.push(rest);
            sums.push(Sum {
                at: outer.transport_sum(),
                covers,
                zero_is_none: outer.protocol == UDP,
            });
        }
        return sums;
    };
    // That of the error covers its addresses in IPv6 (RFC 4443).
    let mut covers = Vec::new();
    if outer.own_sum().is_none() {
        covers.extend(addresses(&outer));
    }
    // Last, because it may be of an odd length.
    covers.push(rest);
    sums.push(Sum {
        at: outer.body + 2..outer.body + 4,
        covers,
        zero_is_none: false,
    });
    // The quoted sum, if it is quoted; of what it covers only what may change is there for sure.
    let at = quoted.transport_sum();
    if at.end <= bytes.len() {
        let mut covers = addresses(&quoted).to_vec();
        covers.extend([quoted.body..quoted.body + 4, at.clone()]);
        sums.push(Sum {
            at,
            covers,
            zero_is_none: quoted.protocol == UDP,
        });
    }
    sums
}

impl Sum {
    fn total(&self, bytes: &[u8]) -> u16 {
        let all: Vec<_> = self
            .covers
            .iter()
            .map(|range| &bytes[range.clone()])
            .collect();
        folded(&all.concat())
    }
}

/// The packet with one of the two forms of a zero in each sum that may have either (RFC 1624).
fn normal(layout: &Layout, mut packet: Bytes) -> Bytes {
    for sum in sums(layout, &packet.0) {
        let sum_bytes = &mut packet.0[sum.at];
        if !sum.zero_is_none && sum_bytes == [0xff, 0xff] {
            sum_bytes.fill(0);
        }
    }
    packet
}
