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
            "nftables decides: ebpf meets calls",
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
