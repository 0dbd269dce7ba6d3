//! What the nftables backend needs of this host, asked one by one. Nothing of this host is changed:
//! rules are tried in a network namespace that is gone at once.

use nix::sys::utsname::uname;
use proxy_backend::Requirement;

use super::{
    KernelError, lock, refusal,
    socket::{Cause, Netlink},
    trial::{Tried, tried},
};

/// The first kernel that is served on, the same as for kube-proxy's nftables mode. Tables have an owner since
/// 5.12; rules and maps are those that 5.10 takes, too. What kube-proxy goes by is that a host with an older
/// kernel has an older `nft`, too, which may not bear rules that it does not know
/// (<https://github.com/kubernetes/kubernetes/issues/122743>).
const LEAST: (u32, u32) = (5, 13);

/// What to do where rules cannot be tried.
const NOT_TRIED: &str = "not tried: that needs CAP_SYS_ADMIN, to create a network namespace";

/// Every requirement, the simplest first.
pub fn probe() -> Vec<Requirement> {
    let netlink = Netlink::open().and_then(|mut netlink| netlink.generation());
    let tried = netlink.is_ok().then(tried).flatten();
    let release = uname().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    vec![
        kernel(release),
        nf_tables(&netlink),
        rules(tried.as_ref()),
        owned(tried.as_ref()),
        held(lock::holder(lock::Duty::Rules)),
    ]
}

/// Whether an agent is there already. That is no lack of this host.
fn held(holder: Result<Option<String>, KernelError>) -> Requirement {
    let is_held = matches!(holder, Ok(Some(_)));
    Requirement {
        name: "lock",
        required: false,
        met: matches!(holder, Ok(None)),
        found: match holder {
            Ok(None) => "no agent programs rules here".to_owned(),
            Ok(Some(holder)) => format!("an agent already serves with nftables here: {holder}"),
            Err(error) => format!("not known: {error}"),
        },
        reason: "only one agent at a time may program the rules of a network namespace",
        remedy: is_held
            .then(|| "nothing, or stop it before another one is started here".to_owned()),
    }
}

fn kernel(release: String) -> Requirement {
    let met = version(&release).is_none_or(|version| version >= LEAST);
    Requirement {
        name: "kernel",
        required: true,
        met,
        found: release,
        reason: "the lock needs tables with an owner (Linux 5.12); with kernels before 5.13 hosts have an `nft` that may \
                 not bear rules of newer programs",
        remedy: (!met).then(|| format!("use Linux {}.{} or later", LEAST.0, LEAST.1)),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn nf_tables(generation: &Result<u32, KernelError>) -> Requirement {
    Requirement {
        name: "nf_tables",
        required: true,
        met: generation.is_ok(),
        found: match generation {
            Ok(generation) => format!("generation {generation}"),
            Err(error) => error.to_string(),
        },
        reason: "the part of the kernel that holds the rules",
        remedy: generation.as_ref().err().map(|error| {
            if error.cause() == Cause::Rights {
                refusal::RIGHTS.to_owned()
            } else {
                "load the kernel's module nf_tables (CONFIG_NF_TABLES)".to_owned()
            }
        }),
    }
}

/// Whether the kernel takes every kind of rule.
fn rules(tried: Option<&Tried>) -> Requirement {
    let remedy = "load, or build, the kernel's modules nft_chain_nat, nft_ct, nft_fib_ipv4, \
                  nft_fib_ipv6, nft_masq, nft_nat, nft_numgen, nft_reject_ipv4 and nft_reject_ipv6";
    of_trial(
        "rules",
        tried.map(|tried| &tried.rules),
        "every kind of rule and set is tried in a separate network namespace",
        remedy,
    )
}

/// Whether the kernel knows what the lock is made of.
fn owned(tried: Option<&Tried>) -> Requirement {
    of_trial(
        "tables with an owner",
        tried.map(|tried| &tried.owned),
        "such a table is the lock that keeps two agents from writing the same rules",
        "use Linux 5.12 or later, which brought them (NFT_TABLE_F_OWNER)",
    )
}

fn of_trial(
    name: &'static str,
    tried: Option<&Result<(), KernelError>>,
    reason: &'static str,
    remedy: &str,
) -> Requirement {
    Requirement {
        name,
        // Where it cannot be tried, the first sync tells.
        required: matches!(tried, Some(Err(_))),
        met: matches!(tried, Some(Ok(()))),
        found: match tried {
            Some(Ok(())) => "accepted".to_owned(),
            Some(Err(error)) => error.to_string(),
            None => NOT_TRIED.to_owned(),
        },
        reason,
        remedy: match tried {
            Some(Ok(())) => None,
            Some(Err(_)) => Some(remedy.to_owned()),
            None => Some("nothing, if the backend serves".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_lock_is_told_and_makes_no_host_unusable() {
        assert!(held(Ok(None)).met);
        let held = held(Ok(Some("process 7 of node-a".to_owned())));
        assert!(!held.met && !held.required);
        assert!(held.found.ends_with("process 7 of node-a"), "{held:?}");
    }

    #[test]
    fn what_an_old_kernel_lacks_is_named_apart_from_what_it_has() {
        let tried = Tried {
            rules: Ok(()),
            owned: Err(KernelError::of("making the table", libc::EINVAL)),
        };
        let rules = rules(Some(&tried));
        assert!(rules.met && rules.remedy.is_none(), "{rules:?}");
        let owned = owned(Some(&tried));
        assert!(owned.required && !owned.met, "{owned:?}");
        let remedy = owned.remedy.unwrap();
        assert!(remedy.contains("5.12"), "{remedy}");
        let kernel = kernel("5.10.0-32-cloud-amd64".to_owned());
        assert!(!kernel.met && kernel.reason.contains("tables with an owner"));
    }

    #[test]
    fn what_could_not_be_tried_keeps_nobody_from_serving() {
        for requirement in [rules(None), owned(None)] {
            assert!(!requirement.required && !requirement.met);
            assert_eq!(requirement.found, NOT_TRIED);
        }
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, expected) in [
            ("6.18.0", Some((6, 18))),
            ("5.10.0-28-cloud-amd64", Some((5, 10))),
            ("5.4", Some((5, 4))),
            ("unknown", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(version("5.9").unwrap() < LEAST && version("5.13.0").unwrap() >= LEAST);
    }
}
