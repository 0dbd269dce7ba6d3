//! A node with a neighbour outside, and a Service whose NodePorts lead to pods here.

use std::{net::SocketAddr, process::Command, time::Duration};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop, Traffic,
    agent::LogLine,
    pod::{Load, Transport},
    requires::{self, NFTABLES, PRIVILEGED},
    shop::service,
    world::Neighbour,
};

use super::SUITE;

/// The file with all objects.
pub const FILE: &str = "cluster.yaml";
/// NodePorts of the Service 1.
pub const HTTP: u16 = 30080;
pub const DNS: u16 = 30053;

/// Whether this can run here.
pub fn can_run() -> bool {
    requires::met(SUITE, PRIVILEGED) && requires::met(SUITE, NFTABLES)
}

/// The Service 1 with these endpoints, whose NodePorts keep to this node; and the [`node`].
pub fn cluster(neighbour: &Neighbour, endpoints: &[u8]) -> String {
    let service = service(1, endpoints)
        .replace(
            "  ports:\n  - {name: http, port: 80, protocol: TCP}",
            &format!(
                "  type: NodePort\n  externalTrafficPolicy: Local\n  ports:\n  \
                 - {{name: http, port: 80, protocol: TCP, nodePort: {HTTP}}}"
            ),
        )
        .replace(
            "port: 53, protocol: UDP}",
            &format!("port: 53, protocol: UDP, nodePort: {DNS}}}"),
        );
    [node(neighbour), service].concat()
}

/// The node, which is known by those addresses of `neighbour`.
pub fn node(neighbour: &Neighbour) -> String {
    let [v4, v6] = neighbour.node;
    format!(
        "---
apiVersion: v1
kind: Node
metadata: {{name: node-a}}
status:
  addresses:
  - {{type: InternalIP, address: {v4}}}
  - {{type: InternalIP, address: \"{v6}\"}}
"
    )
}

/// The default agent with programs on devices, and further arguments.
pub fn options(arguments: &[&str]) -> AgentOptions {
    let arguments = ["--proxy-mode=auto", "--tc=auto"].iter().chain(arguments);
    AgentOptions {
        arguments: arguments.map(|one| (*one).to_owned()).collect(),
        ..AgentOptions::default()
    }
}

/// eBPF without a layer beneath, as it is by default.
pub fn alone() -> AgentOptions {
    AgentOptions {
        arguments: ["--proxy-mode=ebpf", "--backend-order=ebpf"]
            .map(str::to_owned)
            .into(),
        ..AgentOptions::default()
    }
}

/// A node, and a neighbour outside on its device ext1.
pub struct Site {
    pub shop: Shop,
    pub neighbour: Neighbour,
}

impl Site {
    /// Builds it; `None` if this cannot run here.
    pub fn build() -> Option<Self> {
        can_run().then(|| {
            let shop = Shop::routed().unwrap();
            let neighbour = shop.world.neighbour(1).unwrap();
            Self { shop, neighbour }
        })
    }

    /// The default agent, with these endpoints; ext1 is served.
    pub fn serve(&self, endpoints: &[u8]) -> Agent<'_> {
        let objects = cluster(&self.neighbour, endpoints);
        let files = [(FILE, &*objects)];
        let mut agent = Agent::start(&self.shop.world, options(&[]), &files).unwrap();
        served(&mut agent, "ext1");
        agent
    }
}

/// Waits until all of these devices are served, in whichever order.
pub fn all_served(agent: &mut Agent<'_>, devices: &[&str]) {
    let mut others = devices.to_vec();
    while !others.is_empty() {
        let is_other = |line: &LogLine| {
            let device = line.text("device");
            line.message() == Some("device served")
                && others.iter().any(|other| Some(*other) == device)
        };
        let line = agent.wait_for_line("a device is served", is_other).unwrap();
        others.retain(|other| Some(*other) != line.text("device"));
    }
}

/// Waits until the device is served.
pub fn served(agent: &mut Agent<'_>, device: &str) -> LogLine {
    let what = format!("{device} is served");
    agent
        .wait_for_line(&what, |line| {
            line.message() == Some("device served") && line.text("device") == Some(device)
        })
        .unwrap()
}

/// New connections all the time, and such that stay, to both families.
pub fn traffic(neighbour: &Neighbour) -> Traffic {
    let kinds = [
        ("tcp", Transport::Tcp, false),
        ("kept", Transport::Tcp, true),
        ("udp", Transport::Udp, false),
        ("udp-kept", Transport::Udp, true),
    ];
    let mut loads = Vec::new();
    for (at, ip) in neighbour.node.into_iter().enumerate() {
        for (name, transport, keep) in kinds {
            let port = if transport.is_udp() { DNS } else { HTTP };
            loads.push(Load {
                name: format!("{name}{at}"),
                transport,
                to: SocketAddr::new(ip, port),
                threads: 1,
                pause: Duration::from_micros(500),
                keep,
            });
        }
    }
    Traffic::start("outside", &neighbour.host, loads).unwrap()
}

/// A prober at the neighbour.
pub fn prober(neighbour: &Neighbour) -> Prober {
    Prober::start(&neighbour.host).unwrap()
}

/// What a command prints that is run in the node's network.
pub fn on_node(shop: &Shop, program: &str, arguments: &[&str]) -> String {
    let run = || Command::new(program).args(arguments).output();
    let output = shop.world.node().netns().run(run).unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text
}

/// Whether netfilter is told of what bridges carry, which takes [`Need::BridgeNetfilter`].
pub fn tell_netfilter(shop: &Shop, is_told: bool) {
    let told = u8::from(is_told);
    for name in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"] {
        on_node(
            shop,
            "sysctl",
            &["-qw", &format!("net.bridge.{name}={told}")],
        );
    }
}

/// A port of the bridge that pods are behind which is another load balancer's: programs do not make pods there see
/// this node.
pub fn add_others_port(shop: &Shop) {
    let script = "link add lxc1 type veth peer name lxc2\nlink set lxc1 master br0 up\n";
    shop.world.node().netns().ip(script).unwrap();
}
