//! What a set's key and data are made of, in the form in which `nft` keeps it beside the set to print
//! it: without it, it would print numbers. The kernel does not look at it.

use proxy_model::IpFamily;

use crate::{
    key::Part,
    sets::{Data, ENDPOINT, Set},
};

// Of libnftnl and nft, which write and read this.
const SET_KEY_BYTE_ORDER: u8 = 0;
const SET_DATA_BYTE_ORDER: u8 = 1;
const SET_KEY_TYPEOF: u8 = 3;
const SET_DATA_TYPEOF: u8 = 4;
const SET_COMMENT: u8 = 7;
const BIG_ENDIAN: u32 = 2;
const VERDICT: u32 = 1;
const PAYLOAD: u32 = 7;
const META: u32 = 9;
const CONCATENATION: u32 = 13;
const NUMGEN: u32 = 23;
const THROUGH_TRANSPORT_HEADER: u32 = 11;
const DESTINATION_PORT: u32 = 2;

/// What stands beside the set.
pub fn user_data(set: Set, family: IpFamily) -> Vec<u8> {
    let mut all = Vec::new();
    let key = set.key();
    number(&mut all, SET_KEY_BYTE_ORDER, byte_order(key));
    let data = match set.data() {
        Data::Endpoint => Some(expression(ENDPOINT, set, family)),
        Data::Verdict => Some(described(VERDICT, &[])),
        Data::None => None,
    };
    if set.data() != Data::None {
        number(&mut all, SET_DATA_BYTE_ORDER, 0);
    }
    put(&mut all, SET_KEY_TYPEOF, &expression(key, set, family));
    if let Some(data) = data {
        put(&mut all, SET_DATA_TYPEOF, &data);
    }
    let mut comment = set.comment().as_bytes().to_vec();
    comment.push(0);
    put(&mut all, SET_COMMENT, &comment);
    all
}

/// The number by which `nft` knows the type of a part.
pub const fn data_type(part: Part, family: IpFamily) -> u32 {
    match (part, family) {
        (Part::Address, IpFamily::V4) => 7,
        (Part::Address, IpFamily::V6) => 8,
        (Part::Protocol, _) => 12,
        (Part::Port, _) => 13,
        (Part::Number, _) => 4,
        (Part::Mark, _) => 19,
    }
}

/// The same of several parts.
pub fn data_types(parts: &[Part], family: IpFamily) -> u32 {
    let types = parts.iter().map(|part| data_type(*part, family));
    types.fold(0, |all, one| all << 6 | one)
}

fn byte_order(parts: &[Part]) -> u32 {
    match parts {
        [_] => BIG_ENDIAN,
        _ => 0,
    }
}

/// One part, or several.
fn expression(parts: &[Part], set: Set, family: IpFamily) -> Vec<u8> {
    if let [part] = parts {
        return one(*part, false, family);
    }
    let mut inner = Vec::new();
    for (index, part) in (0_u8..).zip(parts) {
        let source = set == Set::StickyClients || (set == Set::Hairpin && index == 0);
        put(&mut inner, index, &one(*part, source, family));
    }
    described(CONCATENATION, &inner)
}

fn one(part: Part, source: bool, family: IpFamily) -> Vec<u8> {
    match part {
        Part::Address => {
            // Numbers of the protocol and of its field.
            let (header, field) = match (family, source) {
                (IpFamily::V4, true) => (12, 11),
                (IpFamily::V4, false) => (12, 12),
                (IpFamily::V6, true) => (13, 8),
                (IpFamily::V6, false) => (13, 9),
            };
            described(PAYLOAD, &numbers(&[header, field]))
        }
        Part::Port => described(
            PAYLOAD,
            &numbers(&[THROUGH_TRANSPORT_HEADER, DESTINATION_PORT]),
        ),
        Part::Protocol => described(META, &numbers(&[16])),
        Part::Mark => described(META, &numbers(&[3])),
        // Random, modulo 1, from 0.
        Part::Number => described(NUMGEN, &numbers(&[1, 1, 0])),
    }
}

/// The kind of an expression, and what it is made of.
fn described(kind: u32, inner: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    number(&mut all, 0, kind);
    put(&mut all, 1, inner);
    all
}

fn numbers(values: &[u32]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, value) in (0_u8..).zip(values) {
        number(&mut all, kind, *value);
    }
    all
}

fn number(all: &mut Vec<u8>, kind: u8, value: u32) {
    put(all, kind, &value.to_ne_bytes());
}

/// Type and length of a byte each, then the value.
pub fn put(all: &mut Vec<u8>, kind: u8, value: &[u8]) {
    all.push(kind);
    all.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    all.extend(value.iter().take(usize::from(u8::MAX)));
}
