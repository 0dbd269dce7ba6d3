//! The two processes that a bench runs in the world: one that sends, one that answers. Both are
//! this program itself, started again with another subcommand.
//!
//! They speak JSON, a line each; like `culvert-pod`, which is not used because it is made to see
//! everything and not to be quick.

use std::{
    collections::HashMap,
    io::{self, BufRead as _, Write as _},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::{
        resource::{Resource, getrlimit, setrlimit},
        socket::{SockaddrStorage, getpeername},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use super::task::{self, Slice, Task};

/// How often connections are accepted.
const ACCEPT_EVERY: Duration = Duration::from_millis(1);

/// The line that says that everything is ready.
pub(super) const READY: &str = "ready";

/// What the sending process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Names a list of targets.
    Targets {
        /// The name.
        name: String,
        /// The list.
        to: Vec<SocketAddr>,
    },
    /// Sends for a moment.
    Run {
        /// What.
        task: Task,
        /// To which list.
        targets: String,
        /// How long.
        length: Duration,
    },
    /// Connects by TCP, and keeps the connections.
    Hold {
        /// To which list.
        targets: String,
        /// How many.
        count: u32,
    },
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The list is known.
    Known,
    /// What the moment came to.
    Slice(Slice),
    /// The connections are open.
    Held {
        /// How many say that their peer is what was dialled.
        as_dialled: u64,
    },
    /// A request failed.
    Failed(String),
}

/// The sending process: obeys until stdin ends.
pub(super) fn send() -> Result<()> {
    pin(Cpu::First)?;
    let mut held = Vec::new();
    let mut lists: HashMap<String, (Vec<SocketAddr>, usize)> = HashMap::new();
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read an order")?;
        let report = match serde_json::from_str(&line).context("not an order")? {
            Order::Targets { name, to } => {
                lists.insert(name, (to, 0));
                Report::Known
            }
            Order::Run {
                task,
                targets,
                length,
            } => match lists.get_mut(&targets) {
                None => Report::Failed(format!("no list is called {targets}")),
                Some((to, next)) => match task::run(task, to, next, length) {
                    Ok(slice) => Report::Slice(slice),
                    Err(error) => Report::Failed(format!("{error:#}")),
                },
            },
            Order::Hold { targets, count } => match lists.get(&targets) {
                None => Report::Failed(format!("no list is called {targets}")),
                Some((to, _)) => match hold(to, count) {
                    Ok((connections, as_dialled)) => {
                        held.extend(connections);
                        Report::Held { as_dialled }
                    }
                    Err(error) => Report::Failed(format!("{error:#}")),
                },
            },
        };
        let mut line = serde_json::to_string(&report).context("cannot encode a report")?;
        line.push('\n');
        stdout
            .write_all(line.as_bytes())
            .context("nobody listens to reports")?;
        stdout.flush().context("nobody listens to reports")?;
    }
    Ok(())
}

/// Connects to each of `targets` in turn, `count` times. Returns the connections, and how many of
/// them say that their peer is what was dialled.
fn hold(targets: &[SocketAddr], count: u32) -> Result<(Vec<OwnedFd>, u64)> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("no limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot allow more open files")?;
    let mut connections = Vec::new();
    let mut as_dialled = 0;
    for to in targets.iter().cycle().take(count as usize) {
        let connection = task::connected_tcp(&(*to).into())?;
        let peer = getpeername::<SockaddrStorage>(connection.as_raw_fd());
        let peer = peer.context("cannot ask for the peer")?;
        as_dialled += u64::from(peer == (*to).into());
        connections.push(connection);
    }
    Ok((connections, as_dialled))
}

/// Where the answering process listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listening<'a> {
    /// Connections are closed.
    pub(super) tcp: &'a [SocketAddr],
    /// Datagrams are echoed.
    pub(super) udp: &'a [SocketAddr],
    /// What connections bring is read, one connection after the other, and forgotten.
    pub(super) sinks: &'a [SocketAddr],
    /// Connections are established, and stay: nobody accepts them.
    pub(super) holding: &'a [SocketAddr],
}

/// The answering process, until it is killed.
pub(super) fn answer(at: Listening<'_>) -> Result<()> {
    let Listening {
        tcp,
        udp,
        sinks,
        holding,
    } = at;
    pin(Cpu::Last)?;
    let _holding = holding
        .iter()
        .map(|address| listen(*address))
        .collect::<Result<Vec<_>>>()?;
    let mut threads = Vec::new();
    let listeners = tcp
        .iter()
        .map(|address| listen(*address))
        .collect::<Result<Vec<_>>>()?;
    threads.push(thread::spawn(move || {
        // Looks now and then instead of waiting in accept(): waking a process on another CPU
        // costs more than all that is measured, and less evenly. Connections queue meanwhile.
        loop {
            for listener in &listeners {
                while listener.accept().is_ok() {}
            }
            thread::sleep(ACCEPT_EVERY);
        }
    }));
    for address in sinks {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        threads.push(thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // An error ends this connection only.
                io::copy(&mut &connection, &mut io::sink()).ok();
            }
        }));
    }
    for address in udp {
        let socket =
            UdpSocket::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        threads.push(thread::spawn(move || {
            let mut datagram = [0; 2048];
            loop {
                // An error tells about an earlier datagram: its client is gone.
                if let Ok((length, from)) = socket.recv_from(&mut datagram) {
                    socket.send_to(&datagram[..length], from).ok();
                }
            }
        }));
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}")
        .and_then(|()| stdout.flush())
        .context("nobody waits for us")?;
    for thread in threads {
        // They never end.
        drop(thread.join());
    }
    Ok(())
}

/// Listens with as long a queue as the namespace allows: a client that meets a full one waits
/// for a second.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::MAXALLOWABLE)
        .context("cannot lengthen the queue")?;
    listener
        .set_nonblocking(true)
        .context("cannot make accept() return at once")?;
    Ok(listener)
}

#[derive(Debug, Clone, Copy)]
enum Cpu {
    First,
    Last,
}

/// Keeps this process on one CPU: the first or the last of those it may use.
fn pin(which: Cpu) -> Result<()> {
    let own = Pid::from_raw(0);
    let allowed = sched_getaffinity(own).context("cannot ask which CPUs there are")?;
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let cpu = match which {
        Cpu::First => cpus.next(),
        Cpu::Last => cpus.next_back(),
    };
    let mut only = CpuSet::new();
    only.set(cpu.context("there is no CPU to run on")?)
        .context("no such CPU")?;
    sched_setaffinity(own, &only).context("cannot choose a CPU")
}
