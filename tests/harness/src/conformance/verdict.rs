//! Whether what became of a packet is what the oracle says of it. Pure.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::{Result, bail, ensure};
use proxy_model::{
    IpFamily, NodeState,
    oracle::{Outcome, Packet, Path, Verdict, verdict, verdict_with_localnet},
};

use crate::{
    journey::{Datagram, Entry, Sighting},
    world::NODE_ADDRESSES,
};

/// What the oracle says of `packet` where packets are met; `localnet`: those that the node sends to 127.0.0.0/8
/// reach NodePorts.
pub fn on_packets(state: &NodeState, packet: &Packet, localnet: bool) -> Verdict {
    if localnet {
        verdict_with_localnet(state, packet)
    } else {
        verdict(state, packet, Path::Packet)
    }
}

/// The endpoint that `sent` landed on, if it was to land on one; fails if what was `seen` of it is
/// not what `verdict` says. `own` are the addresses of the node.
pub fn judge(
    verdict: &Verdict,
    own: &[IpAddr],
    entry: &Entry,
    sent: &Datagram,
    seen: Sighting,
) -> Result<Option<SocketAddr>> {
    match (verdict.outcome, seen) {
        (Outcome::Forward, Sighting::Left(landed) | Sighting::Delivered(landed)) => {
            let mut targets = verdict.targets.iter();
            let Some(target) = targets.find(|target| target.address == landed.destination) else {
                bail!("it landed on {}", landed.destination);
            };
            let delivered = matches!(seen, Sighting::Delivered(_));
            let (before, after) = (sent.source.ip(), landed.source.ip());
            if target.masquerade.is_none() {
                ensure!(
                    after == before,
                    "{} sees {after} as the source",
                    target.address
                );
            } else if delivered {
                // Nothing that is delivered to the node itself needs to be masqueraded: the answer
                // begins here. Netfilter could not do it, either.
                ensure!(
                    after == before || own.contains(&after),
                    "{} sees {after} as the source",
                    target.address
                );
            } else {
                let same = after == before && !is_best(before, landed.destination.ip(), entry);
                ensure!(
                    own.contains(&after) && !same,
                    "{} sees {after} as the source, which is not masqueraded",
                    target.address
                );
            }
            Ok(Some(target.address))
        }
        (Outcome::Reject, Sighting::Refused) | (Outcome::Drop, Sighting::Nothing) => Ok(None),
        // What listens on loopback addresses is for this host alone (CVE-2020-8558).
        (Outcome::Pass, Sighting::Delivered(landed))
            if *entry != Entry::Node && landed.destination.ip().is_loopback() =>
        {
            bail!("{} on a loopback address was reached", landed.destination)
        }
        (Outcome::Pass, Sighting::Left(landed) | Sighting::Delivered(landed)) => {
            // Of two connections that would look alike behind the node, the kernel gives one another
            // source port.
            let is_same =
                (landed.source.ip(), landed.destination) == (sent.source.ip(), sent.destination);
            ensure!(
                is_same,
                "it came out as {} -> {}",
                landed.source,
                landed.destination
            );
            Ok(None)
        }
        (Outcome::Pass, Sighting::Nothing) if is_stopped(entry, sent.destination.ip()) => Ok(None),
        (_, Sighting::Left(landed)) => {
            bail!("it left as {} -> {}", landed.source, landed.destination)
        }
        (_, Sighting::Delivered(landed)) => bail!(
            "it was delivered to the node as {} -> {}",
            landed.source,
            landed.destination
        ),
        (_, Sighting::Refused) => bail!("it was rejected"),
        (_, Sighting::TooBig(error)) => bail!("{} said that it is too big", error.from),
        (_, Sighting::Nothing) => bail!("it was dropped"),
    }
}

/// Whether `source`, an address of the node, may be the very one that masquerading gives to what goes
/// to `destination`: then nothing shows whether it was masqueraded. IPv6 prefers the address that is
/// most like the destination.
fn is_best(source: IpAddr, destination: IpAddr, entry: &Entry) -> bool {
    let alike = match destination {
        IpAddr::V4(_) => NODE_ADDRESSES.contains(&source),
        IpAddr::V6(destination) => {
            NODE_ADDRESSES.contains(&source) || !Ipv6Addr::is_unique_local(&destination)
        }
    };
    *entry == Entry::Node && alike && IpFamily::of(source) == IpFamily::of(destination)
}

/// Whether the kernel itself lets nothing through there, proxy or not.
fn is_stopped(entry: &Entry, destination: IpAddr) -> bool {
    let nowhere = match destination {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    nowhere || (*entry != Entry::Node && destination.is_loopback())
}

#[cfg(test)]
mod tests {
    use proxy_model::{
        Protocol,
        oracle::{Masquerade, Reason, Target},
    };

    use super::*;

    fn verdict(outcome: Outcome, masquerade: Option<Masquerade>) -> Verdict {
        let targets = ["10.244.0.5:8080", "192.0.2.11:8080"];
        let targets = targets.map(|address| Target {
            address: address.parse().unwrap(),
            masquerade,
        });
        Verdict {
            outcome,
            service: None,
            frontend: None,
            set: None,
            targets: targets.into(),
            reason: Reason::ClusterSet,
        }
    }

    /// Whether `seen` of a packet that `source` sends to a ClusterIP agrees with it.
    fn agrees(says: &Verdict, source: &str, entry: &Entry, seen: Sighting) -> bool {
        let own = [NODE_ADDRESSES[0], "192.0.2.11".parse().unwrap()];
        judge(says, &own, entry, &datagram(source, TO), seen).is_ok()
    }

    const TO: &str = "10.96.0.1:80";
    const OUTSIDE: &str = "203.0.113.9:1024";
    const THERE: &str = "10.244.0.5:8080";

    fn left(source: &str, to: &str) -> Sighting {
        Sighting::Left(datagram(source, to))
    }

    fn datagram(source: &str, destination: &str) -> Datagram {
        let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
        Datagram::first(source, destination, Protocol::Tcp, 1)
    }

    #[test]
    fn a_packet_lands_on_an_endpoint_with_the_right_source() {
        let plain = verdict(Outcome::Forward, None);
        let masquerade = verdict(Outcome::Forward, Some(Masquerade::All));
        let (node, first) = ("192.0.2.11:1024", "10.244.255.254:1024");
        let delivered = |source| Sighting::Delivered(datagram(source, "192.0.2.11:8080"));
        let (from_outside, from_node) = (&Entry::Anywhere, &Entry::Node);
        for (says, source, entry, seen, expected) in [
            (&plain, OUTSIDE, from_outside, left(OUTSIDE, THERE), true),
            (
                &plain,
                OUTSIDE,
                from_outside,
                left(OUTSIDE, "10.244.0.6:8080"),
                false,
            ),
            (&plain, OUTSIDE, from_outside, left(first, THERE), false),
            (&plain, OUTSIDE, from_outside, delivered(OUTSIDE), true),
            (&plain, OUTSIDE, from_outside, Sighting::Refused, false),
            (&plain, OUTSIDE, from_outside, Sighting::Nothing, false),
            (&masquerade, OUTSIDE, from_outside, left(first, THERE), true),
            (
                &masquerade,
                OUTSIDE,
                from_outside,
                left(OUTSIDE, THERE),
                false,
            ),
            (
                &masquerade,
                OUTSIDE,
                from_outside,
                left("203.0.113.10:9", THERE),
                false,
            ),
            (&masquerade, OUTSIDE, from_outside, delivered(OUTSIDE), true),
            (
                &masquerade,
                OUTSIDE,
                from_outside,
                delivered("203.0.113.10:9"),
                false,
            ),
            (&masquerade, node, from_node, left(first, THERE), true),
            (&masquerade, node, from_node, left(node, THERE), false),
            (&masquerade, first, from_node, left(first, THERE), true),
        ] {
            let said = format!("{says:?} {source} {entry:?} {seen:?}");
            assert_eq!(agrees(says, source, entry, seen), expected, "{said}");
        }
    }

    #[test]
    fn what_lands_nowhere_is_told_apart() {
        let (refused, nothing) = (Sighting::Refused, Sighting::Nothing);
        for (outcome, seen, expected) in [
            (Outcome::Reject, refused, true),
            (Outcome::Reject, nothing, false),
            (Outcome::Reject, left(OUTSIDE, TO), false),
            (Outcome::Drop, nothing, true),
            (Outcome::Drop, refused, false),
            (Outcome::Drop, left(OUTSIDE, TO), false),
            (Outcome::Pass, left(OUTSIDE, TO), true),
            (Outcome::Pass, left(OUTSIDE, THERE), false),
            (Outcome::Pass, left("10.244.255.254:9", TO), false),
            (Outcome::Pass, nothing, false),
            (Outcome::Pass, refused, false),
        ] {
            let says = verdict(outcome, None);
            let agrees = agrees(&says, OUTSIDE, &Entry::Anywhere, seen);
            assert_eq!(agrees, expected, "{outcome:?} {seen:?}");
        }
        // The kernel lets nobody in there.
        let sent = datagram(OUTSIDE, "127.0.0.1:80");
        let pass = verdict(Outcome::Pass, None);
        assert!(judge(&pass, &[], &Entry::Anywhere, &sent, nothing).is_ok());
    }
}
