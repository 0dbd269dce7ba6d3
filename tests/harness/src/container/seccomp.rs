//! Seccomp as container runtimes set it where nothing is said (`RuntimeDefault`).
//!
//! Their profiles list what is allowed, some of it only with a capability. Here is what is refused:
//! the same for every call that an agent could make, and shorter.

use std::{collections::BTreeMap, env::consts::ARCH};

use anyhow::{Context as _, Result};
use caps::Capability;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::{Deserialize, Serialize};

/// A profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// What runtimes of today set where a pod asks for `RuntimeDefault`.
    #[default]
    RuntimeDefault,
    /// The same by runtimes that know no `CAP_BPF` and no `CAP_PERFMON`: bpf(2) takes `SYS_ADMIN`.
    WithoutBpf,
    /// None.
    Unconfined,
}

/// Refused to everybody.
const NEVER: [i64; 16] = [
    libc::SYS_add_key,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_request_key,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Refused to who does not hold one of the capabilities.
const UNLESS: &[(&[Capability], &[i64])] = &[
    (
        &[Capability::CAP_SYS_ADMIN],
        &[
            libc::SYS_fanotify_init,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fsopen,
            libc::SYS_fspick,
            libc::SYS_mount,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_quotactl,
            libc::SYS_setdomainname,
            libc::SYS_sethostname,
            libc::SYS_setns,
            libc::SYS_umount2,
            libc::SYS_unshare,
        ],
    ),
    (
        &[Capability::CAP_SYS_ADMIN, Capability::CAP_BPF],
        &[libc::SYS_bpf],
    ),
    (
        &[Capability::CAP_SYS_ADMIN, Capability::CAP_PERFMON],
        &[libc::SYS_perf_event_open],
    ),
    (
        &[Capability::CAP_SYS_ADMIN, Capability::CAP_SYSLOG],
        &[libc::SYS_syslog],
    ),
    (
        &[Capability::CAP_DAC_READ_SEARCH],
        &[libc::SYS_open_by_handle_at],
    ),
    (&[Capability::CAP_SYS_BOOT], &[libc::SYS_reboot]),
    (&[Capability::CAP_SYS_CHROOT], &[libc::SYS_chroot]),
    (
        &[Capability::CAP_SYS_MODULE],
        &[
            libc::SYS_delete_module,
            libc::SYS_finit_module,
            libc::SYS_init_module,
        ],
    ),
    (
        &[Capability::CAP_SYS_NICE],
        &[
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
            libc::SYS_move_pages,
            libc::SYS_set_mempolicy,
        ],
    ),
    (&[Capability::CAP_SYS_PACCT], &[libc::SYS_acct]),
    (
        &[Capability::CAP_SYS_PTRACE],
        &[
            libc::SYS_kcmp,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_madvise,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
        ],
    ),
    (
        &[Capability::CAP_SYS_TIME],
        &[libc::SYS_clock_settime, libc::SYS_settimeofday],
    ),
];

/// Flags of clone(2) that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters this thread's system calls from now on, for good, and takes it the way to more rights.
pub fn apply(profile: Profile, capabilities: &[Capability]) -> Result<()> {
    if profile == Profile::Unconfined {
        return Ok(());
    }
    // clone3(2) passes its flags by a pointer, which no filter can follow: C libraries take the
    // answer of an old kernel for a reason to try clone(2).
    let unknown = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let refused = refused(profile, capabilities)?;
    for (rules, errno) in [(unknown, libc::ENOSYS), (refused, libc::EPERM)] {
        if rules.is_empty() {
            continue;
        }
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(errno.unsigned_abs()),
            ARCH.try_into().context("no filter for this processor")?,
        );
        let program: BpfProgram = filter.and_then(TryInto::try_into)?;
        seccompiler::apply_filter(&program).context("cannot filter system calls")?;
    }
    Ok(())
}

fn refused(profile: Profile, capabilities: &[Capability]) -> Result<Rules> {
    let mut rules: Rules = NEVER.map(|call| (call, Vec::new())).into();
    let too_new = |one: &Capability| {
        profile == Profile::WithoutBpf
            && matches!(one, Capability::CAP_BPF | Capability::CAP_PERFMON)
    };
    let held = |one: &Capability| capabilities.contains(one) && !too_new(one);
    for (any, calls) in UNLESS {
        if !any.iter().any(held) {
            rules.extend(calls.iter().map(|&call| (call, Vec::new())));
        }
    }
    if !held(&Capability::CAP_SYS_ADMIN) {
        let flags = NAMESPACES.map(|flag| argument_has(0, flag.unsigned_abs().into()));
        let flags = flags.into_iter().collect::<Result<_>>()?;
        rules.insert(libc::SYS_clone, flags);
    }
    // Sockets to the hypervisor know no network namespace.
    let vsock = argument_is(0, libc::AF_VSOCK.unsigned_abs().into())?;
    rules.insert(libc::SYS_socket, vec![vsock]);
    Ok(rules)
}

fn argument_is(index: u8, value: u64) -> Result<SeccompRule> {
    argument(index, SeccompCmpOp::Eq, value)
}

fn argument_has(index: u8, flag: u64) -> Result<SeccompRule> {
    argument(index, SeccompCmpOp::MaskedEq(flag), flag)
}

fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
