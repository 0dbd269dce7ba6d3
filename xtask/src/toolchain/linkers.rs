//! Which bpf-linker goes with a compiler, and which LLVM with a bpf-linker.
//!
//! The one that `setup` built is linked with the very LLVM of the compiler, so that it reads what
//! that writes. One that the user installed is taken for the rustup route, which is how aya's users
//! have it; the distribution's LLVM is ahead of or behind released linkers too often for that. A
//! file name proves nothing: each is asked for its release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BPF_LINKER_VERSION, Compiler, Places, Route, Unfit, output_of};
use crate::paths;

/// The linker to use with this compiler.
pub(super) fn choose(places: &Places, compiler: &Compiler) -> Result<PathBuf, Unfit> {
    let ours = places.cache.as_ref().map(|cache| {
        paths::bpf_linker_root(cache, BPF_LINKER_VERSION, compiler.llvm_major)
            .join("bin/bpf-linker")
    });
    let theirs = places.linker_on_path.clone();
    let theirs = theirs.filter(|_| compiler.route == Route::Rustup);
    let major = compiler.llvm_major;
    let mut unfit = Unfit::Missing(format!("no bpf-linker for LLVM {major}"));
    for linker in [ours, theirs].into_iter().flatten() {
        if paths::is_executable(&linker) {
            match is_the_release(&linker) {
                Ok(()) => return Ok(linker),
                Err(reason) => unfit = reason,
            }
        }
    }
    Err(unfit)
}

/// Asks a linker which release it is.
fn is_the_release(linker: &Path) -> Result<(), Unfit> {
    let said = output_of(Command::new(linker).arg("--version")).map_err(Unfit::Missing)?;
    match said.split_whitespace().nth(1) {
        Some(BPF_LINKER_VERSION) => Ok(()),
        release => Err(Unfit::Other(format!(
            "{} is {}, not {BPF_LINKER_VERSION}",
            linker.display(),
            release.unwrap_or("of unknown release")
        ))),
    }
}

/// The library of LLVM that a compiler in `bin` is linked with: beside it as rustup has it, or among
/// the system's.
pub(super) fn llvm_library(bin: &Path, major: u32) -> Result<PathBuf, String> {
    let libraries = bin.with_file_name("lib");
    let of_the_system = libraries.join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let begin = format!("libLLVM.so.{major}.");
    let mut found: Vec<PathBuf> = [&libraries, &of_the_system]
        .into_iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&begin)
        })
        .collect();
    found.sort();
    found.pop().ok_or_else(|| {
        format!(
            "the compiler in {} has no {begin}* in {} or {}",
            bin.display(),
            libraries.display(),
            of_the_system.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(file: &Path) -> PathBuf {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
        file.to_owned()
    }

    #[test]
    fn the_llvm_of_a_compiler_is_beside_it_or_among_the_system_s() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        let said = llvm_library(&bin, 22).unwrap_err();
        assert!(said.contains("has no libLLVM.so.22.* in"), "{said}");
        let arch = std::env::consts::ARCH;
        let system = dir.path().join(format!("lib/{arch}-linux-gnu"));
        let library = add(&system.join("libLLVM.so.22.1"));
        add(&system.join("libLLVM.so.21.1"));
        assert_eq!(llvm_library(&bin, 22), Ok(library));
        let other = dir.path().join("nightly");
        let own = add(&other.join("lib/libLLVM.so.22.1-rust-1.97.0-nightly"));
        add(&other.join("lib/libLLVM-22-rust-1.97.0-nightly.so"));
        assert_eq!(llvm_library(&other.join("bin"), 22), Ok(own));
    }

    #[test]
    fn this_machine_s_compiler_has_its_llvm() {
        if let Ok(compiler) = Places::of_this_machine().distribution_compiler() {
            assert!(compiler.llvm_library().unwrap().is_file());
        }
    }
}
