//! What to tell `iptables-restore --noflush` so that kube-proxy's rules are gone, and nothing else
//! is. Pure.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    owned::{Role, role},
    ruleset::{Rule, Table},
};

/// What is kube-proxy's in one table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// Chains that go.
    pub(super) chains: Vec<String>,
    /// Chains that rules of others lead to, and that are emptied: nothing becomes of those rules.
    pub(super) emptied: Vec<String>,
    /// Rules in those, and rules of kube-proxy elsewhere that lead to them.
    pub(super) rules: usize,
    /// Rules of others that lead to chains of kube-proxy. Those chains stay.
    pub(super) kept_for: Vec<String>,
    /// Those elsewhere, by their places among the table's rules.
    pub(super) unhooked: Vec<usize>,
    /// Input for `iptables-restore --noflush`: `None` if nothing is to be removed.
    pub(super) restore: Option<String>,
}

/// Rules of others jump here to have a packet masqueraded, …
const MARKS: &str = "KUBE-MARK-MASQ";
/// … which is done here.
const MASQUERADES: &str = "KUBE-POSTROUTING";

/// Where this chain is, an agent of ours has made those with kube-proxy's names, or has adopted them.
const OURS: &str = "CULVERT";

/// Finds what is kube-proxy's in a table, and how to remove it.
///
/// Rules of others may lead to chains of kube-proxy. Packets that those of CNI plugins mark are
/// masqueraded as before: [`MARKS`] and [`MASQUERADES`] stay; in IPVS mode (`ipvs`) only the first,
/// because the second names a set, which could not go then. Any other such chain leads to endpoints as
/// kube-proxy last saw them: it is emptied, and is there because a rule leads to it.
pub(super) fn share(table: &Table, ipvs: bool) -> Share {
    if table.chains.iter().any(|chain| chain == OURS) {
        return Share::default();
    }
    let made: BTreeSet<&str> = table.chains.iter().map(String::as_str).collect();
    let role = |chain: &str| role(&table.name, chain).filter(|_| made.contains(chain));
    let mut hooks: Vec<(usize, &Rule, &str)> = Vec::new();
    let mut led_to = BTreeSet::new();
    let mut kept_for = Vec::new();
    for (at, rule) in table.rules.iter().enumerate() {
        let led = rule.target.as_deref();
        let Some((target, its_role)) = led.and_then(|to| Some((to, role(to)?))) else {
            continue;
        };
        let from_built_in = !made.contains(rule.chain.as_str());
        if from_built_in && its_role == Role::Entry {
            hooks.push((at, rule, target));
        } else if role(&rule.chain).is_none() {
            kept_for.push(format!("-A {} {}", rule.chain, rule.text));
            led_to.insert(target);
        }
    }
    let marked = led_to.contains(MARKS);
    let stays = |chain: &str| marked && (chain == MARKS || chain == MASQUERADES && !ipvs);
    hooks.retain(|(_, _, target)| !stays(target));
    let cleared = |chain: &str| role(chain).is_some() && !stays(chain);
    let (emptied, chains): (Vec<&str>, Vec<&str>) = table
        .chains
        .iter()
        .map(String::as_str)
        .filter(|chain| cleared(chain))
        .partition(|chain| led_to.contains(chain));
    let inside = table.rules.iter().filter(|rule| cleared(&rule.chain));
    let rules = inside.count() + hooks.len();
    let is_there = rules > 0 || !chains.is_empty();
    let own = |chains: &[&str]| chains.iter().map(|chain| (*chain).to_owned()).collect();
    Share {
        restore: is_there.then(|| restore(table, &emptied, &chains, &hooks)),
        rules,
        unhooked: hooks.iter().map(|(at, ..)| *at).collect(),
        chains: own(&chains),
        emptied: own(&emptied),
        kept_for,
    }
}

/// Declares each chain, which empties it, takes the rules away that lead there, and deletes those
/// that go: one transaction.
fn restore(
    table: &Table,
    emptied: &[&str],
    chains: &[&str],
    hooks: &[(usize, &Rule, &str)],
) -> String {
    let mut text = format!("*{}\n", table.name);
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a String takes all that is written");
    };
    for chain in emptied.iter().chain(chains) {
        line(format_args!(":{chain} - [0:0]"));
    }
    for (_, Rule { chain, text, .. }, _) in hooks {
        line(format_args!("-D {chain} {text}"));
    }
    for chain in chains {
        line(format_args!("-X {chain}"));
    }
    line(format_args!("COMMIT"));
    text
}

#[cfg(test)]
mod tests {
    use super::{super::ruleset, *};

    fn share_of(table: &str) -> Share {
        let tables = ruleset::read(table);
        assert_eq!(tables.len(), 1);
        share(&tables[0], false)
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

    /// As with a CNI plugin that has kube-proxy masquerade what comes to a host port.
    #[test]
    fn packets_that_others_mark_are_masqueraded_as_before() {
        let share = share_of(
            "*nat\n:CNI-HOSTPORT-SETMARK - [0:0]\n:KUBE-SERVICES - [0:0]\n\
             :KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
             -A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n\
             -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ\n\
             -A KUBE-SERVICES -j KUBE-MARK-MASQ\n\
             -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n\
             -A KUBE-POSTROUTING -j MASQUERADE\nCOMMIT\n",
        );
        assert_eq!(
            share.restore.as_deref(),
            Some(
                "*nat\n:KUBE-SERVICES - [0:0]\n-D OUTPUT -j KUBE-SERVICES\n-X KUBE-SERVICES\nCOMMIT\n"
            )
        );
        assert_eq!((share.rules, share.unhooked), (2, vec![0]));
        assert_eq!(
            share.kept_for,
            ["-A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ"]
        );
    }

    /// What masquerades names a set in this mode.
    #[test]
    fn with_sets_only_the_chain_that_others_lead_to_stays() {
        let tables = ruleset::read(
            "*nat\n:MINE - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
             -A POSTROUTING -j KUBE-POSTROUTING\n-A MINE -j KUBE-MARK-MASQ\n\
             -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n\
             -A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE\n\
             COMMIT\n",
        );
        assert_eq!(
            share(&tables[0], true).restore.as_deref(),
            Some(
                "*nat\n:KUBE-POSTROUTING - [0:0]\n-D POSTROUTING -j KUBE-POSTROUTING\n\
                 -X KUBE-POSTROUTING\nCOMMIT\n"
            )
        );
    }

    #[test]
    fn what_other_rules_of_others_lead_to_is_empty_and_nothing_behind_it_stays() {
        let share = share_of(
            "*nat\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n\
             :KUBE-SVC-25FJTMN2OLOPNGWS - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
             -A PREROUTING -j MINE\n-A PREROUTING -j KUBE-SERVICES\n\
             -A MINE -p tcp -g KUBE-SERVICES\n\
             -A KUBE-SERVICES -j KUBE-SVC-25FJTMN2OLOPNGWS\n\
             -A KUBE-SVC-25FJTMN2OLOPNGWS -j KUBE-MARK-MASQ\nCOMMIT\n",
        );
        assert_eq!(
            share.restore.as_deref(),
            Some(
                "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-25FJTMN2OLOPNGWS - [0:0]\n\
                 :KUBE-MARK-MASQ - [0:0]\n-D PREROUTING -j KUBE-SERVICES\n\
                 -X KUBE-SVC-25FJTMN2OLOPNGWS\n-X KUBE-MARK-MASQ\nCOMMIT\n"
            )
        );
        assert_eq!(share.emptied, ["KUBE-SERVICES"]);
        assert_eq!(share.kept_for, ["-A MINE -p tcp -g KUBE-SERVICES"]);

        // What is left of that is nothing to remove.
        let share = share_of(
            "*nat\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n\
             -A MINE -p tcp -g KUBE-SERVICES\nCOMMIT\n",
        );
        assert_eq!((share.restore, share.kept_for.len()), (None, 1));
    }
}
