//! The `settings` section: which node a scenario is about, and how the node treats sources.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use proxy_model::{
    IpNet,
    oracle::{Detector, Traffic},
};

/// What there is to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node whose state it is about.
    pub node_name: String,
    /// How sources are told apart and masqueraded; decides about the `packets` sections.
    pub traffic: Traffic,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: "node-a".to_owned(),
            traffic: Traffic::default(),
        }
    }
}

impl Settings {
    /// Understands the lines of the section.
    pub(super) fn parse(body: &str) -> Result<Self> {
        let mut settings = Self::default();
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            settings
                .set(line)
                .with_context(|| format!("setting {line:?}"))?;
        }
        Ok(settings)
    }

    fn set(&mut self, line: &str) -> Result<()> {
        match line
            .split_once(':')
            .map(|(name, value)| (name, value.trim()))
        {
            Some(("node-name", name)) => name.clone_into(&mut self.node_name),
            Some(("detect-local", mode)) => self.traffic.detector = detector(mode)?,
            Some(("masquerade-all", value)) => {
                self.traffic.masquerade_all = value.parse().context("write true or false")?;
            }
            _ => bail!(
                "no setting; there are: `node-name: NAME`, `detect-local: MODE [VALUE]`, \
                 `masquerade-all: true`"
            ),
        }
        Ok(())
    }
}

fn detector(text: &str) -> Result<Detector> {
    let (mode, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = value.trim();
    let name = || -> Arc<str> { value.into() };
    Ok(match mode {
        "none" => Detector::None,
        "ClusterCIDR" => {
            let cidrs: Result<Vec<IpNet>, _> = value.split(',').map(str::parse).collect();
            Detector::ClusterCidr(cidrs.with_context(|| format!("{value:?} is no list of CIDRs"))?)
        }
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
                    masquerade-all: true\n";
        let settings = Settings::parse(body).unwrap();
        assert_eq!(settings.node_name, "node-b");
        assert!(settings.traffic.masquerade_all);
        let cidrs = ["10.244.0.0/16", "fd00::/48"].map(|cidr| cidr.parse().unwrap());
        assert_eq!(
            settings.traffic.detector,
            Detector::ClusterCidr(cidrs.into())
        );
        for (body, part) in [
            ("zone: a", "no setting"),
            ("detect-local: Magic", "no mode"),
            ("detect-local: ClusterCIDR 10.244", "no list of CIDRs"),
            ("masquerade-all: maybe", "true or false"),
        ] {
            let error = format!("{:#}", Settings::parse(body).unwrap_err());
            assert!(error.contains(part) && error.contains(body), "{error}");
        }
    }
}
