//! Real connections on loopback, with limits short enough to be met.

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const REQUEST: &[u8] = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n";

/// Long enough for a busy machine: no test waits this long unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn server(address: SocketAddr, limits: Limits) -> Server {
    Server {
        event: "Failed",
        events: Recorder::default(),
        what: "a page",
        flag: "--page-bind-address",
        address,
        pages: Router::new().route("/page", get(async || "here it is")),
        limits,
    }
}

/// A server on a port of its own.
async fn serve(limits: Limits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server(address, limits).accept(listener));
    address
}

/// All that comes until the server ends the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text))
        .await
        .expect("the server ends the connection")
        .unwrap_or_default();
    text
}

/// One answer, of which the end is known.
async fn answer(stream: &mut TcpStream) -> String {
    stream.write_all(REQUEST).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"here it is") {
        let byte = timeout(PATIENCE, stream.read_u8())
            .await
            .expect("an answer");
        text.push(byte.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn several_requests_share_a_connection() {
    let address = serve(Limits::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn a_client_that_does_not_go_on_is_cut_off() {
    let limits = Limits {
        head: Duration::from_millis(50),
        ..Limits::default()
    };
    let address = serve(limits).await;
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(&REQUEST[..10]).await.unwrap();
    rest(&mut half).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    rest(&mut silent).await;
}

#[tokio::test]
async fn a_connection_ends_after_its_time_though_requests_go_on() {
    let limits = Limits {
        head: Duration::from_hours(1),
        connection: Duration::from_millis(100),
        ..Limits::default()
    };
    let address = serve(limits).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert!(answer(&mut stream).await.ends_with("here it is"));
    rest(&mut stream).await;
}

#[tokio::test]
async fn for_one_too_many_the_one_that_is_idle_for_longest_has_to_go() {
    let limits = Limits {
        connections: 2,
        head: Duration::from_hours(1),
        connection: Duration::from_hours(1),
        ..Limits::default()
    };
    let address = serve(limits).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    answer(&mut second).await;
    let mut third = TcpStream::connect(address).await.unwrap();
    assert!(answer(&mut third).await.ends_with("here it is"));
    assert_eq!(rest(&mut silent).await, "");
    // Nobody else had to.
    answer(&mut second).await;
    answer(&mut third).await;
}

#[tokio::test]
async fn an_address_in_use_is_fatal_only_if_wanted_and_tried_again_otherwise() {
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = holder.local_addr().unwrap();
    let limits = Limits {
        bind_again: Duration::from_millis(20),
        ..Limits::default()
    };
    let error = server(address, limits)
        .start(true)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("--page-bind"),
        "{error}"
    );
    server(address, limits).start(false).await.unwrap();
    drop(holder);
    let served = timeout(PATIENCE, async {
        loop {
            if let Ok(mut stream) = TcpStream::connect(address).await {
                break answer(&mut stream).await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    served.await.expect("the port is free now");
}
