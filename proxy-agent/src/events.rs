//! What an operator should see on an object of the cluster (`kubectl describe node`), on its way to
//! whoever can write it there. Nobody waits: what finds no room is lost, and the log has it anyway.

use proxy_model::ServiceName;
use tokio::sync::mpsc;

/// News that wait to be written.
const WAITING: usize = 64;

/// On which object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Regarding {
    /// The own node.
    Node,
    /// A Service.
    Service(ServiceName),
}

/// One piece of news. Told again with the same words, it is the same event once more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct News {
    /// On which object.
    pub regarding: Regarding,
    /// Whether somebody should do something about it.
    pub warning: bool,
    /// What happened, as one word for programs.
    pub reason: &'static str,
    /// What was done then, the same way.
    pub action: &'static str,
    /// What happened, for people.
    pub note: String,
}

/// Takes news.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Option<mpsc::Sender<News>>);

impl Recorder {
    /// One, and what comes out at the other end. [`Recorder::default`] has none.
    pub fn channel() -> (Self, mpsc::Receiver<News>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(Some(sender)), receiver)
    }

    /// This happened.
    pub fn tell(&self, news: News) {
        if let Some(sender) = &self.0 {
            // Where so much waits already, nobody reads one more.
            drop(sender.try_send(news));
        }
    }
}
