//! What the agent is told from outside. Signals are heard on a thread of its own, which nothing else can hold up.

use std::{io, sync::mpsc::channel, thread, time::Duration};

use futures::future::join_all;
use nix::sys::signal::{SigSet, Signal as Number};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::RunError;

/// What a signal asks for, or a change of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End; the signal's name.
    Stop(&'static str),
    /// Compare the kernel with the state now.
    Repair,
    /// Compare them this often from now on.
    SyncPeriod(Duration),
    /// End, because this process is to execute itself anew.
    Anew,
}

/// Gives `sender` the orders of signals, from now on: none is lost that comes before anybody looks.
/// `stop` is called with the name of each signal to end, whether or not anybody takes orders.
pub fn listen(
    sender: mpsc::Sender<Order>,
    stop: impl Fn(&'static str) + Send + 'static,
) -> Result<(), RunError> {
    let (ready, listening) = channel();
    let hear = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(waiting("signals", error)))),
        };
        runtime.block_on(async {
            let signals = match signals() {
                Ok(signals) => signals,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // A process that executed itself anew holds them back until somebody hears them.
            held().thread_unblock().ok();
            drop(ready.send(Ok(())));
            let each = signals
                .into_iter()
                .map(|(signal, order)| forward(signal, order, &stop, sender.clone()));
            join_all(each).await;
        });
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(hear).map_err(|error| RunError::Io {
        what: "starting a thread for signals".to_owned(),
        error,
    })?;
    let ended = |_| waiting("signals", io::Error::other("the thread ended"));
    listening.recv().map_err(ended).flatten()
}

/// Holds back the signals that are heard here, as far as this thread is concerned: also for what this
/// process executes in its own place.
pub fn hold() {
    // It fails for no set of signals that there is.
    held().thread_block().ok();
}

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
    mut signal: Signal,
    order: Order,
    stop: &impl Fn(&'static str),
    sender: mpsc::Sender<Order>,
) {
    while signal.recv().await.is_some() {
        if let Order::Stop(name) = order {
            stop(name);
        }
        // Waits for an owner that is busy; one that is gone, or was never there, needs no orders.
        if sender.send(order).await.is_err() {
            return;
        }
    }
}
