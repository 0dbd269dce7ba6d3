//! What a process has used.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};

/// CPU and memory of a process, at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Time on a CPU since its start, all threads together, those that have ended too.
    pub(super) cpu: Duration,
    /// The same of programs that it ran, and that have ended, to the hundredth of a second.
    pub(super) programs: Duration,
    /// Memory that is its own or shared, in RAM now.
    pub(super) resident_mib: f64,
    /// The most it ever had.
    pub(super) peak_mib: f64,
}

impl Usage {
    /// Of the process `pid`.
    pub(super) fn of(pid: i32) -> Result<Self> {
        let status = read(&format!("/proc/{pid}/status"))?;
        let mib = |field: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib: f64 = line
                .and_then(|rest| rest.split_whitespace().next())
                .with_context(|| format!("/proc/{pid}/status tells no {field}"))?
                .parse()
                .with_context(|| format!("/proc/{pid}/status: {field} is no number"))?;
            Ok(kib / 1024.0)
        };
        Ok(Self {
            cpu: cpu(pid)?,
            programs: programs(pid)?,
            resident_mib: mib("VmRSS:")?,
            peak_mib: mib("VmHWM:")?,
        })
    }
}

fn cpu(pid: i32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid)).and_then(ClockId::now);
    Ok(clock.context("cannot read its CPU time")?.into())
}

fn programs(pid: i32) -> Result<Duration> {
    /// `USER_HZ`, which is the same on every Linux.
    const TICKS: u64 = 100;
    /// Behind the name: `cutime` and `cstime` (proc(5)).
    const WHERE: std::ops::Range<usize> = 13..15;
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<_> = behind.split_whitespace().collect();
    let times = fields.get(WHERE).context("/proc/PID/stat is too short")?;
    let mut ticks = 0;
    for time in times {
        let time: u64 = time.parse().context("/proc/PID/stat has no number")?;
        ticks += time;
    }
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}
