//! What `run`, and the commands that compute from manifests, make of flags and files together.

mod as_kube_proxy;
mod backends;

use clap::Parser;
use proxy_model::oracle::{Detector, Traffic};

use super::*;
use crate::config::{
    asked,
    cli::{self, AskArgs, Cli, Command, ModelArgs, NodeArgs},
    kube_proxy, once,
};

fn run_args(args: &[&str]) -> Result<Run, ConfigError> {
    let cli = Cli::try_parse_from(["proxy-agent"].iter().chain(args)).unwrap();
    run_where(&cli.run, None, false)
}

#[test]
fn every_mistake_is_reported_at_once() {
    let error = run_args(&[
        "--node-name= ",
        "--pin-dir=pins",
        "--map-size=FRONTENDS",
        "--map-size=COUNTERS=5",
        "--map-size=SLOTS=0",
    ])
    .unwrap_err();
    let text = error.to_string();
    let named = [
        "COUNTERS=5",
        "FRONTENDS",
        "SLOTS=0",
        "--node-name",
        "no source",
        "--pin-dir",
    ];
    assert_eq!(error.mistakes.len(), named.len(), "{text}");
    for (mistake, named) in error.mistakes.iter().zip(named) {
        assert!(mistake.contains(named), "{mistake}");
    }
}

#[test]
fn the_node_name_is_trimmed_and_lower_case_under_either_flag() {
    for flag in ["--node-name", "--hostname-override"] {
        let run = run_args(&["--manifests=x", flag, " Node-A "]).unwrap();
        assert_eq!(&*run.agent.model.node, "node-a");
    }
}

/// A file with `fields`, gone at the end of the test.
fn file(fields: &str) -> tempfile::NamedTempFile {
    use std::io::Write as _;

    let mut file = tempfile::NamedTempFile::new().unwrap();
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    write!(file, "{head}{fields}").unwrap();
    file
}

/// Runs with `--config` and `args`.
fn run_file(fields: &str, args: &[&str]) -> Result<Run, ConfigError> {
    let file = file(fields);
    let path = file.path().to_str().unwrap();
    run_args(&[&["--config", path], args].concat())
}

#[test]
fn what_kubeadm_starts_works_as_it_is() {
    let fields = "clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}\n\
                  clusterCIDR: 10.244.0.0/16\nhostnameOverride: \"\"\n";
    let run = run_file(fields, &["--hostname-override=Node-A"]).unwrap();
    assert_eq!(
        run.agent.source,
        SourceOptions::ApiServer {
            kubeconfig: Some("/var/lib/kube-proxy/kubeconfig.conf".into()),
            masters: Vec::new(),
        }
    );
    assert_eq!(&*run.agent.model.node, "node-a");
    assert_eq!(
        run.agent.serving.healthz,
        Some("0.0.0.0:10256".parse().unwrap())
    );
    assert_eq!(
        run.agent.serving.metrics,
        Some("127.0.0.1:10249".parse().unwrap())
    );
    assert_eq!(run.agent.sync_period, Duration::from_secs(30));
    assert_eq!(run.agent.warnings, [] as [String; 0]);
    let alone = file(fields);
    let args = ModelArgs {
        node: NodeArgs {
            manifests: vec!["m".into()],
            node_name: Some("node-a".to_owned()),
        },
        config: Some(alone.path().to_owned()),
        ..ModelArgs::default()
    };
    assert_eq!(once(&args).unwrap().model, run.agent.model);
}

#[test]
fn every_flag_reaches_its_field() {
    let run = run_args(&[
        "--kubeconfig=k",
        "--master=https://10.0.0.1:6443,https://10.0.0.2:6443",
        "--node-name=n",
        "--healthz-bind-address=",
        "--metrics-bind-address=0.0.0.0",
        "--bind-address-hard-fail",
        "--iptables-sync-period=1m",
        "--cluster-cidr=10.0.0.0/8",
        "--detect-local-mode=BridgeInterface",
        "--pod-bridge-interface=br0",
        "--pod-interface-name-prefix=veth",
        "--masquerade-all=true",
        "--nodeport-addresses=192.0.2.0/24,198.51.100.0/24",
        "--nodeport-addresses=fd00::/64",
        "--iptables-localhost-nodeports=false",
        "--proxy-mode=auto",
        "--oom-score-adj=-5",
    ])
    .unwrap();
    assert_eq!(
        run.agent.source,
        SourceOptions::ApiServer {
            kubeconfig: Some("k".into()),
            masters: ["https://10.0.0.1:6443", "https://10.0.0.2:6443"]
                .map(str::to_owned)
                .into(),
        }
    );
    assert_eq!(run.agent.serving.healthz, None);
    assert_eq!(
        run.agent.serving.metrics,
        Some("0.0.0.0:10249".parse().unwrap())
    );
    assert!(run.agent.serving.hard_fail);
    assert_eq!(run.agent.sync_period, Duration::from_mins(1));
    assert_eq!(
        run.agent.model.traffic,
        Traffic {
            detector: Detector::BridgeInterface("br0".into()),
            masquerade_all: true,
        }
    );
    let cidrs = ["192.0.2.0/24", "198.51.100.0/24", "fd00::/64"];
    assert_eq!(
        run.agent.model.node_ports,
        NodePortSelection::Cidrs(cidrs.map(|cidr| cidr.parse().unwrap()).into())
    );
    assert!(!run.agent.model.localhost_node_ports);
    assert_eq!(run.agent.notes, [] as [String; 0]);
    assert_eq!(run.mode, Mode::Auto);
    assert_eq!(run.agent.oom_score_adj, -5);
    let shown = &run.agent.serving.configuration;
    assert_eq!(shown["detectLocal"]["interfaceNamePrefix"], "veth");
    assert_eq!(shown["nftables"]["syncPeriod"], "1m0s");
}

#[test]
fn what_else_kube_proxy_takes_is_taken_and_told() {
    let run = run_args(&[
        "--manifests=x",
        "--node-name=n",
        "-v",
        "2",
        "--proxy-mode=ipvs",
        "--profiling",
        "--feature-gates=A=true",
        "--ipvs-scheduler",
        "rr",
    ])
    .unwrap();
    let named = ["featureGates", "ipvs.scheduler", "mode"];
    assert_eq!(
        run.agent.warnings.len(),
        named.len(),
        "{:#?}",
        run.agent.warnings
    );
    for (warning, named) in run.agent.warnings.iter().zip(named) {
        assert!(warning.starts_with(named), "{warning}");
    }
    let error = run_args(&[
        "--manifests=x",
        "--node-name=n",
        "--v=much",
        "--oom-score-adj=-2000",
    ]);
    let error = error.unwrap_err();
    assert!(error.mistakes[0].starts_with("--v: "), "{error}");
    assert!(
        error.mistakes[1].starts_with("--oom-score-adj: "),
        "{error}"
    );
    // A sync period for one mode counts in that mode.
    let ipvs = [
        "--manifests=x",
        "--node-name=n",
        "--proxy-mode=ipvs",
        "--ipvs-sync-period=7s",
    ];
    assert_eq!(
        run_args(&ipvs).unwrap().agent.sync_period,
        Duration::from_secs(7)
    );
}

#[test]
fn every_flag_of_the_table_names_fields_and_none_is_there_twice() {
    use clap::CommandFactory as _;

    Cli::command().debug_assert();
    for (flag, paths) in cli::others::FLAGS {
        for path in *paths {
            assert!(kube_proxy::fields::at(path).is_some(), "{flag} {path}");
        }
    }
}

#[test]
fn the_source_is_what_was_given_and_only_one() {
    let of = |args: &[&str], in_pod| {
        let line = [&["proxy-agent", "--node-name=n"], args].concat();
        run_where(&Cli::try_parse_from(line).unwrap().run, None, in_pod).map(|run| run.agent.source)
    };
    let server = |kubeconfig: Option<&str>| SourceOptions::ApiServer {
        kubeconfig: kubeconfig.map(PathBuf::from),
        masters: Vec::new(),
    };
    assert_eq!(of(&[], true).unwrap(), server(None));
    assert!(of(&[], false).is_err());
    assert!(of(&["--master=10.0.0.1:6443"], false).is_ok());
    let manifests = of(&["--manifests=x"], true).unwrap();
    assert_eq!(manifests, SourceOptions::Manifests(vec!["x".into()]));
    for flag in ["--kubeconfig=k", "--master=https://x"] {
        let error = of(&["--manifests=x", flag], true).unwrap_err();
        assert!(
            error.to_string().contains("either this or --manifests"),
            "{error}"
        );
    }
    let run = |args: &[&str]| run_file("clientConnection: {kubeconfig: f}", args).unwrap();
    assert_eq!(run(&["--node-name=n"]).agent.source, server(Some("f")));
    assert_eq!(
        run(&["--node-name=n", "--kubeconfig=k"]).agent.source,
        server(Some("k"))
    );
    assert_eq!(
        run(&["--node-name=n", "--manifests=x"]).agent.source,
        manifests
    );
}

#[test]
fn mistakes_of_the_file_name_the_file() {
    let error = run_file(
        "mode: fast\nmetricsBindAddress: x",
        // A file with mistakes is not also a file that names no source.
        &["--node-name=n"],
    );
    let error = error.unwrap_err();
    assert_eq!(error.mistakes.len(), 2, "{error}");
    for mistake in &error.mistakes {
        assert!(mistake.starts_with("--config /"), "{mistake}");
    }
    let error = run_args(&[
        "--config=/nonexistent/file",
        "--manifests=x",
        "--node-name=n",
    ]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("--config /nonexistent/file: reading the file: "),
        "{error}"
    );
}

#[test]
fn the_file_names_the_node_unless_a_flag_does() {
    let fields = "hostnameOverride: From-File\n";
    let node = |args| run_file(fields, args).unwrap().agent.model.node;
    assert_eq!(&*node(&["--manifests=x"]), "from-file");
    assert_eq!(&*node(&["--manifests=x", "--node-name=flag"]), "flag");
}

/// The arguments about the model of `state`, `explain` or `render`.
fn model_args(command: &str, args: &[&str]) -> (ModelArgs, Option<AskArgs>) {
    let needed: &[&str] = match command {
        "explain" => &["--from=10.0.0.1", "--to=10.96.0.1:80/tcp"],
        "render" => &["--backend=ebpf"],
        _ => &[],
    };
    let line = [&["proxy-agent", command], needed, args].concat();
    match Cli::try_parse_from(line).unwrap().command.unwrap() {
        Command::State(args) => (args.model, Some(args.ask)),
        Command::Explain(args) => (args.model, Some(args.ask)),
        Command::Render(args) => (args.model, None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_shapes_the_model_is_the_same_for_every_command() {
    let fields = "nodePortAddresses: [primary]\nclusterCIDR: 10.0.0.0/8\nportRange: 1-2\n\
                  iptables: {localhostNodePorts: false}\n";
    let file = file(fields);
    let args = [
        "--manifests=m",
        "--hostname-override=Node-A",
        "--config",
        file.path().to_str().unwrap(),
        "--nodeport-addresses=192.0.2.0/24",
        "--pod-bridge-interface=br0",
        "--detect-local-mode=BridgeInterface",
        "--masquerade-all",
    ];
    let run = run_args(&args).unwrap();
    assert_eq!(&*run.agent.model.node, "node-a");
    let selection = NodePortSelection::Cidrs(vec!["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(run.agent.model.node_ports, selection);
    assert!(!run.agent.model.localhost_node_ports && run.agent.model.traffic.masquerade_all);
    assert_eq!(run.agent.warnings.len(), 2, "{:?}", run.agent.warnings);
    for command in ["state", "explain", "render"] {
        let once = once(&model_args(command, &args).0).unwrap();
        assert_eq!(once.model, run.agent.model, "{command}");
        assert_eq!(once.warnings, run.agent.warnings, "{command}");
    }
}

#[test]
fn an_agent_that_runs_has_its_own_configuration() {
    for command in ["state", "explain"] {
        let (model, ask) = model_args(command, &["--node-name=n"]);
        assert!(asked(&ask.unwrap(), &model).is_ok());
        let (model, ask) = model_args(
            command,
            &["--config=f", "--nodeport-addresses=primary", "--pin-dir=p"],
        );
        let error = asked(&ask.unwrap(), &model).unwrap_err();
        let named = ["--config: ", "--nodeport-addresses: ", "--pin-dir p: "];
        assert_eq!(error.mistakes.len(), named.len(), "{error}");
        for (mistake, named) in error.mistakes.iter().zip(named) {
            assert!(mistake.starts_with(named), "{mistake}");
        }
    }
}

#[test]
fn that_node_ports_answer_everywhere_is_noted_once_and_is_no_warning() {
    let notes = |args: &[&str]| {
        let run = run_args(&[&["--manifests=x", "--node-name=n"], args].concat()).unwrap();
        (run.agent.warnings.len(), run.agent.notes.len())
    };
    assert_eq!(notes(&[]), (0, 1));
    assert_eq!(notes(&["--nodeport-addresses=primary"]), (0, 0));
    assert_eq!(notes(&["--nodeport-addresses=0.0.0.0/0"]), (0, 0));
    // kube-proxy's default in this mode, which nobody expects who comes from another.
    assert_eq!(notes(&["--proxy-mode=nftables"]), (0, 1));
    let chosen = ["--proxy-mode=nftables", "--nodeport-addresses=primary"];
    assert_eq!(notes(&chosen), (0, 0));
}

#[test]
fn the_state_goes_to_a_regular_file_or_to_standard_output() {
    let run = |output: &str| {
        run_args(&["--manifests=x", "--node-name=n", "-o", output]).map(|run| run.agent.output)
    };
    assert_eq!(run("-").unwrap(), Some(Destination::Stdout));
    let new = "no-such-directory/state.json";
    assert_eq!(run(new).unwrap(), Some(Destination::File(new.into())));
    let directory = tempfile::tempdir().unwrap();
    for (path, part) in [
        (directory.path().to_str().unwrap(), "no regular file"),
        ("/dev/stdout", "- for standard output"),
        ("/", "must name a file"),
    ] {
        let text = run(path).unwrap_err().to_string();
        assert!(text.starts_with("--output-file "), "{text}");
        assert!(text.contains(part), "{text}");
    }
}

fn brain_args(args: &[&str]) -> Result<Agent, ConfigError> {
    let line = ["proxy-agent", "brain", "--node-name=n"];
    let cli = Cli::try_parse_from(line.iter().chain(args)).unwrap();
    let Some(Command::Brain(args)) = cli.command else {
        panic!("{:?}", cli.command)
    };
    brain_where(&args, None, false)
}

#[test]
fn a_brain_needs_a_source_and_a_sink_and_takes_the_rest_as_run_does() {
    let error = brain_args(&[]).unwrap_err();
    let [source, sink] = &error.mistakes[..] else {
        panic!("{error}");
    };
    assert!(source.contains("no source"), "{source}");
    for flag in ["--listen", "--output-file"] {
        assert!(sink.contains(flag), "{sink}");
    }
    let args = ["--manifests=x", "-o=-", "--proxy-mode=ipvs"];
    let brain = brain_args(&args).unwrap();
    let socket = std::path::Path::new("/run/culvert/brain.sock");
    assert_eq!(brain.admin_socket, socket);
    let mut run = run_args(&[&args[..], &["--node-name=n"]].concat()).unwrap();
    assert_eq!(brain.model, run.agent.model);
    assert_eq!(brain.serving.healthz, run.agent.serving.healthz);
    assert_eq!(brain.notes, run.agent.notes);
    // That eBPF serves in the place of another mode is not so here.
    let is_elsewhere = |text: &String| text.starts_with("mode:");
    let told = run.agent.warnings.iter().filter(|text| is_elsewhere(text));
    assert_eq!(told.count(), 1, "{:?}", run.agent.warnings);
    run.agent.warnings.retain(|text| !is_elsewhere(text));
    assert_eq!(brain.warnings, run.agent.warnings);
}

#[test]
fn a_brain_is_silent_about_layers_in_every_version_of_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha2\nkind: KubeProxyConfiguration\n\
                culvert: {mode: ipvs}\n";
    std::fs::write(file.path(), text).unwrap();
    let config = format!("--config={}", file.path().display());
    let args = ["--manifests=x", "-o=-", &config];
    let run = run_args(&[&args[..], &["--node-name=n"]].concat()).unwrap();
    assert_eq!(run.agent.warnings.len(), 1, "{:?}", run.agent.warnings);
    let brain = brain_args(&args).unwrap();
    assert_eq!(brain.warnings, [] as [String; 0]);
}

/// What `/configz` shows, against what it shows where nothing is set.
#[test]
fn the_configuration_that_is_shown_is_the_one_in_effect() {
    let shown = |args: &[&str]| run_args(args).unwrap().agent.serving.configuration;
    let plain = shown(&["--manifests=x", "--node-name=node-a"]);
    for field in kube_proxy::version::Version::V1Alpha1.spellings() {
        let pointer = format!("/{}", field.path.replace('.', "/"));
        assert!(plain.pointer(&pointer).is_some(), "{}", field.path);
    }
    for (pointer, value) in [
        ("/mode", "auto".into()),
        ("/hostnameOverride", "node-a".into()),
        ("/clientConnection/kubeconfig", "".into()),
        ("/metricsBindAddress", "127.0.0.1:10249".into()),
        ("/nodePortAddresses", serde_json::json!([])),
        ("/nftables/syncPeriod", "30s".into()),
    ] {
        assert_eq!(plain.pointer(pointer), Some(&value), "{pointer}");
    }
    let other = shown(&[
        "--kubeconfig=/etc/k",
        "--node-name= Node-B ",
        "--proxy-mode=nftables",
        "--metrics-bind-address=127.0.0.1:9999",
        "--sync-period=45s",
        "--iptables-localhost-nodeports=false",
    ]);
    for (pointer, value) in [
        ("/mode", "nftables".into()),
        ("/hostnameOverride", "node-b".into()),
        ("/clientConnection/kubeconfig", "/etc/k".into()),
        ("/metricsBindAddress", "127.0.0.1:9999".into()),
        ("/nodePortAddresses", serde_json::json!(["primary"])),
        ("/nftables/syncPeriod", "45s".into()),
        ("/iptables/localhostNodePorts", false.into()),
    ] {
        assert_eq!(other.pointer(pointer), Some(&value), "{pointer}");
    }
}
