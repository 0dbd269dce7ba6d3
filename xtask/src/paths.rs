//! Where things are: the workspace, its build directories and the per-user cache of tools.
//!
//! Only names places; creates nothing.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Environment variable that moves the per-user cache of tools.
pub const CACHE_ENV: &str = "CULVERT_CACHE";

/// The root of the workspace this program was compiled in.
///
/// Compiled in, not looked up: a checkout that is moved is rebuilt by cargo anyway, and a build
/// script runs with another package's manifest directory in its environment.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ lies in the workspace root")
}

/// The build directory of the kernel programs.
///
/// Always beside the host's, whatever `CARGO_TARGET_DIR` says: cargo holds a lock on the outer
/// directory while a build script runs, and sharing it would wait for ever.
pub fn bpf_target_dir(root: &Path) -> PathBuf {
    root.join("target/bpf")
}

/// The build directory of everything compiled without the kernel object, kept apart so that
/// such builds and full ones do not undo each other's work.
pub fn quick_target_dir(root: &Path) -> PathBuf {
    root.join("target/quick")
}

/// The per-user cache that holds what `cargo xtask setup` builds or unpacks: `$CULVERT_CACHE`,
/// else `$XDG_CACHE_HOME/culvert`, else `$HOME/.cache/culvert`.
pub fn cache_dir() -> Result<PathBuf> {
    cache_dir_from(|name| env::var_os(name))
}

fn cache_dir_from(var: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name: &str| {
        var(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = set(CACHE_ENV) {
        return Ok(own);
    }
    // The XDG specification says that a relative path is invalid and must be ignored.
    if let Some(xdg) = set("XDG_CACHE_HOME").filter(|path| path.is_absolute()) {
        return Ok(xdg.join("culvert"));
    }
    match set("HOME") {
        Some(home) => Ok(home.join(".cache/culvert")),
        None => bail!(
            "finding a place for build tools: neither {CACHE_ENV} nor XDG_CACHE_HOME nor HOME is \
             set; set {CACHE_ENV} to a directory you may write"
        ),
    }
}

/// Where cargo keeps the sources of crates, if that can be told.
pub fn cargo_home() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let own = set("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(Path::new(&set("HOME")?).join(".cargo")))
}

/// Where `setup` installs the bpf-linker that understands bitcode of this LLVM major version.
pub fn bpf_linker_root(cache: &Path, version: &str, llvm_major: u32) -> PathBuf {
    cache.join(format!("bpf-linker-{version}-llvm-{llvm_major}"))
}

/// Where `setup --vm` unpacks kernels, one directory each, named as `uname -r` prints it.
pub fn kernels_dir(cache: &Path) -> PathBuf {
    cache.join("kernels")
}

/// The first executable file of this name in the directories of `PATH`.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // Administrators' directories are often missing from an ordinary user's PATH.
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(extra)
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

/// Whether this is a file that somebody may execute.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_with(vars: &[(&str, &str)]) -> Result<PathBuf> {
        cache_dir_from(|name| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_cache_follows_its_own_variable_first() {
        let all = [
            (CACHE_ENV, "/own"),
            ("XDG_CACHE_HOME", "/xdg"),
            ("HOME", "/home/u"),
        ];
        assert_eq!(cache_with(&all).unwrap(), Path::new("/own"));
        assert_eq!(cache_with(&all[1..]).unwrap(), Path::new("/xdg/culvert"));
        assert_eq!(
            cache_with(&all[2..]).unwrap(),
            Path::new("/home/u/.cache/culvert")
        );
    }

    #[test]
    fn empty_and_relative_cache_variables_do_not_count() {
        let vars = [
            (CACHE_ENV, ""),
            ("XDG_CACHE_HOME", "not/absolute"),
            ("HOME", "/home/u"),
        ];
        assert_eq!(
            cache_with(&vars).unwrap(),
            Path::new("/home/u/.cache/culvert")
        );
    }

    #[test]
    fn without_any_home_the_error_says_what_to_set() {
        assert!(cache_with(&[]).unwrap_err().to_string().contains(CACHE_ENV));
    }

    #[test]
    fn the_workspace_root_holds_the_lock_file() {
        assert!(workspace_root().join("Cargo.lock").is_file());
    }
}
