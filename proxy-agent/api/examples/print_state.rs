//! A complete backend on one screen: prints what this node must do, each time that it changes.
//!
//! ```text
//! proxy-agent brain --node-name node-a --manifests cluster.yaml --listen unix:///run/x.sock
//! cargo run --locked -p proxy-api --example print_state -- --target unix:///run/x.sock --once
//! ```

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use proxy_api::{
    driver,
    model::{Backend, Capability, ChangeSet, FatalCause, NodeState, SyncError, SyncReport},
};

const FITS: &str = "a text takes what is written into it";

struct PrintState;

impl Backend for PrintState {
    fn name(&self) -> &'static str {
        "print-state"
    }

    /// What Services need and this backend cannot do. One that only looks on does nothing at all.
    fn lacks(&self) -> &'static [Capability] {
        &Capability::ALL
    }

    /// Everything is in `state`; a backend that would rather work through what changed finds that in
    /// `change`.
    fn sync(&mut self, state: &NodeState, change: &ChangeSet) -> Result<SyncReport, SyncError> {
        let mut text = format!(
            "{}: {} Service ports, {} changes\n",
            state.node.name,
            state.services.len(),
            change.changes.len()
        );
        for (key, service) in &state.services {
            writeln!(text, "{key}").expect(FITS);
            for frontend in &service.frontends {
                writeln!(text, "  {frontend} ({})", frontend.kind.as_str()).expect(FITS);
            }
            let sets = [
                ("cluster", &service.cluster_endpoints),
                ("local", &service.local_endpoints),
            ];
            for (policy, set) in sets {
                for endpoint in set.iter().flat_map(|set| set.iter()) {
                    writeln!(text, "    -> {} ({policy})", endpoint.address).expect(FITS);
                }
            }
        }
        // Not `println`, which panics when whoever reads goes away (`| head`).
        let written = io::stdout().write_all(text.as_bytes());
        written.map_err(|error| SyncError::Fatal {
            cause: FatalCause::Other,
            reason: format!("no process reads what is printed: {error}"),
        })?;
        Ok(SyncReport::default())
    }
}

fn main() -> ExitCode {
    // One that programs something calls `driver::main`, which also tells the brain what is in force.
    driver::look_on(PrintState)
}
