//! What a brain knows of its clients.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use proxy_model::{Capability, IpFamily, ServiceFailure};

use super::{
    brain::{Brain, Place, batch, soon},
    states,
};
use crate::{
    ClientName, Report, Token, Trigger,
    client::ClientError,
    server::{ClientStatus, Publisher},
    wire,
};

fn applied(token: Token) -> Report {
    Report {
        applied: Some(token),
        ..Report::default()
    }
}

fn only(brain: &Brain) -> ClientStatus {
    let mut all = brain.publisher.clients();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[tokio::test]
async fn a_brain_knows_what_its_clients_have_in_force() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let mut follower = brain.follower("one");
    let first = batch(&mut follower).await.token;
    let looking_on = only(&brain);
    assert_eq!(looking_on.name, "one".parse::<ClientName>().unwrap());
    assert_eq!(looking_on.lacks, [Capability::Sctp]);
    assert_eq!((looking_on.streams, looking_on.applied), (1, None));
    assert_eq!(
        looking_on.behind_for, None,
        "who never reports only looks on"
    );

    let failure = states::failure("no room");
    let report = Report {
        failures: vec![failure.clone()],
        ..applied(first)
    };
    soon(follower.report(&report)).await.unwrap();
    let up_to_date = only(&brain);
    assert_eq!((up_to_date.applied, up_to_date.behind_for), (Some(1), None));
    assert_eq!(up_to_date.failures, [failure]);

    brain.publish(&states::numbered(2, 2));
    let behind = only(&brain);
    assert!(behind.behind_for.is_some());
    let refused = Report {
        error: Some("the kernel said no".to_owned()),
        ..applied(first)
    };
    soon(follower.report(&refused)).await.unwrap();
    let still = only(&brain);
    assert!(still.behind_for >= behind.behind_for, "no progress");
    assert_eq!(still.error.as_deref(), Some("the kernel said no"));
    assert_eq!(still.failures, []);

    soon(follower.report(&applied(brain.publisher.token())))
        .await
        .unwrap();
    assert_eq!(only(&brain).behind_for, None);
    drop(follower);
    brain.until_nobody_is_served().await;
    assert_eq!(only(&brain).streams, 0, "its dataplane is still there");
    brain.publish(&states::numbered(2, 3));
    assert!(only(&brain).behind_for.is_some(), "and follows nothing");
}

#[tokio::test]
async fn a_state_of_another_brain_counts_for_nothing() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(2, 1));
    let client = brain.client("one").await;
    let mut other = brain.publisher.token();
    other.instance_id += 1;
    soon(client.report(&applied(other))).await.unwrap();
    let status = only(&brain);
    assert_eq!(status.applied, Some(0));
    assert!(status.behind_for.is_some());
}

#[tokio::test]
async fn changes_are_measured_until_they_are_in_force() {
    let place = Place::new();
    let measured: Arc<Mutex<Vec<(String, Trigger)>>> = Arc::default();
    let into = Arc::clone(&measured);
    let publisher = Publisher::new(move |one| {
        let one = (one.client.to_string(), one.trigger);
        into.lock().unwrap().push(one);
    });
    let brain = Brain::serve(publisher, place.socket("brain")).await;
    let trigger = |seconds| Trigger {
        family: IpFamily::V6,
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    };
    let publish = |version, triggers| {
        brain
            .publisher
            .publish(&states::numbered(2, version), triggers);
    };
    publish(1, vec![trigger(1)]);
    let mut follower = brain.follower("one");
    let first = batch(&mut follower).await;
    assert_eq!(
        first.triggers,
        [],
        "nobody waited for what was there before"
    );
    soon(follower.report(&applied(first.token))).await.unwrap();
    publish(2, vec![trigger(2), trigger(3)]);
    publish(3, vec![trigger(4)]);
    publish(4, vec![]);
    let mut told = Vec::new();
    let mut token = first.token;
    while token.revision < 4 {
        let batch = batch(&mut follower).await;
        token = batch.token;
        told.extend(batch.triggers);
    }
    assert_eq!(told, [trigger(2), trigger(3), trigger(4)]);
    let at = |revision| Token { revision, ..token };
    for (revision, expected) in [(2, vec![2, 3]), (2, vec![]), (4, vec![4]), (4, vec![])] {
        soon(follower.report(&applied(at(revision)))).await.unwrap();
        let got = std::mem::take(&mut *measured.lock().unwrap());
        let expected: Vec<_> = expected
            .into_iter()
            .map(|seconds| ("one".to_owned(), trigger(seconds)))
            .collect();
        assert_eq!(got, expected, "revision {revision}");
    }
}

#[tokio::test]
async fn who_has_no_name_is_refused() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let client = brain.client("one").await;
    for (name, expected) in [
        (None, "client: is required"),
        (Some(""), "client.name: \"\" is not a valid client name"),
        (
            Some("a b"),
            "client.name: \"a b\" is not a valid client name",
        ),
    ] {
        let request = wire::ReportRequest {
            client: name.map(|name| wire::Client {
                name: name.to_owned(),
                lacks: vec![],
            }),
            ..wire::ReportRequest::default()
        };
        let refused = soon(client.api.clone().report(request)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        let told = ClientError::from(refused).to_string();
        assert!(told.starts_with(expected), "{told}");
    }
    assert_eq!(brain.publisher.clients(), []);
}

#[tokio::test]
async fn only_so_many_calls_are_served() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let client = brain.client("one").await;
    let mut open = Vec::new();
    let refused = loop {
        match soon(client.watch(None)).await {
            Ok(stream) => open.push(stream),
            Err(error) => break error.to_string(),
        }
        assert!(open.len() <= 512);
    };
    assert_eq!(open.len(), 512, "the share of one user");
    assert!(
        refused.starts_with("1024 calls are already open, or 512 of"),
        "{refused}"
    );
    open.pop();
    soon(async {
        while client.watch(None).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_report_of_very_many_failures_is_taken() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    let state = states::numbered(30_000, 1);
    brain.publish(&state);
    let client = brain.client("one").await;
    let failure = |key: &proxy_model::ServicePortKey| ServiceFailure {
        key: key.clone(),
        reason: "x".repeat(5_000),
    };
    let report = Report {
        failures: state.services.keys().map(failure).collect(),
        ..applied(brain.publisher.token())
    };
    soon(client.report(&report)).await.unwrap();
    let known = only(&brain);
    assert_eq!((known.failures.len(), known.more_failures), (1_000, 29_000));
    assert_eq!(known.failures[0].reason.len(), 1_000);
}
