//! Runs a program of the host to its end, or to a limit: one that hangs must not hold up whoever waits for it
//! for ever, in silence. What it has started ends with it then.
#![cfg(unix)]

use std::{
    io::{self, Read, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// Far above what saving or restoring the largest tables takes, lock included.
const LIMIT: Duration = Duration::from_mins(1);

/// What a program may print, in bytes: ten times the rules of 10,000 Services.
const MOST: u64 = 512 << 20;

/// Gives `input` to a program, and returns what it printed. It is killed at the limit, which is the
/// error `TimedOut` then.
pub fn run(command: Command, input: &[u8]) -> io::Result<Output> {
    run_within(LIMIT, command, input)
}

/// The same with another limit.
pub fn run_within(limit: Duration, mut command: Command, input: &[u8]) -> io::Result<Output> {
    ends_with_us(&mut command);
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let end = Instant::now() + limit;
    let group = Pid::from_raw(child.id().cast_signed());
    let late = || {
        // Fails where nobody of them is left.
        killpg(group, Signal::SIGKILL).ok();
        let reason = format!("it did not end within {} s", limit.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, reason)
    };
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // It says itself why it stopped reading.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let stdout = child.stdout.take().map(|from| whole(from, MOST));
    let stderr = child.stderr.take().map(|from| whole(from, MOST));
    let ended = end_of(child);
    let Ok(status) = ended.recv_timeout(limit) else {
        let late = late();
        // It is gone at once.
        drop(ended.recv());
        return Err(late);
    };
    let status = status?;
    // What it started may still hold the other ends.
    let printed = |from: Option<Receiver<Vec<u8>>>| {
        let rest = end.saturating_duration_since(Instant::now());
        from.map_or(Ok(Vec::new()), |from| {
            from.recv_timeout(rest).map_err(|_| late())
        })
    };
    Ok(Output {
        status,
        stdout: printed(stdout)?,
        stderr: printed(stderr)?,
    })
}

/// A program that outlives this process could still write what nobody wants any more, over what the next one has
/// written. The signal comes with the end of the thread, which waits for the program.
#[cfg(target_os = "linux")]
fn ends_with_us(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let set = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // It may have ended before.
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(io::Error::other("whoever wants it is gone"))
        }
    };
    #[expect(unsafe_code, reason = "what runs between fork and exec")]
    // SAFETY: two system calls, and no memory is allocated unless one fails.
    unsafe {
        command.pre_exec(set);
    }
}

#[cfg(not(target_os = "linux"))]
fn ends_with_us(_: &mut Command) {}

/// How it ends, once it has.
fn end_of(mut child: Child) -> Receiver<io::Result<ExitStatus>> {
    let (ended, ending) = channel();
    thread::spawn(move || drop(ended.send(child.wait())));
    ending
}

/// What comes out of `from`, once all has, or `most` bytes: then nobody listens any more.
fn whole(from: impl Read + Send + 'static, most: u64) -> Receiver<Vec<u8>> {
    let (read, reading) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        // What was read before an error is what there is.
        drop(from.take(most).read_to_end(&mut text));
        drop(read.send(text));
    });
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_prints_comes_back_however_much_it_is_given() {
        let input = vec![b'x'; 1 << 20];
        let output = run(shell("cat; echo of >&2; exit 3"), &input).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, input);
        assert_eq!(output.stderr, b"of\n");
    }

    #[test]
    fn whoever_prints_for_ever_is_not_listened_to_for_ever() {
        let read = whole(io::repeat(b'x'), 1_000);
        assert_eq!(read.recv(), Ok(vec![b'x'; 1_000]));
    }

    #[test]
    fn one_that_hangs_is_killed_and_so_it_is_told() {
        for script in ["trap '' TERM; while :; do sleep 1000; done", "sleep 1000 &"] {
            let limit = Duration::from_millis(100);
            let error = run_within(limit, shell(script), b"").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}");
        }
    }
}
