//! What is linked into the program of an image and is no crate of its own lock file: the standard
//! library, the C library and the unwinder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use xtask::toolchain::{Route, output_of};

use super::licences::Library;
use super::toolchain::ImageToolchain;

/// Where systems keep the text of musl's licence.
const MUSL: &[&str] = &[
    "/usr/share/doc/musl-dev/copyright",
    "/usr/share/doc/musl-tools/copyright",
    "/usr/share/licenses/musl-devel/COPYRIGHT",
    "/usr/share/licenses/musl/COPYRIGHT",
];

/// What is linked, by the route of the compiler.
pub(super) fn linked(toolchain: &ImageToolchain) -> Result<Vec<Library>> {
    let compiler = &toolchain.compiler;
    let sysroot = compiler.sysroot().map_err(anyhow::Error::msg)?;
    let mut libraries = vec![
        Library {
            name: "std",
            version: Some(compiler.release.clone()),
            licence: "MIT OR Apache-2.0",
            texts: existing(&[
                sysroot.join("share/doc/rust/COPYRIGHT-library.html"),
                sysroot.join("share/doc/rustc-web/copyright"),
            ]),
        },
        Library {
            name: "musl",
            version: None,
            licence: "MIT",
            texts: existing(MUSL),
        },
    ];
    // What rustup brings has LLVM's, and says so in the text of the standard library.
    if compiler.route == Route::Distribution {
        let mut ask = Command::new("gcc");
        let release = output_of(ask.arg("-dumpfullversion")).map_err(anyhow::Error::msg)?;
        let release = release.trim();
        let series = release.split('.').next().unwrap_or(release);
        libraries.push(Library {
            name: "libgcc",
            version: Some(release.to_owned()),
            licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
            texts: existing(&[format!("/usr/share/doc/gcc-{series}-base/copyright")]),
        });
    }
    for library in &libraries {
        ensure!(
            !library.texts.is_empty(),
            "the text of the licence of {} is not where it was looked for",
            library.name
        );
    }
    Ok(libraries)
}

fn existing(files: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    let files = files.iter().map(|file| file.as_ref().to_owned());
    // One is enough: they say the same.
    files.filter(|file| file.is_file()).take(1).collect()
}
