//! Which toolchain compiles for Windows: a compiler by one of two routes ([`Foreign`]), and
//! mingw-w64, which links.

use std::path::Path;
use std::{fmt, process};

use xtask::paths;

use crate::foreign::{self, Foreign, Places};

/// The compilation target: what can be linked without anything of Microsoft's.
pub(crate) const TARGET: &str = "x86_64-pc-windows-gnu";

/// Links, and compiles the little C there is.
pub(crate) const LINKER: &str = "x86_64-w64-mingw32-gcc";

/// A complete toolchain for Windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WindowsToolchain(Foreign);

/// Why there is none. Displays as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// What the routes lack, if a compiler is missing.
    pub(crate) compiler: Option<foreign::Missing>,
    /// Whether the linker is missing.
    pub(crate) linker: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no toolchain for {TARGET} (")?;
        if let Some(compiler) = &self.compiler {
            write!(f, "{compiler}")?;
        }
        if self.linker {
            let separator = if self.compiler.is_some() { "; " } else { "" };
            write!(f, "{separator}linker: no {LINKER} on the PATH")?;
        }
        write!(f, "): run `cargo xtask setup --windows`")
    }
}

impl std::error::Error for Missing {}

impl WindowsToolchain {
    /// The toolchain to use on this machine.
    pub(crate) fn discover() -> Result<Self, Missing> {
        let linker = paths::find_on_path(LINKER);
        Self::discover_in(&Places::of_this_machine(), linker.as_deref())
    }

    fn discover_in(places: &Places, linker: Option<&Path>) -> Result<Self, Missing> {
        match Foreign::find(TARGET, places) {
            Ok(compiler) if linker.is_some() => Ok(Self(compiler)),
            found => Err(Missing {
                compiler: found.err(),
                linker: linker.is_none(),
            }),
        }
    }

    /// A command that runs this toolchain's cargo in the workspace.
    pub(super) fn cargo(&self) -> process::Command {
        self.0.cargo(paths::workspace_root())
    }

    /// The cargo arguments that select the target, and its standard library.
    pub(super) fn target_args(&self) -> Vec<String> {
        self.0.target_args("panic_abort")
    }
}

impl fmt::Display for WindowsToolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::foreign::tests::{LIBRARY, add, places};

    use super::*;

    #[test]
    fn what_is_missing_is_one_line_that_names_setup() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let said = WindowsToolchain::discover_in(&places, None)
            .unwrap_err()
            .to_string();
        for part in ["has no std for", "no x86_64-w64-mingw32-gcc"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(
            said.ends_with("run `cargo xtask setup --windows`"),
            "{said}"
        );
        add(dir.path().join(LIBRARY));
        let missing = WindowsToolchain::discover_in(&places, None).unwrap_err();
        assert_eq!((missing.compiler, missing.linker), (None, true));
    }
}
