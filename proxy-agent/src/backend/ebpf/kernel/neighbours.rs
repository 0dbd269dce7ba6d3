//! Programs of others on the socket hooks: a second load balancer there leads the same sockets, and
//! which of the two does is a matter of who was attached first. Only looks.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use proxy_common::names::SOCKET_PROGRAMS;

use super::{cgroup::Cgroup, links, syscalls};

/// How many cgroups below are looked at: a node with more has told enough.
const MOST_BELOW: usize = 1000;

/// What the names of programs of well-known load balancers begin with.
const KNOWN: [Known; 5] = [
    Known {
        begins: "cil_sock",
        whose: "Cilium's socket load balancing",
        remedy: "serve with one of the two: in Cilium, kubeProxyReplacement=false and \
                 socketLB.enabled=false",
    },
    Known {
        // Before version 1.12, and programs that were made from it.
        begins: "sock4_",
        whose: "probably Cilium's socket load balancing",
        remedy: "serve with one of the two: in Cilium, kubeProxyReplacement=disabled",
    },
    Known {
        begins: "calico_",
        whose: "Calico's connect-time load balancing",
        remedy: "serve with one of the two: in Calico's FelixConfiguration, \
                 bpfConnectTimeLoadBalancing: Disabled",
    },
    Known {
        begins: "cali_",
        whose: "Calico's connect-time load balancing",
        remedy: "serve with one of the two: in Calico's FelixConfiguration, \
                 bpfConnectTimeLoadBalancingEnabled: false",
    },
    Known {
        begins: "culvert_",
        whose: "another agent of Culvert",
        remedy: "stop it, and run `proxy-agent cleanup` with its --pin-dir",
    },
];

/// A load balancer on sockets.
#[derive(Debug)]
struct Known {
    begins: &'static str,
    whose: &'static str,
    remedy: &'static str,
}

/// A program of somebody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The id that `bpftool prog show id` takes.
    pub id: u32,
    /// Its name, as far as the kernel keeps it; none where this process may not ask.
    pub name: Option<String>,
    /// The hooks, as `bpftool` calls them.
    pub hooks: Vec<&'static str>,
    /// Where it is attached; none if that is a cgroup above.
    pub cgroup: Option<PathBuf>,
}

impl Neighbour {
    fn known(&self) -> Option<&'static Known> {
        let name = self.name.as_deref()?;
        // Of each there is one for either family.
        let name = name.replacen("sock6_", "sock4_", 1);
        KNOWN.iter().find(|known| name.starts_with(known.begins))
    }

    /// Whose it is; `None` if it is of no load balancer that is known here.
    pub fn whose(&self) -> Option<&'static str> {
        self.known().map(|known| known.whose)
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        self.known().map_or(
            "nothing, if it only looks on or filters; if it leads sockets elsewhere, serve with one \
             of the two",
            |known| known.remedy,
        )
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) if name.is_empty() => write!(f, "program {} without a name", self.id)?,
            Some(name) => write!(f, "program {} {name}", self.id)?,
            None => write!(
                f,
                "program {}, whose name takes CAP_SYS_ADMIN to ask",
                self.id
            )?,
        }
        write!(f, " on {}", self.hooks.join(", "))?;
        match &self.cgroup {
            Some(cgroup) => write!(f, " of {}", cgroup.display())?,
            None => f.write_str(" of a cgroup above")?,
        }
        match self.whose() {
            Some(whose) => write!(f, " ({whose})"),
            None => f.write_str(" (not known)"),
        }
    }
}

/// Programs other than `ours` that run for sockets in `cgroup`, and in those below it; those of
/// load balancers first.
pub fn find(cgroup: &Cgroup, ours: &[u32]) -> io::Result<Vec<Neighbour>> {
    let mut found = BTreeMap::new();
    let mut own = Vec::new();
    for program in SOCKET_PROGRAMS {
        let hook = links::hook(program);
        let here = syscalls::on_hook(&cgroup.directory, hook)?.programs;
        for id in &here {
            note(&mut found, *id, hook, Some(&cgroup.path));
        }
        for id in syscalls::in_effect(&cgroup.directory, hook)? {
            if !here.contains(&id) {
                note(&mut found, id, hook, None);
            }
        }
        own.push(hook);
    }
    for path in below(&cgroup.path) {
        // It may be gone by now.
        let Ok(inside) = Cgroup::open(Some(&path)) else {
            continue;
        };
        for hook in &own {
            for id in syscalls::on_hook(&inside.directory, *hook)
                .map_or_else(|_| Vec::new(), |on| on.programs)
            {
                note(&mut found, id, *hook, Some(&path));
            }
        }
    }
    let mut found: Vec<Neighbour> = found
        .into_values()
        .filter(|one| !ours.contains(&one.id))
        .collect();
    for one in &mut found {
        one.name = syscalls::program_name(one.id).ok();
    }
    found.sort_by_key(|one| (one.whose().is_none(), one.id));
    Ok(found)
}

/// The first that is found of a program counts, so that one below that it was attached to as well
/// is not told again.
fn note(found: &mut BTreeMap<u32, Neighbour>, id: u32, hook: u32, cgroup: Option<&Path>) {
    let one = found.entry(id).or_insert_with(|| Neighbour {
        id,
        name: None,
        hooks: Vec::new(),
        cgroup: cgroup.map(Path::to_owned),
    });
    let name = hook_name(hook);
    if !one.hooks.contains(&name) {
        one.hooks.push(name);
    }
}

fn below(cgroup: &Path) -> Vec<PathBuf> {
    let mut all = vec![cgroup.to_owned()];
    let mut next = 0;
    while next < all.len() && all.len() <= MOST_BELOW {
        if let Ok(entries) = fs::read_dir(&all[next]) {
            let directories = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            all.extend(directories.map(|entry| entry.path()));
        }
        next += 1;
    }
    all.truncate(MOST_BELOW);
    all.split_off(1)
}

fn hook_name(hook: u32) -> &'static str {
    match hook {
        10 => "connect4",
        11 => "connect6",
        14 => "sendmsg4",
        15 => "sendmsg6",
        19 => "recvmsg4",
        20 => "recvmsg6",
        29 => "getpeername4",
        30 => "getpeername6",
        34 => "sock_release",
        _ => "another hook",
    }
}

/// Tells the log.
pub fn tell(cgroup: &Cgroup, ours: &[u32]) {
    let neighbours = match find(cgroup, ours) {
        Ok(neighbours) => neighbours,
        Err(error) => {
            tracing::debug!(%error, "what else is attached to the socket hooks is not known");
            return;
        }
    };
    for one in neighbours {
        let what = one.to_string();
        if one.whose().is_some() {
            tracing::warn!(
                program = what,
                text = one.remedy(),
                "another load balancer on the socket hooks"
            );
        } else {
            tracing::info!(
                program = what,
                text = one.remedy(),
                "another program on the socket hooks"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_balancers_are_known_by_the_names_of_their_programs() {
        // As much of them as the kernel keeps.
        for (name, whose) in [
            ("cil_sock4_conne", Some("Cilium's")),
            ("cil_sock6_sendm", Some("Cilium's")),
            ("sock6_connect", Some("probably Cilium's")),
            ("calico_connect_", Some("Calico's")),
            ("cali_ctlb_v4", Some("Calico's")),
            ("culvert_conn4", Some("another agent")),
            ("sd_bind4", None),
            ("", None),
        ] {
            let one = Neighbour {
                id: 7,
                name: Some(name.to_owned()),
                hooks: vec!["connect4", "sendmsg4"],
                cgroup: None,
            };
            let found = one.whose();
            assert_eq!(found.is_some(), whose.is_some(), "{name}");
            assert!(
                found.is_none_or(|found| found.starts_with(whose.unwrap())),
                "{name}"
            );
            let told = one.to_string();
            assert!(
                told.contains("program 7") && told.contains("connect4, sendmsg4"),
                "{told}"
            );
        }
        for program in SOCKET_PROGRAMS {
            assert_ne!(hook_name(links::hook(program)), "another hook", "{program}");
        }
    }
}
