//! Runs the programs of iptables, of both kinds: `iptables-nft`, whose rules the kernel keeps in
//! nftables, and `iptables-legacy`. A host may have rules of both.

use std::{io::ErrorKind, process::Command};

use proxy_model::IpFamily;

use super::{
    Found, Leftover, Mode, Removal,
    error::{RemoveError, printed},
    owned::is_of_ipvs,
    program,
    removal::share,
    ruleset,
};

/// Each kind of each family by the name that says which kind it is, and the name that does not.
const FAMILIES: [(IpFamily, &str); 2] = [(IpFamily::V4, "iptables"), (IpFamily::V6, "ip6tables")];
const KINDS: [&str; 2] = ["nft", "legacy"];

/// Adds chains of the iptables and IPVS modes.
pub(super) fn find(found: &mut Found) {
    for (family, name) in FAMILIES {
        let mut looked = false;
        for kind in KINDS {
            looked |= look(family, &format!("{name}-{kind}"), found);
        }
        // Whatever kind it is: the host has one of them only.
        if !looked && !look(family, name, found) {
            found.problems.push(format!(
                "there is no `{name}-save` here: whether chains of kube-proxy are left in \
                 {name} is not known; install iptables to find out"
            ));
        }
    }
}

/// Adds what a program shows. Whether there is such a program.
fn look(family: IpFamily, name: &str, found: &mut Found) -> bool {
    let to_save = format!("{name}-save");
    let output = match program::run(Command::new(&to_save), b"") {
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
        Err(failed) => found.problems.push(failed.to_string()),
    }
    true
}

/// Adds what is kube-proxy's of what `iptables-save` printed.
pub(super) fn add(family: IpFamily, name: &str, saved: &str, found: &mut Found) {
    let tables = ruleset::read(saved);
    let ipvs = tables.iter().any(|table| {
        let mut chains = table.chains.iter();
        chains.any(|chain| is_of_ipvs(&table.name, chain))
    });
    for table in &tables {
        let share = share(table);
        for rule in &share.kept_for {
            found.problems.push(format!(
                "another rule leads to a chain of kube-proxy, which therefore stays, in \
                 table `{}` of {name}: {rule}",
                table.name
            ));
        }
        let Some(input) = share.restore else {
            continue;
        };
        found.leftovers.push(Leftover {
            mode: if ipvs { Mode::Ipvs } else { Mode::Iptables },
            family: Some(family),
            what: format!("chains in table `{}` of {name}", table.name),
            parts: share.chains.len(),
            rules: share.rules,
            removal: Removal::Restore {
                program: format!("{name}-restore"),
                input,
            },
        });
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
    let output = program::run(command, input.as_bytes()).map_err(not_run)?;
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
