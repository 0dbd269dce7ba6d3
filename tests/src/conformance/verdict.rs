//! Whether what became of a packet is what the oracle says of it. Pure.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::{Result, bail, ensure};
use proxy_model::{
    IpFamily,
    oracle::{Outcome, Verdict},
};

use crate::{
    journey::{Datagram, Entry, Sighting},
    world::NODE_ADDRESSES,
};

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

    fn datagram(source: &str, destination: &str) -> Datagram {
        Datagram {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::Tcp,
            token: 1,
        }
    }

    #[test]
    fn only_what_the_oracle_says_agrees() {
        let own = [NODE_ADDRESSES[0], "192.0.2.11".parse().unwrap()];
        let outside = ("203.0.113.9:1024", Entry::Anywhere);
        let node = ("192.0.2.11:1024", Entry::Node);
        let first = ("10.244.255.254:1024", Entry::Node);
        let forward = || verdict(Outcome::Forward, None);
        let masquerade = || verdict(Outcome::Forward, Some(Masquerade::All));
        let left = |source, to| Sighting::Left(datagram(source, to));
        let delivered = |source, to| Sighting::Delivered(datagram(source, to));
        let (there, here) = ("10.244.0.5:8080", "192.0.2.11:8080");
        let to = "10.96.0.1:80";
        for (says, (source, entry), seen, agrees) in [
            (forward(), &outside, left(outside.0, there), true),
            (
                forward(),
                &outside,
                left(outside.0, "10.244.0.6:8080"),
                false,
            ),
            (forward(), &outside, left("10.244.255.254:9", there), false),
            (forward(), &outside, delivered(outside.0, here), true),
            (forward(), &outside, Sighting::Refused, false),
            (forward(), &outside, Sighting::Nothing, false),
            (
                masquerade(),
                &outside,
                left("10.244.255.254:9", there),
                true,
            ),
            (masquerade(), &outside, left(outside.0, there), false),
            (masquerade(), &outside, left("203.0.113.10:9", there), false),
            (masquerade(), &outside, delivered(outside.0, here), true),
            (
                masquerade(),
                &outside,
                delivered("203.0.113.10:9", here),
                false,
            ),
            (masquerade(), &node, left("10.244.255.254:9", there), true),
            (masquerade(), &node, left("192.0.2.11:9", there), false),
            (masquerade(), &first, left("10.244.255.254:9", there), true),
            (
                verdict(Outcome::Reject, None),
                &outside,
                Sighting::Refused,
                true,
            ),
            (
                verdict(Outcome::Reject, None),
                &outside,
                Sighting::Nothing,
                false,
            ),
            (
                verdict(Outcome::Drop, None),
                &outside,
                Sighting::Nothing,
                true,
            ),
            (
                verdict(Outcome::Drop, None),
                &outside,
                Sighting::Refused,
                false,
            ),
            (
                verdict(Outcome::Drop, None),
                &outside,
                left(outside.0, to),
                false,
            ),
            (
                verdict(Outcome::Pass, None),
                &outside,
                left(outside.0, to),
                true,
            ),
            (
                verdict(Outcome::Pass, None),
                &outside,
                left(outside.0, there),
                false,
            ),
            (
                verdict(Outcome::Pass, None),
                &outside,
                Sighting::Nothing,
                false,
            ),
        ] {
            let sent = datagram(source, to);
            let judged = judge(&says, &own, entry, &sent, seen);
            assert_eq!(
                judged.is_ok(),
                agrees,
                "{says:?} {entry:?} {seen:?}: {judged:?}"
            );
        }
        let to_loopback = datagram(outside.0, "127.0.0.1:80");
        let pass = verdict(Outcome::Pass, None);
        let judged = judge(
            &pass,
            &own,
            &Entry::Anywhere,
            &to_loopback,
            Sighting::Nothing,
        );
        assert!(judged.is_ok(), "{judged:?}");
    }
}
