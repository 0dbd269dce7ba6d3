//! The section `culvert`, of which each field has a flag: those of this agent, and those of backends.

use super::*;
use crate::backends;

#[test]
fn our_own_section_has_flags_that_win() {
    let names =
        |settings: &Settings| -> Vec<_> { settings.order.iter().map(|kind| kind.name()).collect() };
    let all: Vec<_> = backends::ALL.iter().map(|kind| kind.name()).collect();
    let file = "culvert: {backendOrder: [ebpf]}\n";
    assert_eq!(names(&settings("")), all);
    assert_eq!(names(&settings("culvert: {backendOrder: []}\n")), all);
    let read = settings(file);
    assert_eq!((names(&read), notices(&read)), (vec!["ebpf"], vec![]));
    assert_eq!(read.effective["culvert"]["backendOrder"][0], "ebpf");
    let order = flag("--backend-order", &[fields::BACKEND_ORDER], "nftables,ebpf");
    let given = settle(Some(&format!("{HEAD}{file}")), &[order]).unwrap();
    assert_eq!(names(&given), ["nftables", "ebpf"]);
    let told = notices(&given);
    assert!(told[0].contains("the flag overrides the file"), "{told:?}");
    let wrong = "mode: nftables\nculvert: {backendOrder: [ebpf, windows], speed: high}\n";
    let told = mistakes(wrong);
    assert!(
        told[0].starts_with("culvert.backendOrder: there is no backend \"windows\""),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("culvert.backendOrder: mode nftables uses"),
        "{told:?}"
    );
    assert_eq!(told.len(), 2, "{told:?}");
    let unknown = notices(&settings("culvert: {speed: high}\n"));
    assert!(
        unknown[0].starts_with("culvert.speed: unknown field"),
        "{unknown:?}"
    );
}

#[test]
fn fields_of_backends_give_their_flags_and_flags_win() {
    let given = |settings: &Settings, flag| -> Vec<String> {
        let texts = settings.backends.texts(flag);
        texts.map(str::to_owned).collect()
    };
    let none = settings("");
    assert!(!none.backends.is_given("tc") && !none.backends.is_given("devices"));
    assert_eq!(none.effective["culvert"]["tc"], "auto");
    assert_eq!(none.effective["culvert"]["devices"], serde_json::json!([]));
    let file = "culvert: {tc: 'on', devices: [eth0, 'ens*']}\n";
    let read = settings(file);
    assert_eq!(notices(&read), [] as [String; 0]);
    assert_eq!(given(&read, "tc"), ["on"]);
    assert_eq!(given(&read, "devices"), ["eth0", "ens*"]);
    // What Helm makes of `tc: on`.
    let written = settings("culvert: {tc: true}\n");
    assert_eq!(given(&written, "tc"), ["on"]);
    assert_eq!(written.effective["culvert"]["tc"], "on");

    let flags = [
        flag("--tc", &["culvert.tc"], "off"),
        flag("--devices", &["culvert.devices"], ""),
    ];
    let both = settle(Some(&format!("{HEAD}{file}")), &flags).unwrap();
    assert_eq!(given(&both, "tc"), ["off"]);
    assert_eq!(given(&both, "devices"), [] as [String; 0]);
    assert_eq!(both.effective["culvert"]["tc"], "off");
    let told = notices(&both);
    assert_eq!(
        told,
        [
            "culvert.tc: \"on\" in the file, but --tc \"off\" was given: the flag overrides the file",
            "culvert.devices: [\"eth0\",\"ens*\"] in the file, but --devices [] was given: the flag \
             overrides the file",
        ]
    );
}

#[test]
fn a_text_for_a_backend_has_a_default_and_the_flag_wins() {
    let given = |settings: &Settings| -> Vec<String> {
        let texts = settings.backends.texts("source-ports");
        texts.map(str::to_owned).collect()
    };
    let none = settings("");
    assert_eq!(given(&none), [] as [String; 0]);
    assert_eq!(none.effective["culvert"]["sourcePorts"], "32768-65535");
    let file = "culvert: {sourcePorts: 2000-3000}\n";
    let read = settings(file);
    assert_eq!(given(&read), ["2000-3000"]);
    assert_eq!(read.effective["culvert"]["sourcePorts"], "2000-3000");
    let typed = flag("--source-ports", &["culvert.sourcePorts"], "4000-5000");
    let both = settle(Some(&format!("{HEAD}{file}")), &[typed]).unwrap();
    assert_eq!(given(&both), ["4000-5000"]);
    let told = notices(&both);
    assert!(told[0].contains("the flag overrides the file"), "{told:?}");
    let told = mistakes("culvert: {sourcePorts: 80-90}\n");
    assert!(
        told[0].starts_with("culvert.sourcePorts: 80-90: must be the first and the last of some"),
        "{told:?}"
    );
}

#[test]
fn mistakes_in_fields_of_backends_are_told_with_the_others() {
    let wrong = "mode: fast\nculvert: {tc: maybe, devices: ['a b', eth0, 'x/y']}\n";
    let told = mistakes(wrong);
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(
        told[0],
        "culvert.tc: must be auto, on or off, but is \"maybe\""
    );
    assert!(told[1].starts_with("mode: "), "{told:?}");
    assert!(
        told[2].starts_with("culvert.devices: a b: must be the name of a device"),
        "{told:?}"
    );
    assert!(told[3].starts_with("culvert.devices: x/y: "), "{told:?}");
    let flags = [
        flag("--tc", &["culvert.tc"], "maybe"),
        flag("--devices", &["culvert.devices"], "x/y"),
    ];
    let told = settle(None, &flags).unwrap_err();
    let told = texts(&told);
    assert_eq!(told[0], "--tc: must be auto, on or off, but is \"maybe\"");
    assert!(told[1].starts_with("--devices: x/y: "), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}
