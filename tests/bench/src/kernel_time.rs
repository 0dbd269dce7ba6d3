//! The kernel's account of how often programs ran and for how long, and a program that does
//! nothing to compare with.

use std::{
    fs,
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
};

use anyhow::{Context as _, Result, anyhow};

use proxy_harness::{
    bpf::{self, Pinned, call, own, pair},
    cgroup::Cgroup,
};

// `enum bpf_cmd` of linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const LINK_CREATE: libc::c_int = 28;
const ENABLE_STATS: libc::c_int = 32;

/// While this lives, the kernel keeps the account (5.8), for every program of the host.
#[derive(Debug)]
pub(super) struct Statistics {
    _fd: OwnedFd,
}

impl Statistics {
    /// Makes the kernel keep it.
    pub(super) fn enable() -> Result<Self> {
        // BPF_STATS_RUN_TIME is 0.
        let fd = call(ENABLE_STATS, &mut [0; 16])
            .context("cannot make the kernel keep account of program times")?;
        Ok(Self { _fd: own(fd) })
    }
}

/// An open program.
#[derive(Debug)]
pub(super) struct Program {
    fd: OwnedFd,
}

impl Program {
    /// The program that the link pinned at `path` leads to.
    pub(super) fn behind_link(path: &Path) -> Result<Self> {
        let id = Pinned::open(path)?.program_id()?;
        let mut attribute = [0; 16];
        attribute[0] = pair(id, 0);
        let fd = call(PROG_GET_FD_BY_ID, &mut attribute)
            .with_context(|| format!("cannot open the program behind {}", path.display()))?;
        Ok(Self { fd: own(fd) })
    }

    /// What it spent since the kernel first kept account.
    pub(super) fn spent(&self) -> Result<Spent> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Spent::read(&text).ok_or_else(|| anyhow!("{path} tells no program times"))
    }
}

/// Time and runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent {
    nanoseconds: u64,
    runs: u64,
}

impl Spent {
    /// Reads the lines `run_time_ns:` and `run_cnt:`.
    fn read(fdinfo: &str) -> Option<Self> {
        let field = |name: &str| {
            fdinfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        Some(Self {
            nanoseconds: field("run_time_ns:")?,
            runs: field("run_cnt:")?,
        })
    }

    /// What was added after `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            nanoseconds: self.nanoseconds - before.nanoseconds,
            runs: self.runs - before.runs,
        }
    }

    /// Whether it ran about once, or more often, for each of `count`.
    pub(super) fn is_of_each(self, count: u64) -> bool {
        self.runs >= count / 2
    }

    /// Nanoseconds of one run; none if it did not run.
    pub(super) fn per_run(self) -> Option<f64> {
        (self.runs > 0).then(|| self.per(self.runs))
    }

    /// Nanoseconds for each of `count`.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a bench does not run for 2^53 ns"
    )]
    pub(super) fn per(self, count: u64) -> f64 {
        self.nanoseconds as f64 / count as f64
    }
}

/// A program on the connect hook of a cgroup that lets every connect pass.
#[derive(Debug)]
pub(super) struct EmptyProgram {
    program: OwnedFd,
    _link: OwnedFd,
}

impl EmptyProgram {
    /// Loads and attaches it; detached on drop.
    pub(super) fn attach(cgroup: &Cgroup) -> Result<Self> {
        const SOCK_ADDR: u32 = 18;
        const INET4_CONNECT: u32 = 10;
        // r0 = 1; exit
        let code: [u64; 2] = [0x1_0000_00b7, 0x95];
        let license = c"GPL";
        let mut attribute = [0; 16];
        attribute[0] = pair(SOCK_ADDR, 2);
        attribute[1] = code.as_ptr() as u64;
        attribute[2] = license.as_ptr() as u64;
        // Six words later (log, version, flags, name), after prog_ifindex: expected_attach_type.
        attribute[8] = pair(0, INET4_CONNECT);
        let program = own(call(PROG_LOAD, &mut attribute).context("cannot load an empty program")?);
        let directory = fs::File::open(cgroup.path())
            .with_context(|| format!("cannot open {}", cgroup.path().display()))?;
        let number = |fd: i32| fd.cast_unsigned();
        let mut attribute = [0; 16];
        attribute[0] = pair(number(program.as_raw_fd()), number(directory.as_raw_fd()));
        attribute[1] = pair(INET4_CONNECT, 0);
        let link = call(LINK_CREATE, &mut attribute).context("cannot attach an empty program")?;
        Ok(Self {
            program,
            _link: bpf::own(link),
        })
    }

    /// The program.
    pub(super) fn program(&self) -> Result<Program> {
        Ok(Program {
            fd: self.program.try_clone()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_tells_time_and_runs() {
        let text =
            "pos:\t0\nprog_type:\t18\nrun_time_ns:\t1500\nrun_cnt:\t10\nverified_insns:\t2\n";
        let spent = Spent::read(text).unwrap();
        assert_eq!(spent.per_run(), Some(150.0));
        let before = Spent {
            nanoseconds: 500,
            runs: 5,
        };
        assert_eq!(spent.since(before).per_run(), Some(200.0));
        assert_eq!(before.since(before).per_run(), None);
        assert!(spent.is_of_each(10) && !spent.is_of_each(100));
        assert_eq!(Spent::read("pos:\t0\n"), None);
    }
}
