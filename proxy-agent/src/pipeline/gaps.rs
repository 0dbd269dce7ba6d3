//! What Service ports need and the dataplane lacks, kept at the cost of what changes. Pure; does not
//! know how it is told.

use std::collections::BTreeMap;

use proxy_model::{Capability, Change, IpFamily, NodeState, ServicePortKey};

use super::reported::{ManyGaps, News};

/// More news of one kind about one capability than this are summed up: ten thousand NodePorts must
/// not give ten thousand lines at start.
const TOLD_ONE_BY_ONE: usize = 20;

/// What is missing, by Service port and in sum.
#[derive(Debug)]
pub struct Gaps {
    lacks: Vec<Capability>,
    /// In the order of [`Capability::ALL`]; no empty entries.
    missing: BTreeMap<ServicePortKey, Vec<Capability>>,
    counts: BTreeMap<Capability, usize>,
    /// In which families NodePorts answer on loopback addresses: every one of them needs that.
    loopback: Vec<IpFamily>,
    /// Every ClusterIP needs to be masqueraded.
    masquerade_all: bool,
}

impl Gaps {
    /// None yet, where `lacks` is lacking.
    pub fn new(lacks: &[Capability]) -> Self {
        Self {
            lacks: lacks.to_vec(),
            missing: BTreeMap::new(),
            counts: Capability::ALL.map(|capability| (capability, 0)).into(),
            loopback: Vec::new(),
            masquerade_all: false,
        }
    }

    /// Follows `changes`, which lead to `state`. Returns what the log must be told.
    pub fn take(&mut self, state: &NodeState, changes: &[Change]) -> Vec<News> {
        let loopback: Vec<_> = state.loopback_node_ports().collect();
        let masquerade_all = state.traffic.masquerade_all;
        if (&loopback, masquerade_all) != (&self.loopback, self.masquerade_all) {
            (self.loopback, self.masquerade_all) = (loopback, masquerade_all);
            return self.look_at_all(state);
        }
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        for change in changes {
            let key = change.key();
            let now: Vec<_> = match change {
                Change::Upsert { state: service, .. } => {
                    state.missing(key, service, &self.lacks).collect()
                }
                Change::Delete { .. } => Vec::new(),
            };
            self.replace(key, &now, &mut opened, &mut closed);
        }
        self.told(&opened, &closed)
    }

    /// What serves `state` lacks `lacks` from now on. Returns what the log must be told.
    pub fn change_lacks(&mut self, lacks: &[Capability], state: &NodeState) -> Vec<News> {
        if self.lacks == lacks {
            return Vec::new();
        }
        self.lacks = lacks.to_vec();
        self.look_at_all(state)
    }

    fn look_at_all(&mut self, state: &NodeState) -> Vec<News> {
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        let gone: Vec<_> = self.missing.keys().cloned().collect();
        for key in gone.iter().filter(|key| !state.services.contains_key(*key)) {
            self.replace(key, &[], &mut opened, &mut closed);
        }
        for (key, service) in &state.services {
            let now: Vec<_> = state.missing(key, service, &self.lacks).collect();
            self.replace(key, &now, &mut opened, &mut closed);
        }
        self.told(&opened, &closed)
    }

    fn replace(
        &mut self,
        key: &ServicePortKey,
        now: &[Capability],
        opened: &mut Vec<(Capability, ServicePortKey)>,
        closed: &mut Vec<(Capability, ServicePortKey)>,
    ) {
        let before = if now.is_empty() {
            self.missing.remove(key)
        } else {
            self.missing.insert(key.clone(), now.to_vec())
        };
        let before = before.unwrap_or_default();
        for &capability in now.iter().filter(|one| !before.contains(one)) {
            opened.push((capability, key.clone()));
            *self.counts.entry(capability).or_default() += 1;
        }
        for &capability in before.iter().filter(|one| !now.contains(one)) {
            closed.push((capability, key.clone()));
            *self.counts.entry(capability).or_default() -= 1;
        }
    }

    fn told(
        &self,
        opened: &[(Capability, ServicePortKey)],
        closed: &[(Capability, ServicePortKey)],
    ) -> Vec<News> {
        let mut news = self.told_of(opened, News::Gap, News::Gaps);
        news.extend(self.told_of(closed, News::GapClosed, News::GapsClosed));
        news
    }

    /// Each by itself while they are few.
    fn told_of(
        &self,
        gaps: &[(Capability, ServicePortKey)],
        one: fn(Capability, ServicePortKey) -> News,
        many: fn(ManyGaps) -> News,
    ) -> Vec<News> {
        let mut news = Vec::new();
        for capability in Capability::ALL {
            let keys = gaps.iter().filter(|(of, _)| *of == capability);
            let keys: Vec<_> = keys.map(|(_, key)| key.clone()).collect();
            if keys.len() > TOLD_ONE_BY_ONE {
                news.push(many(ManyGaps {
                    capability,
                    keys,
                    open: self.count(capability),
                }));
            } else {
                news.extend(keys.into_iter().map(|key| one(capability, key)));
            }
        }
        news
    }

    /// Whether nothing is missing.
    pub fn suffice(&self) -> bool {
        self.missing.is_empty()
    }

    /// How many Service ports miss `capability`.
    pub fn count(&self, capability: Capability) -> usize {
        self.counts.get(&capability).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, sync::Arc};

    use proxy_model::{
        Frontend, FrontendKind, IpFamily, Protocol, ServiceName, ServiceState, TrafficPolicy,
    };

    use super::*;

    const LACKS: &[Capability] = &[Capability::Sctp, Capability::ExternalTraffic];

    fn key(name: &str, protocol: Protocol) -> ServicePortKey {
        ServicePortKey {
            service: ServiceName::new("shop", name),
            port: "".into(),
            protocol,
            family: IpFamily::V4,
        }
    }

    fn upsert(name: &str, protocol: Protocol, kind: FrontendKind) -> Change {
        let frontend = Frontend {
            kind,
            address: None,
            port: 30080,
        };
        Change::Upsert {
            key: key(name, protocol),
            state: Arc::new(ServiceState {
                frontends: vec![frontend],
                cluster_endpoints: None,
                local_endpoints: None,
                has_any_endpoints: false,
                internal_policy: TrafficPolicy::Cluster,
                external_policy: TrafficPolicy::Cluster,
                // Nothing that is missing here.
                affinity: NonZeroU32::new(60),
                source_ranges: None,
            }),
        }
    }

    fn delete(name: &str, protocol: Protocol) -> Change {
        let key = key(name, protocol);
        Change::Delete { key }
    }

    /// What the node itself says, with NodePorts on these addresses, and the Services of `changes`.
    fn state(addresses: &[&str], changes: &[Change]) -> NodeState {
        let service = |change: &Change| match change {
            Change::Upsert { key, state } => (key.clone(), Arc::clone(state)),
            Change::Delete { key } => panic!("{key} is no more"),
        };
        NodeState {
            node_port_addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            services: changes.iter().map(service).collect(),
            ..NodeState::default()
        }
    }

    fn none() -> NodeState {
        NodeState::default()
    }

    fn told(news: Vec<News>) -> Vec<String> {
        let line = |one| match one {
            News::Gap(capability, key) => format!("+{capability} {key}"),
            News::GapClosed(capability, key) => format!("-{capability} {key}"),
            News::Gaps(many) => format!("+{} {}/{}", many.capability, many.keys.len(), many.open),
            News::GapsClosed(many) => {
                format!("-{} {}/{}", many.capability, many.keys.len(), many.open)
            }
            other => format!("{other:?}"),
        };
        news.into_iter().map(line).collect()
    }

    #[test]
    fn a_gap_is_told_when_it_opens_and_when_it_closes() {
        use FrontendKind::{ClusterIp, NodePort};
        use Protocol::{Sctp, Tcp};
        let mut gaps = Gaps::new(LACKS);
        let web = "external-traffic shop/web/TCP/IPv4";
        for (changes, expected) in [
            (vec![upsert("web", Tcp, ClusterIp)], vec![]),
            (vec![upsert("web", Tcp, NodePort)], vec![format!("+{web}")]),
            (vec![upsert("web", Tcp, NodePort)], vec![]),
            (
                vec![upsert("sig", Sctp, NodePort), delete("web", Tcp)],
                vec![
                    "+sctp shop/sig/SCTP/IPv4".to_owned(),
                    "+external-traffic shop/sig/SCTP/IPv4".to_owned(),
                    format!("-{web}"),
                ],
            ),
            (
                vec![upsert("sig", Sctp, ClusterIp)],
                vec!["-external-traffic shop/sig/SCTP/IPv4".to_owned()],
            ),
        ] {
            assert_eq!(told(gaps.take(&none(), &changes)), expected);
        }
        assert_eq!(gaps.count(Capability::Sctp), 1);
        assert_eq!(gaps.count(Capability::ExternalTraffic), 0);
        assert!(!gaps.suffice());
        gaps.take(&none(), &[delete("sig", Sctp)]);
        assert!(gaps.suffice());
    }

    #[test]
    fn many_gaps_at_once_are_one_piece_of_news() {
        let mut gaps = Gaps::new(LACKS);
        let name = |number: usize| format!("s{number:05}");
        let up = |number| upsert(&name(number), Protocol::Tcp, FrontendKind::NodePort);
        let changes: Vec<_> = (0..10_000).map(up).collect();
        let news = gaps.take(&none(), &changes);
        assert_eq!(told(news), ["+external-traffic 10000/10000"]);
        // A single one is told by itself, however many there are.
        assert_eq!(gaps.take(&none(), &[up(10_000)]).len(), 1);
        let changes: Vec<_> = (0..21)
            .map(|number| delete(&name(number), Protocol::Tcp))
            .collect();
        assert_eq!(
            told(gaps.take(&none(), &changes)),
            ["-external-traffic 21/9980"]
        );
        assert_eq!(gaps.count(Capability::ExternalTraffic), 9_980);
    }

    #[test]
    fn what_is_lacking_may_change() {
        use FrontendKind::{ClusterIp, NodePort};
        use Protocol::{Sctp, Tcp};
        let changes = [
            upsert("sig", Sctp, ClusterIp),
            upsert("web", Tcp, NodePort),
            upsert("none", Tcp, ClusterIp),
        ];
        let state = state(&["127.0.0.1", "192.0.2.1"], &changes);
        let mut gaps = Gaps::new(LACKS);
        gaps.take(&state, &changes);
        let news = gaps.change_lacks(&[Capability::LoopbackNodePorts], &state);
        assert_eq!(
            told(news),
            [
                "+loopback-node-ports shop/web/TCP/IPv4",
                "-sctp shop/sig/SCTP/IPv4",
                "-external-traffic shop/web/TCP/IPv4",
            ]
        );
        assert!(!gaps.suffice());
        assert_eq!(gaps.count(Capability::LoopbackNodePorts), 1);
    }

    #[test]
    fn node_ports_need_loopback_addresses_where_they_answer_there() {
        let mut gaps = Gaps::new(&[Capability::LoopbackNodePorts]);
        let changes = [upsert("web", Protocol::Tcp, FrontendKind::NodePort)];
        let gap = "loopback-node-ports shop/web/TCP/IPv4";
        let mut left = changes.len();
        for (addresses, expected) in [
            (&["192.0.2.1"][..], vec![]),
            (&["192.0.2.1", "::1"], vec![]),
            (&["127.0.0.1", "192.0.2.1"], vec![format!("+{gap}")]),
            (&["127.0.0.1"], vec![]),
            (&["192.0.2.1"], vec![format!("-{gap}")]),
        ] {
            // After the first time, nothing changes but where NodePorts answer.
            let news = gaps.take(&state(addresses, &changes), &changes[..left]);
            assert_eq!(told(news), expected, "{addresses:?}");
            left = 0;
        }
    }
}
