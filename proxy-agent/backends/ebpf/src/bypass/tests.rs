//! Rules as values, and what is said about them. That real ones are read as such is shown where there
//! is a kernel: suite `edge`.

use proptest::prelude::*;

use super::{
    Chain, Effect, Rule, Rules,
    entries::{self, IPV4, IPV6},
    find,
};
use crate::{
    devices::{Choice, Device, LinkLayer, Why, spare},
    pattern::Pattern,
};

fn chain(name: &str, rules: Vec<Rule>) -> Chain {
    Chain {
        name: name.to_owned(),
        rules,
        ..Chain::default()
    }
}

fn early(name: &str, rules: Vec<Rule>) -> Chain {
    Chain {
        is_early: true,
        ..chain(name, rules)
    }
}

fn does(effect: Effect) -> Rule {
    Rule {
        effects: vec![effect],
        ..Rule::default()
    }
}

fn to(chain: &str) -> Rule {
    Rule {
        leads: Some(chain.to_owned()),
        ..Rule::default()
    }
}

fn asks() -> Rule {
    Rule {
        asks: true,
        ..Rule::default()
    }
}

fn by(device: &str, rule: Rule) -> Rule {
    Rule {
        device: Some(Pattern::exactly(device)),
        ..rule
    }
}

/// What is found in one table, each as a line.
fn said(chains: Vec<Chain>) -> Vec<String> {
    let place = "table inet t".to_owned();
    let found = find(&[Rules { place, chains }]);
    let said = found.iter().map(|one| match &one.device {
        Some(device) => format!("{device}: {}", one.what),
        None => one.what.to_string(),
    });
    said.collect()
}

#[test]
fn only_what_packets_meet_before_their_destination_is_translated_counts() {
    let chains = vec![
        early("first", vec![to("next"), to("next")]),
        chain("next", vec![does(Effect::Drops), does(Effect::Marks)]),
        chain("forward", vec![does(Effect::Drops), to("late")]),
        chain("late", vec![does(Effect::Diverts)]),
    ];
    assert_eq!(
        said(chains),
        [
            "table inet t, chain next drops packets before their destination is translated",
            "table inet t, chain next marks packets before their destination is translated",
        ]
    );
}

#[test]
fn a_chain_that_drops_at_its_end_counts() {
    let mut first = early("first", vec![to("nowhere")]);
    first.drops = true;
    first.devices = vec![Pattern::exactly("eth0"), Pattern::exactly("eth1")];
    let drops = "table inet t, chain first drops packets before their destination is translated";
    assert_eq!(
        said(vec![first]),
        [format!("eth0: {drops}"), format!("eth1: {drops}")]
    );
}

#[test]
fn the_device_of_a_rule_holds_for_all_that_it_leads_to() {
    let chains = vec![
        early("first", vec![by("eth0", to("next")), to("loop")]),
        chain("next", vec![does(Effect::Drops), by("eth1", to("loop"))]),
        chain("loop", vec![to("loop"), does(Effect::ByMap)]),
    ];
    let ends = "before their destination is translated";
    assert_eq!(
        said(chains),
        [
            format!("eth0: table inet t, chain next drops packets {ends}"),
            format!("eth1: table inet t, chain loop decides by a map {ends}"),
            format!("table inet t, chain loop decides by a map {ends}"),
        ]
    );
}

#[test]
fn who_asks_for_the_translation_counts_wherever_it_does() {
    let chains = vec![
        chain("filter_FORWARD", vec![asks(), asks()]),
        chain("KUBE-FIREWALL", vec![asks()]),
        chain("cali-OUTPUT", vec![asks()]),
        chain("DOCKER-USER", vec![by("eth0", asks())]),
    ];
    let goes = "goes by how conntrack translated the destination";
    assert_eq!(
        said(chains),
        [
            format!("table inet t, chain filter_FORWARD {goes}"),
            format!("eth0: table inet t, chain DOCKER-USER {goes}"),
        ]
    );
}

#[test]
fn of_calicos_chains_only_the_policies_of_host_endpoints_count() {
    let usual = |policies: Vec<Rule>| {
        vec![
            early("PREROUTING", vec![to("cali-PREROUTING")]),
            chain(
                "cali-PREROUTING",
                vec![does(Effect::Marks), to("cali-from-host-endpoint")],
            ),
            chain("cali-from-host-endpoint", policies),
            chain("cali-fh-eth0", vec![does(Effect::Marks)]),
        ]
    };
    assert_eq!(said(usual(vec![])), [""; 0]);
    assert_eq!(
        said(usual(vec![by("eth0", to("cali-fh-eth0"))])),
        [
            "eth0: table inet t, chain cali-from-host-endpoint drops packets before their \
             destination is translated"
        ]
    );
}

#[test]
fn a_device_is_left_alone_where_a_rule_is_about_it() {
    let found = |chains| {
        find(&[Rules {
            place: "table inet t".to_owned(),
            chains,
        }])
    };
    let bypasses = found(vec![early("first", vec![by("eth0", does(Effect::Drops))])]);
    let devices = || {
        ["eth0", "eth1"].map(|name| Device {
            index: 1,
            name: name.to_owned(),
            choice: Choice::Served {
                layer: LinkLayer::Ethernet,
                why: Why::DefaultRoute,
            },
        })
    };
    let told = |devices: &[Device]| -> Vec<String> {
        let told = devices.iter().map(|device| device.choice.to_string());
        told.collect()
    };
    let what = "table inet t, chain first drops packets before their destination is translated";
    let served = "served (Ethernet): a default route goes out of it";
    let mut spared = devices();
    spare(&mut spared, &bypasses, false);
    assert_eq!(
        told(&spared),
        [format!("not served: {what}"), served.to_owned()]
    );
    let mut ending = devices();
    spare(&mut ending, &bypasses, true);
    let until = format!("served (Ethernet): until its connections end, because {what}");
    assert_eq!(told(&ending), [until, served.to_owned()]);
}

proptest! {
    /// The kernel's bytes are taken as they are: whatever they are, they are read to an end.
    #[test]
    fn any_entries_are_read(
        entries in proptest::collection::vec(prop_oneof![Just(0), Just(112), Just(168), any::<u8>()], 0..600),
        begins in any::<Option<(u32, u32)>>(),
    ) {
        for layout in [IPV4, IPV6] {
            let table = entries::Table { name: "raw", hooks: [begins; 5], entries: &entries };
            find(&[entries::rules(layout, table)]);
        }
    }
}
