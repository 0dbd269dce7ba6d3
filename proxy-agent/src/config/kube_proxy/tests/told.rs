//! How mistakes and oddities are told, and which of them are no mistakes.

use super::*;

#[test]
fn what_is_wrong_is_told_with_its_line_and_column() {
    let text = format!("{HEAD}mode: iptables\noomScoreAdj: 5000\niptables:\n  syncPeriod: -1s\n");
    let wrong = settle(Some(&text), &[]).unwrap_err();
    let told: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "iptables.syncPeriod: must be longer than 0s, but is -1s (line 6, column 3)",
            "oomScoreAdj: must be -1000 to 1000, but is 5000 (line 4, column 1)",
        ]
    );
    // A flag stands nowhere in the file.
    let wrong = settle(
        Some(HEAD),
        &[flag("--oom-score-adj", &["oomScoreAdj"], "1001")],
    );
    let wrong = wrong.unwrap_err();
    assert_eq!(
        wrong[0].to_string(),
        "--oom-score-adj: must be -1000 to 1000, but is 1001"
    );
}

#[test]
fn what_is_probably_meant_is_named() {
    for (field, told) in [
        (
            "Mode: nftables",
            "Mode: unknown field, is mode meant?: ignored, as kube-proxy does",
        ),
        (
            "syncPeriod: 30s",
            "syncPeriod: is a field of v1alpha2; v1alpha1 has iptables.syncPeriod: ignored, as kube-proxy does",
        ),
        (
            "configHardFail: true",
            "configHardFail: is of v1alpha2, and v1alpha1 has no such field: ignored, as kube-proxy does",
        ),
        (
            "nonsense: 1",
            "nonsense: unknown field: ignored, as kube-proxy does",
        ),
    ] {
        assert_eq!(notices(&settings(field)), [told], "{field}");
    }
}

#[test]
fn of_several_documents_the_first_counts_and_the_others_are_told() {
    let text = format!("{HEAD}mode: nftables\n---\n{HEAD}mode: ipvs\n");
    let read = settle(Some(&text), &[]).unwrap();
    assert_eq!(read.effective["mode"], "nftables");
    assert_eq!(
        notices(&read),
        ["holds more than one document: only the first one counts, as for kube-proxy"]
    );
}

#[test]
fn what_no_mode_reads_is_told_and_not_refused() {
    let read = settings("mode: nftables\niptables: {syncPeriod: -1s}\nipvs: {tcpTimeout: -1s}\n");
    let told = notices(&read);
    let said = |field: &str| {
        told.iter()
            .any(|text| text.starts_with(field) && text.contains("does not read it"))
    };
    assert!(
        said("iptables.syncPeriod: must be longer than 0s"),
        "{told:?}"
    );
    assert!(said("ipvs.tcpTimeout: must not be negative"), "{told:?}");
    // This one kube-proxy looks at in every mode.
    let wrong = mistakes("mode: nftables\niptables: {masqueradeBit: 32}\n");
    assert_eq!(
        wrong,
        ["iptables.masqueradeBit: must be 0 to 31, but is 32"]
    );
}

#[test]
fn our_own_mode_counts_in_a_file_that_kube_proxy_reads_too() {
    let both = settings("mode: nftables\nculvert: {mode: auto}\nnftables: {syncPeriod: 7s}\n");
    assert_eq!(both.mode, Mode::Auto);
    assert_eq!(both.sync_period, Duration::from_secs(7));
    let own = settings("culvert: {mode: nftables}\nnftables: {syncPeriod: 7s}\n");
    assert_eq!(own.mode.as_str(), "nftables");
    assert_eq!(own.sync_period, Duration::from_secs(7));
    let wrong = mistakes("mode: fast\nculvert: {mode: faster}\n");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    let file = format!("{HEAD}culvert: {{mode: nftables}}\n");
    let flag = flag("--proxy-mode", &["mode"], "auto");
    assert_eq!(settle(Some(&file), &[flag]).unwrap().mode, Mode::Auto);
}

/// A file is written by whoever may write the ConfigMap, and read by every node.
#[test]
fn of_very_much_only_some_is_told() {
    let fields: Vec<_> = (0..20_000).map(|at| format!("some{at}: 1\n")).collect();
    let read = settings(&fields.concat());
    assert_eq!(read.notices.len(), MOST_TOLD + 1);
    let last = notices(&read).pop().unwrap();
    assert_eq!(last, "19900 more like these");

    let many: Vec<_> = (0..20_000).map(|at| format!("x{at}")).collect();
    let many = many.join(", ");
    let wrong = settle(Some(&format!("{HEAD}nodePortAddresses: [{many}]\n")), &[]).unwrap_err();
    assert_eq!(wrong.len(), MOST_TOLD + 1);

    let long = "x".repeat(100_000);
    let wrong = settle(Some(&format!("{HEAD}mode: {long}\n")), &[]).unwrap_err();
    let told = wrong[0].to_string();
    assert!(
        told.starts_with("mode: must be ") && told.len() < 2 * LONGEST_TOLD,
        "{told}"
    );
}

#[test]
fn a_name_with_a_dot_is_unknown_and_sets_nothing() {
    let read = settings("\"iptables.syncPeriod\": 5s\nconntrack: {\"\": 1, 'min.': 2}\n");
    assert_eq!(read.sync_period, settings("").sync_period);
    let told = notices(&read);
    let starts = [
        "conntrack.\"\": unknown field",
        "conntrack.\"min.\": unknown field",
        "\"iptables.syncPeriod\": unknown field, is iptables.syncPeriod meant?",
    ];
    assert_eq!(told.len(), starts.len(), "{told:?}");
    for (told, starts) in told.iter().zip(starts) {
        assert!(told.starts_with(starts), "{told}");
    }
}

#[test]
fn of_names_with_values_the_wrong_one_is_named() {
    let wrong = |fields: &str| {
        let wrong = settle(Some(&format!("{HEAD}{fields}")), &[]).unwrap_err();
        wrong[0].to_string()
    };
    let told = wrong("culvert: {mapSizes: {SLOTS: 5, TRACK: 1.5}}\n");
    let starts = "culvert.mapSizes: TRACK must be a whole number, but is 1.5 (";
    assert!(told.starts_with(starts), "{told}");
    let told = wrong("featureGates: {A: true, B: 7}\n");
    assert!(
        told.starts_with("featureGates: B must be a boolean, but is 7 ("),
        "{told}"
    );
}
