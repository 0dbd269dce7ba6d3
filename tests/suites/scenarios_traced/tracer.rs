//! A state, what packet backends render of it, and what becomes of a packet by that: it must be what the oracle says.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use proxy_backend_iptables as iptables;
use proxy_backend_nftables as nftables;
use proxy_model::{
    Capability, NodeState,
    oracle::{Packet, Path, Verdict, verdict},
};
use proxy_tests::{
    conformance::gaps::{self, Gaps},
    journey::Entry,
    nft,
    scenario::packets::Fate,
    traced::Traced,
    xtables,
};

/// The bit of the mark that says that a packet is to be masqueraded, as a mask.
const MARK: u32 = 1 << nftables::MASQUERADE_BIT;

/// Those of all packet backends.
pub struct Tracers<'a> {
    state: &'a NodeState,
    nftables: Tracer<nft::Ruleset>,
    iptables: Tracer<xtables::Ruleset>,
}

/// What a backend renders, understood.
struct Tracer<R> {
    rules: R,
    text: String,
    /// What the backend says that it does not do.
    lacks: &'static [Capability],
    /// NodePorts may answer on loopback addresses, as they do for sockets: the oracle's packets know nothing of
    /// that, since settings of the kernel decide whether such packets go anywhere.
    may_serve_loopback: bool,
}

impl<'a> Tracers<'a> {
    /// Those of `state`.
    pub fn of(state: &'a NodeState) -> Result<Self> {
        let nftables = nftables::render(
            state,
            nftables::NftablesOptions {
                mark: MARK,
                ..nftables::NftablesOptions::default()
            },
        );
        let iptables = iptables::render(
            state,
            iptables::IptablesOptions {
                mark: MARK,
                ..iptables::IptablesOptions::default()
            },
        );
        Ok(Self {
            state,
            nftables: Tracer {
                rules: nft::Ruleset::parse(&nftables).with_context(|| nftables.clone())?,
                text: nftables,
                lacks: nftables::LACKS,
                may_serve_loopback: false,
            },
            iptables: Tracer {
                rules: xtables::Ruleset::rendered(&iptables).with_context(|| iptables.clone())?,
                text: iptables,
                lacks: iptables::LACKS,
                may_serve_loopback: true,
            },
        })
    }

    /// What rules do with `packet` must be what the oracle says; clients of Services with session
    /// affinity, and no others, must keep their endpoint. What a backend lacks is left out.
    pub fn check(&self, packet: &Packet, gaps: &mut Gaps) -> Result<()> {
        let verdict = verdict(self.state, packet, Path::Packet);
        let asked = Asked {
            state: self.state,
            packet,
            verdict,
        };
        self.nftables.check(&asked, gaps)?;
        self.iptables.check(&asked, gaps)
    }
}

/// A packet, and what the oracle says of it.
struct Asked<'a> {
    state: &'a NodeState,
    packet: &'a Packet,
    verdict: Verdict,
}

impl Asked<'_> {
    fn is_own(&self, address: IpAddr) -> bool {
        self.state.node.is_host(address)
    }

    /// What must become of it.
    fn expected(&self) -> Fate {
        let mut expected = Fate::from(&self.verdict);
        if let Fate::Endpoints(endpoints) = &mut expected
            && !self.is_own(self.packet.source)
        {
            // What arrives for the host itself meets no hook in which it could be masqueraded, and
            // needs none: the answer begins here.
            for (endpoint, masqueraded) in endpoints {
                *masqueraded &= !self.is_own(endpoint.ip());
            }
        }
        expected
    }

    /// Which of `lacks` it needs.
    fn gap(&self, lacks: &[Capability]) -> Option<Capability> {
        let entry = match &self.packet.interface {
            Some(interface) => Entry::Interface(interface.clone()),
            None if self.is_own(self.packet.source) => Entry::Node,
            None => Entry::Anywhere,
        };
        gaps::of(self.state, self.packet, &entry, &self.verdict, lacks)
    }

    /// Whether this may become of a packet to a loopback address where NodePorts may answer there: what a socket of
    /// the host is led to. From elsewhere nobody is led, since the kernel takes no such packet.
    fn may_be_on_loopback(&self, fate: &Fate) -> bool {
        if !self.packet.destination.ip().is_loopback() {
            return false;
        }
        match fate {
            Fate::Dropped => !self.is_own(self.packet.source),
            Fate::Endpoints(endpoints) if self.is_own(self.packet.source) => {
                let of_socket = verdict(self.state, self.packet, Path::Socket);
                let mut targets = of_socket.targets.iter();
                targets.len() == endpoints.len()
                    && targets.all(|one| endpoints.contains_key(&one.address))
            }
            _ => false,
        }
    }
}

impl<R: Traced> Tracer<R> {
    fn check(&self, asked: &Asked<'_>, gaps: &mut Gaps) -> Result<()> {
        if let Some(needs) = asked.gap(self.lacks) {
            gaps.add(needs);
            return Ok(());
        }
        let is_own = |address| asked.is_own(address);
        let Asked {
            state,
            packet,
            verdict,
        } = asked;
        let expected = asked.expected();
        let context = || {
            let Packet {
                source,
                destination,
                protocol,
                interface,
            } = packet;
            let on = interface.as_deref().unwrap_or("no interface");
            format!(
                "{source}, on {on}, to {destination}/{protocol}, by these rules:\n{}",
                self.text
            )
        };
        let fate = self.rules.fate(packet, &is_own).with_context(context)?;
        if self.may_serve_loopback && asked.may_be_on_loopback(&fate) {
            return Ok(());
        }
        ensure!(
            fate == expected,
            "{}it is {fate}, but the oracle says: {expected}",
            context()
        );
        if let Fate::Endpoints(endpoints) = &fate
            && endpoints.len() > 1
        {
            let service = verdict.service.as_ref();
            let service = service.and_then(|key| state.services.get(key));
            let sticks = service.is_some_and(|service| service.affinity.is_some());
            let kept = self.rules.keeps_clients(packet, &is_own)?;
            ensure!(
                kept == sticks,
                "{}its client keeps its endpoint: {kept}, but session affinity: {sticks}",
                context()
            );
        }
        Ok(())
    }
}
