//! The backend: the tables of both families in the kernel, kept equal to the state.
//!
//! What was written last is not read back: a change is written as it follows from the state before. Only at
//! start, after an error, when somebody else has changed rules, and at least hourly, the tables are read and
//! compared.

mod accounting;
mod backend;
mod figures;
mod leave;
mod localnet;
mod lock;
mod on_linux;
mod probe;
mod programs;
mod refused;
mod stamp;
mod tables;
mod verify;

use std::time::{Duration, Instant};

use proxy_backend::{ConntrackObserver, OpenError, milliseconds};
use proxy_conntrack::Cleaner;
use proxy_model::{Backend as _, Capability, IpFamily, NodeState, SyncError};

use self::{
    figures::Counts,
    lock::Lock,
    programs::{ProgramError, Programs},
    stamp::{Stamp, stamp},
    tables::{Tables, Whole},
};
pub use self::{figures::figures_described, on_linux::OnLinux};
use crate::{IptablesOptions, LACKS, LACKS_WITHOUT_LOCALNET, flags::Verify, table::Table};

/// How long to wait after an error.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long nothing is compared at most, as with kube-proxy.
const HOURLY: Duration = Duration::from_hours(1);
/// A comparison may take so much of the time: one in so many parts.
const SHARE: u32 = 20;
/// The same for those that the period asks for, or somebody.
const BY_PERIOD: u32 = 2;

/// The backend. Works in the network namespace in which it was opened: all threads that call it must be in
/// that.
#[derive(Debug)]
pub struct IptablesBackend {
    programs: Programs,
    why: &'static str,
    verify: Verify,
    has_localnet: bool,
    /// A change was written since all tables were last compared.
    unverified: bool,
    families: Vec<Tables>,
    /// The state of the last sync.
    state: NodeState,
    /// What the kernel said when the tables were as they should be.
    stamp: Option<Stamp>,
    /// Somebody else is known to have changed rules since all tables were last compared.
    others_wrote: bool,
    /// How long the last comparison took, and when it was over.
    compared: Option<(Duration, Instant)>,
    opened: Option<Instant>,
    cleaner: Cleaner,
    counts: Counts,
    /// No other agent writes here meanwhile.
    lock: Option<Lock>,
}

/// What it cannot do on a host that lets packets from loopback addresses leave, or does not.
const fn lacks(has_localnet: bool) -> &'static [Capability] {
    if has_localnet {
        LACKS
    } else {
        LACKS_WITHOUT_LOCALNET
    }
}

impl IptablesBackend {
    /// Finds out which programs to use; changes nothing.
    pub fn open(options: IptablesOptions, verify: Verify) -> Result<Self, OpenError> {
        let found = programs::find();
        let Some((programs, why)) = found.chosen else {
            return Err(OpenError::Host(probe::unusable(&found)));
        };
        for (programs, why) in &found.flavours {
            if let Some(reason) = why.as_ref().filter(|_| programs.are_used(IpFamily::V4)) {
                let flavour = programs.flavour.as_str();
                let text = "rules that others have there may be met before these; whether kubelet uses it is not known";
                tracing::warn!(flavour, reason, text, "tables of iptables not looked at");
            }
        }
        let families = programs::families().into_iter();
        let families = families.map(|family| Tables::new(family, programs, options));
        Ok(Self {
            programs,
            why,
            verify,
            has_localnet: options.localnet,
            unverified: false,
            families: families.collect(),
            state: NodeState::default(),
            stamp: None,
            others_wrote: false,
            compared: None,
            opened: Some(Instant::now()),
            cleaner: Cleaner::new(),
            counts: Counts::default(),
            lock: Lock::take()?,
        })
    }

    /// The same, and `observer` hears of each time that stale flows are removed.
    pub fn observed_by(mut self, observer: ConntrackObserver) -> Self {
        self.cleaner.observed_by(observer);
        self
    }

    fn present_stamp(&self) -> Option<Stamp> {
        let families: Vec<_> = self.families.iter().map(|tables| tables.family).collect();
        stamp(self.programs.flavour, &families)
    }

    /// Somebody has changed rules since they were as they should be, or nobody can tell.
    fn differs_from_stamp(&self) -> bool {
        self.stamp.is_none() || self.present_stamp() != self.stamp
    }

    /// Comparisons leave enough of the time to everything else: they take one in so many parts at most.
    fn has_time(&self, share: u32) -> bool {
        self.compared
            .is_none_or(|(took, at)| at.elapsed() >= took * share)
    }

    /// Reads all tables, and writes what differs.
    fn whole(&mut self, state: &NodeState) -> Result<Whole, ProgramError> {
        let (began, stamp) = (Instant::now(), self.present_stamp());
        let mut all = Whole {
            adopted: true,
            ..Whole::default()
        };
        let mut failed = None;
        for tables in &mut self.families {
            let whole = match tables.whole(state) {
                Ok(whole) => whole,
                // The other family is served all the same.
                Err(error) => {
                    self.counts.failed.add(tables.family);
                    failed = Some(error);
                    continue;
                }
            };
            all.writes += whole.writes;
            all.written.extend(whole.written);
            all.adopted &= whole.adopted;
            all.differences.extend(whole.differences);
            all.abandoned.extend(whole.abandoned);
        }
        self.cleaner.owe(std::mem::take(&mut all.abandoned));
        if let Some(error) = failed {
            return Err(error);
        }
        let stamp = stamp.and_then(|stamp| self.stamp_after(stamp, &all.written));
        self.compared(began, stamp);
        Ok(all)
    }

    /// What `before` became by our writing these tables; `None` if somebody else may have written meanwhile, too: then
    /// all are compared once more, in time.
    fn stamp_after(&self, before: Stamp, written: &[(IpFamily, Table)]) -> Option<Stamp> {
        if written.is_empty() {
            return Some(before);
        }
        // Sizes do not tell who has written a table.
        let is_told = matches!(before, Stamp::Generation(_));
        let now = self.present_stamp().filter(|_| is_told);
        now.filter(|now| now.follows(&before, written))
    }

    /// All tables were compared, and are as they should be, as far as `stamp` says.
    fn compared(&mut self, began: Instant, stamp: Option<Stamp>) {
        self.stamp = stamp;
        self.compared = Some((began.elapsed(), Instant::now()));
        self.unverified = false;
        self.others_wrote = false;
        self.counts.whole += 1;
    }

    fn failed(&mut self, error: &ProgramError) -> SyncError {
        for tables in &mut self.families {
            tables.forget();
        }
        self.stamp = None;
        self.counts.look_at(error);
        SyncError::Retry {
            reason: error.to_string(),
            after: RETRY_AFTER,
        }
    }

    /// The first state is in force.
    fn serving(&mut self, services: usize, adopted: bool) {
        let Some(opened) = self.opened.take() else {
            return;
        };
        self.leave_other_flavour();
        tracing::info!(
            backend = self.name(),
            services,
            flavour = self.programs.flavour.as_str(),
            reason = self.why,
            adopted,
            duration_ms = milliseconds(opened.elapsed()),
            "serving"
        );
    }

    /// What an earlier run wrote by the other flavour would go on leading connections.
    fn leave_other_flavour(&self) {
        match leave::remove(Some(self.programs.flavour)) {
            Ok(removed) => {
                for (flavour, family) in removed {
                    let (flavour, family) = (flavour.as_str(), family.as_str());
                    tracing::info!(flavour, family, "chains of an earlier run removed");
                }
            }
            Err(error) => {
                tracing::error!(%error, "chains of an earlier run stay in the other flavour");
            }
        }
    }
}
