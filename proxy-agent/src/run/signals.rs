//! What the agent is told from outside. Signals are heard on a thread of its own, which nothing else can hold up.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::channel,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use nix::sys::signal::{SigSet, Signal as Number};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
    task::yield_now,
};

use super::RunError;

/// How often the thread looks in the end for what a handler of signals has written; once is enough.
const LAST_TURNS: usize = 4;

/// What a signal asks for, or a change of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// End; the signal's name.
    Stop(&'static str),
    /// Compare the kernel with the state now.
    Repair,
    /// Compare them this often from now on.
    SyncPeriod(Duration),
    /// End, because this process is to execute itself anew, with this configuration.
    Anew(Arc<str>),
}

/// The thread that hears signals.
pub struct Hearing {
    thread: JoinHandle<()>,
    /// Ends it, when it is dropped.
    enough: oneshot::Sender<()>,
    stopped: Arc<AtomicBool>,
}

impl Hearing {
    /// Hears no more: signals wait from now on, also for what this process executes in its own place.
    /// Whether one to end came before. Other threads must have been started with signals [held](hold).
    pub fn end(self) -> bool {
        hold();
        drop(self.enough);
        // If it panicked, it heard nothing more.
        self.thread.join().ok();
        self.stopped.load(Relaxed)
    }
}

/// Signals wait from now on, but for the thread that hears them: in this one, and in those that it starts. To be called
/// before there is any. A signal that another thread takes after the last one was heard would be lost to what this
/// process executes in its own place.
pub fn hold() {
    held().thread_block().ok();
}

/// Gives `sender` the orders of signals, from now on: none is lost that comes before anybody looks.
/// `stop` is called with the name of each signal to end, whether or not anybody takes orders.
pub fn listen(
    sender: mpsc::Sender<Order>,
    stop: impl Fn(&'static str) + Send + 'static,
) -> Result<Hearing, RunError> {
    let (ready, listening) = channel();
    let (enough, ended) = oneshot::channel();
    let stopped = Arc::<AtomicBool>::default();
    let told = Arc::clone(&stopped);
    let stop = move |name| {
        told.store(true, Relaxed);
        stop(name);
    };
    let hear = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(waiting("signals", error)))),
        };
        runtime.block_on(async {
            let mut signals = match signals() {
                Ok(signals) => signals,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // Those too that waited while this process executed itself anew.
            held().thread_unblock().ok();
            drop(ready.send(Ok(())));
            let each = signals
                .iter_mut()
                .map(|(signal, order)| forward(signal, order.clone(), &stop, sender.clone()));
            select! {
                // Nobody takes orders any more; nobody said that signals should wait.
                _ = join_all(each) => return,
                _ = ended => {}
            }
            held().thread_block().ok();
            // What was caught is on its way here.
            for _ in 0..LAST_TURNS {
                yield_now().await;
            }
            for (signal, order) in &mut signals {
                if let (Order::Stop(name), Some(_)) = (order, signal.recv().now_or_never()) {
                    stop(name);
                }
            }
        });
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    let thread = thread.spawn(hear).map_err(|error| RunError::Io {
        what: "starting a thread for signals".to_owned(),
        error,
    })?;
    let ended = |_| waiting("signals", io::Error::other("the thread ended"));
    listening.recv().map_err(ended).flatten()?;
    Ok(Hearing {
        thread,
        enough,
        stopped,
    })
}

/// The signals that are heard. To block or unblock them fails for no set that there is.
fn held() -> SigSet {
    let mut held = SigSet::empty();
    for signal in [Number::SIGTERM, Number::SIGINT, Number::SIGHUP] {
        held.add(signal);
    }
    held
}

fn waiting(signals: &str, error: io::Error) -> RunError {
    RunError::Io {
        what: format!("waiting for {signals}"),
        error,
    }
}

fn signals() -> Result<[(Signal, Order); 3], RunError> {
    let listen = |kind, name| signal(kind).map_err(|error| waiting(name, error));
    Ok([
        (
            listen(SignalKind::terminate(), "SIGTERM")?,
            Order::Stop("SIGTERM"),
        ),
        (
            listen(SignalKind::interrupt(), "SIGINT")?,
            Order::Stop("SIGINT"),
        ),
        (listen(SignalKind::hangup(), "SIGHUP")?, Order::Repair),
    ])
}

async fn forward(
    signal: &mut Signal,
    order: Order,
    stop: &impl Fn(&'static str),
    sender: mpsc::Sender<Order>,
) {
    while signal.recv().await.is_some() {
        if let Order::Stop(name) = order {
            stop(name);
        }
        // Waits for an owner that is busy; one that is gone, or was never there, needs no orders.
        if sender.send(order.clone()).await.is_err() {
            return;
        }
    }
}
