//! The Unix socket that clients come in by, and the port on loopback.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
};

use super::{
    brain::{Brain, Place, options, soon},
    states,
};
use crate::{
    Target,
    client::Client,
    server::{Listener, Publisher, SOCKET_MODE, serve},
};

#[tokio::test]
async fn a_socket_is_its_users_alone_unless_it_is_told_otherwise() {
    let place = Place::new();
    for (mode, expected) in [(SOCKET_MODE, 0o600), (0o660, 0o660)] {
        let path = place.socket("deeper/brain");
        let target = Target::Unix(path.clone());
        let listener = Listener::open(target, mode, None).await.unwrap();
        let rights = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(rights, expected);
        drop(listener);
        assert!(!path.exists(), "it is gone with its listener");
    }
}

#[tokio::test]
async fn what_a_dead_process_left_is_replaced_and_nothing_else() {
    let place = Place::new();
    let path = place.socket("brain");
    let target = Target::Unix(path.clone());
    let open = || Listener::open(target.clone(), SOCKET_MODE, None);

    // Nobody listens any more; the file stays.
    drop(UnixListener::bind(&path).unwrap());
    let listener = open().await.unwrap();
    let error = open().await.unwrap_err().to_string();
    let expected = format!("cannot listen on {target}: another process listens there");
    assert_eq!(error, expected);
    drop(listener);

    fs::write(&path, "precious").unwrap();
    let error = open().await.unwrap_err().to_string();
    assert!(
        error.ends_with("something other than a socket is there"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_socket_of_another_one_is_not_taken_away() {
    let place = Place::new();
    let path = place.socket("brain");
    let listener = Listener::open(Target::Unix(path.clone()), SOCKET_MODE, None);
    let listener = listener.await.unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
}

#[tokio::test]
async fn a_port_on_loopback_serves_as_well() {
    let target: Target = "tcp://127.0.0.1:0".parse().unwrap();
    let listener = Listener::open(target, SOCKET_MODE, None).await.unwrap();
    let target = listener.target();
    let publisher = Publisher::new(|_| {});
    publisher.publish(&states::numbered(2, 1), vec![]);
    tokio::spawn(serve(publisher.clone(), listener));
    let mut options = options(Place::new().socket("unused"), "one");
    options.target = target.clone();
    let client = soon(Client::connect(&options)).await.unwrap();
    assert_eq!(
        soon(client.next(None)).await.unwrap().token,
        publisher.token()
    );
    let again = Listener::open(target, SOCKET_MODE, None).await.unwrap_err();
    assert!(again.to_string().contains("in use"), "{again}");
}

#[tokio::test]
async fn calls_end_when_nobody_is_served_any_more() {
    let place = Place::new();
    let brain = Brain::start(place.socket("brain")).await;
    brain.publish(&states::numbered(1, 1));
    let client = brain.client("one").await;
    let mut stream = soon(client.watch(None)).await.unwrap();
    brain.kill().await;
    soon(async { while let Ok(Some(_)) = stream.message().await {} }).await;
}

#[tokio::test]
async fn a_socket_with_a_full_queue_is_served() {
    let place = Place::new();
    let path = place.socket("brain");
    // One that accepts nobody, as a process that was stopped.
    let socket = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        match tokio::net::UnixStream::connect(&path).await {
            Ok(client) => waiting.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    assert!(soon(crate::server::socket::is_served(&path)).await);
    let open = Listener::open(Target::Unix(path), SOCKET_MODE, None).await;
    let error = open.unwrap_err().to_string();
    assert!(error.ends_with("another process listens there"), "{error}");
    drop(socket);
}
