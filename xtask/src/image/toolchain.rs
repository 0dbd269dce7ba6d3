//! What compiles and links the static program of an image, for musl.
//!
//! A compiler comes by one of two routes ([`Foreign`]). rustup's library for musl brings the C
//! library, its start files and an unwinder, and needs a C compiler for what little C there is. What
//! Debian's compiler builds from source is linked with Debian's musl, which has neither an unwinder
//! nor a way to say "static and position-independent" to GCC: both are made here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context, Result};
use xtask::paths;
use xtask::toolchain::{Route, output_of};

use crate::foreign::{self, Foreign, Places};
use crate::progress;

/// Where Debian's musl is.
const MUSL: &str = "/usr/lib/x86_64-linux-musl";

/// What the C library lacks of what the unwinder needs.
const UNWINDING: &str = "xtask/image/unwinding.c";

/// How GCC links a program that is static and may be loaded anywhere: that of Debian knows how to
/// with glibc, and `musl-gcc` makes a dynamic one where both are asked for.
const SPECS: &str = "\
*link_libgcc:
-L{musl} -L .%s

*libgcc:
libgcc.a%s %:if-exists(libgcc_eh.a%s)

*startfile:
{musl}/rcrt1.o {musl}/crti.o crtbeginS.o%s

*endfile:
crtendS.o%s {musl}/crtn.o

*link:
-static -pie --no-dynamic-linker -z text -nostdlib --build-id=sha1

";

/// A processor that images are made for, as OCI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Architecture {
    /// `x86_64`
    Amd64,
    /// `aarch64`
    Arm64,
}

impl Architecture {
    /// The name in OCI documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The compilation target.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// C compilers that will do, the best one first. Those of glibc compile what C there is, which
    /// calls nothing of a C library, and link with what rustup brings.
    fn c_compilers(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["musl-gcc", "x86_64-linux-musl-gcc"],
            Self::Arm64 => &["aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"],
        }
    }
}

/// A complete toolchain for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageToolchain {
    /// For which processor.
    pub(crate) architecture: Architecture,
    /// The compiler.
    pub(crate) compiler: Foreign,
    /// The C compiler.
    c: PathBuf,
}

/// Why there is none. Displays as one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    architecture: Architecture,
    /// What the routes lack, if a compiler is missing.
    pub(crate) compiler: Option<foreign::Missing>,
    /// Whether a C compiler is missing.
    pub(crate) c: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.architecture.target();
        write!(f, "no toolchain for {target} (")?;
        if let Some(compiler) = &self.compiler {
            write!(f, "{compiler}")?;
        }
        if self.c {
            let separator = if self.compiler.is_some() { "; " } else { "" };
            let names = self.architecture.c_compilers().join(" or ");
            write!(f, "{separator}C compiler: no {names} on the PATH")?;
        }
        match self.architecture {
            Architecture::Amd64 => write!(f, "): run `cargo xtask setup`"),
            // No packages of a distribution that is not installed on such a machine are known.
            Architecture::Arm64 => write!(
                f,
                "): run `rustup target add {target}`, and install a C compiler for it (Debian: \
                 gcc-aarch64-linux-gnu)"
            ),
        }
    }
}

impl std::error::Error for Missing {}

impl ImageToolchain {
    /// The toolchain to use on this machine.
    pub(crate) fn discover(architecture: Architecture) -> Result<Self, Missing> {
        let mut c = architecture.c_compilers().iter();
        let c = c.find_map(|name| paths::find_on_path(name));
        Self::discover_in(architecture, &Places::of_this_machine(), c)
    }

    fn discover_in(
        architecture: Architecture,
        places: &Places,
        c: Option<PathBuf>,
    ) -> Result<Self, Missing> {
        let target = architecture.target();
        let found = match Foreign::find(target, places) {
            // What that route links with is Debian's, for the machine that this is.
            Ok(found)
                if found.route == Route::Distribution && architecture != Architecture::Amd64 =>
            {
                Err(foreign::Missing::rustup_alone(target))
            }
            found => found,
        };
        match (found, c) {
            (Ok(compiler), Some(c)) => Ok(Self {
                architecture,
                compiler,
                c,
            }),
            (found, c) => Err(Missing {
                architecture,
                compiler: found.err(),
                c: c.is_none(),
            }),
        }
    }

    /// A program of the C compiler's, such as `objcopy`.
    pub(crate) fn binutil(&self, name: &str) -> Result<PathBuf> {
        let mut ask = Command::new(&self.c);
        ask.arg(format!("-print-prog-name={name}"));
        let said = output_of(&mut ask).map_err(anyhow::Error::msg)?;
        Ok(PathBuf::from(said.trim()))
    }

    /// A command that runs this toolchain's cargo in `root`. What it needs besides is made in `dir`.
    pub(crate) fn cargo(&self, root: &Path, dir: &Path) -> Result<Command> {
        let target = self.architecture.target();
        let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
        match self.compiler.route {
            Route::Rustup => {
                let linker = self.c.display();
                // GCC's own wrapper would take musl's start files, and rustup brings the same.
                if self.architecture == Architecture::Arm64 {
                    flags.push(format!("-Clinker={linker}"));
                }
            }
            Route::Distribution => flags.extend(link_with_musl_of_debian(&self.c, root, dir)?),
        }
        flags.extend(self.same_wherever_it_is_built(root)?);
        let mut command = self.compiler.cargo(root);
        let under = target.replace('-', "_");
        let from = format!("-ffile-prefix-map={}=/culvert", root.display());
        command
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
            .env(format!("CC_{under}"), &self.c)
            .env(format!("CFLAGS_{under}"), from);
        Ok(command)
    }

    /// Flags that keep the places of this machine out of the program.
    fn same_wherever_it_is_built(&self, root: &Path) -> Result<Vec<String>> {
        let sysroot = self.compiler.sysroot().map_err(anyhow::Error::msg)?;
        let source = sysroot.join("lib/rustlib/src/rust");
        let mut places = vec![(root.to_owned(), "/culvert"), (source, "/rust")];
        places.extend(paths::cargo_home().map(|home| (home, "/cargo")));
        // The last that fits is taken.
        places.sort_by_key(|(from, _)| from.as_os_str().len());
        let flag =
            |(from, to): (PathBuf, &str)| format!("--remap-path-prefix={}={to}", from.display());
        Ok(places.into_iter().map(flag).collect())
    }
}

impl fmt::Display for ImageToolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.compiler, self.c.display())
    }
}

/// Makes in `dir` what Debian's musl lacks, and returns the flags that link with both.
fn link_with_musl_of_debian(c: &Path, root: &Path, dir: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let compiled = dir.join("unwinding.o");
    let mut compile = Command::new(c);
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c", "-o"]);
    progress::run(compile.arg(&compiled).arg(root.join(UNWINDING)))?;
    // GCC's, because it is there; under the name that std asks for where it is static.
    let unwinder = dir.join("libunwind.a");
    let mut ask = Command::new(c);
    ask.arg("-print-file-name=libgcc_eh.a");
    let theirs = output_of(&mut ask).map_err(anyhow::Error::msg)?;
    let theirs = theirs.trim();
    fs::copy(theirs, &unwinder).with_context(|| format!("copying {theirs}"))?;
    progress::run(Command::new("ar").arg("rcsD").args([&unwinder, &compiled]))?;
    let specs = dir.join("static-pie.specs");
    fs::write(&specs, SPECS.replace("{musl}", MUSL))
        .with_context(|| format!("writing {}", specs.display()))?;
    // Relative, as cargo links in the workspace: flags are a part of what symbols are named by.
    let within = |path: &Path| {
        path.strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    Ok(vec![
        "-Clink-self-contained=no".to_owned(),
        "-Clinker=gcc".to_owned(),
        format!("-Clink-arg=-specs={}", within(&specs)),
        format!("-Lnative={}", within(dir)),
    ])
}

#[cfg(test)]
mod tests {
    use crate::foreign::tests::{LIBRARY, SOURCE, add, places};

    use super::*;

    #[test]
    fn what_is_missing_is_one_line_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        let said = ImageToolchain::discover_in(Architecture::Amd64, &places, None);
        let said = said.unwrap_err().to_string();
        for part in ["has no std for x86_64-unknown-linux-musl", "no musl-gcc or"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(said.ends_with("run `cargo xtask setup`"), "{said}");
    }

    /// What a panic does: it goes up the stack, and looks for tables at each step.
    const UNWINDS: &str = "
        #include <unwind.h>
        static _Unwind_Reason_Code count(struct _Unwind_Context *at, void *frames)
        { (void)at; ++*(int *)frames; return _URC_NO_REASON; }
        int main(void)
        { int frames = 0; _Unwind_Backtrace(count, &frames); return frames < 2; }";

    #[test]
    fn what_is_linked_with_musl_of_debian_unwinds() {
        let Some(c) = paths::find_on_path("musl-gcc").filter(|_| Path::new(MUSL).is_dir()) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("native");
        link_with_musl_of_debian(&c, paths::workspace_root(), &made).unwrap();
        let source = dir.path().join("unwinds.c");
        fs::write(&source, UNWINDS).unwrap();
        let [object, program] = ["unwinds.o", "unwinds"].map(|name| dir.path().join(name));
        let mut compile = Command::new(&c);
        compile.args(["-fPIC", "-funwind-tables", "-c", "-o"]);
        progress::run(compile.arg(&object).arg(&source)).unwrap();
        let mut link = Command::new("gcc");
        let specs = made.join("static-pie.specs");
        link.arg(format!("-specs={}", specs.display()))
            .args(["-static-pie", "-Wl,--eh-frame-hdr", "-o"])
            .args([&program, &object])
            .arg(format!("-L{}", made.display()))
            .arg("-lunwind");
        progress::run(&mut link).unwrap();
        progress::run(&mut Command::new(&program)).unwrap();
    }

    #[test]
    fn for_another_processor_there_is_rustup_alone() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(dir.path());
        add(dir.path().join(SOURCE));
        let c = || Some(PathBuf::from("/usr/bin/cc"));
        let own = ImageToolchain::discover_in(Architecture::Amd64, &places, c()).unwrap();
        assert_eq!(own.compiler.route, Route::Distribution);
        let other = |places| ImageToolchain::discover_in(Architecture::Arm64, places, c());
        let said = other(&places).unwrap_err().to_string();
        let remedy = "rustup target add aarch64-unknown-linux-musl";
        assert!(said.contains(remedy), "{said}");
        add(dir.path().join(LIBRARY));
        assert_eq!(other(&places).unwrap().compiler.route, Route::Rustup);
    }
}
