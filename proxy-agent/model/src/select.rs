//! Which endpoints a Service port uses on this node: readiness and traffic policy (KEP-1669,
//! KEP-2086). Pure: candidates in, sets out.

use std::sync::Arc;

use crate::{
    Endpoint, TrafficPolicy,
    slices::Candidate,
    standing::{Role, Standing},
};

/// Which sets the frontends of a Service port need. A set that none needs is not computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) cluster: bool,
    pub(crate) local: bool,
}

impl Uses {
    /// For a Service port whose only frontends are its ClusterIPs.
    pub(crate) fn of_cluster_ip(internal: TrafficPolicy) -> Self {
        match internal {
            TrafficPolicy::Cluster => Self {
                cluster: true,
                local: false,
            },
            TrafficPolicy::Local => Self {
                cluster: false,
                local: true,
            },
        }
    }
}

/// The endpoints of a Service port on one node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    pub(crate) cluster: Option<Arc<[Endpoint]>>,
    pub(crate) local: Option<Arc<[Endpoint]>>,
    pub(crate) has_any: bool,
}

/// Chooses among `candidates` for the node called `node`. The order of candidates is kept.
pub(crate) fn choose(candidates: &[Candidate<'_>], uses: Uses, node: &str) -> Sets {
    let is_local = |candidate: &&Candidate<'_>| candidate.node == Some(node);
    Sets {
        cluster: uses.cluster.then(|| usable(candidates.iter())),
        local: uses
            .local
            .then(|| usable(candidates.iter().filter(is_local))),
        has_any: candidates
            .iter()
            .any(|candidate| Role::of(candidate, false).is_used()),
    }
}

/// Decided for each set on its own: a ready endpoint hides the terminating ones of its set only.
fn usable<'a>(candidates: impl Iterator<Item = &'a Candidate<'a>> + Clone) -> Arc<[Endpoint]> {
    let has_ready = has_ready(candidates.clone());
    candidates
        .filter(|candidate| Role::of(candidate, has_ready).is_used())
        .map(|candidate| Endpoint {
            address: candidate.address,
        })
        .collect()
}

fn has_ready<'a>(mut candidates: impl Iterator<Item = &'a Candidate<'a>>) -> bool {
    candidates.any(|candidate| candidate.conditions.ready)
}

/// What becomes of each of `candidates` in the set of `policy`.
pub(crate) fn standings<'a>(
    candidates: &[Candidate<'a>],
    policy: TrafficPolicy,
    node: &str,
) -> Vec<Standing<'a>> {
    let is_allowed = |candidate: &&Candidate<'_>| match policy {
        TrafficPolicy::Cluster => true,
        TrafficPolicy::Local => candidate.node == Some(node),
    };
    let has_ready = has_ready(candidates.iter().filter(is_allowed));
    let standing = |candidate: &Candidate<'a>| Standing {
        address: candidate.address,
        node: candidate.node,
        role: if is_allowed(&candidate) {
            Role::of(candidate, has_ready)
        } else {
            Role::Elsewhere
        },
    };
    candidates.iter().map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Conditions;

    struct Case {
        name: &'static str,
        policy: TrafficPolicy,
        /// Last octet, conditions that hold (r, s, t), node.
        endpoints: &'static [(u8, &'static str, &'static str)],
        cluster: Option<&'static [u8]>,
        local: Option<&'static [u8]>,
        has_any: bool,
    }

    const CLUSTER: Case = Case {
        name: "no endpoints",
        policy: TrafficPolicy::Cluster,
        endpoints: &[],
        cluster: Some(&[]),
        local: None,
        has_any: false,
    };
    const LOCAL: Case = Case {
        name: "Local: no endpoints",
        policy: TrafficPolicy::Local,
        cluster: None,
        local: Some(&[]),
        ..CLUSTER
    };

    const CASES: &[Case] = &[
        CLUSTER,
        Case {
            name: "all ready, wherever they run",
            endpoints: &[(1, "rs", "here"), (2, "rs", "there"), (3, "rs", "")],
            cluster: Some(&[1, 2, 3]),
            has_any: true,
            ..CLUSTER
        },
        Case {
            name: "ready hides unready and terminating",
            endpoints: &[(1, "", "here"), (2, "st", "here"), (3, "rs", "there")],
            cluster: Some(&[3]),
            has_any: true,
            ..CLUSTER
        },
        Case {
            name: "only terminating: those that serve",
            endpoints: &[(1, "st", "here"), (2, "t", "here"), (3, "st", "there")],
            cluster: Some(&[1, 3]),
            has_any: true,
            ..CLUSTER
        },
        Case {
            name: "serving but neither ready nor terminating is no fallback",
            endpoints: &[(1, "s", "here")],
            ..CLUSTER
        },
        Case {
            name: "terminating without serving is no fallback",
            endpoints: &[(1, "t", "here"), (2, "", "there")],
            ..CLUSTER
        },
        Case {
            name: "ready and terminating is ready",
            endpoints: &[(1, "rt", "here"), (2, "st", "there")],
            cluster: Some(&[1]),
            has_any: true,
            ..CLUSTER
        },
        LOCAL,
        Case {
            name: "Local: only this node's",
            endpoints: &[(1, "rs", "here"), (2, "rs", "there"), (3, "rs", "")],
            local: Some(&[1]),
            has_any: true,
            ..LOCAL
        },
        Case {
            name: "Local: none here, some elsewhere",
            endpoints: &[(2, "rs", "there")],
            has_any: true,
            ..LOCAL
        },
        Case {
            name: "Local: none here, elsewhere only terminating",
            endpoints: &[(1, "s", "here"), (2, "st", "there")],
            has_any: true,
            ..LOCAL
        },
        Case {
            name: "Local: unready everywhere",
            endpoints: &[(1, "s", "here"), (2, "s", "there")],
            ..LOCAL
        },
        Case {
            name: "Local: terminating here although another node has ready ones",
            endpoints: &[(1, "st", "here"), (2, "rs", "there")],
            local: Some(&[1]),
            has_any: true,
            ..LOCAL
        },
        Case {
            name: "Local: ready here hides terminating here",
            endpoints: &[(1, "st", "here"), (2, "rs", "here")],
            local: Some(&[2]),
            has_any: true,
            ..LOCAL
        },
        Case {
            name: "Local: node names are compared as written",
            endpoints: &[(1, "rs", "Here")],
            has_any: true,
            ..LOCAL
        },
    ];

    #[test]
    fn choose_follows_readiness_and_policy() {
        for case in CASES {
            let sets = choose(&candidates(case), Uses::of_cluster_ip(case.policy), "here");
            assert_eq!(
                octets(sets.cluster.as_deref()).as_deref(),
                case.cluster,
                "{}",
                case.name
            );
            assert_eq!(
                octets(sets.local.as_deref()).as_deref(),
                case.local,
                "{}",
                case.name
            );
            assert_eq!(sets.has_any, case.has_any, "{}: has_any", case.name);
        }
    }

    #[test]
    fn the_two_sets_fall_back_independently() {
        let case = Case {
            endpoints: &[(1, "st", "here"), (2, "rs", "there")],
            ..CLUSTER
        };
        let sets = choose(
            &candidates(&case),
            Uses {
                cluster: true,
                local: true,
            },
            "here",
        );
        assert_eq!(octets(sets.cluster.as_deref()), Some(vec![2]));
        assert_eq!(octets(sets.local.as_deref()), Some(vec![1]));
    }

    #[test]
    fn each_endpoint_has_a_role() {
        use Role::{Elsewhere, LastResort, NotReady, Ready, Stopped, Terminating};

        let case = Case {
            endpoints: &[
                (1, "st", "here"),
                (2, "rs", "there"),
                (3, "s", "here"),
                (4, "t", "here"),
                (5, "rt", "there"),
                (6, "st", ""),
            ],
            ..CLUSTER
        };
        let roles = |policy| -> Vec<_> {
            standings(&candidates(&case), policy, "here")
                .iter()
                .map(|standing| standing.role)
                .collect()
        };
        assert_eq!(
            roles(TrafficPolicy::Cluster),
            [Terminating, Ready, NotReady, Stopped, Ready, Terminating]
        );
        assert_eq!(
            roles(TrafficPolicy::Local),
            [
                LastResort, Elsewhere, NotReady, Stopped, Elsewhere, Elsewhere
            ]
        );
    }

    fn candidates(case: &Case) -> Vec<Candidate<'static>> {
        let candidate = |&(octet, conditions, node): &(u8, &'static str, &'static str)| Candidate {
            address: ([10, 0, 0, octet], 80).into(),
            conditions: Conditions {
                ready: conditions.contains('r'),
                serving: conditions.contains('s'),
                terminating: conditions.contains('t'),
            },
            node: (!node.is_empty()).then_some(node),
        };
        case.endpoints.iter().map(candidate).collect()
    }

    fn octets(set: Option<&[Endpoint]>) -> Option<Vec<u8>> {
        let octet = |endpoint: &Endpoint| match endpoint.address.ip() {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => panic!("the cases are IPv4"),
        };
        set.map(|set| set.iter().map(octet).collect())
    }
}
