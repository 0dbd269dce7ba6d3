//! What metrics tell of the backend: which one serves, and what it lacks.

use super::*;

#[test]
fn what_the_backend_lacks_is_shown_with_how_many_need_it() {
    let metrics = metrics();
    let of = |name, capability| {
        value(
            &metrics,
            &format!("culvert_{name}{{capability=\"{capability}\"}}"),
        )
    };
    assert_eq!(of("backend_lacks", "sctp"), 1.0);
    assert_eq!(of("backend_lacks", "affinity"), 0.0);
    assert_eq!(of("capability_gaps", "sctp"), 0.0);
    metrics.gaps([(Capability::Sctp, 3), (Capability::Affinity, 0)].into_iter());
    assert_eq!(of("capability_gaps", "sctp"), 3.0);
    assert_eq!(of("capability_gaps", "affinity"), 0.0);
}

/// The samples that are there, without their values.
fn series(metrics: &Metrics) -> BTreeSet<String> {
    let all = scraped(metrics).into_values();
    all.flat_map(|read| read.samples.into_keys()).collect()
}

#[test]
fn a_change_of_backend_is_counted_and_takes_no_series_away() {
    let figure = |name, kind, value| Figure {
        name,
        kind,
        help: "What it is.",
        labels: Vec::new(),
        value,
    };
    let metrics = metrics();
    let of = |sample: &str| value(&metrics, &format!("culvert_{sample}"));
    let choice = |backend, reason| {
        let labels = format!("backend=\"{backend}\",mode=\"auto\",reason=\"{reason}\"");
        of(&format!("backend_choice{{{labels}}}"))
    };
    let build = |backend| {
        let version = env!("CARGO_PKG_VERSION");
        let labels = format!("backend=\"{backend}\",version=\"{version}\"");
        of(&format!("build_info{{{labels}}}"))
    };
    metrics.figures(
        "ebpf",
        vec![
            figure("events_total", FigureKind::Counter, 7.0),
            figure("entries", FigureKind::Gauge, 3.0),
        ],
    );
    assert_eq!(
        (choice("ebpf", "first"), choice("nftables", "instead")),
        (1.0, 0.0)
    );
    assert_eq!((build("ebpf"), build("nftables")), (1.0, 0.0));
    assert_eq!(of("backend_refused{backend=\"nftables\"}"), 1.0);
    assert_eq!(of("backend_changes_total"), 0.0);
    let before = series(&metrics);

    metrics.chosen(&Choice {
        mode: "auto",
        layers: vec!["nftables"],
        reason: "ebpf cannot be used".to_owned(),
        cause: choice::Cause::Instead,
        ..choice::fixtures::lacking(&[Capability::LoopbackNodePorts])
    });
    let after = series(&metrics);
    let gone: Vec<_> = before.difference(&after).collect();
    assert_eq!(gone, [""; 0]);
    assert_eq!(
        (choice("ebpf", "first"), choice("nftables", "instead")),
        (0.0, 1.0)
    );
    assert_eq!((build("ebpf"), build("nftables")), (0.0, 1.0));
    assert_eq!(of("backend_lacks{capability=\"sctp\"}"), 0.0);
    assert_eq!(of("backend_refused{backend=\"nftables\"}"), 0.0);
    assert_eq!(of("backend_changes_total"), 1.0);
    assert_eq!(metrics.layers(), ["nftables"]);
    // What was counted is counted; what was there is there no more.
    assert_eq!((of("ebpf_events_total"), of("ebpf_entries")), (7.0, 0.0));
    metrics.figures("nftables", vec![figure("elements", FigureKind::Gauge, 5.0)]);
    assert_eq!(
        (of("ebpf_events_total"), of("nftables_elements")),
        (7.0, 5.0)
    );
}

#[test]
fn each_layer_is_shown_and_none_goes() {
    let metrics = metrics();
    let of = |name: &str, layer: &str| {
        value(
            &metrics,
            &format!("culvert_layer_{name}{{layer=\"{layer}\"}}"),
        )
    };
    let both = |name| (of(name, "ebpf"), of(name, "nftables"));
    assert_eq!(both("in_force"), (0.0, 0.0));
    let now = |name, in_force, not_programmed| LayerNow {
        name,
        in_force,
        not_programmed,
    };
    metrics.layers_now(&[now("ebpf", true, 2), now("nftables", false, 0)]);
    assert_eq!(both("in_force"), (1.0, 0.0));
    assert_eq!(both("service_ports_not_programmed"), (2.0, 0.0));
    metrics.failed(&["nftables"]);
    let differs = Difference {
        object: "map".to_owned(),
        kind: DifferenceKind::Missing,
        service: None,
        wanted: None,
        found: None,
    };
    let repaired = [
        ("ebpf", vec![differs.clone(), differs]),
        ("nftables", vec![]),
    ];
    metrics.compared(&repaired, SystemTime::now());
    assert_eq!(both("sync_failures_total"), (0.0, 1.0));
    assert_eq!(both("repairs_total"), (2.0, 0.0));
    let repairs = "culvert_repairs_total{difference=\"missing\"}";
    assert_eq!(value(&metrics, repairs), 2.0);
    // The one above is given up.
    metrics.layers_now(&[now("nftables", true, 0)]);
    assert_eq!(both("in_force"), (0.0, 1.0));
    assert_eq!(both("service_ports_not_programmed"), (0.0, 0.0));
    assert_eq!(both("repairs_total"), (2.0, 0.0));
}

#[test]
fn flows_that_are_removed_are_counted_as_kube_proxy_does() {
    let conntrack = Conntrack::new();
    let metrics = Metrics::new(&chosen(), &BACKENDS, &conntrack, Vec::new());
    conntrack.cleaned(IpFamily::V4, 3, Duration::from_millis(3));
    conntrack.cleaned(IpFamily::V6, 0, Duration::from_millis(3));
    let of = |name: &str, family: &str| {
        let labels = format!("{{ip_family=\"{family}\"}}");
        value(
            &metrics,
            &format!("kubeproxy_conntrack_reconciler_{name}{labels}"),
        )
    };
    let deleted = |family| of("deleted_entries_total", family);
    let times = |family| of("sync_duration_seconds_count", family);
    assert_eq!((deleted("IPv4"), deleted("IPv6")), (3.0, 0.0));
    assert_eq!((times("IPv4"), times("IPv6")), (1.0, 1.0));
}
