//! Parts of a bench that are processes of their own: this program, started again. They are asked
//! on stdin and answer on stdout, a line of JSON each; they end when stdin does.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::time::{ClockId, clock_gettime};
use serde::{Serialize, de::DeserializeOwned};

use proxy_harness::process::Process;

/// A moment, of `CLOCK_MONOTONIC`, which all processes of a machine share.
pub(super) fn now() -> Result<Duration> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("no clock")?;
    Ok(now.into())
}

/// The side of the part: answers until there is nothing more to answer. What fails is told, and
/// the next order taken.
pub(super) fn obey<O: DeserializeOwned, A: Serialize>(
    mut answer: impl FnMut(O) -> Result<A>,
) -> Result<()> {
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read an order")?;
        let order = serde_json::from_str(&line).context("not an order")?;
        let answer = answer(order).map_err(|error| format!("{error:#}"));
        let mut line = serde_json::to_string(&answer).context("cannot encode an answer")?;
        line.push('\n');
        stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.flush())
            .context("nobody listens to answers")?;
    }
    Ok(())
}

/// A part, as the bench sees it; killed when dropped.
#[derive(Debug)]
pub(super) struct Part {
    name: &'static str,
    process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Part {
    /// Starts it.
    pub(super) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(name, command)?;
        let child = process.child();
        let orders = child.stdin.take();
        let answers = child.stdout.take();
        Ok(Self {
            name,
            orders: orders.with_context(|| format!("{name} has no stdin"))?,
            answers: BufReader::new(answers.with_context(|| format!("{name} has no stdout"))?),
            process,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> i32 {
        self.process.pid().as_raw()
    }

    /// Gives an order and waits for the answer.
    pub(super) fn ask<A: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<A> {
        let name = self.name;
        let mut line = serde_json::to_string(order).context("cannot encode an order")?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .with_context(|| format!("{name} does not listen any more"))?;
        line.clear();
        self.answers
            .read_line(&mut line)
            .with_context(|| format!("cannot read from {name}"))?;
        if line.is_empty() {
            bail!("{name} ended instead of answering");
        }
        let answer: Result<A, String> =
            serde_json::from_str(&line).with_context(|| format!("{name} said {line:?}"))?;
        answer.map_err(|problem| anyhow!("{name}: {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Part {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Part::start("a part", command).unwrap()
    }

    #[test]
    fn answers_and_failures_come_back() {
        let mut part = shell(r#"read order; echo '{"Ok":7}'; read order; echo '{"Err":"no"}'"#);
        assert_eq!(part.ask::<u32>(&"seven").unwrap(), 7);
        let refused = part.ask::<u32>(&"more").unwrap_err();
        assert_eq!(refused.to_string(), "a part: no");
    }

    #[test]
    fn a_part_that_ends_is_an_error() {
        let mut part = shell("read order");
        let error = part.ask::<u32>(&"anything").unwrap_err();
        assert_eq!(error.to_string(), "a part ended instead of answering");
    }
}
