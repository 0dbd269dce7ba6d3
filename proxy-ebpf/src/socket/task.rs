//! Who runs: a process, or a thread of the kernel. What is made of that, `proxy_common::caller`
//! says.

use aya_ebpf::helpers::{
    bpf_get_current_comm,
    generated::{bpf_get_current_task, bpf_probe_read_kernel},
};
use proxy_common::caller::{self, BY_NAME};

use crate::maps;

/// Whether a thread of the kernel runs. Not known where it cannot be asked: then it is a process.
#[inline(always)]
pub fn is_kernel() -> bool {
    // A helper that the kernel denies must not be in sight of the verifier: both are behind a
    // global that it knows.
    let at = maps::TASK_FLAGS.load();
    if at == BY_NAME {
        return bpf_get_current_comm().is_ok_and(|name| caller::is_worker(&name));
    }
    if at == caller::NOT_ASKED {
        return false;
    }
    let mut flags = 0_u32;
    // SAFETY: the helper has no precondition.
    let task = unsafe { bpf_get_current_task() };
    let from = task.wrapping_add(u64::from(at)) as *const core::ffi::c_void;
    // SAFETY: `flags` has room for the four bytes that are read; the helper itself finds out
    // whether there is something to read.
    let failed = unsafe { bpf_probe_read_kernel((&raw mut flags).cast(), 4, from) };
    failed == 0 && caller::is_kernel_thread(flags)
}
