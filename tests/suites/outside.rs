//! Backends outside of this workspace, as `docs/writing-a-backend.md` shows them: what stands there
//! is what is built and run here, against a brain.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use proxy_agent::cluster::manifests::load_once;
use proxy_model::{NodeState, compute};
use proxy_tests::{
    brain::Brain,
    requires::{self, Need},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The only block of `language` in the document.
fn block(language: &str) -> String {
    let document = fs::read_to_string(root().join("docs/writing-a-backend.md")).unwrap();
    let blocks: Vec<_> = document
        .split(&format!("\n```{language}\n"))
        .skip(1)
        .collect();
    assert_eq!(blocks.len(), 1, "one block of {language}");
    let (block, _) = blocks[0].split_once("\n```").unwrap();
    format!("{block}\n")
}

fn state(services: u8) -> NodeState {
    let dir = tempfile::tempdir().unwrap();
    for number in 1..=services {
        let yaml = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{namespace: shop, name: s{number}}}\n\
             spec: {{clusterIP: 10.96.0.{number}, clusterIPs: [10.96.0.{number}], \
             ports: [{{port: 80}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
             metadata:\n  namespace: shop\n  name: s{number}-1\n  \
             labels: {{kubernetes.io/service-name: s{number}}}\n\
             ports: [{{port: 8080, protocol: TCP, name: ''}}]\n\
             endpoints: [{{addresses: [10.244.0.{number}]}}]\n"
        );
        fs::write(dir.path().join(format!("s{number}.yaml")), yaml).unwrap();
    }
    compute("node-a", load_once(vec![dir.path().to_owned()]).unwrap())
}

/// A process that is gone with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn a_client_in_python_follows_a_brain() {
    let needs = [
        Need::Tool("protoc"),
        Need::Tool("grpc_python_plugin"),
        Need::Grpc,
    ];
    if !requires::met("outside", &needs) {
        return;
    }
    let source = block("python");
    assert!(
        source.lines().filter(|line| !line.is_empty()).count() <= 20,
        "it is meant to be short"
    );
    let brain = Brain::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let plugin = succeed(Command::new("sh").args(["-c", "command -v grpc_python_plugin"]));
    succeed(
        Command::new("protoc")
            .arg("-I")
            .arg(root().join("proxy-agent/api/proto"))
            .args(["--python_out=.", "--grpc_out=."])
            .arg(format!("--plugin=protoc-gen-grpc={}", plugin.trim()))
            .arg("culvert/node/v1/node.proto")
            .current_dir(dir.path()),
    );
    fs::write(dir.path().join("client.py"), source).unwrap();
    brain.publish(&state(3));
    let mut running = Running(
        Command::new(requires::python_with_grpc().unwrap())
            .args(["client.py", brain.target()])
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let output = BufReader::new(running.0.stdout.take().unwrap());
    let mut lines = output.lines();
    for services in [3, 5, 1] {
        brain.publish(&state(services));
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("{services} Service ports"));
        assert_eq!(brain.until_applied().unwrap().name.as_str(), "python");
    }
}

#[test]
fn the_backend_that_only_prints_ends_with_a_word_when_nobody_reads() {
    let brain = Brain::start().unwrap();
    let mut running = Running(
        Command::new(env!("CARGO"))
            // From the workspace's root, so that it is built as all tests are, and once.
            .args([
                "run",
                "--quiet",
                "--locked",
                "--example",
                "print_state",
                "--",
            ])
            .args(["--target", brain.target()])
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    // As `| head` does.
    drop(running.0.stdout.take());
    brain.publish(&state(1));
    let said = io::read_to_string(running.0.stderr.take().unwrap()).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("no process reads what is printed"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_crate_outside_of_the_workspace_builds_against_the_packages() {
    // One place for all runs: the dependencies are built once.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
    let packages = place.join("packages");
    succeed(
        Command::new(env!("CARGO"))
            .args(["package", "--no-verify", "--allow-dirty", "--offline"])
            .args(["--package", "proxy-model", "--package", "proxy-api"])
            .arg("--target-dir")
            .arg(&packages)
            .current_dir(root()),
    );
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = vec![block("toml"), "[workspace]\n\n[patch.crates-io]".to_owned()];
    for name in ["proxy-model", "proxy-api"] {
        let package = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        succeed(
            Command::new("tar")
                // As if written now: cargo goes by time, and packages all have the same.
                .arg("-xmzf")
                .arg(packages.join(format!("package/{package}.crate")))
                .arg("-C")
                .arg(dir.path()),
        );
        manifest.push(format!("{name} = {{ path = \"{package}\" }}"));
    }
    let write = |path: &str, text: String| fs::write(dir.path().join(path), text).unwrap();
    fs::create_dir(dir.path().join("src")).unwrap();
    write("src/main.rs", block("rust"));
    write("Cargo.toml", manifest.join("\n"));
    // The versions that this workspace is tested with, and no others: nothing is downloaded.
    fs::copy(root().join("Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();
    succeed(
        Command::new(env!("CARGO"))
            .args(["build", "--offline", "--quiet", "--target-dir"])
            .arg(place.join("target"))
            .env_remove("RUSTFLAGS")
            .current_dir(dir.path()),
    );

    let brain = Brain::start().unwrap();
    brain.publish(&state(1));
    let table = |flags: &[&str]| {
        let mut command = Command::new(place.join("target/debug/table"));
        command
            .args(["--target", brain.target(), "--once"])
            .args(flags);
        succeed(&mut command)
    };
    let first = table(&[]);
    let (rows, token) = first.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(rows, "+ 10.96.0.1:80/TCP -> Some({10.244.0.1:8080})");
    assert_eq!(brain.until_applied().unwrap().name.as_str(), "table");
    brain.publish(&state(2));
    let flags: Vec<_> = token.split(' ').collect();
    let second = table(&flags);
    assert_eq!(
        second.lines().filter(|line| line.starts_with('+')).count(),
        2
    );
    assert!(second.contains("--rev=2"), "{second}");
}
