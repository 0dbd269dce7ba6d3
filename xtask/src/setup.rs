//! `cargo xtask setup`: finds what building and testing needs and installs what is missing.
//!
//! Looking ([`look`]) comes first and changes nothing; its result is a [`Plan`], which is shown
//! before anything is installed. Other commands call [`ensure`], so that each of them works on a
//! fresh machine. Where this process may not install, the plan is printed as commands to type.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use xtask::toolchain::BpfToolchain;

use crate::progress::seconds;

pub(crate) mod apt;
mod linker;
mod look;
mod plan;
pub(crate) mod provisions;

pub(crate) use look::look;
pub(crate) use plan::Plan;

/// Options of `setup`.
#[derive(clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag, and they combine freely"
)]
pub(crate) struct Args {
    /// Install without asking, on a terminal too
    #[arg(long, short, conflicts_with = "dry_run")]
    yes: bool,
    /// Show what would be installed, and install nothing
    #[arg(long)]
    dry_run: bool,
    /// Also what the virtual machines of `test --kernel` need: qemu and three kernels (600 MB)
    #[arg(long)]
    vm: bool,
    /// Also what `windows` takes: a toolchain that compiles for it, and wine (1.3 GB)
    #[arg(long)]
    windows: bool,
}

/// What a command needs from the machine: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs(u8);

impl Needs {
    /// A toolchain for the BPF target, with its clippy.
    pub(crate) const TOOLCHAIN: Self = Self(1);
    /// Programs that tests and the demo run with real traffic.
    pub(crate) const TRAFFIC: Self = Self(1 << 1);
    /// What a client of the node API in Python takes.
    pub(crate) const PYTHON: Self = Self(1 << 2);
    /// qemu and kernels.
    pub(crate) const GUESTS: Self = Self(1 << 3);
    /// A toolchain for Windows, and wine where it can be installed: what building for it takes,
    /// and running that.
    pub(crate) const WINDOWS: Self = Self(1 << 4);
    /// A C++ compiler.
    pub(crate) const FUZZER: Self = Self(1 << 5);
    /// What makes a bare root.
    pub(crate) const FRESH: Self = Self(1 << 6);

    /// Everything that is done on this machine's own kernel.
    pub(crate) const HOST: Self = Self::TOOLCHAIN.and(Self::TRAFFIC).and(Self::PYTHON);
    /// That, and other kernels.
    pub(crate) const VM: Self = Self::HOST.and(Self::GUESTS);
    /// Everything that CI needs.
    pub(crate) const ALL: Self = Self::VM.and(Self::WINDOWS).and(Self::FUZZER);

    /// Both sets.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut needs = Needs::HOST;
    for (wanted, more) in [(args.vm, Needs::GUESTS), (args.windows, Needs::WINDOWS)] {
        if wanted {
            needs = needs.and(more);
        }
    }
    let plan = look(needs)?;
    if plan.is_empty() {
        let toolchain = BpfToolchain::discover()?;
        println!("nothing to do: all is there ({toolchain})");
        return Ok(ExitCode::SUCCESS);
    }
    plan.show();
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && std::io::stdin().is_terminal() && plan.may_install() && !agreed()? {
        println!("nothing was installed");
        return Ok(ExitCode::FAILURE);
    }
    install(&plan, needs)?;
    Ok(ExitCode::SUCCESS)
}

/// Sees to it that `needs` are met: says nothing when they are, else shows the plan and carries
/// it out. Fails with the commands to type where it may not install.
pub(crate) fn ensure(needs: Needs) -> Result<()> {
    let plan = look(needs)?;
    if plan.is_empty() {
        return Ok(());
    }
    plan.show();
    install(&plan, needs)
}

fn install(plan: &Plan, needs: Needs) -> Result<()> {
    if !plan.may_install() {
        let reason = plan.reason_it_may_not();
        eprintln!("\nthis cannot be done from here ({reason}); run these commands yourself:\n");
        for line in plan.commands() {
            eprintln!("  {line}");
        }
        eprintln!();
        bail!("setup is incomplete: {reason}");
    }
    let started = Instant::now();
    plan.carry_out()?;
    let left = look(needs)?;
    if !left.is_empty() {
        bail!("setup ran, but this is still missing: {}", left.summary());
    }
    if needs.has(Needs::TOOLCHAIN) {
        println!("toolchain: {}", BpfToolchain::discover()?);
    }
    println!("setup is complete ({})", seconds(started.elapsed()));
    Ok(())
}

fn agreed() -> Result<bool> {
    print!("go ahead? [Y/n] ");
    std::io::stdout()
        .flush()
        .context("writing to the terminal")?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("reading from the terminal")?;
    Ok(matches!(answer.trim(), "" | "y" | "Y" | "yes"))
}
