//! The steps, one at a time. Each says what comes next, and when.

use std::time::{Duration, Instant};

use proxy_backend::{BackendKind, Host, Keeper, KeeperError, Retired};
use proxy_conntrack as conntrack;

use super::{InUse, Predecessors};
use crate::{
    backends,
    leftovers::{self, Leftover},
};

/// Who called `connect` before somebody else led it, and whose first packet has not come by yet,
/// still needs the rules. That is a matter of microseconds, unless the machine is very busy.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Until what failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// Between two looks at virtual servers that have connections.
const BUSY: Duration = Duration::from_secs(5);
/// Between two looks at the connections that are kept, at least.
const WATCH: Duration = Duration::from_secs(5);
/// A look takes at most this part of the time: a table of connections may have millions.
const SHARE: u32 = 100;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Keep what others translate, if there are others.
    Keep,
    /// Take them away.
    Remove,
    /// Take virtual servers away that have no connections any more.
    RemoveIdle,
    /// Let go of the connections that are kept, if there are none any more.
    LetGo,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    /// Which.
    pub(super) step: Step,
    /// When.
    pub(super) after: Duration,
}

impl Step {
    const fn after(self, after: Duration) -> Next {
        Next { step: self, after }
    }
}

/// Who does them.
pub(super) struct Steps {
    predecessors: Predecessors,
    in_use: InUse,
    /// None until they do.
    serving: Vec<BackendKind>,
    /// What kept the last step from being done, as far as the log was told.
    obstacle: Option<String>,
    /// Places that could not be searched may still hold rules of kube-proxy.
    unseen: bool,
    keeper: Box<dyn Keeper>,
    /// Backends of which open connections need what they left.
    needed: Vec<BackendKind>,
    /// The log was told of programs on the socket hooks.
    told_hooks: bool,
    /// Connections of others are kept: what keeps them is put back if somebody removes it.
    keeping: bool,
}

impl Steps {
    pub(super) fn new(predecessors: Predecessors, in_use: InUse) -> Self {
        Self {
            predecessors,
            in_use,
            serving: Vec::new(),
            obstacle: None,
            unseen: false,
            needed: Vec::new(),
            keeper: hosts()
                .find_map(|(_, host)| host.keeper())
                .unwrap_or_else(|| Box::new(NoHooks)),
            told_hooks: false,
            keeping: false,
        }
    }

    /// `kinds` serve from now on.
    pub(super) fn begin(&mut self, kinds: Vec<BackendKind>) -> Next {
        self.serving = kinds;
        self.obstacle = None;
        self.told_hooks = false;
        Step::Keep.after(Duration::ZERO)
    }

    /// Does what is to be done. `None`: nothing more, until another backend serves.
    pub(super) fn take(&mut self, step: Step) -> Option<Next> {
        match step {
            Step::Keep => Some(self.keep()),
            Step::Remove => Some(self.remove()),
            Step::RemoveIdle => Some(self.remove_idle()),
            Step::LetGo => self.let_go(),
        }
    }

    fn keep(&mut self) -> Next {
        let found = leftovers::find();
        for problem in &found.problems {
            // Asked to remove it, whoever asked must know.
            if self.predecessors.take_over {
                tracing::warn!(problem, "kube-proxy's rules not looked for everywhere");
            } else {
                tracing::debug!(problem, "kube-proxy's rules not looked for everywhere");
            }
        }
        for kept in found.kept.iter().filter(|_| self.predecessors.take_over) {
            tracing::warn!(
                kept,
                text = "these chains stay; only KUBE-MARK-MASQ and KUBE-POSTROUTING, which masquerade \
                        what is marked, do anything",
                "chains of kube-proxy stay for rules of others"
            );
        }
        let of_kube_proxy = !found.leftovers.is_empty();
        let settings = &self.predecessors.settings;
        let of_ours = self.others().any(|(_, host)| host.left_something(settings));
        if of_kube_proxy && !self.predecessors.take_over && self.obstacle.is_none() {
            tracing::warn!(
                found = listed(&found.leftovers),
                text = "they redirect connections to endpoints as kube-proxy last saw them; stop \
                        kube-proxy, and start this agent with --take-over to remove them",
                "kube-proxy's rules are in force"
            );
        }
        let had = self.keeper.is_there();
        // What an earlier run kept is this one's to keep now.
        if of_kube_proxy || of_ours || !matches!(had, Ok(false)) {
            let kept = had.and_then(|had| Ok((had, self.keeper.keep()?)));
            self.keeping = kept.as_ref().is_ok_and(|(_, keeps)| *keeps);
            match kept {
                Err(error) => return self.put_off(Step::Keep, &error),
                Ok((false, true)) => tracing::info!(
                    table = self.keeper.table(),
                    text = "this table redirects nothing; it stays until none of these connections \
                            is left",
                    "connections that others translate are kept"
                ),
                Ok(_) => {}
            }
        }
        let may_remove = of_ours || (of_kube_proxy && self.predecessors.take_over);
        if may_remove {
            return Step::Remove.after(UNDER_WAY);
        }
        Step::LetGo.after(if of_kube_proxy { WATCH } else { Duration::ZERO })
    }

    fn remove(&mut self) -> Next {
        self.retire_others();
        if !self.predecessors.take_over {
            return Step::LetGo.after(WATCH);
        }
        // What was found a second ago may have changed since.
        let found = leftovers::find();
        self.unseen = !found.problems.is_empty();
        self.remove_leftovers(Step::Remove, &found)
    }

    fn remove_idle(&mut self) -> Next {
        self.remove_leftovers(Step::RemoveIdle, &leftovers::find_again())
    }

    fn remove_leftovers(&mut self, step: Step, found: &leftovers::Found) -> Next {
        let removed = leftovers::remove(found);
        for leftover in &removed.removed {
            tracing::info!(what = %leftover, "removed what kube-proxy left");
        }
        if !removed.problems.is_empty() {
            let told = removed.problems.join("; ");
            if self.obstacle.as_ref() != Some(&told) {
                for problem in &removed.problems {
                    tracing::error!(
                        problem,
                        text = "it may still lead connections to endpoints as kube-proxy last saw \
                                them; tried again until it is gone",
                        "what kube-proxy left is not removed"
                    );
                }
                self.obstacle = Some(told);
            }
            return step.after(AGAIN);
        }
        let waiting = listed(&removed.waiting);
        if waiting.is_empty() {
            // The log has told of them.
            if !self.unseen {
                tracing::info!("kube-proxy's place is taken");
            }
            return Step::LetGo.after(WATCH);
        }
        if self.obstacle.as_ref() != Some(&waiting) {
            tracing::info!(
                waiting,
                text = "removed when their last connection has ended",
                "what kube-proxy left is in use"
            );
            self.obstacle = Some(waiting);
        }
        Step::RemoveIdle.after(BUSY)
    }

    /// Where rules serve, sockets may be led elsewhere before: by what another agent left in a place
    /// that this one does not know, or by somebody else's load balancer.
    fn look_at_hooks(&mut self) {
        if std::mem::replace(&mut self.told_hooks, true) {
            return;
        }
        for (_, host) in self.others() {
            host.tell_of_others(&self.predecessors.settings);
        }
    }

    fn let_go(&mut self) -> Option<Next> {
        self.look_at_hooks();
        if !self.needed.is_empty() {
            self.retire_others();
        }
        let next = self.let_go_of_translated();
        // Nothing else is to be done, but for what is in use.
        next.or_else(|| (!self.needed.is_empty()).then_some(Step::LetGo.after(BUSY)))
    }

    fn let_go_of_translated(&mut self) -> Option<Next> {
        match self.keeper.is_there() {
            Ok(false) if !self.keeping => return None,
            // Its own chains keep them.
            Ok(_) if self.serves_by_translating() => {}
            Ok(there) => {
                // As with `nft flush ruleset`: who says nothing meanwhile misses nothing.
                if !there && let Err(error) = self.keeper.keep() {
                    return Some(self.put_off(Step::LetGo, &error));
                }
                self.keeping = true;
                let began = Instant::now();
                match conntrack::dnat_flows() {
                    Ok(0) => {}
                    Ok(_) => {
                        let rest = began.elapsed() * SHARE;
                        return Some(Step::LetGo.after(rest.max(WATCH)));
                    }
                    Err(error) => return Some(self.put_off(Step::LetGo, &error)),
                }
            }
            Err(error) => return Some(self.put_off(Step::LetGo, &error)),
        }
        match self.keeper.let_go() {
            Ok(false) => Some(Step::LetGo.after(WATCH)),
            Ok(true) => {
                self.keeping = false;
                tracing::info!(
                    table = self.keeper.table(),
                    "tables for connections that others translated are no longer needed"
                );
                None
            }
            Err(error) => Some(self.put_off(Step::LetGo, &error)),
        }
    }

    /// Backends that do not serve.
    fn others(&self) -> impl Iterator<Item = (BackendKind, &'static dyn Host)> {
        hosts().filter(|(kind, _)| !self.serving.contains(kind))
    }

    /// Whether rules of a backend that serves keep the kernel translating.
    fn serves_by_translating(&self) -> bool {
        let mut hosts = self.serving.iter().filter_map(|kind| kind.host());
        hosts.any(Host::translates)
    }

    /// Takes away what backends that do not serve left on this host, as far as nobody needs it.
    fn retire_others(&mut self) {
        let told = std::mem::take(&mut self.needed);
        let others: Vec<_> = self.others().collect();
        for (kind, host) in others {
            if self.retire(kind, host, told.contains(&kind)) {
                self.needed.push(kind);
            }
        }
    }

    /// Takes away what `kind` left. Whether open connections need it; `told`: the log knows that.
    fn retire(&self, kind: BackendKind, host: &dyn Host, told: bool) -> bool {
        let settings = &self.predecessors.settings;
        let in_use = self.in_use.lock();
        if in_use.contains(&kind) || !host.left_something(settings) {
            return false;
        }
        match host.retire(settings) {
            Ok(Retired::Nothing) => {}
            Ok(Retired::Removed(what)) => tracing::info!(
                backend = kind.name(),
                text = what,
                "what another backend left is removed"
            ),
            Ok(Retired::Needed(what)) => {
                if !told {
                    tracing::info!(
                        backend = kind.name(),
                        text = what,
                        "what another backend left is in use; removed when its last connection has \
                         ended"
                    );
                }
                return true;
            }
            Err(error) => tracing::error!(
                backend = kind.name(),
                error = error.to_string(),
                text = "it still redirects to endpoints as they were: run `proxy-agent cleanup` as \
                        root where the host's BPF file system is mounted, and restart this agent",
                "what another backend left is not removed"
            ),
        }
        false
    }

    /// Tells the log once why a step has to wait.
    fn put_off(&mut self, step: Step, error: &dyn std::error::Error) -> Next {
        let told = error.to_string();
        if self.obstacle.as_ref() != Some(&told) {
            tracing::error!(
                error = told,
                text = "what served before stays until then, and so do its connections; retried",
                "what others left is not removed yet"
            );
            self.obstacle = Some(told);
        }
        step.after(AGAIN)
    }
}

/// The backends that this host could have.
fn hosts() -> impl Iterator<Item = (BackendKind, &'static dyn Host)> {
    let all = backends::ALL.iter();
    all.filter_map(|kind| Some((*kind, kind.host()?)))
}

/// Of a program without a backend that has hooks at the kernel's translation: nothing of its own ever
/// translated.
struct NoHooks;

impl Keeper for NoHooks {
    fn table(&self) -> &'static str {
        ""
    }

    fn is_there(&self) -> Result<bool, KeeperError> {
        Ok(false)
    }

    fn keep(&mut self) -> Result<bool, KeeperError> {
        Ok(false)
    }

    fn let_go(&mut self) -> Result<bool, KeeperError> {
        Ok(true)
    }
}

fn listed(leftovers: &[Leftover]) -> String {
    let what: Vec<_> = leftovers.iter().map(ToString::to_string).collect();
    what.join(", ")
}
