//! Merges the EndpointSlices of one Service into candidates: one per address and target port.
//! Knows nothing of policy or of which node this is.

use std::{cmp::Reverse, net::SocketAddr};

use crate::{Conditions, EndpointSlice, Hints, IpFamily, Protocol, SliceEndpoint};

/// An endpoint that a Service port could use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) conditions: Conditions,
    pub(crate) node: Option<&'a str>,
    pub(crate) hints: Option<&'a Hints>,
}

impl<'a> Candidate<'a> {
    fn new(endpoint: &'a SliceEndpoint, port: u16) -> Self {
        Self {
            address: SocketAddr::new(endpoint.address, port),
            conditions: endpoint.conditions,
            node: endpoint.node.as_deref(),
            hints: endpoint.hints.as_deref(),
        }
    }

    /// Which of two copies counts: the one that is not terminating (kube-proxy's rule, for an
    /// endpoint that its controller moves between slices), then the one that is more usable.
    /// Node and hints only make the order total, so that the order of the slices never matters.
    fn rank(&self) -> impl Ord + use<'a> {
        let Conditions {
            ready,
            serving,
            terminating,
        } = self.conditions;
        let node = self.node.map(Reverse);
        (!terminating, ready, serving, node, self.hints.map(Reverse))
    }
}

/// The candidates for a Service port in one family, ordered by address, each address once.
pub(crate) fn merge<'a>(
    slices: impl IntoIterator<Item = &'a EndpointSlice>,
    port_name: &str,
    protocol: Protocol,
    family: IpFamily,
) -> Vec<Candidate<'a>> {
    let mut candidates = Vec::new();
    for slice in slices.into_iter().filter(|slice| slice.family == family) {
        for port in &slice.ports {
            if &*port.name == port_name && port.protocol == protocol {
                candidates.extend(
                    slice
                        .endpoints
                        .iter()
                        .filter(|endpoint| IpFamily::of(endpoint.address) == family)
                        .map(|endpoint| Candidate::new(endpoint, port.port)),
                );
            }
        }
    }
    candidates.sort_by(|a, b| {
        a.address
            .cmp(&b.address)
            .then_with(|| b.rank().cmp(&a.rank()))
    });
    candidates.dedup_by_key(|candidate| candidate.address);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServiceName, SliceName, SlicePort};

    /// `conditions` lists what holds: r(eady), s(erving), t(erminating).
    fn endpoint(address: &str, conditions: &str, node: &str) -> SliceEndpoint {
        SliceEndpoint {
            address: address.parse().unwrap(),
            conditions: Conditions {
                ready: conditions.contains('r'),
                serving: conditions.contains('s'),
                terminating: conditions.contains('t'),
            },
            node: (!node.is_empty()).then(|| node.into()),
            hints: None,
        }
    }

    fn slice(ports: &[(&str, Protocol, u16)], endpoints: Vec<SliceEndpoint>) -> EndpointSlice {
        EndpointSlice {
            name: SliceName::new("shop", "web-1"),
            service: ServiceName::new("shop", "web"),
            family: IpFamily::of(endpoints[0].address),
            ports: ports
                .iter()
                .map(|&(name, protocol, port)| SlicePort {
                    name: name.into(),
                    protocol,
                    port,
                })
                .collect(),
            endpoints,
        }
    }

    fn addresses(slices: &[EndpointSlice], port: &str, family: IpFamily) -> Vec<String> {
        merge(slices, port, Protocol::Tcp, family)
            .iter()
            .map(|candidate| candidate.address.to_string())
            .collect()
    }

    #[test]
    fn ports_match_by_name_and_protocol_and_families_stay_apart() {
        let tcp = Protocol::Tcp;
        let slices = [
            slice(
                &[("http", tcp, 8080), ("", tcp, 1)],
                vec![endpoint("10.0.0.2", "rs", "")],
            ),
            slice(&[("http", tcp, 9090)], vec![endpoint("10.0.0.1", "rs", "")]),
            slice(
                &[("http", Protocol::Udp, 53)],
                vec![endpoint("10.0.0.3", "rs", "")],
            ),
            slice(&[("http", tcp, 8080)], vec![endpoint("fd00::1", "rs", "")]),
        ];
        assert_eq!(
            addresses(&slices, "http", IpFamily::V4),
            ["10.0.0.1:9090", "10.0.0.2:8080"]
        );
        assert_eq!(addresses(&slices, "", IpFamily::V4), ["10.0.0.2:1"]);
        assert_eq!(addresses(&slices, "http", IpFamily::V6), ["[fd00::1]:8080"]);
    }

    #[test]
    fn an_address_of_the_other_family_is_left_out() {
        let mut odd = slice(
            &[("", Protocol::Tcp, 80)],
            vec![endpoint("fd00::1", "rs", "")],
        );
        odd.family = IpFamily::V4;
        assert!(addresses(&[odd], "", IpFamily::V4).is_empty());
    }

    #[test]
    fn of_two_copies_the_better_one_counts_in_any_order() {
        struct Case {
            name: &'static str,
            winner: (&'static str, &'static str),
            loser: (&'static str, &'static str),
        }
        let cases = [
            Case {
                name: "not terminating",
                winner: ("", "a"),
                loser: ("rst", "a"),
            },
            Case {
                name: "ready",
                winner: ("r", "a"),
                loser: ("s", "a"),
            },
            Case {
                name: "serving",
                winner: ("st", "a"),
                loser: ("t", "a"),
            },
            Case {
                name: "known node",
                winner: ("rs", "a"),
                loser: ("rs", ""),
            },
            Case {
                name: "smaller node",
                winner: ("rs", "a"),
                loser: ("rs", "b"),
            },
        ];
        for case in cases {
            let copies = [case.winner, case.loser].map(|(conditions, node)| {
                slice(
                    &[("", Protocol::Tcp, 80)],
                    vec![endpoint("10.0.0.1", conditions, node)],
                )
            });
            for slices in [[&copies[0], &copies[1]], [&copies[1], &copies[0]]] {
                let merged = merge(slices, "", Protocol::Tcp, IpFamily::V4);
                let expected = Candidate::new(&copies[0].endpoints[0], 80);
                assert_eq!(merged, [expected], "case: {}", case.name);
            }
        }
    }
}
