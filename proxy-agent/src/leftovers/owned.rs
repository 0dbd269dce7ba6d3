//! Which names are kube-proxy's: chains and ipsets of its iptables and IPVS modes. Pure.
//!
//! Names are matched exactly, because others begin with `KUBE-`, too: kubelet's own chains, and
//! kube-router's chains and sets.

/// Built-in chains jump to these.
const ENTRY_CHAINS: &[&str] = &[
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-FORWARD",
    "KUBE-NODEPORTS",
    "KUBE-POSTROUTING",
    "KUBE-PROXY-FIREWALL",
    "KUBE-SERVICES",
];

/// Built-in chains jump to these in IPVS mode only.
const IPVS_ENTRY_CHAINS: &[&str] = &["KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER", "KUBE-NODE-PORT"];

/// Only other chains of kube-proxy jump to these. Nobody to the last one: it is there to be missed
/// when somebody flushes the table.
const INNER_CHAINS: &[&str] = &["KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"];

/// The same, in IPVS mode only.
const IPVS_INNER_CHAINS: &[&str] = &["KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL"];

/// What chains for one Service port or endpoint begin with. `KUBE-XLB-` was what `KUBE-EXT-` is,
/// until Kubernetes 1.23.
const HASHED: &[&str] = &[
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-XLB-",
];

/// Characters of the hash in such a name, in base32.
const HASH: usize = 16;

/// The sets of IPVS mode.
const SETS: &[&str] = &[
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-EXTERNAL-IP-LOCAL",
    "KUBE-HEALTH-CHECK-NODE-PORT",
    "KUBE-IPVS-IPS",
    "KUBE-LOAD-BALANCER",
    "KUBE-LOAD-BALANCER-FW",
    "KUBE-LOAD-BALANCER-LOCAL",
    "KUBE-LOAD-BALANCER-SOURCE-CIDR",
    "KUBE-LOAD-BALANCER-SOURCE-IP",
    "KUBE-LOOP-BACK",
    "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
    "KUBE-NODE-PORT-LOCAL-TCP",
    "KUBE-NODE-PORT-LOCAL-UDP",
    "KUBE-NODE-PORT-SCTP-HASH",
    "KUBE-NODE-PORT-TCP",
    "KUBE-NODE-PORT-UDP",
];

/// The longest name that a set can have: kube-proxy cuts longer ones off.
const LONGEST_SET: usize = 31;

/// What a chain is to kube-proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Rules of kube-proxy's own in built-in chains jump here.
    Entry,
    /// Only other chains of its own jump here.
    Inner,
}

/// What the chain of this name is to kube-proxy; `None` if it is somebody else's.
///
/// Kubelet's are somebody else's: `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`, `KUBE-MARK-DROP`,
/// and `KUBE-FIREWALL` in the table filter, which kube-proxy makes as well, but for kubelet's
/// purpose, and leaves there when it cleans up. In the table nat it belonged to old IPVS modes.
pub(super) fn role(table: &str, chain: &str) -> Option<Role> {
    let named = |names: &[&str]| names.contains(&chain);
    if named(ENTRY_CHAINS) || named(IPVS_ENTRY_CHAINS) {
        return Some(Role::Entry);
    }
    let hashed = HASHED
        .iter()
        .any(|prefix| chain.strip_prefix(prefix).is_some_and(is_hash));
    let inner = named(INNER_CHAINS) || named(IPVS_INNER_CHAINS) || hashed;
    (inner || (table, chain) == ("nat", "KUBE-FIREWALL")).then_some(Role::Inner)
}

/// Whether only IPVS mode makes a chain of this name.
pub(super) fn is_of_ipvs(table: &str, chain: &str) -> bool {
    IPVS_ENTRY_CHAINS.contains(&chain)
        || IPVS_INNER_CHAINS.contains(&chain)
        || (table, chain) == ("nat", "KUBE-FIREWALL")
}

/// Whether the set of this name is kube-proxy's.
pub(super) fn is_set(name: &str) -> bool {
    SETS.iter().any(|set| {
        let of_ipv6 = set.replacen("KUBE-", "KUBE-6-", 1);
        name == *set || name == &of_ipv6[..of_ipv6.len().min(LONGEST_SET)]
    })
}

fn is_hash(text: &str) -> bool {
    let base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    text.len() == HASH && text.bytes().all(base32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_others_are_not_taken_for_kube_proxys() {
        for chain in [
            "KUBE-KUBELET-CANARY",
            "KUBE-IPTABLES-HINT",
            "KUBE-MARK-DROP",
            "KUBE-ROUTER-INPUT",
            "KUBE-POD-FW-5DYNWNXNBNYPBRQN",
            "KUBE-NWPLCY-DEFAULT",
            "KUBE-SVC-",
            "KUBE-SVC-MINE",
            "KUBE-SVC-25fjtmn2olopngws",
            "KUBE-SERVICES-2",
            "DOCKER",
        ] {
            assert_eq!(role("nat", chain), None, "{chain}");
        }
        assert_eq!(role("filter", "KUBE-FIREWALL"), None);
    }

    #[test]
    fn entries_are_told_from_what_only_kube_proxys_chains_jump_to() {
        assert_eq!(role("nat", "KUBE-SERVICES"), Some(Role::Entry));
        assert_eq!(role("nat", "KUBE-MARK-MASQ"), Some(Role::Inner));
        assert_eq!(role("nat", "KUBE-SVC-25FJTMN2OLOPNGWS"), Some(Role::Inner));
        assert_eq!(role("nat", "KUBE-FIREWALL"), Some(Role::Inner));
    }

    #[test]
    fn sets_of_both_families_are_known_and_those_of_others_are_not() {
        for set in [
            "KUBE-CLUSTER-IP",
            "KUBE-6-CLUSTER-IP",
            "KUBE-6-LOAD-BALANCER-SOURCE-CID",
        ] {
            assert!(is_set(set), "{set}");
        }
        for set in [
            "KUBE-SRC-TMCUBWVAGBCZKHPG",
            "kube-router-local-ips",
            "KUBE-6-",
            "blocked",
        ] {
            assert!(!is_set(set), "{set}");
        }
    }
}
