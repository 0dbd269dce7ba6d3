//! Lists that come in pages, break off, do not come, or come as streams.

use std::{sync::atomic::Ordering, time::Duration};

use proxy_agent::cluster::kube::{self, ApiServerOptions, Reason, Timing};
use proxy_tests::api_server::{Disturbance, Fault, Kind, On, Verb};
use serde_json::json;

use super::follower::{Follower, NODE, change, mixed, patient, timing, undo};

#[tokio::test]
async fn what_the_server_holds_is_told() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
    let sight = server.sight();
    for kind in Kind::ALL {
        assert_eq!(sight.count(Verb::StreamingList, kind), 1, "{kind}");
        assert_eq!(sight.count(Verb::List, kind), 0, "{kind}");
    }
    assert_eq!(
        sight.bytes,
        follower
            .counters
            .bytes_read
            .load(std::sync::atomic::Ordering::Relaxed)
    );
}

#[tokio::test]
async fn servers_without_streaming_lists_are_listed() {
    for code in [400, 422] {
        let server = mixed();
        server.inject(Fault::Refused(code, None), On::streaming_list());
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        let sight = server.sight();
        for kind in Kind::ALL {
            assert_eq!(sight.count(Verb::List, kind), 1, "{kind}");
            assert_eq!(sight.count(Verb::Watch, kind), 1, "{kind}");
        }
    }
}

#[tokio::test]
async fn nothing_is_complete_before_every_kind_was_listed() {
    for kind in Kind::ALL {
        for streaming in [true, false] {
            let server = mixed();
            if !streaming {
                server.inject(Fault::Refused(422, None), On::streaming_list());
            }
            server.inject(Fault::Silent, On::any().kind(kind));
            let mut follower = Follower::start(vec![server.url()], patient()).await;
            for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
                server
                    .until("a watch of every other kind", |seen| {
                        (seen.open(other) > 0).then_some(())
                    })
                    .await
                    .unwrap();
            }
            // Whatever is told of the others is not all. A change of each shows that.
            if kind != Kind::Service {
                change(&server, Kind::Service, 50);
                follower
                    .until("a change", |follower| {
                        let mut services = follower.model.state().services.keys();
                        services.any(|key| &*key.service.name == "s50")
                    })
                    .await;
            }
            follower.catch_up();
            assert!(!follower.synced, "without {kind}");
            server.clear_faults();
            server.drop_connections().unwrap();
            follower.goes_on(&server).await;
        }
    }
}

#[tokio::test]
async fn pages_are_put_together() {
    let server = mixed();
    server.set_page(Some(3));
    server.inject(Fault::Refused(422, None), On::streaming_list());
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
    let sight = server.sight();
    let pages = |kind| sight.count(Verb::List, kind);
    assert!(pages(Kind::Service) >= 6 && pages(Kind::EndpointSlice) >= 6);
}

#[tokio::test]
async fn a_list_whose_next_page_has_expired_begins_again() {
    for kind in [Kind::Service, Kind::EndpointSlice] {
        let server = mixed();
        server.set_page(Some(4));
        server.inject(Fault::Refused(422, None), On::streaming_list());
        // The second page of the first attempt and the first one after it of the second.
        let expired = || Fault::Refused(410, None);
        server.inject(expired(), On::continued().kind(kind).times(2));
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(follower.failures(Reason::Expired), 2);
    }
}

#[tokio::test]
async fn what_is_deleted_between_two_attempts_at_a_list_is_gone() {
    let server = mixed();
    change(&server, Kind::Service, 1);
    server.set_page(Some(4));
    server.inject(Fault::Refused(422, None), On::streaming_list());
    server.inject(
        Fault::NeverAnswered,
        On::continued().kind(Kind::Service).times(1),
    );
    let mut follower = Follower::of(&server).await;
    server
        .until("a second page", |seen| {
            (seen.count(Verb::List, Kind::Service) > 1).then_some(())
        })
        .await
        .unwrap();
    server
        .delete(Kind::Service, "default", "kubernetes")
        .unwrap();
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn a_list_that_breaks_off_in_an_object_is_listed_again() {
    for kind in Kind::ALL {
        for streaming in [true, false] {
            let server = mixed();
            if !streaming {
                server.inject(Fault::Refused(422, None), On::streaming_list());
            }
            let on = if streaming {
                On::streaming_list()
            } else {
                On::list()
            };
            server.inject(Fault::CutMidObject, on.kind(kind).times(2));
            let mut follower = Follower::start(vec![server.url()], patient()).await;
            follower.goes_on(&server).await;
            assert_eq!(server.pending_faults(), 0);
            assert!(follower.failures(Reason::BrokeOff) >= 2, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_list_that_falls_silent_is_asked_for_again() {
    for kind in Kind::ALL {
        for streaming in [true, false] {
            let server = mixed();
            let on = if streaming {
                On::streaming_list()
            } else {
                server.inject(Fault::Refused(422, None), On::streaming_list());
                On::list()
            };
            server.inject(Fault::Silent, on.kind(kind).times(1));
            let mut follower = Follower::of(&server).await;
            follower.goes_on(&server).await;
            assert_eq!(server.pending_faults(), 0);
            assert!(follower.failures(Reason::Silent) >= 1, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_list_that_is_no_list_is_asked_for_again() {
    for garbage in [
        "<html>502 Bad Gateway</html>",
        "{]",
        "",
        "null",
        "{\"items\":[{}",
        "{}",
    ] {
        let server = mixed();
        server.inject(Fault::Refused(422, None), On::streaming_list());
        server.inject(
            Fault::Garbage(garbage.into()),
            On::list().kind(Kind::Service).times(2),
        );
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0, "{garbage}");
        let failures = follower.failures(Reason::Garbled) + follower.failures(Reason::BrokeOff);
        assert_eq!(failures, 2, "{garbage}");
    }
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    for streaming in [true, false] {
        let server = mixed();
        if !streaming {
            server.inject(Fault::Refused(422, None), On::streaming_list());
        }
        // 50 kB in small pieces take longer than any one of them may.
        let slow = Fault::Slow(256, Duration::from_millis(3));
        server.inject(slow, On::any().kind(Kind::EndpointSlice));
        let timing = Timing {
            answer: Duration::from_millis(400),
            silence: Duration::from_millis(400),
            ..timing()
        };
        let mut follower = Follower::start(vec![server.url()], timing).await;
        follower.agree(&server).await;
        assert_eq!(follower.failures(Reason::BrokeOff), 0);
    }
}

#[tokio::test]
async fn bytes_may_come_one_by_one() {
    let server = mixed();
    for kind in [Kind::Service, Kind::Node] {
        server.inject(Fault::Slow(1, Duration::ZERO), On::any().kind(kind));
    }
    server.inject(
        Fault::Refused(422, None),
        On::streaming_list().kind(Kind::Service),
    );
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn a_continue_token_that_fits_into_no_request_is_asked_for_again() {
    for length in [70_000, 1 << 20] {
        let server = mixed();
        server.inject(Fault::Refused(422, None), On::streaming_list());
        let token = "x".repeat(length);
        let page = json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": []});
        server.inject(
            Fault::Garbage(page.to_string().into()),
            On::list().kind(Kind::Service).times(2),
        );
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(follower.failures(Reason::Garbled), 2);
    }
}

#[tokio::test]
async fn of_too_many_objects_those_that_are_known_are_followed() {
    let left_out = |follower: &Follower| {
        let counters = follower.counters.kind(kube::ObjectKind::Service);
        counters.left_out.load(Ordering::Relaxed)
    };
    for streaming in [true, false] {
        let server = mixed();
        if !streaming {
            server.inject(Fault::Refused(422, None), On::streaming_list());
        }
        let mut options = ApiServerOptions::new(NODE);
        options.masters = vec![server.url()];
        options.timing = patient();
        // Of every kind, as many as there are, and a few.
        options.most = 200;
        let mut follower = Follower::with(options).await;
        follower.agree(&server).await;
        let before = follower.model.state().clone();
        for number in 1..=150 {
            change(&server, Kind::Service, number);
        }
        let full = |follower: &Follower| left_out(follower) > 0;
        follower.until("objects that are left out", full).await;
        let told = |follower: &Follower| {
            let mut all = follower.model.state().diagnostics.iter();
            all.any(|one| {
                &*one.object == "ServiceList" && one.message.contains("more than the limit")
            })
        };
        follower.until("a diagnostic that says so", told).await;
        for (key, service) in &before.services {
            assert_eq!(
                follower.model.state().services.get(key),
                Some(service),
                "{key}"
            );
        }
        // What is known is followed, and a list takes nothing of it away.
        change(&server, Kind::Service, 1);
        server.disturb(None, &Disturbance::Expire);
        follower.fails(Reason::Expired).await;
        for number in 1..=150 {
            undo(&server, Kind::Service, number);
        }
        follower.goes_on(&server).await;
        assert_eq!(left_out(&follower), 0);
        assert!(!told(&follower));
    }
}
