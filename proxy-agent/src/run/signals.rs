//! What the agent is told from outside. Heard on a thread of its own, which nothing else can hold up.

use std::{io, sync::mpsc::channel, thread};

use futures::future::join_all;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use super::RunError;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End; the signal's name.
    Stop(&'static str),
    /// Compare the kernel with the state now.
    Repair,
}

/// Orders from signals, from now on: none is lost that comes before anybody looks. `stop` is called
/// with the name of each signal to end, whether or not anybody takes orders.
pub fn listen(
    stop: impl Fn(&'static str) + Send + 'static,
) -> Result<mpsc::Receiver<Order>, RunError> {
    let (sender, orders) = mpsc::channel(1);
    let (ready, listening) = channel();
    let hear = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(format!("waiting for signals: {error}")))),
        };
        runtime.block_on(async {
            let signals = match signals() {
                Ok(signals) => signals,
                Err(reason) => return drop(ready.send(Err(reason))),
            };
            drop(ready.send(Ok(())));
            let each = signals
                .into_iter()
                .map(|(signal, order)| forward(signal, order, &stop, sender.clone()));
            join_all(each).await;
        });
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    let started = thread.spawn(hear).map(drop);
    let listening = started
        .map_err(|error| format!("starting a thread for signals: {error}"))
        .and_then(|()| {
            let ended = |_| "waiting for signals: the thread ended".to_owned();
            listening.recv().map_err(ended).flatten()
        });
    listening.map_err(RunError::Io)?;
    Ok(orders)
}

fn signals() -> Result<[(Signal, Order); 3], String> {
    let listen = |kind, name| {
        let waiting = |error: io::Error| format!("waiting for {name}: {error}");
        signal(kind).map_err(waiting)
    };
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
