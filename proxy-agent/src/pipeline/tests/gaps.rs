//! A dataplane that lacks what Services need: what is said of it.

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
    let fake = Fake::default().lacking(LACKS);
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
    let mut pipeline = Pipeline::new(Model::new("node-a"), vec![backend]);
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
    let told = logged(|| assert!(pipeline.repair_all().is_some()));
    assert!(
        told.iter()
            .any(|line| line.contains("capability gap closed")),
        "{told:?}"
    );
    assert_eq!(missing(&pipeline), 0);
}
