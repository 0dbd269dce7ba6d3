//! The socket programs of a loaded object: which is on which hook.

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::{
    Ebpf,
    programs::{Program, ProgramError},
};

use super::super::{OpenError, with_causes};

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

/// Loads the program `name` into the kernel.
pub fn load(ebpf: &mut Ebpf, name: &str) -> Result<(), OpenError> {
    let loaded = match ebpf.program_mut(name) {
        Some(Program::CgroupSockAddr(program)) => program.load(),
        Some(Program::CgroupSock(program)) => program.load(),
        _ => return Err(missing(name)),
    };
    loaded.map_err(|error| match &error {
        // What the verifier said is for developers; its end says why.
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            let end = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join(" | ");
            OpenError::kernel(
                &format!("loading program {name}"),
                &format!("{io_error}: {end}"),
            )
        }
        _ => OpenError::kernel(&format!("loading program {name}"), &with_causes(&error)),
    })
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
    fn every_program_has_a_hook_of_its_own() {
        let mut hooks = SOCKET_PROGRAMS.map(hook).to_vec();
        hooks.sort_unstable();
        hooks.dedup();
        assert_eq!(hooks.len(), SOCKET_PROGRAMS.len());
        assert!(!hooks.contains(&u32::MAX));
    }
}
