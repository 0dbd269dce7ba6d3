//! The process executes itself anew: the same program, arguments and surroundings, another configuration.
//! What is in the kernel stays, and the next start adopts it, as after an upgrade. Must not know why.

use std::{
    convert::Infallible,
    env,
    ffi::{CString, OsString},
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{AccessFlags, Pid, close, eaccess, execve},
};

use super::{RunError, signals::Hearing};

/// This process's program, even if its file was replaced or removed since.
const OWN: &str = "/proc/self/exe";
/// How often the process has executed itself anew: a metric goes on counting.
const TIMES: &str = "CULVERT_EXECUTED_ANEW";

/// The descriptor of a file that holds the configuration that the process has executed itself anew for.
const CONFIGURATION: &str = "CULVERT_CONFIGURATION_FD";

/// The text of the configuration file that this process has executed itself anew for, once: it was found to be right,
/// and the file may hold something else by now.
pub fn handed_over() -> Option<String> {
    let number: RawFd = env::var(CONFIGURATION).ok()?.parse().ok()?;
    let text = fs::read_to_string(format!("/proc/self/fd/{number}")).ok();
    close(number).ok();
    text
}

/// How often this process has executed itself anew.
pub fn times() -> u32 {
    let times = env::var(TIMES).ok();
    times.and_then(|times| times.parse().ok()).unwrap_or(0)
}

/// Why the program cannot be executed any more.
pub fn check() -> Result<(), String> {
    eaccess(OWN, AccessFlags::X_OK).map_err(|errno| {
        format!(
            "this process's own program cannot be executed: {errno}; make its file executable again, and do \
             not mount its file system noexec"
        )
    })
}

/// Reaps children that ended unheard while this process executed itself.
pub fn reap() {
    while times() > 0
        && let Ok(status) = waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG))
        && status != WaitStatus::StillAlive
    {}
}

/// An agent that has ended, whose process is to begin again.
pub struct Anew {
    hearing: Hearing,
    configuration: Arc<str>,
}

impl Anew {
    /// `configuration` is what the file holds that the next start goes by.
    pub(super) const fn new(hearing: Hearing, configuration: Arc<str>) -> Self {
        Self {
            hearing,
            configuration,
        }
    }

    /// Executes this process's program in its place. Nothing goes on that it did: no thread stays, and every
    /// descriptor closes but the standard ones and one with the configuration. Returns only if that fails, or,
    /// without an error, if a signal told the process to end meanwhile. Then it should.
    pub fn execute(self) -> Result<(), RunError> {
        if self.hearing.end() {
            return Ok(());
        }
        let program = program();
        let error = match execute(&program, &self.configuration) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        Err(RunError::Io {
            what: format!(
                "executing {} anew, for the changed configuration: the dataplane stays; start the agent \
                 again",
                program.display()
            ),
            error,
        })
    }
}

fn execute(program: &Path, configuration: &str) -> io::Result<Infallible> {
    let arguments = strings(env::args_os())?;
    let others = env::vars_os().filter(|(name, _)| name != TIMES && name != CONFIGURATION);
    let times = times().saturating_add(1).to_string();
    // In memory, and without the flag that closes it.
    let mut file = File::from(memfd_create("configuration", MFdFlags::empty())?);
    file.write_all(configuration.as_bytes())?;
    let number = file.as_raw_fd().to_string();
    let all = others.chain([
        (TIMES.into(), times.into()),
        (CONFIGURATION.into(), number.into()),
    ]);
    let environment = strings(all.map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        variable
    }))?;
    let path = CString::new(program.to_owned().into_os_string().into_vec())?;
    Ok(execve(&path, &arguments, &environment)?)
}

fn strings(all: impl Iterator<Item = OsString>) -> io::Result<Vec<CString>> {
    all.map(|one| Ok(CString::new(one.into_vec())?)).collect()
}

/// Its path, so that lists of processes go on showing its name; where another file is at that path by
/// now, what does not depend on paths.
fn program() -> PathBuf {
    let number = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    };
    let own = PathBuf::from(OWN);
    match env::current_exe() {
        Ok(path) if number(&path).is_some() && number(&path) == number(&own) => path,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named_by_its_path_while_it_is_there() {
        assert_eq!(program(), env::current_exe().unwrap());
        check().unwrap();
    }

    #[test]
    fn what_the_kernel_would_cut_off_is_an_error() {
        assert!(strings([OsString::from("a\0b")].into_iter()).is_err());
        let all = strings(["a", ""].map(OsString::from).into_iter()).unwrap();
        assert_eq!(all, [c"a".to_owned(), c"".to_owned()]);
    }
}
