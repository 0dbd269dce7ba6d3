//! Which layer decides, by what is in force.

use super::*;

#[test]
fn an_agent_says_which_layer_decides_and_why() {
    let model = model(&Traffic::default());
    let layers = choice::fixtures::layered();
    let beneath = Choice {
        layers: vec!["nftables"],
        ..choice::fixtures::layered()
    };
    for (to, path, choice, layer, part) in [
        (
            "10.96.0.1:80/tcp",
            Path::Socket,
            &layers,
            Some("ebpf"),
            "ebpf decides in the call",
        ),
        (
            "10.96.0.1:80/tcp",
            Path::Packet,
            &layers,
            Some("nftables"),
            "nftables decides: ebpf meets calls of this node's processes, and serves no device",
        ),
        (
            "198.51.100.7:80/tcp",
            Path::Socket,
            &layers,
            Some("nftables"),
            "nftables decides: ebpf leaves the call alone: loadBalancerSourceRanges",
        ),
        (
            "10.96.0.1:81/tcp",
            Path::Socket,
            &layers,
            Some("nftables"),
            "nftables decides: ebpf leaves the call alone: no Service",
        ),
        (
            "10.96.0.1:80/tcp",
            Path::Socket,
            &beneath,
            Some("nftables"),
            "nftables decides: no layer meets calls",
        ),
        (
            "10.96.0.1:80/tcp",
            Path::Packet,
            &choice::fixtures::lacking(&[]),
            None,
            "",
        ),
    ] {
        let packet = packet("10.244.0.9", to, None).unwrap();
        let told = explain_served(&model, &packet, path, &choice.clone().into());
        assert_eq!(told.answer.layer.as_deref(), layer, "{to} {path:?}");
        assert!(told.story.contains(part), "{}", told.story);
        let several = told.story.contains("\nLayers: ");
        assert_eq!(several, !part.is_empty(), "{}", told.story);
    }
}

#[test]
fn what_the_layer_above_could_not_program_is_decided_beneath_and_troubles_are_told() {
    let model = model(&Traffic::default());
    let packet = packet("10.244.0.9", "10.96.0.1:80/tcp", None).unwrap();
    let mut in_force = InForce::from(choice::fixtures::layered());
    in_force.left = model.state().services.keys().cloned().collect();
    in_force.troubles = "\nlayer ebpf: SLOTS is full".to_owned();
    let told = explain_served(&model, &packet, Path::Socket, &in_force);
    assert_eq!(told.answer.layer.as_deref(), Some("nftables"));
    let part = "Layers: nftables decides: ebpf could not program this Service port.\n";
    assert!(told.story.contains(part), "{}", told.story);
    assert!(
        told.story.ends_with("\nlayer ebpf: SLOTS is full\n"),
        "{}",
        told.story
    );
}

#[test]
fn of_packets_the_device_decides() {
    let model = Model::after(
        settings(&Traffic::default()),
        cluster().into_iter().chain(balanced_on("node-a")),
    );
    let ask = |from: &str, interface: Option<&str>, devices: &[(&str, bool, &str)]| {
        let packet = packet(from, "198.51.100.9:80/tcp", interface).unwrap();
        let mut in_force = InForce::from(choice::fixtures::layered());
        let devices = devices.iter().map(|(name, is_served, reason)| Device {
            name: (*name).to_owned(),
            is_served: *is_served,
            keeps_clients: false,
            reason: (*reason).to_owned(),
        });
        in_force.devices = devices.collect();
        let told = explain_served(&model, &packet, Path::Packet, &in_force);
        (told.answer.layer, told.story)
    };
    let devices = &[
        ("eth0", true, "served"),
        ("eth1", true, "served"),
        ("eth2", false, "not served: a firewall"),
    ];
    let client = "192.0.2.99";
    for (from, interface, devices, layer, part) in [
        (
            client,
            None,
            &devices[..],
            "ebpf",
            "if the packet comes in by eth0 or eth1, nftables otherwise",
        ),
        (
            client,
            Some("eth1"),
            devices,
            "ebpf",
            "ebpf decides: its programs are on eth1",
        ),
        (
            client,
            Some("eth2"),
            devices,
            "nftables",
            "nftables decides: eth2 is not served: a firewall",
        ),
        (
            client,
            Some("eth9"),
            devices,
            "nftables",
            "ebpf knows no device eth9",
        ),
        (
            client,
            Some("eth0"),
            &devices[2..],
            "nftables",
            "and serves no device",
        ),
        (
            "192.0.2.1",
            None,
            devices,
            "nftables",
            "passes the packet on: it comes from this node",
        ),
    ] {
        let (decides, story) = ask(from, interface, devices);
        assert_eq!(decides.as_deref(), Some(layer), "{interface:?}: {story}");
        assert!(story.contains(part), "{story}");
    }
}

#[test]
fn where_clients_keep_their_address_the_endpoint_decides_too() {
    // One endpoint of shop/web is on this node, and one is not.
    let model = model(&Traffic {
        detector: Detector::NodeCidr,
        ..Traffic::default()
    });
    let device = |keeps_clients| Device {
        name: "eth0".to_owned(),
        is_served: true,
        keeps_clients,
        reason: "served".to_owned(),
    };
    for (choice, keeps, interface, layer, part, source) in [
        (
            choice::fixtures::layered(),
            false,
            Some("eth0"),
            Some("ebpf"),
            "ebpf decides: its programs are on eth0. It leads to endpoints that see this node by devices that it serves; \
             nftables decides about the rest.",
            "becomes this node: 192.0.2.99",
        ),
        (
            choice::fixtures::layered(),
            true,
            Some("eth0"),
            Some("ebpf"),
            "ebpf decides: its programs are on eth0. It leads to endpoints that see this node by devices that it serves; \
             nftables decides about the rest.",
            "is kept for endpoints on this node, and becomes this node for others.",
        ),
        (
            choice::fixtures::layered(),
            true,
            None,
            Some("ebpf"),
            "by eth0, nftables otherwise. It leads to endpoints that see this node by devices that it serves; nftables \
             decides about the rest.",
            "is kept for endpoints on this node, and becomes this node for others.",
        ),
        (
            choice::fixtures::lacking(&[]),
            true,
            None,
            Some("ebpf"),
            "It leads to endpoints that see this node by devices that it serves; no layer decides about the rest.",
            "is kept for endpoints on this node, and becomes this node for others.",
        ),
    ] {
        let packet = packet("192.0.2.99", "10.96.0.1:80/tcp", interface).unwrap();
        let mut in_force = InForce::from(choice);
        in_force.devices = vec![device(keeps)];
        let told = explain_served(&model, &packet, Path::Packet, &in_force);
        assert_eq!(told.answer.layer.as_deref(), layer, "{}", told.story);
        assert!(told.story.contains(part), "{}", told.story);
        let source = format!("\nSource: {source}");
        assert!(told.story.contains(&source), "{}", told.story);
        let endpoints = told.answer.endpoints.iter();
        let masqueraded: Vec<_> = endpoints.map(|one| one.masquerade).collect();
        assert_eq!(masqueraded, [!keeps, true]);
    }
}
