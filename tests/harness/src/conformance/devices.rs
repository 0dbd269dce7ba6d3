//! Packets that programs on devices share with a layer beneath: who translated which must be what the
//! oracle says of it, and connections must work both ways, whoever did.
//!
//! A rule behind every translation of netfilter writes into each first packet whether netfilter
//! translated it. Programs translate before netfilter meets a packet, so to conntrack theirs are
//! connections to endpoints.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use proxy_model::{
    NodeState, Protocol,
    oracle::{Packet, taken_on_device},
};

use crate::{
    journey::{Datagram, Entry, Parcel, Rig, Sighting, UPLINK, datagram::TooBig},
    process,
    world::World,
};

/// What the rule writes: DSCP (RFC 2474).
const TRANSLATED: u8 = 1;
const AS_IT_CAME: u8 = 2;

const RULES: &str = "
table inet witness {
    chain told {
        ct state != new return
        ct status & dnat == dnat meta nfproto ipv4 ip dscp set 1 return
        ct status & dnat == dnat meta nfproto ipv6 ip6 dscp set 1 return
        meta nfproto ipv4 ip dscp set 2
        meta nfproto ipv6 ip6 dscp set 2
    }
    chain forward { type filter hook forward priority 300; jump told; }
    chain input { type filter hook input priority 300; jump told; }
}
";

/// A router somewhere outside, in both families.
const ROUTER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 200)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 0x200)),
];

/// How many packets programs on devices took so far.
#[derive(Debug)]
pub struct Shared {
    taken: usize,
}

impl Shared {
    /// From now on packets tell who translated them on the node of `world`.
    pub fn new(world: &World) -> Result<Self> {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped());
        process::enter(&mut command, Some(world.node().netns().as_fd()), None)?;
        let mut child = process::fork(command).context("cannot run nft")?;
        let mut stdin = child
            .stdin
            .take()
            .context("nft was started without stdin")?;
        stdin
            .write_all(RULES.as_bytes())
            .context("cannot write to nft")?;
        drop(stdin);
        let status = child.wait().context("cannot wait for nft")?;
        ensure!(status.success(), "nft refused the rule that marks packets");
        Ok(Self { taken: 0 })
    }

    /// How many they took.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether programs on the device take `packet`, by the oracle; `None` if the endpoint decides that they
    /// choose. `keeps_clients`: what they are told.
    pub fn takes(
        state: &NodeState,
        packet: &Packet,
        entry: &Entry,
        keeps_clients: bool,
    ) -> Option<bool> {
        if *entry == Entry::Node {
            return Some(false);
        }
        match taken_on_device(state, packet, keeps_clients) {
            Ok(taken) => taken.whatever_is_chosen().then_some(true),
            Err(_) => Some(false),
        }
    }

    /// Whether `sent` was translated by whom the oracle says, if what was `seen` of it tells.
    pub fn judge(
        &mut self,
        is_taken: bool,
        entry: &Entry,
        sent: &Datagram,
        seen: Sighting,
    ) -> Result<()> {
        let (Sighting::Left(landed) | Sighting::Delivered(landed)) = seen else {
            return Ok(());
        };
        // Of what the node sends rules of another chain decide, and over IPv6 it shows no headers.
        let is_blind = landed.class == 0 && matches!(seen, Sighting::Delivered(_));
        if *entry == Entry::Node || is_blind {
            return Ok(());
        }
        let is_same = landed.destination == sent.destination;
        let expected = if is_taken || is_same {
            AS_IT_CAME
        } else {
            TRANSLATED
        };
        ensure!(
            landed.class == expected,
            "the oracle says that programs on devices {} {sent:?}, but {}",
            if is_taken { "take" } else { "pass on" },
            match landed.class {
                TRANSLATED => "netfilter translated it",
                AS_IT_CAME => "netfilter saw a connection to where it landed",
                _ => "netfilter did not track it",
            }
        );
        self.taken += usize::from(is_taken && !is_same);
        Ok(())
    }

    /// Has the endpoint answer `sent`, which `landed` there, and routers on both sides complain about
    /// either packet.
    pub fn converse(
        rig: &mut Rig,
        entry: &Entry,
        sent: &Datagram,
        landed: &Datagram,
    ) -> Result<()> {
        // To the node itself it is no client outside that answers would leave for, and the kernel of a
        // test knows no SCTP.
        if *entry == Entry::Node || sent.protocol == Protocol::Sctp {
            return Ok(());
        }
        let (client, frontend) = (sent.source, sent.destination);
        let endpoint = landed.destination;
        let behind = || Entry::Interface(UPLINK.into());

        let answer = landed.answer(rig.token());
        let came = answer_of(rig, behind(), &answer)?;
        let Sighting::Left(answered) = came else {
            anyhow::bail!("the answer of {endpoint} did not leave: {came:?}");
        };
        let expected = Datagram {
            class: answered.class,
            source: frontend,
            destination: client,
            ..answer
        };
        ensure!(
            answered == expected,
            "the answer of {endpoint} came out as {answered:?}, not as {expected:?}"
        );

        // Whatever complains behind the node, the client knows nobody there but the frontend.
        let complaint = TooBig {
            from: endpoint.ip(),
            to: landed.source.ip(),
            about: *landed,
        };
        let came = error_of(rig, behind(), &complaint)?;
        let expected = TooBig {
            from: frontend.ip(),
            to: client.ip(),
            about: Datagram { class: 0, ..*sent },
        };
        ensure!(
            came == Sighting::TooBig(expected),
            "an error about the packet to {endpoint} came out as {came:?}, not as {expected:?}"
        );

        let complaint = TooBig {
            from: ROUTER[usize::from(client.is_ipv6())],
            to: frontend.ip(),
            about: answered,
        };
        let came = error_of(rig, entry.clone(), &complaint)?;
        let Sighting::TooBig(error) = came else {
            anyhow::bail!("an error about the answer of {endpoint} did not leave: {came:?}");
        };
        let about = Datagram { class: 0, ..answer };
        ensure!(
            (error.to, error.about) == (endpoint.ip(), about),
            "an error about the answer of {endpoint} came out as {error:?}"
        );
        Ok(())
    }
}

fn answer_of(rig: &mut Rig, entry: Entry, answer: &Datagram) -> Result<Sighting> {
    one(
        rig,
        entry,
        answer.encode(),
        answer.destination.ip(),
        answer.token,
    )
}

fn error_of(rig: &mut Rig, entry: Entry, error: &TooBig) -> Result<Sighting> {
    one(rig, entry, error.encode(), error.to, error.about.token)
}

/// What becomes of one packet.
fn one(
    rig: &mut Rig,
    entry: Entry,
    packet: Vec<u8>,
    destination: IpAddr,
    token: u32,
) -> Result<Sighting> {
    let parcel = Parcel {
        entry,
        packet,
        destination,
        token,
    };
    let seen = rig.deliver(&[parcel])?;
    seen.first().copied().context("a packet has one fate")
}
