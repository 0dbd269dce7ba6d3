//! From one version to the other and back: what a file means in the selected mode stays.

use proptest::{prelude::*, sample::subsequence};

use super::*;

fn text(file: &Value) -> String {
    serde_saphyr::to_string(file).unwrap()
}

/// A file in the other version, with what that cannot say.
fn to(version: Version, file: &str) -> (String, Vec<String>) {
    let converted = convert(Some(file), &[], version, Extent::Said)
        .unwrap_or_else(|wrong| panic!("{file}: {wrong:?}"));
    (converted.file, texts(&converted.lost))
}

/// Everything that it decides.
fn effect(file: &str) -> Settings {
    let mut settings = settle(Some(file), &[]).unwrap_or_else(|wrong| panic!("{file}: {wrong:?}"));
    settings.notices = Vec::new();
    settings.version = Version::V1Alpha1;
    // Sections that the mode does not read decide nothing.
    let all = settings.effective.as_object_mut().unwrap();
    let section = match all["culvert"]["mode"]
        .as_str()
        .filter(|_| all["mode"] == "")
        .or(all["mode"].as_str())
    {
        Some("ipvs") => "ipvs",
        Some("nftables") => "nftables",
        _ => "iptables",
    };
    for name in ["iptables", "ipvs", "nftables"] {
        if name != section {
            all.remove(name);
        }
    }
    // Ignored by kube-proxy, too, and gone in v1alpha2.
    all.remove("portRange");
    // The family of defaults that are written out.
    all.remove("bindAddress");
    settings
}

/// The file that kubeadm writes.
pub(super) fn kubeadm() -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/kubeadm/configmap.yaml"
    );
    let configmap: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    configmap["data"]["config.conf"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn what_the_files_of_kubeadm_say_comes_back() {
    let first = &kubeadm();
    let (second, lost) = to(Version::V1Alpha2, first);
    assert_eq!(lost, [] as [String; 0]);
    let (again, lost) = to(Version::V1Alpha1, &second);
    assert_eq!(lost, [] as [String; 0]);
    assert_eq!(effect(&second), effect(first));
    let (mut there, mut back) = (
        settle(Some(first), &[]).unwrap(),
        settle(Some(&again), &[]).unwrap(),
    );
    (there.notices, back.notices) = (Vec::new(), Vec::new());
    assert_eq!(back, there);
}

#[test]
fn defaults_that_are_others_in_the_other_version_are_written_out() {
    let (second, _) = to(Version::V1Alpha2, HEAD);
    assert_eq!(
        second,
        "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n\
         bindAddressHardFail: false\niptables:\n  localhostNodePorts: true\n"
    );
    let (first, _) = to(Version::V1Alpha1, &second);
    let explicit = "bindAddressHardFail: false\niptables:\n  localhostNodePorts: true\n";
    assert_eq!(first, format!("{HEAD}{explicit}"));
    let bare = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n";
    let (first, lost) = to(Version::V1Alpha1, bare);
    assert_eq!(
        first,
        format!("{HEAD}bindAddressHardFail: true\niptables:\n  localhostNodePorts: false\n")
    );
    assert_eq!(lost, [] as [String; 0]);
}

#[test]
fn what_the_other_version_cannot_say_is_told() {
    let file = format!(
        "{HEAD}mode: nftables\nportRange: 1-2\niptables: {{syncPeriod: 9s}}\nnftables: {{syncPeriod: 8s}}\n"
    );
    let (second, lost) = to(Version::V1Alpha2, &file);
    assert!(second.contains("\nsyncPeriod: 8s\n"), "{second}");
    assert_eq!(
        lost,
        [
            "iptables.syncPeriod: \"9s\" is left out: v1alpha2 has one syncPeriod for all modes, and the selected \
             one reads nftables.syncPeriod",
            "portRange: \"1-2\" is left out: v1alpha2 has no such field",
        ]
    );
    let file = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n\
                ipFamilyPolicy: SingleStack\nnodeIPOverride: [10.0.0.1, 'fd00::1']\nipvs: {masqueradeBit: 3}\n\
                configHardFail: true\n";
    let (_, lost) = to(Version::V1Alpha1, file);
    let fields: Vec<_> = lost
        .iter()
        .filter_map(|text| text.split(':').next())
        .collect();
    assert_eq!(
        fields,
        [
            "nodeIPOverride",
            "ipFamilyPolicy",
            "configHardFail",
            "ipvs.masqueradeBit"
        ],
        "{lost:?}"
    );
}

#[test]
fn addresses_keep_their_meaning() {
    for address in ["10.0.0.1", "fd00::1", "::"] {
        let file = format!("{HEAD}bindAddress: '{address}'\n");
        let (second, lost) = to(Version::V1Alpha2, &file);
        assert_eq!(lost, [] as [String; 0], "{address}");
        assert_eq!(
            second.contains("nodeIPOverride"),
            address != "::",
            "{second}"
        );
        assert_eq!(effect(&second), effect(&file), "{address}");
        let (again, _) = to(Version::V1Alpha1, &second);
        assert_eq!(effect(&again), effect(&file), "{address}");
        assert_eq!(again.contains("bindAddress: "), address != "::", "{again}");
    }
}

/// Values that the field may have, as a file has them.
fn values(spelling: &version::Spelling) -> Vec<Value> {
    use fields::{FieldKind, MayBeZero};
    let some = |texts: &[&str]| texts.iter().map(|text| Value::from(*text)).collect();
    match (spelling.path, spelling.kind) {
        ("mode" | "culvert.mode", _) => some(&["", "auto", "iptables", "ipvs", "nftables"]),
        ("detectLocalMode", _) => some(&["", "ClusterCIDR", "NodeCIDR"]),
        ("clusterCIDR", _) => some(&["", "10.0.0.0/8", "10.0.0.0/8,fd00::/8"]),
        ("bindAddress", _) => some(&["0.0.0.0", "::", "10.0.0.1", "fd00::1"]),
        ("healthzBindAddress" | "metricsBindAddress", _) => {
            some(&["", "0.0.0.0:1", "[::]:2", "127.0.0.1"])
        }
        ("showHiddenMetricsForVersion", _) => some(&["", "1.35"]),
        ("culvert.sourcePorts", _) => some(&["", "2000-3000"]),
        ("detectLocal.clusterCIDRs" | "nodePortAddresses" | "ipvs.excludeCIDRs", _) => {
            vec![
                Value::Array(vec![]),
                vec!["10.0.0.0/8"].into(),
                vec!["fd00::/8", "10.0.0.0/8"].into(),
            ]
        }
        ("nodeIPOverride", _) => vec![Value::Array(vec![]), vec!["10.0.0.1"].into()],
        // There, a mode that names a backend refuses them.
        ("culvert.backendOrder", _) => vec![Value::Array(vec![])],
        (_, FieldKind::Switch) => vec![true.into(), false.into()],
        (_, FieldKind::Text) => some(&["", "x"]),
        (_, FieldKind::Choice(words)) => words.split('|').map(Value::from).collect(),
        (_, FieldKind::Whole(least, most)) => vec![least.into(), most.into(), 3.into()],
        (_, FieldKind::Number) => vec![5.into(), Value::from(1.5)],
        (_, FieldKind::Period(MayBeZero::Yes)) => some(&["0s", "1s", "90s", "250ms"]),
        (_, FieldKind::Period(MayBeZero::No)) => some(&["0s", "100s", "2h"]),
        (_, FieldKind::Texts) => vec![Value::Array(vec![]), vec!["a", "b"].into()],
        (_, FieldKind::Switches) => vec![serde_json::json!({}), serde_json::json!({"A": true})],
        (_, FieldKind::Numbers) => {
            vec![
                serde_json::json!({}),
                serde_json::json!({"SLOTS": 7, "TRACK": 9}),
            ]
        }
        (_, FieldKind::Any) => vec!["x".into()],
    }
}

/// Any file of the version that is right.
pub(super) fn files(version: Version) -> impl Strategy<Value = String> {
    let all: Vec<_> = version.spellings().iter().collect();
    let some = subsequence(all, 0..=12);
    some.prop_flat_map(move |fields| {
        let chosen: Vec<_> = fields
            .iter()
            .map(|spelling| {
                let path = spelling.path;
                proptest::sample::select(values(spelling)).prop_map(move |value| (path, value))
            })
            .collect();
        chosen.prop_map(move |fields| {
            let mut file = complete::nested(fields.into_iter());
            file["apiVersion"] = version.api_version().into();
            file["kind"] = "KubeProxyConfiguration".into();
            text(&file)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_v1alpha1_says_comes_back(file in files(Version::V1Alpha1)) {
        prop_assume!(settle(Some(&file), &[]).is_ok());
        let (second, _) = to(Version::V1Alpha2, &file);
        prop_assert_eq!(effect(&second), effect(&file), "{}\n{}", file, second);
        let (again, _) = to(Version::V1Alpha1, &second);
        prop_assert_eq!(effect(&again), effect(&file), "{}\n{}\n{}", file, second, again);
    }

    #[test]
    fn what_v1alpha2_says_comes_back(file in files(Version::V1Alpha2)) {
        prop_assume!(settle(Some(&file), &[]).is_ok());
        let (first, lost) = to(Version::V1Alpha1, &file);
        // Of all that counts, only this cannot be said there.
        let is_kept = !lost.iter().any(|text| text.starts_with("minSyncPeriod: \"0s\""));
        let effect = |file: &str| {
            let mut all = effect(file);
            if !is_kept {
                let sections = ["iptables", "nftables"].iter();
                for path in sections.map(|name| format!("/{name}/minSyncPeriod")) {
                    all.effective.pointer_mut(&path).map(Value::take);
                }
            }
            all
        };
        prop_assert_eq!(effect(&first), effect(&file), "{}\n{}", file, first);
        let (again, _) = to(Version::V1Alpha2, &first);
        prop_assert_eq!(effect(&again), effect(&file), "{}\n{}\n{}", file, first, again);
    }
}
