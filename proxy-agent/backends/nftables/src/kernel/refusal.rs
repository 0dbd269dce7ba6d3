//! What it means that the kernel refused: a lack that stays, of this host or of rights, which whoever
//! starts agents must mend; or one that passes, to be waited for. The same whether something is in
//! force already or not: what is, stays in the kernel whatever is decided here, and no attempt in a
//! second brings back rights, or a part of the kernel.

use proxy_model::{FatalCause, SyncError};

use super::{KernelError, RETRY_AFTER, socket::Cause, trial};
use proxy_backend::OpenError;

/// What to do where rights are missing.
pub const RIGHTS: &str = "run as root, or with CAP_NET_ADMIN";

/// Why the backend could not be opened.
pub fn opening(error: &KernelError) -> OpenError {
    match error.cause() {
        Cause::Busy => OpenError::Later(error.to_string()),
        Cause::Rights | Cause::Missing | Cause::Other => OpenError::Host(with_remedy(error)),
    }
}

/// What the failure of a sync or of a repair means.
pub fn syncing(error: &KernelError) -> SyncError {
    decide(error, trial::try_rules)
}

/// The same. `try_rules` tells whether this host takes every kind of rule where there is nothing of
/// others, and is asked only where that decides.
fn decide(error: &KernelError, try_rules: impl FnOnce() -> Result<bool, KernelError>) -> SyncError {
    let lasting = match error.cause() {
        Cause::Busy => None,
        Cause::Rights => Some(with_remedy(error)),
        // What is there of others may be the reason. Where there is nothing, only the host is left.
        cause @ (Cause::Missing | Cause::Other) => match try_rules() {
            Err(elsewhere) if elsewhere.cause() != Cause::Busy => Some(with_remedy(&elsewhere)),
            // There was no place to try: what the kernel said has to do.
            Ok(false) if cause == Cause::Missing => Some(with_remedy(error)),
            _ => None,
        },
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
    match error.cause() {
        Cause::Rights => format!("{error}; {RIGHTS}"),
        Cause::Missing | Cause::Busy | Cause::Other => {
            format!("{error}; see `proxy-agent check`")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const CHECK: &str = "see `proxy-agent check`";

    /// What came of trying rules elsewhere.
    #[derive(Debug, Clone, Copy)]
    enum Tried {
        /// It decides nothing.
        NotAsked,
        Taken,
        NoPlace,
        Refused(i32),
    }

    fn failed(number: i32) -> KernelError {
        KernelError::of("writing", number)
    }

    /// What is done in the end to whoever reads the reason: `None` if it is tried again.
    fn decided(error: &KernelError, tried: Tried) -> Option<String> {
        let try_rules = || match tried {
            Tried::NotAsked => panic!("rules were tried for {error}"),
            Tried::Taken => Ok(true),
            Tried::NoPlace => Ok(false),
            Tried::Refused(number) => Err(KernelError::of("trying", number)),
        };
        match decide(error, try_rules) {
            SyncError::Retry { reason, after } => {
                assert_eq!((reason, after), (error.to_string(), RETRY_AFTER));
                None
            }
            SyncError::Fatal { cause, reason } => {
                assert_eq!(cause, FatalCause::Host);
                Some(reason)
            }
        }
    }

    #[test]
    fn rights_that_are_missing_end_every_sync() {
        for number in [libc::EPERM, libc::EACCES] {
            let error = failed(number);
            let expected = format!("{error}; {RIGHTS}");
            assert_eq!(decided(&error, Tried::NotAsked), Some(expected.clone()));
            let OpenError::Host(told) = opening(&error) else {
                panic!("{number}");
            };
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn what_passes_is_waited_for() {
        let numbers = [
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::ENOSPC,
            libc::EBUSY,
            libc::EAGAIN,
            libc::EINTR,
            libc::ENFILE,
            libc::EMFILE,
            libc::ERESTART,
        ];
        let mut errors: Vec<_> = numbers.map(failed).into();
        errors.push(KernelError {
            what: "writing".to_owned(),
            error: io::ErrorKind::TimedOut.into(),
        });
        for error in errors {
            assert_eq!(decided(&error, Tried::NotAsked), None);
            assert!(matches!(opening(&error), OpenError::Later(_)), "{error}");
        }
    }

    #[test]
    fn what_the_kernel_lacks_ends_every_sync_unless_it_is_seen_to_be_there() {
        let lacks = [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT];
        for number in lacks {
            let error = failed(number);
            let own = Some(format!("{error}; {CHECK}"));
            assert_eq!(decided(&error, Tried::NoPlace), own);
            assert_eq!(decided(&error, Tried::Taken), None);
            let OpenError::Host(told) = opening(&error) else {
                panic!("{number}");
            };
            assert_eq!(Some(told), own);
        }
    }

    #[test]
    fn what_others_may_have_brought_about_ends_a_sync_only_where_this_host_is_seen_to_lack_it() {
        for number in [libc::ENOENT, libc::EINVAL, libc::EEXIST, libc::EOPNOTSUPP] {
            let error = failed(number);
            assert_eq!(decided(&error, Tried::Taken), None, "{number}");
            for (refused, remedy) in [(libc::ENOENT, CHECK), (libc::EPERM, RIGHTS)] {
                let elsewhere = KernelError::of("trying", refused);
                let expected = format!("{elsewhere}; {remedy}");
                assert_eq!(decided(&error, Tried::Refused(refused)), Some(expected));
            }
            // That there was no memory for it says nothing of the host.
            assert_eq!(decided(&error, Tried::Refused(libc::ENOMEM)), None);
        }
        for number in [libc::ENOENT, libc::EINVAL, libc::EEXIST] {
            assert_eq!(decided(&failed(number), Tried::NoPlace), None, "{number}");
        }
    }
}
