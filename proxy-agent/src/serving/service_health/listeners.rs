//! Which ports listen, brought in line with what is wanted: one listener for each Service and
//! address. Knows no page.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::SocketAddr,
    sync::Arc,
};

use axum::Router;
use proxy_model::{HealthCheckKey, IpFamily};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinHandle,
};

use super::HealthChecks;
use crate::{
    events::{News, Recorder, Regarding},
    serving::http::{self, Guests, Limits},
};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 128;

/// One of the places where a Service's port is to answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: HealthCheckKey,
    address: SocketAddr,
}

/// What became of a place.
#[derive(Debug)]
enum Standing {
    /// Served by this task.
    Listening(JoinHandle<()>),
    /// Cannot be bound, which was told.
    Failed,
    /// Nobody can ask there: this host does not know the family at all.
    Unneeded,
}

/// All listeners. `P` makes the pages of one Service's port.
pub(super) struct Listeners<P> {
    pages: P,
    limits: Limits,
    /// Who is connected, on all ports together: anybody may be.
    guests: Arc<Guests>,
    places: BTreeMap<Place, Standing>,
    /// Where it goes that one cannot be bound.
    events: Recorder,
}

impl<P: Fn(&HealthCheckKey, u16) -> Router> Listeners<P> {
    /// None yet.
    pub(super) fn new(pages: P, limits: Limits, events: Recorder) -> Self {
        Self {
            pages,
            guests: limits.guests(),
            limits,
            places: BTreeMap::new(),
            events,
        }
    }

    /// Closes what is not wanted any more, and opens what is missing. What cannot be opened is
    /// told once, and tried again with every call.
    pub(super) async fn reconcile(&mut self, checks: &HealthChecks) {
        let wanted = wanted(checks);
        // First, so that a port that moves between Services is free.
        for (_, standing) in self.places.extract_if(.., |at, _| !wanted.contains(at)) {
            if let Standing::Listening(task) = standing {
                task.abort();
                // Over when the task is gone, and its socket with it.
                drop(task.await);
            }
        }
        for place in wanted {
            self.open(place);
        }
    }

    /// How many places listen, and how many should but cannot.
    pub(super) fn count(&self) -> (u64, u64) {
        let mut count = (0, 0);
        for standing in self.places.values() {
            match standing {
                Standing::Listening(_) => count.0 += 1,
                Standing::Failed => count.1 += 1,
                Standing::Unneeded => {}
            }
        }
        count
    }

    fn open(&mut self, place: Place) {
        let failed_before = match self.places.get(&place) {
            None => false,
            Some(Standing::Failed) => true,
            // One whose task met a defect, which was told, is opened again.
            Some(Standing::Listening(task)) if task.is_finished() => false,
            Some(Standing::Listening(_) | Standing::Unneeded) => return,
        };
        let Place { key, address } = &place;
        let (service, port) = (&key.service, address.port());
        let standing = match bind(*address) {
            Ok(listener) => {
                if failed_before {
                    tracing::info!(%service, port, address = %address.ip(), "health check node port served");
                }
                let pages = (self.pages)(key, port);
                let task = tokio::spawn(http::accept(
                    listener,
                    pages,
                    self.limits,
                    Arc::clone(&self.guests),
                ));
                Standing::Listening(task)
            }
            Err(error) if is_unneeded(&error, *address) => Standing::Unneeded,
            Err(error) => {
                if !failed_before {
                    self.events.tell(not_served(&place, &error));
                    tracing::warn!(
                        %service,
                        port,
                        address = %address.ip(),
                        reason = %error,
                        text = format!(
                            "load balancers that query this port send this node none of the \
                             Service's traffic; find the process that holds it (ss -ltnp 'sport = \
                             :{port}') and stop it; retried in the background"
                        ),
                        "health check node port not served"
                    );
                }
                Standing::Failed
            }
        };
        self.places.insert(place, standing);
    }
}

/// Whoever comes next can have the ports.
impl<P> Drop for Listeners<P> {
    fn drop(&mut self) {
        for standing in self.places.values() {
            if let Standing::Listening(task) = standing {
                task.abort();
            }
        }
    }
}

impl<P> fmt::Debug for Listeners<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

/// In kube-proxy's words.
fn not_served(place: &Place, error: &io::Error) -> News {
    let Place { key, address } = place;
    News {
        regarding: Regarding::Service(key.service.clone()),
        warning: true,
        reason: "FailedToStartServiceHealthcheck",
        action: "Listen",
        note: format!(
            "failed to start healthcheck \"{}\" on port {}: {}: {error}",
            key.service,
            address.port(),
            address.ip()
        ),
    }
}

fn wanted(checks: &HealthChecks) -> BTreeSet<Place> {
    let places = checks.checks.iter().flat_map(|(key, check)| {
        let addresses = checks.addresses.iter().copied();
        let of_family = addresses.filter(|address| IpFamily::of(*address) == key.family);
        of_family.map(|address| Place {
            key: key.clone(),
            address: SocketAddr::new(address, check.port.get()),
        })
    });
    places.collect()
}

/// Each family by itself, whatever `net.ipv6.bindv6only` says: both wildcards want one port.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        let socket = TcpSocket::new_v6()?;
        SockRef::from(&socket).set_only_v6(true)?;
        socket
    };
    // Connections of an earlier listener that linger must not keep the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Every address of a family that the kernel was started without.
fn is_unneeded(error: &io::Error, address: SocketAddr) -> bool {
    address.ip().is_unspecified() && error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}
