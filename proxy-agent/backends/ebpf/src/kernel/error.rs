//! What becomes an error of opening the eBPF dataplane, and how.

use std::{error::Error, io, iter};

pub use proxy_backend::OpenError;

/// What to do when the kernel denies permission.
pub const RIGHTS: &str = "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

/// What else denies it.
const UNLESS_DENIED: &str =
    "and check that no seccomp filter, security module or kernel lockdown denies bpf(2)";

/// An I/O error while doing `what`.
pub fn of_io(error: &io::Error, what: &str) -> OpenError {
    if passes(error) {
        return later(what, &error.to_string());
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::Host(format!("{what}: {error}; {RIGHTS}")),
        _ => OpenError::Other(format!("{what}: {error}")),
    }
}

/// The kernel refused `what` with `error`; `reason` is the text of it.
pub fn of_kernel(what: &str, error: &(dyn Error + 'static), reason: &str) -> OpenError {
    if passes(error) {
        return later(what, reason);
    }
    if numbers(error).any(|number| number == libc::EPERM) {
        return OpenError::Host(format!("{what}: {reason}; {RIGHTS}, {UNLESS_DENIED}"));
    }
    OpenError::Host(format!(
        "{what}: {reason}; Culvert's eBPF backend needs Linux 5.10 or later with BPF, cgroup \
         v2 and BTF enabled"
    ))
}

fn later(what: &str, reason: &str) -> OpenError {
    OpenError::Later(format!(
        "{what}: {reason}; free memory, or raise the memory limit of this process's cgroup, or its \
         limit of open files"
    ))
}

/// Whether what `error` comes from passes by itself: want of memory or of open files on this
/// host, or an interruption.
pub fn passes(error: &(dyn Error + 'static)) -> bool {
    numbers(error).any(|number| {
        matches!(
            number,
            libc::ENOMEM | libc::EAGAIN | libc::EINTR | libc::ENFILE | libc::EMFILE
        )
    })
}

/// What the kernel said, in `error` and what it comes from.
fn numbers<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = i32> + 'a {
    let all = iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    });
    all.filter_map(|error| error.downcast_ref().and_then(io::Error::raw_os_error))
}

/// The text of an error and of its causes, each said once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use aya::maps::MapError;

    use super::*;

    fn created(number: i32) -> MapError {
        MapError::CreateError {
            name: "SLOTS".to_owned(),
            io_error: io::Error::from_raw_os_error(number),
        }
    }

    #[test]
    fn want_of_memory_is_no_want_of_a_feature() {
        for number in [
            libc::ENOMEM,
            libc::EAGAIN,
            libc::EINTR,
            libc::ENFILE,
            libc::EMFILE,
        ] {
            let io = io::Error::from_raw_os_error(number);
            for error in [
                of_io(&io, "opening"),
                of_kernel("attaching", &io, &io.to_string()),
                of_kernel("loading", &created(number), "x"),
                of_kernel("loading", &aya::EbpfError::from(created(number)), "x"),
            ] {
                let told = error.to_string();
                assert!(matches!(error, OpenError::Later(_)), "{number}: {error:?}");
                assert!(told.contains("memory limit"), "{told}");
            }
        }
        for number in [libc::EPERM, libc::EINVAL, libc::E2BIG, libc::ENOSYS] {
            let io = io::Error::from_raw_os_error(number);
            for error in [
                of_kernel("attaching", &io, "x"),
                of_kernel("loading", &created(number), "x"),
            ] {
                assert!(matches!(error, OpenError::Host(_)), "{number}: {error:?}");
            }
        }
    }
}
