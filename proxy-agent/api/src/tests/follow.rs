//! Clients see what was published, in order, and only what was meant.

use proptest::prelude::*;
use proxy_model::NodeState;

use super::{
    brain::{Brain, Place, batch, options, soon, until},
    states,
};
use crate::{
    Replica,
    client::{Event, Follower},
    server::Publisher,
};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is published, and however far the client is behind: each batch leads to a state
    /// that was published, and what it changes is what differs.
    #[test]
    fn every_batch_leads_to_a_state_that_was_meant(
        walk in states::walk(12),
        reads in prop::collection::vec(0_usize..3, 12),
        again in any::<bool>(),
    ) {
        runtime().block_on(async {
            let place = Place::new();
            let brain = Brain::start(place.socket("brain")).await;
            let mut meant: Vec<NodeState> = Vec::new();
            let mut follower = brain.follower("one");
            let mut replica = Replica::new();
            let mut in_force = NodeState::default();
            for (state, reads) in walk.into_iter().zip(reads) {
                if meant.last() != Some(&state) {
                    meant.push(state.clone());
                }
                brain.publish(&state);
                assert_eq!(brain.publisher.revision(), meant.len() as u64);
                for _ in 0..reads {
                    if replica.token() == Some(brain.publisher.token()) {
                        break;
                    }
                    if again {
                        follower.restart();
                    }
                    let batch = batch(&mut follower).await;
                    let revision = usize::try_from(batch.token.revision).unwrap();
                    replica.apply(batch);
                    let expected = &meant[revision - 1];
                    assert_eq!(replica.state(), expected);
                    let change = replica.update();
                    assert_eq!(change, in_force.changes_to(expected));
                    in_force = expected.clone();
                }
            }
            until(&mut follower, &mut replica, brain.publisher.token()).await;
            assert_eq!(Some(replica.state()), meant.last());
        });
    }

    #[test]
    fn next_tells_the_whole_state(state in states::state()) {
        runtime().block_on(async {
            let place = Place::new();
            let brain = Brain::start(place.socket("brain")).await;
            brain.publish(&state);
            let client = brain.client("one").await;
            let batch = soon(client.next(None)).await.unwrap();
            assert_eq!(batch.token, brain.publisher.token());
            let mut replica = Replica::new();
            replica.apply(batch);
            assert_eq!(replica.state(), &state);
        });
    }
}

#[tokio::test]
async fn nothing_is_told_before_there_is_a_state() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let mut follower = brain.follower("one");
    assert!(matches!(soon(follower.next()).await, Event::Connected));
    let client = brain.client("two").await;
    let mut next = Box::pin(client.next(None));
    tokio::select! {
        biased;
        event = follower.next() => panic!("{event:?}"),
        answer = &mut next => panic!("{answer:?}"),
        // The other calls have been looked at, and the brain has had its turns.
        () = async { for _ in 0..100 { tokio::task::yield_now().await } } => {}
    }
    brain.publish(&states::numbered(1, 1));
    assert!(batch(&mut follower).await.reset);
    assert!(soon(next).await.is_ok());
}

#[tokio::test]
async fn next_waits_for_another_state_than_the_one_seen() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let client = brain.client("one").await;
    let seen = soon(client.next(None)).await.unwrap().token;
    let next = client.next(Some(seen));
    let publish = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        brain.publish(&states::numbered(2, 2));
    };
    let (answer, ()) = soon(async { tokio::join!(next, publish) }).await;
    assert_eq!(answer.unwrap().token.revision, 2);
    // Of another brain: answered at once.
    let mut other = seen;
    other.instance_id += 1;
    assert_eq!(
        soon(client.next(Some(other))).await.unwrap().token.revision,
        2
    );
}

#[tokio::test]
async fn a_client_goes_on_where_it_was() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(3, 1));
    let mut follower = brain.follower("one");
    let token = batch(&mut follower).await.token;
    drop(follower);
    // Nothing is new, and the client learns that.
    let mut follower = Follower::new(options(brain.path.clone(), "one"), Some(token));
    let same = batch(&mut follower).await;
    assert_eq!(
        (same.reset, same.operations.len(), same.token),
        (false, 0, token)
    );
    drop(follower);
    let mut changed = states::numbered(3, 1);
    let (key, service) = states::numbered(1, 2).services.into_iter().next().unwrap();
    changed.services.insert(key, service);
    brain.publish(&changed);
    let mut follower = Follower::new(options(brain.path.clone(), "one"), Some(token));
    let next = batch(&mut follower).await;
    assert!(!next.reset);
    assert_eq!(next.operations.len(), 1);
}

#[tokio::test]
async fn another_brain_begins_with_a_reset_and_changes_only_what_differs() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(3, 1));
    let mut follower = brain.follower("one");
    let mut replica = Replica::new();
    until(&mut follower, &mut replica, brain.publisher.token()).await;
    assert_eq!(replica.update().changes.len(), 3);
    let path = brain.path.clone();
    brain.kill().await;
    assert!(matches!(soon(follower.next()).await, Event::Lost(_)));
    let brain = Brain::start(path).await;
    let mut state = states::numbered(3, 1);
    let key = state.services.keys().next().unwrap().clone();
    state.services.remove(&key);
    brain.publish(&state);
    let batch = batch(&mut follower).await;
    assert!(batch.reset);
    replica.apply(batch);
    let change = replica.update();
    assert_eq!(change.changes.len(), 1, "{change:?}");
    assert_eq!(replica.state(), &state);
}

#[tokio::test]
async fn what_is_too_old_begins_with_a_reset() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(1_500, 1));
    let old = brain.publisher.token();
    brain.publish(&states::numbered(1_500, 2));
    let recent = brain.publisher.token();
    brain.publish(&states::numbered(1_500, 3));
    for (resume, reset) in [(recent, false), (old, false)] {
        let mut follower = Follower::new(options(brain.path.clone(), "one"), Some(resume));
        assert_eq!(batch(&mut follower).await.reset, reset, "{resume:?}");
    }
    // Each holds 1,500 values of its own: what eight, and one, endpoints take.
    for version in 4..=6 {
        brain.publish(&states::numbered(1_500, version));
    }
    for (resume, reset) in [(recent, false), (old, true)] {
        let mut follower = Follower::new(options(brain.path.clone(), "one"), Some(resume));
        let mut replica = Replica::new();
        let batch = batch(&mut follower).await;
        assert_eq!(batch.reset, reset, "{resume:?}");
        replica.apply(batch);
        assert_eq!(replica.state().services.len(), 1_500);
    }
}

#[tokio::test]
async fn each_client_has_a_cursor_of_its_own() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let (mut first, mut second) = (brain.follower("first"), brain.follower("second"));
    let (mut one, mut two) = (Replica::new(), Replica::new());
    brain.publish(&states::numbered(2, 1));
    until(&mut first, &mut one, brain.publisher.token()).await;
    brain.publish(&states::numbered(2, 2));
    until(&mut first, &mut one, brain.publisher.token()).await;
    brain.publish(&states::numbered(3, 2));
    assert_eq!(
        until(&mut first, &mut one, brain.publisher.token()).await,
        (1, 1)
    );
    let late = until(&mut second, &mut two, brain.publisher.token()).await;
    assert_eq!(late, (1, 4), "the node and three Services at once");
    assert_eq!(one.state(), two.state());
}

#[tokio::test]
async fn a_state_like_the_one_before_is_no_news() {
    let publisher = Publisher::new(|_| {});
    publisher.publish(&states::numbered(2, 1), vec![]);
    publisher.publish(&states::numbered(2, 1), vec![]);
    assert_eq!(publisher.revision(), 1);
}
