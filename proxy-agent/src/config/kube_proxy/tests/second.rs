//! v1alpha2: what it spells otherwise, its own defaults, and how strict it is.

use super::*;

const SECOND: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n";

fn second(fields: &str) -> Settings {
    settle(Some(&format!("{SECOND}{fields}")), &[]).unwrap()
}

fn wrong(fields: &str) -> Vec<String> {
    texts(&settle(Some(&format!("{SECOND}{fields}")), &[]).unwrap_err())
}

#[test]
fn its_defaults_are_those_of_v1alpha1_but_for_two() {
    let (first, second) = (settings(""), second(""));
    assert!(second.hard_fail);
    assert!(!second.localhost_node_ports);
    let mut same = second.clone();
    (same.hard_fail, same.localhost_node_ports) = (false, true);
    (same.version, same.effective) = (first.version, first.effective.clone());
    assert_eq!(same, first);
}

#[test]
fn what_was_moved_means_the_same() {
    let first = "detectLocalMode: ClusterCIDR\nclusterCIDR: 10.0.0.0/8,fd00::/8\nmode: nftables\n\
                 nftables: {masqueradeAll: true, syncPeriod: 9s, minSyncPeriod: 2s}\noomScoreAdj: 5\n\
                 conntrack: {tcpEstablishedTimeout: 2h}\nbindAddressHardFail: true\n\
                 iptables: {localhostNodePorts: false}\n";
    let moved = "detectLocalMode: ClusterCIDR\ndetectLocal: {clusterCIDRs: [10.0.0.0/8, 'fd00::/8']}\n\
                 mode: nftables\nsyncPeriod: 9s\nminSyncPeriod: 2s\n\
                 linux:\n  masqueradeAll: true\n  oomScoreAdj: 5\n  conntrack: {tcpEstablishedTimeout: 2h}\n";
    let (mut first, moved) = (settings(first), second(moved));
    assert!(first.traffic.masquerade_all);
    (first.version, first.effective) = (moved.version, moved.effective.clone());
    // The one names conntrack's field otherwise than the other.
    (first.notices, first.effective) = (moved.notices.clone(), moved.effective.clone());
    assert_eq!(first, moved);
}

#[test]
fn a_boolean_can_be_the_opposite_of_its_default() {
    let read = second("bindAddressHardFail: false\niptables: {localhostNodePorts: true}\n");
    assert!(!read.hard_fail);
    assert!(read.localhost_node_ports);
}

#[test]
fn each_mode_has_its_own_bit() {
    let bits =
        "iptables: {masqueradeBit: 1}\nipvs: {masqueradeBit: 2}\nnftables: {masqueradeBit: 3}\n";
    for (mode, mark) in [("iptables", 1 << 1), ("ipvs", 1 << 2), ("nftables", 1 << 3)] {
        assert_eq!(
            second(&format!("mode: {mode}\n{bits}")).masquerade_mark,
            mark
        );
    }
    // v1alpha1 has none of IPVS.
    let read = settings("mode: ipvs\niptables: {masqueradeBit: 1}\n");
    assert_eq!(read.masquerade_mark, 1 << 1);
}

#[test]
fn what_is_unknown_or_repeated_is_a_mistake_unless_the_file_says_otherwise() {
    let unknown = "clusterCIDR: 10.0.0.0/8\nmdoe: ipvs\nmode: iptables\nmode: ipvs\n";
    let told = wrong(unknown);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].starts_with("mode: stands more than once;"),
        "{told:?}"
    );
    assert!(
        told[1].starts_with(
            "clusterCIDR: is a field of v1alpha1; v1alpha2 has detectLocal.clusterCIDRs;"
        ),
        "{told:?}"
    );
    assert!(
        told[2].starts_with("mdoe: unknown field, is mode meant?;"),
        "{told:?}"
    );
    let read = second(&format!("{unknown}configHardFail: false\n"));
    assert_eq!(read.effective["mode"], "ipvs");
    assert!(notices(&read).len() >= 3, "{:?}", notices(&read));
}

#[test]
fn mistakes_name_fields_as_the_file_does() {
    let told = wrong(
        "syncPeriod: -1s\nlinux: {oomScoreAdj: 5000}\ndetectLocal: {clusterCIDRs: ['x']}\n\
         nodeIPOverride: [a]\nipFamilyPolicy: Both\n",
    );
    let fields: Vec<_> = told
        .iter()
        .filter_map(|text| text.split(':').next())
        .collect();
    assert_eq!(
        fields,
        [
            "ipFamilyPolicy",
            "syncPeriod",
            "linux.oomScoreAdj",
            "nodeIPOverride",
            "detectLocal.clusterCIDRs"
        ],
        "{told:?}"
    );
    assert_eq!(
        wrong("minSyncPeriod: 31s\n"),
        ["syncPeriod: must be at least minSyncPeriod (31s), but is 30s"]
    );
    assert_eq!(
        wrong("detectLocal: {clusterCIDRs: ['10.0.0.0/8,fd00::/8']}\n"),
        ["detectLocal.clusterCIDRs: must be a list of strings without commas"]
    );
}

#[test]
fn what_decides_nothing_here_is_told() {
    let told = notices(&second("ipFamilyPolicy: SingleStack\n"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("is not honoured"), "{told:?}");
}

#[test]
fn addresses_of_the_node_are_given_by_a_field_of_either_version() {
    let of = |settings: Settings| settings.node_ips.iter().map(ToString::to_string).collect();
    let both: Vec<String> = of(second("nodeIPOverride: [10.0.0.1, 'fd00::1']\n"));
    assert_eq!(both, ["10.0.0.1", "fd00::1"]);
    assert_eq!(of(settings("bindAddress: 10.0.0.1\n")), ["10.0.0.1"]);
    for unspecified in ["", "bindAddress: '::'\n"] {
        assert_eq!(of(settings(unspecified)), [""; 0]);
    }
}

#[test]
fn what_is_odd_is_told_by_the_names_that_it_has() {
    let told = notices(&second(
        "detectLocalMode: ClusterCIDR\nculvert: {mode: ipvs}\n",
    ));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("culvert.mode: \"ipvs\": this version has no such backend"),
        "{told:?}"
    );
    assert!(
        told[1]
            .starts_with("detectLocalMode: ClusterCIDR, but there is no detectLocal.clusterCIDRs"),
        "{told:?}"
    );
}

#[test]
fn one_flag_sets_the_field_of_all_modes() {
    let flag = flag(
        "--sync-period",
        &[
            "iptables.syncPeriod",
            "ipvs.syncPeriod",
            "nftables.syncPeriod",
        ],
        "8s",
    );
    let read = settle(Some(&format!("{SECOND}syncPeriod: 9s\n")), &[flag]).unwrap();
    assert_eq!(read.sync_period, Duration::from_secs(8));
    assert_eq!(
        notices(&read),
        [
            "syncPeriod: \"9s\" in the file, but --sync-period \"8s\" was given: the flag overrides the file"
        ]
    );
}
