//! The environment of a cargo that is started from inside another cargo.
//!
//! A build script, and a program under `cargo run`, inherit what the outer cargo says about its
//! own compilation. Handed on, that would choose the wrong compiler, apply the host's flags to
//! the BPF target or share a locked target directory.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings that a person or a machine makes and that hold for every cargo alike.
const KEPT: &[&str] = &[
    "CARGO_HOME",
    "CARGO_BUILD_JOBS",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "CARGO_TERM_",
];

/// What cargo sets for build scripts without a common prefix.
const BUILD_SCRIPT_VARIABLES: &[&str] = &[
    "DEBUG",
    "HOST",
    "NUM_JOBS",
    "OPT_LEVEL",
    "OUT_DIR",
    "PROFILE",
    "TARGET",
];

/// Whether a variable describes the outer compilation and must not reach a nested one.
fn belongs_to_the_outer_cargo(name: &str) -> bool {
    if KEPT
        .iter()
        .any(|kept| name == *kept || (kept.ends_with('_') && name.starts_with(kept)))
    {
        return false;
    }
    name == "CARGO"
        || name.starts_with("CARGO_")
        || name.starts_with("DEP_")
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
        || matches!(
            name,
            "RUSTFLAGS" | "RUSTUP_TOOLCHAIN" | "RUST_RECURSION_COUNT"
        )
        || BUILD_SCRIPT_VARIABLES.contains(&name)
}

/// Removes from `command` everything that describes the compilation this process is part of.
pub fn forget_outer_cargo(command: &mut Command, root: &Path) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_the_outer_cargo) {
            command.env_remove(name);
        }
    }
    if let Some(libraries) = env::var_os("LD_LIBRARY_PATH") {
        match without_cargo_libraries(&libraries, root) {
            Some(rest) => command.env("LD_LIBRARY_PATH", rest),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
    }
}

/// Cargo lists its target directories and the active toolchain's libraries for what it runs;
/// another toolchain's compiler must not find its libraries there. `None` if nothing is left.
fn without_cargo_libraries(libraries: &OsStr, root: &Path) -> Option<OsString> {
    let target = root.join("target");
    // rustup keeps a toolchain's libraries in `toolchains/<name>/lib` under its home.
    let of_rustup = |dir: &Path| {
        dir.components()
            .any(|part| part.as_os_str() == "toolchains")
    };
    let rest: Vec<PathBuf> = env::split_paths(libraries)
        .filter(|dir| !dir.as_os_str().is_empty() && !dir.starts_with(&target) && !of_rustup(dir))
        .collect();
    if rest.is_empty() {
        None
    } else {
        env::join_paths(rest).ok()
    }
}

/// `PATH` with these directories first.
pub fn path_with(first: &[&Path]) -> OsString {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let all = first
        .iter()
        .map(|dir| dir.to_path_buf())
        .chain(env::split_paths(&inherited));
    // Only a directory with a colon in its name cannot be joined; such a one is of no use here.
    env::join_paths(all).unwrap_or(inherited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_machine_reach_the_nested_cargo() {
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "CARGO_NET_RETRY",
            "CARGO_TERM_COLOR",
            "RUSTUP_HOME",
        ] {
            assert!(!belongs_to_the_outer_cargo(name), "{name} was dropped");
        }
    }

    #[test]
    fn facts_about_the_outer_compilation_do_not() {
        for name in [
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_MAKEFLAGS",
            "CARGO_CFG_TARGET_ARCH",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "OUT_DIR",
            "TARGET",
        ] {
            assert!(belongs_to_the_outer_cargo(name), "{name} was handed on");
        }
    }

    #[test]
    fn cargo_s_own_library_directories_are_dropped() {
        let root = Path::new("/src/culvert");
        let given = "/src/culvert/target/debug/deps:/r/toolchains/t/lib/rustlib/x/lib:/r/toolchains/t/lib:/opt/lib";
        assert_eq!(
            without_cargo_libraries(OsStr::new(given), root),
            Some("/opt/lib".into())
        );
        assert_eq!(
            without_cargo_libraries(OsStr::new("/src/culvert/target/debug"), root),
            None
        );
    }
}
