//! Waiting until programs have ended that run now.

use std::{thread, time::Duration};

/// `linux/membarrier.h`: kernel ABI.
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// Where the kernel cannot say it: a thousand times what a packet takes.
const LONG: Duration = Duration::from_millis(50);

/// Waits until every program on packets has ended that runs now: they run within RCU readers, and the
/// kernel waits for those (`kernel/sched/membarrier.c`, Linux 5.10: `synchronize_rcu()`; with one CPU,
/// none runs while this does).
pub fn wait_for_programs() {
    let no_flags: libc::c_int = 0;
    // SAFETY: no memory is passed.
    let waited = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, no_flags, 0) };
    if waited != 0 {
        // Refused with CPUs that have no tick (nohz_full).
        thread::sleep(LONG);
    }
}
