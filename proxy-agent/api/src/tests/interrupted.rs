//! Connections that break between any two bytes.

use super::{
    brain::{Brain, Place, options, until},
    relay::Relay,
    states,
};
use crate::{Replica, client::Follower};

/// What a client is told while nothing goes wrong.
const CHANGES: u16 = 6;

fn state(version: u16) -> proxy_model::NodeState {
    // Services come and go as well.
    states::numbered(4 + version % 2, version)
}

/// Follows a brain that changes, over a connection that is cut after `bytes` bytes. Returns whether
/// that was ever reached.
async fn follow_through_a_cut(bytes: usize) -> bool {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let relay = Relay::cutting(place.socket("relay"), brain.path.clone(), bytes);
    let mut follower = Follower::new(options(relay.path.clone(), "one"), None);
    let mut replica = Replica::new();
    let mut lost = false;
    for version in 1..=CHANGES {
        brain.publish(&state(version));
        let token = brain.publisher.token();
        while replica.token() != Some(token) {
            match super::brain::soon(follower.next()).await {
                crate::client::Event::Batch(batch) => {
                    let meant = batch.token.revision;
                    replica.apply(batch);
                    let meant = state(u16::try_from(meant).unwrap());
                    assert_eq!(replica.state(), &meant, "cut after {bytes} bytes");
                }
                crate::client::Event::Connected => {}
                crate::client::Event::Lost(_) => lost = true,
            }
        }
    }
    lost
}

#[tokio::test]
async fn a_connection_may_break_after_any_byte() {
    let mut bytes = 0;
    let mut cuts = 0;
    // Not a divisor of any message: over the whole range, each is cut in many places.
    while follow_through_a_cut(bytes).await {
        bytes += 23;
        cuts += 1;
    }
    assert!(cuts > 30, "only {cuts} cuts fit: was anything told at all?");
}

#[tokio::test]
async fn a_brain_may_be_replaced_at_any_moment() {
    let place = Place::new();
    let path = place.socket("brain");
    let mut brain = Brain::start(path.clone()).await;
    brain.publish(&state(1));
    let mut follower = brain.follower("one");
    let mut replica = Replica::new();
    for version in 2..=CHANGES {
        until(&mut follower, &mut replica, brain.publisher.token()).await;
        // One that has not been told yet, and is gone with the brain.
        brain.publish(&state(version + 100));
        brain.kill().await;
        brain = Brain::start(path.clone()).await;
        brain.publish(&state(version));
        until(&mut follower, &mut replica, brain.publisher.token()).await;
        assert_eq!(replica.state(), &state(version));
    }
}

#[tokio::test]
async fn after_a_cut_only_what_was_missed_is_told() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&state(2));
    // Far more than the greeting and this state.
    let relay = Relay::cutting(place.socket("relay"), brain.path.clone(), 2_000);
    let mut follower = Follower::new(options(relay.path.clone(), "one"), None);
    let mut replica = Replica::new();
    let mut lost = 0;
    let mut batches = Vec::new();
    for version in 3..40 {
        brain.publish(&state(version));
        while replica.token() != Some(brain.publisher.token()) {
            match super::brain::soon(follower.next()).await {
                crate::client::Event::Batch(batch) => {
                    batches.push((lost, batch.reset));
                    replica.apply(batch);
                }
                crate::client::Event::Connected => {}
                crate::client::Event::Lost(_) => lost += 1,
            }
        }
    }
    assert_eq!(lost, 1);
    assert_eq!(batches.first(), Some(&(0, true)));
    assert!(
        batches.iter().skip(1).all(|(_, reset)| !reset),
        "{batches:?}"
    );
    assert!(batches.iter().any(|(lost, _)| *lost == 1));
}
