//! Which layer of a node decides about a packet, and why that one.

use proxy_model::{
    Device, NodeState,
    oracle::{Beneath, Layered, Packet, Path, Verdict, layered, taken_on_device, verdict},
};

use super::{InForce, rule};

/// What becomes of a packet on a node with certain layers.
pub(super) struct Decision {
    /// The path on which it is decided.
    pub(super) path: Path,
    /// What becomes of it.
    pub(super) verdict: Verdict,
    /// The layer that decides; `None` if there is none that meets it.
    pub(super) layer: Option<&'static str>,
    /// Why that one, for people; empty if there is no other.
    pub(super) why: String,
}

/// Decides as the layers that are `in_force` do.
pub(super) fn decide(
    state: &NodeState,
    packet: &Packet,
    path: Path,
    in_force: &InForce,
) -> Decision {
    let choice = &in_force.choice;
    let alone = |path, layer, why: String| Decision {
        path,
        verdict: verdict(state, packet, path),
        layer,
        why,
    };
    match (choice.above(), choice.beneath(), path) {
        (Some(above), Some(beneath), Path::Socket) => {
            let of = verdict(state, packet, Path::Socket).service;
            if of.is_some_and(|service| in_force.left.contains(&service)) {
                let why =
                    format!("{beneath} decides: {above} could not program this Service port.");
                return alone(Path::Packet, Some(beneath), why);
            }
            over(state, packet, above, beneath)
        }
        (Some(above), Some(beneath), Path::Packet) => {
            let (layer, why) = by_device(state, packet, [above, beneath], &in_force.devices);
            alone(path, Some(layer), why)
        }
        (Some(above), None, Path::Socket) => alone(path, Some(above), String::new()),
        (None, Some(beneath), Path::Socket) if !is_to_loopback(packet) => alone(
            Path::Packet,
            Some(beneath),
            format!("{beneath} decides: no layer meets calls of processes here, only packets."),
        ),
        (None, beneath, _) => alone(path, beneath, String::new()),
        (Some(above), None, Path::Packet) => {
            let is_taken = serves_any(&in_force.devices) && taken_on_device(state, packet).is_ok();
            alone(path, is_taken.then_some(above), String::new())
        }
    }
}

/// Which of the two layers decides about a packet, by the device that it comes in by, and why.
fn by_device(
    state: &NodeState,
    packet: &Packet,
    [above, beneath]: [&'static str; 2],
    devices: &[Device],
) -> (&'static str, String) {
    if !serves_any(devices) {
        let why = format!(
            "{beneath} decides: {above} meets calls of this node's processes, and serves no device."
        );
        return (beneath, why);
    }
    if let Err(passed) = taken_on_device(state, packet) {
        let reason = passed.as_str();
        let why = format!("{beneath} decides: {above} passes the packet on: {reason}.");
        return (beneath, why);
    }
    let Some(interface) = &packet.interface else {
        let served = devices.iter().filter(|device| device.is_served);
        let names: Vec<_> = served.map(|device| &*device.name).collect();
        let why = format!(
            "{above} decides if the packet comes in by {}, {beneath} otherwise.",
            names.join(" or ")
        );
        return (above, why);
    };
    let device = devices.iter().find(|device| device.name == **interface);
    match device {
        Some(device) if device.is_served => (
            above,
            format!("{above} decides: its programs are on {interface}."),
        ),
        Some(device) => (
            beneath,
            format!("{beneath} decides: {interface} is {}.", device.reason),
        ),
        None => (
            beneath,
            format!("{beneath} decides: {above} knows no device {interface}."),
        ),
    }
}

fn serves_any(devices: &[Device]) -> bool {
    devices.iter().any(|device| device.is_served)
}

/// Only calls lead to NodePorts on loopback addresses: what is lacking there is said of them.
fn is_to_loopback(packet: &Packet) -> bool {
    let to = packet.destination.ip();
    to.is_loopback() || to.is_unspecified()
}

fn over(
    state: &NodeState,
    packet: &Packet,
    above: &'static str,
    beneath: &'static str,
) -> Decision {
    let all = layered(state, packet);
    let verdict = all.verdict();
    let Layered {
        above: first,
        beneath: next,
    } = &all;
    let (path, layer, why) = match next {
        Beneath::Nothing => (
            Path::Socket,
            above,
            format!(
                "{above} decides in the call; {beneath} meets packets that are for no Service any more."
            ),
        ),
        Beneath::Decides(_) => {
            let rule = rule::of(state, packet, Path::Socket, first);
            let why = format!("{beneath} decides: {above} leaves the call alone: {rule}");
            (Path::Packet, beneath, why)
        }
        Beneath::Again(again) => {
            let addresses: Vec<_> = again
                .iter()
                .map(|(target, _)| target.address.to_string())
                .collect();
            let why = format!(
                "{above} decides in the call; {beneath} translates again what it leads to {}, where \
                 another Service is.",
                addresses.join(", ")
            );
            (Path::Socket, above, why)
        }
    };
    Decision {
        path,
        verdict,
        layer: Some(layer),
        why,
    }
}
