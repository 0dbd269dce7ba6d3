//! What one record, and one socket's records, promise.

use super::*;
use crate::shared::Shared;

const COOKIE: u64 = 7;

fn ip(text: &str) -> Address {
    address::from_ip(text.parse().unwrap())
}

fn flow(frontend: u8, endpoint: u8) -> Translation {
    Translation {
        frontend: ip(&std::format!("10.96.0.{frontend}")),
        endpoint: ip(&std::format!("10.244.0.{endpoint}")),
        frontend_port: 53,
        endpoint_port: 5353,
        endpoint_id: u32::from(endpoint),
        check: 0,
    }
    .sealed(COOKIE)
}

/// What `flows` knows of a frontend, and of an endpoint.
fn endpoint_of(flows: Shared<'_, Flows>, frontend: u8) -> Option<u32> {
    let frontend = flow(frontend, 0).frontend;
    flows
        .endpoint_of(&frontend, 53, COOKIE)
        .map(|endpoint| endpoint.number)
}

fn frontend_of(flows: Shared<'_, Flows>, endpoint: u8) -> Option<Address> {
    let endpoint = flow(0, endpoint).endpoint;
    flows
        .frontend_of(&endpoint, 5353, COOKIE)
        .map(|dialled| dialled.address)
}

#[test]
fn an_empty_record_is_no_record() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    assert_eq!(flows.endpoint_of(&[0; 16], 0, 0), None);
    assert_eq!(flows.frontend_of(&[0; 16], 0, 0), None);
    assert!(!Translation::default().sealed(0).holds_for(0));
}

#[test]
fn every_endpoint_leads_back_to_its_frontend() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    for n in 1..=8 {
        assert_eq!(flows.remember(&flow(n, n + 100)), Remembered::Kept);
    }
    for n in 1..=8 {
        assert_eq!(
            frontend_of(flows, n + 100),
            Some(flow(n, 0).frontend),
            "frontend {n}"
        );
        assert_eq!(
            flows.frontend_of(&flow(n, n + 100).endpoint, 5354, COOKIE),
            None
        );
    }
}

#[test]
fn the_ninth_frontend_takes_the_place_of_the_oldest() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    for n in 1..=8 {
        flows.remember(&flow(n, n + 100));
    }
    assert_eq!(flows.remember(&flow(9, 109)), Remembered::Replaced);
    assert_eq!(endpoint_of(flows, 1), None);
    for n in 2..=9 {
        assert_eq!(endpoint_of(flows, n), Some(u32::from(n) + 100));
    }
}

#[test]
fn a_frontend_that_moves_to_another_endpoint_keeps_one_record() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    flows.remember(&flow(1, 101));
    flows.remember(&flow(1, 102));
    assert_eq!(endpoint_of(flows, 1), Some(102));
    assert_eq!(frontend_of(flows, 101), None);
}

#[test]
fn the_frontend_used_last_decides_between_two_with_one_endpoint() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    flows.remember(&flow(1, 101));
    flows.remember(&flow(2, 101));
    assert_eq!(frontend_of(flows, 101), Some(flow(2, 0).frontend));
    flows.touch(&flow(1, 0).frontend, 53);
    assert_eq!(frontend_of(flows, 101), Some(flow(1, 0).frontend));
}

#[test]
fn a_forgotten_endpoint_leads_nowhere() {
    let mut flows = Flows::default();
    let flows = Shared::of(&mut flows);
    flows.remember(&flow(1, 101));
    flows.forget(&flow(1, 101).endpoint, 5353);
    assert_eq!(frontend_of(flows, 101), None);
    assert_eq!(endpoint_of(flows, 1), None);
    assert_eq!(flows.remember(&flow(1, 101)), Remembered::Kept);
}

#[test]
fn a_record_torn_at_any_word_is_void() {
    let old: [u32; WORDS] = bytemuck::cast(flow(1, 101));
    let new: [u32; WORDS] = bytemuck::cast(flow(2, 102));
    for split in 1..WORDS {
        let mut torn = old;
        torn[..split].copy_from_slice(&new[..split]);
        let whole = torn == new || torn == old;
        assert_eq!(
            bytemuck::cast::<_, Translation>(torn).holds_for(COOKIE),
            whole,
            "{split}"
        );
    }
}

#[test]
fn a_record_is_void_for_another_socket() {
    assert!(flow(1, 101).holds_for(COOKIE));
    assert!(!flow(1, 101).holds_for(COOKIE + u64::from(PEERS)));
}
