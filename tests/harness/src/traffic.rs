//! Traffic that goes on whatever becomes of the agent: loads of one client, of which no request may
//! fail.

use anyhow::{Result, bail};

use crate::{
    losses,
    pod::{Load, LoadReport, Prober},
    world::Host,
};

/// How many more requests of a load show that it goes on.
const REQUESTS: u64 = 40;
/// The same for each of its threads, if that is more.
const REQUESTS_OF_A_THREAD: u64 = 8;

/// Whether so many failures of this kind (`what`) of a load are none of the agent's.
pub type Excuse = fn(load: &Load, what: &str, count: u64) -> bool;

/// A client under load.
#[derive(Debug)]
pub struct Traffic {
    /// For what else is asked of the same client.
    pub prober: Prober,
    of: &'static str,
    loads: Vec<Load>,
    excused: Excuse,
}

impl Traffic {
    /// Starts the loads at `host`, which messages call `of`.
    pub fn start(of: &'static str, host: &Host, loads: Vec<Load>) -> Result<Self> {
        Self::of(of, Prober::start(host)?, loads)
    }

    /// The same by a prober that was started where the caller wants it.
    pub fn of(of: &'static str, mut prober: Prober, loads: Vec<Load>) -> Result<Self> {
        for load in &loads {
            prober.load_start(load.clone())?;
        }
        Ok(Self {
            prober,
            of,
            loads,
            excused: |_, _, _| false,
        })
    }

    /// The same, with an excuse for some failures.
    pub fn excusing(self, excused: Excuse) -> Self {
        Self { excused, ..self }
    }

    /// Waits for more requests of each load. Fails if any has failed since the start.
    pub fn goes_on(&mut self, when: &str) -> Result<()> {
        let loads = self.loads.iter();
        let more: Vec<_> = loads.map(|load| (&*load.name, enough(load))).collect();
        let reports = self.prober.loads_wait(&more)?;
        let mut pairs = self.loads.iter().zip(&reports);
        pairs.try_for_each(|(load, report)| self.check(load, report, when))
    }

    /// Ends the loads. Fails as [`Self::goes_on`] does.
    pub fn stop(mut self) -> Result<()> {
        for load in &self.loads {
            let report = self.prober.load_stop(&load.name)?;
            self.check(load, &report, "at the end")?;
        }
        Ok(())
    }

    fn check(&self, load: &Load, report: &LoadReport, when: &str) -> Result<()> {
        let mut failures = report.failures.iter();
        let excused = failures.all(|(what, count)| (self.excused)(load, what, *count));
        if excused && report.answered > 0 {
            return Ok(());
        }
        let lost = losses::counted(self.prober.process().pid());
        bail!(
            "{}, {}, {when}: {report:?}; the kernel counted {lost:?}",
            self.of,
            load.name
        )
    }
}

fn enough(load: &Load) -> u64 {
    REQUESTS.max(REQUESTS_OF_A_THREAD * u64::from(load.threads))
}
