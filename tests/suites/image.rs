//! The container image, as operators get it: unpacked without our help, and run with the rights of a
//! pod and nothing else. Needs root, BPF and `nf_tables`; `cargo xtask test image` makes the images.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "image/cgroups.rs"]
mod cgroups;
#[path = "image/materials.rs"]
mod materials;
#[path = "image/names.rs"]
mod names;
#[path = "image/unpacked.rs"]
pub mod unpacked;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{AdminDirectory, LIMIT, Rights},
    api_server::{ApiServer, Options},
    container::{self, Capability, Container, Volume},
    pod::Transport,
    process::{Finished, Process},
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{frontend, http, service},
};
use serde_json::Value;

use self::unpacked::{Image, file_of, read};

const SUITE: &str = "image";

/// What is sent to each node of a cluster, at most.
const LIMIT_OF_SIZE: u64 = 25_000_000;

/// What the chart gives an agent that may use all that there is.
const OF_CHART: [Capability; 3] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_PERFMON,
];

/// Where the chart mounts the host's cgroups.
const CGROUP: &str = "/host/cgroup";

/// Names of shells.
const SHELLS: [&str; 6] = ["sh", "ash", "bash", "busybox", "dash", "zsh"];

fn is_root_here() -> bool {
    requires::met(SUITE, PRIVILEGED) && requires::met(SUITE, NFTABLES)
}

/// A pod's container of this image.
fn container(image: &Image, capabilities: &[Capability]) -> Container {
    Container {
        image: Some(container::Image::unpacked_in(image.root())),
        ..Container::with(capabilities)
    }
}

/// Runs the program of the image to its end.
fn run(container: &Container, arguments: &[&str]) -> Finished {
    let rights = Rights::Exactly(container.clone());
    let admin_directory = AdminDirectory::keep().unwrap();
    let launcher = rights.launcher(&[], &admin_directory).unwrap();
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]).arg(rights.agent().unwrap());
    command.args(arguments);
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

/// Gives the container a volume.
fn mount(container: &mut Container, volume: Volume) {
    container.image.as_mut().unwrap().volumes.push(volume);
}

/// A directory with this configuration, where the chart mounts it.
fn configuration(text: &str) -> (tempfile::TempDir, Volume) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.conf"), text).unwrap();
    let volume = Volume::to_read(dir.path().to_owned(), "/etc/culvert");
    (dir, volume)
}

/// The API server of a shop, with the Service 1.
fn api_server(shop: &Shop) -> ApiServer {
    let server = ApiServer::start(Options {
        netns: Some(shop.world.node().netns()),
        ..Options::default()
    });
    let server = server.unwrap();
    server.apply_yaml(&service(1, &[1])).unwrap();
    server
}

fn assert_serves(shop: &Shop) {
    let to = frontend(1, 80);
    let mut prober = Prober::start(&shop.client).unwrap();
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    assert_eq!(attempt.answer_as(to), Ok(http(1)));
}

#[test]
fn it_holds_the_agent_under_both_names_no_shell_and_little_else() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    assert!(image.size() < LIMIT_OF_SIZE, "{} bytes", image.size());
    assert_eq!(image.tag, env!("CARGO_PKG_VERSION"));
    let configuration = &image.configuration["config"];
    assert_eq!(configuration["User"], "0:0");
    assert_eq!(
        configuration["Entrypoint"],
        serde_json::json!(["/usr/local/bin/proxy-agent"])
    );
    for place in [&configuration["Labels"], &image.manifest["annotations"]] {
        for name in ["title", "description", "version", "revision", "licenses"] {
            let name = format!("org.opencontainers.image.{name}");
            assert!(place[&name].as_str().is_some_and(|text| !text.is_empty()));
        }
    }
    let files = image.files();
    let executable: Vec<_> = files
        .iter()
        .filter(|(_, mode)| *mode & 0o111 != 0)
        .collect();
    let names: Vec<_> = executable.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["usr/local/bin/kube-proxy", "usr/local/bin/proxy-agent"]
    );
    let elsewhere = files.keys().filter(|name| !names.contains(&name.as_str()));
    for name in elsewhere {
        assert!(name.starts_with("usr/share/doc/culvert/"), "{name}");
    }
}

#[test]
fn the_variant_with_tools_has_them_and_no_shell() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("-tools");
    assert_eq!(image.tag, concat!(env!("CARGO_PKG_VERSION"), "-tools"));
    let base = &Image::unpack("").manifest["layers"][0];
    assert_eq!(image.manifest["layers"][0], *base, "nodes have it already");
    for (name, mode) in image.files() {
        let last = name.rsplit('/').next().unwrap();
        assert!(!SHELLS.contains(&last), "{name}");
        assert_eq!(mode & 0o6000, 0, "{name} runs as its owner");
    }
    let container = container(&image, &[Capability::CAP_NET_ADMIN]);
    for family in ["iptables", "ip6tables"] {
        for kind in ["nft", "legacy"] {
            let program = format!("usr/sbin/{family}-{kind}-save");
            let mut command = Command::new("chroot");
            command.arg(image.root()).arg(format!("/{program}"));
            command.arg("--version");
            let done = Process::run(&program, command, LIMIT).unwrap();
            assert_eq!(done.code, Some(0), "{program}: {}", done.stderr);
        }
    }
    let done = run(&container, &["version"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

/// What `--take-over` is for, with nothing but the image: chains in both kinds of iptables.
#[test]
fn the_variant_with_tools_takes_over() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("-tools");
    let shop = Shop::routed().unwrap();
    let server = api_server(&shop);
    let chains = ":KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n";
    let rules = shop.world.node().netns();
    let on_node = |program: &str, input: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), input).unwrap();
        let run = || {
            let stdin = fs::File::open(file.path()).unwrap();
            Command::new(program).stdin(stdin).output().unwrap()
        };
        let output = rules.run(run).unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for kind in ["nft", "legacy"] {
        let restore = format!("iptables-{kind}-restore");
        on_node(&restore, &format!("*nat\n{chains}"));
    }
    // The kernel lets only who may send raw packets look at rules of the older kind.
    let rights = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    let lock = Path::new("/run/xtables.lock");
    if !lock.exists() {
        fs::write(lock, "").unwrap();
    }
    let mut container = container(&image, &rights);
    mount(&mut container, Volume::shared(lock.to_owned()));
    let options = AgentOptions {
        source: vec!["--master".to_owned(), server.url()],
        arguments: ["--proxy-mode=nftables", "--take-over"]
            .map(str::to_owned)
            .into(),
        rights: Rights::Exactly(container),
        ..AgentOptions::default()
    };
    let mut agent = Agent::prepare(&shop.world, options, &[]).unwrap();
    agent.launch().unwrap();
    agent.wait_for("kube-proxy's place is taken").unwrap();
    for kind in ["nft", "legacy"] {
        let saved = on_node(&format!("iptables-{kind}-save"), "");
        assert!(!saved.contains("KUBE-"), "{kind}: {saved}");
    }
    assert_serves(&shop);
}

#[test]
fn it_says_its_version_checks_the_host_and_serves_with_the_rights_of_the_chart() {
    if !is_root_here() {
        return;
    }
    let image = Image::unpack("");
    let mut container = container(&image, &OF_CHART);
    let done = run(&container, &["version"]);
    let version = concat!("proxy-agent ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), version));

    let shop = Shop::new().unwrap();
    let cgroup = shop.world.cgroup().path().to_owned();
    mount(&mut container, Volume::to_read(cgroup, CGROUP));
    let done = run(
        &container,
        &["check", "--output=json", "--cgroup-path", CGROUP],
    );
    let check: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(done.code, Some(0), "{check}");
    let requirements = check["backends"][0]["requirements"].as_array().unwrap();
    for one in requirements {
        assert!(one["required"] == false || one["met"] == true, "{one}");
    }

    let server = api_server(&shop);
    let (_dir, volume) = configuration(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n",
    );
    mount(&mut container, volume);
    let options = AgentOptions {
        cgroup_path: Some(CGROUP.into()),
        source: vec!["--master".to_owned(), server.url()],
        arguments: vec!["--config=/etc/culvert/config.conf".to_owned()],
        rights: Rights::Exactly(container),
        ..AgentOptions::default()
    };
    let mut agent = Agent::prepare(&shop.world, options, &[]).unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.layers().unwrap()[0], "ebpf", "{:?}", agent.log());
    assert_serves(&shop);
    let root = format!("/proc/{}/root", agent.pid().unwrap());
    let seen: BTreeSet<_> = fs::read_dir(root).unwrap().collect_names();
    assert!(!seen.contains("root"), "the agent is in no image: {seen:?}");
    agent.terminate().unwrap();
}

/// The names in a directory.
trait Names {
    fn collect_names(self) -> BTreeSet<String>;
}

impl Names for fs::ReadDir {
    fn collect_names(self) -> BTreeSet<String> {
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        self.map(name).collect()
    }
}

#[test]
fn an_image_that_is_made_again_is_the_same() {
    if !is_root_here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let again = dir.path().join("again");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap());
    command
        .args(["xtask", "image", "--push-to"])
        .arg(&again)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let before = fs::read(file_of("", "tar")).unwrap();
    let done = Process::run("cargo xtask image", command, LIMIT).unwrap();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(before == fs::read(file_of("", "tar")).unwrap());
    let index = read(&again.join("index.json"));
    assert_eq!(index["manifests"][0]["digest"], Image::unpack("").digest);
}
