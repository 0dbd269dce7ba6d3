//! The addresses of this host on their way to the owner, in the same queue as the cluster.

use std::{net::IpAddr, time::Duration};

use proxy_model::ClusterEvent;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    cluster::{Message, Update},
    host::addresses::Addresses,
    kept::keep,
};

/// How long the first list may take, which the kernel tells in milliseconds. A host that does not
/// tell starts without: the addresses of the Node object stand in.
const FIRST: Duration = Duration::from_secs(1);

/// Puts the first list into the queue, then follows in the background. Whatever is sent after
/// this returned comes after it: no NodePort is programmed for the wrong addresses first.
pub async fn follow(messages: &mpsc::Sender<Message>) {
    let mut addresses = Addresses::default();
    if let Ok(first) = timeout(FIRST, addresses.next()).await {
        // Fails only when nobody listens, as below.
        drop(messages.send(told(first)).await);
    }
    // The queue ends with its source, which this task must not hide.
    let messages = messages.downgrade();
    let mut first = Some(addresses);
    keep("interface addresses", move || {
        let addresses = first.take().unwrap_or_default();
        tell(addresses, messages.clone())
    });
}

/// Until nobody listens.
async fn tell(mut addresses: Addresses, messages: mpsc::WeakSender<Message>) {
    loop {
        let next = addresses.next().await;
        let Some(messages) = messages.upgrade() else {
            return;
        };
        if messages.send(told(next)).await.is_err() {
            return;
        }
    }
}

fn told(addresses: Vec<IpAddr>) -> Message {
    Message::Updates(vec![Update {
        event: ClusterEvent::HostAddresses(addresses),
        trigger: None,
    }])
}
