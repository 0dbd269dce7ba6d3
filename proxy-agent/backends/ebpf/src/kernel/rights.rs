//! Whether this process may do what the backend needs, asked before anything is changed, so that
//! the answer is one line and not the first system call that fails.

use std::{fs, io};

use super::error::of_io;
use super::{OpenError, error::RIGHTS};

// Bits of `CapEff` in /proc/self/status, capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// Refuses a process that lacks the capabilities.
pub fn check() -> Result<(), OpenError> {
    let failed = |error: &io::Error| of_io(error, "reading this process's capabilities");
    if missing().map_err(|error| failed(&error))?.is_empty() {
        Ok(())
    } else {
        Err(OpenError::Host(format!(
            "the eBPF backend needs rights this process does not have: {RIGHTS}"
        )))
    }
}

/// The capabilities that this process lacks.
pub fn missing() -> io::Result<Vec<&'static str>> {
    held().map(lacking)
}

/// Whether a process of which this is `/proc/PID/status` has what an agent needs. What cannot be
/// told counts as yes.
pub fn suffices(status: &str) -> bool {
    effective(status).is_none_or(|held| lacking(held).is_empty())
}

/// Whether this process may mount file systems.
pub fn may_mount() -> bool {
    held().is_ok_and(|held| held & SYS_ADMIN != 0)
}

fn held() -> io::Result<u64> {
    const STATUS: &str = "/proc/self/status";
    let status = fs::read_to_string(STATUS)?;
    let missing = || io::Error::other(format!("{STATUS} does not list them"));
    effective(&status).ok_or_else(missing)
}

fn effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Before Linux 5.8 split them off, `CAP_SYS_ADMIN` was what the other two are now, and still is.
fn lacking(held: u64) -> Vec<&'static str> {
    let wanted = [
        ("CAP_BPF", BPF | SYS_ADMIN),
        ("CAP_PERFMON", PERFMON | SYS_ADMIN),
        ("CAP_NET_ADMIN", NET_ADMIN),
    ];
    wanted
        .into_iter()
        .filter(|(_, any)| held & any == 0)
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_or_the_three_capabilities_suffice() {
        assert_eq!(
            effective("Name:\tx\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        for sufficient in [
            0x1ff_ffff_ffff,
            BPF | PERFMON | NET_ADMIN,
            SYS_ADMIN | NET_ADMIN,
        ] {
            assert!(lacking(sufficient).is_empty(), "{sufficient:x}");
        }
        for (held, lacks) in [
            (0, &["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"][..]),
            (BPF | PERFMON, &["CAP_NET_ADMIN"]),
            (NET_ADMIN, &["CAP_BPF", "CAP_PERFMON"]),
            (SYS_ADMIN, &["CAP_NET_ADMIN"]),
            (BPF | NET_ADMIN, &["CAP_PERFMON"]),
        ] {
            assert_eq!(lacking(held), lacks, "{held:x}");
        }
    }
}
