//! An API server that is away, or tells only half of what there is: what is served stays served.

use std::time::Duration;

use proxy_tests::{
    Prober,
    api_server::{Fault, Kind, On, Sight, Verb, Versions},
    pod::{Load, Transport},
    requires::{self, PRIVILEGED},
    shop::{frontend, service},
};

use super::{Cluster, until_http};

fn start_load(prober: &mut Prober) {
    prober
        .load_start(Load {
            name: "load".to_owned(),
            transport: Transport::Http,
            to: frontend(1, 80),
            threads: 1,
            pause: Duration::from_micros(500),
            keep: false,
        })
        .unwrap();
}

/// The load has gone on, and not one request has failed.
fn assert_goes_on(prober: &mut Prober, when: &str) {
    let report = prober.load_wait("load", 25).unwrap();
    assert!(
        report.failures.is_empty() && report.answered > 0,
        "{when}: {report:?}"
    );
}

#[test]
fn no_request_fails_while_the_api_server_restarts() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let (mut agent, mut prober) = cluster.launch();
    start_load(&mut prober);
    for (versions, endpoint) in [
        (Versions::GoOn, 2),
        (Versions::Forget, 3),
        (Versions::GoOn, 4),
    ] {
        assert_goes_on(&mut prober, "before the restart");
        cluster.server.stop().unwrap();
        // Both at once: a change to an endpoint that is not there would be a failure of ours.
        cluster.server.apply_yaml(&service(1, &[endpoint])).unwrap();
        assert_goes_on(&mut prober, "without an API server");
        cluster.server.restart(versions).unwrap();
        let mut other = cluster.prober();
        until_http(&mut agent, &mut other, &[endpoint]);
    }
    let report = prober.load_stop("load").unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
}

#[test]
fn an_agent_that_starts_without_an_api_server_leaves_what_is_served() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let (mut agent, mut prober) = cluster.launch();
    start_load(&mut prober);
    cluster.server.stop().unwrap();
    agent.wait_for("API server lost").unwrap();
    assert_goes_on(&mut prober, "without an API server");
    agent.kill().unwrap();
    assert_goes_on(&mut prober, "without an agent");
    agent.spawn().unwrap();
    agent.wait_for("API server not reached").unwrap();
    assert_goes_on(&mut prober, "with an agent that knows nothing");
    cluster.server.apply_yaml(&service(1, &[1, 2])).unwrap();
    cluster.server.accept().unwrap();
    let serving = agent.wait_for("serving").unwrap();
    assert_eq!(serving.flag("adopted"), Some(true));
    let mut other = cluster.prober();
    until_http(&mut agent, &mut other, &[1, 2]);
    let report = prober.load_stop("load").unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
}

#[test]
fn an_agent_that_gets_only_half_of_the_lists_leaves_what_is_served() {
    if !requires::met("api_server", PRIVILEGED) {
        return;
    }
    let cluster = Cluster::serving(&[1]);
    let (mut agent, mut prober) = cluster.launch();
    start_load(&mut prober);
    agent.terminate().unwrap();
    cluster
        .server
        .inject(Fault::Silent, On::any().kind(Kind::EndpointSlice));
    agent.spawn().unwrap();
    let watched = |seen: &Sight| {
        let asked = seen.count(Verb::StreamingList, Kind::EndpointSlice);
        (asked > 1 && seen.open(Kind::Service) > 0).then_some(())
    };
    cluster.server.wait("a watch", watched).unwrap();
    assert_goes_on(&mut prober, "with an agent that knows no endpoints");
    let report = prober.load_stop("load").unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
}
