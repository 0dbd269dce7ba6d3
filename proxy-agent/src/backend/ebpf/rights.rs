//! Whether this process may do what the backend needs, asked before anything is changed, so that
//! the answer is one line and not the first system call that fails.

use std::fs;

use super::{OpenError, error::RIGHTS};

// Bits of `CapEff` in /proc/self/status, capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// Refuses a process that lacks the capabilities.
pub fn check() -> Result<(), OpenError> {
    const STATUS: &str = "/proc/self/status";
    let status = fs::read_to_string(STATUS)
        .map_err(|error| OpenError::io(&error, &format!("reading {STATUS}")))?;
    let effective = effective(&status).ok_or_else(|| {
        OpenError::Other(format!(
            "{STATUS} does not tell this process's capabilities"
        ))
    })?;
    if sufficient(effective) {
        Ok(())
    } else {
        Err(OpenError::Host(format!(
            "the eBPF backend needs rights this process does not have: {RIGHTS}"
        )))
    }
}

fn effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn sufficient(effective: u64) -> bool {
    let all = |wanted: u64| effective & wanted == wanted;
    all(SYS_ADMIN | NET_ADMIN) || all(BPF | PERFMON | NET_ADMIN)
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
        assert!(sufficient(0x1ff_ffff_ffff));
        assert!(sufficient(BPF | PERFMON | NET_ADMIN));
        for lacking in [0, BPF | PERFMON, NET_ADMIN, SYS_ADMIN, BPF | NET_ADMIN] {
            assert!(!sufficient(lacking), "{lacking:x}");
        }
    }
}
