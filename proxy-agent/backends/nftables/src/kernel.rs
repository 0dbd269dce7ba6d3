//! The backend: the tables of both families in the kernel, kept equal to the state.
//!
//! What was written last is not read back: a change is written as it follows from the state before.
//! Only at start, after an error, and when somebody else has changed rules, the tables are read and
//! compared. That somebody has is told by the kernel's generation of rules, a number.

mod backend;
mod clients;
mod describe;
mod expressions;
mod figures;
mod keep;
mod leave;
mod lock;
mod on_linux;
mod outline;
mod owed;
mod owner;
mod probe;
mod read;
mod refusal;
mod rule_hash;
mod shape;
mod socket;
mod stale;
#[cfg(test)]
mod tests;
mod transaction;
mod trial;
mod typeof_data;
mod wire;

use std::time::{Duration, Instant};

use proxy_backend::{ConntrackObserver, OpenError, milliseconds};
use proxy_model::{Backend as _, ChangeSet, Difference, IpFamily, NodeState, SyncError};

use self::{
    figures::Counts,
    lock::{Lock, LockError},
    outline::Outline,
    owed::Owed,
    owner::Blame,
    rule_hash::rule_hash,
    socket::Netlink,
    transaction::{Transaction, hook_number},
};
use super::{
    NftablesOptions,
    found::{Comparison, Encoding, FoundHook, compare},
    plan::{self, Plan},
    ruleset::{Hook, Rule},
    wanted::{Elements, Wanted},
};
pub use figures::figures_described;
pub use keep::{Keeper, is_kept};
pub use leave::{cleanup, is_there, remove};
pub use lock::{Duty, holder, holder_that_stays};
pub use on_linux::OnLinux;
pub use probe::probe;
pub use read::is_programmed;
pub use socket::KernelError;

/// How long to wait after an error.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// The backend. Works in the network namespace in which it was opened: all threads that call it must
/// be in that.
#[derive(Debug)]
pub struct NftablesBackend {
    /// Nobody else programs these tables.
    _lock: Lock,
    netlink: Netlink,
    options: NftablesOptions,
    /// What the tables hold; `None` when they must be read first.
    tables: Option<[Wanted; 2]>,
    /// The state of the last sync.
    state: NodeState,
    /// The generation of rules in which the tables were as they should be.
    generation: Option<u32>,
    /// How long the last comparison took, and when it was over.
    compared: Option<(Duration, Instant)>,
    /// What the tables were seen to be when they were last compared.
    outline: Option<Outline>,
    opened: Option<Instant>,
    owed: Owed,
    counts: Counts,
}

impl NftablesBackend {
    /// Takes the lock; changes nothing else. Waits for no holder to go.
    pub fn open(options: NftablesOptions) -> Result<Self, OpenError> {
        let lock = Lock::take(Duty::Rules, Duration::ZERO)?;
        let netlink = Netlink::open().map_err(|error| refusal::opening(&error))?;
        Ok(Self::over(netlink, lock, options))
    }

    /// One that reaches the kernel over `netlink`.
    fn over(netlink: Netlink, lock: Lock, options: NftablesOptions) -> Self {
        Self {
            _lock: lock,
            netlink,
            options,
            tables: None,
            state: NodeState::default(),
            generation: None,
            compared: None,
            outline: None,
            opened: Some(Instant::now()),
            owed: Owed::default(),
            counts: Counts::default(),
        }
    }

    /// The same, and `observer` hears of each time that stale flows are removed.
    pub fn observed_by(mut self, observer: ConntrackObserver) -> Self {
        self.owed.observed_by(observer);
        self
    }

    /// The same with room for so many bytes of answers to what it writes: a test can have it too
    /// small.
    pub fn with_room_for_answers(mut self, bytes: usize) -> Result<Self, KernelError> {
        self.netlink = Netlink::with_room(bytes)?;
        Ok(self)
    }

    /// Writes what a change comes to, as it follows from the state before.
    fn follow(&mut self, state: &NodeState, change: &ChangeSet) -> Result<usize, KernelError> {
        let Some(tables) = &mut self.tables else {
            return self.whole(state).map(|comparison| comparison.writes);
        };
        let mut transaction = Transaction::new(None);
        let mut plans = Vec::with_capacity(2);
        for wanted in tables.iter_mut() {
            let plan = plan::follow(wanted, &self.state, state, change);
            transaction.write(wanted.facts.family, &wanted.fixed, &plan);
            plans.push(plan);
        }
        let writes = self.commit(transaction, &plans)?;
        self.counts.elements = plans.iter().fold(self.counts.elements, |elements, plan| {
            (elements + plan.added.len()).saturating_sub(plan.removed.len())
        });
        Ok(writes)
    }

    /// Reads the tables and writes what differs.
    fn whole(&mut self, state: &NodeState) -> Result<Whole, KernelError> {
        /// Somebody else may change rules between reading and writing.
        const ATTEMPTS: u32 = 5;
        let mut attempt = 1;
        loop {
            let generation = self.netlink.generation()?;
            let (tables, comparisons, elements) = self.compare(state)?;
            let mut transaction = Transaction::new(Some(generation));
            for (wanted, comparison) in tables.iter().zip(&comparisons) {
                transaction.write(wanted.facts.family, &wanted.fixed, &comparison.plan);
            }
            let (differences, plans): (Vec<_>, Vec<_>) = comparisons
                .into_iter()
                .map(|one| (one.differences, one.plan))
                .unzip();
            self.generation = Some(generation);
            match self.commit(transaction, &plans) {
                Err(error) if error.is(libc::ERESTART) && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
                Ok(writes) => {
                    let abandoned = plans.iter().flat_map(Plan::abandoned);
                    self.owed.take_flows(abandoned);
                    self.outline = self.outline_of(&tables);
                    self.tables = Some(tables);
                    self.counts.elements = elements;
                    return Ok(Whole {
                        writes,
                        adopted: !plans.iter().any(|plan| plan.fresh),
                        differences: differences.concat(),
                    });
                }
            }
        }
    }

    /// What the tables look like now that they are as they should be. `None` if that cannot be told:
    /// then the next change by somebody else is looked at whatever it costs.
    fn outline_of(&mut self, tables: &[Wanted; 2]) -> Option<Outline> {
        let outline = Outline::see(&mut self.netlink, tables).ok()?;
        let generation = self.netlink.generation().ok();
        // Somebody may have been quicker. What looks right is compared when it is due.
        (generation == self.generation || outline.is_whole(tables)).then_some(outline)
    }

    /// What the tables should hold for `state`, and how they differ from it.
    fn compare(
        &mut self,
        state: &NodeState,
    ) -> Result<([Wanted; 2], Vec<Comparison>, usize), KernelError> {
        let began = Instant::now();
        let mut comparisons = Vec::with_capacity(2);
        let mut count = 0;
        let mut one = |family: IpFamily| -> Result<Wanted, KernelError> {
            let (wanted, elements): (Wanted, Elements) = Wanted::of(state, family, self.options);
            let found = read::read(&mut self.netlink, family)?;
            let waiting = self.owed.stale(family);
            let found = found.as_ref();
            comparisons.push(compare(
                found,
                &wanted,
                &elements,
                &waiting,
                &Kernel(family),
            ));
            count += elements.len();
            Ok(wanted)
        };
        let tables = [one(IpFamily::V4)?, one(IpFamily::V6)?];
        self.compared = Some((began.elapsed(), Instant::now()));
        Ok((tables, comparisons, count))
    }

    /// Does all of it, or nothing. Returns how much was written.
    fn commit(&mut self, transaction: Transaction, plans: &[Plan]) -> Result<usize, KernelError> {
        let writes = plans.iter().map(Plan::writes).sum();
        if writes > 0 {
            let (batch, confirmed) = transaction.finish();
            self.netlink.transact(&batch, confirmed)?;
            self.committed(1);
        }
        for (family, plan) in FAMILIES.into_iter().zip(plans) {
            self.owed.take(family, plan, self.opened.is_some());
        }
        self.counts.written += writes as u64;
        Ok(writes)
    }

    /// Counts transactions of our own.
    fn committed(&mut self, transactions: u32) {
        for _ in 0..transactions {
            self.generation = self.generation.map(after);
        }
    }

    fn failed(&mut self, error: &KernelError) -> SyncError {
        self.tables = None;
        self.generation = None;
        self.counts.failed += 1;
        let reason = match owner::blame(error, &mut self.netlink, &[super::TABLE]) {
            Blame::Owner(owned) => format!("{error}: {owned}"),
            Blame::Nobody => error.to_string(),
            Blame::Error => return refusal::syncing(error),
        };
        SyncError::Retry {
            reason,
            after: RETRY_AFTER,
        }
    }

    fn serving(&mut self, services: usize, adopted: bool) {
        let Some(opened) = self.opened.take() else {
            return;
        };
        tracing::info!(
            backend = self.name(),
            services,
            table = super::TABLE,
            adopted,
            elements = self.counts.elements,
            duration_ms = milliseconds(opened.elapsed()),
            "serving"
        );
    }
}

impl From<LockError> for OpenError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held(duty, holder) => duty.held_by(holder),
            LockError::Kernel(error) => refusal::opening(&error),
        }
    }
}

/// What came of writing the whole state.
struct Whole {
    writes: usize,
    adopted: bool,
    differences: Vec<Difference>,
}

/// The generation after one transaction.
const fn after(generation: u32) -> u32 {
    match generation.wrapping_add(1) {
        // The kernel leaves this one out.
        0 => 1,
        next => next,
    }
}

/// How the kernel sees objects of ours.
struct Kernel(IpFamily);

impl Encoding for Kernel {
    fn hash(&self, rule: &Rule) -> u64 {
        rule_hash(rule, self.0)
    }

    fn hook(&self, hook: Hook) -> FoundHook {
        FoundHook {
            kind: hook.kind.to_owned(),
            place: hook_number(hook.place),
            priority: hook.priority,
        }
    }
}
