//! An agent that follows another brain: what it says comes into force, and is reported.

use proxy_api::{Batch, Item, NodeFacts, Operation, Replica, Report, Token, Trigger, client};
use proxy_model::{Model, ServiceFailure, ServicePortKey, SyncReport};

use super::*;
use crate::cluster::brain;

/// What a brain says that has `services`.
fn batch(revision: u64, services: &[u8]) -> Batch {
    let mut model = Model::new("node-a");
    for number in services {
        model.apply(service(*number));
    }
    model.update();
    let state = model.state().clone();
    let services = state.services.iter();
    let upsert = |(key, service): (&ServicePortKey, &Arc<_>)| {
        Operation::Upsert(Item::ServicePort(key.clone(), Arc::clone(service)))
    };
    let node = Item::Node(Box::new(NodeFacts::of(&state)));
    let operations = std::iter::once(Operation::Upsert(node));
    Batch {
        reset: true,
        operations: operations.chain(services.map(upsert)).collect(),
        token: token(revision),
        triggers: vec![Trigger {
            family: IpFamily::V4,
            at: SystemTime::now(),
        }],
    }
}

fn token(revision: u64) -> Token {
    Token {
        instance_id: 7,
        revision,
    }
}

fn link() -> brain::Link {
    let options = client::ClientOptions {
        target: "unix:///nonexistent/brain.sock".parse().unwrap(),
        tls: None,
        token_file: None,
        name: "fake".parse().unwrap(),
        lacks: vec![],
    };
    brain::BrainSource::new(options, None).link()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_passes_the_state_on_and_programs_nothing_reports_nothing() {
    let fake = Fake::default();
    let link = link();
    let origin = Origin {
        name: "brain".to_owned(),
        link: Some(link.clone()),
        nodes: own_node::Nodes::Given,
        reports: false,
    };
    let pipeline = Pipeline::new(Replica::new(), vec![Box::new(fake.clone())]);
    let mut running = Running::start_from(pipeline, fake, origin, None).await;
    let first = Message::Batch(batch(1, &[1]));
    running.messages.send(first).await.unwrap();
    running.published().await;
    // Answered after all that came before it is done.
    assert!(running.snapshot().await.agent.in_force);
    assert_eq!(link.reported(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_brain_says_comes_into_force_and_is_reported() {
    let fake = Fake::default();
    let link = link();
    let origin = Origin {
        name: "brain".to_owned(),
        link: Some(link.clone()),
        nodes: own_node::Nodes::Given,
        reports: true,
    };
    let reported = |wanted: Report| {
        let link = link.clone();
        // Of the backend that was chosen.
        let wanted = Report {
            lacks: Some(vec![]),
            ..wanted
        };
        async move { timeout(LIMIT, link.until_reported(wanted)).await.unwrap() }
    };
    let pipeline = Pipeline::new(Replica::new(), vec![Box::new(fake.clone())]);
    let mut running = Running::start_from(pipeline, fake, origin, Some(NEVER)).await;
    // Whoever follows a brain has no say in which addresses its node has.
    let addresses = Update {
        event: ClusterEvent::HostAddresses(vec![[192, 0, 2, 1].into()]),
        trigger: None,
    };
    running
        .messages
        .send(Message::Updates(vec![addresses]))
        .await
        .unwrap();
    assert!(!running.snapshot().await.agent.synced);

    let key = batch(1, &[1]).operations.iter().find_map(|one| match one {
        Operation::Upsert(Item::ServicePort(key, _)) => Some(key.clone()),
        _ => None,
    });
    let failures = vec![ServiceFailure {
        key: key.unwrap(),
        reason: "full".to_owned(),
    }];
    running.fake.answer(Ok(SyncReport {
        writes: 1,
        failures: failures.clone(),
    }));
    running
        .messages
        .send(Message::Batch(batch(1, &[1, 2])))
        .await
        .unwrap();
    assert_eq!(
        running.published().await,
        (vec!["s1".to_owned(), "s2".to_owned()], 1)
    );
    reported(Report {
        applied: Some(token(1)),
        failures: failures.clone(),
        ..Report::default()
    })
    .await;
    assert_eq!(
        running.fake.calls(),
        [(true, vec!["+s1".to_owned(), "+s2".to_owned()])]
    );

    // What is not in force is not reported as such.
    running.fake.answer(Err(SyncError::Retry {
        reason: "no room".to_owned(),
        after: Duration::from_millis(200),
    }));
    running
        .messages
        .send(Message::Batch(batch(2, &[1])))
        .await
        .unwrap();
    reported(Report {
        applied: Some(token(1)),
        failures,
        error: Some("no room".to_owned()),
        ..Report::default()
    })
    .await;
    reported(Report {
        applied: Some(token(2)),
        ..Report::default()
    })
    .await;
    // A state that is no other one, and needs no sync, is in force all the same.
    running
        .messages
        .send(Message::Batch(batch(3, &[1])))
        .await
        .unwrap();
    reported(Report {
        applied: Some(token(3)),
        ..Report::default()
    })
    .await;
    let calls = running.stop().await.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
}
