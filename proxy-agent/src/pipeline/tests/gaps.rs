//! A backend that lacks what Services need: what is said of it, and what mode auto does.

use super::*;

/// The same Service, with a NodePort.
fn open_to_all(event: ClusterEvent) -> ClusterEvent {
    let ClusterEvent::ServiceUpserted(mut service) = event else {
        panic!("{event:?}")
    };
    let number = 30_000 + u16::try_from(service.name.name.len()).unwrap();
    service.ports[0].node_port = std::num::NonZeroU16::new(number);
    ClusterEvent::ServiceUpserted(service)
}

const LACKS: &[Capability] = &[Capability::Sctp, Capability::ExternalTraffic];

fn lines(news: &[&str]) -> Vec<String> {
    let text = format!("|{}", Capability::ExternalTraffic.without());
    let line = |line: &&str| line.replace("|TEXT", &text);
    news.iter().map(line).collect()
}

#[test]
fn what_the_backend_lacks_is_logged_when_it_is_missed_and_when_it_no_longer_is() {
    let fake = Fake::lacking(LACKS);
    let mut pipeline = pipeline(&fake);
    let gap = "WARN|capability gap|shop/a/TCP/IPv4|external-traffic|TEXT";
    let closed = "INFO|capability gap closed|shop/a/TCP/IPv4|external-traffic";
    for (events, news, suffices) in [
        (vec![upsert("a", 1)], &[][..], true),
        (
            vec![open_to_all(upsert("a", 1))],
            &[gap, "DEBUG|synced"],
            false,
        ),
        (vec![], &[], false),
        // Nothing is said again while it holds.
        (vec![open_to_all(upsert("a", 2))], &["DEBUG|synced"], false),
        (vec![upsert("a", 2)], &[closed, "DEBUG|synced"], true),
        (
            vec![open_to_all(upsert("a", 2))],
            &[gap, "DEBUG|synced"],
            false,
        ),
        (vec![delete("a")], &[closed, "DEBUG|synced"], true),
    ] {
        let told = logged(|| assert_eq!(pipeline.take(events).unwrap(), None));
        assert_eq!(told, lines(news));
        assert_eq!(pipeline.suffices(), suffices);
        let missed = pipeline.gaps().filter(|(_, count)| *count > 0);
        assert_eq!(missed.count(), usize::from(!suffices));
    }
}

#[test]
fn with_mode_auto_what_can_be_served_is_served_where_no_backend_suffices() {
    let fake = Fake::lacking(LACKS);
    start_log();
    let mut pipeline = fake.pipeline_with(Demand::Everything);
    let events = vec![upsert("a", 1), open_to_all(upsert("bb", 2))];
    let told = logged(|| assert_eq!(pipeline.take(events).unwrap(), None));
    let about = |line: &&String| line.starts_with("WARN|backend no longer suffices|");
    assert_eq!(told.iter().filter(about).count(), 1, "{told:?}");
    assert_eq!(fake.calls(), [call(true, &["+a", "+bb"])]);
    assert!(!pipeline.suffices());
}

#[test]
fn with_mode_auto_a_service_that_comes_later_stops_nothing() {
    let fake = Fake::lacking(LACKS);
    start_log();
    let mut pipeline = fake.pipeline_with(Demand::Everything);
    fake.answer(retry(Duration::from_secs(1)));
    let mut advance = |events| {
        let told = logged(|| assert!(pipeline.take(events).is_ok()));
        let about = |line: &String| line.contains("suffice");
        told.into_iter().filter(about).collect::<Vec<_>>()
    };
    assert_eq!(advance(vec![upsert("a", 1)]), [""; 0]);
    let news = advance(vec![open_to_all(upsert("a", 1))]);
    assert!(
        news.len() == 1 && news[0].starts_with("WARN|backend no longer suffices|"),
        "{news:?}"
    );
    assert_eq!(advance(vec![open_to_all(upsert("bb", 2))]), [""; 0]);
    assert_eq!(advance(vec![delete("a")]), [""; 0]);
    assert_eq!(advance(vec![delete("bb")]), ["INFO|backend suffices again"]);
    assert_eq!(fake.calls().len(), 5);
}

/// A backend that finds out with its second sync that it lacks something.
#[derive(Default)]
struct Learning {
    syncs: usize,
    lacks: Vec<Capability>,
}

impl Backend for Learning {
    fn name(&self) -> &'static str {
        "learning"
    }

    fn lacks(&self) -> &[Capability] {
        &self.lacks
    }

    fn sync(&mut self, _: &NodeState, _: &ChangeSet) -> Result<SyncReport, SyncError> {
        self.syncs += 1;
        if self.syncs == 2 {
            self.lacks.push(Capability::ExternalTraffic);
        }
        Ok(SyncReport::default())
    }

    fn repair(&mut self, _: &NodeState) -> Result<proxy_model::RepairReport, SyncError> {
        self.lacks.clear();
        Ok(proxy_model::RepairReport::default())
    }
}

#[test]
fn what_a_backend_finds_out_that_it_lacks_is_told_and_counted() {
    start_log();
    let backend = Box::new(Learning::default());
    let mut pipeline = Pipeline::new(Model::new("node-a"), backend, Demand::WhatItCan);
    let missing = |pipeline: &Pipeline| -> usize { pipeline.gaps().map(|(_, count)| count).sum() };
    let advance = |pipeline: &mut Pipeline, event| {
        let told = logged(|| assert!(pipeline.take(vec![event]).is_ok()));
        told.into_iter()
            .filter(|line| line.contains("capability gap"))
            .count()
    };
    assert_eq!(advance(&mut pipeline, open_to_all(upsert("a", 1))), 0);
    assert_eq!(advance(&mut pipeline, upsert("bb", 2)), 1);
    assert_eq!(missing(&pipeline), 1);
    let told = logged(|| assert!(pipeline.repair().unwrap().is_some()));
    assert!(
        told.iter()
            .any(|line| line.contains("capability gap closed")),
        "{told:?}"
    );
    assert_eq!(missing(&pipeline), 0);
}
