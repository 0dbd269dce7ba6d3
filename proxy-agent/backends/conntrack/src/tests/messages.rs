//! Entries as a kernel (6.18) told them, and requests that name them again.

use proxy_model::IpFamily;

use super::super::{
    flow::{self, Flow, Identity},
    message::{self, ENTRY},
};
use proxy_netlink::message::{Messages, messages};

/// From 10.244.0.1:40000 to 10.96.0.10:53, led to 10.244.0.2:5353.
const PLAIN: &str = "a40000000001220000000000f66000000200000034000180140001800800\
    01000af40001080002000a60000a1c0002800500010011000000060002009c400000060003000035000034000280\
    14000180080001000af40002080002000af400011c00028005000100110000000600020014e90000060003009c40\
    000008000300000001a8080008000000000008000c00a45c40ad08000b0000000001080007000000001d";
/// The same to 10.96.0.11:53, in zone 7.
const IN_ZONE: &str = "ac0000000001220000000000f66000000200000034000180140001800800\
    01000af40001080002000a60000b1c0002800500010011000000060002009c400000060003000035000034000280\
    14000180080001000af40002080002000af400011c00028005000100110000000600020014e90000060003009c40\
    0000060012000007000008000300000001a8080008000000000008000c009131eb8008000b000000000108000700\
    0000001d";
/// The same to 10.96.0.12:53, in zone 9 on the way there only.
const IN_ZONE_ONE_WAY: &str = "ac0000000001220000000000f6600000020000003c000180140001800800\
    01000af40001080002000a60000c1c0002800500010011000000060002009c400000060003000035000006000300\
    000900003400028014000180080001000af40002080002000af400011c0002800500010011000000060002001\
    4e9000006000300779e000008000300000001b8080008000000000008000c00e46ebb8b08000b00000000010800\
    07000000001d";
/// From `[fd00::1]:40000` to `[fd01::1]:53`, led to `[fd00::1]:5353`.
const IPV6: &str = "d40000000001220000000000f66000000a0000004c0001802c0001801400\
    0300fd00000000000000000000000000000114000400fd0100000000000000000000000000011c00028005000100\
    11000000060002009c40000006000300003500004c0002802c00018014000300fd00000000000000000000000000\
    000114000400fd0000000000000000000000000000011c00028005000100110000000600020014e9000006000300\
    9c40000008000300000001a8080008000000000008000c003af30a3a08000b0000000001080007000000001d";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The attributes of the only message.
fn attributes(message: &[u8]) -> &[u8] {
    let found: Vec<_> = messages(message).map(Result::unwrap).collect();
    assert_eq!(found.len(), 1);
    &message[20..]
}

fn read(message: &[u8]) -> (Flow, Identity<'_>) {
    flow::read(attributes(message)).unwrap().unwrap()
}

#[test]
fn entries_are_read_as_the_kernel_tells_them() {
    for (hex, destination, answerer) in [
        (PLAIN, "10.96.0.10:53", "10.244.0.2:5353"),
        (IN_ZONE, "10.96.0.11:53", "10.244.0.2:5353"),
        (IN_ZONE_ONE_WAY, "10.96.0.12:53", "10.244.0.2:5353"),
        (IPV6, "[fd01::1]:53", "[fd00::1]:5353"),
    ] {
        let message = bytes(hex);
        let (flow, _) = read(&message);
        assert_eq!(flow.protocol, 17);
        assert_eq!(flow.source.port(), 40_000);
        assert_eq!(flow.destination, destination.parse().unwrap());
        assert_eq!(flow.answerer, answerer.parse().unwrap());
        assert!(flow.translated);
    }
}

#[test]
fn a_request_to_delete_names_the_very_entry() {
    for (hex, family) in [
        (PLAIN, IpFamily::V4),
        (IN_ZONE, IpFamily::V4),
        (IN_ZONE_ONE_WAY, IpFamily::V4),
        (IPV6, IpFamily::V6),
    ] {
        let entry = bytes(hex);
        let (_, identity) = read(&entry);
        let mut requests = Messages::default();
        message::delete(&mut requests, family, identity);
        let request = requests.as_bytes();
        assert_eq!(request[16], entry[16], "the family");
        // An entry without an answer: only what names it is there.
        assert_eq!(flow::read(attributes(request)).unwrap(), None);
        // The tuple as it was told, and what follows it: zone and number.
        let tuple = usize::from(u16::from_ne_bytes([entry[20], entry[21]]));
        assert_eq!(request[20..20 + tuple], entry[20..20 + tuple]);
        let rest = &request[20 + tuple..];
        let number = identity.id;
        assert_eq!(rest[rest.len() - 4..], *number);
        assert_eq!(rest.len(), 8 + if identity.zone.is_some() { 8 } else { 0 });
    }
    let in_zone = bytes(IN_ZONE);
    assert_eq!(read(&in_zone).1.zone, Some([0, 7].as_slice()));
}

#[test]
fn what_is_cut_off_is_an_error_and_never_a_panic() {
    let entry = bytes(IPV6);
    for length in 1..entry.len() {
        let mut found = messages(&entry[..length]);
        assert!(found.next().unwrap().is_err(), "{length}");
        assert!(found.next().is_none(), "{length}");
        // What of it is whole by itself may be read.
        drop(flow::read(&entry[20.min(length)..length]));
    }
    let twice = [entry.as_slice(), &entry].concat();
    let types: Vec<u16> = messages(&twice)
        .map(|message| message.unwrap().message_type())
        .collect();
    assert_eq!(types, [ENTRY, ENTRY]);
}
