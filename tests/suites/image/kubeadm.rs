//! kubeadm's DaemonSet with nothing exchanged but the image: its command line, its `ConfigMap`, its
//! kubeconfig, its mounts and its rights.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use proxy_tests::{
    Shop,
    agent::LIMIT,
    api_server::{ApiServer, Authority, Options},
    launcher::in_own_mounts,
    process::{self, Process},
    shop::service,
};

use super::{Image, assert_serves, is_root_here};

/// As kubeadm writes it for Kubernetes 1.36 with a pod network of 10.244.0.0/16.
const CONFIGURATION: &str = include_str!("../../data/kubeadm-config.conf");

/// Where its pods have their account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const TOKEN: &str = "token-of-kube-proxy";

/// Between two looks at a port.
const LOOK: Duration = Duration::from_millis(50);

/// As kubeadm writes it beside the configuration.
fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: {ACCOUNT}/ca.crt
    server: {server}
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: {ACCOUNT}/token
"
    )
}

/// What a runtime does for a privileged pod on the host's network: everything can be written, and
/// nothing of the host is there but what the pod names. bpffs is not among it.
fn prepare(root: &Path, kube_proxy: &Path, account: &Path) -> String {
    let [root, kube_proxy, account] = [root, kube_proxy, account].map(Path::display);
    format!(
        "mount --bind {root} {root}
         mount --rbind /proc {root}/proc
         mount --rbind /dev {root}/dev
         mount --bind /sys {root}/sys
         mount --rbind /sys/fs/cgroup {root}/sys/fs/cgroup
         mount --bind {kube_proxy} {root}/var/lib/kube-proxy
         mount --bind {account} {root}{ACCOUNT}"
    )
}

/// Asks an HTTP server on the node; `None` while there is none.
fn get(shop: &Shop, port: u16, path: &str) -> Option<String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    shop.world.node().netns().run(ask).unwrap().ok()
}

#[test]
fn kubeadm_s_command_line_and_configuration_serve_unchanged() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    let shop = Shop::routed().unwrap();
    let authority = Arc::new(Authority::new().unwrap());
    let server = ApiServer::start(Options {
        netns: Some(shop.world.node().netns()),
        authority: Some(Arc::clone(&authority)),
        ..Options::default()
    });
    let server = server.unwrap();
    server.apply_yaml(&service(1, &[1])).unwrap();

    let volumes = tempfile::tempdir().unwrap();
    let [kube_proxy, account] = ["kube-proxy", "account"].map(|name| {
        let dir = volumes.path().join(name);
        fs::create_dir(&dir).unwrap();
        dir
    });
    for (dir, name, text) in [
        (&kube_proxy, "config.conf", CONFIGURATION.to_owned()),
        (&kube_proxy, "kubeconfig.conf", kubeconfig(&server.url())),
        (&account, "ca.crt", authority.pem().to_owned()),
        (&account, "token", TOKEN.to_owned()),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
    let launcher = in_own_mounts(&[], &prepare(&image.root(), &kube_proxy, &account));
    let said = volumes.path().join("log");
    let mut command = Command::new(&launcher[0]);
    command
        .args(&launcher[1..])
        .arg("chroot")
        .arg(image.root())
        .args([
            "/usr/local/bin/kube-proxy",
            "--config=/var/lib/kube-proxy/config.conf",
            "--hostname-override=node-a",
        ])
        .env("NODE_NAME", "node-a")
        .stdin(Stdio::null())
        .stderr(fs::File::create(&said).unwrap());
    process::enter(&mut command, Some(shop.world.node().netns().as_fd()), None).unwrap();
    let mut agent = Process::spawn("kube-proxy", command).unwrap();
    let log = || fs::read_to_string(&said).unwrap();

    let end = Instant::now() + LIMIT;
    while !get(&shop, 10256, "/healthz").is_some_and(|answer| answer.contains(" 200 OK")) {
        assert!(Instant::now() < end, "{}", log());
        thread::sleep(LOOK);
    }
    assert_serves(&shop);
    // Without the host's bpffs, what works there; and the log says what to add.
    let mode = get(&shop, 10249, "/proxyMode").unwrap();
    assert!(mode.ends_with("nftables"), "{mode}");
    assert!(log().contains("/sys/fs/bpf"), "{}", log());
    agent.signal(Signal::SIGTERM).unwrap();
    let status = agent.wait(LIMIT).unwrap();
    assert!(status.success(), "{status}: {}", log());
}
