//! What becomes of those who served before: the other backends of this agent, and kube-proxy. They
//! are taken away once somebody else serves, and never before the connections that they translate
//! are kept: by chains of our own at the nat hooks, which stay until none is tracked any more.
//!
//! ```text
//! serves ──> keep ──a second──> remove ──> wait for virtual servers ──> watch ──> let go
//! ```
//!
//! A thread of its own: programs of iptables and long tables of connections take their time, and the
//! owner of the state has none. What a crash leaves undone, the next start does.

mod steps;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
};

use proxy_backend::{BackendKind, Settings};

use self::steps::{Next, Steps};

/// Tells the thread who serves.
#[derive(Debug)]
pub struct Succession {
    served: Sender<Vec<BackendKind>>,
    in_use: InUse,
}

/// What there is to know of those who may have served.
#[derive(Debug, Clone)]
pub struct Predecessors {
    /// What backends are told.
    pub settings: Settings,
    /// Whether kube-proxy's rules are removed, too.
    pub take_over: bool,
}

/// Backends that are open, or being opened: nothing of theirs is removed.
#[derive(Debug, Clone, Default)]
struct InUse(Arc<Mutex<Vec<BackendKind>>>);

impl InUse {
    /// While this is held, no backend is opened.
    fn lock(&self) -> MutexGuard<'_, Vec<BackendKind>> {
        // A list stays one, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Succession {
    /// Starts the thread, in the network namespace of this one. Nothing happens before somebody
    /// serves.
    pub fn start(predecessors: Predecessors) -> io::Result<Self> {
        let (served, heard) = channel();
        let in_use = InUse::default();
        let steps = Steps::new(predecessors, in_use.clone());
        thread::Builder::new()
            .name("succession".to_owned())
            .spawn(move || follow(steps, &heard))?;
        Ok(Self { served, in_use })
    }

    /// `kind` is about to be opened. Waits while something is being removed: milliseconds, unless
    /// there are very many rules.
    pub fn spare(&self, kind: BackendKind) {
        self.in_use.lock().push(kind);
    }

    /// `kinds` have the state in force, and no others.
    pub fn serve(&self, kinds: Vec<BackendKind>) {
        self.in_use.lock().clone_from(&kinds);
        if self.served.send(kinds).is_err() {
            tracing::error!(
                text = "what served before stays in the kernel; restart the agent to remove it, \
                        and please report this with the log",
                "the thread that removes what others left is gone"
            );
        }
    }
}

/// Takes one step after the other, until the agent ends.
fn follow(mut steps: Steps, heard: &Receiver<Vec<BackendKind>>) {
    let mut next = None;
    loop {
        let served = match next {
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(Next { after, .. }) => heard.recv_timeout(after),
        };
        next = match (served, next) {
            (Ok(kinds), _) => Some(steps.begin(kinds)),
            (Err(RecvTimeoutError::Timeout), Some(Next { step, .. })) => steps.take(step),
            (Err(_), _) => return,
        };
    }
}
