//! The programs of a loaded object, and which of those on sockets is on which hook.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use aya::{
    Ebpf,
    programs::{Program, ProgramError},
};

use super::super::{OpenError, rights, with_causes};
use crate::kernel::error::of_kernel;

/// The hook of a program: `enum bpf_attach_type`, whose numbers are kernel ABI.
pub fn hook(program: &str) -> u32 {
    match program {
        "culvert_conn4" => 10,
        "culvert_conn6" => 11,
        "culvert_send4" => 14,
        "culvert_send6" => 15,
        "culvert_recv4" => 19,
        "culvert_recv6" => 20,
        "culvert_peer4" => 29,
        "culvert_peer6" => 30,
        "culvert_close" => 34,
        // None that the kernel knows.
        _ => u32::MAX,
    }
}

/// Why a program was not loaded.
#[derive(Debug)]
pub struct LoadFailure {
    /// What went wrong.
    pub error: OpenError,
    /// What the verifier said, if it came to that.
    log: String,
}

impl LoadFailure {
    /// Whether the verifier refused a call of one of the helpers with these numbers (`enum
    /// bpf_func_id`). It says `unknown func bpf_set_retval#187`, or `invalid func unknown#187`.
    pub fn refuses_helper(&self, helpers: &[u32]) -> bool {
        helpers.iter().any(|helper| {
            let named = format!("#{helper}");
            let mut after = self.log.split(&named).skip(1);
            after.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        })
    }
}

impl From<OpenError> for LoadFailure {
    fn from(error: OpenError) -> Self {
        Self {
            error,
            log: String::new(),
        }
    }
}

/// Loads the program `name` into the kernel.
pub fn load(ebpf: &mut Ebpf, name: &str) -> Result<(), LoadFailure> {
    let loaded = match ebpf.program_mut(name) {
        Some(Program::CgroupSockAddr(program)) => program.load(),
        Some(Program::CgroupSock(program)) => program.load(),
        Some(Program::SchedClassifier(program)) => program.load(),
        _ => return Err(missing(name).into()),
    };
    let what = format!("loading program {name}");
    loaded.map_err(|error| match &error {
        // What the verifier said is for developers; its end says why.
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            let end = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join(" | ");
            let told = format!("{io_error}: {end}");
            let error = if asks_for_perfmon(io_error) {
                OpenError::Host(format!("{what}: {told}; {PERFMON}"))
            } else {
                of_kernel(&what, io_error, &told)
            };
            LoadFailure { error, log }
        }
        _ => of_kernel(&what, &error, &with_causes(&error)).into(),
    })
}

/// What to do about a program that is too free with pointers for who may not look into the kernel.
const PERFMON: &str = "this kernel's verifier asks for CAP_PERFMON: run as root, or with CAP_BPF, \
                       CAP_NET_ADMIN and CAP_PERFMON";

/// The verifier answers EACCES where it finds a fault, and where it lets only some do a thing: what
/// is not refused to all is refused for want of this.
fn asks_for_perfmon(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EACCES) && !rights::spares_pointers()
}

/// Lines of the verifier's log that are told, from its end.
const VERIFIER_LINES: usize = 5;

/// The loaded program `name`.
pub fn fd<'a>(ebpf: &'a Ebpf, name: &str) -> Result<BorrowedFd<'a>, OpenError> {
    let program = ebpf.program(name).ok_or_else(|| missing(name))?;
    match program.fd() {
        Ok(fd) => Ok(fd.as_fd()),
        Err(error) => Err(OpenError::Other(format!("program {name}: {error}"))),
    }
}

fn missing(name: &str) -> OpenError {
    OpenError::Other(format!("the kernel object has no program {name}"))
}

#[cfg(test)]
mod tests {
    use proxy_common::names::SOCKET_PROGRAMS;

    use super::*;

    #[test]
    fn only_a_verifier_that_names_the_helper_refuses_it() {
        let failure = |log: &str| LoadFailure {
            error: OpenError::Other("x".to_owned()),
            log: log.to_owned(),
        };
        for (log, expected) in [
            ("12: (85) call pc+3\ninvalid func unknown#187\n", true),
            ("unknown func bpf_set_retval#187", true),
            (
                "program of this type cannot use helper bpf_set_retval#187",
                true,
            ),
            ("unknown func bpf_probe_read_kernel#113", true),
            ("unknown func x#1870", false),
            ("unknown func bpf_get_current_comm#16", false),
            ("BPF program is too large. Processed 1000001 insn", false),
            ("", false),
        ] {
            let refused = failure(log).refuses_helper(&[187, 113]);
            assert_eq!(refused, expected, "{log}");
        }
    }

    #[test]
    fn every_program_has_a_hook_of_its_own() {
        let mut hooks = SOCKET_PROGRAMS.map(hook).to_vec();
        hooks.sort_unstable();
        hooks.dedup();
        assert_eq!(hooks.len(), SOCKET_PROGRAMS.len());
        assert!(!hooks.contains(&u32::MAX));
    }
}
