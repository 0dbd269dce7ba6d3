//! Hosts outside the cluster, each on a wire of its own to the node, or behind a router that is. No
//! program attached to the node sees their sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};

use super::{Host, World};
use crate::netns::NetNs;

/// A host outside, and the node's device that it is behind.
#[derive(Debug)]
pub struct Neighbour {
    /// The host.
    pub host: Host,
    /// The node's end of its wire.
    pub device: String,
    /// The node's addresses there.
    pub node: [IpAddr; 2],
    /// Its own addresses.
    pub addresses: [IpAddr; 2],
    /// What is between, if anything is.
    _router: Option<NetNs>,
}

/// The two ends of a wire with this number, of each family.
fn ends(number: u8) -> [[IpAddr; 2]; 2] {
    [1, 2].map(|end| {
        [
            Ipv4Addr::new(192, 0, 2, number * 4 + end).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, number.into(), 0, 0, 0, end.into()).into(),
        ]
    })
}

/// The far side of a router, where a host is.
const BEHIND: [[IpAddr; 2]; 2] = [
    [
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 129)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1)),
    ],
    [
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 130)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2)),
    ],
];

impl World {
    /// Adds a host on a wire of its own; `number` is below 60 and tells it from others. The node's end is
    /// called `ext` and the number. The host sends everything to the node.
    pub fn neighbour(&self, number: u8) -> Result<Neighbour> {
        let [node, own] = ends(number);
        let (device, host) = self.wire(number, &format!("neighbour-{number}"), own)?;
        host.netns.ip(&up("eth0", own, Some(node)))?;
        self.node.netns.ip(&up(&device, node, None))?;
        Ok(Neighbour {
            host,
            device,
            node,
            addresses: own,
            _router: None,
        })
    }

    /// The same, behind a router whose wire to the host carries packets of so many bytes.
    pub fn neighbour_behind(&self, number: u8, mtu: u32) -> Result<Neighbour> {
        let [node, near] = ends(number);
        let [far, own] = BEHIND;
        let (device, router) = self.wire(number, "router", near)?;
        let host = Host {
            name: "behind".to_owned(),
            addresses: own.to_vec(),
            netns: NetNs::new()?,
            cgroup: self.cgroup.sibling()?,
        };
        let peer = host.netns.path();
        let forwarding = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
        router.netns.sysctls(&forwarding.map(|name| (name, "1")))?;
        router.netns.ip(&format!(
            "link add far mtu {mtu} type veth peer name eth0 netns {peer}\n"
        ))?;
        router.netns.ip(&up("eth0", near, Some(node)))?;
        router.netns.ip(&up("far", far, None))?;
        host.netns.ip(&up("eth0", own, Some(far)))?;
        // It takes larger ones, and says so: whoever answers must learn of the wire. It sends none,
        // as the far end of a veth drops them without a word, except while they are not segmented yet.
        for (far, segment) in far.into_iter().zip([1460, 1440]) {
            host.netns.ip(&format!(
                "route change default via {far} dev eth0 mtu {mtu} advmss {segment}\n"
            ))?;
        }
        self.node.netns.ip(&up(&device, node, None))?;
        for (own, near) in own.iter().zip(near) {
            let route = format!("route add {own} via {near}\n");
            self.node.netns.ip(&route)?;
        }
        Ok(Neighbour {
            host,
            device,
            node,
            addresses: own,
            _router: Some(router.netns),
        })
    }

    /// A host whose `eth0` is a wire to the node; nothing is configured.
    fn wire(&self, number: u8, name: &str, addresses: [IpAddr; 2]) -> Result<(String, Host)> {
        let host = Host {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            netns: NetNs::new()?,
            cgroup: self.cgroup.sibling()?,
        };
        let device = format!("ext{number}");
        let peer = host.netns.path();
        self.node
            .netns
            .ip(&format!(
                "link add {device} type veth peer name eth0 netns {peer}\n"
            ))
            .with_context(|| format!("cannot attach {name}"))?;
        Ok((device, host))
    }
}

/// Lines that give a device its addresses, and send everything to `gateway`.
fn up(device: &str, addresses: [IpAddr; 2], gateway: Option<[IpAddr; 2]>) -> String {
    let [v4, v6] = addresses;
    let mut script = format!(
        "link set lo up\naddr add {v4}/30 dev {device}\naddr add {v6}/64 dev {device} nodad\n\
         link set {device} up\n"
    );
    for gateway in gateway.into_iter().flatten() {
        let all = if gateway.is_ipv4() {
            "0.0.0.0/0"
        } else {
            "::/0"
        };
        script.extend(["route add ", all, " via ", &gateway.to_string(), "\n"]);
    }
    script
}
