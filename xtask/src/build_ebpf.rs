//! `cargo xtask build-ebpf`: builds the kernel objects and says what is in them.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use xtask::ebpf::{self, elf};
use xtask::paths;

use crate::progress::{self, seconds};
use crate::setup::{self, Needs};

/// Options of `build-ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Disassemble the programs as well
    #[arg(long)]
    dump: bool,
}

impl Args {
    /// What this command needs.
    pub(crate) fn needs(&self) -> Needs {
        Needs::TOOLCHAIN.and_if(self.dump, Needs::DISASSEMBLER)
    }
}

/// Builds, then lists the programs.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::ensure(args.needs())?;
    let root = paths::workspace_root();
    let built = ebpf::build(root, std::env::consts::ARCH)?;
    println!("{}", built.toolchain);
    for object in &built.objects {
        list(object)?;
    }
    println!("built in {}", seconds(built.took));
    if args.dump {
        let llvm = built.toolchain.compiler.llvm_major;
        progress::run(
            disassembler(llvm)?
                .args(["--disassemble", "--line-numbers"])
                .args(&built.objects),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what is in one object.
fn list(object: &Path) -> Result<()> {
    let bytes = fs::read(object).with_context(|| format!("reading {}", object.display()))?;
    println!("{} ({} bytes)", object.display(), bytes.len());
    let mut functions = elf::functions(&bytes)?;
    functions.sort_by(|a, b| (&a.section, &a.name).cmp(&(&b.section, &b.name)));
    let section_width = functions.iter().map(|f| f.section.len()).max().unwrap_or(0);
    let name_width = functions.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for elf::Function {
        section,
        name,
        instructions,
    } in &functions
    {
        println!("  {section:section_width$}  {name:name_width$}  {instructions:>6} instructions");
    }
    println!("  {} functions", functions.len());
    Ok(())
}

/// An `llvm-objdump`: the one of the compiler's LLVM if it is installed, else any.
fn disassembler(llvm_major: u32) -> Result<Command> {
    let own = Path::new("/usr/lib").join(format!("llvm-{llvm_major}/bin/llvm-objdump"));
    let found = Some(own).filter(|file| paths::is_executable(file));
    match found.or_else(|| paths::find_on_path("llvm-objdump")) {
        Some(file) => Ok(Command::new(file)),
        None => bail!("disassembling: no llvm-objdump on PATH; install LLVM's tools"),
    }
}
