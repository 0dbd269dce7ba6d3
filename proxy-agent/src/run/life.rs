//! The life of the process around the agent. The main thread waits for its end, for a signal, and for
//! a sign that it hangs: it does nothing else, so that none of these can be missed, whatever the
//! threads that work are caught in.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use tokio::sync::mpsc;

use super::{
    RunError,
    anew::{self, Anew},
    signals::{self, Order},
};
use crate::{
    heart::{BEAT, Heart},
    logging::{level, said},
    memory, open_files,
};

/// How long an agent that is told to stop may go on with what it is at. What is left undone is left
/// as by a crash: the next agent goes on from there.
const GRACE: Duration = Duration::from_secs(3);
/// How long tasks have to end, which removes sockets. What blocks is not waited for any longer.
const LAST_TASKS: Duration = Duration::from_secs(1);

/// What an agent is given.
#[derive(Debug)]
pub struct Handle {
    /// What it is told from outside.
    pub(super) orders: mpsc::Receiver<Order>,
    /// Where others than signals tell it.
    pub(super) tell: mpsc::Sender<Order>,
    /// Where it says what it is at.
    pub heart: Arc<Heart>,
}

/// How an agent ended that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// For good, as it was told.
    Stopped,
    /// The process is to execute itself anew, with this configuration.
    Anew(Arc<str>),
}

/// What the main thread is told.
enum Happening<E> {
    /// The agent has come to its end.
    Ended(Result<End, E>),
    /// This signal told it to.
    Stop(&'static str),
}

/// Runs `agent` until it ends or is told to. Signals are heard from the first moment on. Returns what is
/// to be executed in its place, if something is.
pub fn serve<E, F>(agent: impl FnOnce(Handle) -> F + Send + 'static) -> Result<Option<Anew>, E>
where
    E: From<RunError> + Send + 'static,
    F: Future<Output = Result<End, E>> + Send + 'static,
{
    // Before anybody has children, or there is work for threads.
    anew::reap();
    memory::few_arenas();
    open_files::allow().map_err(RunError::from)?;
    let heart = Arc::<Heart>::default();
    let (happens, happening) = channel();
    let stops = happens.clone();
    let (tell, orders) = mpsc::channel(1);
    let stop = move |signal| drop(stops.send(Happening::Stop(signal)));
    let hearing = signals::listen(tell.clone(), stop)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| RunError::Io {
            what: "starting the asynchronous runtime".to_owned(),
            error,
        })?;
    let handle = Handle {
        orders,
        tell,
        heart: Arc::clone(&heart),
    };
    runtime.spawn(async move {
        let ended = AssertUnwindSafe(async { agent(handle).await });
        let ended = ended.catch_unwind().await.unwrap_or_else(|panic| {
            let reason = said(&*panic).to_owned();
            Err(RunError::Panicked(reason).into())
        });
        drop(happens.send(Happening::Ended(ended)));
    });
    let ended = until_the_end(&heart, &happening, GRACE);
    if ended.is_none() {
        // It is still at something, and would report as an error, or a panic, that the runtime
        // refuses it. Where the level cannot be changed, it does.
        level::change("off").ok();
    }
    runtime.shutdown_timeout(LAST_TASKS);
    Ok(match ended.unwrap_or(Ok(End::Stopped))? {
        End::Stopped => None,
        End::Anew(configuration) => Some(Anew::new(hearing, configuration)),
    })
}

/// How the agent ended; `None` if it is told to stop and is not waited for.
fn until_the_end<E>(
    heart: &Heart,
    happening: &Receiver<Happening<E>>,
    grace: Duration,
) -> Option<Result<End, E>> {
    let mut hangs = Hangs::default();
    // The signal, and until when it may take.
    let mut stop: Option<(&'static str, Instant)> = None;
    loop {
        let now = Instant::now();
        let wait = match stop {
            None => BEAT,
            Some((_, end)) => BEAT.min(end.saturating_duration_since(now)),
        };
        match happening.recv_timeout(wait) {
            Ok(Happening::Ended(ended)) => return Some(ended),
            Ok(Happening::Stop(signal)) if !heart.is_live() => {
                let doing = heart.last().doing;
                tracing::info!(
                    doing,
                    "{signal}: stopping before anything is served; what is in the kernel stays"
                );
                return None;
            }
            Ok(Happening::Stop(signal)) => {
                stop.get_or_insert((signal, now + grace));
            }
            // Who could say more is gone only together with this process.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        let now = Instant::now();
        if let Some((signal, end)) = stop
            && now >= end
        {
            let doing = heart.last().doing;
            tracing::warn!(
                signal,
                doing,
                text = "the dataplane stays, and the next agent adopts it",
                "stopping without waiting any longer"
            );
            return None;
        }
        hangs.look(heart, now);
    }
}

/// Tells the log about a hang once, and its end.
#[derive(Debug, Default)]
struct Hangs {
    /// What it hangs in, and since when.
    told: Option<(&'static str, Instant)>,
}

impl Hangs {
    fn look(&mut self, heart: &Heart, now: Instant) {
        let last = heart.last();
        match self.told {
            Some((doing, since)) if since != last.since => {
                let seconds = last.since.saturating_duration_since(since).as_secs();
                tracing::info!(doing, seconds, "agent no longer hangs");
                self.told = None;
            }
            None if last.hangs(now) => {
                tracing::error!(
                    doing = last.doing,
                    seconds = last.age(now).as_secs(),
                    text = "nothing new comes into force; /livez answers 503 until it goes on",
                    "agent hangs"
                );
                self.told = Some((last.doing, last.since));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn an_agent_that_ends_by_itself_is_waited_for_after_a_signal() {
        let heart = Heart::default();
        heart.live();
        let (happens, happening) = channel();
        happens.send(Happening::Stop("SIGTERM")).unwrap();
        let ends = happens.clone();
        let ending = thread::spawn(move || drop(ends.send(Happening::Ended(Err("its own")))));
        assert_eq!(
            until_the_end(&heart, &happening, LONG),
            Some(Err("its own"))
        );
        ending.join().unwrap();
    }

    #[test]
    fn one_that_hangs_is_not_waited_for_after_a_signal() {
        let heart = Heart::default();
        heart.live();
        let (happens, happening) = channel::<Happening<()>>();
        happens.send(Happening::Stop("SIGTERM")).unwrap();
        happens.send(Happening::Stop("SIGINT")).unwrap();
        let grace = Duration::from_millis(10);
        assert_eq!(until_the_end(&heart, &happening, grace), None);
    }

    #[test]
    fn one_that_does_not_serve_yet_has_nothing_to_end() {
        let (happens, happening) = channel::<Happening<()>>();
        happens.send(Happening::Stop("SIGTERM")).unwrap();
        assert_eq!(until_the_end(&Heart::default(), &happening, LONG), None);
    }

    #[test]
    fn a_hang_is_told_once_and_so_is_its_end() {
        let (heart, mut hangs) = (Heart::default(), Hangs::default());
        heart.at("mending");
        let begun = heart.last().since;
        hangs.look(&heart, begun + LONG / 2);
        assert!(hangs.told.is_none());
        hangs.look(&heart, begun + LONG);
        assert_eq!(hangs.told, Some(("mending", begun)));
        hangs.look(&heart, begun + 2 * LONG);
        assert_eq!(hangs.told, Some(("mending", begun)));
        while heart.last().since == begun {
            heart.idle();
        }
        hangs.look(&heart, begun + 2 * LONG);
        assert!(hangs.told.is_none());
    }

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        let ended: Result<_, RunError> = serve(|_| async { panic!("as the test wants") });
        let told = ended.err().unwrap().to_string();
        assert!(told.contains("as the test wants"), "{told}");
    }
}
