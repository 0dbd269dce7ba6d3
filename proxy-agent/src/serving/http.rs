//! HTTP servers that cost nothing when a client is slow or hostile: each connection is bounded
//! in time, and their number too (`guests`). Knows no page.

mod guests;
#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

pub(super) use self::guests::Guests;
use self::guests::Stay;
use crate::{
    events::{News, Recorder, Regarding},
    kept::keep,
};

/// What a client may take up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once by each listener; for one more, one that is idle has to go.
    connections: usize,
    /// The same of all listeners that share what there is.
    together: usize,
    /// For the head of a request, also between two requests.
    head: Duration,
    /// For a connection; then it ends after the answer that is under way.
    connection: Duration,
    /// For that answer.
    last_answer: Duration,
    /// Between two attempts to bind.
    pub(super) bind_again: Duration,
}

impl Limits {
    /// For a port that is one of many, anybody may connect to, and whose answers are short: a silent
    /// client must keep neither this port nor all of them busy, nor use up all descriptors.
    pub(super) fn of_many_ports() -> Self {
        Self {
            connections: 16,
            together: 256,
            ..Self::default()
        }
    }

    /// Those who are connected, nobody yet.
    pub(super) fn guests(&self) -> Arc<Guests> {
        Guests::new(self.connections, self.together)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            together: 128,
            head: Duration::from_secs(10),
            connection: Duration::from_mins(1),
            last_answer: Duration::from_secs(10),
            // As kube-proxy does.
            bind_again: Duration::from_secs(5),
        }
    }
}

/// An address cannot be bound, and the user wants that to be fatal.
#[derive(Debug, Error)]
#[error(
    "serving {what} on {address}: {error}; stop the process that listens there, choose another \
     address with {flag}, or leave out --bind-address-hard-fail to start without it"
)]
pub struct ServingError {
    what: &'static str,
    flag: &'static str,
    address: SocketAddr,
    // Not as its source, which would be printed again behind the advice.
    error: io::Error,
}

/// One server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// What it serves, for the log.
    pub(super) what: &'static str,
    /// What an event is called that says that it is not served, as kube-proxy's is.
    pub(super) event: &'static str,
    /// Where that goes.
    pub(super) events: Recorder,
    /// The flag that sets its address.
    pub(super) flag: &'static str,
    /// Its address.
    pub(super) address: SocketAddr,
    /// Its pages.
    pub(super) pages: Router,
    /// Its limits.
    pub(super) limits: Limits,
}

impl Server {
    /// Serves in the background until the process ends. An address that cannot be bound is tried
    /// again and again, or is an error under `hard_fail`.
    pub(super) async fn start(self, hard_fail: bool) -> Result<(), ServingError> {
        match TcpListener::bind(self.address).await {
            Ok(listener) => self.keep_accepting(Some(listener)),
            Err(error) if hard_fail => {
                return Err(ServingError {
                    what: self.what,
                    flag: self.flag,
                    address: self.address,
                    error,
                });
            }
            Err(error) => {
                self.events.tell(News {
                    regarding: Regarding::Node,
                    warning: true,
                    reason: self.event,
                    action: "StartKubeProxy",
                    note: format!("failed to serve {} on {}: {error}", self.what, self.address),
                });
                // Once: a port that somebody else holds would fill the log.
                tracing::error!(
                    what = self.what,
                    address = %self.address,
                    %error,
                    "address not bound; trying again in the background"
                );
                self.keep_accepting(None);
            }
        }
        Ok(())
    }

    /// On `listener`, or as soon as there is one.
    fn keep_accepting(self, mut listener: Option<TcpListener>) {
        keep(self.what, move || {
            let (server, listener) = (self.clone(), listener.take());
            async move {
                let listener = match listener {
                    Some(listener) => listener,
                    None => server.bind_at_last().await,
                };
                server.accept(listener).await;
            }
        });
    }

    async fn accept(self, listener: TcpListener) {
        let guests = self.limits.guests();
        accept(listener, self.pages, self.limits, guests).await;
    }

    async fn bind_at_last(&self) -> TcpListener {
        loop {
            sleep(self.limits.bind_again).await;
            if let Ok(listener) = TcpListener::bind(self.address).await {
                tracing::info!(what = self.what, address = %self.address, "address bound");
                return listener;
            }
        }
    }
}

/// Serves whoever connects, until dropped: connections that are open then go on to their end.
/// `guests` are those of all listeners that share what there is.
pub(super) async fn accept(
    listener: TcpListener,
    pages: Router,
    limits: Limits,
    guests: Arc<Guests>,
) {
    let door = guests.door();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let stay = guests.enter(door, from.ip());
                let connection = connection(stream, pages.clone(), limits, stay);
                tokio::spawn(connection);
            }
            // The client went away, or descriptors ran out: the next one may fare better.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Answers requests, until somebody else needs the place. What goes wrong is the client's business.
async fn connection(stream: TcpStream, pages: Router, limits: Limits, stay: Stay) {
    let answering = stay.answering();
    let service = service_fn(move |request| {
        let (pages, answering) = (pages.clone(), answering());
        async move {
            let answer = pages.oneshot(request).await;
            drop(answering);
            answer
        }
    });
    let serve = async {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.head);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        if timeout(limits.connection, connection.as_mut())
            .await
            .is_err()
        {
            connection.as_mut().graceful_shutdown();
            drop(timeout(limits.last_answer, connection).await);
        }
    };
    select! {
        () = serve => {}
        () = stay.over() => {}
    }
}
