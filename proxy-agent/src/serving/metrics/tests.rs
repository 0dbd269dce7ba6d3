//! What a scraper reads, against kube-proxy's own text where names are shared.
#![expect(
    clippy::float_cmp,
    reason = "what is compared are small counts, which are exact"
)]

mod backend;
mod lint;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::UNIX_EPOCH,
};

use proxy_model::{
    Conditions, EndpointSlice, FigureKind, ObjectName, Protocol, Service, ServicePort,
    SliceEndpoint, SlicePort, TrafficPolicy,
};

use super::*;
use crate::{
    backend::choice,
    cluster::kube::{self, Counters, ObjectKind, Reason},
};

/// One metric of the text format.
#[derive(Debug, Default, PartialEq)]
struct Read {
    kind: String,
    help: String,
    /// Value by name and labels, as written.
    samples: BTreeMap<String, f64>,
}

/// Reads the text format, and insists that it is one.
fn read(text: &str) -> BTreeMap<String, Read> {
    let mut all: BTreeMap<String, Read> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            all.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let read = all.entry(name.to_owned()).or_default();
            assert!(read.kind.is_empty(), "{name} is there twice");
            read.kind = kind.to_owned();
            current = name.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(sample.starts_with(&current), "{line} follows {current}");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let before = all
                .get_mut(&current)
                .unwrap()
                .samples
                .insert(sample.to_owned(), value);
            assert_eq!(before, None, "{sample} is there twice");
        }
    }
    all
}

const BACKENDS: [&str; 2] = ["ebpf", "nftables"];

/// eBPF, that lacks two things.
fn chosen() -> Choice {
    let lacks = &[Capability::Sctp, Capability::ExternalTraffic];
    choice::fixtures::lacking_alone(lacks, "not here")
}

fn metrics() -> Metrics {
    Metrics::new(&chosen(), &BACKENDS, &Conntrack::new(), Vec::new())
}

fn scraped(metrics: &Metrics) -> BTreeMap<String, Read> {
    read(&metrics.text().unwrap())
}

/// Value of one sample.
fn value(metrics: &Metrics, sample: &str) -> f64 {
    let all = scraped(metrics);
    let found = all.values().find_map(|read| read.samples.get(sample));
    *found.unwrap_or_else(|| panic!("no {sample}"))
}

/// Names of labels, without their values except bounds of buckets.
fn shape(sample: &str) -> String {
    let Some((name, labels)) = sample.trim_end_matches('}').split_once('{') else {
        return sample.to_owned();
    };
    let labels = labels.split(',').map(|label| match label.split_once('=') {
        Some(("le", bound)) => format!("le={bound}"),
        Some((name, _)) => name.to_owned(),
        None => panic!("{sample}"),
    });
    let labels: BTreeSet<String> = labels.collect();
    format!("{name}{labels:?}")
}

#[test]
fn names_types_labels_and_buckets_are_kube_proxys() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-metrics-nftables.txt"
    );
    let theirs = read(&std::fs::read_to_string(path).unwrap());
    let ours = scraped(&metrics());
    let same: Vec<&str> = definitions::ALL
        .iter()
        .filter(|definition| definition.of_kube_proxy)
        .map(|definition| definition.name)
        .collect();
    // It shows these only once something was observed.
    let silent = [
        "kubeproxy_network_programming_duration_seconds",
        "kubeproxy_sync_partial_proxy_rules_duration_seconds",
        "kubeproxy_proxy_healthz_total",
        "kubeproxy_proxy_livez_total",
    ];
    for name in &same {
        let Some(their) = theirs.get(*name) else {
            assert!(silent.contains(name), "kube-proxy has no {name}");
            continue;
        };
        let our = &ours[*name];
        assert_eq!(our.kind, their.kind, "{name}");
        let shapes = |read: &Read| {
            read.samples
                .keys()
                .map(|one| shape(one))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(shapes(our), shapes(their), "{name}");
    }
    // Nothing that it has is missing.
    let left = theirs.keys().filter(|name| !same.contains(&name.as_str()));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    for name in ours.keys().filter(|name| name.starts_with("kubeproxy_")) {
        assert!(
            same.contains(&name.as_str()),
            "{name} is not said to be kube-proxy's"
        );
    }
}

#[test]
fn the_buckets_of_network_programming_are_kube_proxys() {
    let bounds = definitions::buckets(&definitions::NETWORK_PROGRAMMING);
    assert_eq!(bounds.len(), 3 + 59 + 12 + 7);
    assert_eq!(bounds[..5], [0.0, 0.25, 0.5, 1.0, 2.0]);
    assert_eq!(bounds[61..64], [59.0, 60.0, 65.0]);
    assert_eq!(bounds[73..76], [115.0, 120.0, 150.0]);
    assert_eq!(bounds.last(), Some(&300.0));
}

#[test]
fn everything_defined_is_there_from_the_start_and_nothing_else() {
    let ours = scraped(&metrics());
    let mut defined: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for definition in definitions::ALL {
        let shape = (definition.kind.as_str(), definition.labels.len());
        assert_eq!(
            defined.insert(definition.name, shape),
            None,
            "{}",
            definition.name
        );
    }
    for (name, kind, _) in definitions::OF_PROCESS {
        defined.insert(name, (kind.as_str(), 0));
    }
    assert_eq!(
        ours.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        defined.keys().copied().collect()
    );
    for (name, read) in &ours {
        let (kind, labels) = defined[name.as_str()];
        assert_eq!(read.kind, kind, "{name}");
        assert!(!read.help.is_empty(), "{name}");
        for sample in read.samples.keys() {
            let bounds = usize::from(sample.contains("_bucket{"));
            assert_eq!(sample.matches("=\"").count(), labels + bounds, "{sample}");
        }
    }
}

#[test]
fn a_sync_is_counted_for_both_families() {
    let metrics = metrics();
    let now = UNIX_EPOCH + Duration::from_millis(1_500);
    metrics.queued(now);
    for whole in [true, false, false] {
        let sync = Synced {
            whole,
            took: Duration::from_millis(3),
            triggers: &[],
        };
        metrics.synced(sync, now);
    }
    for family in ["IPv4", "IPv6"] {
        let value = |name: &str| {
            value(
                &metrics,
                &format!("kubeproxy_sync_{name}{{ip_family=\"{family}\"}}"),
            )
        };
        let bucket = |bound: &str| {
            let labels = format!("{{ip_family=\"{family}\",le=\"{bound}\"}}");
            super::tests::value(
                &metrics,
                &format!("kubeproxy_sync_proxy_rules_duration_seconds_bucket{labels}"),
            )
        };
        assert_eq!(value("proxy_rules_duration_seconds_count"), 3.0);
        assert_eq!((bucket("0.002"), bucket("0.004")), (0.0, 3.0));
        assert_eq!(value("full_proxy_rules_duration_seconds_count"), 1.0);
        assert_eq!(value("partial_proxy_rules_duration_seconds_count"), 2.0);
        assert_eq!(value("proxy_rules_last_timestamp_seconds"), 1.5);
        assert_eq!(value("proxy_rules_last_queued_timestamp_seconds"), 1.5);
    }
    assert_eq!(value(&metrics, "culvert_revisions_total"), 3.0);
}

#[test]
fn changes_are_pending_until_a_sync() {
    let metrics = metrics();
    let pending = || {
        ["service", "endpoint"].map(|kind| {
            value(
                &metrics,
                &format!("kubeproxy_sync_proxy_rules_{kind}_changes_pending"),
            )
        })
    };
    metrics.events(5, 1, 2);
    metrics.failed(&["ebpf"]);
    metrics.events(3, 0, 3);
    assert_eq!(pending(), [1.0, 5.0]);
    let sync = Synced {
        whole: true,
        took: Duration::ZERO,
        triggers: &[],
    };
    metrics.synced(sync, SystemTime::now());
    assert_eq!(pending(), [0.0, 0.0]);
    assert_eq!(
        value(
            &metrics,
            "kubeproxy_sync_proxy_rules_endpoint_changes_total"
        ),
        5.0
    );
    assert_eq!(value(&metrics, "culvert_events_total"), 8.0);
    assert_eq!(value(&metrics, "culvert_sync_failures_total"), 1.0);
}

#[test]
fn network_programming_leaves_out_what_was_before_the_start() {
    let metrics = metrics();
    let after = |seconds| metrics.started + Duration::from_secs(seconds);
    let triggers = [
        (IpFamily::V4, metrics.started - Duration::from_secs(1)),
        (IpFamily::V4, after(0)),
        (IpFamily::V4, after(7)),
        // By a clock that goes ahead.
        (IpFamily::V6, after(60)),
    ];
    let sync = Synced {
        whole: false,
        took: Duration::ZERO,
        triggers: &triggers,
    };
    metrics.synced(sync, after(10));
    let value = |suffix: &str| {
        value(
            &metrics,
            &format!("kubeproxy_network_programming_duration_seconds_{suffix}}}"),
        )
    };
    assert_eq!(value("count{ip_family=\"IPv4\""), 2.0);
    assert_eq!(value("sum{ip_family=\"IPv4\""), 13.0);
    assert_eq!(value("bucket{ip_family=\"IPv4\",le=\"3\""), 1.0);
    assert_eq!(value("bucket{ip_family=\"IPv6\",le=\"0\""), 1.0);
}

fn state() -> NodeState {
    let name = |name: &str| ObjectName::new("shop", name);
    let service = |service: &str, policy| {
        proxy_model::ClusterEvent::ServiceUpserted(Service {
            name: name(service),
            cluster_ips: vec![[10, 96, 0, u8::try_from(service.len()).unwrap()].into()],
            ports: vec![ServicePort {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: 80,
                node_port: None,
            }],
            internal_policy: policy,
            ..Service::default()
        })
    };
    let slice = |slice: &str, of: &str, nodes: &[&str]| {
        let endpoint = |(index, node): (usize, &&str)| SliceEndpoint {
            address: [10, 244, 0, u8::try_from(index).unwrap()].into(),
            conditions: Conditions {
                ready: true,
                serving: true,
                terminating: false,
            },
            node: Some(Arc::from(*node)),
            hints: None,
        };
        proxy_model::ClusterEvent::SliceUpserted(EndpointSlice {
            name: name(slice),
            service: name(of),
            family: IpFamily::V4,
            ports: vec![SlicePort {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: 8080,
            }],
            endpoints: nodes.iter().enumerate().map(endpoint).collect(),
        })
    };
    let events = vec![
        service("all", TrafficPolicy::Cluster),
        slice("all-1", "all", &["here", "there", "there"]),
        service("here", TrafficPolicy::Local),
        slice("here-1", "here", &["here", "there"]),
        service("there", TrafficPolicy::Local),
        slice("there-1", "there", &["there"]),
        service("nowhere", TrafficPolicy::Local),
        balanced(),
        slice("balanced-1", "balanced", &["there"]),
    ];
    proxy_model::compute("here", events)
}

/// A NodePort with external policy Local.
fn balanced() -> proxy_model::ClusterEvent {
    proxy_model::ClusterEvent::ServiceUpserted(Service {
        name: ObjectName::new("shop", "balanced"),
        cluster_ips: vec![[10, 96, 0, 200].into()],
        ports: vec![ServicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: std::num::NonZeroU16::new(30080),
        }],
        external: Some(Box::new(proxy_model::ExternalAccess {
            policy: TrafficPolicy::Local,
            ..proxy_model::ExternalAccess::default()
        })),
        ..Service::default()
    })
}

#[test]
fn the_state_is_counted_at_the_scrape() {
    let metrics = metrics();
    let state = state();
    metrics.state(&state, state.services.keys().take(1));
    let value = |sample: &str| value(&metrics, sample);
    assert_eq!(value("culvert_service_ports{ip_family=\"IPv4\"}"), 5.0);
    assert_eq!(value("culvert_service_ports{ip_family=\"IPv6\"}"), 0.0);
    assert_eq!(value("culvert_endpoints{ip_family=\"IPv4\"}"), 5.0);
    assert_eq!(
        value("culvert_service_ports_not_programmed{ip_family=\"IPv4\"}"),
        1.0
    );
    let no_local = |policy| {
        let labels = format!("{{ip_family=\"IPv4\",traffic_policy=\"{policy}\"}}");
        value(&format!(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{labels}"
        ))
    };
    // Without any endpoint nothing is lost by the policy.
    assert_eq!((no_local("internal"), no_local("external")), (1.0, 1.0));
}

#[test]
fn repairs_are_counted_by_kind() {
    let metrics = metrics();
    let difference = |kind| Difference {
        object: "link".to_owned(),
        kind,
        service: None,
        wanted: None,
        found: None,
    };
    assert_eq!(
        value(&metrics, "culvert_last_comparison_timestamp_seconds"),
        0.0
    );
    let now = UNIX_EPOCH + Duration::from_secs(7);
    metrics.compared(&[], UNIX_EPOCH);
    let kinds = [
        DifferenceKind::Detached,
        DifferenceKind::Missing,
        DifferenceKind::Missing,
    ];
    metrics.compared(&[("ebpf", kinds.map(difference).into())], now);
    assert_eq!(
        value(&metrics, "culvert_last_comparison_timestamp_seconds"),
        7.0
    );
    let repairs = |kind| {
        value(
            &metrics,
            &format!("culvert_repairs_total{{difference=\"{kind}\"}}"),
        )
    };
    assert_eq!(
        (repairs("missing"), repairs("detached"), repairs("changed")),
        (2.0, 1.0, 0.0)
    );
    assert_eq!(value(&metrics, "culvert_comparisons_total"), 2.0);
}

#[test]
fn numbers_from_elsewhere_are_shown_under_their_names() {
    let figure = |name, labels, value| Figure {
        name,
        kind: FigureKind::Counter,
        help: "What it is.",
        labels,
        value,
    };
    let elsewhere = move || vec![figure("culvert_api_bytes_read_total", Vec::new(), 7.0)];
    let metrics = Metrics::new(
        &chosen(),
        &BACKENDS,
        &Conntrack::new(),
        vec![Box::new(elsewhere)],
    );
    metrics.figures(
        "ebpf",
        vec![
            figure("map_entries", vec![("map", "A\"B".to_owned())], 1.0),
            figure("rare_events_total", Vec::new(), 2.0),
            figure("map_entries", vec![("map", "C".to_owned())], 3.0),
        ],
    );
    assert_eq!(value(&metrics, "culvert_api_bytes_read_total"), 7.0);
    assert_eq!(
        value(&metrics, "culvert_ebpf_map_entries{map=\"A\\\"B\"}"),
        1.0
    );
    assert_eq!(value(&metrics, "culvert_ebpf_map_entries{map=\"C\"}"), 3.0);
    assert_eq!(value(&metrics, "culvert_ebpf_rare_events_total"), 2.0);
}

#[test]
fn what_the_api_source_counts_is_shown_by_kind_and_reason() {
    let counters = Arc::new(Counters::default());
    let counted = Arc::clone(&counters);
    let metrics = Metrics::new(
        &chosen(),
        &BACKENDS,
        &Conntrack::new(),
        vec![Box::new(move || kube::figures(&counted))],
    );
    let count = |counter: &AtomicU64, by| counter.fetch_add(by, Relaxed);
    count(&counters.bytes_read, 1_000);
    count(&counters.failovers, 2);
    counters.server.store(1, Relaxed);
    let slices = counters.kind(ObjectKind::EndpointSlice);
    let of_slices = [
        (&slices.events, "events"),
        (&slices.bookmarks, "bookmarks"),
        (&slices.lists, "lists"),
        (&slices.watches, "watches"),
        (&slices.decode_failures, "decode_failures"),
    ];
    for (by, (counter, _)) in (10_u64..).zip(of_slices) {
        count(counter, by);
    }
    count(counters.error(Reason::Silent), 5);
    let value = |sample: &str| value(&metrics, &format!("culvert_api_{sample}"));
    assert_eq!(value("bytes_read_total"), 1_000.0);
    assert_eq!((value("failovers_total"), value("server")), (2.0, 1.0));
    for (by, (_, name)) in (10_u8..).zip(of_slices) {
        let of = |kind| value(&format!("{name}_total{{kind=\"{kind}\"}}"));
        assert_eq!(
            (of("EndpointSlice"), of("Node")),
            (f64::from(by), 0.0),
            "{name}"
        );
    }
    assert_eq!(value("errors_total{reason=\"silent\"}"), 5.0);
    assert_eq!(value("errors_total{reason=\"expired\"}"), 0.0);
}
