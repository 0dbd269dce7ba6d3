//! What the agent is told from outside.

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

/// Orders from signals, from now on: none is lost that comes before anybody looks.
pub fn listen() -> Result<mpsc::Receiver<Order>, RunError> {
    let listen = |kind, name| {
        signal(kind).map_err(|error| RunError::Io(format!("waiting for {name}: {error}")))
    };
    let signals = [
        (
            listen(SignalKind::terminate(), "SIGTERM")?,
            Order::Stop("SIGTERM"),
        ),
        (
            listen(SignalKind::interrupt(), "SIGINT")?,
            Order::Stop("SIGINT"),
        ),
        (listen(SignalKind::hangup(), "SIGHUP")?, Order::Repair),
    ];
    let (sender, orders) = mpsc::channel(1);
    for (signal, order) in signals {
        tokio::spawn(forward(signal, order, sender.clone()));
    }
    Ok(orders)
}

async fn forward(mut signal: Signal, order: Order, sender: mpsc::Sender<Order>) {
    while signal.recv().await.is_some() && sender.send(order).await.is_ok() {}
}
