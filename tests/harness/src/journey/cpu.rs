//! One CPU for a while: the kernel takes the packets of one through a node in their order.

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
    unistd::Pid,
};

/// Keeps the calling thread on the CPU that it is on, until dropped.
#[derive(Debug)]
pub(super) struct Here {
    before: CpuSet,
}

impl Here {
    /// From now on.
    pub(super) fn pin() -> Result<Self> {
        let this = Pid::from_raw(0);
        let before =
            sched_getaffinity(this).context("cannot ask which CPUs this thread may use")?;
        let mut only = CpuSet::new();
        only.set(sched_getcpu().context("cannot ask which CPU this is")?)?;
        sched_setaffinity(this, &only).context("cannot keep a thread on its CPU")?;
        Ok(Self { before })
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // It worked before with these very CPUs; without it the thread is slower, not wrong.
        sched_setaffinity(Pid::from_raw(0), &self.before).ok();
    }
}
