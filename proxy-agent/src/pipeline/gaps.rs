//! What Service ports need and the backend lacks, kept at the cost of what changes. Pure; does not
//! know how it is told.

use std::collections::BTreeMap;

use proxy_model::{Capability, Change, ServicePortKey};

use super::told::News;

/// More news of one kind about one capability than this are summed up: ten thousand NodePorts must
/// not give ten thousand lines at start.
const TOLD_ONE_BY_ONE: usize = 20;

/// What is missing, by Service port and in sum.
#[derive(Debug)]
pub struct Gaps {
    lacks: &'static [Capability],
    /// In the order of `lacks`; no empty entries.
    missing: BTreeMap<ServicePortKey, Vec<Capability>>,
    counts: BTreeMap<Capability, usize>,
}

impl Gaps {
    /// None yet, for a backend that lacks `lacks`.
    pub fn new(lacks: &'static [Capability]) -> Self {
        Self {
            lacks,
            missing: BTreeMap::new(),
            counts: Capability::ALL.map(|capability| (capability, 0)).into(),
        }
    }

    /// Follows changes of the state. Returns what the log must be told.
    pub fn take(&mut self, changes: &[Change]) -> Vec<News> {
        let (mut opened, mut closed) = (Vec::new(), Vec::new());
        for change in changes {
            let key = change.key();
            let now: Vec<_> = match change {
                Change::Upsert { state, .. } => state.missing(key, self.lacks).collect(),
                Change::Delete { .. } => Vec::new(),
            };
            let before = if now.is_empty() {
                self.missing.remove(key)
            } else {
                self.missing.insert(key.clone(), now.clone())
            };
            let before = before.unwrap_or_default();
            let new = now.iter().filter(|one| !before.contains(one));
            opened.extend(new.map(|&capability| (capability, key)));
            let old = before.iter().filter(|one| !now.contains(one));
            closed.extend(old.map(|&capability| (capability, key)));
        }
        for (capability, _) in &opened {
            *self.counts.entry(*capability).or_default() += 1;
        }
        for (capability, _) in &closed {
            *self.counts.entry(*capability).or_default() -= 1;
        }
        let mut news = self.told(&opened, News::Gap, News::Gaps);
        news.extend(self.told(&closed, News::GapClosed, News::GapsClosed));
        news
    }

    /// Each by itself while they are few.
    fn told(
        &self,
        gaps: &[(Capability, &ServicePortKey)],
        one: fn(Capability, ServicePortKey) -> News,
        many: fn(ManyGaps) -> News,
    ) -> Vec<News> {
        let mut news = Vec::new();
        for &capability in self.lacks {
            let keys = gaps.iter().filter(|(of, _)| *of == capability);
            let keys: Vec<_> = keys.map(|(_, key)| (*key).clone()).collect();
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

    /// Whether the backend does all that Service ports need.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// How many Service ports miss `capability`.
    pub fn count(&self, capability: Capability) -> usize {
        self.counts.get(&capability).copied().unwrap_or_default()
    }
}

/// Many Service ports that began or ceased to miss one capability at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManyGaps {
    /// The capability.
    pub capability: Capability,
    /// Which Service ports.
    pub keys: Vec<ServicePortKey>,
    /// How many miss it now.
    pub open: usize,
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
            assert_eq!(told(gaps.take(&changes)), expected);
        }
        assert_eq!(gaps.count(Capability::Sctp), 1);
        assert_eq!(gaps.count(Capability::ExternalTraffic), 0);
        assert!(!gaps.is_empty());
        gaps.take(&[delete("sig", Sctp)]);
        assert!(gaps.is_empty());
    }

    #[test]
    fn many_gaps_at_once_are_one_piece_of_news() {
        let mut gaps = Gaps::new(LACKS);
        let name = |number: usize| format!("s{number:05}");
        let up = |number| upsert(&name(number), Protocol::Tcp, FrontendKind::NodePort);
        let changes: Vec<_> = (0..10_000).map(up).collect();
        let news = gaps.take(&changes);
        assert_eq!(told(news), ["+external-traffic 10000/10000"]);
        // A single one is told by itself, however many there are.
        assert_eq!(gaps.take(&[up(10_000)]).len(), 1);
        let changes: Vec<_> = (0..21)
            .map(|number| delete(&name(number), Protocol::Tcp))
            .collect();
        assert_eq!(told(gaps.take(&changes)), ["-external-traffic 21/9980"]);
        assert_eq!(gaps.count(Capability::ExternalTraffic), 9_980);
    }
}
