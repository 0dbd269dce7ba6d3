//! One agent at a time writes the chains of a network namespace: two would take each other's for leftovers. Who does,
//! has an abstract socket (unix(7)): that belongs to the network namespace, as the chains do, and goes with its
//! process, however that ends. A file would do for agents that see the same files only: those in containers do not.
//! Anybody may take such a name, so that only a socket of root's counts.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixListener,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, bind, connect, getsockopt,
        listen, setsockopt, shutdown, socket,
        sockopt::{PeerCredentials, SendTimeout},
    },
    sys::time::{TimeVal, TimeValLike as _},
    unistd::geteuid,
};
use proxy_backend::OpenError;

const NAME: &str = "culvert-iptables";
/// How errors call it.
const SHOWN_BY: &str = "socket @culvert-iptables";

/// As many may ask whose it is until they are let go.
const WAITING: i32 = 128;
/// Until a holder that was killed has let go.
const MOMENT: Duration = Duration::from_secs(1);
/// For one's turn among those who ask.
const TURN: i64 = 5;
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// Held for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    socket: UnixListener,
    /// Lets go of those who ask whose it is, also while the agent waits for something: otherwise there is room
    /// for a few only.
    door: Option<JoinHandle<()>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        shutdown(self.socket.as_raw_fd(), Shutdown::Both).ok();
        if let Some(door) = self.door.take() {
            door.join().ok();
        }
    }
}

/// Who has the name.
enum Holder {
    /// An agent, in words.
    Agent(String),
    /// Somebody without rights to write chains.
    Stranger(String),
    /// Somebody who does not say who it is: of so many who ask, or because it does nothing.
    Unknown(String),
}

impl Lock {
    /// Takes it if nobody has it.
    pub fn take_if_free() -> Option<Self> {
        Self::of(bound().ok()?).ok()
    }

    fn of(socket: UnixListener) -> io::Result<Self> {
        let askers = socket.try_clone()?;
        let door = thread::Builder::new().name("iptables-lock".to_owned());
        let door = door.spawn(move || open_to(&askers))?;
        Ok(Self {
            socket,
            door: Some(door),
        })
    }

    /// Takes it in the network namespace of the caller's thread; `None` if somebody has the name who has no right
    /// to it, and so locks nothing.
    pub fn take() -> Result<Option<Self>, OpenError> {
        let end = Instant::now() + MOMENT;
        loop {
            match bound() {
                Ok(socket) => {
                    let lock = Self::of(socket);
                    return lock.map(Some).map_err(|error| failed(&error));
                }
                Err(Errno::EADDRINUSE) => {}
                Err(error) => return Err(failed(&error.into())),
            }
            if Instant::now() < end {
                thread::sleep(LOOK);
                continue;
            }
            match holder() {
                Some(Holder::Agent(holder)) => return Err(held_by(holder)),
                Some(Holder::Stranger(holder) | Holder::Unknown(holder)) => {
                    let text = "a second agent on this network namespace would not be noticed";
                    tracing::warn!(holder, text, "lock of iptables taken by somebody else");
                    return Ok(None);
                }
                None => {}
            }
        }
    }
}

/// An error that names the agent that writes the chains of this network namespace, if one still does after a moment.
pub fn nobody_holds() -> Result<(), OpenError> {
    let end = Instant::now() + MOMENT;
    while has_name() && Instant::now() < end {
        thread::sleep(LOOK);
    }
    match holder() {
        // What an agent has in force is not taken away from it because others keep it from answering.
        Some(Holder::Agent(holder) | Holder::Unknown(holder)) => Err(held_by(holder)),
        Some(Holder::Stranger(_)) | None => Ok(()),
    }
}

/// Lets go of whoever asks, until the socket is shut down (`EINVAL`, accept(2)). Without descriptors for a while, it
/// goes on later.
fn open_to(askers: &UnixListener) {
    loop {
        match askers.accept() {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            Err(_) => thread::sleep(LOOK),
        }
    }
}

fn failed(error: &io::Error) -> OpenError {
    OpenError::Other(format!("making the {SHOWN_BY}: {error}"))
}

fn held_by(holder: String) -> OpenError {
    OpenError::Held {
        holder,
        does: "programs iptables",
        shown_by: SHOWN_BY,
    }
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

fn bound() -> nix::Result<UnixListener> {
    let socket = open()?;
    bind(
        socket.as_raw_fd(),
        &UnixAddr::new_abstract(NAME.as_bytes())?,
    )?;
    listen(&socket, Backlog::new(WAITING)?)?;
    Ok(socket.into())
}

/// Whoever made the socket, by the kernel's word.
fn holder() -> Option<Holder> {
    let asked = open().and_then(|socket| {
        // Any user may keep it busy: those who wait have their turn (unix(7)).
        setsockopt(&socket, SendTimeout, &TimeVal::seconds(TURN))?;
        connect(
            socket.as_raw_fd(),
            &UnixAddr::new_abstract(NAME.as_bytes())?,
        )?;
        getsockopt(&socket, PeerCredentials)
    });
    match asked {
        Ok(peer) => {
            let who = in_words(peer.pid());
            let user = peer.uid();
            Some(if user == 0 || user == geteuid().as_raw() {
                Holder::Agent(who)
            } else {
                Holder::Stranger(format!("{who} of user {user}"))
            })
        }
        // Nobody has it, or it does not listen.
        Err(Errno::ECONNREFUSED) => has_name().then(|| Holder::Stranger("somebody".to_owned())),
        Err(error) => Some(Holder::Unknown(format!("somebody ({error})"))),
    }
}

/// Whether somebody has the name, as far as can be told.
fn has_name() -> bool {
    let line = format!("@{NAME}");
    let listed = |text: String| text.lines().any(|one| one.ends_with(&line));
    fs::read_to_string("/proc/thread-self/net/unix").map_or(true, listed)
}

fn in_words(process: i32) -> String {
    if process == 0 {
        return "a process in another PID namespace".to_owned();
    }
    let name: io::Result<String> = fs::read_to_string(format!("/proc/{process}/comm"));
    let name = name.unwrap_or_default();
    format!("process {process} ({})", name.trim().escape_debug())
}
