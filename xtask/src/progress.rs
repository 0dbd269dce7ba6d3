//! Showing what is going on: a line per step, elapsed time for quiet ones, the end of the output
//! of failed ones.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a quiet step says that it is still at work.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How much of a failed quiet step's output is shown, in bytes.
const TAIL: u64 = 6_000;

/// A duration as people say it: `0.4 s`, `12 s`, `3 min 07 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    match whole {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{whole} s"),
        _ => format!("{} min {:02} s", whole / 60, whole % 60),
    }
}

/// A command as one would type it, with what it adds to the environment.
pub(crate) fn shell_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let (name, value) = (name.to_string_lossy(), quoted(&value.to_string_lossy()));
            write!(line, "{name}={value} ").expect("a String takes all text");
        }
    }
    line.push_str(&quoted(&command.get_program().to_string_lossy()));
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&quoted(&argument.to_string_lossy()));
    }
    line
}

/// A word as a shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%$".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a command that shows its own progress. Fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shell_line(command);
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command whose output is only of interest if it fails; says every ten seconds that
/// `what` is still at work.
pub(crate) fn run_quietly(what: &str, command: &mut Command) -> Result<()> {
    let line = shell_line(command);
    let started = Instant::now();
    let mut log = tempfile::tempfile().context("making a file for a command's output")?;
    let copy = |log: &File| log.try_clone().context("sharing a command's output file");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(copy(&log)?)
        .stderr(copy(&log)?)
        .spawn()
        .with_context(|| format!("starting `{line}`"))?;
    let (ended, waits) = std::sync::mpsc::channel::<()>();
    let status = thread::scope(|scope| {
        scope.spawn(move || {
            // Ends when the other end of the channel is dropped.
            while waits.recv_timeout(HEARTBEAT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("    {what}: {} so far", seconds(started.elapsed()));
            }
        });
        let status = child.wait();
        drop(ended);
        status
    });
    let status = status.with_context(|| format!("waiting for `{line}`"))?;
    if status.success() {
        return Ok(());
    }
    let length = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut tail = Vec::new();
    log.seek(SeekFrom::Start(length.saturating_sub(TAIL)))
        .and_then(|_| log.read_to_end(&mut tail))
        .with_context(|| format!("reading what `{line}` printed"))?;
    eprintln!("{}", String::from_utf8_lossy(&tail).trim_end());
    bail!("{what}: `{line}` failed ({status}); its output is above")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        assert_eq!(seconds(Duration::from_millis(430)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(59)), "59 s");
        assert_eq!(seconds(Duration::from_secs(187)), "3 min 07 s");
    }

    #[test]
    fn a_command_is_printed_as_one_would_type_it() {
        let mut command = Command::new("apt-get");
        command
            .args(["install", "two words", "it's"])
            .env("LANG", "C")
            .env_remove("RUSTC");
        assert_eq!(
            shell_line(&command),
            r"LANG=C apt-get install 'two words' 'it'\''s'"
        );
    }

    #[test]
    fn a_quiet_failure_names_the_command() {
        let said = run_quietly("listing", &mut Command::new("false"))
            .unwrap_err()
            .to_string();
        assert!(said.contains("listing: `false` failed"), "{said}");
        run_quietly("listing", &mut Command::new("true")).unwrap();
    }
}
