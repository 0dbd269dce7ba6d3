//! Why something could not be done to a pin.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::super::{OpenError, error::passes};

/// Why something could not be done to a pin.
#[derive(Debug, Error)]
pub enum PinError {
    /// The kernel refused.
    #[error("{what} {path}: {error}")]
    Refused {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Something of others is there.
    #[error("{0} is not a pin of Culvert: move it elsewhere, or remove it")]
    NotOurs(PathBuf),
    /// A program that is attached to a device stays there.
    #[error("{0}")]
    Device(String),
    /// All that stands in the way.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}

impl PinError {
    /// Whether what it comes from passes by itself: want of memory or of open files.
    fn passes(&self) -> bool {
        match self {
            Self::Refused { error, .. } => passes(error),
            Self::NotOurs(_) | Self::Device(_) => false,
            Self::Several(all) => all.iter().all(Self::passes),
        }
    }
}

/// What it means where a start, or the change of programs, depends on it.
impl From<PinError> for OpenError {
    fn from(error: PinError) -> Self {
        if error.passes() {
            Self::Later(error.to_string())
        } else {
            Self::Other(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(number: i32) -> PinError {
        PinError::Refused {
            what: "pinning",
            path: "/pins/links/culvert_conn4".into(),
            error: io::Error::from_raw_os_error(number),
        }
    }

    #[test]
    fn want_of_memory_at_a_pin_is_waited_for_as_anywhere_else() {
        let not_ours = || PinError::NotOurs("/pins/links/mine".into());
        for (error, passes) in [
            (refused(libc::ENOMEM), true),
            (refused(libc::EPERM), false),
            (not_ours(), false),
            (PinError::Several(vec![refused(libc::ENOMEM)]), true),
            (
                PinError::Several(vec![refused(libc::ENOMEM), not_ours()]),
                false,
            ),
        ] {
            let told = error.to_string();
            match OpenError::from(error) {
                OpenError::Later(text) => assert_eq!((text, true), (told, passes)),
                OpenError::Other(text) => assert_eq!((text, false), (told, passes)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn all_that_stands_in_the_way_is_told() {
        let all = PinError::Several(vec![
            PinError::NotOurs("/pins/links/mine".into()),
            refused(libc::EPERM),
        ]);
        assert_eq!(
            all.to_string(),
            "/pins/links/mine is not a pin of Culvert: move it elsewhere, or remove it; pinning \
             /pins/links/culvert_conn4: Operation not permitted (os error 1)"
        );
    }
}
