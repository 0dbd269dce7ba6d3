//! `node-api`: what it costs to have backends in other processes: one change to a hundred clients,
//! the whole state at once, and one change to one backend, against a backend in the same process.
//!
//! ```text
//! this process ──orders──> brain (model, backend, server) ══ Unix socket ══> clients
//! ```

pub(super) mod brain;
pub(super) mod clients;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::{Session, figures::Collected, orders::Part, rig, sizes::Size, usage::Usage};
use brain::{Changed, Filled};
use clients::Whole;

/// Clients of the fan-out.
const CLIENTS: u32 = 100;
/// Changes after each start; each is a value of its own, so that the tail shows.
const CHANGES: u32 = 200;
/// The same with `--quick`.
const QUICK_CHANGES: u32 = 5;

/// Runs all of it.
pub(super) fn measure(session: &Session) -> Result<Collected> {
    let mut collected = Collected::default();
    for start in 0..session.starts {
        session.progress(&format!(
            "node-api: start {} of {}",
            start + 1,
            session.starts
        ));
        one_change(session, &mut collected)?;
        fan_out(session, &mut collected)?;
    }
    session.progress("node-api: the whole state");
    whole(session, &mut collected)?;
    Ok(collected)
}

/// A brain that has published a cluster, and a process for its clients. Dropped in the order of
/// its fields.
struct Pair {
    clients: Part,
    brain: Part,
    _directory: TempDir,
}

impl Pair {
    fn start(services: Size) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a place for a socket")?;
        let socket: PathBuf = directory.path().join("node.sock");
        let part = |name, subcommand| {
            let mut command = rig::own_program(subcommand)?;
            command.arg("--socket").arg(&socket);
            Part::start(name, command)
        };
        let mut brain = part("the brain", "brain")?;
        let Filled { revision } = brain.ask(&brain::Order::Fill(services.0))?;
        ensure!(revision == 1, "a new brain has published {revision} states");
        Ok(Self {
            // The brain listens by now: it has answered.
            clients: part("the process of clients", "clients")?,
            brain,
            _directory: directory,
        })
    }

    fn watch(&mut self, clients: u32, apply: bool) -> Result<()> {
        self.clients.ask(&clients::Order::Watch { clients, apply })
    }

    /// Time on CPUs so far: the brain's and that of its clients.
    fn cpu(&self) -> Result<[Duration; 2]> {
        Ok([
            Usage::of(self.brain.pid())?.cpu,
            Usage::of(self.clients.pid())?.cpu,
        ])
    }

    /// What the brain holds, in bytes: allocated and resident.
    fn memory(&mut self) -> Result<[f64; 2]> {
        let allocated: f64 = self.brain.ask(&brain::Order::Allocated)?;
        let resident = Usage::of(self.brain.pid())?.resident_mib * 1024.0 * 1024.0;
        Ok([allocated, resident])
    }

    /// Makes changes, one at a time: the next one when all clients have the last.
    fn changes(&mut self, session: &Session) -> Result<Changes> {
        let count = if session.starts == 1 {
            QUICK_CHANGES
        } else {
            CHANGES
        };
        let mut all = Changes::default();
        let before = self.cpu()?;
        for _ in 0..count {
            session.still_wanted()?;
            let change: Changed = self.brain.ask(&brain::Order::Change)?;
            let had: Vec<Duration> = self.clients.ask(&clients::Order::Await(change.revision))?;
            all.add(&change, &had);
        }
        let per_change = |[before, after]: [Duration; 2]| millis(before, after) / f64::from(count);
        let after = self.cpu()?;
        all.cpu = [0, 1].map(|side| per_change([before[side], after[side]]));
        Ok(all)
    }
}

/// What changes took, in milliseconds.
#[derive(Debug, Default)]
struct Changes {
    /// From before the model was told until the backend in the brain's process had the change.
    in_process: Vec<f64>,
    /// The same until each client had it.
    clients: Vec<f64>,
    /// From before the state was published until each client had it.
    published: Vec<f64>,
    /// To publish it.
    publishing: Vec<f64>,
    /// CPU per change, of the brain and of the clients.
    cpu: [f64; 2],
}

impl Changes {
    fn add(&mut self, change: &Changed, had: &[Duration]) {
        self.in_process
            .push(millis(change.event, change.in_process));
        self.publishing.push(millis(change.published, change.done));
        for moment in had {
            self.clients.push(millis(change.event, *moment));
            self.published.push(millis(change.published, *moment));
        }
    }
}

fn millis(from: Duration, to: Duration) -> f64 {
    to.saturating_sub(from).as_secs_f64() * 1e3
}

/// The value that `percent` of `values` do not exceed; there must be one at least.
fn at(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * percent / 100]
}

fn one_change(session: &Session, collected: &mut Collected) -> Result<()> {
    let case = &format!("one endpoint replaced, {} services", session.large());
    let mut pair = Pair::start(session.large())?;
    pair.watch(1, true)?;
    let changes = pair.changes(session)?;
    let mut add = |metric: &str, value| collected.add(case, metric, "ms", value);
    for (what, values) in [
        ("in process: event to backend", &changes.in_process),
        ("Watch: event to backend", &changes.clients),
        ("Watch: publish to backend", &changes.published),
    ] {
        add(&format!("{what}, p50"), at(values, 50));
        add(&format!("{what}, p99"), at(values, 99));
    }
    let [brain, client] = changes.cpu;
    add("Watch: CPU of the brain per change", brain);
    add("Watch: CPU of the client per change", client);
    Ok(())
}

fn fan_out(session: &Session, collected: &mut Collected) -> Result<()> {
    let services = session.large();
    let case = &format!("one endpoint replaced, {services} services, {CLIENTS} clients");
    let mut pair = Pair::start(session.large())?;
    let before = pair.memory()?;
    pair.watch(CLIENTS, false)?;
    let after = pair.memory()?;
    let changes = pair.changes(session)?;
    let mut add = |metric: &str, unit, value| collected.add(case, metric, unit, value);
    let values = &changes.published;
    add("Watch: publish to decoded, p50", "ms", at(values, 50));
    add("Watch: publish to decoded, p99", "ms", at(values, 99));
    add("Watch: publish to decoded, most", "ms", at(values, 100));
    let publishing = at(&changes.publishing, 50);
    add("the owner's part of publishing, p50", "ms", publishing);
    let in_process = at(&changes.in_process, 50);
    add("in process: event to backend, p50", "ms", in_process);
    let [brain, clients] = changes.cpu;
    add("CPU of the brain per change", "ms", brain);
    add("CPU of all clients per change", "ms", clients);
    let kib = [0, 1].map(|kind| (after[kind] - before[kind]) / 1024.0 / f64::from(CLIENTS));
    add("brain: allocated per idle client", "KiB", kib[0]);
    add("brain: resident per idle client", "KiB", kib[1]);
    Ok(())
}

fn whole(session: &Session, collected: &mut Collected) -> Result<()> {
    let services = session.large();
    let case = &format!("whole state, {services} services of 10 endpoints");
    let mut pair = Pair::start(services)?;
    let mut add = |metric: &str, unit, value| collected.add(case, metric, unit, value);
    let bytes: f64 = pair.clients.ask(&clients::Order::Count)?;
    for _ in 0..session.runs {
        session.still_wanted()?;
        let in_process: Duration = pair.brain.ask(&brain::Order::HandOver)?;
        let before = pair.cpu()?;
        let answer: Whole = pair.clients.ask(&clients::Order::Next)?;
        let after = pair.cpu()?;
        ensure!(
            answer.services == services.0 as usize,
            "{} services came, of {services}",
            answer.services
        );
        let zero = Duration::ZERO;
        let handed = millis(zero, in_process);
        add("in process: hand-over to the backend", "ms", handed);
        add("Next: call to state", "ms", millis(zero, answer.state));
        add("Next: call to backend", "ms", millis(zero, answer.backend));
        add("Next: CPU of the brain", "ms", millis(before[0], after[0]));
        add("Next: CPU of the client", "ms", millis(before[1], after[1]));
    }
    add("Next: from the brain", "KiB", bytes / 1024.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn each_client_and_change_is_a_value() {
        let mut changes = Changes::default();
        let change = Changed {
            revision: 2,
            event: ms(100),
            in_process: ms(101),
            published: ms(102),
            done: ms(105),
        };
        changes.add(&change, &[ms(103), ms(112)]);
        assert_eq!(changes.in_process, [1.0]);
        assert_eq!(changes.publishing, [3.0]);
        assert_eq!(changes.clients, [3.0, 12.0]);
        assert_eq!(changes.published, [1.0, 10.0]);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let some = |values: &[f64]| -> Vec<f64> {
            let percents = [0, 50, 99, 100];
            percents.map(|percent| at(values, percent)).to_vec()
        };
        let many: Vec<_> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(some(&many), [0.0, 50.0, 99.0, 100.0]);
        assert_eq!(some(&[3.0]), [3.0; 4]);
    }
}
