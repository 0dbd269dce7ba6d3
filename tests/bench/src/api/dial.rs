//! Which endpoint a connection reaches, and since when: servers that say who they are, and a
//! process in the agent's cgroup that dials a Service until another one answers.
//!
//! Both are this program, started again.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::super::{orders::now, worker::READY};
use proxy_harness::{process::Process, world::Host};

/// Between two connections: often enough for figures of a tenth of a millisecond, seldom enough
/// to leave the machine to the agent.
const PAUSE: Duration = Duration::from_micros(100);
/// How long the endpoint may take to change; far above anything that would be a figure.
const LIMIT: Duration = Duration::from_secs(30);

/// Servers that answer each connection with their port, until killed.
pub(in super::super) fn name_yourselves(addresses: &[SocketAddr]) -> Result<()> {
    for address in addresses {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let port = address.port().to_be_bytes();
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that is gone is no matter.
                stream.and_then(|mut stream| stream.write_all(&port)).ok();
            }
        });
    }
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}")
        .and_then(|()| stdout.flush())
        .context("nobody waits for us")?;
    loop {
        thread::park();
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    dial: SocketAddr,
    until: u16,
}

#[derive(Debug, Serialize, Deserialize)]
enum Report {
    /// The first connection was established with another endpoint: the old one still answered.
    Dialling,
    /// When the first connection to the wanted endpoint was established.
    Reached(Duration),
    /// It did not come to that.
    Failed(String),
}

/// The dialling process: obeys until stdin ends.
pub(in super::super) fn dial() -> Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read an order")?;
        let order: Order = serde_json::from_str(&line).context("not an order")?;
        let report = match until(&order) {
            Ok(moment) => Report::Reached(moment),
            Err(error) => Report::Failed(format!("{error:#}")),
        };
        say(&report)?;
    }
    Ok(())
}

fn say(report: &Report) -> Result<()> {
    let mut line = serde_json::to_string(report).context("cannot encode a report")?;
    line.push('\n');
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(line.as_bytes())
        .and_then(|()| stdout.flush())
        .context("nobody listens to reports")
}

fn until(order: &Order) -> Result<Duration> {
    let began = now()?;
    let mut said = false;
    loop {
        let connected = TcpStream::connect(order.dial);
        let moment = now()?;
        // While the only endpoint is replaced, nothing may fail: it is one change.
        let mut stream = connected.with_context(|| format!("cannot connect to {}", order.dial))?;
        let mut port = [0; 2];
        stream
            .read_exact(&mut port)
            .with_context(|| format!("{} does not say who it is", order.dial))?;
        if u16::from_be_bytes(port) == order.until {
            return Ok(moment);
        }
        if !said {
            say(&Report::Dialling)?;
            said = true;
        }
        if moment > began + LIMIT {
            bail!(
                "{} did not lead to {} in {LIMIT:?}",
                order.dial,
                order.until
            );
        }
        thread::sleep(PAUSE);
    }
}

/// The dialling process, as the bench sees it.
#[derive(Debug)]
pub(super) struct Dialler {
    _process: Process,
    orders: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl Dialler {
    /// Starts it on `host`.
    pub(super) fn start(host: &Host, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = host.spawn(command)?;
        let child = process.child();
        let orders = child.stdin.take().context("the dialler has no stdin")?;
        let reports = child.stdout.take().context("the dialler has no stdout")?;
        Ok(Self {
            _process: process,
            orders,
            reports: BufReader::new(reports),
        })
    }

    /// Dials `to` until the server on port `until` answers; does `change` once connections
    /// reach the old one. Gives the time from just before `change` to the first connection.
    pub(super) fn time(
        &mut self,
        to: SocketAddr,
        until: u16,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<Duration> {
        let order = Order { dial: to, until };
        let mut line = serde_json::to_string(&order).context("cannot encode an order")?;
        line.push('\n');
        self.orders
            .write_all(line.as_bytes())
            .context("the dialler does not listen any more")?;
        match self.report()? {
            Report::Dialling => {}
            other => bail!("the old endpoint of {to} did not answer first: {other:?}"),
        }
        let began = now()?;
        change()?;
        match self.report()? {
            Report::Reached(moment) => Ok(moment.saturating_sub(began)),
            other => bail!("{to}: {other:?}"),
        }
    }

    fn report(&mut self) -> Result<Report> {
        let mut line = String::new();
        self.reports
            .read_line(&mut line)
            .context("cannot read from the dialler")?;
        serde_json::from_str(&line).with_context(|| format!("the dialler said {line:?}"))
    }
}
