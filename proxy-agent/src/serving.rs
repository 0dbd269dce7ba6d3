//! What the agent tells over HTTP: whether it is well, and figures. Knows neither the source nor
//! the backend: whoever owns the state reports to [`Serving`], and answers when a scrape asks for
//! the backend's figures.

mod clients;
mod health;
mod http;
pub mod metrics;
mod pages;
mod readiness;
pub mod reference;
mod service_health;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use proxy_model::Difference;
use serde_json::Value;
use tokio::sync::mpsc;

pub use self::{
    clients::Clients,
    health::{Answer, Health, InForce, Moment, Probe},
    http::ServingError,
    metrics::{Collector, Conntrack, LayerNow, Metrics, Synced},
    pages::{Figures, FiguresWanted},
    readiness::Readiness,
    service_health::HealthChecks,
};
use self::{
    http::{Limits, Server},
    pages::Site,
    service_health::ServiceHealth,
};
use crate::{backend::choice::Choice, events::Recorder, heart::Heart, kept::keep};

/// What is served, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct ServingOptions {
    /// Where `/healthz` and `/livez` answer.
    pub healthz: Option<SocketAddr>,
    /// Where `/metrics` answers.
    pub metrics: Option<SocketAddr>,
    /// Whether an address that cannot be bound is an error, instead of being tried again.
    pub hard_fail: bool,
    /// What `/configz` shows.
    pub configuration: Value,
    /// What `/flagz` shows: flags with their values.
    pub flags: BTreeMap<String, String>,
    /// Whether the log can be changed over HTTP.
    pub profiling: bool,
    /// Names of all backends of this program.
    pub backends: Vec<&'static str>,
}

/// What the run loop reports to. Every call is cheap.
#[derive(Debug)]
pub struct Serving {
    /// What the owner of the state is at.
    pub heart: Arc<Heart>,
    /// Whether the agent is well.
    pub health: Health,
    /// Whether it serves what the cluster says.
    pub readiness: Readiness,
    /// What it counts.
    pub metrics: Metrics,
    /// Whoever follows the node API, if it is served.
    pub clients: Option<Arc<Clients>>,
    /// Takes what an operator should see on objects of the cluster.
    events: Recorder,
    /// What health check node ports answer.
    service_health: ServiceHealth,
    /// What is in force of file and flags.
    configuration: Mutex<Value>,
}

/// Who tells what the cluster is.
pub struct Cluster {
    /// For people.
    pub name: String,
    /// Numbers that are read there at each scrape, under full names.
    pub figures: Vec<Collector>,
    /// Where news about its objects go.
    pub events: Recorder,
}

/// Scrapes that ask for the backend's figures at once; a further one shows what is known.
const SCRAPES: usize = 4;

impl Serving {
    /// Serves in the background until the process ends. `chosen` is the dataplane;
    /// `conntrack` is what it counts of cleaning flows,
    /// `cluster` is who tells what the cluster is; `clients` are those of the node API. Whoever owns the backend answers the requests that come out of the channel, when it has time, and says by
    /// `heart` what it is at.
    pub async fn start(
        options: &ServingOptions,
        sync_period: Duration,
        chosen: &Choice,
        conntrack: &Conntrack,
        cluster: Cluster,
        clients: Option<Arc<Clients>>,
        heart: Arc<Heart>,
    ) -> Result<(Arc<Self>, mpsc::Receiver<FiguresWanted>), ServingError> {
        let (figures, wanted) = mpsc::channel(SCRAPES);
        let Cluster {
            name,
            figures: mut elsewhere,
            events,
        } = cluster;
        elsewhere.extend(clients.as_ref().map(Clients::collector));
        let metrics = Metrics::new(chosen, &options.backends, conntrack, elsewhere);
        if let Some(clients) = &clients {
            metrics.also(clients.latency());
        }
        let serving = Arc::new(Self {
            health: Health::new(sync_period).with_heart(Arc::clone(&heart)),
            readiness: Readiness::new(name),
            heart,
            metrics,
            clients,
            events: events.clone(),
            service_health: ServiceHealth::default(),
            configuration: Mutex::new(options.configuration.clone()),
        });
        let checks = Arc::clone(&serving);
        keep("health check node ports", move || {
            service_health::run(Arc::clone(&checks))
        });
        let site = Arc::new(Site {
            serving: Arc::clone(&serving),
            flags: options.flags.clone(),
            started: Moment::now(),
            figures,
        });
        let server = |what, flag, address, pages, event| Server {
            what,
            event,
            events: events.clone(),
            flag,
            address,
            pages,
            limits: Limits::default(),
        };
        if let Some(address) = options.healthz {
            let pages = pages::health(Arc::clone(&site));
            let server = server(
                "health",
                "--healthz-bind-address",
                address,
                pages,
                "FailedToStartProxierHealthcheck",
            );
            server.start(options.hard_fail).await?;
        }
        if let Some(address) = options.metrics {
            let pages = pages::metrics(site, options.profiling);
            let server = server(
                "metrics",
                "--metrics-bind-address",
                address,
                pages,
                "FailedToStartMetricServer",
            );
            server.start(options.hard_fail).await?;
        }
        Ok((serving, wanted))
    }

    /// For how long a client that reports has been behind; zero if none is.
    fn clients_behind(&self) -> Duration {
        let clients = self.clients.as_ref();
        clients.map_or(Duration::ZERO, |clients| clients.behind_for())
    }

    /// The source has told the whole cluster.
    pub fn source_synced(&self) {
        self.readiness.source_synced();
        self.metrics.source_synced();
    }

    /// This is what is in force of file and flags from now on.
    pub fn configured(&self, configuration: Value) {
        *self.configuration() = configuration;
    }

    fn configuration(&self) -> MutexGuard<'_, Value> {
        // It is exchanged as a whole.
        let configuration = self.configuration.lock();
        configuration.unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is to be brought into force.
    pub fn queued(&self) {
        let now = Moment::now();
        self.health.queued(now);
        self.metrics.queued(now.wall);
    }

    /// This is what health check node ports are to answer from now on.
    pub fn health_checks(&self, in_force: HealthChecks) {
        self.service_health.in_force(in_force);
    }

    /// A sync brought the state into force in every layer.
    pub fn synced(&self, sync: Synced<'_>) {
        let now = Moment::now();
        self.health.synced(now);
        self.metrics.synced(sync, now.wall);
    }

    /// The syncs or comparisons of these layers failed as a whole, and are to be tried again.
    pub fn failed(&self, layers: &[&'static str]) {
        self.queued();
        self.metrics.failed(layers);
    }

    /// Every layer has all that it should, found by a comparison or because nothing changed.
    pub fn settled(&self) {
        self.metrics.settled(Moment::now().wall);
    }

    /// The kernel was compared with the state, and this was mended, by layer.
    pub fn compared(&self, repaired: &[(&'static str, Vec<Difference>)]) {
        self.metrics.compared(repaired, Moment::now().wall);
    }
}
