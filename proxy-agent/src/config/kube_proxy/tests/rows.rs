//! A row for each field: another value than its default, what that needs beside it, and a value that is wrong. From it
//! follow, for each version and flag: the default, the effect or that there is none, the message, and which counts.

use std::fmt::Write as _;

use super::*;
use crate::config::cli;
use fields::{FIELDS, FieldKind, Honoured};

/// A field of the table, another value, and a wrong one.
type Row = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("featureGates", "{AllAlpha: true}", "{AllAlpha: 1}"),
    ("clientConnection.kubeconfig", "/x", "1"),
    ("clientConnection.acceptContentTypes", "a/b", "1"),
    ("clientConnection.contentType", "application/json", "[]"),
    ("clientConnection.qps", "7", "x"),
    ("clientConnection.burst", "7", "-1"),
    ("logging.format", "json", "xml"),
    ("logging.flushFrequency", "9s", ""),
    ("logging.verbosity", "5", "-1"),
    ("logging.vmodule", "a=1", ""),
    ("logging.options", "{}", ""),
    ("hostnameOverride", "other", "1"),
    ("bindAddress", "'::1'", "localhost"),
    ("nodeIPOverride", "[10.0.0.1]", "[x]"),
    ("ipFamilyPolicy", "SingleStack", "Both"),
    ("healthzBindAddress", "127.0.0.1:7", "nowhere"),
    ("metricsBindAddress", "127.0.0.1:8", "'127.0.0.1:0'"),
    ("bindAddressHardFail", "OTHER", "1"),
    ("configHardFail", "false", "1"),
    ("enableProfiling", "true", "1"),
    ("showHiddenMetricsForVersion", "'1.35'", "x"),
    ("mode", "nftables", "fast"),
    ("portRange", "1-2", "1"),
    ("windowsRunAsService", "true", "x"),
    ("iptables.masqueradeBit", "15", "32"),
    ("iptables.masqueradeAll", "true", "x"),
    ("iptables.localhostNodePorts", "OTHER", "x"),
    ("iptables.syncPeriod", "9s", "-1s"),
    ("iptables.minSyncPeriod", "2s", "-1s"),
    ("ipvs.syncPeriod", "9s", "-1s"),
    ("ipvs.minSyncPeriod", "2s", "-1s"),
    ("ipvs.scheduler", "lc", "1"),
    ("ipvs.excludeCIDRs", "[10.0.0.0/8]", "[x]"),
    ("ipvs.strictARP", "true", "x"),
    ("ipvs.tcpTimeout", "9s", "-1s"),
    ("ipvs.tcpFinTimeout", "9s", "-1s"),
    ("ipvs.udpTimeout", "9s", "-1s"),
    ("ipvs.masqueradeBit", "15", "32"),
    ("nftables.masqueradeBit", "15", "-1"),
    ("nftables.masqueradeAll", "true", "x"),
    ("nftables.syncPeriod", "9s", "1"),
    ("nftables.minSyncPeriod", "2s", "soon"),
    ("winkernel.networkName", "x", "1"),
    ("winkernel.sourceVip", "1.2.3.4", "1"),
    ("winkernel.enableDSR", "true", "x"),
    ("winkernel.rootHnsEndpointName", "x", "1"),
    ("winkernel.forwardHealthCheckVip", "true", "x"),
    ("detectLocalMode", "NodeCIDR", "Nonsense"),
    ("detectLocal.bridgeInterface", "br0", "1"),
    ("detectLocal.interfaceNamePrefix", "veth", "1"),
    ("clusterCIDR", "10.0.0.0/8", "x"),
    ("nodePortAddresses", "[10.0.0.0/8]", "[primary, 10.0.0.0/8]"),
    ("oomScoreAdj", "5", "1001"),
    ("conntrack.maxPerCore", "1", "-1"),
    ("conntrack.min", "1", "-1"),
    ("conntrack.tcpEstablishedTimeout", "2h", "-1s"),
    ("conntrack.tcpCloseWaitTimeout", "2h", "-1s"),
    ("conntrack.tcpBeLiberal", "true", "x"),
    ("conntrack.udpTimeout", "9s", "-1s"),
    ("conntrack.udpStreamTimeout", "9s", "-1s"),
    ("configSyncPeriod", "9m", "-1s"),
    ("culvert.mode", "nftables", "fast"),
    ("culvert.backendOrder", "[nftables]", "[nosuch]"),
    ("culvert.iptables.verifyPartial", "always", "often"),
    ("culvert.mapSizes", "{SLOTS: 7}", "{SLOTS: 0}"),
    ("culvert.tc", "off", "maybe"),
    ("culvert.devices", "[eth0]", "[a/b]"),
    ("culvert.keepClientAddress", "true", "x"),
    ("culvert.sourcePorts", "2000-3000", "80-90"),
];

/// The row of the field at `path`, for this version.
fn row(path: &str, version: Version) -> (String, &'static str) {
    let found = ROWS.iter().find(|(named, ..)| *named == path);
    let (_, value, wrong) = found.unwrap_or_else(|| panic!("{path} has no row"));
    let spelling = version.spelling_of(path).unwrap();
    let value = match (*value, spelling.kind) {
        ("OTHER", _) => (spelling.default == "false").to_string(),
        (value, FieldKind::Texts) if !value.starts_with('[') => format!("[{value}]"),
        (value, _) => value.to_owned(),
    };
    (value, wrong)
}

/// What makes the mode read the field, and what it needs beside it.
fn beside(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "detectLocal.bridgeInterface" => &[("detectLocalMode", "BridgeInterface")],
        "detectLocal.interfaceNamePrefix" => &[("detectLocalMode", "InterfaceNamePrefix")],
        _ if path.starts_with("ipvs.") => &[("mode", "ipvs")],
        _ if path.starts_with("nftables.") => &[("mode", "nftables")],
        _ => &[],
    }
}

/// A file of the version in which these fields of the table, in the first one's spelling, have these values.
fn file(version: Version, fields: &[(&str, &str)]) -> String {
    let mut text = format!(
        "apiVersion: {}\nkind: KubeProxyConfiguration\n",
        version.api_version()
    );
    for (path, value) in fields {
        let spelled = version.spelled(path);
        let mut indent = String::new();
        let names: Vec<_> = spelled.split('.').collect();
        for (at, name) in names.iter().enumerate() {
            let value = if at + 1 == names.len() { value } else { "" };
            writeln!(text, "{indent}{name}: {value}").unwrap();
            indent += "  ";
        }
    }
    text
}

/// Everything that is decided, without what is only shown.
fn decided(text: &str) -> Result<Settings, Vec<Mistake>> {
    let mut settings = settle(Some(text), &[])?;
    settings.effective = settings.effective["enableProfiling"].take();
    settings.notices = Vec::new();
    Ok(settings)
}

/// Fields of the table that the version has.
fn rows(version: Version) -> impl Iterator<Item = &'static fields::Field> {
    FIELDS
        .iter()
        .filter(move |field| version.spelling_of(field.path).is_some())
}

#[test]
fn every_row_is_of_a_field() {
    for (path, ..) in ROWS {
        assert!(fields::at(path).is_some(), "{path}");
    }
}

#[test]
fn a_field_that_is_honoured_decides_something_and_another_is_told() {
    for version in Version::ALL {
        for field in rows(version) {
            let path = field.path;
            let (value, _) = row(path, version);
            let with = |value: Option<&str>| {
                let mut all: Vec<(&str, &str)> = beside(path).to_vec();
                if let Some(value) = value {
                    all.push((path, value));
                }
                file(version, &all)
            };
            let told = settle(Some(&with(Some(&value))), &[])
                .unwrap_or_else(|wrong| panic!("{path}: {wrong:?}"));
            // Where it needs company, it is compared with another value of its own.
            let without = match path {
                "detectLocal.bridgeInterface" | "detectLocal.interfaceNamePrefix" => {
                    with(Some("z"))
                }
                _ => with(None),
            };
            let (before, after) = (
                decided(&without).unwrap(),
                decided(&with(Some(&value))).unwrap(),
            );
            let spelled = version.spelled(path);
            let is_told = told.notices.iter().any(|notice| notice.field == spelled);
            match field.honoured {
                // Free-form, and not looked into.
                Honoured::No(_) if field.kind == FieldKind::Any => {
                    assert_eq!(before, after, "{path}");
                }
                Honoured::No(_) => {
                    assert_eq!(before, after, "{version}: {path}");
                    assert!(is_told, "{version}: {path}: {:?}", told.notices);
                }
                // What becomes of what is unknown: `second` has it.
                _ if path == "configHardFail" => {}
                Honoured::Yes(_) | Honoured::Flag(_) => {
                    assert_ne!(before, after, "{version}: {path}");
                }
            }
        }
    }
}

#[test]
fn a_wrong_value_is_told_with_the_name_that_the_version_has() {
    for version in Version::ALL {
        for field in rows(version) {
            let (_, wrong) = row(field.path, version);
            if wrong.is_empty() {
                continue;
            }
            let mut all = beside(field.path).to_vec();
            let spelling = version.spelling_of(field.path).unwrap();
            let wrong = match spelling.kind {
                FieldKind::Texts if !wrong.starts_with('[') => format!("[{wrong}]"),
                _ => wrong.to_owned(),
            };
            all.push((field.path, &wrong));
            let text = file(version, &all);
            let told = settle(Some(&text), &[]).unwrap_err();
            assert!(
                told.iter()
                    .any(|mistake| mistake.field == spelling.path && mistake.at.is_some()),
                "{version}: {}: {told:?}",
                field.path
            );
        }
    }
}

#[test]
fn a_flag_counts_before_the_field_of_every_version_and_says_so() {
    for (flag, paths) in cli::flags_of_fields() {
        for version in Version::ALL {
            for path in paths
                .iter()
                .filter(|path| version.spelling_of(path).is_some())
            {
                let spelling = version.spelling_of(path).unwrap();
                let (value, _) = row(path, version);
                let text = file(version, &[(path, &value)]);
                if spelling.kind == FieldKind::Any {
                    continue;
                }
                let typed = match spelling.field().kind {
                    FieldKind::Switches => "Other=true".to_owned(),
                    _ => spelling.default.to_owned(),
                };
                let given = Given {
                    flag,
                    paths,
                    text: typed,
                };
                let both = settle(Some(&text), &[given])
                    .unwrap_or_else(|wrong| panic!("{flag}: {wrong:?}"));
                let told: Vec<_> = both
                    .notices
                    .iter()
                    .filter(|notice| notice.field == spelling.path)
                    .collect();
                assert!(
                    told.iter()
                        .any(|notice| notice.text.contains("the flag overrides the file")),
                    "{version}: --{flag}: {path}: {:?}",
                    both.notices
                );
            }
        }
    }
}
