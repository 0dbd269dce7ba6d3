//! Packets of every kind, whole, cut off anywhere, and with any byte changed: programs translate what
//! they understand, and leave everything else as it is. Translated back, each is what it was.

use std::net::IpAddr;

use proxy_common::socket::{TCP, UDP};
use proxy_tests::{
    Shop,
    bpf::program::Program,
    packets::{ENDS, Ends, Flows, Programs, packet},
    pod::Transport,
};
use serde_json::Value;

use crate::edge::rig::{HTTP, Site, on_node, prober};

/// Bytes before the IP header.
const LINK: usize = 14;
const NEXT: i32 = -1;
const SHOT: i32 = 2;

/// A packet on Ethernet, and what it is called.
type Named = (String, Vec<u8>);

fn is_v4(packet: &[u8]) -> bool {
    packet[LINK] >> 4 == 4
}

/// Puts bytes behind the IP header.
fn with_inserted(packet: &[u8], bytes: &[u8]) -> Vec<u8> {
    let v4 = is_v4(packet);
    let behind = LINK + if v4 { 20 } else { 40 };
    let mut longer = packet.to_vec();
    longer.splice(behind..behind, bytes.iter().copied());
    let at = LINK + if v4 { 2 } else { 4 };
    let length = u16::from_be_bytes([longer[at], longer[at + 1]]);
    let length = length + u16::try_from(bytes.len()).unwrap();
    longer[at..at + 2].copy_from_slice(&length.to_be_bytes());
    longer
}

/// The same with options, or with an extension header that has none.
fn extended(packet: &[u8]) -> Vec<u8> {
    if is_v4(packet) {
        let mut longer = with_inserted(packet, &[1, 1, 1, 1]);
        longer[LINK] = 0x46;
        return longer;
    }
    let next = packet[LINK + 6];
    let mut longer = with_inserted(packet, &[next, 0, 1, 4, 0, 0, 0, 0]);
    longer[LINK + 6] = 60;
    longer
}

/// The same as the first fragment of a datagram, or, with an offset in units of eight bytes, as the last.
fn fragment(packet: &[u8], offset: u16) -> Vec<u8> {
    let more = offset == 0;
    if is_v4(packet) {
        let mut part = packet.to_vec();
        let word = offset | if more { 0x2000 } else { 0 };
        part[LINK + 4..LINK + 6].copy_from_slice(&[0x12, 0x34]);
        part[LINK + 6..LINK + 8].copy_from_slice(&word.to_be_bytes());
        return part;
    }
    let next = packet[LINK + 6];
    let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
    let mut part = with_inserted(packet, &[next, 0, high, low, 9, 9, 9, 9]);
    part[LINK + 6] = 44;
    part
}

/// An error from whom `about` was for, or from a router, about that packet.
fn error(about: &[u8], ends: &Ends, to: (IpAddr, u16), from: (IpAddr, u16)) -> Vec<u8> {
    let v4 = ends.client.0.is_ipv4();
    // Of the eight bytes of its UDP header, which is an ICMP header now, none is a port.
    let mut whole = packet(from, to, UDP);
    let (protocol, header) = if v4 { (1, 20) } else { (58, 40) };
    whole[LINK + if v4 { 9 } else { 6 }] = protocol;
    let kind = if v4 { [3, 4] } else { [2, 0] };
    whole[LINK + header..LINK + header + 2].copy_from_slice(&kind);
    let quoted = &about[LINK..];
    whole.extend_from_slice(quoted);
    let at = LINK + if v4 { 2 } else { 4 };
    let length = u16::from_be_bytes([whole[at], whole[at + 1]]);
    let length = length + u16::try_from(quoted.len()).unwrap();
    whole[at..at + 2].copy_from_slice(&length.to_be_bytes());
    whole
}

/// Packets from `from` to `to`, of which programs know the way, and errors about those of the other
/// direction.
fn known(ends: &Ends, from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<Named> {
    let mut all = Vec::new();
    for (protocol, name) in [(TCP, "TCP"), (UDP, "UDP")] {
        let plain = packet(from, to, protocol);
        let other = packet(to, from, protocol);
        for (kind, packet) in [
            ("plain", plain.clone()),
            ("extended", extended(&plain)),
            ("first fragment", fragment(&plain, 0)),
            // Their first fragment has just been seen.
            ("last fragment", fragment(&plain, 64)),
            ("error", error(&other, ends, to, from)),
            ("router's error", error(&other, ends, to, ends.stranger)),
            ("error, extended", error(&extended(&other), ends, to, from)),
        ] {
            all.push((format!("{kind}, {name} from {from:?} to {to:?}"), packet));
        }
    }
    all
}

/// What a program makes of a packet is made undone by itself. Whether it is anything.
fn comes_back(program: &Program, name: &str, packet: &[u8]) -> bool {
    let there = program.run(packet, 1).unwrap();
    assert!(
        [NEXT, SHOT].contains(&there.verdict),
        "{name}: {packet:?}: {there:?}"
    );
    if there.verdict == SHOT || there.packet == packet {
        return false;
    }
    let back = program.run(&there.packet, 1).unwrap();
    assert_eq!(back.packet, packet, "{name}: by way of {:?}", there.packet);
    true
}

/// The packet cut off anywhere behind its IP header, which the kernel demands, and with each byte
/// changed.
fn damaged(packet: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let least = LINK + if is_v4(packet) { 20 } else { 40 };
    let shorter = (least..packet.len()).map(|length| packet[..length].to_vec());
    let changed = (LINK..packet.len()).flat_map(|at| {
        let byte = packet[at];
        [byte ^ 1, byte ^ 0x80, !byte, 0, 0xff].map(|other| {
            let mut changed = packet.to_vec();
            changed[at] = other;
            changed
        })
    });
    shorter.chain(changed)
}

/// Before Linux 6.6 nothing is pinned: the programs are in filters.
fn in_filters(shop: &Shop) -> Programs {
    let [incoming, outgoing] = ["ingress", "egress"].map(|direction| {
        let listed = on_node(
            shop,
            "tc",
            &["-j", "filter", "show", "dev", "ext1", direction],
        );
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
        let mut ids = listed
            .iter()
            .filter_map(|one| one["options"]["prog"]["id"].as_u64());
        let id = ids.next().unwrap_or_else(|| panic!("{listed:?}"));
        Program::of(id.try_into().unwrap()).unwrap()
    });
    Programs { incoming, outgoing }
}

#[test]
fn packets_of_every_kind_are_translated_or_left_as_they_are() {
    let Some(site) = Site::build() else {
        return;
    };
    let agent = site.serve(&[1]);
    let node_port = (site.neighbour.node[0], HTTP).into();
    let mut prober = prober(&site.neighbour);
    for attempt in prober
        .send_on("open", Transport::Tcp, node_port, 1)
        .unwrap()
    {
        attempt.answer_as(node_port).unwrap();
    }
    let pins = agent.pins().path();
    let pinned = Programs::behind(pins).unwrap();
    let programs = pinned.unwrap_or_else(|| in_filters(&site.shop));
    let flows = Flows::of(pins).unwrap();
    for ends in &ENDS {
        for (program, packets) in [
            (&programs.incoming, known(ends, ends.client, ends.frontend)),
            (&programs.outgoing, known(ends, ends.endpoint, ends.client)),
        ] {
            for (name, packet) in packets {
                flows.enter().unwrap();
                assert!(comes_back(program, &name, &packet), "{name}: {packet:?}");
                let mut translated = 0;
                for damaged in damaged(&packet) {
                    translated += u32::from(comes_back(program, &name, &damaged));
                }
                assert!(translated > 0, "{name}");
            }
        }
    }
}
