//! Follows the agent's JSON log.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::Value;

/// One line of the log.
#[derive(Debug, Clone)]
pub struct LogLine {
    /// The line as it was written.
    pub raw: String,
    /// The line as JSON; null if it is not (a panic, or a message of the command line parser).
    json: Value,
}

impl LogLine {
    fn new(raw: String) -> Self {
        let json = serde_json::from_str(&raw).unwrap_or(Value::Null);
        Self { raw, json }
    }

    /// What happened: `serving`, `synced`, …
    pub fn message(&self) -> Option<&str> {
        self.text("message")
    }

    /// `INFO`, `WARN`, `ERROR`, …
    pub fn level(&self) -> Option<&str> {
        self.json["level"].as_str()
    }

    /// A field that is text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.json["fields"][field].as_str()
    }

    /// A field that is a list of texts.
    pub fn list(&self, field: &str) -> Option<Vec<&str>> {
        let list = self.json["fields"][field].as_array()?;
        list.iter().map(Value::as_str).collect()
    }

    /// A field that is a whole number.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.json["fields"][field].as_u64()
    }

    /// A field that is a number, perhaps with a fraction (`duration_ms`).
    pub fn decimal(&self, field: &str) -> Option<f64> {
        self.json["fields"][field].as_f64()
    }

    /// A field that is true or false.
    pub fn flag(&self, field: &str) -> Option<bool> {
        self.json["fields"][field].as_bool()
    }
}

/// A log that a thread reads as it is written.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<LogLine>>>,
    fresh: mpsc::Receiver<LogLine>,
}

impl Log {
    pub(crate) fn follow(source: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (sender, fresh) = mpsc::channel();
        let all = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(source).lines().map_while(Result::ok) {
                let line = LogLine::new(line);
                locked(&all).push(line.clone());
                // Nobody may be waiting any more; the log must still be read to its end.
                sender.send(line).ok();
            }
        });
        Self { lines, fresh }
    }

    pub(crate) fn so_far(&self) -> Vec<LogLine> {
        locked(&self.lines).clone()
    }

    /// The last lines, for messages.
    pub(crate) fn tail(&self) -> String {
        let lines = locked(&self.lines);
        let last = lines.iter().skip(lines.len().saturating_sub(20));
        last.map(|line| line.raw.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub(crate) fn wait_for(
        &mut self,
        what: &str,
        wanted: impl Fn(&LogLine) -> bool,
        limit: Duration,
    ) -> Result<LogLine> {
        let deadline = Instant::now() + limit;
        loop {
            match self
                .fresh
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) if wanted(&line) => return Ok(line),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    bail!(
                        "the agent did not say {what:?} in {limit:?}; its log:\n{}",
                        self.tail()
                    )
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    bail!(
                        "the agent ended and never said {what:?}; its log:\n{}",
                        self.tail()
                    )
                }
            }
        }
    }

    /// Waits until the writer has closed the log.
    pub(crate) fn wait_for_end(&mut self) {
        while self.fresh.recv().is_ok() {}
    }
}

fn locked(lines: &Mutex<Vec<LogLine>>) -> MutexGuard<'_, Vec<LogLine>> {
    // The list is whole after any panic: a push either happened or did not.
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_and_an_early_end_is_told() {
        let text = "not json\n\
            {\"level\":\"INFO\",\"fields\":{\"message\":\"serving\",\"services\":3,\"adopted\":true}}\n\
            {\"level\":\"INFO\",\"fields\":{\"message\":\"bye\"}}\n";
        let mut log = Log::follow(text.as_bytes());
        let mut wait_for = |message: &str| {
            let wanted = |line: &LogLine| line.message() == Some(message);
            log.wait_for(message, wanted, Duration::from_secs(5))
        };
        let line = wait_for("serving").unwrap();
        assert_eq!(line.number("services"), Some(3));
        assert_eq!(line.flag("adopted"), Some(true));
        assert_eq!(line.level(), Some("INFO"));
        let error = wait_for("synced").unwrap_err().to_string();
        assert!(
            error.contains("never said \"synced\"") && error.contains("bye"),
            "{error}"
        );
    }
}
