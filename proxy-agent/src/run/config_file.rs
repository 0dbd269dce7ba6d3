//! The configuration file while the agent serves: read again when it changes, and brought into force. One
//! that cannot be used changes nothing.
//!
//! ```text
//! file ──> read ──> what differs ──> live ──> owner, log
//!                                └─> dry run ──> the process executes itself anew
//! ```

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::block_in_place,
    time::{sleep, timeout},
};

use super::{
    anew, dry_run,
    reload::{self, Change, Configuration, Live},
    signals::Order,
};
use crate::{
    config::ConfigError,
    events::{News, Recorder, Regarding},
    file::read_regular,
    kept::keep,
    logging::{level, list},
    serving::Serving,
    watch::{Watch, watch},
};

/// How often the file is looked at although nothing tells of a change: the kernel does not tell of one
/// behind a link further up in the path, and a start that was not possible may be.
const LOOK: Duration = Duration::from_mins(1);
/// How often where nothing tells of a change.
const UNWATCHED: Duration = Duration::from_secs(1);
/// How long a text must stay to be taken for a whole one: who writes into the file empties it first.
const SETTLED: Duration = Duration::from_millis(50);
/// How often that is waited for. Of a file that changes all the time, what it holds then is told.
const TIMES: usize = 10;
/// Bytes that are compared. More is no configuration, and refused whatever follows.
const MOST: u64 = 1 << 20;

/// Checks a text of the file, with the same flags.
type Read = dyn Fn(&str) -> Result<Configuration, ConfigError> + Send + Sync;

/// The file that a configuration was read of.
pub struct ConfigFile {
    path: PathBuf,
    read: Box<Read>,
}

impl ConfigFile {
    /// The file at `path`. `read` is what was done with its text at the start.
    pub fn new(
        path: PathBuf,
        read: impl Fn(&str) -> Result<Configuration, ConfigError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            read: Box::new(read),
        }
    }

    /// What it holds; as text, why it cannot be read.
    fn text(&self) -> Result<String, String> {
        // A pipe would be waited for, and is empty once it was read.
        let read = read_regular(&self.path, MOST);
        read.map_err(|error| format!("--config {}: {error}", self.path.display()))
    }
}

/// Whoever has to do with a change.
#[derive(Clone)]
pub struct Concerned {
    /// The owner of the state.
    pub owner: mpsc::Sender<Order>,
    /// Shows what is in force, and counts.
    pub serving: Arc<Serving>,
    /// Tells operators.
    pub events: Recorder,
}

/// Follows the file, if there is one, in the background until the process ends. With it comes what it
/// held at the start, which is in force.
pub fn follow(file: Option<(ConfigFile, Configuration)>, concerned: Concerned) {
    let Some((file, in_force)) = file else {
        return;
    };
    concerned.serving.metrics.reloads.restarted(anew::times());
    // One that is not there may come back.
    if fs::metadata(&file.path).is_ok_and(|found| !found.is_file()) {
        tracing::info!(
            file = %file.path.display(),
            text = "it is no regular file, and can be read once only: start the agent again to change \
                    its configuration",
            "configuration file not watched"
        );
        return;
    }
    let file = Arc::new(file);
    keep("configuration file", move || {
        let follower = Follower {
            file: Arc::clone(&file),
            in_force: in_force.clone(),
            concerned: concerned.clone(),
            seen: None,
            refused: Vec::new(),
            waits: false,
        };
        follower.run()
    });
}

/// What `read` gives, as soon as it is what was `seen`, or stays for a moment.
async fn settled<T: PartialEq>(seen: Option<&T>, mut read: impl FnMut() -> T) -> T {
    let mut found = read();
    for _ in 0..TIMES {
        if seen == Some(&found) {
            break;
        }
        sleep(SETTLED).await;
        let last = std::mem::replace(&mut found, read());
        if last == found {
            break;
        }
    }
    found
}

/// Looks at the file, and remembers what became of it.
struct Follower {
    file: Arc<ConfigFile>,
    in_force: Configuration,
    concerned: Concerned,
    /// What the file held when it was last looked at.
    seen: Option<Result<String, String>>,
    /// Why that is not in force, as far as it was told.
    refused: Vec<String>,
    /// Whether it only waits for a start that is possible.
    waits: bool,
}

impl Follower {
    async fn run(mut self) {
        let mut told = false;
        let mut changes = self.watch(&mut told);
        // What changed since the start read it is found by the first look.
        while !self.look().await {
            if let Some(changes) = &mut changes {
                timeout(LOOK, changes.changed()).await.ok();
            } else {
                sleep(UNWATCHED).await;
                changes = self.watch(&mut told);
            }
        }
    }

    /// Tells what keeps it from being watched, once.
    fn watch(&self, told: &mut bool) -> Option<Watch> {
        watch(std::slice::from_ref(&self.file.path))
            .map_err(|error| {
                if !std::mem::replace(told, true) {
                    tracing::warn!(
                        file = %self.file.path.display(),
                        %error,
                        text = "it is read once a second meanwhile",
                        "configuration file not watched"
                    );
                }
            })
            .ok()
    }

    /// Brings what is new into force. Whether the process is about to execute itself anew.
    async fn look(&mut self) -> bool {
        let text = settled(self.seen.as_ref(), || block_in_place(|| self.file.text())).await;
        let is_first = self.seen.is_none();
        let is_news = self.seen.as_ref() != Some(&text);
        if !is_news && !self.waits {
            return false;
        }
        self.waits = false;
        self.seen = Some(text.clone());
        let read = |text: String| match block_in_place(|| (self.file.read)(&text)) {
            Ok(wanted) => Ok((text, wanted)),
            Err(error) => Err(error.mistakes),
        };
        let (text, wanted) = match text.map_err(|error| vec![error]).and_then(read) {
            Ok(read) => read,
            Err(mistakes) => {
                self.refuse(mistakes, is_news);
                return false;
            }
        };
        match reload::change(&self.in_force, &wanted) {
            Change::Nothing => {
                if !is_first {
                    tracing::info!("configuration unchanged");
                }
                self.accept();
                false
            }
            Change::Live(live) => {
                self.apply(&live, wanted).await;
                false
            }
            Change::Anew => self.execute_anew(text, &wanted, is_news).await,
        }
    }

    async fn apply(&mut self, live: &Live, wanted: Configuration) {
        let changed = reload::differences(&self.in_force, &wanted);
        tracing::info!(changed = %list(changed), "configuration applied");
        if let Some(period) = live.sync_period {
            // One that is gone needs no order.
            self.concerned
                .owner
                .send(Order::SyncPeriod(period))
                .await
                .ok();
        }
        let agent = wanted.agent();
        let known = &self.in_force.agent().warnings;
        for warning in agent.warnings.iter().filter(|one| !known.contains(one)) {
            tracing::warn!(text = warning, "configuration");
        }
        let serving = &self.concerned.serving;
        serving.configured(agent.serving.configuration.clone());
        serving.metrics.reloads.applied();
        if let Some(verbosity) = live.verbosity {
            let level = match verbosity {
                0 => level::DEFAULT.to_owned(),
                verbosity => verbosity.to_string(),
            };
            // Only a log of somebody else's cannot be changed.
            level::change(&level).ok();
        }
        self.in_force = wanted;
        self.accept();
    }

    async fn execute_anew(&mut self, text: String, wanted: &Configuration, is_news: bool) -> bool {
        if let Err(reason) = dry_run::start(&self.in_force, wanted) {
            self.waits = true;
            self.refuse(vec![reason], is_news);
            return false;
        }
        let changed = reload::differences(&self.in_force, wanted);
        tracing::info!(
            changed = %list(changed),
            text = "what is in the kernel stays in force, and is adopted",
            "configuration changed; the process executes itself anew"
        );
        self.concerned
            .owner
            .send(Order::Anew(text.into()))
            .await
            .ok();
        true
    }

    /// The file is what is in force.
    fn accept(&mut self) {
        self.concerned.serving.metrics.reloads.in_force(true);
        if !std::mem::take(&mut self.refused).is_empty() {
            let note = "the configuration file is in force again".to_owned();
            self.tell(false, "ConfigurationAccepted", note);
        }
    }

    /// Nothing changes. Told again only if there is something new to it.
    fn refuse(&mut self, mistakes: Vec<String>, is_news: bool) {
        if !is_news && self.refused == mistakes {
            return;
        }
        let text = if self.waits {
            "what was in force stays so; it is tried again each minute, and when the file changes"
        } else {
            "what was in force stays so; correct the file, and it is read again"
        };
        tracing::error!(mistakes = %list(&mistakes), text, "configuration refused");
        self.concerned.serving.metrics.reloads.refused();
        let note = format!(
            "the changed configuration file is not in force: {}",
            mistakes.join("; ")
        );
        self.tell(true, "ConfigurationRefused", note);
        self.refused = mistakes;
    }

    fn tell(&self, warning: bool, reason: &'static str, note: String) {
        self.concerned.events.tell(News {
            regarding: Regarding::Node,
            warning,
            reason,
            action: "Reload",
            note,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(seen: Option<&'static str>, texts: &[&'static str]) -> (&'static str, usize) {
        let mut times = 0;
        let found = settled(seen.as_ref(), || {
            times += 1;
            texts[(times - 1).min(texts.len() - 1)]
        });
        (found.await, times)
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_read_once_it_is_whole() {
        assert_eq!(
            found(Some("old"), &["", "half", "whole"]).await,
            ("whole", 4)
        );
        assert_eq!(found(None, &["", "whole"]).await, ("whole", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_the_old_one_again_is_not_waited_for() {
        assert_eq!(found(Some("old"), &["old"]).await, ("old", 1));
        assert_eq!(found(Some("old"), &["", "old"]).await, ("old", 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_changes_all_the_time_is_told_in_the_end() {
        let mut times = 0;
        let read = || {
            times += 1;
            times
        };
        assert_eq!(settled(None, read).await, 11);
    }
}
