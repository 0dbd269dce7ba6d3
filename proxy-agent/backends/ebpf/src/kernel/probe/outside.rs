//! Whether programs on devices can serve clients outside, and on which.

use proxy_backend::Requirement;
use proxy_common::names::EDGE_PROGRAMS;

use super::requirement;
use crate::{
    bypass::Bypass,
    devices::Device,
    flags::Tc,
    kernel::{
        EbpfOptions,
        edge::{self, Bypasses},
        error::with_causes,
    },
};

/// What was found of programs on devices.
pub(super) struct Found {
    /// None of them keeps the backend from serving: clients outside are served otherwise, or that is lacking.
    pub(super) requirements: [Requirement; 3],
    /// Whether every device is served that clients outside may come in by, and there is one.
    pub(super) serves_clients: bool,
}

pub(super) fn outside(options: &EbpfOptions) -> Found {
    let loaded = edge::try_load(&options.map_sizes);
    let is_loaded = loaded.is_ok();
    let programs = requirement(
        "programs on devices",
        "they send clients outside to endpoints, where they load",
        loaded
            .map(|()| format!("all {} load", EDGE_PROGRAMS.len()))
            .map_err(|error| with_causes(&error)),
    );
    let bypasses = Bypasses::default().known();
    let is_heeded = options.tc == Tc::Auto;
    let devices = edge::survey(&options.devices, if is_heeded { &bypasses } else { &[] });
    let serves_clients = is_loaded && devices.as_ref().is_ok_and(|devices| are_served(devices));
    let devices = requirement(
        "devices",
        "those that clients outside come in by",
        devices
            .map(|devices| told(&devices))
            .map_err(|error| format!("asking the kernel for its devices: {error}")),
    );
    let requirements = [programs, bypassed(&bypasses), devices].map(|one| Requirement {
        required: false,
        ..one
    });
    Found {
        requirements,
        serves_clients,
    }
}

fn are_served(devices: &[Device]) -> bool {
    devices.iter().any(|device| device.served().is_some())
        && !devices.iter().any(|device| device.choice.is_missed())
}

/// What becomes of each device that clients may come in by.
fn told(devices: &[Device]) -> String {
    let matters = |device: &&Device| device.served().is_some() || device.choice.is_missed();
    let told = devices.iter().filter(matters);
    let told: Vec<_> = told
        .map(|device| format!("{} {}", device.name, device.choice))
        .collect();
    if told.is_empty() {
        "none, unless one carries an address of the Node object".to_owned()
    } else {
        told.join("; ")
    }
}

fn bypassed(bypasses: &[Bypass]) -> Requirement {
    let all: Vec<_> = bypasses
        .iter()
        .map(|bypass| match &bypass.device {
            Some(device) => format!("{} (of {device})", bypass.what),
            None => bypass.what.to_string(),
        })
        .collect();
    requirement(
        "bypassed rules",
        "programs on devices translate before netfilter, so a rule that goes by the address of a \
         Service would not see it",
        if all.is_empty() {
            Ok("none".to_owned())
        } else {
            Err(format!(
                "{}; with --tc=auto the layer beneath serves there",
                all.join(", ")
            ))
        },
    )
}
