//! Runs the programs of iptables, of both kinds: `iptables-nft`, whose rules the kernel keeps in
//! nftables, and `iptables-legacy`. A host may have rules of both. Where the programs are missing,
//! the kernel says what it has of the first kind.

use std::{fs, io::ErrorKind, process::Command};

use proxy_model::IpFamily;
use proxy_netlink::ruleset::is_unknown;

use super::{
    Found, Leftover, Mode, Removal,
    error::{RemoveError, printed},
    nft_chains,
    owned::is_of_ipvs,
    removal::{Share, share},
    ruleset::{self, Table},
};

/// Each kind of each family by the name that says which kind it is, and the name that does not.
const FAMILIES: [(IpFamily, &str); 2] = [(IpFamily::V4, "iptables"), (IpFamily::V6, "ip6tables")];
const KINDS: [&str; 2] = ["nft", "legacy"];

/// Adds chains of the iptables and IPVS modes.
pub(super) fn find(found: &mut Found) {
    for (family, name) in FAMILIES {
        let [nft, legacy] = KINDS.map(|kind| look(family, &format!("{name}-{kind}"), found));
        // Whatever kind it is: the host has one of them only.
        let plain = !nft && !legacy && look(family, name, found);
        if !nft && !plain {
            ask(family, name, found);
        }
        if !legacy && !plain {
            tell_of_legacy(family, name, found);
        }
    }
}

/// Adds what the kernel says that `iptables-nft` left.
fn ask(family: IpFamily, name: &str, found: &mut Found) {
    match nft_chains::read(family) {
        Ok(tables) => {
            let ipvs = is_ipvs(tables.iter().map(|one| &one.table));
            for one in tables {
                let share = share(&one.table, ipvs);
                let deletion = one.deletion(family, &share);
                let removal = |_| Removal::Chains(deletion);
                add_share(
                    family,
                    &format!("{name}-nft"),
                    &one.table,
                    ipvs,
                    share,
                    removal,
                    found,
                );
            }
        }
        // A kernel without nftables has none of them.
        Err(error) if is_unknown(&error) => {}
        Err(error) => found.problems.push(format!(
            "looking for kube-proxy's chains of {name}-nft over netlink: {error}; run as root, or \
             with CAP_NET_ADMIN"
        )),
    }
}

/// The kernel does not show rules of `iptables-legacy` to anybody but its programs: only whether
/// there may be some.
fn tell_of_legacy(family: IpFamily, name: &str, found: &mut Found) {
    let list = match family {
        IpFamily::V4 => "ip_tables_names",
        IpFamily::V6 => "ip6_tables_names",
    };
    // Without the module there is no list, and there are no rules.
    let tables = fs::read_to_string(format!("/proc/thread-self/net/{list}")).unwrap_or_default();
    let tables: Vec<&str> = tables.lines().collect();
    if tables.is_empty() {
        return;
    }
    found.problems.push(format!(
        "{name}-legacy has tables here ({}), and there is no `{name}-legacy-save`: whether chains of \
         kube-proxy are left in them is not known; use the image whose tag ends in -tools, which has \
         the programs of iptables, or install them on the host and run `proxy-agent --cleanup` there \
         once nothing serves",
        tables.join(", ")
    ));
}

/// Adds what a program shows. Whether there is such a program.
fn look(family: IpFamily, name: &str, found: &mut Found) -> bool {
    let to_save = format!("{name}-save");
    let output = match proxy_program::run(Command::new(&to_save), b"") {
        Err(error) if error.kind() == ErrorKind::NotFound => return false,
        Err(error) => {
            let problem = format!("running `{to_save}` to look for kube-proxy's chains: {error}");
            found.problems.push(problem);
            return true;
        }
        Ok(output) => output,
    };
    match printed(&to_save, &output) {
        Ok(saved) => add(family, name, &saved, found),
        Err(failed) => found.problems.push(format!(
            "{failed}; whether chains of kube-proxy are left there is not known: the programs of \
             iptables take CAP_NET_ADMIN, CAP_NET_RAW and a writable /run"
        )),
    }
    true
}

/// Adds what is kube-proxy's of what `iptables-save` printed.
pub(super) fn add(family: IpFamily, name: &str, saved: &str, found: &mut Found) {
    let tables = ruleset::read(saved);
    let ipvs = is_ipvs(&tables);
    for table in &tables {
        let removal = |input| Removal::Restore {
            program: format!("{name}-restore"),
            input,
        };
        let share = share(table, ipvs);
        add_share(family, name, table, ipvs, share, removal, found);
    }
}

fn is_ipvs<'a>(tables: impl IntoIterator<Item = &'a Table>) -> bool {
    tables.into_iter().any(|table| {
        let mut chains = table.chains.iter();
        chains.any(|chain| is_of_ipvs(&table.name, chain))
    })
}

/// Adds kube-proxy's share of a table; `removal` is given what `iptables-restore` would be.
fn add_share(
    family: IpFamily,
    name: &str,
    table: &Table,
    ipvs: bool,
    share: Share,
    removal: impl FnOnce(String) -> Removal,
    found: &mut Found,
) {
    if let Some(kept) = told(&share.kept_for) {
        found.kept.push(format!(
            "table `{}` of {name}: rules of others lead to chains of kube-proxy: {kept}",
            table.name
        ));
    }
    let Some(input) = share.restore else {
        return;
    };
    found.leftovers.push(Leftover {
        mode: if ipvs { Mode::Ipvs } else { Mode::Iptables },
        family: Some(family),
        what: format!("chains in table `{}` of {name}", table.name),
        parts: share.chains.len() + share.emptied.len(),
        rules: share.rules,
        removal: removal(input),
    });
}

/// How many rules are told; others may have thousands.
const TOLD: usize = 3;

fn told(rules: &[String]) -> Option<String> {
    let (first, rest) = rules.split_at(rules.len().min(TOLD));
    let first = first.join("; ");
    match rest.len() {
        _ if first.is_empty() => None,
        0 => Some(first),
        more => Some(format!("{first}; and {more} more")),
    }
}

/// Lets an `iptables-restore` change what its input names.
pub(super) fn restore(name: &str, input: &str) -> Result<(), RemoveError> {
    let not_run = |error| RemoveError::NotRun {
        program: name.to_owned(),
        error,
    };
    let mut command = Command::new(name);
    // Seconds that others may hold the lock.
    command.args(["--noflush", "--wait=10"]);
    let output = proxy_program::run(command, input.as_bytes()).map_err(not_run)?;
    let done = printed(name, &output).map(drop);
    done.map_err(RemoveError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = include_str!("../../../tests/data/kube-proxy-iptables-node-a.txt");

    fn found(saved: &str) -> Found {
        let mut found = Found::default();
        add(IpFamily::V4, "iptables-nft", saved, &mut found);
        found
    }

    #[test]
    fn the_rules_of_a_real_kube_proxy_are_found_in_each_table() {
        let found = found(REAL);
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(found.modes(), [Mode::Iptables]);
        let told: Vec<String> = found.leftovers.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "iptables mode, IPv4: chains in table `mangle` of iptables-nft, 1 part",
                "iptables mode, IPv4: chains in table `filter` of iptables-nft, 6 parts, 18 rules",
                "iptables mode, IPv4: chains in table `nat` of iptables-nft, 64 parts, 174 rules",
            ]
        );
    }

    #[test]
    fn chains_of_ipvs_mode_tell_which_mode_it_was() {
        let found = found(
            "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODE-PORT - [0:0]\n\
             -A PREROUTING -j KUBE-SERVICES\n\
             -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT\nCOMMIT\n\
             *filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n",
        );
        assert_eq!(found.modes(), [Mode::Ipvs]);
        assert_eq!(found.leftovers.len(), 2);
    }

    #[test]
    fn a_host_without_kube_proxy_has_no_leftovers() {
        let kubelets = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n\
                        *filter\n:KUBE-FIREWALL - [0:0]\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n";
        assert_eq!(found(kubelets), Found::default());
        assert_eq!(found(""), Found::default());
    }
}
