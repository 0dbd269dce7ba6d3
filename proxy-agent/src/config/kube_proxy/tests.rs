//! Files and flags to settings, and every mistake in them.

mod conversion;
mod corpus;
mod explained;
mod own_section;
mod rows;
mod schemas;
mod second;
mod told;

use proxy_model::oracle::Detector;

use super::*;
use crate::host::settings::HostSettings;

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

fn settings(fields: &str) -> Settings {
    settle(Some(&format!("{HEAD}{fields}")), &[]).unwrap()
}

fn mistakes(fields: &str) -> Vec<String> {
    let wrong = settle(Some(&format!("{HEAD}{fields}")), &[]).unwrap_err();
    texts(&wrong)
}

/// What is said, without where it stands.
fn texts(said: &[impl ToString]) -> Vec<String> {
    let all = said.iter().map(ToString::to_string);
    all.map(|text| match text.rsplit_once(" (line ") {
        Some((text, _)) => text.to_owned(),
        None => text,
    })
    .collect()
}

fn notices(settings: &Settings) -> Vec<String> {
    texts(&settings.notices)
}

fn flag(flag: &'static str, paths: &'static [&'static str], text: &str) -> Given {
    Given {
        flag: flag.trim_start_matches('-'),
        paths,
        text: text.to_owned(),
    }
}

#[test]
fn nothing_at_all_is_kube_proxys_defaults() {
    let none = settle(None, &[]).unwrap();
    assert_eq!(none.kubeconfig, None);
    assert_eq!(none.node_name, None);
    assert_eq!(none.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(none.metrics, Some("127.0.0.1:10249".parse().unwrap()));
    assert!(!none.hard_fail);
    assert_eq!(none.sync_period, Duration::from_secs(30));
    assert_eq!(none.traffic, Traffic::default());
    assert_eq!(none.timeouts, Timeouts::default());
    assert_eq!(none.oom_score_adj, -999);
    assert_eq!(none.notices, []);
    assert_eq!(settings(""), none);
}

#[test]
fn the_defaults_that_kube_proxy_writes_are_ours() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kube-proxy-defaults-v1alpha1.yaml"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let read = settle(Some(&text), &[]).unwrap();
    // It fills in the modes that it would choose; of those something is said.
    let notices = notices(&read);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("detectLocalMode: "), "{notices:?}");
    assert_eq!(read.mode.as_str(), "iptables");
    let none = settle(None, &[]).unwrap();
    let (mut read, mut none) = (read, none);
    read.notices.clear();
    // The mode, and what a free-form field of the log holds.
    for settings in [&mut read, &mut none] {
        settings.mode = Mode::Unset;
        settings.effective["mode"].take();
        settings.effective["logging"].take();
    }
    assert_eq!(read, none);
}

/// What kubeadm puts into its `ConfigMap`: nearly all of it zeros that mean defaults.
#[test]
fn the_file_that_kubeadm_writes_is_read_without_a_word() {
    let read = settings(
        "
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: \"\"
  burst: 0
  contentType: \"\"
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null, udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: \"\", interfaceNamePrefix: \"\"}
detectLocalMode: \"\"
enableProfiling: false
healthzBindAddress: \"\"
hostnameOverride: \"\"
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: \"\", strictARP: false, syncPeriod: 0s, tcpFinTimeout: 0s, tcpTimeout: 0s, udpTimeout: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}, text: {infoBufferSize: \"0\"}}, verbosity: 0}
metricsBindAddress: \"\"
mode: \"\"
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: \"\"
showHiddenMetricsForVersion: \"\"
winkernel: {enableDSR: false, forwardHealthCheckVip: false, networkName: \"\", rootHnsEndpointName: \"\", sourceVip: \"\"}
",
    );
    assert_eq!(notices(&read), [] as [String; 0]);
    assert_eq!(
        read.kubeconfig.as_deref().and_then(|path| path.to_str()),
        Some("/var/lib/kube-proxy/kubeconfig.conf")
    );
    let cidrs = ["10.244.0.0/16", "fd00:10:244::/56"].map(|cidr| cidr.parse().unwrap());
    assert_eq!(read.traffic.detector, Detector::ClusterCidr(cidrs.into()));
    assert_eq!(read.healthz, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(read.sync_period, Duration::from_secs(30));
    assert_eq!(read.oom_score_adj, -999);
    assert_eq!(read.effective["iptables"]["localhostNodePorts"], true);
}

#[test]
fn every_mistake_is_told_at_once_with_its_field() {
    let told = mistakes(
        "
bindAddress: localhost
healthzBindAddress: nowhere
metricsBindAddress: 127.0.0.1:0
mode: kernelspace
oomScoreAdj: 1001
hostnameOverride: 5
clusterCIDR: 10.0.0.0/8,10.1.0.0/16
detectLocalMode: BridgeInterface
nodePortAddresses: [primary, 10.0.0.0/8]
configSyncPeriod: -1s
clientConnection: {burst: -1}
iptables: {syncPeriod: 1s, minSyncPeriod: 2s, masqueradeBit: 32, masqueradeAll: maybe}
ipvs: []
conntrack: {min: -1, tcpEstablishedTimeout: -1s, udpTimeout: 60}
",
    );
    let fields: Vec<&str> = told
        .iter()
        .map(|text| text.split(": ").next().unwrap())
        .collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "bindAddress",
            "clientConnection.burst",
            "clusterCIDR",
            "configSyncPeriod",
            "conntrack.min",
            "conntrack.tcpEstablishedTimeout",
            "conntrack.udpTimeout",
            "detectLocal.bridgeInterface",
            "healthzBindAddress",
            "hostnameOverride",
            "iptables.masqueradeAll",
            "iptables.masqueradeBit",
            "iptables.syncPeriod",
            "ipvs",
            "metricsBindAddress",
            "mode",
            "nodePortAddresses",
            "oomScoreAdj",
        ],
        "{told:#?}"
    );
}

#[test]
fn an_unknown_field_is_told_and_changes_nothing() {
    let read = settings("hostnameOverride: a\nipTables: {syncPeriod: 1s}\niptables: {sync: 1s}\n");
    assert_eq!(read.node_name.as_deref(), Some("a"));
    let told = notices(&read);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("ipTables: unknown field"));
    assert!(told[1].starts_with("iptables.sync: unknown field"));
}

#[test]
fn of_a_field_that_stands_twice_the_last_counts() {
    let read = settings("hostnameOverride: a\nhostnameOverride: b\n");
    assert_eq!(read.node_name.as_deref(), Some("b"));
    assert_eq!(notices(&read).len(), 1, "{:?}", notices(&read));
}

#[test]
fn what_is_set_but_not_honoured_is_told() {
    let read = settings(
        "ipvs: {tcpTimeout: 5s}\nnodePortAddresses: [10.0.0.0/8]\nenableProfiling: true\nfeatureGates: {A: true}\n\
         iptables: {minSyncPeriod: 1000ms}\nlogging: {verbosity: 2}\n",
    );
    let told = notices(&read);
    let starts = [
        "featureGates: {\"A\":true} is not honoured: ",
        "ipvs.tcpTimeout: \"5s\" is not honoured: ",
    ];
    assert_eq!(told.len(), starts.len(), "{told:?}");
    for (told, start) in told.iter().zip(starts) {
        assert!(told.starts_with(start), "{told}");
    }
}

#[test]
fn timeouts_of_connections_are_taken_for_the_host_and_for_programs() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let fields = "conntrack: {tcpEstablishedTimeout: 2h, tcpCloseWaitTimeout: 0s, udpTimeout: 45s, \
                  udpStreamTimeout: 3m}\n";
    let read = settings(fields);
    assert_eq!(
        read.timeouts,
        Timeouts {
            tcp_established: seconds(7200),
            tcp_close_wait: None,
            udp: seconds(45),
            udp_stream: seconds(180),
        }
    );
    assert_eq!(read.host.timeouts, read.timeouts);
    assert_eq!(settings("").host, HostSettings::default());
    assert_eq!(notices(&read), [""; 0]);
    let zero = settings("conntrack: {tcpEstablishedTimeout: 0s}\n");
    assert_eq!(zero.timeouts.tcp_established, None);
    let null = settings("conntrack: {tcpEstablishedTimeout: null, tcpCloseWaitTimeout: null}\n");
    assert_eq!((null.timeouts, null.notices), (Timeouts::default(), vec![]));
}

#[test]
fn the_section_of_the_mode_counts() {
    let all = "iptables: {syncPeriod: 1m, masqueradeAll: true}\nipvs: {syncPeriod: 2m}\n\
               nftables: {syncPeriod: 3m}\n";
    for (mode, minutes, masquerade) in [
        ("", 1, true),
        ("ebpf", 1, true),
        ("iptables", 1, true),
        // kube-proxy's ipvs mode reads it from iptables too.
        ("ipvs", 2, true),
        ("nftables", 3, false),
    ] {
        let read = settings(&format!("{all}mode: \"{mode}\"\n"));
        assert_eq!(
            read.sync_period,
            Duration::from_secs(60 * minutes),
            "{mode}"
        );
        assert_eq!(read.traffic.masquerade_all, masquerade, "{mode}");
    }
}

#[test]
fn the_family_of_the_bind_address_decides_the_other_defaults() {
    let read = settings("bindAddress: '::'\n");
    assert_eq!(read.healthz, Some("[::]:10256".parse().unwrap()));
    assert_eq!(read.metrics, Some("[::1]:10249".parse().unwrap()));
    let read = settings("bindAddress: '::'\nmetricsBindAddress: 0.0.0.0\n");
    assert_eq!(read.metrics, Some("0.0.0.0:10249".parse().unwrap()));
}

#[test]
fn a_flag_wins_over_the_file_and_says_so_where_they_differ() {
    let file = format!("{HEAD}clusterCIDR: 10.0.0.0/8\nmetricsBindAddress: 0.0.0.0:1\n");
    let flags = [
        flag("--cluster-cidr", &["clusterCIDR"], "10.0.0.0/8"),
        flag(
            "--metrics-bind-address",
            &["metricsBindAddress"],
            "127.0.0.1:2",
        ),
        flag(
            "--sync-period",
            &["iptables.syncPeriod", "ipvs.syncPeriod"],
            "90s",
        ),
        // In a file this would mean the default.
        flag("--healthz-bind-address", &["healthzBindAddress"], ""),
    ];
    let read = settle(Some(&file), &flags).unwrap();
    assert_eq!(read.metrics, Some("127.0.0.1:2".parse().unwrap()));
    assert_eq!(read.healthz, None);
    assert_eq!(read.sync_period, Duration::from_secs(90));
    assert_eq!(
        notices(&read),
        [
            "metricsBindAddress: \"0.0.0.0:1\" in the file, but --metrics-bind-address \
             \"127.0.0.1:2\" was given: the flag overrides the file"
        ]
    );
}

#[test]
fn a_mistake_in_a_flag_names_the_flag_once() {
    let flags = [
        flag(
            "--sync-period",
            &["iptables.syncPeriod", "ipvs.syncPeriod"],
            "soon",
        ),
        flag("--cluster-cidr", &["clusterCIDR"], "pods"),
        flag("--iptables", &["iptables.masqueradeBit"], "-1"),
    ];
    let wrong = settle(None, &flags).unwrap_err();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("--sync-period: must be a duration"));
    assert!(told.iter().any(|text| text.starts_with("--cluster-cidr: ")));
}

#[test]
fn a_sync_period_of_zero_is_a_default_in_a_file_and_a_mistake_as_a_flag() {
    let zero = flag("--sync-period", &["iptables.syncPeriod"], "0s");
    assert_eq!(
        settings("iptables: {syncPeriod: 0s}").sync_period,
        Duration::from_secs(30)
    );
    assert!(settle(None, &[zero]).is_err());
}

#[test]
fn a_sync_period_that_would_do_nothing_else_is_longer_and_told() {
    let short = settings("iptables: {syncPeriod: 1ns}");
    assert_eq!(short.sync_period, Duration::from_millis(100));
    let told = notices(&short);
    assert!(
        told[0].starts_with("iptables.syncPeriod: is less than 100ms"),
        "{told:?}"
    );
    let least = settings("iptables: {syncPeriod: 100ms}");
    assert_eq!(
        (least.sync_period, least.notices),
        (short.sync_period, vec![])
    );
}

#[test]
fn where_node_ports_answer_follows_from_list_and_mode() {
    use NodePortSelection::{All, Cidrs, Primary};
    let range = || Cidrs(vec!["10.0.0.0/8".parse().unwrap()]);
    for (fields, node_ports, localhost) in [
        ("", All, true),
        ("mode: auto", All, true),
        ("mode: ebpf", All, true),
        ("mode: iptables", All, true),
        ("mode: ipvs", All, false),
        ("mode: nftables", Primary, false),
        (
            "mode: nftables\nnodePortAddresses: [10.0.0.0/8]",
            range(),
            false,
        ),
        ("nodePortAddresses: [primary]", Primary, true),
        ("nodePortAddresses: []", All, true),
        (
            "nodePortAddresses: [10.0.0.0/8]\niptables: {localhostNodePorts: false}",
            range(),
            false,
        ),
    ] {
        let read = settings(fields);
        assert_eq!(read.node_ports, node_ports, "{fields}");
        assert_eq!(read.localhost_node_ports, localhost, "{fields}");
    }
}

#[test]
fn a_selection_for_one_family_of_two_is_told() {
    let half = |pods: &str, selected: &str| {
        let read = settings(&format!(
            "clusterCIDR: \"{pods}\"\nnodePortAddresses: [{selected}]"
        ));
        notices(&read)
    };
    let both = "10.0.0.0/8,fd00::/8";
    assert_eq!(
        half(both, "192.0.2.0/24"),
        [
            "nodePortAddresses: holds no IPv6 CIDR: NodePorts answer on every IPv6 address of this \
          node"
        ]
    );
    assert_eq!(half(both, "'2001:db8::/32'").len(), 1);
    assert_eq!(half(both, "192.0.2.0/24, '2001:db8::/32'"), [""; 0]);
    assert_eq!(half(both, "primary"), [""; 0]);
    assert_eq!(half("10.0.0.0/8", "192.0.2.0/24"), [""; 0]);
    assert_eq!(half("", "192.0.2.0/24"), [""; 0]);
}

#[test]
fn interfaces_tell_local_traffic() {
    let read = settings("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: br0}\n");
    assert_eq!(
        read.traffic.detector,
        Detector::BridgeInterface("br0".into())
    );
    let read = settings(
        "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}\n",
    );
    assert_eq!(
        read.traffic.detector,
        Detector::InterfaceNamePrefix("veth".into())
    );
    assert_eq!(
        settings("detectLocalMode: NodeCIDR").traffic.detector,
        Detector::NodeCidr
    );
    let read = settings("detectLocalMode: ClusterCIDR");
    assert!(notices(&read)[0].starts_with("detectLocalMode: ClusterCIDR, but there is no"));
}

#[test]
fn another_document_is_refused_with_the_reason() {
    let refused = |text: &str| {
        let wrong = settle(Some(text), &[]).unwrap_err();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong[0].to_string()
    };
    let third = "apiVersion: kubeproxy.config.k8s.io/v1alpha3\nkind: KubeProxyConfiguration\n";
    assert_eq!(
        refused(third),
        "has apiVersion kubeproxy.config.k8s.io/v1alpha3 and kind KubeProxyConfiguration, but must have \
         apiVersion kubeproxy.config.k8s.io/v1alpha1 or kubeproxy.config.k8s.io/v1alpha2 and kind \
         KubeProxyConfiguration"
    );
    assert!(refused("hostnameOverride: a").starts_with("has no apiVersion and no kind, but must"));
    assert!(refused("apiVersion: v1\nkind: Pod").starts_with("has apiVersion v1 and kind Pod"));
    assert!(refused("").starts_with("is empty: it must hold a KubeProxy"));
    assert!(refused("- a").contains("a list"));
    assert!(refused("a: [").starts_with("is not valid YAML: "));
}

#[test]
fn every_default_of_the_table_has_the_right_type_and_place() {
    for field in fields::FIELDS.iter() {
        value::Setting::of_text(field.kind, field.default)
            .unwrap_or_else(|wrong| panic!("{}: {wrong}", field.path));
    }
}
