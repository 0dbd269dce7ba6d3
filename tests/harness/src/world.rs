//! A throw-away node: network namespaces on one bridge, each with a cgroup of its own.
//!
//! ```text
//!  cgroup  culvert-test-…            <- attach the agent here
//!            ├── node                   processes of the node itself
//!            ├── pod-client             …and of each pod
//!            └── pod-endpoints
//!  network  node ── br0 ──┬── eth0 of client
//!                         └── eth0 of endpoints
//! ```
//!
//! Of a [routed](World::routed) one, pods know nobody but the node, and a [bare](World::bare) one has no
//! wire at all.
//!
//! All pods of the cluster are on one wire, whichever node they claim to be on: which node an
//! endpoint is on is a matter of the cluster objects, not of the network. There is no default
//! route, so an address that is nobody's (a ClusterIP that no agent translates) gives
//! `ENETUNREACH` at once.

mod neighbour;
mod routes;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result};

pub use self::neighbour::Neighbour;
pub(crate) use self::routes::on_wire;
use self::routes::{configure, route_through_node};
use crate::{
    cgroup::Cgroup,
    journey::tun::Tun,
    netns::NetNs,
    process::{self, Process},
};

/// The node's own addresses on its bridge.
pub const NODE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 244, 255, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0xffff, 0, 0, 0, 1)),
];

/// The way out of a node that its pods are routed through.
const UPLINK: &str = "uplink";

/// The group that the node's ends of its pods' wires are in.
const PODS: u32 = 1;

/// What makes a router of a node, one that lets its pods come to it about each other.
const FORWARDING: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/br0/send_redirects", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/br0/rp_filter", "0"),
];

/// What would have rules meet packets while they are still on the bridge, and send them back there:
/// to a pod that dials itself, never.
const BRIDGED: [&str; 2] = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"];

/// A node and the wire its pods hang on. Dropping it kills every process in it.
#[derive(Debug)]
pub struct World {
    node: Host,
    cgroup: Cgroup,
    extra: Vec<IpAddr>,
    pods: AtomicU32,
    /// The way out of a node that its pods are routed through; nobody is out there.
    uplink: Option<Tun>,
}

impl World {
    /// A node without pods. Pod addresses must lie in `10.244.0.0/16` and `fd00:10:244::/48`.
    pub fn new() -> Result<Self> {
        Self::reaching(&[])
    }

    /// Like [`World::new`], with further pod addresses, outside those prefixes, that every host
    /// has a route to.
    pub fn reaching(extra: &[IpAddr]) -> Result<Self> {
        Self::of(&[], extra)
    }

    /// Like [`World::reaching`], with a node that has the addresses `own` besides its usual ones.
    pub fn of(own: &[IpAddr], extra: &[IpAddr]) -> Result<Self> {
        let extra: Vec<_> = own
            .iter()
            .chain(extra)
            .copied()
            .filter(|address| !on_wire(*address))
            .collect();
        let world = Self::unwired(own, extra)?;
        let node = &world.node;
        // With an address of its own, as CNI plugins give it one. Otherwise it has the lowest one of its ports,
        // and with a new port the kernel drops what pods send to the one before, whoever serves.
        let mut script = String::from(
            "link set lo up\n\
             link add br0 address 02:00:00:00:00:01 type bridge forward_delay 0 mcast_snooping 0\n\
             link set br0 up\n",
        );
        configure(&mut script, "br0", &node.addresses, &world.extra);
        node.netns
            .ip(&script)
            .context("cannot configure the node")?;
        Ok(world)
    }

    /// A node with the addresses `own` besides its usual ones that has none of them yet, and no
    /// device but loopback: for those who give it devices of their own.
    pub fn bare(own: &[IpAddr]) -> Result<Self> {
        let world = Self::unwired(own, Vec::new())?;
        world
            .node
            .netns
            .ip("link set lo up\n")
            .context("cannot configure the node")?;
        Ok(world)
    }

    /// A node that everything passes through as packets: its pods know no other way, not even to each
    /// other. It has a way out, where nobody answers. `own` are addresses besides its usual ones.
    pub fn routed(own: &[IpAddr], extra: &[IpAddr]) -> Result<Self> {
        let mut world = Self::of(own, extra)?;
        world.node.netns.sysctls(FORWARDING)?;
        let uplink = world.node.netns.run(|| -> Result<Tun> {
            for name in BRIDGED {
                let path = format!("/proc/sys/net/bridge/{name}");
                // Absent where the kernel cannot do it at all.
                if Path::new(&path).exists() {
                    fs::write(&path, "0").with_context(|| format!("cannot set {path}"))?;
                }
            }
            Tun::new(UPLINK)
        });
        world.uplink = Some(uplink??);
        let [v4, v6] = NODE_ADDRESSES;
        world
            .node
            .netns
            .ip(&format!(
                "link set {UPLINK} up\n\
                 route add 0.0.0.0/0 dev {UPLINK} src {v4}\n\
                 route add ::/0 dev {UPLINK} src {v6}\n"
            ))
            .context("cannot configure the node's way out")?;
        Ok(world)
    }

    fn unwired(own: &[IpAddr], extra: Vec<IpAddr>) -> Result<Self> {
        let cgroup = Cgroup::new()?;
        let node = Host {
            name: "node".to_owned(),
            addresses: NODE_ADDRESSES.iter().chain(own).copied().collect(),
            netns: NetNs::new()?,
            cgroup: cgroup.child("node")?,
        };
        Ok(Self {
            node,
            cgroup,
            extra,
            pods: AtomicU32::new(0),
            uplink: None,
        })
    }

    /// The node itself, as a place to run processes that are in no pod.
    pub fn node(&self) -> &Host {
        &self.node
    }

    /// The cgroup of the node: what an agent's `--cgroup-path` is.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Adds a pod with these addresses. It goes away when the returned value is dropped.
    pub fn pod(&self, name: &str, addresses: &[IpAddr]) -> Result<Host> {
        let pod = Host {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            netns: NetNs::new()?,
            cgroup: self.cgroup.child(&format!("pod-{name}"))?,
        };
        let port = format!("pod{}", self.pods.fetch_add(1, Ordering::Relaxed));
        let peer = pod.netns.path();
        self.node
            .netns
            .ip(&format!(
                "link add {port} type veth peer name eth0 netns {peer}\n\
                 link set {port} master br0 up group {PODS}\n"
            ))
            .with_context(|| format!("cannot attach the pod {name}"))?;
        let mut script = String::from("link set lo up\nlink set eth0 up\n");
        if self.uplink.is_some() {
            route_through_node(&mut script, addresses);
        } else {
            configure(&mut script, "eth0", addresses, &self.extra);
        }
        pod.netns
            .ip(&script)
            .with_context(|| format!("cannot configure the pod {name}"))?;
        Ok(pod)
    }

    /// Cuts the wires of all pods, of which there must be one, and forgets who answered there. The wire
    /// of a pod that is dropped goes when the kernel finds the time, and others may have its addresses
    /// before.
    pub fn detach_pods(&self) -> Result<()> {
        let netns = &self.node.netns;
        netns
            .ip(&format!("link del group {PODS}\n"))
            .and_then(|()| netns.forget_neighbours("br0"))
            .context("cannot detach the pods")
    }

    /// A place on the node's network but outside its cgroup: no program attached to the node
    /// sees its sockets.
    pub fn outside(&self) -> Result<Place<'_>> {
        self.unseen(&self.node)
    }

    /// A place on the network of `host` that no program attached to the node sees: as in a virtual
    /// machine, only packets come from there.
    pub fn unseen<'a>(&self, host: &'a Host) -> Result<Place<'a>> {
        Ok(Place {
            netns: &host.netns,
            cgroup: self.cgroup.sibling()?,
        })
    }
}

/// The node or a pod: a network namespace and a cgroup.
#[derive(Debug)]
pub struct Host {
    name: String,
    addresses: Vec<IpAddr>,
    netns: NetNs,
    cgroup: Cgroup,
}

impl Host {
    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Its network namespace.
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Starts `command` in it.
    pub fn spawn(&self, command: Command) -> Result<Process> {
        self.spawn_in(&self.cgroup, command)
    }

    /// Starts `command` on its network but in `cgroup`.
    pub fn spawn_in(&self, cgroup: &Cgroup, command: Command) -> Result<Process> {
        spawn(command, &self.netns, cgroup, &self.name)
    }
}

/// A namespace and a cgroup that do not belong together.
#[derive(Debug)]
pub struct Place<'a> {
    netns: &'a NetNs,
    cgroup: Cgroup,
}

impl Place<'_> {
    /// Starts `command` in it.
    pub fn spawn(&self, command: Command) -> Result<Process> {
        spawn(command, self.netns, &self.cgroup, "no pod")
    }
}

fn spawn(mut command: Command, netns: &NetNs, cgroup: &Cgroup, place: &str) -> Result<Process> {
    let program = command.get_program().display().to_string();
    process::enter(&mut command, Some(netns.as_fd()), Some(cgroup.as_fd()))?;
    Process::spawn(&format!("{program} (in {place})"), command)
}
