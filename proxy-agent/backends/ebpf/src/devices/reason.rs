//! Why a device is served or not, in a few words for people.

use std::{fmt, net::IpAddr};

use super::{Choice, LinkLayer};
use crate::bypass::What;

/// What a device is served for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The operator named it.
    Named,
    /// It carries this address of the node.
    Carries(IpAddr),
    /// A default route goes out of it.
    DefaultRoute,
    /// A route with a gateway does.
    Gateway,
    /// It is an overlay or a tunnel, and a route goes out of it.
    Overlay,
    /// It was served before, and connections may be open.
    Before,
    /// Programs would bypass this: no connection begins any more, but some are open.
    Ending(What),
}

/// Why a device is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Not {
    /// What it sends stays on this host.
    Loopback,
    /// The administrator does not want it to work.
    Down,
    /// It leads nowhere.
    Dummy,
    /// Packets meet the devices in it.
    Vrf,
    /// The device of this name meets the same packets.
    PortOf(String),
    /// What its packets begin with is nothing that programs here read: `ARPHRD_…`.
    LinkLayer(u16),
    /// By its name it is a device of this load balancer.
    OthersDevice(&'static str),
    /// Another load balancer serves it.
    OthersProgram {
        /// Which.
        whose: &'static str,
        /// Its program there.
        program: String,
    },
    /// The operator named others.
    OthersNamed,
    /// Pods are behind it.
    Pods,
    /// No address of the node, no gateway, no overlay.
    NothingLeadsThere,
    /// Programs would bypass this.
    Bypasses(What),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => f.write_str("named by --devices"),
            Self::Carries(address) => write!(f, "carries {address}"),
            Self::DefaultRoute => f.write_str("a default route goes out of it"),
            Self::Gateway => f.write_str("a route with a gateway goes out of it"),
            Self::Overlay => f.write_str("an overlay with a route"),
            Self::Ending(what) => write!(f, "until its connections end, because {what}"),
            Self::Before => f.write_str("served before, and nothing leads out of it now"),
        }
    }
}

impl fmt::Display for Not {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Down => f.write_str("down"),
            Self::Dummy => f.write_str("leads nowhere (dummy)"),
            Self::Vrf => f.write_str("a VRF, whose devices are served"),
            Self::PortOf(master) => write!(f, "a port of {master}"),
            Self::LinkLayer(hardware) => {
                write!(
                    f,
                    "neither Ethernet nor plain IP (hardware type {hardware})"
                )
            }
            Self::OthersDevice(whose) => write!(f, "{whose}'s device"),
            Self::OthersProgram { whose, program } => write!(f, "{whose}'s {program} serves it"),
            Self::OthersNamed => f.write_str("not named by --devices"),
            Self::Pods => f.write_str("pods are behind it"),
            Self::Bypasses(what) => what.fmt(f),
            Self::NothingLeadsThere => {
                f.write_str("no address of the node, and no route to other hosts")
            }
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::None => "plain IP",
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { layer, why } => write!(f, "served ({layer}): {why}"),
            Self::Pods => f.write_str("serves pods, which see this node in the place of clients"),
            Self::Not(not) => write!(f, "not served: {not}"),
        }
    }
}
