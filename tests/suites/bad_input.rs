//! What is wrong with the input, the host or the rights is said in one clear message, with an
//! exit code of its own, and nothing that worked before is lost. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs::{self, File, Permissions},
    os::{
        fd::AsRawFd as _,
        unix::{fs::PermissionsExt as _, process::CommandExt as _},
    },
    path::Path,
    process::Command,
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{self, LIMIT},
    bpf, cgroup,
    launcher::in_own_mounts,
    pod::Transport,
    process::{Finished, Process},
    requires::{self, PRIVILEGED},
    shop::{frontend, http, service, small_service},
};

const FILE: &str = "cluster.yaml";

/// The exit code is `code`, and stderr says each of `parts`, without a panic or a backtrace.
#[track_caller]
fn assert_told(done: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(done.code, Some(code), "{done:#?}");
    for part in parts {
        assert!(
            done.stderr.contains(part),
            "{part:?} is missing in {done:#?}"
        );
    }
    assert!(!done.stderr.contains("panicked"), "{done:#?}");
    assert!(done.stdout.is_empty(), "{done:#?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Which endpoint answers for the Service 1.
fn answer(prober: &mut Prober) -> Option<std::net::SocketAddr> {
    prober.send(Transport::Tcp, frontend(1, 80), 1).unwrap()[0].answer
}

#[test]
fn a_wrong_command_line_is_explained() {
    for (arguments, part) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["run", "--no-such-flag"], "--no-such-flag"),
        (&["no-such-command"], "no-such-command"),
        (&["run", "--node-name=n"], "--manifests"),
        (&["state", "--pin-dir=relative"], "--pin-dir"),
        (
            &["render", "--node-name=n", "--manifests=x", "--backend=none"],
            "--backend",
        ),
        (
            &[
                "run",
                "--node-name=n",
                "--manifests=x",
                "--map-size=FRONTENDS",
            ],
            "NAME=ENTRIES",
        ),
        (
            &[
                "run",
                "--node-name=n",
                "--manifests=x",
                "--map-size=NOTHING=1",
            ],
            "FRONTENDS",
        ),
        (
            &[
                "run",
                "--node-name=n",
                "--manifests=x",
                "--pin-dir=relative",
            ],
            "--pin-dir",
        ),
        (
            &["run", "--node-name=n", "--manifests=x", "--log-format=xml"],
            "--log-format",
        ),
        (&["cleanup", "--pin-dir=relative"], "--pin-dir"),
    ] {
        let done = agent::run(arguments).unwrap();
        assert_told(&done, 2, &[part]);
    }
}

#[test]
fn a_manifest_that_cannot_be_used_is_named_with_document_and_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.yaml");
    let missing = dir.path().join("missing.yaml");
    let bad_field = small_service(1, &[1])
        + "---\napiVersion: v1\nkind: Service\nmetadata: {name: odd, namespace: shop}\n\
           spec: {clusterIP: 10.96.0.2, ports: [{port: eighty}]}\n";
    for (content, parts) in [
        ("kind: Service\n  spec: [\n", &[][..]),
        (bad_field.as_str(), &["document 3", "ports[0].port"]),
        ("just text\n", &["document 1"]),
    ] {
        fs::write(&file, content).unwrap();
        for command in ["state", "run"] {
            let arguments = [command, "--node-name=n", "--manifests", text(&file)];
            let done = agent::run(&arguments).unwrap();
            assert_told(&done, 2, &[&[text(&file)], parts].concat());
        }
    }
    for command in ["state", "run"] {
        let done = agent::run(&[command, "--node-name=n", "--manifests", text(&missing)]).unwrap();
        assert_told(&done, 2, &[text(&missing)]);
    }
}

#[test]
fn a_broken_manifest_leaves_the_last_good_state_in_force() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [
        (FILE, &*service(1, &[1])),
        ("other.yaml", &*service(2, &[2])),
    ];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    agent
        .apply(
            FILE,
            &service(1, &[3]).replace("port: 80,", "port: eighty,"),
        )
        .unwrap();
    let line = agent.wait_for("manifest rejected").unwrap();
    assert_eq!(line.text("file"), agent.manifest(FILE).to_str());
    assert!(
        line.text("reason").unwrap().contains("ports[0].port"),
        "{}",
        line.raw
    );
    assert_eq!(answer(&mut prober), Some(http(1)));
    // Other files go on.
    agent
        .apply_and_sync("other.yaml", &service(2, &[4]))
        .unwrap();
    let attempt = prober
        .send(Transport::Tcp, frontend(2, 80), 1)
        .unwrap()
        .remove(0);
    assert_eq!(attempt.answer, Some(http(4)));
    assert_eq!(answer(&mut prober), Some(http(1)));
    // And a restart on a broken file changes nothing either.
    agent.kill().unwrap();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(2), "{log:?}");
    assert_eq!(answer(&mut prober), Some(http(1)));
    agent.apply(FILE, &service(1, &[3])).unwrap();
    agent.launch().unwrap();
    assert_eq!(answer(&mut prober), Some(http(3)));
}

#[test]
fn a_second_agent_on_the_same_pins_is_refused() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let mut agent = Agent::start(
        &shop.world,
        AgentOptions::default(),
        &[(FILE, &service(1, &[1]))],
    )
    .unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let mut command = agent.command("run").unwrap();
    command.arg("--proxy-mode=ebpf");
    command.arg("--manifests").arg(agent.manifest(FILE));
    command
        .arg("--cgroup-path")
        .arg(shop.world.cgroup().path())
        .arg("--node-name=n");
    let done = Process::run("a second agent", command, LIMIT).unwrap();
    assert_told(&done, 4, &[text(agent.pins().path()), "another agent"]);
    assert_eq!(answer(&mut prober), Some(http(1)));
    agent.apply_and_sync(FILE, &service(1, &[2])).unwrap();
    assert_eq!(answer(&mut prober), Some(http(2)));
}

#[test]
fn a_cgroup_or_pin_directory_that_is_none_is_refused() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::prepare(
        &shop.world,
        AgentOptions::default(),
        &[(FILE, &service(1, &[1]))],
    )
    .unwrap();
    let manifests = agent.manifest(FILE);
    let missing = dir.path().join("missing");
    for cgroup in [dir.path(), &missing] {
        let mut command = agent.command("run").unwrap();
        command.arg("--proxy-mode=ebpf");
        command
            .arg("--manifests")
            .arg(&manifests)
            .arg("--node-name=n");
        command.arg("--cgroup-path").arg(cgroup);
        let done = Process::run("proxy-agent", command, LIMIT).unwrap();
        assert_told(&done, 3, &[text(cgroup), "--cgroup-path", "cgroup v2"]);
        assert!(!agent.pins().path().exists(), "a failed start left it");
    }
    let pins = dir.path().join("pins");
    let done = agent::run(&[
        "run",
        "--proxy-mode=ebpf",
        "--node-name=n",
        "--manifests",
        text(&manifests),
        "--cgroup-path",
        text(shop.world.cgroup().path()),
        "--pin-dir",
        text(&pins),
    ])
    .unwrap();
    assert_told(&done, 3, &[text(&pins), "mount -t bpf"]);
    assert!(!pins.exists());
}

/// `run` as `prepare` makes it, on its own pins.
fn run_somewhere(shop: &Shop, prepare: impl FnOnce(&mut Command)) -> Finished {
    let agent = Agent::prepare(
        &shop.world,
        AgentOptions::default(),
        &[(FILE, &service(1, &[1]))],
    )
    .unwrap();
    let manifest = agent.manifest(FILE);
    fs::set_permissions(manifest.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    // By descriptor, so that a user who cannot enter the build directory can execute it.
    let program = File::open(agent::path().unwrap()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command
        .args(["run", "--proxy-mode=ebpf"])
        .arg("--pin-dir")
        .arg(agent.pins().path())
        .arg("--node-name=n");
    command.arg("--manifests").arg(&manifest);
    command.arg("--cgroup-path").arg(shop.world.cgroup().path());
    prepare(&mut command);
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

#[test]
fn without_rights_the_message_says_which_are_needed() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let done = run_somewhere(&shop, |command| {
        command.uid(65534).gid(65534);
    });
    assert_told(&done, 3, &["root", "CAP_BPF", "CAP_NET_ADMIN"]);
    let nobody = |command: &mut Command| {
        command.uid(65534).gid(65534);
    };
    // What needs no rights works without them.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join(FILE);
    fs::write(&file, service(1, &[1])).unwrap();
    for arguments in [&["state"][..], &["render", "--backend=ebpf"]] {
        let program = File::open(agent::path().unwrap()).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command
            .args(arguments)
            .arg("--node-name=n")
            .arg("--manifests")
            .arg(&file);
        nobody(&mut command);
        let done = Process::run("proxy-agent", command, LIMIT).unwrap();
        assert_eq!(done.code, Some(0), "{done:#?}");
        assert!(done.stdout.contains("10.96.0.1"), "{done:#?}");
    }
}

/// The command line of an agent without `--cgroup-path`, started by `launcher` in the world's
/// cgroup.
fn run_without_cgroup_path(shop: &Shop, launcher: &[String]) -> Finished {
    let agent = Agent::prepare(
        &shop.world,
        AgentOptions::default(),
        &[(FILE, &service(1, &[1]))],
    )
    .unwrap();
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]).arg(agent::path().unwrap());
    command
        .args(["run", "--proxy-mode=ebpf"])
        .arg("--pin-dir")
        .arg(agent.pins().path())
        .arg("--node-name=n");
    command.arg("--manifests").arg(agent.manifest(FILE));
    command.stdin(std::process::Stdio::null());
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    shop.world
        .node()
        .spawn(command)
        .unwrap()
        .finish(LIMIT)
        .unwrap()
}

#[test]
fn a_host_without_cgroup_v2_is_refused() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let root = cgroup::mount_point().unwrap();
    let launcher = in_own_mounts(&[], &format!("umount --lazy {}", root.display()));
    let done = run_without_cgroup_path(&shop, &launcher);
    assert_told(&done, 3, &["cgroup v2"]);
}

#[test]
fn a_container_view_of_the_cgroups_is_refused() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let root = cgroup::mount_point().unwrap();
    let root = root.display();
    // What a container with a cgroup namespace of its own sees: its cgroup looks like the root.
    let prepare = format!("umount --lazy {root}; mount -t cgroup2 none {root}");
    let done = run_without_cgroup_path(&shop, &in_own_mounts(&["--cgroup"], &prepare));
    assert_told(&done, 3, &["cgroup", "root"]);
}

#[test]
fn a_mount_of_cgroup_v2_that_cannot_be_used_is_passed_over() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let root = cgroup::mount_point().unwrap();
    // Another file system covers the first mount; the second shows no real root, so that the
    // agent does not attach to this machine's.
    let prepare = format!(
        "mount -t tmpfs none {}; mount -t cgroup2 none {}",
        root.display(),
        dir.path().display()
    );
    let done = run_without_cgroup_path(&shop, &in_own_mounts(&["--cgroup"], &prepare));
    let second = format!("{} (inode", dir.path().display());
    assert_told(
        &done,
        3,
        &[text(&root), &second, "or name a cgroup with --cgroup-path"],
    );
}

#[test]
fn a_program_that_allows_none_beside_it_is_explained_and_nothing_stays_attached() {
    if !requires::met("bad_input", PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let options = AgentOptions::default();
    let mut agent = Agent::prepare(&shop.world, options, &[(FILE, &service(1, &[1]))]).unwrap();
    let cgroup = shop.world.cgroup().path();
    bpf::attach_alone(cgroup).unwrap();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(3), "{log:?}");
    let look = format!("bpftool cgroup show {}", text(cgroup));
    assert!(log.iter().any(|line| line.raw.contains(&look)), "{log:?}");
    assert!(!agent.pins().path().join("links").exists());
    // Programs that were attached before that one serve no more.
    let mut prober = Prober::start(&shop.client).unwrap();
    let udp = prober
        .send(Transport::Udp, frontend(1, 53), 1)
        .unwrap()
        .remove(0);
    assert_eq!(udp.errno(), Some("ENETUNREACH"), "{udp:?}");
}
