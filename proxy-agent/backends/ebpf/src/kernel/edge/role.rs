//! What programs are on a device for, which ones, and how the next agent knows.

use proxy_netlink::route::{Direction, Link};

use super::super::{
    pins::{PinError, PinPath},
    tc::pinned::Note,
};
use crate::devices::{Choice, LinkLayer};

/// What programs are on a device for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Clients outside; packets begin with this.
    Outside(LinkLayer),
    /// Pods that see this node in their place.
    Pods,
}

impl Role {
    /// By what was decided about the device.
    pub fn of(choice: &Choice) -> Option<Self> {
        match choice {
            Choice::Served { layer, .. } => Some(Self::Outside(*layer)),
            Choice::Pods => Some(Self::Pods),
            Choice::Not(_) => None,
        }
    }

    /// The program for it.
    pub const fn program(self, direction: Direction) -> &'static str {
        match (self, direction) {
            (Self::Outside(LinkLayer::Ethernet), Direction::Ingress) => "culvert_eth_in",
            (Self::Outside(LinkLayer::Ethernet), Direction::Egress) => "culvert_eth_out",
            (Self::Outside(LinkLayer::None), Direction::Ingress) => "culvert_ip_in",
            (Self::Outside(LinkLayer::None), Direction::Egress) => "culvert_ip_out",
            (Self::Pods, Direction::Ingress) => "culvert_pod_in",
            (Self::Pods, Direction::Egress) => "culvert_pod_out",
        }
    }

    /// Has the next agent know it. Of which programs are on a device, the kernel tells only those who may look at
    /// all programs.
    pub fn note(self, device: u32, directory: &PinPath<'_>) -> Result<(), PinError> {
        match (self, Note::OfPods.is_there(directory, device)) {
            (Self::Pods, false) => Note::OfPods.make(directory, device),
            (Self::Outside(_), true) => Note::OfPods.forget(directory, device),
            _ => Ok(()),
        }
    }
}

/// The devices that an earlier agent served for pods.
pub fn of_earlier(links: &[Link], directory: &PinPath<'_>) -> Vec<(u32, Role)> {
    let links = links.iter().map(|link| link.index);
    let served = links.filter(|index| Note::OfPods.is_there(directory, *index));
    served.map(|index| (index, Role::Pods)).collect()
}
