//! What a process has used.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// CPU and memory of a process, at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Time on a CPU since its start, all threads together, to the nanosecond.
    pub(super) cpu: Duration,
    /// Memory that is its own or shared, in RAM now.
    pub(super) resident_mib: f64,
    /// The most it ever had.
    pub(super) peak_mib: f64,
}

impl Usage {
    /// Of the process `pid`, none of whose threads has ended.
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
            resident_mib: mib("VmRSS:")?,
            peak_mib: mib("VmHWM:")?,
        })
    }
}

fn cpu(pid: i32) -> Result<Duration> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0;
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))? {
        let path = entry?.path().join("schedstat");
        // A thread that has just ended takes its time with it.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let nanoseconds = text.split(' ').next().unwrap_or_default();
        sum += nanoseconds
            .parse::<u64>()
            .with_context(|| format!("{} tells {text:?}", path.display()))?;
    }
    Ok(Duration::from_nanos(sum))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}
