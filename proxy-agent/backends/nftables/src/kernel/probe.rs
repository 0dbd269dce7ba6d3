//! What the nftables backend needs of this host, asked one by one. Nothing of this host is changed:
//! rules are tried in a network namespace that is gone at once.

use nix::sys::utsname::uname;
use proxy_backend::Requirement;

use super::{
    KernelError, lock, refusal,
    socket::{Cause, Netlink},
    trial::try_rules,
};

/// The first kernel whose maps do what is asked of them here; kube-proxy's nftables mode needs the
/// same.
const LEAST: (u32, u32) = (5, 13);

/// Every requirement, the simplest first.
pub fn probe() -> Vec<Requirement> {
    let netlink = Netlink::open().and_then(|mut netlink| netlink.generation());
    vec![
        kernel(),
        nf_tables(&netlink),
        rules(netlink.is_ok()),
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

fn kernel() -> Requirement {
    let release = uname().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    let met = version(&release).is_none_or(|version| version >= LEAST);
    Requirement {
        name: "kernel",
        required: true,
        met,
        found: release,
        reason: "older kernels lack what the maps need",
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
fn rules(reachable: bool) -> Requirement {
    let tried = if reachable { try_rules() } else { Ok(false) };
    let remedy = "load, or build, the kernel's modules nft_chain_nat, nft_ct, nft_fib_ipv4, \
                  nft_fib_ipv6, nft_masq, nft_nat, nft_numgen, nft_reject_ipv4 and nft_reject_ipv6";
    Requirement {
        name: "rules",
        // Where they cannot be tried, the first sync tells.
        required: tried.is_err(),
        met: matches!(tried, Ok(true)),
        found: match &tried {
            Ok(true) => "accepted".to_owned(),
            Ok(false) => {
                "not tried: that needs CAP_SYS_ADMIN, to create a network namespace".to_owned()
            }
            Err(error) => error.to_string(),
        },
        reason: "every kind of rule and set is tried in a separate network namespace",
        remedy: match tried {
            Ok(true) => None,
            Ok(false) => Some("nothing, if the backend serves".to_owned()),
            Err(_) => Some(remedy.to_owned()),
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
