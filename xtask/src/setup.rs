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
mod guests;
mod linker;
mod look;
pub(crate) mod needs;
mod plan;
pub(crate) mod provisions;

pub(crate) use look::look;
pub(crate) use needs::Needs;
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
    /// Also what the command `windows` needs: a toolchain that compiles for it, and wine (1.3 GB)
    #[arg(long)]
    windows: bool,
}

impl Args {
    /// What this command needs.
    pub(crate) fn needs(&self) -> Needs {
        Needs::HOST
            .and_if(self.vm, Needs::GUESTS)
            .and_if(self.windows, Needs::WINDOWS)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let needs = args.needs();
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
