//! What it means that the kernel refused: a lack that stays, of this host or of rights, which whoever
//! starts agents must mend; or one that passes, to be waited for.

use std::io;

use proxy_model::{FatalCause, SyncError};

use super::{KernelError, RETRY_AFTER, trial};
use proxy_backend::OpenError;

/// What to do where rights are missing.
pub const RIGHTS: &str = "run as root, or with CAP_NET_ADMIN";

/// Why the backend could not be opened.
pub fn opening(error: &KernelError) -> OpenError {
    if passes(error) {
        return OpenError::Later(error.to_string());
    }
    OpenError::Host(with_remedy(error))
}

/// What the failure of the first sync means. Once something was in force this host can, and
/// whatever comes later is tried again.
pub fn first_sync(error: &KernelError) -> SyncError {
    let lasting = if passes(error) {
        None
    } else if is_denied(error) {
        Some(with_remedy(error))
    } else {
        // What is there of others may be the reason. Where there is nothing, only the host is left.
        let elsewhere = trial::try_rules().err();
        elsewhere
            .filter(|error| !passes(error))
            .map(|error| with_remedy(&error))
    };
    match lasting {
        Some(reason) => SyncError::Fatal {
            cause: FatalCause::Host,
            reason,
        },
        None => SyncError::Retry {
            reason: error.to_string(),
            after: RETRY_AFTER,
        },
    }
}

fn with_remedy(error: &KernelError) -> String {
    if is_denied(error) {
        format!("{error}; {RIGHTS}")
    } else {
        format!("{error}; see `proxy-agent check`")
    }
}

/// Whether rights are missing: they do not come to a process that runs.
fn is_denied(error: &KernelError) -> bool {
    error.is(libc::EPERM) || error.is(libc::EACCES)
}

/// Whether what the error comes from passes by itself: want of memory or of open files, somebody
/// else at the same tables, an answer that was lost.
fn passes(error: &KernelError) -> bool {
    let numbers = [
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EBUSY,
        libc::EAGAIN,
        libc::EINTR,
        libc::ENFILE,
        libc::EMFILE,
        libc::ERESTART,
    ];
    error.error.kind() == io::ErrorKind::TimedOut || numbers.iter().any(|number| error.is(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_what_stays_is_told_with_what_to_do() {
        for number in [libc::ENOMEM, libc::ENOBUFS, libc::EBUSY, libc::ENFILE] {
            let error = KernelError::of("writing", number);
            assert!(matches!(opening(&error), OpenError::Later(_)), "{number}");
            let synced = first_sync(&error);
            assert!(matches!(synced, SyncError::Retry { .. }), "{number}");
        }
        let error = KernelError::of("writing", libc::EPERM);
        for told in [
            match opening(&error) {
                OpenError::Host(told) => told,
                other => panic!("{other:?}"),
            },
            match first_sync(&error) {
                SyncError::Fatal {
                    cause: FatalCause::Host,
                    reason,
                } => reason,
                other => panic!("{other:?}"),
            },
        ] {
            assert!(told.ends_with(RIGHTS), "{told}");
        }
        let error = KernelError::of("opening", libc::EPROTONOSUPPORT);
        assert!(matches!(opening(&error), OpenError::Host(_)));
    }
}
