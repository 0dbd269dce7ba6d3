//! Watches that end, break off, fall silent, say nonsense, or say things twice.

use std::time::Duration;

use proxy_agent::cluster::kube::Reason;
use proxy_tests::api_server::{Disturbance, Fault, Kind, On};
use serde_json::json;

use super::follower::{Follower, change, eventually, lists, mixed, patient, service, undo};

#[tokio::test]
async fn a_watch_that_ends_goes_on() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    for number in 1..=3 {
        for kind in Kind::ALL {
            server.disturb(Some(kind), &Disturbance::End);
            change(&server, kind, number);
            follower.agree(&server).await;
        }
    }
    follower.goes_on(&server).await;
    for kind in Kind::ALL {
        assert_eq!(lists(&server, kind), 1, "{kind}");
    }
}

#[tokio::test]
async fn a_watch_that_breaks_off_in_an_object_goes_on_before_it() {
    for kind in Kind::ALL {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        server.disturb(Some(kind), &Disturbance::CutNextEvent);
        change(&server, kind, 1);
        follower.goes_on(&server).await;
        assert_eq!(follower.failures(Reason::BrokeOff), 1, "{kind}");
        assert_eq!(lists(&server, kind), 1, "{kind}");
    }
}

#[tokio::test]
async fn a_watch_that_falls_silent_is_replaced() {
    for kind in Kind::ALL {
        let server = mixed();
        let mut follower = Follower::of(&server).await;
        follower.agree(&server).await;
        server.disturb(Some(kind), &Disturbance::FallSilent);
        change(&server, kind, 1);
        follower.goes_on(&server).await;
        assert!(follower.failures(Reason::Silent) >= 1, "{kind}");
    }
}

#[tokio::test]
async fn a_watch_that_is_told_to_be_too_old_leads_to_a_new_list() {
    for kind in Kind::ALL {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        server.disturb(Some(kind), &Disturbance::Expire);
        follower.fails(Reason::Expired).await;
        follower.goes_on(&server).await;
        assert_eq!(lists(&server, kind), 2, "{kind}");
    }
}

#[tokio::test]
async fn what_was_deleted_before_history_begins_is_gone() {
    let server = mixed();
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::ServiceCidr] {
        change(&server, kind, 1);
    }
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    server.stop().unwrap();
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::ServiceCidr] {
        undo(&server, kind, 1);
    }
    server.forget_history();
    server.accept().unwrap();
    follower.goes_on(&server).await;
    assert!(follower.failures(Reason::Expired) >= 3);
}

#[tokio::test]
async fn a_bookmark_saves_a_list() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    server.skip_versions(1000);
    server.bookmark();
    let bookmarked = || {
        let counters = &follower.counters.kinds;
        let count = |one: &proxy_agent::cluster::kube::KindCounters| {
            one.bookmarks.load(std::sync::atomic::Ordering::Relaxed)
        };
        // One ends the list.
        counters.iter().all(|one| count(one) >= 2)
    };
    eventually("bookmarks of every kind", bookmarked).await;
    server.forget_history();
    server.drop_connections().unwrap();
    follower.goes_on(&server).await;
    for kind in Kind::ALL {
        assert_eq!(lists(&server, kind), 1, "{kind}");
    }
}

#[tokio::test]
async fn a_bookmark_that_has_expired_leads_to_a_new_list() {
    let server = mixed();
    change(&server, Kind::Service, 1);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    server.skip_versions(1000);
    server.bookmark();
    server.stop().unwrap();
    undo(&server, Kind::Service, 1);
    server.skip_versions(1000);
    server.forget_history();
    server.accept().unwrap();
    follower.goes_on(&server).await;
    for kind in Kind::ALL {
        assert_eq!(lists(&server, kind), 2, "{kind}");
    }
}

#[tokio::test]
async fn events_that_are_told_twice_do_no_harm() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    for kind in Kind::ALL {
        for number in 1..=3 {
            change(&server, kind, number);
        }
        undo(&server, kind, 2);
        server.disturb(Some(kind), &Disturbance::Repeat(4));
        follower.agree(&server).await;
        server.disturb(Some(kind), &Disturbance::Repeat(1));
    }
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn deletions_of_what_was_never_told_do_no_harm() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    let mut object = service(77);
    object["metadata"]["resourceVersion"] = json!(server.version().to_string());
    let line = format!("{}\n", json!({"type": "DELETED", "object": object}));
    server.disturb(Some(Kind::Service), &Disturbance::Send(line.into()));
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn nonsense_in_a_watch_leads_to_a_new_start() {
    for nonsense in [
        "garbage\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":7,\"object\":{}}\n",
        "[]\n",
        "\u{0}\u{1}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\"\n",
    ] {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        server.disturb(Some(Kind::Service), &Disturbance::Send(nonsense.into()));
        follower.fails(Reason::Garbled).await;
        follower.goes_on(&server).await;
    }
}

#[tokio::test]
async fn nonsense_at_the_beginning_of_every_watch_is_outlived() {
    let server = mixed();
    let garbage = || Fault::Garbage("garbage\n".into());
    server.inject(garbage(), On::streaming_list().times(8));
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
    assert_eq!(server.pending_faults(), 0);
    assert!(follower.failures(Reason::Garbled) >= 8);
}

#[tokio::test]
async fn events_of_later_apis_and_empty_lines_are_passed_over() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    let line = "\n{\"type\":\"REPLACED\",\"object\":{\"metadata\":{\"name\":\"x\"}}}\n\n";
    server.disturb(None, &Disturbance::Send(line.into()));
    follower.goes_on(&server).await;
    for kind in Kind::ALL {
        assert_eq!(lists(&server, kind), 1, "{kind}");
    }
}

#[tokio::test]
async fn a_watch_that_says_nothing_but_empty_lines_is_replaced() {
    for (drip, pause) in [("\n", 20), (" \r\n\n", 0), ("{", 20)] {
        let server = mixed();
        let mut follower = Follower::of(&server).await;
        follower.agree(&server).await;
        let drip = Disturbance::Drip(drip.into(), Duration::from_millis(pause));
        server.disturb(Some(Kind::Service), &drip);
        change(&server, Kind::Service, 1);
        follower.goes_on(&server).await;
        assert!(follower.failures(Reason::Silent) >= 1);
    }
}

#[tokio::test]
async fn a_version_that_fits_into_no_request_leads_to_a_new_list() {
    for length in [70_000, 1 << 20] {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        let version = "7".repeat(length);
        let bookmark = json!({
            "type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}},
        });
        let line = format!("{bookmark}\n");
        server.disturb(Some(Kind::Service), &Disturbance::Send(line.into()));
        server.disturb(Some(Kind::Service), &Disturbance::End);
        follower.fails(Reason::Garbled).await;
        follower.goes_on(&server).await;
        assert_eq!(lists(&server, Kind::Service), 2);
    }
}
