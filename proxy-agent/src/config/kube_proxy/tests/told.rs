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
