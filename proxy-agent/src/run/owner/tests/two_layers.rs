//! Two layers, one of which fails for long.

use proxy_model::{Capability, SyncReport};

use super::*;

/// Longer than the test takes.
const PERIOD: Duration = LONGEST.checked_div(4).unwrap();

async fn start(above: &Fake, beneath: &Fake) -> Running {
    let origin = Origin {
        name: "a test".to_owned(),
        link: None,
        nodes: own_node::Nodes::Told,
        reports: false,
    };
    let pipeline = fake::pipeline(&[above, beneath]);
    Running::start_from(pipeline, above.clone(), origin, Some(PERIOD)).await
}

/// What `/healthz` and `/livez` will say when two periods are over.
fn well(running: &Running) -> [bool; 2] {
    let mut later = Moment::now();
    later.instant += PERIOD * 2;
    let health = &running.serving.health;
    [Probe::Healthz, Probe::Livez].map(|probe| health.answer(probe, later, Duration::ZERO).healthy)
}

fn fails() -> Result<SyncReport, SyncError> {
    Err(SyncError::Retry {
        reason: "no room".to_owned(),
        after: Duration::from_secs(30),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_waits_keeps_no_change_from_the_other_and_that_is_told() {
    let [above, beneath] = ["above", "beneath"].map(Fake::named);
    let running = start(&above, &beneath).await;
    running.tell(&[1]).await;
    running.messages.send(Message::Synced).await.unwrap();
    running.until(|facts| facts.in_force).await;
    running.fake.answer(fails());
    running.tell(&[2]).await;
    running.until(|facts| facts.events == 2).await;
    running.tell(&[3]).await;
    let layers = |facts: &AgentFacts| [facts.layers[0].in_force, facts.layers[1].in_force];
    let facts = running.until(|facts| facts.events == 3).await;
    assert_eq!(layers(&facts), [false, true]);
    assert!(!facts.in_force && facts.layers[0].serves);
    assert_eq!(facts.layers[0].failure.as_deref(), Some("no room"));
    let wait = facts.layers[0].retry_at.unwrap() - Timestamp::now();
    assert!((20..=30).contains(&wait.get_seconds()), "{wait:?}");
    assert_eq!(facts.layers[1].retry_at, None);
    // What is new came to the one that is well, as it came.
    let calls: Vec<_> = beneath
        .calls()
        .into_iter()
        .map(|(_, names)| names)
        .collect();
    let expected = [["+s1"], ["+s2"], ["+s3"]];
    assert_eq!(
        calls,
        expected.map(|names| names.map(str::to_owned).to_vec())
    );
    let text = running.serving.metrics.text().unwrap();
    for line in [
        "culvert_layer_in_force{layer=\"above\"} 0",
        "culvert_layer_in_force{layer=\"beneath\"} 1",
        "culvert_layer_sync_failures_total{layer=\"above\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Load balancers send their traffic elsewhere, but nobody restarts an agent whose other layer
    // would then get no changes.
    assert_eq!(well(&running), [false, true]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_never_had_anything_in_force_is_missed_where_the_other_cannot_do_all() {
    const LACKS: &[Capability] = &[Capability::Sctp];
    for (lacks, missed) in [(&[][..], false), (LACKS, true)] {
        let above = Fake::named("above");
        let beneath = Fake::named("beneath").lacking(lacks);
        above.answer(fails());
        let running = start(&above, &beneath).await;
        running.tell(&[1]).await;
        running.messages.send(Message::Synced).await.unwrap();
        let facts = running
            .until(|facts| facts.layers[0].failure.is_some())
            .await;
        assert!(!facts.in_force && facts.layers[1].in_force);
        assert_eq!(well(&running), [!missed, true]);
        running.stop().await;
    }
    // Where none has, nobody is well.
    let [above, beneath] = ["above", "beneath"].map(Fake::named);
    above.answer(fails());
    beneath.answer(fails());
    let running = start(&above, &beneath).await;
    running.messages.send(Message::Synced).await.unwrap();
    running
        .until(|facts| facts.layers[0].failure.is_some())
        .await;
    assert_eq!(well(&running), [false, false]);
    running.stop().await;
}
