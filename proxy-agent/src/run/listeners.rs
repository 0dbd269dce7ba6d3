//! Where clients of the node API come in. Opened before anything else changes; nobody is told
//! anything before there is a state. One that is lost is opened again.

use std::{path::PathBuf, time::Duration};

use proxy_api::{
    Target, TlsFiles,
    server::{self, ListenError, Listener, Publisher},
};
use tokio::{select, time::sleep};

use crate::{config::Listen, kept::keep, sinks::api::ApiSink};

/// Between two attempts to open a listener again.
const AGAIN: Duration = Duration::from_secs(5);

/// One that is open, and how it was opened.
#[derive(Debug)]
pub struct Open {
    listener: Listener,
    how: How,
}

#[derive(Debug, Clone)]
struct How {
    target: Target,
    mode: u32,
    tls: Option<TlsFiles>,
    token_file: Option<PathBuf>,
}

impl How {
    async fn open(&self) -> Result<Listener, ListenError> {
        let listener = Listener::open(self.target.clone(), self.mode, self.tls.clone()).await?;
        match &self.token_file {
            Some(path) => listener.with_token(path.clone()),
            None => Ok(listener),
        }
    }
}

/// Opens all of them, or says which one cannot be opened.
pub async fn open(wanted: &Listen) -> Result<Vec<Open>, ListenError> {
    let mut listeners = Vec::new();
    for target in &wanted.targets {
        let how = How {
            target: target.clone(),
            mode: wanted.mode,
            tls: wanted.tls.clone().filter(|_| target.is_tls()),
            token_file: wanted.token_file.clone(),
        };
        let listener = how.open().await?;
        listeners.push(Open { listener, how });
    }
    Ok(listeners)
}

/// Lets clients in at all of them, until the process ends. They hear of what the sink is given.
pub fn serve(listeners: Vec<Open>, publisher: Publisher) -> ApiSink {
    for Open { listener, mut how } in listeners {
        // With the port that the system chose: clients know that one.
        how.target = listener.target();
        tracing::info!(address = %how.target, "node API");
        let publisher = publisher.clone();
        let mut first = Some(listener);
        keep("node API", move || {
            for_ever(first.take(), how.clone(), publisher.clone())
        });
    }
    ApiSink::new(publisher)
}

async fn for_ever(first: Option<Listener>, how: How, publisher: Publisher) {
    let mut next = first;
    loop {
        let listener = match next.take() {
            Some(listener) => listener,
            None => again(&how).await,
        };
        let gone = listener.gone();
        // Those who are served otherwise go on being served.
        select! {
            ended = server::serve(publisher.clone(), listener) => match ended {
                Ok(()) => tracing::error!(error = "it ended", "node API lost"),
                Err(error) => tracing::error!(%error, "node API lost"),
            },
            () = gone => {
                tracing::error!(
                    error = "another process removed its socket's file",
                    "node API lost"
                );
            }
        }
    }
}

async fn again(how: &How) -> Listener {
    let mut told = false;
    loop {
        match how.open().await {
            Ok(listener) => {
                tracing::info!(address = %how.target, "node API");
                return listener;
            }
            Err(error) if !told => {
                tracing::error!(%error, "node API not opened; trying again in the background");
                told = true;
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}
