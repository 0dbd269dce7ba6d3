//! Devices of kinds that not every kernel has: VLANs, tunnels of IP in IP, `WireGuard`. A client behind each
//! is led to endpoints, and its packets are translated once, on whichever of two devices above each other
//! programs are.

use std::{
    fmt::Write as _,
    net::IpAddr,
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use proxy_tests::{
    Agent, Shop,
    netns::NetNs,
    process,
    requires::{self, Need},
    world::Neighbour,
};

use super::{
    SUITE,
    journeys::{all_are_led, dial, tracked},
    rig::{FILE, can_run, cluster, options, prober, served},
};

/// The node's addresses on the device that is tried, and the client's. With those of the wire below,
/// nothing is reached.
const NODE: [&str; 2] = ["198.18.7.1", "2001:db8:77::1"];
const CLIENT: [&str; 2] = ["198.18.7.2", "2001:db8:77::2"];

fn ips(texts: [&str; 2]) -> [IpAddr; 2] {
    texts.map(|text| text.parse().unwrap())
}

/// A node with a neighbour, and on their wire a device of the kind that is tried, on each side: `upper`.
struct Stacked {
    shop: Shop,
    /// As if it were behind that device alone.
    neighbour: Neighbour,
}

impl Stacked {
    /// Builds it; `None` if this cannot run here. `link` gives the words of `ip link add` for `upper` above
    /// the device `LOWER`, from this address to that one.
    fn build(
        kind: &'static str,
        link: impl Fn([IpAddr; 2], [IpAddr; 2]) -> String,
    ) -> Option<Self> {
        if !can_run() || !requires::met(SUITE, &[Need::Device(kind)]) {
            return None;
        }
        let shop = Shop::routed().unwrap();
        let mut neighbour = shop.world.neighbour(1).unwrap();
        let (below, above) = (neighbour.node, neighbour.addresses);
        let (node, client) = (shop.world.node().netns(), neighbour.host.netns());
        for (netns, lower, [from, to], [own, others]) in [
            (node, "ext1", [below, above], [NODE, CLIENT]),
            (client, "eth0", [above, below], [CLIENT, NODE]),
        ] {
            let link = link(from, to).replace("LOWER", lower);
            let mut script = format!("link add {link}\nlink set upper up\n");
            for ((own, other), length) in own.iter().zip(others).zip(["/32", "/128 nodad"]) {
                let (length, nodad) = length.split_once(' ').unwrap_or((length, ""));
                writeln!(script, "addr add {own}{length} dev upper {nodad}").unwrap();
                writeln!(script, "route add {other} dev upper src {own}").unwrap();
            }
            netns.ip(&script).unwrap();
        }
        neighbour.node = ips(NODE);
        neighbour.addresses = ips(CLIENT);
        Some(Self { shop, neighbour })
    }

    /// Clients behind it are served, with programs on these devices.
    fn serve(&self, devices: &[&str]) {
        let objects = cluster(&self.neighbour, &[1, 2, 3]);
        let named = format!("--devices={}", devices.join(","));
        let options = options(&["--tc=on", &named]);
        let mut agent = Agent::start(&self.shop.world, options, &[(FILE, &*objects)]).unwrap();
        for device in devices {
            served(&mut agent, device);
        }
        dial(&mut prober(&self.neighbour), self.neighbour.node);
        for client in self.neighbour.addresses {
            let flows = tracked(&self.shop, client);
            assert!(all_are_led(&flows), "{devices:?}: {flows:?}");
        }
        agent.terminate().unwrap();
    }
}

#[test]
fn a_client_behind_a_vlan_is_led_once_wherever_programs_are() {
    let vlan = |_, _| "link LOWER name upper type vlan id 7".to_owned();
    let Some(stacked) = Stacked::build("vlan", vlan) else {
        return;
    };
    stacked.serve(&["upper"]);
    // The lower one meets the same packets first, with their tag.
    stacked.serve(&["ext1", "upper"]);
}

/// Both carry packets of either family.
#[test]
fn a_client_behind_a_tunnel_is_led_once_wherever_programs_are() {
    for (kind, family) in [("sit", 0), ("ip6tnl", 1)] {
        let tunnel = |from: [IpAddr; 2], to: [IpAddr; 2]| {
            let (from, to) = (from[family], to[family]);
            format!("upper type {kind} mode any local {from} remote {to} dev LOWER")
        };
        let Some(stacked) = Stacked::build(kind, tunnel) else {
            continue;
        };
        stacked.serve(&["ext1", "upper"]);
    }
}

/// Where `WireGuard` listens.
const PORT: u16 = 51_820;

/// What `wg` answers.
fn wg(netns: &NetNs, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("wg");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    let mut child = process::fork(command).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "wg {arguments:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_client_behind_wireguard_is_led_once_wherever_programs_are() {
    if !requires::met(SUITE, &[Need::Device("wireguard"), Need::Tool("wg")]) {
        return;
    }
    let Some(stacked) = Stacked::build("wireguard", |_, _| "upper type wireguard".to_owned())
    else {
        return;
    };
    let sides = [
        stacked.shop.world.node().netns(),
        stacked.neighbour.host.netns(),
    ];
    let private = sides.map(|netns| wg(netns, &["genkey"], ""));
    let public = [0, 1].map(|side| wg(sides[side], &["pubkey"], &private[side]));
    let directory = tempfile::tempdir().unwrap();
    for (side, address) in [(0, "192.0.2.6"), (1, "192.0.2.5")] {
        let (port, file) = (PORT.to_string(), directory.path().join(side.to_string()));
        std::fs::write(&file, &private[side]).unwrap();
        let (file, endpoint) = (file.display().to_string(), format!("{address}:{port}"));
        let own = ["set", "upper", "listen-port", &port, "private-key", &file];
        let peer = ["peer", &public[1 - side], "allowed-ips", "0.0.0.0/0,::/0"];
        let arguments = [&own[..], &peer, &["endpoint", &endpoint]].concat();
        wg(sides[side], &arguments, "");
    }
    stacked.serve(&["ext1", "upper"]);
}
