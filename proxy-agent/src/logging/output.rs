//! Where the lines of the log go: one after the other, on a thread that may wait for whoever reads.
//! What cannot be written is lost and counted, and told once something can be written again. Knows
//! no line's meaning.

use std::{
    io::{self, ErrorKind, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
    time::Duration,
};

use tracing_appender::non_blocking::ErrorCounter;

/// Lines that could not be written.
static NOT_WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Lines that found no room to wait in.
static NO_ROOM: OnceLock<ErrorCounter> = OnceLock::new();

/// Before a descriptor that somebody else made non-blocking is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// Lines of this process's log that nobody will ever read, so far.
pub fn lost() -> u64 {
    let no_room = NO_ROOM.get().map_or(0, ErrorCounter::dropped_lines);
    NOT_WRITTEN.load(Relaxed) + no_room as u64
}

/// Takes the counter of lines that found no room into account. Once for a process.
pub(super) fn count(no_room: ErrorCounter) {
    // A second log has lines of its own, which the first one's readers do not miss.
    drop(NO_ROOM.set(no_room));
}

/// Writes lines, each given as a whole.
pub(super) struct LogOutput<W> {
    to: W,
    /// The last line broke off.
    torn: bool,
    /// How many lost lines were told.
    told: u64,
    lost: fn() -> u64,
    /// Says that so many more lines were lost.
    tell: fn(u64),
}

impl<W: Write> LogOutput<W> {
    /// Writes to `to`, and says in the log itself what was lost.
    pub(super) fn new(to: W) -> Self {
        Self {
            to,
            torn: false,
            told: 0,
            lost,
            tell: |lines| {
                tracing::warn!(
                    lines,
                    text = "the reader of standard error was too slow, gone, or out of space",
                    "log lines lost"
                );
            },
        }
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            // What follows half of a line would be as unreadable.
            self.all(b"\n")?;
            self.torn = false;
        }
        self.all(line)
    }

    fn all(&mut self, mut rest: &[u8]) -> io::Result<()> {
        let whole = rest.len();
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(PAUSE),
                Err(error) => {
                    self.torn |= rest.len() != whole;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Never fails: whoever logs could not do anything about it.
impl<W: Write> Write for LogOutput<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.line(line).is_err() {
            NOT_WRITTEN.fetch_add(1, Relaxed);
            return Ok(line.len());
        }
        let lost = (self.lost)();
        if lost > self.told {
            (self.tell)(lost - self.told);
            self.told = lost;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static LOST: RefCell<u64> = const { RefCell::new(0) };
        static TOLD: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    /// Takes so many bytes, then fails until it has room again.
    #[derive(Default)]
    struct Disk {
        room: usize,
        holds: Vec<u8>,
        error: Option<ErrorKind>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(error) = self.error.take() {
                return Err(error.into());
            }
            if self.room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.holds.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn output(room: usize) -> LogOutput<Disk> {
        LogOutput {
            lost: || LOST.with_borrow(|lost| *lost),
            tell: |lines| TOLD.with_borrow_mut(|told| told.push(lines)),
            ..LogOutput::new(Disk {
                room,
                ..Disk::default()
            })
        }
    }

    fn told() -> Vec<u64> {
        TOLD.with_borrow_mut(std::mem::take)
    }

    #[test]
    fn a_line_that_breaks_off_spoils_no_other_and_does_no_harm() {
        let mut output = output(6);
        let before = NOT_WRITTEN.load(Relaxed);
        for _ in 0..2 {
            // The log never hears of an error, and goes on.
            assert_eq!(output.write(b"first line\n").unwrap(), 11);
        }
        assert!(NOT_WRITTEN.load(Relaxed) >= before + 2);
        output.to.room = 100;
        output.write_all(b"second\n").unwrap();
        output.write_all(b"third\n").unwrap();
        assert_eq!(output.to.holds, b"first \nsecond\nthird\n");
    }

    #[test]
    fn what_was_lost_is_told_once_and_not_before_something_can_be_written() {
        let mut output = output(0);
        LOST.set(3);
        output.write_all(b"lost too\n").unwrap();
        assert_eq!(told(), [0; 0]);
        output.to.room = 100;
        output.write_all(b"one\n").unwrap();
        output.write_all(b"two\n").unwrap();
        assert_eq!(told(), [3]);
        LOST.set(5);
        output.write_all(b"three\n").unwrap();
        assert_eq!(told(), [2]);
    }

    #[test]
    fn interrupted_or_not_ready_is_no_reason_to_lose_a_line() {
        let mut output = output(100);
        for error in [ErrorKind::Interrupted, ErrorKind::WouldBlock] {
            output.to.error = Some(error);
            output.write_all(b"line\n").unwrap();
        }
        assert_eq!(output.to.holds, b"line\nline\n");
    }
}
