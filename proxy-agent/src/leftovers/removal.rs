//! What to tell `iptables-restore --noflush` so that kube-proxy's rules are gone, and nothing else
//! is. Pure.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use super::{
    owned::{Role, role},
    ruleset::{Rule, Table},
};

/// What is kube-proxy's in one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// Chains that go.
    pub(super) chains: Vec<String>,
    /// Rules in those, and rules elsewhere that lead to them.
    pub(super) rules: usize,
    /// Rules of others that lead to chains of kube-proxy. Those chains stay.
    pub(super) kept_for: Vec<String>,
    /// Those elsewhere, by their places among the table's rules.
    pub(super) unhooked: Vec<usize>,
    /// Input for `iptables-restore --noflush`: `None` if nothing is to be removed.
    pub(super) restore: Option<String>,
}

/// Finds what is kube-proxy's in a table, and how to remove it.
///
/// Rules of others may lead to chains of kube-proxy, as those of CNI plugins that mark packets by
/// `KUBE-MARK-MASQ` do. Such chains stay, with all that they lead to.
pub(super) fn share(table: &Table) -> Share {
    let kept = kept(table);
    let goes = |chain: &str| role(&table.name, chain).is_some() && !kept.chains.contains(chain);
    let chains: Vec<&String> = table.chains.iter().filter(|chain| goes(chain)).collect();
    let leads_there = |rule: &Rule| !goes(&rule.chain) && rule.target.as_deref().is_some_and(goes);
    let (places, unhooked): (Vec<usize>, Vec<&Rule>) = table
        .rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| leads_there(rule))
        .unzip();
    let inside = table.rules.iter().filter(|rule| goes(&rule.chain)).count();
    Share {
        restore: (!chains.is_empty()).then(|| restore(table, &chains, &unhooked)),
        rules: inside + unhooked.len(),
        unhooked: places,
        chains: chains.into_iter().cloned().collect(),
        kept_for: kept.rules,
    }
}

/// Declares each chain, which empties it, takes the rules away that lead there, and deletes it: one
/// transaction.
fn restore(table: &Table, chains: &[&String], unhooked: &[&Rule]) -> String {
    let mut text = format!("*{}\n", table.name);
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a String takes all that is written");
    };
    for chain in chains {
        line(format_args!(":{chain} - [0:0]"));
    }
    for Rule { chain, text, .. } in unhooked {
        line(format_args!("-D {chain} {text}"));
    }
    for chain in chains {
        line(format_args!("-X {chain}"));
    }
    line(format_args!("COMMIT"));
    text
}

#[derive(Default)]
struct Kept {
    chains: BTreeSet<String>,
    rules: Vec<String>,
}

/// The chains of kube-proxy that rules of others lead to, directly or not, and those rules.
fn kept(table: &Table) -> Kept {
    let made: BTreeSet<&str> = table.chains.iter().map(String::as_str).collect();
    let ours = |chain: &str| role(&table.name, chain).filter(|_| made.contains(chain));
    let mut leads: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut kept = Kept::default();
    let mut open = Vec::new();
    for rule in &table.rules {
        let Some((target, role)) = rule.target.as_deref().and_then(|to| Some((to, ours(to)?)))
        else {
            continue;
        };
        let from_built_in = !made.contains(rule.chain.as_str());
        if ours(&rule.chain).is_some() {
            leads.entry(&rule.chain).or_default().push(target);
        } else if !(from_built_in && role == Role::Entry) {
            kept.rules.push(format!("-A {} {}", rule.chain, rule.text));
            open.push(target);
        }
    }
    while let Some(chain) = open.pop() {
        if kept.chains.insert(chain.to_owned()) {
            open.extend(leads.get(chain).into_iter().flatten());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{super::ruleset, *};

    fn share_of(table: &str) -> Share {
        let tables = ruleset::read(table);
        assert_eq!(tables.len(), 1);
        share(&tables[0])
    }

    #[test]
    fn chains_are_emptied_unhooked_and_deleted_and_no_others() {
        let share = share_of(
            "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-SERVICES - [0:0]\n\
             :KUBE-MARK-MASQ - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n\
             -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
             -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n\
             -A KUBE-SERVICES -j KUBE-MARK-MASQ\nCOMMIT\n",
        );
        assert_eq!(
            share.restore.as_deref(),
            Some(
                "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                 -D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                 -X KUBE-SERVICES\n-X KUBE-MARK-MASQ\nCOMMIT\n"
            )
        );
        assert_eq!((share.chains.len(), share.rules), (2, 2));
        assert_eq!(share.kept_for, Vec::<String>::new());
    }

    #[test]
    fn what_rules_of_others_lead_to_stays_with_all_that_it_leads_to() {
        let share = share_of(
            "*nat\n:CNI-HOSTPORT-SETMARK - [0:0]\n:KUBE-SERVICES - [0:0]\n\
             :KUBE-SVC-25FJTMN2OLOPNGWS - [0:0]\n:KUBE-SEP-24ZTVYXXK2IRS5AA - [0:0]\n\
             :KUBE-MARK-MASQ - [0:0]\n\
             -A OUTPUT -j KUBE-SERVICES\n\
             -A CNI-HOSTPORT-SETMARK -g KUBE-SVC-25FJTMN2OLOPNGWS\n\
             -A KUBE-SERVICES -j KUBE-SVC-25FJTMN2OLOPNGWS\n\
             -A KUBE-SVC-25FJTMN2OLOPNGWS -j KUBE-SEP-24ZTVYXXK2IRS5AA\n\
             -A POSTROUTING -j KUBE-MARK-MASQ\nCOMMIT\n",
        );
        assert_eq!(share.chains, ["KUBE-SERVICES"]);
        assert_eq!(share.rules, 2);
        assert_eq!(
            share.kept_for,
            [
                "-A CNI-HOSTPORT-SETMARK -g KUBE-SVC-25FJTMN2OLOPNGWS",
                "-A POSTROUTING -j KUBE-MARK-MASQ"
            ]
        );
    }
}
