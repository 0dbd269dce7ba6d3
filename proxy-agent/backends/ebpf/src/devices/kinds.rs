//! What kinds of devices there are, and whose they are by their names and those of their programs.

use proxy_netlink::route::{
    Link,
    numbers::{
        ARPHRD_ETHER, ARPHRD_IP6GRE, ARPHRD_IPGRE, ARPHRD_NONE, ARPHRD_PPP, ARPHRD_RAWIP,
        ARPHRD_SIT, ARPHRD_TUNNEL, ARPHRD_TUNNEL6,
    },
};

/// What the packets of a device begin with, as programs on it see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkLayer {
    /// An Ethernet header.
    Ethernet,
    /// The IP header.
    None,
}

/// By `ARPHRD_ETHER` and its like; `None` for what the programs cannot read.
pub fn layer(hardware: u16) -> Option<LinkLayer> {
    match hardware {
        ARPHRD_ETHER => Some(LinkLayer::Ethernet),
        ARPHRD_NONE | ARPHRD_RAWIP | ARPHRD_PPP | ARPHRD_TUNNEL | ARPHRD_TUNNEL6 | ARPHRD_SIT
        | ARPHRD_IPGRE | ARPHRD_IP6GRE => Some(LinkLayer::None),
        _ => None,
    }
}

/// What being under a master means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The master meets the same packets, or decides itself where they go: a bridge, a bond, a team,
    /// Open vSwitch, or whatever else it is.
    SameAsMaster,
    /// The master only chooses a table of routes.
    InVrf,
}

/// By the kind of the master.
pub fn port(master: Option<&str>) -> Port {
    match master {
        Some("vrf") => Port::InVrf,
        _ => Port::SameAsMaster,
    }
}

/// Kinds of devices whose packets travel in others.
const OVERLAYS: [&str; 17] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "ppp",
    "sit",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "xfrm",
];

/// Whether packets of a device travel in others, to hosts elsewhere. Of devices that are a program's
/// (`tun`), those without Ethernet are: the others are for virtual machines.
pub fn is_overlay(link: &Link) -> bool {
    match link.kind.as_deref() {
        Some("tun") => layer(link.hardware) == Some(LinkLayer::None),
        Some(kind) => OVERLAYS.contains(&kind),
        None => false,
    }
}

/// What the names of devices begin with that other load balancers serve.
const DEVICES: [(&str, &str); 3] = [("cilium_", "Cilium"), ("lxc", "Cilium"), ("cali", "Calico")];

/// What the names of their programs begin with.
const PROGRAMS: [(&str, &str); 3] = [
    ("cil_", "Cilium"),
    ("calico_tc", "Calico"),
    ("cali_tc", "Calico"),
];

/// Which load balancer serves a device of this name.
pub fn balancer_of_device(name: &str) -> Option<&'static str> {
    whose(&DEVICES, name)
}

/// Which load balancer a program of this name belongs to.
pub fn balancer_of_program(name: &str) -> Option<&'static str> {
    whose(&PROGRAMS, name)
}

fn whose(known: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let mut known = known.iter();
    let (_, whose) = known.find(|(begins, _)| name.starts_with(begins))?;
    Some(whose)
}
