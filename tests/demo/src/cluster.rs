//! The demo's cluster: objects as kubectl printed them, which pods exist, and what is dialled.
//!
//! The expected endpoints are written down here and not computed, so that they are a second
//! opinion on what the agent makes of the objects.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};

use proxy_harness::pod::{Listen, Transport};

/// `kubectl get nodes,services,endpointslices -A -o yaml` of a real cluster.
pub(super) const MIXED: &str = include_str!("../../data/cluster-mixed.yaml");

/// The first endpoint of the Service `shop/empty`.
pub(super) const EMPTY_GETS_AN_ENDPOINT: &str = include_str!("../empty-gets-an-endpoint.yaml");

/// A pod and what it listens on: every port on every address.
#[derive(Debug)]
pub(super) struct PodSpec {
    pub(super) name: &'static str,
    pub(super) addresses: &'static [&'static str],
    pub(super) tcp: &'static [u16],
    pub(super) udp: &'static [u16],
}

impl PodSpec {
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|text| ip(text)).collect()
    }

    pub(super) fn listen(&self) -> Vec<Listen> {
        let mut listen = Vec::new();
        for address in self.addresses() {
            let at = |port: &u16| SocketAddr::new(address, *port);
            listen.extend(self.tcp.iter().map(|port| Listen::tcp(at(port))));
            listen.extend(self.udp.iter().map(|port| Listen::udp(at(port))));
        }
        listen
    }
}

/// The pod that sends.
pub(super) const CLIENT: PodSpec = PodSpec {
    name: "client",
    addresses: &["10.244.0.100", "fd00:10:244::100"],
    tcp: &[],
    udp: &[],
};

/// The pods behind the Services that are dialled, from the start.
pub(super) const PODS: [PodSpec; 7] = [
    web("web-a", &["10.244.0.10", "fd00:10:244::10"], &[8080]),
    web("web-b", &["10.244.1.10", "fd00:10:244:1::10"], &[8080]),
    web("web-c", &["10.244.2.10"], &[8081]),
    dns("dns-a", &["10.244.0.2", "fd00:10:244::2"]),
    dns("dns-b", &["10.244.1.2", "fd00:10:244:1::2"]),
    same_port("sameport-a", &["10.244.0.73"]),
    same_port("sameport-b", &["10.244.1.73"]),
];

/// Takes the place of `web-b`.
pub(super) const REPLACEMENT: PodSpec =
    web("web-new", &["10.244.1.11", "fd00:10:244:1::11"], &[8080]);

/// The pod behind `shop/empty` when it is empty no longer.
pub(super) const FIRST: PodSpec = web("empty-a", &["10.244.0.80"], &[80]);

const fn web(
    name: &'static str,
    addresses: &'static [&'static str],
    tcp: &'static [u16],
) -> PodSpec {
    PodSpec {
        name,
        addresses,
        tcp,
        udp: &[],
    }
}

const fn dns(name: &'static str, addresses: &'static [&'static str]) -> PodSpec {
    PodSpec {
        name,
        addresses,
        tcp: &[],
        udp: &[53],
    }
}

const fn same_port(name: &'static str, addresses: &'static [&'static str]) -> PodSpec {
    PodSpec {
        name,
        addresses,
        tcp: &[9000],
        udp: &[9001],
    }
}

/// A stream of requests to one frontend.
#[derive(Debug)]
pub(super) struct StreamSpec {
    /// The Service and the name of its port, as a table shows them.
    pub(super) service: &'static str,
    pub(super) transport: Transport,
    to: &'static str,
    /// Endpoints that must answer from the start; none: must be refused.
    endpoints: &'static [&'static str],
}

impl StreamSpec {
    /// The frontend.
    pub(super) fn to(&self) -> SocketAddr {
        endpoint(self.to)
    }

    /// Endpoints that must answer from the start.
    pub(super) fn endpoints(&self) -> Vec<SocketAddr> {
        self.endpoints.iter().map(|text| endpoint(text)).collect()
    }
}

/// The streams whose endpoint on node-b is replaced.
pub(super) const WEB: [usize; 2] = [0, 1];
/// The stream to the Service without endpoints.
pub(super) const EMPTY: usize = 6;

/// All streams.
pub(super) const ALL: [usize; 7] = [0, 1, 2, 3, 4, 5, EMPTY];

/// Everything that is dialled.
pub(super) const STREAMS: [StreamSpec; 7] = [
    StreamSpec {
        service: "shop/web http",
        transport: Transport::Http,
        to: "10.96.10.1:80",
        endpoints: &["10.244.0.10:8080", "10.244.1.10:8080", "10.244.2.10:8081"],
    },
    StreamSpec {
        service: "shop/web http",
        transport: Transport::Http,
        to: "[fd00:10:96::1001]:80",
        endpoints: &["[fd00:10:244::10]:8080", "[fd00:10:244:1::10]:8080"],
    },
    StreamSpec {
        service: "kube-dns dns",
        transport: Transport::Udp,
        to: "10.96.0.10:53",
        endpoints: &["10.244.0.2:53", "10.244.1.2:53"],
    },
    StreamSpec {
        service: "kube-dns dns",
        transport: Transport::UdpConnected,
        to: "[fd00:10:96::a]:53",
        endpoints: &["[fd00:10:244::2]:53", "[fd00:10:244:1::2]:53"],
    },
    StreamSpec {
        service: "shop/sameport t",
        transport: Transport::Tcp,
        to: "10.96.10.14:90",
        endpoints: &["10.244.0.73:9000", "10.244.1.73:9000"],
    },
    StreamSpec {
        service: "shop/sameport u",
        transport: Transport::Udp,
        to: "10.96.10.14:90",
        endpoints: &["10.244.0.73:9001", "10.244.1.73:9001"],
    },
    StreamSpec {
        service: "shop/empty http",
        transport: Transport::Http,
        to: "10.96.10.2:80",
        endpoints: &[],
    },
];

/// Endpoints of [`REPLACEMENT`] and of the pod whose place it takes, for one of [`WEB`].
pub(super) fn replacement(stream: usize) -> Replaced {
    let (old, new) = if STREAMS[stream].to().is_ipv4() {
        ("10.244.1.10:8080", "10.244.1.11:8080")
    } else {
        ("[fd00:10:244:1::10]:8080", "[fd00:10:244:1::11]:8080")
    };
    Replaced {
        old: endpoint(old),
        new: endpoint(new),
    }
}

/// An endpoint that goes and the one that comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replaced {
    pub(super) old: SocketAddr,
    pub(super) new: SocketAddr,
}

/// The objects with `web-new` ready and `web-b` terminating, as the controllers write them
/// while a pod is being replaced.
pub(super) fn old_pod_terminating() -> Result<String> {
    edit(|new, old| {
        let terminating = old
            .replace("ready: true", "ready: false")
            .replace("terminating: false", "terminating: true");
        format!("{new}{terminating}")
    })
}

/// The objects with `web-new` in the place of `web-b`.
pub(super) fn old_pod_gone() -> Result<String> {
    edit(|new, _| new.to_owned())
}

/// Replaces the entries of `web-b` in its slices by what `entry` makes of its successor's entry
/// and its own.
fn edit(entry: impl Fn(&str, &str) -> String) -> Result<String> {
    let mut text = MIXED.to_owned();
    for stream in WEB {
        let replaced = replacement(stream);
        let block = |ip: IpAddr| {
            format!(
                "  - addresses:\n    - {ip}\n    conditions:\n      ready: true\n      \
                 serving: true\n      terminating: false\n    nodeName: node-b\n    zone: zone-b\n"
            )
        };
        let (old, new) = (block(replaced.old.ip()), block(replaced.new.ip()));
        ensure!(
            text.matches(&old).count() == 1,
            "tests/data/cluster-mixed.yaml has not exactly one ready endpoint {}",
            replaced.old.ip()
        );
        text = text.replace(&old, &entry(&new, &old));
    }
    Ok(text)
}

fn ip(text: &str) -> IpAddr {
    parse(text).expect("the addresses of this file are valid")
}

fn endpoint(text: &str) -> SocketAddr {
    parse(text).expect("the addresses of this file are valid")
}

fn parse<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    text: &str,
) -> Result<T> {
    text.parse()
        .with_context(|| format!("{text:?} is no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expected_endpoint_is_served_by_a_pod() {
        for stream in &STREAMS {
            for endpoint in stream.endpoints() {
                let served = PODS.iter().any(|pod| {
                    pod.listen()
                        .iter()
                        .any(|at| at.address == endpoint && at.udp == stream.transport.is_udp())
                });
                assert!(served, "{endpoint}");
            }
        }
        assert!(STREAMS[EMPTY].endpoints().is_empty());
        for stream in WEB {
            let replaced = replacement(stream);
            assert!(STREAMS[stream].endpoints().contains(&replaced.old));
            let of = |pod: &PodSpec, at| pod.listen().contains(&Listen::tcp(at));
            assert!(of(&PODS[1], replaced.old), "web-b has the old address");
            assert!(
                of(&REPLACEMENT, replaced.new),
                "its successor has the new one"
            );
        }
    }

    #[test]
    fn edits_change_the_slices_of_one_pod_only() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let terminating = old_pod_terminating().unwrap();
        // Two slices, each with a new entry of eight lines.
        assert_eq!(lines(&terminating).len(), lines(MIXED).len() + 2 * 8);
        let gone = old_pod_gone().unwrap();
        let changed = lines(&gone)
            .into_iter()
            .zip(lines(MIXED))
            .filter(|(new, old)| new != old)
            .collect::<Vec<_>>();
        let expected = [
            ("10.244.1.11", "10.244.1.10"),
            ("fd00:10:244:1::11", "fd00:10:244:1::10"),
        ]
        .map(|(new, old)| (format!("    - {new}"), format!("    - {old}")));
        assert_eq!(changed, expected);
    }
}
