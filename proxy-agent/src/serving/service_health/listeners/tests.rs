//! Real listeners on loopback, on ports that the kernel chose.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU16,
    time::Duration,
};

use axum::routing::any;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::*;
use proxy_model::{HealthCheck, ServiceName};

/// Long enough for a busy machine: no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Not the one that others connect from: their ports are none of ours.
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 7, 7, 7));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Pages that say whose they are.
fn listeners() -> Listeners<impl Fn(&HealthCheckKey, u16) -> Router> {
    let pages = |key: &HealthCheckKey, port| {
        let text = format!("{} on {port}", key.service);
        Router::new().route("/", any(async || text))
    };
    Listeners::new(pages, Limits::of_many_ports(), Recorder::default())
}

fn checks(services: &[(&str, u16)], addresses: &[IpAddr]) -> HealthChecks {
    let check = |(name, port): &(&str, u16)| {
        let check = HealthCheck {
            port: NonZeroU16::new(*port).unwrap(),
            local_endpoints: 1,
        };
        let service = ServiceName::new("shop", *name);
        [IpFamily::V4, IpFamily::V6].map(|family| {
            let service = service.clone();
            (HealthCheckKey { service, family }, check)
        })
    };
    HealthChecks {
        checks: services.iter().flat_map(check).collect(),
        addresses: addresses.into(),
        external_traffic: true,
    }
}

/// A port that is free in both families, and held as long as the value lives.
async fn held() -> (u16, Vec<TcpListener>) {
    loop {
        let v4 = TcpListener::bind((V4, 0)).await.unwrap();
        let port = v4.local_addr().unwrap().port();
        if let Ok(v6) = TcpListener::bind((V6, port)).await {
            return (port, vec![v4, v6]);
        }
    }
}

async fn free() -> u16 {
    held().await.0
}

/// What is answered there; `None` if nobody listens.
async fn ask(address: IpAddr, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((address, port)).await.ok()?;
    let request = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut text));
    read.await.expect("an answer").unwrap();
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

#[tokio::test]
async fn each_service_listens_on_each_address() {
    let (web, api) = (free().await, free().await);
    let mut listeners = listeners();
    let both = checks(&[("web", web), ("api", api)], &[V4, V6]);
    listeners.reconcile(&both).await;
    assert_eq!(listeners.count(), (4, 0));
    for address in [V4, V6] {
        assert_eq!(
            ask(address, web).await.unwrap(),
            format!("shop/web on {web}")
        );
        assert_eq!(
            ask(address, api).await.unwrap(),
            format!("shop/api on {api}")
        );
    }

    listeners.reconcile(&checks(&[("web", web)], &[V6])).await;
    assert_eq!(listeners.count(), (1, 0));
    assert_eq!(ask(V4, web).await, None);
    assert_eq!(ask(V6, api).await, None);
    assert!(ask(V6, web).await.is_some());
}

#[tokio::test]
async fn both_wildcards_share_a_port() {
    let port = free().await;
    let mut listeners = listeners();
    let everywhere = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    listeners
        .reconcile(&checks(&[("web", port)], &everywhere))
        .await;
    assert_eq!(listeners.count(), (2, 0));
    assert!(ask(V4, port).await.is_some());
    assert!(ask(V6, port).await.is_some());
}

#[tokio::test]
async fn another_count_keeps_the_listener_and_its_connections() {
    let port = free().await;
    let mut listeners = listeners();
    let mut now = checks(&[("web", port)], &[V4]);
    listeners.reconcile(&now).await;
    let id = |listeners: &Listeners<_>| match listeners.places.values().next() {
        Some(Standing::Listening(task)) => task.id(),
        other => panic!("{other:?}"),
    };
    let before = id(&listeners);
    let web = now.checks.keys().next().unwrap().clone();
    now.checks[&web].local_endpoints = 0;
    listeners.reconcile(&now).await;
    assert_eq!(id(&listeners), before);
}

#[tokio::test]
async fn a_listener_that_died_is_opened_again() {
    let port = free().await;
    let mut listeners = listeners();
    let now = checks(&[("web", port)], &[V4]);
    listeners.reconcile(&now).await;
    for standing in listeners.places.values_mut() {
        if let Standing::Listening(task) = standing {
            task.abort();
            assert!(task.await.is_err());
        }
    }
    assert_eq!(ask(V4, port).await, None);
    listeners.reconcile(&now).await;
    assert!(ask(V4, port).await.is_some());
}

#[tokio::test]
async fn a_port_moves_to_another_service_at_once() {
    let port = free().await;
    let mut listeners = listeners();
    // In either order of names.
    for name in ["b", "a", "c"] {
        listeners.reconcile(&checks(&[(name, port)], &[V4])).await;
        assert_eq!(listeners.count(), (1, 0));
        let whose = format!("shop/{name} on {port}");
        assert_eq!(ask(V4, port).await.unwrap(), whose);
    }
}

#[tokio::test]
async fn a_port_that_is_taken_stops_no_other_and_is_tried_again() {
    let ((taken, holders), port) = (held().await, free().await);
    let mut listeners = listeners();
    let now = checks(&[("api", taken), ("web", port)], &[V4, V6]);
    listeners.reconcile(&now).await;
    assert_eq!(listeners.count(), (2, 2));
    assert!(ask(V4, port).await.is_some());
    drop(holders);
    listeners.reconcile(&now).await;
    assert_eq!(listeners.count(), (4, 0));
    assert!(ask(V4, taken).await.is_some());
}

#[tokio::test]
async fn every_port_answers_however_many_there_are_and_whoever_sits_on_them() {
    // Held to the last, so that no two are the same.
    let mut holders = Vec::new();
    for _ in 0..140 {
        holders.push(TcpListener::bind((V4, 0)).await.unwrap());
    }
    let port = |holder: &TcpListener| holder.local_addr().unwrap().port();
    let ports: Vec<u16> = holders.iter().map(port).collect();
    drop(holders);
    let names: Vec<String> = ports.iter().map(|port| format!("web-{port}")).collect();
    let services: Vec<(&str, u16)> = names.iter().map(String::as_str).zip(ports).collect();
    let mut listeners = listeners();
    listeners.reconcile(&checks(&services, &[V4])).await;
    assert_eq!(listeners.count(), (140, 0));
    let answers = async |services: &[(&str, u16)]| {
        for (name, port) in services {
            let whose = format!("shop/{name} on {port}");
            assert_eq!(ask(V4, *port).await.unwrap(), whose);
        }
    };
    answers(&services).await;

    // More silent clients than the first port lets in, and than all of them together do.
    let mut silent = Vec::new();
    for (_, port) in services[..20].iter().cycle().take(20 * 20) {
        silent.push(TcpStream::connect((V4, *port)).await.unwrap());
    }
    answers(&services).await;
}
