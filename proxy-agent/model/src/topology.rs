//! Which endpoints topology hints keep for this node (KEP-2433, KEP-3015). Pure.
//!
//! Hints count only while all ready endpoints have them and some are for this node: a controller
//! that is halfway through, or that forgot a zone, must not leave a node without endpoints.

use crate::slices::Candidate;

/// The node that endpoints are chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// Its name.
    pub(crate) node: &'a str,
    /// Its zone, if it is known.
    pub(crate) zone: Option<&'a str>,
}

impl Place<'_> {
    /// Whether what runs on `node` runs here; `None` if no node is named. Names are compared as
    /// written.
    pub(crate) fn is_home(&self, node: Option<&str>) -> Option<bool> {
        node.map(|node| node == self.node)
    }
}

/// Which hints count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearness {
    /// None: every endpoint may be used.
    Any,
    /// Those that name nodes.
    Node,
    /// Those that name zones.
    Zone,
}

impl Nearness {
    /// What the hints of the ready ones among `candidates` amount to. Hints for this node come
    /// before those for its zone: a controller writes both, and the zone is what remains when no
    /// endpoint is on the node.
    pub(crate) fn of(candidates: &[Candidate<'_>], place: Place<'_>) -> Self {
        let counts = |nearness: Self| {
            let mut some = false;
            for candidate in candidates.iter().filter(|one| one.conditions.ready) {
                match nearness.names(candidate, place) {
                    None => return false,
                    Some(named) => some |= named,
                }
            }
            some
        };
        if counts(Self::Node) {
            Self::Node
        } else if counts(Self::Zone) {
            Self::Zone
        } else {
            Self::Any
        }
    }

    /// Whether `candidate` may be used from `place`.
    pub(crate) fn allows(self, candidate: &Candidate<'_>, place: Place<'_>) -> bool {
        self.names(candidate, place) == Some(true)
    }

    /// Whether the hints name `place`; `None` without hints of this kind.
    fn names(self, candidate: &Candidate<'_>, place: Place<'_>) -> Option<bool> {
        let (named, own) = match self {
            Self::Any => return Some(true),
            Self::Node => (&candidate.hints?.nodes, Some(place.node)),
            Self::Zone => (&candidate.hints?.zones, place.zone),
        };
        (!named.is_empty()).then(|| own.is_some_and(|own| named.iter().any(|one| **one == *own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, Hints};

    struct Case {
        name: &'static str,
        /// Ready, zones, nodes of each endpoint.
        endpoints: &'static [(bool, &'static [&'static str], &'static [&'static str])],
        zone: Option<&'static str>,
        nearness: Nearness,
        allowed: &'static [bool],
    }

    const CASES: &[Case] = &[
        Case {
            name: "no endpoints",
            endpoints: &[],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[],
        },
        Case {
            name: "no hints",
            endpoints: &[(true, &[], &[]), (true, &[], &[])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true, true],
        },
        Case {
            name: "zones",
            endpoints: &[
                (true, &["a"], &[]),
                (true, &["b"], &[]),
                (true, &["b", "a"], &[]),
            ],
            zone: Some("a"),
            nearness: Nearness::Zone,
            allowed: &[true, false, true],
        },
        Case {
            name: "one without a hint turns zones off",
            endpoints: &[(true, &["a"], &[]), (true, &[], &[])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true, true],
        },
        Case {
            name: "one that is not ready needs no hint",
            endpoints: &[(true, &["a"], &[]), (false, &[], &[])],
            zone: Some("a"),
            nearness: Nearness::Zone,
            allowed: &[true, false],
        },
        Case {
            name: "hints of one that is not ready do not count",
            endpoints: &[(true, &["b"], &[]), (false, &["a"], &[])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true, true],
        },
        Case {
            name: "none for this zone",
            endpoints: &[(true, &["b"], &[]), (true, &["c"], &[])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true, true],
        },
        Case {
            name: "this zone is unknown",
            endpoints: &[(true, &["a"], &[])],
            zone: None,
            nearness: Nearness::Any,
            allowed: &[true],
        },
        Case {
            name: "nodes before zones",
            endpoints: &[(true, &["a"], &["here"]), (true, &["a"], &["there"])],
            zone: Some("a"),
            nearness: Nearness::Node,
            allowed: &[true, false],
        },
        Case {
            name: "nodes, with an unknown zone",
            endpoints: &[(true, &["a"], &["here"]), (true, &["b"], &["there"])],
            zone: None,
            nearness: Nearness::Node,
            allowed: &[true, false],
        },
        Case {
            name: "no endpoint for this node: its zone",
            endpoints: &[(true, &["a"], &["there"]), (true, &["b"], &["beyond"])],
            zone: Some("a"),
            nearness: Nearness::Zone,
            allowed: &[true, false],
        },
        Case {
            name: "one without a node hint: its zone",
            endpoints: &[
                (true, &["a"], &["here"]),
                (true, &["a"], &[]),
                (true, &["b"], &[]),
            ],
            zone: Some("a"),
            nearness: Nearness::Zone,
            allowed: &[true, true, false],
        },
        Case {
            name: "neither for this node nor for its zone",
            endpoints: &[(true, &["b"], &["there"])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true],
        },
        Case {
            name: "names are compared as written",
            endpoints: &[(true, &["A"], &["Here"])],
            zone: Some("a"),
            nearness: Nearness::Any,
            allowed: &[true],
        },
    ];

    #[test]
    fn hints_count_only_if_they_leave_something() {
        for case in CASES {
            let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
            let hints: Vec<_> = case
                .endpoints
                .iter()
                .map(|&(_, zones, nodes)| Hints {
                    zones: names(zones),
                    nodes: names(nodes),
                })
                .collect();
            let candidates: Vec<_> = case
                .endpoints
                .iter()
                .zip(&hints)
                .map(|(&(ready, ..), hints)| Candidate {
                    address: ([10, 0, 0, 1], 80).into(),
                    conditions: Conditions {
                        ready,
                        serving: ready,
                        terminating: false,
                    },
                    node: None,
                    hints: Some(hints),
                })
                .collect();
            let place = Place {
                node: "here",
                zone: case.zone,
            };
            let nearness = Nearness::of(&candidates, place);
            let allowed: Vec<_> = candidates
                .iter()
                .map(|candidate| nearness.allows(candidate, place))
                .collect();
            assert_eq!(
                (nearness, &*allowed),
                (case.nearness, case.allowed),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn an_endpoint_without_hints_is_like_one_with_empty_hints() {
        let candidate = Candidate {
            address: ([10, 0, 0, 1], 80).into(),
            conditions: Conditions {
                ready: true,
                serving: true,
                terminating: false,
            },
            node: Some("here"),
            hints: None,
        };
        let place = Place {
            node: "here",
            zone: Some("a"),
        };
        assert_eq!(Nearness::of(&[candidate], place), Nearness::Any);
        assert_eq!(place.is_home(candidate.node), Some(true));
    }
}
