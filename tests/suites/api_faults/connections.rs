//! Servers that cannot be reached, hang up, hang, or restart.

use std::{fs, sync::Arc};

use proxy_agent::cluster::kube::{ApiServerOptions, Reason};
use proxy_tests::api_server::{
    ApiServer, Authority, Credentials, Fault, Kind, On, Options as ServerOptions, Verb, Versions,
};

use super::follower::{Follower, NODE, change, fill, mixed, patient, timing, undo};

#[tokio::test]
async fn a_server_that_refuses_connections_is_tried_until_it_is_there() {
    let server = mixed();
    server.refuse().unwrap();
    let mut follower = Follower::of(&server).await;
    follower.fails(Reason::Unreachable).await;
    server.accept().unwrap();
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn a_server_that_accepts_and_never_reads_is_left() {
    let server = mixed();
    server.stall().unwrap();
    let mut follower = Follower::of(&server).await;
    follower.fails(Reason::Unreachable).await;
    server.accept().unwrap();
    follower.goes_on(&server).await;
}

#[tokio::test]
async fn nothing_is_lost_when_all_connections_drop() {
    let server = mixed();
    let mut follower = Follower::start(vec![server.url()], patient()).await;
    follower.agree(&server).await;
    for number in 1..=5 {
        server.drop_connections().unwrap();
        for kind in Kind::ALL {
            change(&server, kind, number);
        }
        follower.agree(&server).await;
    }
    follower.goes_on(&server).await;
    let sight = server.sight();
    for kind in Kind::ALL {
        let lists = sight.count(Verb::StreamingList, kind) + sight.count(Verb::List, kind);
        assert_eq!(lists, 1, "{kind}: watches resume, nothing is listed again");
    }
}

#[tokio::test]
async fn what_happens_while_the_server_is_away_is_caught_up() {
    for versions in [Versions::GoOn, Versions::Forget, Versions::StartOver] {
        let server = mixed();
        change(&server, Kind::Service, 1);
        let mut follower = Follower::of(&server).await;
        follower.agree(&server).await;
        server.stop().unwrap();
        follower.fails(Reason::Unreachable).await;
        for kind in Kind::ALL {
            change(&server, kind, 7);
        }
        undo(&server, Kind::Service, 1);
        server.delete(Kind::EndpointSlice, "shop", "web-a").unwrap();
        server.restart(versions).unwrap();
        follower.goes_on(&server).await;
    }
}

#[tokio::test]
async fn a_request_that_is_never_answered_is_asked_again() {
    for kind in Kind::ALL {
        let server = mixed();
        server.inject(Fault::NeverAnswered, On::any().kind(kind).times(2));
        let mut follower = Follower::of(&server).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert!(follower.failures(Reason::Unreachable) >= 2, "{kind}");
    }
}

#[tokio::test]
async fn a_request_that_is_hung_up_on_is_asked_again() {
    for kind in Kind::ALL {
        let server = mixed();
        server.inject(Fault::Disconnected, On::any().kind(kind).times(3));
        let mut follower = Follower::start(vec![server.url()], patient()).await;
        follower.goes_on(&server).await;
        assert_eq!(server.pending_faults(), 0);
        assert!(follower.failures(Reason::Unreachable) >= 3, "{kind}");
    }
}

#[tokio::test]
async fn another_server_takes_over_and_nothing_is_lost() {
    let first = mixed();
    let second = first.beside(ServerOptions::default()).unwrap();
    let mut follower = Follower::start(vec![first.url(), second.url()], timing()).await;
    follower.agree(&first).await;
    assert_eq!(
        second.sight().requests.len(),
        0,
        "the first one is preferred"
    );
    for (away, there) in [(&first, &second), (&second, &first), (&first, &second)] {
        away.stop().unwrap();
        follower.goes_on(there).await;
        away.accept().unwrap();
    }
    assert!(
        follower
            .counters
            .failovers
            .load(std::sync::atomic::Ordering::Relaxed)
            >= 3
    );
}

#[tokio::test]
async fn another_server_takes_over_from_one_that_hangs() {
    let first = mixed();
    let second = first.beside(ServerOptions::default()).unwrap();
    first.stall().unwrap();
    let mut follower = Follower::start(vec![first.url(), second.url()], timing()).await;
    follower.goes_on(&second).await;
}

#[tokio::test]
async fn a_server_that_only_fails_is_left_for_another() {
    let first = mixed();
    let second = first.beside(ServerOptions::default()).unwrap();
    first.inject(Fault::Refused(500, None), On::any());
    let mut follower = Follower::start(vec![first.url(), second.url()], timing()).await;
    follower.goes_on(&second).await;
}

#[tokio::test]
async fn a_kubeconfig_brings_certificates_and_a_token_that_may_change() {
    let authority = Arc::new(Authority::new().unwrap());
    let server = ApiServer::start(ServerOptions {
        authority: Some(Arc::clone(&authority)),
        ..ServerOptions::default()
    })
    .unwrap();
    fill(&server);
    let directory = tempfile::tempdir().unwrap();
    let options = |credentials: &Credentials| {
        let mut options = ApiServerOptions::new(NODE);
        options.kubeconfig = Some(server.kubeconfig(directory.path(), credentials).unwrap());
        options.timing = timing();
        options
    };
    server.set_tokens(Some(&["first"]));
    let certificate = authority.client("system:kube-proxy").unwrap();
    let credentials = Credentials {
        certificate: Some(certificate),
        ..Credentials::default()
    };
    let mut follower = Follower::with(options(&credentials)).await;
    follower.goes_on(&server).await;
    let seen = server.sight().requests.pop().unwrap();
    assert_eq!(seen.certificate.as_deref(), Some("system:kube-proxy"));

    let token = directory.path().join("token");
    fs::write(&token, "first\n").unwrap();
    let credentials = Credentials {
        token_file: Some(token.clone()),
        ..Credentials::default()
    };
    let mut follower = Follower::with(options(&credentials)).await;
    follower.goes_on(&server).await;
    server.set_tokens(Some(&["second"]));
    server.drop_connections().unwrap();
    follower.fails(Reason::Unauthorized).await;
    fs::write(&token, "second\n").unwrap();
    follower.goes_on(&server).await;
    let last = server.sight().requests.pop().unwrap();
    assert_eq!(last.token.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_server_with_a_certificate_of_somebody_else_is_not_believed() {
    let with = |authority| ServerOptions {
        authority: Some(Arc::new(authority)),
        ..ServerOptions::default()
    };
    let server = ApiServer::start(with(Authority::new().unwrap())).unwrap();
    let other = ApiServer::start(with(Authority::new().unwrap())).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut options = ApiServerOptions::new(NODE);
    let kubeconfig = other.kubeconfig(directory.path(), &Credentials::default());
    options.kubeconfig = Some(kubeconfig.unwrap());
    options.masters = vec![server.url()];
    options.timing = timing();
    let follower = Follower::with(options).await;
    follower.fails(Reason::Unreachable).await;
    assert_eq!(server.sight().requests.len(), 0);
}
