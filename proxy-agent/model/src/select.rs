//! Which endpoints a Service port uses on this node: readiness, traffic policy and topology
//! (KEP-1669, KEP-2086, KEP-2433). Pure: candidates in, sets out.

use std::sync::Arc;

use crate::{
    Endpoint, TrafficPolicy,
    slices::Candidate,
    standing::{Role, Standing},
    topology::{Nearness, Place},
};

/// Which sets the frontends of a Service port need. A set that none needs is not computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) cluster: bool,
    pub(crate) local: bool,
}

impl Uses {
    /// For a Service port with these policies. `external` is `None` without a frontend that is
    /// dialled from outside the cluster; with policy Local such a frontend needs the cluster set
    /// too, for clients on this node.
    pub(crate) fn of(internal: TrafficPolicy, external: Option<TrafficPolicy>) -> Self {
        Self {
            cluster: internal == TrafficPolicy::Cluster || external.is_some(),
            local: internal == TrafficPolicy::Local || external == Some(TrafficPolicy::Local),
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

/// Chooses among `candidates` for the node at `place`. The order of candidates is kept.
pub(crate) fn choose(candidates: &[Candidate<'_>], uses: Uses, place: Place<'_>) -> Sets {
    let set = |policy| Selection::of(candidates, policy, place).endpoints(candidates);
    Sets {
        cluster: uses.cluster.then(|| set(TrafficPolicy::Cluster)),
        local: uses.local.then(|| set(TrafficPolicy::Local)),
        has_any: candidates
            .iter()
            .any(|candidate| Role::of(candidate, false).is_used()),
    }
}

/// What becomes of each of `candidates` in the set of `policy`.
pub(crate) fn standings<'a>(
    candidates: &[Candidate<'a>],
    policy: TrafficPolicy,
    place: Place<'_>,
) -> Vec<Standing<'a>> {
    let selection = Selection::of(candidates, policy, place);
    let standing = |candidate: &Candidate<'a>| Standing {
        address: candidate.address,
        node: candidate.node,
        role: selection.role(candidate),
    };
    candidates.iter().map(standing).collect()
}

/// How one set is chosen. Decided for each set on its own: a ready endpoint hides the terminating
/// ones of its set only, and topology is for the cluster set.
struct Selection<'a> {
    policy: TrafficPolicy,
    nearness: Nearness,
    has_ready: bool,
    place: Place<'a>,
}

impl<'a> Selection<'a> {
    fn of(candidates: &[Candidate<'_>], policy: TrafficPolicy, place: Place<'a>) -> Self {
        let mut selection = Self {
            policy,
            nearness: match policy {
                TrafficPolicy::Cluster => Nearness::of(candidates, place),
                TrafficPolicy::Local => Nearness::Any,
            },
            has_ready: false,
            place,
        };
        selection.has_ready = candidates
            .iter()
            .any(|candidate| selection.role(candidate) == Role::Ready);
        selection
    }

    fn role(&self, candidate: &Candidate<'_>) -> Role {
        if self.policy == TrafficPolicy::Local && self.place.is_home(candidate.node) != Some(true) {
            return Role::Elsewhere;
        }
        match Role::of(candidate, self.has_ready) {
            // The last resort is not a matter of topology.
            Role::Ready if !self.nearness.allows(candidate, self.place) => Role::Farther,
            role => role,
        }
    }

    fn endpoints(&self, candidates: &[Candidate<'_>]) -> Arc<[Endpoint]> {
        candidates
            .iter()
            .filter(|candidate| self.role(candidate).is_used())
            .map(|candidate| Endpoint {
                address: candidate.address,
                local: self.place.is_home(candidate.node),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, Hints};

    const HERE: Place<'static> = Place {
        node: "here",
        zone: Some("a"),
    };

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
            let sets = choose(&candidates(case), Uses::of(case.policy, None), HERE);
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
    fn policies_say_which_sets_are_needed() {
        use TrafficPolicy::{Cluster, Local};
        for (internal, external, cluster, local) in [
            (Cluster, None, true, false),
            (Local, None, false, true),
            (Cluster, Some(Cluster), true, false),
            (Cluster, Some(Local), true, true),
            (Local, Some(Cluster), true, true),
            (Local, Some(Local), true, true),
        ] {
            assert_eq!(
                Uses::of(internal, external),
                Uses { cluster, local },
                "internal {internal:?}, external {external:?}"
            );
        }
    }

    #[test]
    fn topology_is_for_ready_endpoints_of_the_cluster_set() {
        let (near, far) = (zone("a"), zone("b"));
        let case = |conditions: &'static str| -> Vec<Candidate<'_>> {
            let mut candidates = candidates(&Case {
                endpoints: &[(1, "rs", "there"), (2, "rs", "here")],
                ..CLUSTER
            });
            for (candidate, hints) in candidates.iter_mut().zip([&near, &far]) {
                candidate.hints = Some(hints);
                candidate.conditions.ready = conditions.contains('r');
                candidate.conditions.terminating = conditions.contains('t');
            }
            candidates
        };
        let both = Uses {
            cluster: true,
            local: true,
        };
        let sets = choose(&case("r"), both, HERE);
        assert_eq!(octets(sets.cluster.as_deref()), Some(vec![1]));
        assert_eq!(octets(sets.local.as_deref()), Some(vec![2]));
        let roles: Vec<_> = standings(&case("r"), TrafficPolicy::Cluster, HERE)
            .iter()
            .map(|standing| standing.role)
            .collect();
        assert_eq!(roles, [Role::Ready, Role::Farther]);
        let sets = choose(&case("t"), both, HERE);
        assert_eq!(octets(sets.cluster.as_deref()), Some(vec![1, 2]));
    }

    fn zone(zone: &str) -> Hints {
        Hints {
            zones: vec![zone.into()],
            nodes: Vec::new(),
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
            HERE,
        );
        assert_eq!(octets(sets.cluster.as_deref()), Some(vec![2]));
        assert_eq!(octets(sets.local.as_deref()), Some(vec![1]));
    }

    #[test]
    fn an_endpoint_says_whether_it_is_on_this_node() {
        let case = Case {
            endpoints: &[(1, "rs", "here"), (2, "rs", "there"), (3, "rs", "")],
            ..CLUSTER
        };
        let uses = Uses {
            cluster: true,
            local: true,
        };
        let sets = choose(&candidates(&case), uses, HERE);
        let local = |set: Option<Arc<[Endpoint]>>| -> Vec<Option<bool>> {
            set.iter()
                .flat_map(|set| set.iter())
                .map(|one| one.local)
                .collect()
        };
        assert_eq!(local(sets.cluster), [Some(true), Some(false), None]);
        assert_eq!(local(sets.local), [Some(true)]);
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
            standings(&candidates(&case), policy, HERE)
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
            hints: None,
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
