//! What is sent is read back, quoted and refused, too.

use super::*;

fn every() -> Vec<Datagram> {
    let of = |source: &str, destination: &str, protocol| {
        let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
        Datagram::first(source, destination, protocol, 0xfeed_1234)
    };
    [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .flat_map(|protocol| {
            [
                of("192.0.2.1:1025", "10.96.0.1:80", protocol),
                of("[fd00::1]:65535", "[fd00:10:96::1]:53", protocol),
            ]
        })
        .collect()
}

/// An ICMP message of this type and code about `packet`, from its IP header on.
fn about(packet: &[u8], (kind, code): (u8, u8)) -> Vec<u8> {
    let four = packet[0] >> 4 == 4;
    let mut message = packet[..if four { 20 } else { 40 }].to_vec();
    message[if four { 9 } else { 6 }] = if four { ICMP } else { ICMP6 };
    message.extend([kind, code, 0, 0, 0, 0, 0, 0]);
    message.extend(packet);
    message
}

#[test]
fn packets_are_read_back() {
    for sent in every() {
        let packet = sent.encode();
        assert_eq!(decode(&packet), Some(Meaning::First(sent)), "{sent:?}");
        assert!(is_sound(&packet), "{sent:?}");
        for length in 0..packet.len() {
            // Whatever is cut off: no panic.
            decode(&packet[..length]);
        }
    }
}

#[test]
fn refusals_name_the_packet_that_they_quote() {
    for sent in every() {
        let packet = sent.encode();
        let [port, host] = if sent.source.is_ipv4() {
            [UNREACHABLE, (3, 1)]
        } else {
            [UNREACHABLE6, (1, 3)]
        };
        let refusal = about(&packet, port);
        assert_eq!(decode(&refusal), Some(Meaning::Refusal(sent.token)));
        // Another reason is no refusal.
        assert_eq!(decode(&about(&packet, host)), None);
    }
}

#[test]
fn a_reset_acknowledges_the_packet_that_it_refuses() {
    let sent = every()[0];
    let mut packet = sent.encode();
    packet[20 + 13] = RST | 0x10;
    packet[20 + 8..20 + 12].copy_from_slice(&(sent.token + 1).to_be_bytes());
    assert_eq!(decode(&packet), Some(Meaning::Refusal(sent.token)));
}

#[test]
fn noise_means_nothing() {
    let mut mdns = every()[2].encode();
    mdns[20 + 8] = 0;
    assert_eq!(decode(&mdns), None);
    assert_eq!(decode(&[]), None);
    assert_eq!(decode(&[0x50; 40]), None);
}

#[test]
fn answers_and_errors_are_read_back_and_a_wrong_sum_is_seen() {
    for sent in every() {
        let answer = sent.answer(7);
        let error = TooBig {
            from: answer.source.ip(),
            to: sent.source.ip(),
            about: sent,
        };
        for (packet, meaning) in [
            (answer.encode(), Meaning::First(answer)),
            (error.encode(), Meaning::TooBig(error)),
        ] {
            assert_eq!(decode(&packet), Some(meaning));
            assert!(is_sound(&packet), "{meaning:?}");
            let [header, transport] = [0, 1].map(|at| {
                let mut changed = packet.clone();
                // The last byte of a source address is in both sums, but not in that of SCTP or ICMP.
                let end = if packet[0] >> 4 == 4 { 15 } else { 23 };
                changed[if at == 0 { end } else { packet.len() - 1 }] ^= 1;
                is_sound(&changed)
            });
            let is_sctp = sent.protocol == Protocol::Sctp && matches!(meaning, Meaning::First(_));
            assert!(!transport || is_sctp, "{meaning:?}");
            assert!(!header || packet[0] >> 4 == 6 && is_sctp, "{meaning:?}");
        }
    }
}

#[test]
fn the_class_in_a_header_is_read() {
    for (at, bytes) in [(0, [0x45, 2 << 2]), (1, [0x60, 0x80])] {
        let mut packet = every()[at].encode();
        packet[..2].copy_from_slice(&bytes);
        let Some(Meaning::First(read)) = decode(&packet) else {
            panic!("{packet:?}");
        };
        assert_eq!(read.class, 2);
    }
}
