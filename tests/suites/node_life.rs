//! What a node goes through besides serving: prepared for the agent, cleaned after it, and told to
//! run kube-proxy. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::{self, LIMIT},
    launcher::in_own_mounts,
    process::{Finished, Process},
    requires::{self, PRIVILEGED},
    shop::service,
};

const SUITE: &str = "node_life";

/// `mount-bpffs` at DIR/bpf, where a file system is mounted at DIR by `prepare`, in mounts that go
/// away; `launcher` runs it.
fn mount_bpffs(prepare: &str, launcher: &str) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "mount --make-rprivate /; mount -t tmpfs tmpfs {dir}; mkdir {dir}/bpf\nDIR={dir}; {prepare}",
        dir = dir.path().display()
    );
    let words = in_own_mounts(&[], &script);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args(["sh", "-c"]);
    let agent = agent::path().unwrap().display();
    let at = dir.path().join("bpf");
    let at = at.display();
    command.arg(format!(
        "{launcher} {agent} mount-bpffs --at {at} && {agent} mount-bpffs --at {at} && \
         grep ' {at} ' /proc/self/mountinfo && stat -c %a {at}"
    ));
    Process::run("mount-bpffs", command, LIMIT).unwrap()
}

const SHARED: &str = "mount --make-shared $DIR";

#[test]
fn the_bpf_file_system_is_mounted_once_and_only_for_its_owner() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let done = mount_bpffs(SHARED, "");
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<_> = done.stdout.lines().collect();
    assert!(
        lines[0].starts_with("mounted the BPF file system at "),
        "{done:?}"
    );
    assert!(lines[1].ends_with(" already"), "{done:?}");
    assert!(lines[2].contains(" - bpf "), "{done:?}");
    assert_eq!(&lines[3..], ["1700"], "mounted once: {done:?}");
}

#[test]
fn what_keeps_the_bpf_file_system_from_being_mounted_is_told() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    // Nobody else would see it.
    let done = mount_bpffs("true", "");
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stderr.contains("mountPropagation: Bidirectional"),
        "{done:?}"
    );

    let powerless = "setpriv --bounding-set=-all --inh-caps=-all";
    let done = mount_bpffs(SHARED, powerless);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stderr.contains("CAP_SYS_ADMIN"), "{done:?}");

    let done = mount_bpffs(&format!("{SHARED}; mount -t tmpfs tmpfs $DIR/bpf"), "");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("type tmpfs is mounted there"),
        "{done:?}"
    );

    let done = mount_bpffs(&format!("{SHARED}; rmdir $DIR/bpf"), "");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("No such file"), "{done:?}");
}

#[test]
fn a_cleanup_that_holds_stays_until_it_is_told_to_end() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let shop = Shop::new().unwrap();
    let files = [("cluster.yaml", &*service(1, &[1]))];
    let mut agent = Agent::start(&shop.world, AgentOptions::default(), &files).unwrap();
    // It ends where it cannot clean: whoever started it tries again.
    let mut command = agent.command("cleanup").unwrap();
    command.arg("--hold");
    let done = Process::run("proxy-agent cleanup --hold", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(4), "{done:?}");

    agent.terminate().unwrap();
    let mut command = agent.command("cleanup").unwrap();
    command.arg("--hold").stdout(Stdio::piped());
    let mut holds = Process::spawn("proxy-agent cleanup --hold", command).unwrap();
    let said = BufReader::new(holds.child().stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || said.lines().try_for_each(|line| sender.send(line.unwrap())));
    while !lines.recv_timeout(LIMIT).unwrap().starts_with("clean;") {}
    assert!(!agent.pins().path().exists());
    // Who ends closes what it writes to.
    let more = lines.recv_timeout(Duration::from_millis(300));
    assert_eq!(more, Err(mpsc::RecvTimeoutError::Timeout));
    holds.signal(Signal::SIGTERM).unwrap();
    assert!(holds.wait(LIMIT).unwrap().success());
}

/// The agent, called as kube-proxy.
fn kube_proxy(dir: &Path, arguments: &[&str]) -> Finished {
    let program = dir.join("kube-proxy");
    if !program.exists() {
        symlink(agent::path().unwrap(), &program).unwrap();
    }
    let mut command = Command::new(program);
    command.args(arguments);
    Process::run("kube-proxy", command, LIMIT).unwrap()
}

#[test]
fn kube_proxys_other_flags_do_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    for form in ["--version", "--version=raw", "-V"] {
        let done = kube_proxy(dir.path(), &[form]);
        assert_eq!(
            (done.code, &*done.stdout),
            (
                Some(0),
                concat!("proxy-agent ", env!("CARGO_PKG_VERSION"), "\n")
            ),
            "{form}"
        );
    }
    // The host of the test keeps its settings.
    let nothing = [
        "--init-only",
        "--cluster_cidr=10.0.0.0/8",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ];
    let done = kube_proxy(dir.path(), &nothing);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = kube_proxy(dir.path(), &["--init-only", "--proxy-mode=odd"]);
    assert_eq!(done.code, Some(2), "{done:?}");

    // What was written is what a file can say, and says the same.
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let [to, again] = [&first, &second].map(|path| format!("--write-config-to={}", path.display()));
    let done = kube_proxy(
        dir.path(),
        &[
            &to,
            "--hostname-override=node-a",
            "--cluster-cidr=10.244.0.0/16",
            "--nodeport-addresses=primary",
        ],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = fs::read_to_string(&first).unwrap();
    for line in [
        "kind: KubeProxyConfiguration",
        "apiVersion: kubeproxy.config.k8s.io/v1alpha2",
        "- 10.244.0.0/16",
        "mode: \"\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let done = kube_proxy(dir.path(), &[&again, "--config", first.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(fs::read_to_string(&second).unwrap(), text);
    let done = kube_proxy(dir.path(), &["--write-config-to=/nowhere/at/all"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("/nowhere/at/all"), "{done:?}");
}
