//! The commands of the documents, on a node with the chart's pod: each that can run here does.

use std::{fs, path::Path, process::Command};

use proxy_tests::{
    agent::{self, LIMIT},
    chart::{Values, render_text},
    kubelet::{Bpffs, Pod},
    process::Process,
};

use super::{Cluster, NODE, chart::Installed, possible};

/// Pages of `docs/`. README's commands are those of a checkout.
const PAGES: [&str; 4] = ["cni", "install", "migration", "troubleshooting"];

/// What begins so needs a cluster, a registry, a container engine, or a program that set-up does not
/// install, or changes this machine.
const ELSEWHERE: &[&str] = &[
    "cargo xtask ",
    "crane ",
    "docker ",
    "helm get ",
    "helm rollback ",
    "helm uninstall ",
    "kind ",
    "kubectl ",
    "skopeo ",
    "sudo conntrack ",
    "sudo ctr ",
    "sudo kubeadm ",
    "sudo mount ",
    "sudo skopeo ",
    "tar ",
];

/// What must fail on this node: kube-proxy was never here.
const FAILS: &str = "sudo nft list table ip kube-proxy";

/// Whom a command in a container is for.
const IN_CONTAINER: [&str; 3] = [
    "kubectl -n kube-system exec ds/culvert -- ",
    "kubectl -n kube-system exec ds/kube-proxy -- ",
    "kubectl -n kube-system exec POD -- ",
];

/// The Service whose health check node port a page asks.
const CHECKED: &str = "\
apiVersion: v1
kind: Service
metadata: {name: checked, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.77.1
  externalTrafficPolicy: Local
  healthCheckNodePort: 31999
  ports: [{port: 80, nodePort: 31080}]
";

/// Where the node has the objects of the cluster in a file.
const MANIFEST: &str = "/run/cluster.yaml";

/// The commands of a page, one a line, without what the shell would write elsewhere.
fn commands(page: &str) -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let text = fs::read_to_string(docs.join(page).with_extension("md")).unwrap();
    let mut inside = false;
    let mut all = Vec::new();
    for line in text.lines() {
        match line.trim_start() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside && !command.is_empty() => {
                let command = command.split(" > ").next().unwrap();
                all.push(command.to_owned());
            }
            _ => {}
        }
    }
    all
}

/// A command's words, as a shell parts them.
fn words(command: &str) -> Vec<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("printf '%s\\n' {command}")]);
    let done = Process::run("sh", shell, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{command}: {done:?}");
    done.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_documents_that_can_run_here_does() {
    if !possible() {
        return;
    }
    let cluster = Cluster::new();
    cluster.server.apply_yaml(CHECKED).unwrap();
    let node = Installed::new(&cluster, Bpffs::Mounted);
    let pod = node.start(&["config.enableProfiling=true"], &cluster.image());
    fs::write(node.kubelet.seen(MANIFEST), CHECKED).unwrap();
    let mut run = 0;
    for page in PAGES {
        for command in commands(page) {
            run += usize::from(is_run(&node, &pod, page, &command));
        }
    }
    // Of some 100. Were none found, none would fail.
    assert!(run >= 50, "only {run} commands were run");
}

/// Runs it unless it is known that it cannot run here. Then it must end as it should.
fn is_run(node: &Installed<'_>, pod: &Pod<'_>, page: &str, command: &str) -> bool {
    let in_container = IN_CONTAINER
        .iter()
        .find_map(|start| command.strip_prefix(start));
    let mut program = if let Some(asked) = in_container {
        let asked = words(asked);
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        pod.command(&asked).unwrap()
    } else if command.starts_with("helm install ") || command.starts_with("helm upgrade ") {
        render(page, command);
        return true;
    } else if ELSEWHERE.iter().any(|start| command.starts_with(start)) {
        return false;
    } else {
        on_node(node, command)
    };
    program.current_dir("/");
    let done = Process::run(command, program, LIMIT).unwrap();
    let fails = command == FAILS;
    assert_eq!(done.code != Some(0), fails, "{page}: {command}: {done:?}");
    true
}

/// A command of a user of the node.
fn on_node(node: &Installed<'_>, command: &str) -> Command {
    let mut shell = node.command("sh");
    let command = command.strip_prefix("sudo ").unwrap_or(command);
    let command = command
        .replace("cluster.yaml", MANIFEST)
        .replace("NODE", NODE);
    // Where the agent is found by its name.
    let agent = agent::path().unwrap().parent().unwrap().display();
    let script = format!("PATH={agent}:$PATH\n{command}");
    shell.args(["-ec", &script]);
    shell
}

/// What Helm is told to install can be rendered.
fn render(page: &str, command: &str) {
    let mut set = vec!["apiServers={https://10.0.0.1:6443}".to_owned()];
    let mut words = words(command).into_iter();
    while let Some(word) = words.next() {
        if word == "--set" {
            set.push(words.next().unwrap());
        }
    }
    let values = Values {
        set,
        ..Values::default()
    };
    render_text(&values).unwrap_or_else(|error| panic!("{page}: {command}: {error:#}"));
}
