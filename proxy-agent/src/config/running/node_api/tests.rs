//! What the flags of the node API mean together.

use clap::Parser;

use super::*;
use crate::config::{
    Agent, ConfigError, SourceOptions,
    cli::{Cli, Command},
    running,
};

fn run(args: &[&str]) -> Result<Agent, ConfigError> {
    let cli = Cli::try_parse_from(["proxy-agent"].iter().chain(args)).unwrap();
    running::run_where(&cli.run, None, false).map(|run| run.agent)
}

fn brain_of(args: &[&str]) -> Brain {
    match run(args).unwrap().source {
        SourceOptions::Brain(brain) => brain,
        other => panic!("{other:?}"),
    }
}

/// All that is wrong, one text each.
fn mistakes(args: &[&str]) -> Vec<String> {
    run(args).unwrap_err().mistakes
}

#[test]
fn a_brain_is_a_source_and_there_is_one_source() {
    let brain = brain_of(&["--target=unix:///run/x.sock"]);
    assert_eq!(brain.target, "unix:///run/x.sock".parse().unwrap());
    assert_eq!((brain.client_name.as_str(), brain.node), ("ebpf", None));
    let mistakes = mistakes(&[
        "--target=unix:///run/x.sock",
        "--manifests=x",
        "--master=https://192.0.2.1",
        "--kubeconfig=x",
    ]);
    let flags = ["--kubeconfig: ", "--master: ", "--manifests: "];
    assert_eq!(mistakes.len(), flags.len(), "{mistakes:?}");
    for (mistake, flag) in mistakes.iter().zip(flags) {
        assert!(mistake.starts_with(flag), "{mistake}");
        assert!(mistake.ends_with("--target"), "{mistake}");
    }
}

#[test]
fn a_brain_is_another_client_than_a_backend_and_both_can_be_named() {
    let line = ["proxy-agent", "brain", "--target=tcp://[::1]:7", "-o=-"];
    let Some(Command::Brain(args)) = Cli::try_parse_from(line).unwrap().command else {
        panic!("no brain");
    };
    let SourceOptions::Brain(brain) = running::brain_where(&args, None, false).unwrap().source
    else {
        panic!("another source");
    };
    assert_eq!(brain.client_name.as_str(), "brain");
    let args = ["--target=tcp://[::1]:7", "--client-name=x", "--node-name=N"];
    let brain = brain_of(&args);
    assert_eq!(brain.client_name.as_str(), "x");
    assert_eq!(brain.node.as_deref(), Some("n"));
}

#[test]
fn a_brain_may_be_on_another_host_than_its_node() {
    let brain = |args: &[&str]| {
        let line = ["proxy-agent", "brain", "-o=-", "--node-name=n"];
        let cli = Cli::try_parse_from(line.iter().chain(args))?;
        let Some(Command::Brain(args)) = cli.command else {
            panic!("no brain");
        };
        Ok::<_, clap::Error>(
            running::brain_where(&args, None, false)
                .unwrap()
                .on_its_node,
        )
    };
    assert!(brain(&["--manifests=x"]).unwrap());
    assert!(!brain(&["--manifests=x", "--elsewhere"]).unwrap());
    // The brain that it follows knows.
    assert!(brain(&["--target=unix:///a", "--elsewhere"]).is_err());
}

#[test]
fn what_the_brain_decides_is_not_decided_here() {
    let target = "--target=unix:///run/x.sock";
    let warnings = |args: &[&str]| run(&[&[target], args].concat()).unwrap().warnings;
    assert_eq!(warnings(&[]), [] as [String; 0]);
    let of_flags = warnings(&["--cluster-cidr=10.0.0.0/8", "--nodeport-addresses=primary"]);
    assert_eq!(of_flags.len(), 2, "{of_flags:?}");
    assert!(of_flags[0].starts_with("--cluster-cidr: has no effect"));
    // Nor is it noted where NodePorts answer.
    assert_eq!(run(&[target]).unwrap().notes, [] as [String; 0]);
    let file = |fields: &str| {
        use std::io::Write as _;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        write!(file, "{head}{fields}").unwrap();
        file
    };
    let of_file = |fields| {
        let file = file(fields);
        warnings(&["--config", file.path().to_str().unwrap()])
    };
    assert_eq!(of_file("oomScoreAdj: 5\n"), [] as [String; 0]);
    let idle = of_file("clusterCIDR: 10.0.0.0/8\n");
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert!(idle[0].contains("--config"), "{idle:?}");
}

#[test]
fn where_clients_come_in_is_checked_as_a_whole() {
    let listen = |args: &[&str]| {
        let all = [&["--manifests=x", "--node-name=n"], args].concat();
        run(&all).map(|agent| agent.listen)
    };
    let none = listen(&[]).unwrap();
    assert_eq!((none.targets.len(), none.mode, none.tls), (0, 0o600, None));
    let two = listen(&[
        "--listen=unix:///run/x.sock",
        "--listen=tls://0.0.0.0:7",
        "--listen-mode=0660",
        "--listen-tls-cert=a",
        "--listen-tls-key=b",
        "--listen-tls-ca=c",
    ]);
    let two = two.unwrap();
    assert_eq!((two.targets.len(), two.mode), (2, 0o660));
    assert_eq!(two.tls.unwrap().key, PathBuf::from("b"));
    for (args, part) in [
        (&["--listen=/run/x.sock"][..], "must begin with unix://"),
        (&["--listen=tcp://192.0.2.1:7"], "loopback"),
        (&["--listen=tls://192.0.2.1:7"], "--listen-tls-key"),
        (&["--listen=unix:///a", "--listen=unix:///a"], "given twice"),
        (&["--listen=unix:///a", "--listen-mode=8"], "octal"),
        (&["--listen=unix:///a", "--listen-mode=1000"], "octal"),
        (&["--listen=unix:///a", "--listen-mode="], "octal"),
        (&["--listen=tcp://[::1]:7", "--listen-mode=0660"], "unix://"),
        (&["--listen-mode=0660"], "unix://"),
        (&["--listen-token-file=t"], "no such address"),
        (
            &["--listen=unix:///a", "--listen-token-file=t"],
            "no such address",
        ),
        (&["--listen=unix:///a", "--listen-tls-ca=c"], "all three"),
        (
            &[
                "--listen=unix:///a",
                "--listen-tls-cert=a",
                "--listen-tls-key=b",
                "--listen-tls-ca=c",
            ],
            "no such address",
        ),
    ] {
        let error = listen(args).unwrap_err();
        assert_eq!(error.mistakes.len(), 1, "{args:?}: {error}");
        assert!(error.to_string().contains(part), "{args:?}: {error}");
        assert!(error.to_string().starts_with("--listen"), "{error}");
    }
}

#[test]
fn on_loopback_a_token_lets_clients_report_and_it_is_said_that_others_cannot() {
    let listen = |args: &[&str]| {
        let all = [
            &["--manifests=x", "--node-name=n", "--listen=tcp://[::1]:7"],
            args,
        ]
        .concat();
        run(&all).unwrap()
    };
    let without = listen(&[]);
    let told = without
        .warnings
        .iter()
        .any(|one| one.contains("accepts no reports"));
    assert!(told, "{:?}", without.warnings);
    let with = listen(&["--listen-token-file=t"]);
    assert_eq!(with.listen.token_file, Some(PathBuf::from("t")));
    assert_eq!(with.warnings, [] as [String; 0]);
    let brain = brain_of(&["--target=tcp://[::1]:7", "--target-token-file=t"]);
    assert_eq!(brain.token_file, Some(PathBuf::from("t")));
}

#[test]
fn whom_to_follow_is_checked_as_a_whole() {
    for (args, part) in [
        (&["--target=x"][..], "--target: \"x\": must begin"),
        (&["--target=tls://b:7"], "--target-tls-cert"),
        (&["--target=tcp://[::1]:0"], "the port must not be 0"),
        (
            &["--target=unix:///a", "--client-name=a b"],
            "--client-name",
        ),
        (&["--manifests=x", "--client-name=a"], "--client-name"),
        (&["--target=unix:///a", "--target-tls-key=c"], "all three"),
        (
            &["--target=unix:///a", "--target-token-file=t"],
            "no such address",
        ),
        (
            &["--manifests=x", "--target-token-file=t"],
            "no such address",
        ),
    ] {
        let mistakes = mistakes(&[args, &["--node-name=n"]].concat());
        assert_eq!(mistakes.len(), 1, "{args:?}: {mistakes:?}");
        assert!(mistakes[0].contains(part), "{mistakes:?}");
    }
}
