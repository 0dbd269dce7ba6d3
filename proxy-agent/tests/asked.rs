//! What commands say that need no agent: the version, and a name that no node of the manifests has.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    process::{Command, Output},
};

fn agent(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proxy-agent"));
    command.args(arguments).output().unwrap()
}

#[test]
fn the_version_is_told_as_kube_proxy_tells_its_own() {
    let expected = concat!("proxy-agent ", env!("CARGO_PKG_VERSION"), "\n");
    for arguments in [
        &["--version"][..],
        &["-V"],
        &["version"],
        &["--config=/none", "--version"],
    ] {
        let output = agent(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

const NODES: &str = "\
apiVersion: v1
kind: NodeList
items:
- {metadata: {name: worker-1}}
- {metadata: {name: worker-2.example.com}}
- {metadata: {name: gateway}}
";

#[test]
fn a_name_that_no_node_of_the_manifests_has_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nodes.yaml");
    fs::write(&file, NODES).unwrap();
    let file = file.display().to_string();
    for (command, more) in [
        ("state", &[][..]),
        ("render", &["--backend=nftables"]),
        ("explain", &["--from=10.0.0.1", "--to=10.96.0.1:80/tcp"]),
    ] {
        let said = |name: &str| {
            let arguments = [command, "--manifests", &file, "--node-name", name];
            let output = agent(&[&arguments, more].concat());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(said("worker-1"), "", "{command}");
        let missing = said("worker-2");
        let names = "worker-2.example.com, worker-1, gateway";
        assert!(
            missing.contains(names) || missing.contains("worker-1, worker-2.example.com"),
            "{missing}"
        );
        assert!(missing.contains("called worker-2"), "{missing}");
    }
}

/// An API server takes no such names; a file may have them.
#[test]
fn what_objects_are_called_steers_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cluster.yaml");
    let hostile = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: "n\e[31m\nFAKE"}}
- apiVersion: v1
  kind: Service
  metadata: {name: "s\e]0;x\a\nFAKE"}
  spec: {clusterIP: 10.96.0.1, ports: [{name: "p\nFAKE", port: 80}]}
"#;
    fs::write(&file, hostile).unwrap();
    let file = file.display().to_string();
    for command in [
        &["state"][..],
        &["render", "--backend=nftables"],
        &["explain", "--from=10.0.0.1", "--to=10.96.0.1:80/tcp"],
    ] {
        let output = agent(&[command, &["--manifests", &file, "--node-name=a"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!said.contains(steers), "{said:?}");
        assert!(said.lines().all(|line| !line.starts_with("FAKE")), "{said}");
    }
}
