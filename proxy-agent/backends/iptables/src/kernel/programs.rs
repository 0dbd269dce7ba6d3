//! The programs of iptables: which flavour this host uses, and what they are asked.
//!
//! A host may have both, and rules in both: *legacy*, whose tables are replaced as a whole with each change,
//! and *nft*, whose rules are in `nf_tables`. What others of this host use is what counts: packets meet the
//! rules of either, but two that do not see each other's rules cannot order them.

use std::{fmt, fs, io, path::Path, process::Command, time::Duration};

use proxy_model::IpFamily;
use thiserror::Error;

use crate::{
    saved::Saved,
    table::{SERVICES, Table},
};

/// How long others may hold the lock of the legacy tables before a program gives up, in seconds.
const WAIT: u64 = 5;
/// How long a program may take, lock included. kube-proxy needs ten seconds for 10,000 Services.
const LIMIT: Duration = Duration::from_mins(2);
/// What programs end with if somebody else holds the lock, or the kernel lacks memory.
const RESOURCE_PROBLEM: i32 = 4;
/// Chains that kubelet makes in the table mangle, to be seen by others.
const KUBELETS: [&str; 2] = ["KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"];

/// A flavour of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// Rules are in `nf_tables`.
    Nft,
    /// Rules are in tables of their own.
    Legacy,
}

impl Flavour {
    /// Both, the more common one first.
    pub const ALL: [Self; 2] = [Self::Nft, Self::Legacy];

    /// As names of programs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a program did not do what it was asked for.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// It could not be run, or did not end.
    #[error("running `{program}`: {error}")]
    NotRun {
        /// Which.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// Others hold the lock.
    #[error("`{program}`: others held the lock of the tables of iptables for {WAIT} s: {said}")]
    Locked {
        /// Which.
        program: String,
        /// What it said.
        said: String,
    },
    /// The host goes on routing packets from loopback addresses, as an agent had it do.
    #[error(
        "setting {file} back to 0: {error}; set it yourself, and clean up again: rules that keep neighbours from what \
         listens on 127.0.0.1 alone stay until then"
    )]
    NotShut {
        /// The file of the sysctl.
        file: &'static str,
        /// Why.
        error: io::Error,
    },
    /// It said no.
    #[error("`{program}` failed: {said}")]
    Refused {
        /// Which.
        program: String,
        /// What it said.
        said: String,
    },
}

impl ProgramError {
    /// Whether it may be because of what it was given.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// The programs of one flavour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Programs {
    /// Which.
    pub flavour: Flavour,
    /// Their names do not say which flavour they are.
    is_plain: bool,
}

impl Programs {
    /// Those of a flavour, by the names that say so.
    pub const fn of(flavour: Flavour) -> Self {
        Self {
            flavour,
            is_plain: false,
        }
    }

    /// The name of `what`, such as `restore`, for a family.
    pub fn name(self, family: IpFamily, what: &str) -> String {
        let program = match family {
            IpFamily::V4 => "iptables",
            IpFamily::V6 => "ip6tables",
        };
        if self.is_plain {
            format!("{program}-{what}")
        } else {
            format!("{program}-{}-{what}", self.flavour)
        }
    }

    /// What is in the tables of a family, or in one of them.
    pub fn save(self, family: IpFamily, table: Option<Table>) -> Result<Saved, ProgramError> {
        let name = self.name(family, "save");
        let mut command = Command::new(&name);
        if let Some(table) = table {
            command.args(["-t", table.name()]);
        }
        let text = run(&name, command, "")?;
        Saved::read_whole(&text).map_err(|why| ProgramError::NotRun {
            program: name,
            error: io::Error::new(io::ErrorKind::InvalidData, why),
        })
    }

    /// Has the tables of a family changed. What is not named stays.
    pub fn restore(self, family: IpFamily, text: &str) -> Result<(), ProgramError> {
        let name = self.name(family, "restore");
        let mut command = Command::new(&name);
        command.args(["-w", &WAIT.to_string(), "--noflush", "--counters"]);
        run(&name, command, text).map(drop)
    }

    /// Whether its tables were ever used in this network namespace: asking after those of the legacy flavour
    /// would have the kernel load them.
    pub fn are_used(self, family: IpFamily) -> bool {
        if self.flavour == Flavour::Nft {
            return true;
        }
        let list = match family {
            IpFamily::V4 => "ip_tables_names",
            IpFamily::V6 => "ip6_tables_names",
        };
        match fs::read_to_string(format!("/proc/thread-self/net/{list}")) {
            Ok(names) => !names.is_empty(),
            // Without the module there is no list. Only root may read it.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Why it cannot be used.
    fn why_not(self) -> Option<String> {
        let looked = self.save(IpFamily::V4, Some(Table::Mangle));
        looked.err().map(|error| error.to_string())
    }

    /// Whether there are such programs here.
    fn are_there(self) -> bool {
        let is_there = |family| {
            let name = self.name(family, "restore");
            let paths = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&paths).any(|path| path.join(&name).exists())
        };
        is_there(IpFamily::V4)
    }
}

fn run(name: &str, command: Command, input: &str) -> Result<String, ProgramError> {
    let output = proxy_program::run_within(LIMIT, command, input.as_bytes());
    let output = output.map_err(|error| ProgramError::NotRun {
        program: name.to_owned(),
        error,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let said = said.join("; ");
    let program = name.to_owned();
    let is_locked = output.status.code() == Some(RESOURCE_PROBLEM) && said.contains("xtables lock");
    Err(if is_locked {
        ProgramError::Locked { program, said }
    } else if said.contains("Cannot allocate memory") {
        let error = io::Error::new(io::ErrorKind::OutOfMemory, said);
        ProgramError::NotRun { program, error }
    } else if said.contains("Resource temporarily unavailable") {
        let error = io::Error::new(io::ErrorKind::WouldBlock, said);
        ProgramError::NotRun { program, error }
    } else if output.status.code().is_none() {
        // Somebody killed it: that says nothing of what it was given.
        let error = io::Error::other(output.status.to_string());
        ProgramError::NotRun { program, error }
    } else if said.is_empty() {
        let said = output.status.to_string();
        ProgramError::Refused { program, said }
    } else {
        ProgramError::Refused { program, said }
    })
}

/// Which programs there are, and which of them this host uses.
#[derive(Debug)]
pub struct Found {
    /// Each flavour that is here, with why it cannot be used, if so.
    pub flavours: Vec<(Programs, Option<String>)>,
    /// The one to use, and why that.
    pub chosen: Option<(Programs, &'static str)>,
}

/// Looks for programs, and for the rules of others and of earlier runs that tell which to use. Legacy tables that
/// nobody uses are looked at only if nothing else is left: the look makes them.
pub fn find() -> Found {
    let mut flavours: Vec<_> = Flavour::ALL
        .into_iter()
        .map(Programs::of)
        .filter(|programs| programs.are_there())
        .collect();
    if flavours.is_empty() {
        flavours.extend(plain());
    }
    let mut flavours: Vec<_> = flavours
        .into_iter()
        .map(|programs| {
            let is_used = programs.are_used(IpFamily::V4);
            (programs, is_used.then(|| programs.why_not()).flatten())
        })
        .collect();
    loop {
        let chosen = choose(&flavours);
        let Some((programs, _)) = chosen else {
            return Found { flavours, chosen };
        };
        let why = (!programs.are_used(IpFamily::V4))
            .then(|| programs.why_not())
            .flatten();
        let Some(why) = why else {
            return Found { flavours, chosen };
        };
        for (one, of_one) in &mut flavours {
            if *one == programs {
                *of_one = Some(why.clone());
            }
        }
    }
}

/// The one to use of those that can be, and why that.
fn choose(flavours: &[(Programs, Option<String>)]) -> Option<(Programs, &'static str)> {
    let usable: Vec<_> = flavours
        .iter()
        .filter(|(_, why)| why.is_none())
        .map(|(one, _)| *one)
        .collect();
    let with = |table, chains: &[&str]| {
        let is_there = |saved: Saved| {
            chains
                .iter()
                .any(|chain| saved.chain(table, chain).is_some())
        };
        usable.iter().copied().find(|programs| {
            [IpFamily::V4, IpFamily::V6].into_iter().any(|family| {
                programs.are_used(family) && programs.save(family, Some(table)).is_ok_and(is_there)
            })
        })
    };
    with(Table::Mangle, &KUBELETS)
        .map(|programs| (programs, "it holds kubelet's chains"))
        .or_else(|| {
            let ours = with(Table::Nat, &[SERVICES]);
            ours.map(|programs| {
                (
                    programs,
                    "it holds chains of an earlier run, or of kube-proxy",
                )
            })
        })
        .or_else(|| {
            let default = plain()?.flavour;
            let default = usable.iter().copied().find(|one| one.flavour == default);
            default.map(|programs| (programs, "it is this host's `iptables`"))
        })
        .or_else(|| usable.first().map(|programs| (*programs, "it works here")))
}

/// Programs whose names do not say which flavour they are: their version does.
fn plain() -> Option<Programs> {
    let mut command = Command::new("iptables");
    command.arg("--version");
    let version = run("iptables", command, "").ok()?;
    Some(Programs {
        flavour: if version.contains("nf_tables") {
            Flavour::Nft
        } else {
            Flavour::Legacy
        },
        is_plain: true,
    })
}

/// Families that this host has.
pub fn families() -> Vec<IpFamily> {
    let has_v6 = Path::new("/proc/net/if_inet6").exists();
    let mut families = vec![IpFamily::V4];
    families.extend(has_v6.then_some(IpFamily::V6));
    families
}
