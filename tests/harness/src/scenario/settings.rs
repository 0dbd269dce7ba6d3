//! The `settings` section: which node a scenario is about, and how the node treats sources.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use proxy_model::{ClusterEvent, IpNet, NodePortSelection, oracle::Detector};

use crate::world::NODE_ADDRESSES;

/// What there is to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node whose state it is about, and how it is configured.
    pub model: proxy_model::Settings,
    /// Addresses of the node's interfaces, besides those that every node of a test has.
    pub node_addresses: Vec<IpAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: proxy_model::Settings::from("node-a"),
            node_addresses: Vec::new(),
        }
    }
}

impl Settings {
    /// Understands the lines of the section.
    pub(super) fn parse(body: &str) -> Result<Self> {
        let mut settings = Self::default();
        for line in body
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            settings
                .set(line)
                .with_context(|| format!("setting {line:?}"))?;
        }
        Ok(settings)
    }

    /// What the node tells of itself before any object: the addresses of its interfaces.
    pub fn host_addresses(&self) -> ClusterEvent {
        let loopback = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let own = loopback.into_iter().chain(NODE_ADDRESSES);
        ClusterEvent::HostAddresses(own.chain(self.node_addresses.iter().copied()).collect())
    }

    /// The flags of `proxy-agent run` that configure a node so; kube-proxy has them, too.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut flag = |name: &str, value: &str| arguments.push(format!("--{name}={value}"));
        match &self.model.node_ports {
            NodePortSelection::All => {}
            NodePortSelection::Primary => flag("nodeport-addresses", "primary"),
            NodePortSelection::Cidrs(cidrs) => flag("nodeport-addresses", &list(cidrs)),
        }
        if !self.model.localhost_node_ports {
            flag("iptables-localhost-nodeports", "false");
        }
        if self.model.traffic.masquerade_all {
            flag("masquerade-all", "true");
        }
        match &self.model.traffic.detector {
            Detector::None => {}
            Detector::ClusterCidr(cidrs) => {
                flag("detect-local-mode", "ClusterCIDR");
                flag("cluster-cidr", &list(cidrs));
            }
            Detector::NodeCidr => flag("detect-local-mode", "NodeCIDR"),
            Detector::BridgeInterface(name) => {
                flag("detect-local-mode", "BridgeInterface");
                flag("pod-bridge-interface", name);
            }
            Detector::InterfaceNamePrefix(prefix) => {
                flag("detect-local-mode", "InterfaceNamePrefix");
                flag("pod-interface-name-prefix", prefix);
            }
        }
        arguments
    }

    fn set(&mut self, line: &str) -> Result<()> {
        match line
            .split_once(':')
            .map(|(name, value)| (name, value.trim()))
        {
            Some(("node-name", name)) => self.model.node = name.into(),
            Some(("node-addresses", list)) => {
                let addresses: Result<_, _> = list.split(',').map(str::parse).collect();
                self.node_addresses =
                    addresses.with_context(|| format!("{list:?} is no list of addresses"))?;
            }
            Some(("detect-local", mode)) => self.model.traffic.detector = detector(mode)?,
            Some(("masquerade-all", value)) => self.model.traffic.masquerade_all = switch(value)?,
            Some(("node-port-addresses", "primary")) => {
                self.model.node_ports = NodePortSelection::Primary;
            }
            Some(("node-port-addresses", list)) => {
                self.model.node_ports = NodePortSelection::Cidrs(cidrs(list)?);
            }
            Some(("localhost-node-ports", value)) => {
                self.model.localhost_node_ports = switch(value)?;
            }
            _ => bail!(
                "no setting; there are: `node-name: NAME`, `node-addresses: IP,…`, \
                 `node-port-addresses: primary|CIDR,…`, `localhost-node-ports: false`, \
                 `detect-local: MODE [VALUE]`, `masquerade-all: true`"
            ),
        }
        Ok(())
    }
}

fn switch(value: &str) -> Result<bool> {
    value.parse().context("write true or false")
}

fn list(cidrs: &[IpNet]) -> String {
    let cidrs: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
    cidrs.join(",")
}

fn cidrs(list: &str) -> Result<Vec<IpNet>> {
    let cidrs: Result<Vec<IpNet>, _> = list.split(',').map(str::parse).collect();
    cidrs.with_context(|| format!("{list:?} is no list of CIDRs"))
}

fn detector(text: &str) -> Result<Detector> {
    let (mode, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = value.trim();
    let name = || -> Arc<str> { value.into() };
    Ok(match mode {
        "none" => Detector::None,
        "ClusterCIDR" => Detector::ClusterCidr(cidrs(value)?),
        "NodeCIDR" => Detector::NodeCidr,
        "BridgeInterface" => Detector::BridgeInterface(name()),
        "InterfaceNamePrefix" => Detector::InterfaceNamePrefix(name()),
        _ => bail!(
            "{mode:?} is no mode; there are: none, ClusterCIDR CIDR,…, NodeCIDR, \
             BridgeInterface NAME, InterfaceNamePrefix PREFIX"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let body = "node-name: node-b\ndetect-local: ClusterCIDR 10.244.0.0/16,fd00::/48\n\
                    masquerade-all: true\nlocalhost-node-ports: false\n\
                    node-addresses: 192.0.2.9,fd00::9\nnode-port-addresses: primary\n";
        let settings = Settings::parse(body).unwrap();
        assert_eq!(&*settings.model.node, "node-b");
        assert!(settings.model.traffic.masquerade_all);
        assert!(!settings.model.localhost_node_ports);
        assert_eq!(settings.model.node_ports, NodePortSelection::Primary);
        assert_eq!(settings.node_addresses.len(), 2);
        let cidrs = ["10.244.0.0/16", "fd00::/48"].map(|cidr| cidr.parse().unwrap());
        assert_eq!(
            settings.model.traffic.detector,
            Detector::ClusterCidr(cidrs.into())
        );
        assert_eq!(
            settings.arguments(),
            [
                "--nodeport-addresses=primary",
                "--iptables-localhost-nodeports=false",
                "--masquerade-all=true",
                "--detect-local-mode=ClusterCIDR",
                "--cluster-cidr=10.244.0.0/16,fd00::/48",
            ]
        );
        assert!(Settings::default().arguments().is_empty());
        for (body, part) in [
            ("zone: a", "no setting"),
            ("detect-local: Magic", "no mode"),
            ("detect-local: ClusterCIDR 10.244", "no list of CIDRs"),
            ("masquerade-all: maybe", "true or false"),
            ("node-addresses: here", "no list of addresses"),
            ("node-port-addresses: all", "no list of CIDRs"),
        ] {
            let error = format!("{:#}", Settings::parse(body).unwrap_err());
            assert!(error.contains(part) && error.contains(body), "{error}");
        }
    }
}
