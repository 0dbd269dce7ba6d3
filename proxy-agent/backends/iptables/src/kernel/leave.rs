//! Takes away what is ours, of whichever flavour. Chains that only kube-proxy made are left to whoever cleans
//! up after that.

use std::collections::BTreeSet;

use proxy_model::IpFamily;

use super::{
    accounting, localnet,
    programs::{Flavour, ProgramError, Programs},
};
use crate::{
    fixed,
    names::is_of_service,
    restore::Restore,
    rule::Rule,
    saved::{Saved, canonical},
    table::{
        CANARY, EXTERNAL_SERVICES, FIREWALL, FORWARD, LOCALNET, MARK, MARK_FOREIGN, NODE_PORTS,
        OWNER, POSTROUTING, SERVICES, TRIAL, Table, UNSERVED_NODE_PORTS,
    },
};

/// Chains that are ours beside those of Services, whatever the table.
const OURS: [&str; 13] = [
    CANARY,
    EXTERNAL_SERVICES,
    FIREWALL,
    FORWARD,
    LOCALNET,
    MARK,
    MARK_FOREIGN,
    NODE_PORTS,
    OWNER,
    POSTROUTING,
    SERVICES,
    TRIAL,
    UNSERVED_NODE_PORTS,
];

/// The flavours and families in which something of ours is. What cannot be read, as tables that others have written
/// by another program, is none of ours.
pub fn left() -> Vec<(Programs, IpFamily)> {
    left_but(None)
}

/// The same without a flavour, which is not looked at: that takes time where there are many rules.
fn left_but(kept: Option<Flavour>) -> Vec<(Programs, IpFamily)> {
    // Also of a flavour that cannot be used to serve: some tables of it may be read all the same.
    let found = super::programs::find().flavours.into_iter();
    let all = found.map(|(programs, _)| programs);
    let others = all.filter(|programs| Some(programs.flavour) != kept);
    let all = others.flat_map(|programs| {
        let families = [IpFamily::V4, IpFamily::V6].into_iter();
        families.map(move |family| (programs, family))
    });
    all.filter(|(programs, family)| programs.are_used(*family))
        .filter(|(programs, family)| {
            // The small one first. Somebody may have emptied some of them.
            Table::ALL.iter().any(|table| {
                let saved = programs.save(*family, Some(*table));
                let saved = saved
                    .inspect_err(|error| tracing::debug!(%error, "table of iptables not read"));
                saved.is_ok_and(|saved| saved.chain(*table, OWNER).is_some())
            })
        })
        .collect()
}

/// What is in the table nat, of every flavour and family that is in use.
pub fn saved() -> impl Iterator<Item = Saved> {
    let all = usable().into_iter().flat_map(|programs| {
        [IpFamily::V4, IpFamily::V6]
            .into_iter()
            .map(move |family| (programs, family))
    });
    all.filter(|(programs, family)| programs.are_used(*family))
        .filter_map(|(programs, family)| programs.save(family, Some(Table::Nat)).ok())
}

fn usable() -> Vec<Programs> {
    let found = super::programs::find().flavours.into_iter();
    found
        .filter(|(_, why)| why.is_none())
        .map(|(programs, _)| programs)
        .collect()
}

/// Whether something is to be removed: see [`remove`].
pub fn is_anything() -> bool {
    localnet::is_ours() || !left().is_empty()
}

/// What is in those tables of a family that can be read, and why others cannot.
fn read(programs: Programs, family: IpFamily) -> (Saved, Option<ProgramError>) {
    let (mut all, mut failed) = (Saved::default(), None);
    for table in Table::ALL {
        match programs.save(family, Some(table)) {
            Ok(saved) => all.tables.extend(saved.tables),
            Err(error) => failed = Some(error),
        }
    }
    (all, failed)
}

/// Removes it, but for what is of the flavour to be kept, if there is one. Returns what was removed. What fails keeps
/// nothing else where it is.
pub fn remove(kept: Option<Flavour>) -> Result<Vec<(Flavour, IpFamily)>, ProgramError> {
    let mut removed = Vec::new();
    // Before what keeps others from loopback addresses goes. Rules that are kept have that, too, if they need it.
    let shut = kept.map_or_else(localnet::take_back, |_| Ok(()));
    let is_open = shut.is_err();
    let mut failed = shut.err().map(|error| {
        let file = localnet::SYSCTL;
        ProgramError::NotShut { file, error }
    });
    for (programs, family) in left_but(kept) {
        let (saved, unread) = read(programs, family);
        let restore = removal(&saved, is_open);
        let restored = programs.restore(family, &restore.text());
        match unread.map_or(restored, Err) {
            Ok(()) if is_open => {}
            Ok(()) => removed.push((programs.flavour, family)),
            Err(error) => failed = Some(error),
        }
    }
    if !removed.is_empty() {
        accounting::remove();
    }
    failed.map_or(Ok(removed), Err)
}

/// What takes all that is ours out of the tables. A chain stays to which rules of others lead: empty, but for
/// those that masquerade what they mark; and so do those that keep others from loopback addresses while these are open.
fn removal(saved: &Saved, is_open: bool) -> Restore {
    let mut restore = Restore::new();
    let localnet = fixed::localnet_jumps().into_iter().filter(|_| !is_open);
    let jumps: Vec<_> = fixed::jumps()
        .into_iter()
        .chain(localnet)
        .map(|jump| (jump.at, canonical(jump.rule.as_str())))
        .collect();
    for (table, chains) in &saved.tables {
        let stays = |name: &str| is_open && [LOCALNET, OWNER].contains(&name);
        let is_own = |name: &str| {
            OURS.contains(&name) && !stays(name) || *table == Table::Nat && is_of_service(name)
        };
        let is_jump = |chain: &str, rule: &Rule| {
            jumps
                .iter()
                .any(|((of, from), jump)| (of, *from, jump) == (table, chain, rule))
        };
        let led_to = saved.led_to(*table, |chain, rule| is_own(chain) || is_jump(chain, rule));
        let marked = led_to.contains(MARK);
        for ((_, chain), rule) in jumps.iter().filter(|((of, _), _)| of == table) {
            let there = saved.chain(*table, chain).unwrap_or_default();
            for _ in there.iter().filter(|one| *one == rule) {
                if !(marked && rule.target() == Some(POSTROUTING)) {
                    restore.delete(*table, chain, rule);
                }
            }
        }
        let ours: BTreeSet<_> = chains.keys().filter(|name| is_own(name)).collect();
        for name in ours {
            let masquerades = *table == Table::Nat && [MARK, POSTROUTING].contains(&&**name);
            if marked && masquerades {
                continue;
            }
            if led_to.contains(&**name) {
                restore.chain(*table, name, &[]);
            } else {
                restore.remove(*table, name);
            }
        }
    }
    restore
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_goes_and_what_is_of_others_stays() {
        let text = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\n:CULVERT - [0:0]\nCOMMIT\n*filter\n:INPUT ACCEPT [0:0]\n\
                    :KUBE-FIREWALL - [0:0]\n:KUBE-NODEPORTS - [0:0]\n-A INPUT -j KUBE-FIREWALL\n\
                    -A INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\nCOMMIT\n\
                    *nat\n:CULVERT - [0:0]\n:KUBE-SVC-ABC - [0:0]\n-A KUBE-SVC-ABC -j RETURN\nCOMMIT\n";
        let saved = Saved::read(text);
        assert_eq!(
            removal(&saved, false).text(),
            "*mangle\n:CULVERT - [0:0]\n-X CULVERT\nCOMMIT\n\
             *filter\n:KUBE-NODEPORTS - [0:0]\n\
             -D INPUT -m comment --comment \"kubernetes health check service ports\" -j KUBE-NODEPORTS\n\
             -X KUBE-NODEPORTS\nCOMMIT\n\
             *nat\n:CULVERT - [0:0]\n:KUBE-SVC-ABC - [0:0]\n-X CULVERT\n-X KUBE-SVC-ABC\nCOMMIT\n"
        );
    }

    #[test]
    fn what_rules_of_others_lead_to_stays_and_does_what_it_did() {
        let text = "*nat\n:CULVERT - [0:0]\n:CNI - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-POSTROUTING - [0:0]\n\
                    :KUBE-SVC-ABC - [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A CNI -j KUBE-MARK-MASQ\n-A CNI -j KUBE-SVC-ABC\n\
                    -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n-A POSTROUTING -m comment --comment \
                    \"kubernetes postrouting rules\" -j KUBE-POSTROUTING\nCOMMIT\n";
        assert_eq!(
            removal(&Saved::read(text), false).text(),
            "*nat\n:CULVERT - [0:0]\n:KUBE-SVC-ABC - [0:0]\n-X CULVERT\nCOMMIT\n"
        );
    }
}
