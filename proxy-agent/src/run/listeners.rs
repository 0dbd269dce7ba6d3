//! Where clients of the node API come in. Opened before anything else changes; nobody is told
//! anything before there is a state.

use proxy_api::server::{self, ListenError, Listener, Publisher};

use crate::{config::Listen, sinks::api::ApiSink};

/// Opens all of them, or says which one cannot be opened.
pub async fn open(wanted: &Listen) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for target in &wanted.targets {
        let tls = wanted.tls.clone().filter(|_| target.is_tls());
        listeners.push(Listener::open(target.clone(), wanted.mode, tls).await?);
    }
    Ok(listeners)
}

/// Lets clients in at all of them, until the process ends. They hear of what the sink is given.
pub fn serve(listeners: Vec<Listener>, publisher: Publisher) -> ApiSink {
    for listener in listeners {
        tracing::info!(address = %listener.target(), "node API");
        let publisher = publisher.clone();
        tokio::spawn(async move {
            if let Err(error) = server::serve(publisher, listener).await {
                // Those who are served otherwise go on being served.
                tracing::error!(%error, "node API lost; restart the agent to serve it again");
            }
        });
    }
    ApiSink::new(publisher)
}
