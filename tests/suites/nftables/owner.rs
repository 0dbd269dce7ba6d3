//! Somebody else who owns a table of nftables: the kernel lets nobody change it before that process
//! ends (since Linux 5.12).

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsFd as _,
    process::{ChildStdin, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use proxy_tests::{
    agent::LIMIT,
    process::{self, Process},
    world::Host,
};

/// Owns a table until it is dropped.
#[derive(Debug)]
pub struct TableOwner {
    /// `nft` reads from it, and ends when it does.
    stdin: Option<ChildStdin>,
    process: Process,
}

impl TableOwner {
    /// Takes a table, `ip6 NAME`, away from whoever has it in the network namespace of `host`.
    pub fn of(host: &Host, table: &str) -> Result<Self> {
        Self::started(host.spawn(nft())?, table)
    }

    /// The same in the network namespace of this thread.
    pub fn here(table: &str) -> Result<Self> {
        let own = File::open("/proc/thread-self/ns/net").context("cannot open a namespace")?;
        let mut command = nft();
        process::enter(&mut command, Some(own.as_fd()), None)?;
        Self::started(Process::spawn("nft", command)?, table)
    }

    fn started(mut process: Process, table: &str) -> Result<Self> {
        let mut stdin = process.child().stdin.take().context("nft has no stdin")?;
        let stdout = process.child().stdout.take().context("nft has no stdout")?;
        let table = format!("table {table}");
        let script =
            format!("add {table}\ndelete {table}\nadd {table} {{ flags owner; }}\nlist tables\n");
        stdin
            .write_all(script.as_bytes())
            .context("nft does not listen")?;
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        ensure!(
            lines.any(|line| line.contains(&table)),
            "nft ended, and does not own {table}"
        );
        Ok(Self {
            stdin: Some(stdin),
            process,
        })
    }

    /// Lets it go; the table is gone when this returns.
    pub fn release(mut self) -> Result<()> {
        self.stdin = None;
        self.process.wait(LIMIT).map(drop)
    }
}

fn nft() -> Command {
    let mut command = Command::new("nft");
    command
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}
