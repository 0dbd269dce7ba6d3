//! What runs inside pods: the two ends of the `culvert-pod` program.
//!
//! `culvert-pod serve` ([`serve`]) answers every request with the address it was reached at;
//! `culvert-pod probe` ([`probe`], [`load`]) sends requests and says exactly what came back. This
//! file holds what tests use to drive them; [`wire`] is what the two sides say to each other.

pub mod load;
pub mod probe;
mod raw;
pub mod serve;
pub mod wire;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{executable, process::Process, world::Host};
pub use wire::{Attempt, Listen, Load, LoadReport, Reply, Request, Transport};

/// How long one attempt may take. Long enough for a machine that is busy with other tests: an
/// attempt that is refused or answered never waits for it.
pub const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// Servers in one pod, stopped on drop.
#[derive(Debug)]
pub struct Server {
    _process: Process,
}

impl Server {
    /// Serves on every address of `listen`. When this returns, all of them answer.
    pub fn start(host: &Host, listen: &[Listen]) -> Result<Self> {
        let mut command = Command::new(executable::pod()?);
        command
            .arg("serve")
            .args(listen.iter().map(ToString::to_string));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = host.spawn(command)?;
        let stdout = process
            .child()
            .stdout
            .take()
            .context("the server has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("cannot read from the server")?;
        if line.trim() != serve::READY {
            bail!(
                "the server in {} ended instead of getting ready",
                host.name()
            );
        }
        Ok(Self { _process: process })
    }
}

/// A process in a pod that sends what it is told to. One question at a time.
#[derive(Debug)]
pub struct Prober {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Prober {
    /// Starts a prober in `host`.
    pub fn start(host: &Host) -> Result<Self> {
        Self::start_with(|command| host.spawn(command))
    }

    /// Starts a prober by a function that starts a command where the caller wants it.
    pub fn start_with(spawn: impl FnOnce(Command) -> Result<Process>) -> Result<Self> {
        let mut command = Command::new(executable::pod()?);
        command
            .arg("probe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = spawn(command)?;
        let stdin = process
            .child()
            .stdin
            .take()
            .context("the prober has no stdin")?;
        let stdout = process
            .child()
            .stdout
            .take()
            .context("the prober has no stdout")?;
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    /// The prober's process, to kill or to look at.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends `count` requests to `to`, each from a socket of its own.
    pub fn send(
        &mut self,
        transport: Transport,
        to: SocketAddr,
        count: u32,
    ) -> Result<Vec<Attempt>> {
        self.send_within(ATTEMPT_LIMIT, transport, to, count)
    }

    /// The same, each given up after `timeout`.
    pub fn send_within(
        &mut self,
        timeout: Duration,
        transport: Transport,
        to: SocketAddr,
        count: u32,
    ) -> Result<Vec<Attempt>> {
        self.attempts(&Request::Send {
            transport,
            to,
            socket: None,
            count,
            timeout,
        })
    }

    /// Sends `count` requests to `to` from the socket called `socket`, which is opened on first
    /// use and stays open: unconnected for [`Transport::Udp`], else connected to the first `to`.
    pub fn send_on(
        &mut self,
        socket: &str,
        transport: Transport,
        to: SocketAddr,
        count: u32,
    ) -> Result<Vec<Attempt>> {
        self.send_on_within(ATTEMPT_LIMIT, socket, transport, to, count)
    }

    /// The same, each given up after `timeout`.
    pub fn send_on_within(
        &mut self,
        timeout: Duration,
        socket: &str,
        transport: Transport,
        to: SocketAddr,
        count: u32,
    ) -> Result<Vec<Attempt>> {
        let socket = Some(socket.to_owned());
        self.attempts(&Request::Send {
            transport,
            to,
            socket,
            count,
            timeout,
        })
    }

    /// Closes a socket that [`Prober::send_on`] opened.
    pub fn close(&mut self, socket: &str) -> Result<()> {
        self.ask(&Request::Close {
            socket: socket.to_owned(),
        })
        .map(drop)
    }

    /// Sends `packet`, from its IPv4 header on, by a raw socket of the prober's.
    pub fn send_packet(&mut self, packet: Vec<u8>) -> Result<()> {
        self.ask(&Request::Packet { packet }).map(drop)
    }

    /// Starts threads that send requests until [`Prober::load_stop`]. When this returns, every
    /// thread has sent one.
    pub fn load_start(&mut self, load: Load) -> Result<()> {
        self.ask(&Request::LoadStart(load)).map(drop)
    }

    /// What the load called `name` has seen so far.
    pub fn load_report(&mut self, name: &str) -> Result<LoadReport> {
        self.report(&Request::LoadReport {
            name: name.to_owned(),
        })
    }

    /// Waits until the load called `name` has finished `requests` more, then says what it has
    /// seen so far.
    pub fn load_wait(&mut self, name: &str, requests: u64) -> Result<LoadReport> {
        let mut reports = self.loads_wait(&[(name, requests)])?;
        reports.pop().context("the prober told nothing of the load")
    }

    /// The same of several loads, each with a number of its own, all at the same time.
    pub fn loads_wait(&mut self, more: &[(&str, u64)]) -> Result<Vec<LoadReport>> {
        let more = more.iter().map(|(name, more)| ((*name).to_owned(), *more));
        let request = Request::LoadWait {
            more: more.collect(),
        };
        match self.ask(&request)? {
            Reply::Loads(reports) => Ok(reports),
            other => Err(anyhow!("the prober answered {other:?} to {request:?}")),
        }
    }

    /// Lets the requests under way end, stops the load called `name` and says what it has seen.
    pub fn load_stop(&mut self, name: &str) -> Result<LoadReport> {
        self.report(&Request::LoadStop {
            name: name.to_owned(),
        })
    }

    fn attempts(&mut self, request: &Request) -> Result<Vec<Attempt>> {
        match self.ask(request)? {
            Reply::Attempts(attempts) => Ok(attempts),
            other => Err(anyhow!("the prober answered {other:?} to {request:?}")),
        }
    }

    fn report(&mut self, request: &Request) -> Result<LoadReport> {
        match self.ask(request)? {
            Reply::Load(report) => Ok(report),
            other => Err(anyhow!("the prober answered {other:?} to {request:?}")),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut line = serde_json::to_string(request).context("cannot encode a request")?;
        line.push('\n');
        self.stdin
            .write_all(line.as_bytes())
            .context("the prober does not listen any more")?;
        let mut reply = String::new();
        self.stdout
            .read_line(&mut reply)
            .context("cannot read from the prober")?;
        match serde_json::from_str(&reply).with_context(|| format!("the prober said {reply:?}"))? {
            Reply::Failed(message) => bail!("{message}"),
            reply => Ok(reply),
        }
    }
}
