//! Clients on loopback, where everybody of the host comes in: who reports, and who takes up room.

use std::{fs, path::PathBuf};

use proxy_model::Capability;
use tokio::net::TcpStream;

use super::{
    brain::{Place, options, soon},
    states,
};
use crate::{
    Report, Target,
    client::{self, Client, ClientError},
    server::{Listener, Publisher, SOCKET_MODE, serve},
    wire,
};

/// A brain on a port of loopback.
struct Loopback {
    publisher: Publisher,
    target: Target,
}

impl Loopback {
    async fn start(token_file: Option<PathBuf>) -> Self {
        let target: Target = "tcp://127.0.0.1:0".parse().unwrap();
        let listener = Listener::open(target, SOCKET_MODE, None).await.unwrap();
        let listener = match token_file {
            Some(path) => listener.with_token(path).unwrap(),
            None => listener,
        };
        let target = listener.target();
        let publisher = Publisher::new(|_| {});
        publisher.publish(&states::numbered(2, 1), vec![]);
        tokio::spawn(serve(publisher.clone(), listener));
        Self { publisher, target }
    }

    fn options(&self, token_file: Option<PathBuf>) -> client::ClientOptions {
        client::ClientOptions {
            target: self.target.clone(),
            token_file,
            ..options(PathBuf::new(), "one")
        }
    }

    /// Hears the state, and reports it. Returns what came of the report.
    async fn report(&self, options: &client::ClientOptions) -> Result<(), ClientError> {
        let client = soon(Client::connect(options)).await?;
        let applied = soon(client.next(None)).await?.token;
        let report = Report {
            applied: Some(applied),
            ..Report::default()
        };
        soon(client.report(&report)).await
    }
}

#[tokio::test]
async fn everybody_hears_and_nobody_is_heard_without_a_token() {
    let brain = Loopback::start(None).await;
    let refused = brain.report(&brain.options(None)).await.unwrap_err();
    assert!(refused.is_refusal());
    assert!(
        refused.to_string().contains("--listen-token-file"),
        "{refused}"
    );
    assert_eq!(brain.publisher.clients(), [], "nothing is kept of it");
    // Nor is what it says when it comes in.
    let client = soon(Client::connect(&brain.options(None))).await.unwrap();
    let _stream = soon(client.watch(None)).await.unwrap();
    let all = brain.publisher.clients();
    assert_eq!((all.len(), all[0].streams), (1, 1));
    assert_eq!(
        (&*all[0].lacks, all[0].applied),
        (&[] as &[Capability], None)
    );
}

#[tokio::test]
async fn who_shows_the_token_is_heard_and_it_can_be_replaced() {
    let place = Place::new();
    let (ours, theirs) = (place.socket("ours"), place.socket("theirs"));
    fs::write(&ours, "one\n").unwrap();
    fs::write(&theirs, "one").unwrap();
    let brain = Loopback::start(Some(ours.clone())).await;
    let options = brain.options(Some(theirs.clone()));
    brain.report(&options).await.unwrap();
    assert_eq!(brain.publisher.clients()[0].applied, Some(1));

    let without = brain.report(&brain.options(None)).await.unwrap_err();
    assert!(without.to_string().contains("needs the token"), "{without}");
    fs::write(&ours, "two").unwrap();
    let wrong = brain.report(&options).await.unwrap_err();
    assert!(
        wrong.is_refusal() && !wrong.to_string().contains("two"),
        "{wrong}"
    );
    fs::write(&theirs, "two").unwrap();
    brain.report(&options).await.unwrap();
    fs::remove_file(&theirs).unwrap();
    let missing = brain.report(&options).await.unwrap_err().to_string();
    assert!(missing.contains("theirs"), "{missing}");

    let target = "tcp://127.0.0.1:0".parse().unwrap();
    let listener = Listener::open(target, SOCKET_MODE, None).await.unwrap();
    let error = listener.with_token(theirs).unwrap_err().to_string();
    assert!(error.contains("theirs: No such file"), "{error}");
}

#[tokio::test]
async fn who_says_nothing_shuts_nobody_out() {
    let brain = Loopback::start(None).await;
    let Target::Tcp(host) = brain.target.clone() else {
        panic!("{}", brain.target);
    };
    let mut silent = Vec::new();
    for _ in 0..1_100 {
        silent.push(TcpStream::connect((&*host.name, host.port)).await.unwrap());
    }
    let client = soon(Client::connect(&brain.options(None))).await.unwrap();
    soon(client.next(None)).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn what_no_service_is_called_is_in_no_report() {
    let place = Place::new();
    let brain = super::brain::Brain::start(place.socket("brain")).await;
    let client = brain.client("one").await;
    let long = || "x".repeat(254);
    for key in [
        wire::ServicePortKey {
            namespace: long(),
            ..wire::ServicePortKey::default()
        },
        wire::ServicePortKey {
            name: long(),
            ..wire::ServicePortKey::default()
        },
        wire::ServicePortKey {
            port: long(),
            ..wire::ServicePortKey::default()
        },
    ] {
        let key = wire::ServicePortKey {
            protocol: wire::Protocol::Tcp.into(),
            family: wire::IpFamily::Ipv4.into(),
            ..key
        };
        let request = wire::ReportRequest {
            client: Some(wire::Client {
                name: "one".to_owned(),
                lacks: vec![],
            }),
            failures: vec![wire::Failure {
                key: Some(key),
                reason: String::new(),
            }],
            ..wire::ReportRequest::default()
        };
        let refused = soon(client.api.clone().report(request)).await.unwrap_err();
        assert!(
            refused.message().contains("more than 253 bytes"),
            "{refused}"
        );
    }
    assert_eq!(brain.publisher.clients(), []);
}

#[tokio::test]
async fn a_report_says_what_the_backend_of_now_lacks() {
    let place = Place::new();
    let brain = super::brain::Brain::start(place.socket("brain")).await;
    let client = brain.client("one").await;
    let mut report = Report::default();
    soon(client.report(&report)).await.unwrap();
    assert_eq!(brain.publisher.clients()[0].lacks, [Capability::Sctp]);
    for lacks in [vec![Capability::Affinity], vec![]] {
        report.lacks = Some(lacks.clone());
        soon(client.report(&report)).await.unwrap();
        assert_eq!(brain.publisher.clients()[0].lacks, lacks);
    }
}
