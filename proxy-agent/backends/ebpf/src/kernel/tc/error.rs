//! Why a program could not be put on a device, taken off, or asked about.

use std::io;

use thiserror::Error;

use super::Hook;
use crate::kernel::{
    OpenError,
    error::{RIGHTS, of_io},
    pins::PinError,
};

/// Why something could not be done about a device.
#[derive(Debug, Error)]
pub enum TcError {
    /// The kernel refused.
    #[error("{what} {hook}: {error}{}", remedy(error))]
    Refused {
        /// What was attempted.
        what: &'static str,
        /// Where.
        hook: Hook,
        /// Why not.
        error: io::Error,
    },
    /// Route netlink could not be asked.
    #[error("asking for {what} over route netlink: {error}; check whether AF_NETLINK is forbidden")]
    NotTold {
        /// What was asked for.
        what: &'static str,
        /// Why there is no answer.
        error: io::Error,
    },
    /// Something of others is where ours has to be.
    #[error(
        "{hook}: {whose} is in the place of Culvert's filter (priority 1, handle 0xc); remove it, or \
         give it another priority: tc filter show dev {} {}",
        hook.device, hook.direction
    )]
    Taken {
        /// Where.
        hook: Hook,
        /// What is there.
        whose: String,
    },
    /// What filters hang on does not have both directions.
    #[error(
        "{}: the device has a qdisc of the kind ingress, which is not Culvert's; replace it with one of \
         the kind clsact: tc qdisc show dev {}",
        .0, .0.device
    )]
    IngressOnly(Hook),
    /// The link works, but the next agent would not find it, or one of an earlier agent cannot go.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl TcError {
    /// Whether the device went away meanwhile, so that nothing is wrong.
    pub fn device_is_gone(&self) -> bool {
        let Self::Refused { error, .. } = self else {
            return false;
        };
        matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
    }
}

/// What it means where serving depends on it.
impl From<TcError> for OpenError {
    fn from(error: TcError) -> Self {
        match error {
            TcError::Refused { what, hook, error } => of_io(&error, &format!("{what} {hook}")),
            TcError::NotTold { what, error } => of_io(&error, &format!("asking for {what}")),
            TcError::Pin(error) => error.into(),
            taken => Self::Host(taken.to_string()),
        }
    }
}

fn remedy(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RIGHTS,
        Some(libc::ENODEV | libc::ENXIO) => "the device is gone",
        Some(libc::ERANGE | libc::ENOSPC) => {
            "the kernel has no room for one more program there: see `bpftool net show`"
        }
        Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP) => {
            "before Linux 6.6 this takes the kernel's modules sch_ingress and cls_bpf: load them, or \
             leave this device out (--devices)"
        }
        _ => return String::new(),
    };
    format!("; {remedy}")
}
