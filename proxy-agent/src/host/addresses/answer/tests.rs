//! Answers as the kernel gives them: which addresses count, and how a dump ends.

use std::num::NonZeroI32;

use netlink_packet_core::{DoneMessage, ErrorMessage, NetlinkHeader};
use netlink_packet_route::address::AddressHeader;

use super::*;

type Message = NetlinkMessage<RouteNetlinkMessage>;

fn bytes(payload: NetlinkPayload<RouteNetlinkMessage>, flags: u16) -> Vec<u8> {
    let mut message = Message::new(NetlinkHeader::default(), payload);
    message.header.flags = flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes.resize(bytes.len().next_multiple_of(ALIGNED), 0);
    bytes
}

fn address(flags: AddressHeaderFlags, attributes: Vec<AddressAttribute>) -> Vec<u8> {
    let mut message = AddressMessage::default();
    message.header = AddressHeader {
        flags,
        ..AddressHeader::default()
    };
    message.attributes = attributes;
    let payload = NetlinkPayload::from(RouteNetlinkMessage::NewAddress(message));
    bytes(payload, 0)
}

/// As most addresses are told: IPv4 with both attributes, and its label.
fn plain(text: &str, flags: AddressHeaderFlags) -> Vec<u8> {
    let ip: IpAddr = text.parse().unwrap();
    let mut attributes = vec![AddressAttribute::Address(ip)];
    if ip.is_ipv4() {
        attributes.push(AddressAttribute::Local(ip));
        attributes.push(AddressAttribute::Label("eth0".to_owned()));
    }
    address(flags, attributes)
}

fn done(code: i32) -> Vec<u8> {
    let mut done = DoneMessage::default();
    done.code = code;
    bytes(NetlinkPayload::Done(done), 0)
}

fn read_all(messages: &[Vec<u8>]) -> (Option<Ended>, Vec<String>) {
    let mut addresses = BTreeSet::new();
    let ended = read(&messages.concat(), 0, &mut addresses).unwrap();
    (ended, addresses.iter().map(ToString::to_string).collect())
}

/// Which of these count.
fn counting(messages: &[Vec<u8>]) -> Vec<String> {
    let (ended, addresses) = read_all(messages);
    assert!(ended.is_none(), "{ended:?}");
    addresses
}

const NONE: AddressHeaderFlags = AddressHeaderFlags::empty();

#[test]
fn addresses_are_in_order_and_told_once() {
    let messages =
        ["fd00::2", "10.0.0.2", "127.0.0.1", "::1", "10.0.0.2"].map(|ip| plain(ip, NONE));
    assert_eq!(
        counting(&messages),
        ["10.0.0.2", "127.0.0.1", "::1", "fd00::2"]
    );
}

#[test]
fn what_answers_another_request_is_passed_over() {
    let mut addresses = BTreeSet::new();
    let of_another = [plain("10.0.0.2", NONE), done(0)].concat();
    let ended = read(&of_another, 7, &mut addresses).unwrap();
    assert!(ended.is_none() && addresses.is_empty());
}

#[test]
fn what_nobody_can_send_to_is_left_out() {
    let left_out = ["fe80::1", "239.1.1.1", "ff05::1", "0.0.0.0"];
    let kept = ["169.254.20.10", "10.0.0.1"];
    let messages = [&left_out[..], &kept].concat();
    let messages: Vec<_> = messages.iter().map(|ip| plain(ip, NONE)).collect();
    assert_eq!(counting(&messages), ["10.0.0.1", "169.254.20.10"]);
}

#[test]
fn an_address_counts_when_the_kernel_answers_for_it() {
    use AddressHeaderFlags as Flags;
    let messages = [
        plain("fd00::1", Flags::Tentative),
        plain("fd00::2", Flags::Tentative | Flags::Dadfailed),
        plain("fd00::3", Flags::Dadfailed | Flags::Permanent),
        plain("fd00::4", Flags::Tentative | Flags::Optimistic),
        plain("fd00::5", Flags::Deprecated),
        plain("fd00::6", Flags::Permanent),
    ];
    assert_eq!(counting(&messages), ["fd00::4", "fd00::5", "fd00::6"]);
}

#[test]
fn of_a_point_to_point_link_the_near_end_counts() {
    let ends = |near: &str, far: &str| {
        let far = AddressAttribute::Address(far.parse().unwrap());
        address(
            NONE,
            vec![far, AddressAttribute::Local(near.parse().unwrap())],
        )
    };
    let messages = [ends("10.0.0.1", "10.0.0.2"), ends("fd00::1", "fd00::2")];
    assert_eq!(counting(&messages), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn a_dump_ends_with_its_last_message() {
    let (ended, addresses) = read_all(&[plain("10.0.0.1", NONE)]);
    assert!(ended.is_none());
    assert_eq!(addresses, ["10.0.0.1"]);
    let (ended, addresses) = read_all(&[plain("10.0.0.1", NONE), done(0)]);
    assert!(ended.unwrap().unwrap());
    assert_eq!(addresses, ["10.0.0.1"]);
}

#[test]
fn a_dump_that_was_overtaken_is_not_whole() {
    let payload = NetlinkPayload::Done(DoneMessage::default());
    let (ended, _) = read_all(&[plain("10.0.0.1", NONE), bytes(payload, NLM_F_DUMP_INTR)]);
    assert!(!ended.unwrap().unwrap());
}

#[test]
fn what_the_kernel_refuses_is_told_with_its_reason() {
    let mut refused = ErrorMessage::default();
    refused.code = NonZeroI32::new(-libc::EPERM);
    let refused = bytes(NetlinkPayload::Error(refused), 0);
    for message in [refused, done(-libc::EPERM)] {
        let error = read_all(&[message]).0.unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }
}

#[test]
fn garbage_is_an_error_and_no_panic() {
    let whole = [plain("10.0.0.1", NONE), plain("fd00::1", NONE), done(0)].concat();
    for length in 0..whole.len() {
        drop(read(&whole[..length], 0, &mut BTreeSet::new()));
    }
    assert!(read(&[0; 16], 0, &mut BTreeSet::new()).is_err());
    assert!(read(&whole[..whole.len() / 2], 0, &mut BTreeSet::new()).is_err());
}
