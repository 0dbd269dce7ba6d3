//! Servers that say no.

use std::time::Duration;

use proxy_agent::cluster::kube::{Reason, Timing};
use proxy_tests::api_server::{Disturbance, Fault, Kind, On, Verb};

use super::follower::{Follower, change, expected, lists, mixed, patient};

#[tokio::test]
async fn failures_of_the_server_pass() {
    for code in [500, 502, 503, 504] {
        let server = mixed();
        for kind in Kind::ALL {
            server.inject(Fault::Refused(code, None), On::any().kind(kind).times(2));
        }
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(follower.failures(Reason::Server), 8, "{code}");
    }
}

#[tokio::test]
async fn failures_of_the_server_pass_for_watches_too() {
    for code in [429, 500, 503] {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        server.inject(Fault::Refused(code, None), On::watch().times(8));
        server.drop_connections().unwrap();
        change(&server, Kind::Service, 1);
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_patience_gets_it() {
    let server = mixed();
    let on = On::any().kind(Kind::Service).times(1);
    server.inject(Fault::Refused(429, Some(1)), on);
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.goes_on(&server).await;
    assert_eq!(follower.failures(Reason::Throttled), 1);
    let requests = server.sight().requests;
    let services = requests
        .iter()
        .filter(|one| one.asks.is_some_and(|(_, kind)| kind == Kind::Service));
    let at: Vec<_> = services.map(|one| one.at).take(2).collect();
    assert!(
        at[1] - at[0] >= Duration::from_millis(950),
        "{:?}",
        at[1] - at[0]
    );
}

#[tokio::test]
async fn what_is_forbidden_is_waited_for() {
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Node] {
        let server = mixed();
        server.inject(Fault::Refused(403, None), On::any().kind(kind));
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        server
            .until("several attempts", |seen| {
                let tried = seen.count(Verb::StreamingList, kind) + seen.count(Verb::List, kind);
                (tried > 2).then_some(())
            })
            .await
            .unwrap();
        follower.catch_up();
        assert!(!follower.synced, "without {kind}");
        server.clear_faults();
        follower.goes_on(&server).await;
        assert!(follower.failures(Reason::Forbidden) >= 2);
    }
}

#[tokio::test]
async fn without_a_token_nothing_is_told_and_with_one_everything() {
    let server = mixed();
    server.set_tokens(Some(&["right"]));
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.fails(Reason::Unauthorized).await;
    follower.catch_up();
    assert!(!follower.synced && follower.model.state().services.is_empty());
    server.set_tokens(None);
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn a_cluster_without_service_cidrs_is_served_and_gets_them_later() {
    for code in [403, 404] {
        let server = mixed();
        if code == 404 {
            // As the router of an old server says it, not as the API.
            server.set_served(Kind::ServiceCidr, false);
        } else {
            let forbidden = Fault::Refused(code, None);
            server.inject(forbidden, On::any().kind(Kind::ServiceCidr));
        }
        let timing = Timing {
            absent: Duration::from_millis(200),
            ..patient()
        };
        let mut follower = Follower::start(vec![server.url()], timing).await;
        let mut without = server.objects();
        without.retain(|object| object["kind"] != "ServiceCIDR");
        follower.agree_with(&expected(&without)).await;
        server.set_served(Kind::ServiceCidr, true);
        server.clear_faults();
        follower.goes_on(&server).await;
    }
}

#[tokio::test]
async fn a_watch_that_is_refused_as_too_old_leads_to_a_new_list() {
    for kind in Kind::ALL {
        let server = mixed();
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.agree(&server).await;
        server.inject(Fault::Refused(410, None), On::watch().kind(kind).times(1));
        server.disturb(Some(kind), &Disturbance::End);
        follower.fails(Reason::Expired).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(lists(&server, kind), 2, "{kind}");
    }
}
