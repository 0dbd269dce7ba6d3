//! A state, what packet backends render of it, and what becomes of a packet by that: it must be what the oracle says.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use proxy_backend_iptables as iptables;
use proxy_backend_nftables as nftables;
use proxy_model::{
    Capability, NodeState,
    oracle::{Packet, Verdict},
};
use proxy_tests::{
    conformance::{
        gaps::{self, Gaps},
        verdict::on_packets,
    },
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
    /// NodePorts answer the host itself on 127.0.0.0/8.
    localnet: bool,
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
                localnet: true,
                counters: true,
                ..iptables::IptablesOptions::default()
            },
        );
        Ok(Self {
            state,
            nftables: Tracer {
                rules: nft::Ruleset::parse(&nftables).with_context(|| nftables.clone())?,
                text: nftables,
                lacks: nftables::LACKS,
                localnet: false,
            },
            iptables: Tracer {
                rules: xtables::Ruleset::rendered(&iptables).with_context(|| iptables.clone())?,
                text: iptables,
                lacks: iptables::LACKS,
                localnet: true,
            },
        })
    }

    /// What rules do with `packet` must be what the oracle says; clients of Services with session
    /// affinity, and no others, must keep their endpoint. What a backend lacks is left out.
    pub fn check(&self, packet: &Packet, gaps: &mut Gaps) -> Result<()> {
        self.nftables.check(self.state, packet, gaps)?;
        self.iptables.check(self.state, packet, gaps)
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

    /// Whether this becomes of a packet to loopback addresses that nobody but this host may send there: the kernel
    /// itself takes none, unless it is told to.
    fn is_kept_from_loopback(&self, fate: &Fate) -> bool {
        let to = self.packet.destination.ip();
        to.is_loopback() && !self.is_own(self.packet.source) && *fate == Fate::Dropped
    }
}

impl<R: Traced> Tracer<R> {
    fn check(&self, state: &NodeState, packet: &Packet, gaps: &mut Gaps) -> Result<()> {
        let asked = Asked {
            state,
            packet,
            verdict: on_packets(state, packet, self.localnet),
        };
        if let Some(needs) = asked.gap(self.lacks) {
            gaps.add(needs);
            return Ok(());
        }
        let is_own = |address| asked.is_own(address);
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
        if self.localnet && asked.is_kept_from_loopback(&fate) {
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
            let service = asked.verdict.service.as_ref();
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
