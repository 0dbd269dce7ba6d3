//! `cargo xtask docs`: what is generated: the reference pages from the code, the messages of the
//! node API from its proto.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo::{self, Object, cargo};
use crate::tally::Tally;
use crate::test::BLESS_ENV;

/// Options of `docs`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if a page is out of date
    #[arg(long)]
    check: bool,
}

/// Writes the pages, or compares them.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut passed = true;
    let programs: [&[&str]; 2] = [
        &["--test", "unprivileged", "--", "reference::"],
        &["--test", "wire", "--test", "dependencies"],
    ];
    for selected in programs {
        let mut command = cargo("test", Object::Skipped);
        command.args(selected);
        if args.check {
            command.env_remove(BLESS_ENV);
        } else {
            command.env(BLESS_ENV, "1");
        }
        passed &= cargo::test(&mut command, &mut Tally::default())?;
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
