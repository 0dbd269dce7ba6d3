//! How many files this process may have open at once. Connections, maps and programs are files, too.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What an agent needs that serves, and that many ask at the same time.
const LEAST: u64 = 512;

/// Takes as many as there may be: the lower limit of most systems is for programs that use `select`,
/// which this one does not. An error if even the upper one is too low: at some moment nobody could
/// come in any more, and no program be loaded.
pub fn allow() -> Result<(), String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|errno| format!("asking how many files may be open: {errno}"))?;
    if hard < LEAST {
        return Err(format!(
            "this process may have {hard} files open, and an agent needs {LEAST}: raise the limit \
             (LimitNOFILE= of a systemd unit, or `ulimit -Hn`)"
        ));
    }
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .map_err(|errno| format!("raising how many files may be open to {hard}: {errno}"))?;
    }
    Ok(())
}
