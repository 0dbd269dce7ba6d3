//! Programs of others on the socket hooks: a second load balancer there leads the same sockets, and
//! which of the two does is a matter of who was attached first. Only looks.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use proxy_common::names::SOCKET_PROGRAMS;

use super::{EbpfOptions, cgroup::Cgroup, links, syscalls};

/// How many cgroups below are looked at: a node with more has told enough.
const MOST_BELOW: usize = 1000;

/// How many are told one by one.
const MOST_TOLD: usize = 10;

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

/// Programs that somebody else has attached to one cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Whose they are; `None` if of no load balancer that is known here.
    whose: Option<usize>,
    /// Where they are attached; none if that is a cgroup above.
    cgroup: Option<PathBuf>,
    /// In the order of their ids.
    programs: Vec<Program>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// The id that `bpftool prog show id` takes.
    id: u32,
    /// Its name, as far as the kernel keeps it; none where this process may not ask.
    name: Option<String>,
    /// As `bpftool` calls it.
    hook: &'static str,
}

impl Program {
    /// Which of [`KNOWN`].
    fn whose(&self) -> Option<usize> {
        // Of each there is one for either family.
        let name = self.name.as_deref()?.replacen("sock6_", "sock4_", 1);
        KNOWN
            .iter()
            .position(|known| name.starts_with(known.begins))
    }
}

impl Neighbour {
    fn known(&self) -> Option<&'static Known> {
        self.whose.map(|index| &KNOWN[index])
    }

    /// Whether it is not known what they are, and they are where sockets are led.
    fn may_lead(&self) -> bool {
        let mut all = self.programs.iter();
        all.any(|one| one.name.is_none() && one.hook.starts_with("connect"))
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        if let Some(known) = self.known() {
            return known.remedy;
        }
        if self.programs.iter().any(|one| one.name.is_none()) {
            return "see whose it is with `bpftool prog show id`, or `proxy-agent check` with all \
                    rights; if it redirects sockets, serve with one of the two";
        }
        "nothing, if it only observes or filters; if it redirects sockets, serve with one of the two"
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = self.known().map_or("owner not known", |known| known.whose);
        match &self.cgroup {
            Some(cgroup) => write!(f, "on {}, {whose}: ", cgroup.display())?,
            None => write!(f, "on a cgroup above, {whose}: ")?,
        }
        for (index, program) in self.programs.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            let name = match program.name.as_deref() {
                Some("") => "without a name",
                Some(name) => name,
                None => "whose name requires CAP_SYS_ADMIN to read",
            };
            write!(f, "program {} {name} ({})", program.id, program.hook)?;
        }
        Ok(())
    }
}

/// Programs other than `ours` that run for sockets in `cgroup`, and in those below it; those of
/// load balancers first.
pub fn find(cgroup: &Cgroup, ours: &[u32]) -> io::Result<Vec<Neighbour>> {
    let hooks = SOCKET_PROGRAMS.map(links::hook);
    // The first place that is found of a program counts.
    let mut found: BTreeMap<u32, (u32, Option<PathBuf>)> = BTreeMap::new();
    for hook in hooks {
        for id in syscalls::on_hook(&cgroup.directory, hook)?.programs {
            found.entry(id).or_insert((hook, Some(cgroup.path.clone())));
        }
        for id in syscalls::in_effect(&cgroup.directory, hook)? {
            found.entry(id).or_insert((hook, None));
        }
    }
    for path in below(&cgroup.path) {
        // It may be gone by now.
        let Ok(inside) = Cgroup::open(Some(&path)) else {
            continue;
        };
        for hook in hooks {
            let there = syscalls::on_hook(&inside.directory, hook);
            for id in there.map_or_else(|_| Vec::new(), |there| there.programs) {
                found.entry(id).or_insert((hook, Some(path.clone())));
            }
        }
    }
    found.retain(|id, _| !ours.contains(id));
    Ok(together(found.into_iter().map(|(id, (hook, cgroup))| {
        let program = Program {
            id,
            name: syscalls::program_name(id).ok(),
            hook: hook_name(hook),
        };
        (cgroup, program)
    })))
}

/// One for each owner and cgroup.
fn together(programs: impl Iterator<Item = (Option<PathBuf>, Program)>) -> Vec<Neighbour> {
    let mut all: Vec<Neighbour> = Vec::new();
    for (cgroup, program) in programs {
        let whose = program.whose();
        let mut there = all.iter_mut();
        if let Some(one) = there.find(|one| one.whose == whose && one.cgroup == cgroup) {
            one.programs.push(program);
        } else {
            all.push(Neighbour {
                whose,
                cgroup,
                programs: vec![program],
            });
        }
    }
    // Those that are known first, and what is near before what is further down.
    all.sort_by_key(|one| (one.whose.is_none(), one.whose));
    all
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

/// Tells the log where this agent has none there.
pub fn tell_of_programs(options: &EbpfOptions) {
    match Cgroup::open(options.cgroup_path.as_deref()) {
        Ok(cgroup) => tell(&cgroup, &[]),
        Err(error) => {
            tracing::debug!(%error, "what is attached to the socket hooks is not known");
        }
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
    for one in neighbours.iter().take(MOST_TOLD) {
        let programs = one.to_string();
        if one.known().is_some() {
            tracing::warn!(
                programs,
                text = one.remedy(),
                "another load balancer on the socket hooks"
            );
        } else if one.may_lead() {
            // With the rights of a container, this is all that can be known of a load balancer.
            tracing::warn!(
                programs,
                text = one.remedy(),
                "other programs on the socket hooks"
            );
        } else {
            tracing::info!(
                programs,
                text = one.remedy(),
                "other programs on the socket hooks"
            );
        }
    }
}

/// All of them in one line, and what to do.
pub fn summary(neighbours: &[Neighbour]) -> (String, Option<String>) {
    if neighbours.is_empty() {
        return ("no other programs on the socket hooks".to_owned(), None);
    }
    let told = neighbours.iter().take(MOST_TOLD);
    let mut remedies: Vec<_> = told.clone().map(Neighbour::remedy).collect();
    remedies.dedup();
    let mut told: Vec<_> = told.map(ToString::to_string).collect();
    if let more @ 1.. = neighbours.len().saturating_sub(MOST_TOLD) {
        told.push(format!("on {more} more cgroups"));
    }
    (told.join("; "), Some(remedies.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_lead_sockets_without_a_name_is_told_louder() {
        for (name, hook, louder) in [
            (None, "connect4", true),
            (None, "sock_release", false),
            (Some("sd_bind4"), "connect4", false),
        ] {
            let program = Program {
                name: name.map(str::to_owned),
                hook,
                ..program(1, "")
            };
            let [one] = &together([(None, program)].into_iter())[..] else {
                panic!("one program is one neighbour");
            };
            assert_eq!(one.may_lead(), louder, "{name:?} {hook}");
        }
    }

    fn program(id: u32, name: &str) -> Program {
        Program {
            id,
            name: Some(name.to_owned()),
            hook: "connect4",
        }
    }

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
            let found = program(7, name).whose().map(|index| KNOWN[index].whose);
            assert_eq!(found.is_some(), whose.is_some(), "{name}");
            assert!(
                found.is_none_or(|found| found.starts_with(whose.unwrap())),
                "{name}"
            );
        }
        for program in SOCKET_PROGRAMS {
            assert_ne!(hook_name(links::hook(program)), "another hook", "{program}");
        }
    }

    #[test]
    fn what_belongs_together_is_told_together_and_not_without_end() {
        let here = Some(PathBuf::from("/sys/fs/cgroup"));
        let all = together(
            [
                (here.clone(), program(1, "filter")),
                (here.clone(), program(2, "cil_sock4_conne")),
                (None, program(3, "calico_connect_")),
                (here, program(4, "cil_sock6_conne")),
            ]
            .into_iter(),
        );
        let told: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        let cilium = "program 2 cil_sock4_conne (connect4), program 4 cil_sock6_conne (connect4)";
        assert!(
            told[0].starts_with("on /sys/fs/cgroup, Cilium's"),
            "{told:?}"
        );
        assert!(told[0].ends_with(cilium), "{told:?}");
        assert!(
            told[1].starts_with("on a cgroup above, Calico's"),
            "{told:?}"
        );

        let pods = (0..100).map(|pod| (Some(format!("/pod{pod}").into()), program(pod, "")));
        let (told, remedy) = summary(&together(pods));
        assert!(told.ends_with("; on 90 more cgroups"), "{told}");
        assert!(remedy.unwrap().starts_with("nothing, if"));
        assert_eq!(summary(&[]).1, None);
    }
}
