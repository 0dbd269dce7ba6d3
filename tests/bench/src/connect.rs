//! How long connections take, one by one: a process that connects again and again for a moment, and
//! what it says.

use std::{
    io::{self, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::sys::socket::{setsockopt, sockopt::Linger};
use serde::{Deserialize, Serialize};

use super::rig;
use proxy_harness::{process::Process, world::Host};

/// Connections before time is taken: what the moment before left in caches is not counted.
const WARM_UP: u32 = 24;
/// How long a process may take beyond its moment.
const LIMIT: Duration = Duration::from_mins(1);

/// What the connections of a moment took.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Moment {
    /// Connections made, each after the one before.
    connections: u32,
    /// From before the first to after the last, closing included.
    elapsed: Duration,
    /// Half of them took no longer.
    pub(super) half: Duration,
    /// 99 of 100 took no longer.
    pub(super) most: Duration,
}

impl Moment {
    /// Connections per second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.connections) / self.elapsed.as_secs_f64()
    }
}

/// Lets a process on `host` connect to `to`. An error if a single connection fails.
pub(super) fn during(host: &Host, to: SocketAddr, length: Duration) -> Result<Moment> {
    let mut command = rig::own_program("connect")?;
    command
        .arg(format!("--to={to}"))
        .arg(format!("--milliseconds={}", length.as_millis()))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let process: Process = host.spawn(command)?;
    let done = process.finish(length + LIMIT)?;
    if done.code != Some(0) {
        bail!("connecting to {to}: {}", done.stderr.trim());
    }
    serde_json::from_str(&done.stdout)
        .with_context(|| format!("who connects said {:?}", done.stdout))
}

/// The process.
pub(super) fn connect(to: SocketAddr, length: Duration) -> Result<()> {
    for _ in 0..WARM_UP {
        once(to)?;
    }
    let mut took = Vec::new();
    let began = Instant::now();
    while began.elapsed() < length {
        took.push(once(to)?);
    }
    let elapsed = began.elapsed();
    took.sort_unstable();
    let moment = Moment {
        connections: u32::try_from(took.len()).context("too many connections")?,
        elapsed,
        half: took[took.len() / 2],
        most: took[(took.len() - 1) * 99 / 100],
    };
    let line = serde_json::to_string(&moment).context("cannot encode a report")?;
    writeln!(io::stdout(), "{line}").context("nobody listens")
}

fn once(to: SocketAddr) -> Result<Duration> {
    let began = Instant::now();
    let connected = TcpStream::connect(to);
    let took = began.elapsed();
    let stream = connected.with_context(|| format!("cannot connect to {to}"))?;
    // Closed by RST, so that nothing is left in TIME_WAIT.
    let now = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream.as_fd(), Linger, &now).context("cannot set SO_LINGER")?;
    Ok(took)
}
