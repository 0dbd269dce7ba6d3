//! The decision at every point that matters, and the body against kube-proxy's own.

use super::*;

const PERIOD: Duration = Duration::from_secs(30);

/// A clock that goes as told.
struct Clock(Moment);

impl Clock {
    fn new() -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_227_364_483_363_654);
        Self(Moment {
            instant: Instant::now(),
            wall,
        })
    }

    fn after(&self, seconds: u64) -> Moment {
        let passed = Duration::from_secs(seconds);
        Moment {
            instant: self.0.instant + passed,
            wall: self.0.wall + passed,
        }
    }
}

fn healthy(health: &Health, now: Moment) -> bool {
    let live = health.answer(Probe::Livez, now, Duration::ZERO).healthy;
    assert_eq!(
        health.answer(Probe::Healthz, now, Duration::ZERO).healthy,
        live
    );
    live
}

#[test]
fn nothing_queued_is_healthy_for_ever() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    assert!(healthy(&health, clock.after(1_000_000)));
    health.queued(clock.after(0));
    health.synced(clock.after(1));
    assert!(healthy(&health, clock.after(1_000_000)));
}

#[test]
fn what_waits_for_two_sync_periods_is_unhealthy_from_that_moment() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    health.queued(clock.after(0));
    health.synced(clock.after(1));
    health.queued(clock.after(100));
    // The oldest counts, not the newest.
    health.queued(clock.after(150));
    assert!(healthy(&health, clock.after(159)));
    assert!(!healthy(&health, clock.after(160)));
    let answer = health.answer(Probe::Livez, clock.after(170), Duration::ZERO);
    assert_eq!(answer.last_updated, timestamp(clock.after(1).wall));
    health.synced(clock.after(171));
    assert!(healthy(&health, clock.after(171)));
}

#[test]
fn what_changed_nothing_waits_no_more() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    health.queued(clock.after(0));
    health.in_force(InForce::EVERYWHERE);
    assert!(healthy(&health, clock.after(1_000)));
    let answer = health.answer(Probe::Livez, clock.after(1_000), Duration::ZERO);
    assert_eq!(answer.status, Families(None), "nothing was synced either");
}

#[test]
fn each_question_is_about_the_layers_that_it_concerns() {
    const NOWHERE: InForce = InForce {
        all: false,
        any: false,
        outside: false,
    };
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    // Load balancers are kept away, the agent is restarted, Services are reported as ill.
    let verdicts = |in_force: InForce, seconds| {
        let now = clock.after(seconds);
        health.queued(now);
        health.in_force(in_force);
        let now = clock.after(seconds + 60);
        let answer = |probe| health.answer(probe, now, Duration::ZERO).healthy;
        [
            !answer(Probe::Healthz),
            !answer(Probe::Livez),
            !health.outside(now),
        ]
    };
    let above = InForce {
        any: true,
        ..NOWHERE
    };
    let outside = InForce {
        outside: true,
        ..above
    };
    assert_eq!(verdicts(outside, 0), [true, false, false]);
    assert_eq!(verdicts(above, 100), [true, false, true]);
    assert_eq!(verdicts(NOWHERE, 200), [true, true, true]);
    assert_eq!(verdicts(InForce::EVERYWHERE, 300), [false, false, false]);
    // Whichever layer it is that keeps up with the changes.
    assert_eq!(verdicts(NOWHERE, 400), [true, true, true]);
    assert_eq!(verdicts(above, 500), [true, false, true]);
}

#[test]
fn the_first_sync_is_judged_from_when_it_was_wanted() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    health.queued(clock.after(500));
    let starting = health.answer(Probe::Livez, clock.after(559), Duration::ZERO);
    assert!(starting.healthy);
    assert_eq!(
        serde_json::to_value(&starting).unwrap()["status"],
        serde_json::json!({})
    );
    let late = serde_json::to_value(health.answer(Probe::Livez, clock.after(560), Duration::ZERO))
        .unwrap();
    assert_eq!(late["healthy"], false);
    assert_eq!(late["lastUpdated"], "0001-01-01T00:00:00Z");
    assert_eq!(late["status"]["IPv6"]["healthy"], false);
}

#[test]
fn a_node_that_goes_away_is_unhealthy_but_alive() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    health.synced(clock.after(0));
    health.node(false);
    let ready = health.answer(Probe::Healthz, clock.after(1), Duration::ZERO);
    assert_eq!((ready.healthy, ready.node_eligible), (false, Some(false)));
    assert_eq!(ready.last_updated, timestamp(clock.after(0).wall));
    let live = health.answer(Probe::Livez, clock.after(1), Duration::ZERO);
    assert_eq!((live.healthy, live.node_eligible), (true, None));
    health.node(true);
    assert!(healthy(&health, clock.after(2)));
}

#[test]
fn a_clock_that_is_set_back_or_forward_changes_no_verdict() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    health.queued(clock.after(0));
    for wall in [SystemTime::UNIX_EPOCH, clock.after(1_000_000).wall] {
        let now = Moment {
            wall,
            ..clock.after(59)
        };
        assert!(healthy(&health, now));
    }
}

/// The parts of an answer: status line and headers, body.
fn recorded() -> Vec<(String, String)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-healthz.txt"
    );
    let text = std::fs::read_to_string(path).unwrap().replace("\r\n", "\n");
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers
        .map(|answer| {
            let (head, body) = answer.split_once("\n\n").unwrap();
            (head.to_owned(), body.to_owned())
        })
        .collect()
}

#[test]
fn the_bodies_are_kube_proxys_to_the_byte() {
    let at = |text: &str| SystemTime::from(text.parse::<Timestamp>().unwrap());
    let health = Health::new(PERIOD);
    let moment = |wall| Moment {
        instant: Instant::now(),
        wall,
    };
    // Its families are programmed one after the other, ours together: their time apart.
    let (ipv4, ipv6) = ("16:04.483363654Z", "16:04.552210735Z");
    health.synced(moment(at("2026-11-21T02:16:04.483363654Z")));
    for ((head, body), probe) in recorded().into_iter().zip([Probe::Healthz, Probe::Livez]) {
        assert!(head.starts_with("200 OK"), "{head}");
        let real: serde_json::Value = serde_json::from_str(&body).unwrap();
        let now = moment(at(real["currentTime"].as_str().unwrap()));
        let ours = serde_json::to_string(&health.answer(probe, now, Duration::ZERO)).unwrap();
        // It reads the clock once more for this one.
        let (last, current) = (
            real["lastUpdated"].to_string(),
            real["currentTime"].to_string(),
        );
        assert_eq!(ours, body.replacen(&last, &current, 1).replace(ipv6, ipv4));
    }
}

#[test]
fn a_backend_elsewhere_that_is_late_keeps_load_balancers_away_but_restarts_nothing() {
    let (clock, health) = (Clock::new(), Health::new(PERIOD));
    let healthy = |probe, behind| {
        let behind = Duration::from_secs(behind);
        health.answer(probe, clock.after(1_000), behind).healthy
    };
    assert!(healthy(Probe::Healthz, 59));
    assert!(!healthy(Probe::Healthz, 60));
    assert!(healthy(Probe::Livez, 60));
    health.queued(clock.after(0));
    assert!(!healthy(Probe::Healthz, 0));
}
