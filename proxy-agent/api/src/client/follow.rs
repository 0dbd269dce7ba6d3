//! Follows a brain for as long as it takes: connects, resumes where it was, and waits in between.

use std::time::Duration;

use proxy_model::Backoff;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Streaming;

use super::{
    Client, ClientError, ClientOptions,
    backoff::{backoff, random},
    gather::Gathering,
};
use crate::{Batch, Report, Token, wire};

/// Until a brain has taken the call. What it has to tell may take longer.
const ANSWER: Duration = Duration::from_secs(20);

/// Keeps up with a brain.
///
/// It returns whole batches only: what a broken connection left incomplete is dropped, and sent
/// again. After an interruption it resumes from the last batch that it returned; if the brain
/// cannot (because it is another one, or too much has changed), the next batch is a reset.
#[derive(Debug)]
pub struct Follower {
    options: ClientOptions,
    token: Option<Token>,
    connection: Option<Connection>,
    backoff: Backoff,
    /// Not before this moment is another connection tried.
    rest: Option<Instant>,
    /// Why there is no connection, as far as it was told.
    told: Option<String>,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    operations: Streaming<wire::Operation>,
    gathering: Gathering,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The brain accepted this client. The next batch may take a while: a brain that does not know
    /// its cluster yet sends nothing. One that does sends its position at once, with an empty batch
    /// if nothing has changed.
    Connected,
    /// The state changed.
    Batch(Batch),
    /// The brain is not reachable, for another reason than before. The last state stays valid, as
    /// the best that is known.
    Lost(ClientError),
}

impl Follower {
    /// A follower that connects when it is asked for the first event. `resume`: the state that the
    /// caller already has.
    pub fn new(options: ClientOptions, resume: Option<Token>) -> Self {
        Self {
            options,
            token: resume,
            connection: None,
            backoff: backoff(),
            rest: None,
            told: None,
        }
    }

    /// Waits for what happens next. May be dropped at any time, and called again: nothing is lost.
    pub async fn next(&mut self) -> Event {
        loop {
            let Some(connection) = &mut self.connection else {
                match self.connect().await {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        self.told = None;
                        return Event::Connected;
                    }
                    Err(error) => {
                        if let Some(event) = self.lost(error) {
                            return event;
                        }
                        continue;
                    }
                }
            };
            match connection.next().await {
                Ok(batch) => {
                    // Only now: a brain that accepts everybody and tells nothing is no success.
                    self.backoff.reset();
                    self.token = Some(batch.token);
                    return Event::Batch(batch);
                }
                Err(error) => {
                    self.connection = None;
                    if matches!(error, ClientError::Nonsense(_)) {
                        // It may be about what it believes this client to have.
                        self.token = None;
                    }
                    if let Some(event) = self.lost(error) {
                        return event;
                    }
                }
            }
        }
    }

    /// Forgets what was returned: the next batch is a reset.
    pub fn restart(&mut self) {
        self.token = None;
        self.connection = None;
    }

    /// Reports to the brain what became of the state. Fails if there is no connection: there will
    /// be another occasion once there is.
    pub async fn report(&self, report: &Report) -> Result<(), ClientError> {
        match self.reporter() {
            Some(client) => client.report(report).await,
            None => Err(ClientError::Ended),
        }
    }

    /// The connection, for reports beside the stream; `None` while there is none.
    pub fn reporter(&self) -> Option<Client> {
        self.connection.as_ref().map(|one| one.client.clone())
    }

    async fn connect(&mut self) -> Result<Connection, ClientError> {
        if let Some(rest) = self.rest {
            sleep_until(rest).await;
        }
        self.rest = None;
        let client = Client::connect(&self.options).await?;
        let watching = timeout(ANSWER, client.watch(self.token)).await;
        let operations = watching.map_err(|_| ClientError::Unanswered(ANSWER.as_secs()))??;
        Ok(Connection {
            client,
            operations,
            gathering: Gathering::of_watch(self.token.is_some()),
        })
    }

    fn lost(&mut self, error: ClientError) -> Option<Event> {
        self.rest = Some(Instant::now() + self.backoff.failed_by_chance(random()));
        let reason = error.to_string();
        if self.told.as_ref() == Some(&reason) {
            return None;
        }
        self.told = Some(reason);
        Some(Event::Lost(error))
    }
}

impl Connection {
    async fn next(&mut self) -> Result<Batch, ClientError> {
        loop {
            let operation = self.operations.message().await?;
            let operation = operation.ok_or(ClientError::Ended)?;
            if let Some(batch) = self.gathering.take(operation)? {
                return Ok(batch);
            }
        }
    }
}
