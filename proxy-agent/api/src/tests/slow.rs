//! Clients that read slowly, or not at all, and very many of them.

use std::sync::{Arc, Weak};

use proxy_model::{NodeState, ServiceState};

use super::{
    brain::{Brain, Place, options, soon, until},
    relay::Relay,
    states,
};
use crate::{
    Replica,
    client::{Client, Event, Follower},
};

const SERVICES: u16 = 2_000;

/// Remembers every value that was ever published, and keeps none.
#[derive(Default)]
struct Values(Vec<Weak<ServiceState>>);

impl Values {
    fn note(&mut self, state: &NodeState) {
        self.0.extend(state.services.values().map(Arc::downgrade));
    }

    fn alive(&self) -> usize {
        self.0.iter().filter(|one| one.strong_count() > 0).count()
    }
}

#[tokio::test]
async fn what_a_slow_client_misses_coalesces_and_its_cost_is_bounded() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    // Enough for the greeting, nothing near a state.
    let relay = Relay::throttled(place.socket("relay"), brain.path.clone(), 1_000);
    let mut values = Values::default();
    let mut publish = |version| {
        let state = states::numbered(SERVICES, version);
        values.note(&state);
        brain.publish(&state);
        values.alive()
    };
    publish(1);
    let mut follower = Follower::new(options(relay.path.clone(), "slow"), None);
    assert!(matches!(soon(follower.next()).await, Event::Connected));
    let mut replica = Replica::new();
    let mut most = 0;
    for version in 2..=100 {
        // The client reads one byte, and another one.
        relay.budget.add_permits(2);
        tokio::select! {
            event = follower.next() => panic!("{event:?}"),
            () = async { for _ in 0..20 { tokio::task::yield_now().await } } => {}
        }
        most = most.max(publish(version));
    }
    // The newest state, the one that is being told, and the recent past, which is bounded.
    let bound = 2 * usize::from(SERVICES) + 65_536 / 9;
    assert!(most <= bound, "{most} values are held, more than {bound}");
    relay.budget.add_permits(Relay::FREE);
    let (batches, operations) = until(&mut follower, &mut replica, brain.publisher.token()).await;
    // What fits into the buffers of three sockets, the state that was being told, and then all
    // that came after it at once.
    assert!(batches < 10, "{batches} of 100 states were told one by one");
    assert!(operations <= 1 + batches * usize::from(SERVICES));
    assert_eq!(replica.state(), &states::numbered(SERVICES, 100));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nobody() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let relay = Relay::throttled(place.socket("relay"), brain.path.clone(), 1_000);
    brain.publish(&states::numbered(SERVICES, 1));
    let mut stuck = Follower::new(options(relay.path.clone(), "stuck"), None);
    assert!(matches!(soon(stuck.next()).await, Event::Connected));
    let mut follower = brain.follower("quick");
    let mut replica = Replica::new();
    for version in 2..=20 {
        brain.publish(&states::numbered(SERVICES, version));
        until(&mut follower, &mut replica, brain.publisher.token()).await;
    }
}

#[tokio::test]
async fn ten_thousand_reconnects_leave_nothing_behind() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(1, 1));
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for number in 0..10_000 {
        // Each under another name, as clients with a process id in theirs do.
        let options = options(brain.path.clone(), &format!("client-{number}"));
        let client = Client::connect(&options).await.unwrap();
        drop(soon(client.watch(None)).await.unwrap());
    }
    brain.until_nobody_is_served().await;
    assert_eq!(brain.publisher.clients(), []);
    soon(async {
        // And the one that lets connections in.
        while tasks() > before + 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
