//! Which layer of a node decides about a packet, and why that one.

use proxy_model::{
    Device, NodeState,
    oracle::{
        Beneath, Layered, Packet, PassedOn, Path, Taken, Verdict, layered, taken_on_device, verdict,
    },
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
            let (taken, why) = by_device(state, packet, [above, beneath], &in_force.devices);
            match taken {
                Some(taken) => Decision {
                    path,
                    verdict: taken.verdict,
                    layer: Some(above),
                    why,
                },
                None => alone(path, Some(beneath), why),
            }
        }
        (Some(above), None, Path::Socket) => alone(path, Some(above), String::new()),
        (None, Some(beneath), Path::Socket) if !is_to_loopback(packet) => alone(
            Path::Packet,
            Some(beneath),
            format!("{beneath} decides: no layer meets calls of processes here, only packets."),
        ),
        (None, beneath, _) => alone(path, beneath, String::new()),
        (Some(above), None, Path::Packet) => {
            let served = serves_any(&in_force.devices);
            match taken(state, packet, &in_force.devices) {
                Ok(taken) if served => {
                    let (unless, beyond) = (unless(&taken, "no layer"), beyond(&taken, "no layer"));
                    let why = match &*unless {
                        "" => beyond.trim_start().to_owned(),
                        unless => format!("{above} decides{unless}.{beyond}"),
                    };
                    Decision {
                        path,
                        verdict: taken.verdict,
                        layer: Some(above),
                        why,
                    }
                }
                _ => alone(path, None, String::new()),
            }
        }
    }
}

/// Whether programs on devices take a packet, as they are told to.
fn taken(state: &NodeState, packet: &Packet, devices: &[Device]) -> Result<Taken, PassedOn> {
    let mut served = devices.iter().filter(|device| device.is_served);
    taken_on_device(state, packet, served.any(|device| device.keeps_clients))
}

/// What is said where programs on devices lead to some endpoints only; `other` decides of the rest.
fn unless(taken: &Taken, other: &str) -> String {
    if taken.whatever_is_chosen() {
        return String::new();
    }
    format!(" unless it chooses the client itself, {other} then")
}

/// What is said where endpoints see this node: that takes a device that is served.
fn beyond(taken: &Taken, other: &str) -> String {
    let targets = taken.verdict.targets.iter().zip(&taken.leads_to);
    let mut elsewhere = targets.filter(|(target, leads)| **leads && target.masquerade.is_some());
    if elsewhere.next().is_none() {
        return String::new();
    }
    format!(
        " It leads to endpoints that see this node by devices that it serves; {other} decides about the \
         rest."
    )
}

/// What becomes of a packet that the layer above takes, by the device that it comes in by; and why that
/// layer decides, or the one beneath.
fn by_device(
    state: &NodeState,
    packet: &Packet,
    [above, beneath]: [&'static str; 2],
    devices: &[Device],
) -> (Option<Taken>, String) {
    if !serves_any(devices) {
        let why = format!(
            "{beneath} decides: {above} meets calls of this node's processes, and serves no device."
        );
        return (None, why);
    }
    let taken = match taken(state, packet, devices) {
        Ok(taken) => taken,
        Err(passed) => {
            let reason = passed.as_str();
            let why = format!("{beneath} decides: {above} passes the packet on: {reason}.");
            return (None, why);
        }
    };
    let (unless, beyond) = (unless(&taken, beneath), beyond(&taken, beneath));
    let Some(interface) = &packet.interface else {
        let served = devices.iter().filter(|device| device.is_served);
        let names: Vec<_> = served.map(|device| &*device.name).collect();
        let why = format!(
            "{above} decides if the packet comes in by {}, {beneath} otherwise.",
            names.join(" or ")
        );
        let why = match &*unless {
            "" => why,
            unless => format!("{why} {above} decides{unless}."),
        };
        return (Some(taken), why + &beyond);
    };
    let device = devices.iter().find(|device| device.name == **interface);
    match device {
        Some(device) if device.is_served => (
            Some(taken),
            format!("{above} decides{unless}: its programs are on {interface}.{beyond}"),
        ),
        Some(device) => (
            None,
            format!("{beneath} decides: {interface} is {}.", device.reason),
        ),
        None => (
            None,
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
