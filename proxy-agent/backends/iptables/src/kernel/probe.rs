//! What the iptables backend needs of this host, asked one by one. Nothing of this host is changed: rules are
//! tried in a network namespace that is gone at once.

use std::{collections::BTreeSet, io, thread};

use nix::sched::{CloneFlags, unshare};
use proxy_backend::{Requirement, every_kind};

use super::{
    programs::{self, Flavour, Found, ProgramError, Programs},
    stamp::remembered_clients,
};
use crate::{IptablesOptions, compare::compare, facts::Facts, saved::Saved, wanted::Wanted};

/// What to install.
const PROGRAMS: &str = "install the package iptables (1.8.0 or later), which has the programs of both flavours, \
                        or use the image whose tag ends in -tools";

/// Every requirement, the simplest first.
pub fn probe() -> Vec<Requirement> {
    let found = programs::find();
    let tried = found
        .chosen
        .map(|(programs, _)| (programs, try_rules(programs)));
    let mut all = vec![flavour(&found), rules(tried.as_ref()), clients()];
    all.extend(
        found
            .chosen
            .and_then(|(programs, _)| services(programs.flavour)),
    );
    all
}

/// The number of Services that the flavour is for; `None` if it has no such limit.
fn services(flavour: Flavour) -> Option<Requirement> {
    (flavour == Flavour::Nft).then(|| Requirement {
        name: "number of Services",
        required: false,
        met: false,
        found: "nft: for up to 1,000".to_owned(),
        reason: "the time that iptables-nft takes for all rules grows with the square of their number: 1.2 s for 1,000 \
                 Services of ten endpoints, 23 s for 5,000, 100 s for 10,000, whose rules iptables-nft-save 1.8.9 \
                 cannot show any more",
        remedy: Some(
            "with more than 1,000 Services use nftables, where its requirements are met".to_owned(),
        ),
    })
}

/// Why no flavour can be used, and what to do.
pub fn unusable(found: &Found) -> String {
    format!("{}: {}", missing(found), remedy(found))
}

fn missing(found: &Found) -> String {
    if found.flavours.is_empty() {
        return "there are no programs of iptables here (`iptables-nft-restore`, `iptables-legacy-restore`)".to_owned();
    }
    let each = found.flavours.iter().map(|(programs, why)| {
        let why = why.as_deref().unwrap_or("not tried");
        format!("{}: {why}", programs.flavour)
    });
    let each: Vec<_> = each.collect();
    format!("no flavour of iptables works here ({})", each.join("; "))
}

fn remedy(found: &Found) -> &'static str {
    if found.flavours.is_empty() {
        PROGRAMS
    } else {
        "the programs take CAP_NET_ADMIN, CAP_NET_RAW and a writable /run; the kernel needs CONFIG_NFT_COMPAT for nft, or \
         CONFIG_IP_NF_IPTABLES for legacy"
    }
}

fn flavour(found: &Found) -> Requirement {
    Requirement {
        name: "programs",
        required: true,
        met: found.chosen.is_some(),
        found: match &found.chosen {
            Some((programs, why)) => format!("{}: {why}", programs.flavour),
            None => missing(found),
        },
        reason: "the tables of iptables are written by its own programs, of the flavour that this host uses",
        remedy: found.chosen.is_none().then(|| remedy(found).to_owned()),
    }
}

/// Whether the kernel takes every kind of rule.
fn rules(tried: Option<&(Programs, Result<bool, ProgramError>)>) -> Requirement {
    let error = tried.and_then(|(_, tried)| tried.as_ref().err());
    Requirement {
        name: "rules",
        // Where they cannot be tried, the first sync tells.
        required: error.is_some(),
        met: matches!(tried, Some((_, Ok(true)))),
        found: match tried {
            None => "not tried: there is no program".to_owned(),
            Some((_, Ok(true))) => "accepted".to_owned(),
            Some((_, Ok(false))) => {
                "not tried: that needs CAP_SYS_ADMIN, to create a network namespace".to_owned()
            }
            Some((_, Err(error))) => error.to_string(),
        },
        reason: "every kind of rule is tried in a separate network namespace",
        remedy: error.map(|error| remedy_of(error).to_owned()),
    }
}

/// What to do where rules were not taken.
fn remedy_of(error: &ProgramError) -> &'static str {
    match error {
        ProgramError::NotRun { error, .. } if error.kind() == io::ErrorKind::NotFound => PROGRAMS,
        ProgramError::Refused { said, .. } if said.contains("lock file") => {
            "let the agent write the lock that the programs of iptables share: mount the host's /run/xtables.lock into \
             its container"
        }
        ProgramError::Locked { .. } => {
            "find out who holds /run/xtables.lock for so long, with `fuser` or `lsof`"
        }
        _ => {
            "load, or build, the kernel's modules xt_addrtype, xt_comment, xt_conntrack, xt_mark, xt_MASQUERADE, \
             xt_nat, xt_recent, xt_sctp, xt_statistic, ipt_REJECT and ip6t_REJECT; for legacy also ip_tables and \
             ip6_tables, which its programs load only with CAP_SYS_MODULE"
        }
    }
}

/// With session affinity, the kernel remembers so many clients of each endpoint and no more.
fn clients() -> Requirement {
    /// What kube-proxy's nodes have.
    const USUAL: u32 = 100;
    let most = remembered_clients();
    Requirement {
        name: "clients of session affinity",
        required: false,
        met: most.is_none_or(|most| most > USUAL),
        found: match most {
            Some(most) => format!("{most} for each endpoint"),
            None => {
                format!("not known while the module xt_recent is not loaded; {USUAL} by default")
            }
        },
        reason: "the kernel remembers so many clients of each endpoint of a Service with session affinity; others \
                 may get another endpoint with their next connection",
        remedy: most.is_some_and(|most| most <= USUAL).then(|| {
            "for more, load the module with `modprobe xt_recent ip_list_tot=N`, or use nftables"
                .to_owned()
        }),
    }
}

/// Whether the kernel took them; false if there was no place to try.
fn try_rules(programs: Programs) -> Result<bool, ProgramError> {
    let tried = thread::scope(|scope| {
        let tried = scope.spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
            Err(_) => Ok(false),
            Ok(()) => write_everything(programs).map(|()| true),
        });
        tried.join()
    });
    tried.unwrap_or(Ok(false))
}

fn write_everything(programs: Programs) -> Result<(), ProgramError> {
    let state = every_kind();
    for family in programs::families() {
        let facts = Facts::of(
            &state,
            family,
            IptablesOptions {
                mark: 1,
                localnet: true,
                ..IptablesOptions::default()
            },
        );
        let wanted = Wanted::of(&facts, &state, &BTreeSet::new());
        let restore = compare(&wanted, &Saved::default()).restore;
        programs.restore(family, &restore.text())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_rules_from_being_taken_decides_what_to_do() {
        let refused = |said: &str| ProgramError::Refused {
            program: "iptables-nft-restore".to_owned(),
            said: said.to_owned(),
        };
        let lock = refused("Fatal: can't open lock file /run/xtables.lock: Read-only file system");
        assert!(remedy_of(&lock).contains("mount the host's /run/xtables.lock"));
        let unknown = refused("Couldn't load match `recent'");
        assert!(remedy_of(&unknown).contains("xt_recent"));
        let gone = ProgramError::NotRun {
            program: "ip6tables-nft-restore".to_owned(),
            error: io::ErrorKind::NotFound.into(),
        };
        assert_eq!(remedy_of(&gone), PROGRAMS);
    }

    #[test]
    fn only_the_nft_flavour_is_for_so_many_services_and_that_keeps_nobody_from_serving() {
        assert_eq!(services(Flavour::Legacy), None);
        let told = services(Flavour::Nft).unwrap();
        assert!(!told.required && told.found.contains("1,000"), "{told:?}");
        assert!(told.remedy.unwrap().contains("use nftables"));
    }
}
