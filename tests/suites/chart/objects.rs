//! The objects that are rendered: valid where they go, with the rights that each mode takes and no
//! others.

use std::{fs, path::PathBuf, process::Command};

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Service};
use proxy_tests::{
    chart::{self, Chart, Part, Source, Values},
    container::Capability::{
        self, CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_RESOURCE,
    },
    requires::{self, Need},
};
use xtask::chart_tools;

use crate::{HELM, SERVERS, SUITE, files};

/// The newest version of Kubernetes, three before it, and one that has no field for AppArmor yet.
const KUBERNETES: [&str; 5] = ["1.37", "1.36", "1.35", "1.34", "1.29"];

/// What Kubernetes itself does not have.
const NOT_ITS_OWN: &str = "monitoring.coreos.com/";

#[test]
fn kubernetes_knows_every_field() {
    if !requires::met(SUITE, &[Need::Helm, Need::KubernetesValidate]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for version in KUBERNETES {
        let mut rendered: Vec<PathBuf> = Vec::new();
        for file in files("ci") {
            let values = Values {
                kubernetes: Some(version.to_owned()),
                ..Values::file(&file)
            };
            let text = chart::render_text(&values).unwrap();
            let own = text
                .split("\n---\n")
                .filter(|one| !one.contains(NOT_ITS_OWN));
            let path = directory.path().join(file.file_name().unwrap());
            fs::write(&path, own.collect::<Vec<_>>().join("\n---\n")).unwrap();
            rendered.push(path);
        }
        let mut command = chart_tools::kubernetes_validate().unwrap();
        command.args(["--strict", "--kubernetes-version", version]);
        let output = command.args(&rendered).output().unwrap();
        let said = [&*output.stdout, &*output.stderr]
            .map(String::from_utf8_lossy)
            .concat();
        assert!(output.status.success(), "{version}: {said}");
        let validated = said.matches(&format!("against version {version}")).count();
        assert!(validated >= 5 * rendered.len(), "{version}: {said}");
        let sets = format!("daemonset/{} against version {version}", chart::RELEASE);
        assert!(
            said.matches(&sets).count() + 1 >= rendered.len(),
            "{version}: {said}"
        );
    }
}

fn capabilities(set: &[&str]) -> Vec<Capability> {
    let set = [&[SERVERS], set].concat();
    Chart::with(&set)
        .unwrap()
        .agent()
        .unwrap()
        .capabilities()
        .unwrap()
}

#[test]
fn each_mode_has_the_rights_that_it_uses() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let programs = [CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON];
    assert_eq!(capabilities(&[]), programs);
    assert_eq!(capabilities(&["mode=ebpf"]), programs);
    assert_eq!(capabilities(&["mode=nftables"]), [CAP_NET_ADMIN]);
    assert_eq!(capabilities(&["mode=cleanup"]), [CAP_NET_ADMIN]);
    let waits = capabilities(&["mode=cleanup", "cleanupWait=10m"]);
    assert_eq!(waits, [CAP_BPF, CAP_NET_ADMIN]);
    let old = capabilities(&["linuxBefore511=true"]);
    assert_eq!(old, [&programs[..], &[CAP_SYS_RESOURCE]].concat());
    let beside = capabilities(&["mode=nftables", "takeOver=true"]);
    assert_eq!(beside, [CAP_NET_ADMIN, CAP_NET_RAW]);
    assert_eq!(
        capabilities(&["mode=iptables"]),
        [CAP_NET_ADMIN, CAP_NET_RAW]
    );
    // Which of the two serves beneath is up to the node.
    let either = capabilities(&["image.variant=tools"]);
    assert_eq!(either, [&programs[..], &[CAP_NET_RAW]].concat());
    let cleans = capabilities(&["mode=cleanup", "image.variant=tools"]);
    assert_eq!(cleans, [CAP_NET_ADMIN, CAP_NET_RAW]);
}

/// The lock that the host's own programs of iptables wait for.
#[test]
fn whoever_may_call_the_programs_of_iptables_shares_the_lock_of_the_host() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let mounted = |set: &[&str]| {
        let chart = Chart::with(&[&[SERVERS], set].concat()).unwrap();
        let mut parts = chart.init_parts().unwrap();
        parts.retain(|part| part.name != "mount-bpffs");
        parts.push(chart.agent().unwrap());
        let lock = Source::Host("/run/xtables.lock".into(), "FileOrCreate".to_owned());
        let has = |part: &Part| {
            let mut mounts = part.mounts.iter();
            mounts.any(|mount| mount.source == lock && !mount.read_only)
        };
        let (with, image) = (
            parts.iter().filter(|part| has(part)).count(),
            chart.agent().unwrap().image,
        );
        assert!(with == 0 || with == parts.len(), "{set:?}");
        (with > 0, image.ends_with("-tools"))
    };
    for (set, calls) in [
        (&["mode=iptables"][..], true),
        (&["takeOver=true"], true),
        (&["image.variant=tools"], true),
        (&["mode=cleanup", "image.variant=tools"], true),
        (&[], false),
        (&["mode=nftables"], false),
        (&["mode=cleanup"], false),
    ] {
        assert_eq!(mounted(set), (calls, calls), "{set:?}");
    }
    // Of an image that is named as a whole its name tells.
    assert_eq!(mounted(&["image.tag=1.0-tools"]), (true, true));
    assert_eq!(mounted(&["image.tag=1.0"]), (false, false));
    assert_eq!(mounted(&["image.tag=1.0", "mode=iptables"]), (true, false));
}

/// Nothing but the container that hands on a mount is privileged.
#[test]
fn no_container_has_more_than_the_chart_says() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    for file in files("ci") {
        let chart = Chart::render(&Values::file(&file)).unwrap();
        let parts = [chart.init_parts().unwrap(), vec![chart.agent().unwrap()]].concat();
        for part in parts {
            let what = format!("{}: {}", file.display(), part.name);
            let security = &part.security;
            assert_eq!(security.run_as_user, Some(0), "{what}");
            assert_eq!(security.read_only_root_filesystem, Some(true), "{what}");
            assert_ne!(part.seccomp.as_deref(), None, "{what}");
            assert_ne!(part.seccomp.as_deref(), Some("Unconfined"), "{what}");
            let hands_on = |part: &Part| {
                let mut mounts = part.mounts.iter();
                mounts.any(|mount| mount.propagation == "Bidirectional")
            };
            if part.name == "mount-bpffs" {
                assert_eq!(security.privileged, Some(true), "{what}");
                assert!(hands_on(&part), "{what}");
                // A runtime mounts the container's cgroup below /sys/fs.
                let below = |mount: &proxy_tests::chart::Mount| mount.at.starts_with("/sys");
                assert!(!part.mounts.iter().any(below), "{what}");
                continue;
            }
            assert_eq!(security.privileged, None, "{what}");
            assert_eq!(security.allow_privilege_escalation, Some(false), "{what}");
            assert!(!hands_on(&part), "{what}");
            part.capabilities().unwrap();
        }
    }
}

#[test]
fn bpffs_is_mounted_for_programs_only_and_seen_in_every_mode() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let chart = |set: &[&str]| Chart::with(&[&[SERVERS], set].concat()).unwrap();
    let mounts = |chart: &Chart| {
        let parts = chart.init_parts().unwrap();
        parts.iter().any(|part| part.name == "mount-bpffs")
    };
    for (mode, has_programs) in [
        ("mode=auto", true),
        ("mode=ebpf", true),
        ("mode=nftables", false),
        ("mode=iptables", false),
        ("mode=cleanup", false),
    ] {
        let chart = chart(&[mode]);
        assert_eq!(mounts(&chart), has_programs, "{mode}");
        let agent = chart.agent().unwrap();
        let bpffs = agent
            .mounts
            .iter()
            .find(|mount| mount.at.ends_with("bpf"))
            .unwrap();
        let host = Source::Host("/sys/fs/bpf".into(), "Directory".to_owned());
        assert_eq!((&bpffs.source, bpffs.read_only), (&host, false), "{mode}");
        // Default profiles of AppArmor deny writes there.
        assert!(!bpffs.at.starts_with("/sys"), "{mode}");
        let pins = format!("--pin-dir={}/culvert", bpffs.at.display());
        assert!(agent.args.contains(&pins), "{mode}: {:?}", agent.args);
    }
    assert!(!mounts(&chart(&["bpffs.mount=false"])));
}

#[test]
fn sysctls_of_the_host_are_mounted_for_agents_that_may_set_them() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let mounted = |set: &str| {
        let agent = Chart::with(&[SERVERS, set]).unwrap().agent().unwrap();
        let mut mounts = agent.mounts.into_iter();
        let host = Source::Host("/proc/sys/net".into(), "Directory".to_owned());
        mounts.find(|mount| mount.source == host)
    };
    for mode in ["mode=auto", "mode=nftables", "mode=iptables"] {
        let mount = mounted(mode).unwrap();
        assert!(!mount.read_only, "{mode}");
        // Runtimes mount nothing there.
        assert!(!mount.at.starts_with("/proc"), "{mode}");
    }
    assert!(mounted("hostSettings=false").is_none());
    assert!(mounted("mode=cleanup").is_none());
}

/// `helm upgrade --set mode=cleanup` must find the same DaemonSet, and its selector as it was.
#[test]
fn nodes_are_cleaned_by_the_same_daemonset() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let monitored = [
        "metricsBindAddress=0.0.0.0:10249",
        "podMonitor.enabled=true",
    ];
    let rules = ["prometheusRule.enabled=true", "dashboard.enabled=true"];
    let reused = [&[SERVERS][..], &monitored, &rules].concat();
    let serving = Chart::with(&reused).unwrap();
    let cleaning = Chart::with(&[&reused[..], &["mode=cleanup"]].concat()).unwrap();
    let (before, after): (DaemonSet, DaemonSet) =
        (serving.only().unwrap(), cleaning.only().unwrap());
    assert_eq!(before.metadata.name, after.metadata.name);
    assert_eq!(before.spec.selector, after.spec.selector);

    let parts = cleaning.init_parts().unwrap();
    let words: Vec<_> = parts.iter().map(|part| part.args[0].as_str()).collect();
    assert_eq!(words, ["cleanup"]);
    let waiting = ["mode=cleanup", "cleanupWait=10m"];
    let waiting = Chart::with(&[&reused[..], &waiting].concat()).unwrap();
    assert_eq!(waiting.init_parts().unwrap()[0].args[1], "--wait=10m");
    let agent = cleaning.agent().unwrap();
    assert_eq!(agent.args[..2], ["cleanup", "--hold"]);
    assert!(agent.readiness.is_none() && agent.liveness.is_none());
    assert_eq!(
        cleaning.pod().unwrap().automount_service_account_token,
        Some(false)
    );
    // There is nothing to measure, and no alert about it.
    for kind in ["PodMonitor", "PrometheusRule"] {
        assert_eq!(serving.of_kind(kind).len(), 1, "{kind}");
        assert_eq!(cleaning.of_kind(kind).len(), 0, "{kind}");
    }
    // Pods that were not replaced yet go on as they were.
    for kind in [
        "ConfigMap",
        "ClusterRole",
        "ClusterRoleBinding",
        "ServiceAccount",
    ] {
        assert_eq!(serving.of_kind(kind), cleaning.of_kind(kind), "{kind}");
    }
}

#[test]
fn the_image_is_the_one_that_is_meant() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let image = |set: &[&str]| {
        let set = [&[SERVERS], set].concat();
        Chart::with(&set).unwrap().agent().unwrap().image
    };
    let version = env!("CARGO_PKG_VERSION");
    // As `cargo xtask image` names them.
    let plain = format!("localhost/culvert:{version}");
    let tools = format!("{plain}-tools");
    assert_eq!(image(&[]), plain);
    assert_eq!(image(&["takeOver=true"]), tools);
    assert_eq!(image(&["image.variant=tools"]), tools);
    let named = ["takeOver=true", "image.tag=v1"];
    assert_eq!(image(&named), "localhost/culvert:v1");
    assert_eq!(image(&["image.registry="]), format!("culvert:{version}"));
    let digest = format!("sha256:{}", "0".repeat(64));
    let by_digest = [
        "image.registry=r.example:5000",
        &format!("image.digest={digest}"),
    ];
    assert_eq!(
        image(&by_digest),
        format!("r.example:5000/culvert@{digest}")
    );
}

#[test]
fn probes_ask_where_the_agent_answers() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let probes = |address: &str| {
        let set = format!("healthzBindAddress={address}");
        let agent = Chart::with(&[SERVERS, &set]).unwrap().agent().unwrap();
        [agent.startup, agent.liveness, agent.readiness].map(Option::unwrap)
    };
    let asked = probes("0.0.0.0:10256").map(|probe| (probe.host, probe.port, probe.path));
    let everywhere = |page: &str| (None, 10256, page.to_owned());
    assert_eq!(asked, ["/healthz", "/livez", "/readyz"].map(everywhere));
    for (address, host) in [("127.0.0.1:9", "127.0.0.1"), ("[fd00::1]:9", "fd00::1")] {
        for probe in probes(address) {
            assert_eq!(
                (probe.host.as_deref(), probe.port),
                (Some(host), 9),
                "{address}"
            );
        }
    }
    // Longer than the agent takes until it answers, and shorter than anybody waits.
    let [startup, ..] = probes("0.0.0.0:10256");
    assert!(
        (30..=120).contains(&(startup.period * startup.failures)),
        "{startup:?}"
    );
}

/// A Service of its own, which no proxy serves, leads Prometheus to the pods.
#[test]
fn a_monitor_finds_the_port_that_the_pods_name() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let metrics = "metricsBindAddress=0.0.0.0:10249";
    let chart = Chart::with(&[SERVERS, metrics, "serviceMonitor.enabled=true"]).unwrap();
    let service: Service = chart.only().unwrap();
    assert_eq!(
        service.spec.as_ref().unwrap().cluster_ip.as_deref(),
        Some("None")
    );
    let labels = service.metadata.labels.unwrap();
    let monitor = chart.of_kind("ServiceMonitor")[0];
    let selected = monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .unwrap();
    for (label, value) in selected {
        assert_eq!(
            labels.get(label).map(String::as_str),
            value.as_str(),
            "{label}"
        );
    }
    let pods = chart.pod().unwrap();
    let ports = pods.containers[0].ports.clone().unwrap();
    let port = ports
        .iter()
        .find(|port| port.name.as_deref() == Some("metrics"))
        .unwrap();
    assert_eq!((port.container_port, port.host_port), (10249, Some(10249)));
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], "metrics");
    assert_eq!(pods.host_network, Some(true));
}

/// What Helm prints at the end, which `helm template` leaves out.
#[test]
fn the_notes_say_what_uninstalling_leaves() {
    if !requires::met(SUITE, HELM) {
        return;
    }
    let notes = |set: &str| {
        let mut command: Command = chart::helm().unwrap();
        command.args(["install", chart::RELEASE, "--dry-run=client"]);
        command
            .arg(chart::directory())
            .args(["--set", SERVERS, "--set", set]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let (_, notes) = text.split_once("\nNOTES:\n").unwrap();
        notes.to_owned()
    };
    let serving = notes("mode=auto");
    for part in [
        "leaves traffic as it is",
        "--set mode=cleanup",
        "rollout status",
        "culvert_layer_in_force",
    ] {
        assert!(serving.contains(part), "{part}: {serving}");
    }
    let cleaning = notes("mode=cleanup");
    for part in ["ready once its node is clean", "helm uninstall"] {
        assert!(cleaning.contains(part), "{part}: {cleaning}");
    }
}
