//! A brain in this process: a test publishes states, backends behind the node API bring them into
//! force and report that they did.

use anyhow::{Context as _, Result};
use proxy_api::server::{ClientStatus, Listener, Publisher, SOCKET_MODE, serve};
use proxy_model::NodeState;
use tempfile::TempDir;
use tokio::{runtime::Runtime, time::timeout};

use crate::agent::LIMIT;

/// Gone when dropped, as if it had been killed.
#[derive(Debug)]
pub struct Brain {
    publisher: Publisher,
    target: String,
    dir: TempDir,
    runtime: Runtime,
}

impl Brain {
    /// One that has published nothing, on a socket of its own.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("culvert-test-")
            .tempdir()
            .context("cannot make a directory for a socket")?;
        let target = format!("unix://{}", dir.path().join("brain.sock").display());
        Self::serving(target, dir)
    }

    /// Another brain in the place of this one, as after a crash: it knows nothing of its clients, nor
    /// they of it.
    pub fn replaced(self) -> Result<Self> {
        let Self {
            target,
            dir,
            runtime,
            ..
        } = self;
        // Its tasks end here, and with them the connections and the socket.
        drop(runtime);
        Self::serving(target, dir)
    }

    fn serving(target: String, dir: TempDir) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = Listener::open(target.parse()?, SOCKET_MODE, None);
        let listener = runtime.block_on(listener)?;
        let publisher = Publisher::new(|_| {});
        let serving = serve(publisher.clone(), listener);
        runtime.spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("{error}");
            }
        });
        Ok(Self {
            publisher,
            target,
            dir,
            runtime,
        })
    }

    /// What `--target` takes.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Makes `state` the newest one.
    pub fn publish(&self, state: &NodeState) {
        self.publisher.publish(state, vec![]);
    }

    /// Waits until a client has the newest state in force, and says what it is.
    pub fn until_applied(&self) -> Result<ClientStatus> {
        let newest = self.publisher.revision();
        let applied = || {
            let mut clients = self.publisher.clients().into_iter();
            clients.find(|one| one.applied == Some(newest))
        };
        let mut reports = self.publisher.reports();
        let waiting = async {
            reports.wait_for(|_| applied().is_some()).await?;
            applied().context("the client has gone again")
        };
        let waited = self
            .runtime
            .block_on(async { timeout(LIMIT, waiting).await });
        waited.with_context(|| {
            let clients = self.publisher.clients();
            format!("no client had revision {newest} in force in {LIMIT:?}: {clients:?}")
        })?
    }
}
