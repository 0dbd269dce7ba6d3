//! What is asked of the host's files: no system call of BPF.

use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::{
    super::release::{self, CHARGES_CGROUPS, Version, release, version},
    requirement,
};
use proxy_backend::Requirement;

/// The oldest kernel with all hooks: getpeername came with 5.8, the release of sockets with 5.9,
/// and 5.10 is the oldest that is still maintained, and tested.
const OLDEST: Version = (5, 10);

/// The version of the running kernel.
pub fn kernel() -> Requirement {
    let result = match release() {
        Ok(release) => match version(&release) {
            Some(version) if version >= OLDEST => Ok(release),
            _ => Err(format!("{release}; boot Linux 5.10 or later")),
        },
        Err(error) => Err(error),
    };
    requirement(
        "Linux 5.10",
        "it is the oldest kernel still maintained that has all the socket hooks",
        result,
    )
}

/// The limit on locked memory, which counts before Linux 5.11 only.
pub fn memory() -> Requirement {
    let counts = release::running().is_some_and(|version| version < CHARGES_CGROUPS);
    let hard = getrlimit(Resource::RLIMIT_MEMLOCK).map(|(_, hard)| hard);
    let (met, found) = match hard {
        Ok(RLIM_INFINITY) => (true, "no limit".to_owned()),
        Ok(bytes) if counts => (false, format!("at most {} KiB", bytes / 1024)),
        Ok(_) => (
            true,
            "not relevant: maps count against the memory cgroup".to_owned(),
        ),
        Err(errno) => (false, errno.to_string()),
    };
    Requirement {
        required: false,
        met,
        remedy: (!met).then(|| {
            "run with CAP_SYS_RESOURCE, so that the agent can raise it, or raise it: ulimit -l \
             unlimited"
                .to_owned()
        }),
        ..requirement(
            "locked memory",
            "before Linux 5.11 maps count against RLIMIT_MEMLOCK, by default 64 KiB",
            Ok(found),
        )
    }
}

/// Type information of the kernel.
pub fn btf() -> Requirement {
    const BTF: &str = "/sys/kernel/btf/vmlinux";
    let met = Path::new(BTF).exists();
    Requirement {
        required: false,
        met,
        remedy: (!met).then(|| "use a kernel that is built with CONFIG_DEBUG_INFO_BTF".to_owned()),
        ..requirement(
            "kernel BTF",
            "not needed to serve; bpftool and tracers show more with it",
            Ok(if met { BTF } else { "none" }.to_owned()),
        )
    }
}
