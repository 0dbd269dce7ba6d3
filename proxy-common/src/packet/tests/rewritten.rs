//! A packet that was rewritten is the one that its sender would have sent.

use std::{boxed::Box, net::SocketAddr, vec::Vec};

use proptest::prelude::*;

use crate::{
    address,
    in_memory::{Build, Bytes, Payload},
    packet::{
        Version,
        parse::{self, Header, Part, Transport},
        quoted::{self, Quoted},
        rewrite::{End, Place, readdress},
    },
};

pub(crate) fn place(at: SocketAddr) -> Place {
    Place::new(address::to_words(&address::from_ip(at.ip())), at.port())
}

fn header(packet: &Bytes, version: Version, at: u32) -> Option<Header> {
    let mut header = Header::NONE;
    parse::header(packet, version, at, &mut header).then_some(header)
}

fn transport(packet: &Bytes, header: &Header) -> Option<Transport> {
    let mut transport = Transport::default();
    header
        .read_transport(packet, &mut transport)
        .then_some(transport)
}

fn version(build: &Build) -> Version {
    if build.from.is_ipv4() {
        Version::V4
    } else {
        Version::V6
    }
}

fn rewritten(build: &Build, end: End, to: SocketAddr) -> Bytes {
    let mut packet = build.bytes();
    let header = header(&packet, version(build), 0).unwrap();
    assert_eq!(header.part, Part::Whole);
    let transport = transport(&packet, &header).unwrap();
    assert!(readdress(&mut packet, &header, &transport, end, &place(to)));
    packet
}

fn socket(v4: bool) -> impl Strategy<Value = SocketAddr> {
    let ip = if v4 {
        any::<[u8; 4]>().prop_map(std::net::IpAddr::from).boxed()
    } else {
        any::<[u8; 16]>().prop_map(std::net::IpAddr::from).boxed()
    };
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn payload(v4: bool) -> impl Strategy<Value = Payload> {
    let data = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (0..256_u32, any::<u32>(), any::<u32>(), data())
            .prop_map(|(seen, one, two, data)| Payload::Tcp(seen, one, two, data)),
        data().prop_map(Payload::Udp),
        data().prop_map(move |data| if v4 {
            Payload::UdpWithoutSum(data)
        } else {
            Payload::Udp(data)
        }),
    ]
}

fn build() -> impl Strategy<Value = (Build, SocketAddr)> {
    any::<bool>().prop_flat_map(|v4| {
        (socket(v4), socket(v4), socket(v4), 0..3_usize, payload(v4)).prop_map(
            |(from, to, other, options, payload)| {
                let build = Build {
                    from,
                    to,
                    options: options * 8,
                    payload,
                };
                (build, other)
            },
        )
    })
}

/// A mapped address is IPv4's, in keys; no packet of IPv6 has one.
fn is_plain(at: &SocketAddr) -> bool {
    match at {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(at) => at.ip().to_ipv4_mapped().is_none(),
    }
}

proptest! {
    #[test]
    fn either_end_is_as_if_sent_so((build, other) in build()) {
        prop_assume!(is_plain(&build.from) && is_plain(&build.to) && is_plain(&other));
        let to = Build { to: other, ..build.clone() };
        prop_assert_eq!(rewritten(&build, End::Destination, other), to.bytes());
        let from = Build { from: other, ..build.clone() };
        prop_assert_eq!(rewritten(&build, End::Source, other), from.bytes());
    }

    #[test]
    fn back_is_the_way_there_reversed((build, other) in build()) {
        prop_assume!(is_plain(&build.to) && is_plain(&other));
        let mut packet = rewritten(&build, End::Destination, other);
        let header = header(&packet, version(&build), 0).unwrap();
        let transport = transport(&packet, &header).unwrap();
        prop_assert!(readdress(&mut packet, &header, &transport, End::Destination, &place(build.to)));
        prop_assert_eq!(packet, build.bytes());
    }

    #[test]
    fn an_error_quotes_what_its_receiver_knows(
        (about, other) in build(), router in any::<bool>(), cut in 28..120_usize, end in any::<bool>()
    ) {
        prop_assume!(is_plain(&about.from) && is_plain(&about.to) && is_plain(&other));
        let v4 = about.from.is_ipv4();
        let least = about.options + if v4 { 28 } else { 48 };
        // A sum is quoted as a whole or not at all.
        let cut = cut.max(least) & !1;
        // About a request on its way out, or about a reply on its way in.
        let (end, outer_end) = if end { (End::Destination, End::Source) } else { (End::Source, End::Destination) };
        let own = if end == End::Destination { about.to } else { about.from };
        let far: SocketAddr = if v4 { "198.51.100.9:0" } else { "[2001:db8::9]:0" }.parse().unwrap();
        let kind = if v4 { 3 } else { 1 };
        let error = |about: &Build, own: SocketAddr| {
            let own = if router { far } else { own };
            let (from, to) = match outer_end {
                End::Source => (own, about.from),
                End::Destination => (about.to, own),
            };
            Build { from, to, options: 0, payload: Payload::Error(kind, Box::new(about.clone()), cut) }
        };
        let mut packet = error(&about, own).bytes();
        let outer = header(&packet, version(&about), 0).unwrap();
        let mut read = Quoted::NONE;
        prop_assert!(quoted::read(&packet, &outer, &mut read));
        let whole = (!router).then_some(outer_end);
        prop_assert!(quoted::readdress(&mut packet, &outer, whole, &read, end, &place(other)));
        let mut wanted = about.clone();
        if end == End::Destination { wanted.to = other } else { wanted.from = other }
        prop_assert_eq!(packet, error(&wanted, other).bytes());
    }

    #[test]
    fn nothing_that_is_damaged_is_read_beyond_its_end(bytes in proptest::collection::vec(any::<u8>(), 0..120), v4 in any::<bool>()) {
        let packet = Bytes(bytes);
        let version = if v4 { Version::V4 } else { Version::V6 };
        if let Some(header) = header(&packet, version, 0) {
            transport(&packet, &header);
            quoted::read(&packet, &header, &mut Quoted::NONE.clone());
        }
    }
}

#[test]
fn each_fragment_says_which_part_it_is() {
    let whole = Build::udp("192.0.2.1:4000", "192.0.2.2:53").bytes();
    for (flags, part) in [
        ([0x20, 0], Part::First),
        ([0x20, 9], Part::Later),
        ([0, 9], Part::Later),
        ([0x40, 0], Part::Whole),
    ] {
        let mut packet = whole.clone();
        packet.0[6..8].copy_from_slice(&flags);
        let header = header(&packet, Version::V4, 0).unwrap();
        assert_eq!(header.part, part, "{flags:?}");
        assert_eq!(transport(&packet, &header).is_some(), part != Part::Later);
    }
    let whole = Build::udp("[2001:db8::1]:4000", "[2001:db8::2]:53").bytes();
    let fragment = |flags: [u8; 2]| {
        let mut bytes: Vec<_> = whole.0[..40].to_vec();
        bytes[6] = 44;
        bytes.extend([17, 0, flags[0], flags[1], 0, 0, 0, 7]);
        bytes.extend(&whole.0[40..]);
        Bytes(bytes)
    };
    for (flags, part) in [
        ([0, 1], Part::First),
        ([0, 9], Part::Later),
        ([0, 8], Part::Later),
        ([0, 0], Part::Whole),
    ] {
        let header = header(&fragment(flags), Version::V6, 0).unwrap();
        assert_eq!((header.part, header.identification), (part, 7), "{flags:?}");
    }
}

#[test]
fn a_redirect_is_read_with_and_without_a_link_layer_address() {
    let about = Build::udp("[2001:db8::1]:4000", "[2001:db8::2]:53").bytes();
    for address in [false, true] {
        let mut error = Build {
            from: "[2001:db8::9]:0".parse().unwrap(),
            to: "[2001:db8::1]:0".parse().unwrap(),
            options: 0,
            payload: Payload::Error(137, Box::new(Build::udp("[::1]:1", "[::1]:1")), 0),
        }
        .bytes();
        error.0.extend([0; 32]);
        if address {
            error.0.extend([2, 1, 0, 0, 0, 0, 0, 0]);
        }
        error.0.extend([4, 8, 0, 0, 0, 0, 0, 0]);
        error.0.extend(&about.0);
        let outer = header(&error, Version::V6, 0).unwrap();
        let mut read = Quoted::NONE;
        assert!(quoted::read(&error, &outer, &mut read));
        assert_eq!(read.redirect, 1);
        assert_eq!((read.source_port, read.destination_port), (4000, 53));
    }
}
