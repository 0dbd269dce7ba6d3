//! The flags of this backend, and what is given by them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use proxy_backend::{Flag, FlagMistake, Given, Takes, one_of};
use proxy_common::{
    names::{EDGE_MAPS, MAPS},
    track::LEAST_SOURCE_PORT,
};

use crate::pattern::Pattern;

pub(crate) const CGROUP_PATH: &str = "cgroup-path";
pub(crate) const MAP_SIZE: &str = "map-size";
pub(crate) const KERNEL_LOG: &str = "kernel-log";
pub(crate) const TC: &str = "tc";
pub(crate) const DEVICES: &str = "devices";
pub(crate) const KEEP_CLIENT_ADDRESS: &str = "keep-client-address";
pub(crate) const SOURCE_PORTS: &str = "source-ports";
const TC_WORDS: &str = "auto|on|off";

/// All of them.
pub(crate) const ALL: &[Flag] = &[
    Flag {
        name: CGROUP_PATH,
        takes: Takes::Path("DIR"),
        help: "Serve only sockets of processes in this cgroup [default: the root of cgroup v2]",
        check_help: Some("The cgroup that would be served [default: the root of cgroup v2]"),
        field: None,
    },
    Flag {
        name: MAP_SIZE,
        takes: Takes::Numbers("NAME=ENTRIES"),
        help: "Number of entries that a map can hold; may be repeated; see docs/reference/maps.md",
        check_help: None,
        field: Some("culvert.mapSizes"),
    },
    Flag {
        name: TC,
        takes: Takes::Choice(TC_WORDS),
        help: "Whether programs on devices serve clients outside: auto does where they bypass no rule that \
               counts on DNAT, on does whatever they bypass, off leaves clients outside to the packet \
               backend, or unserved without one [default: auto]",
        check_help: Some(
            "Whether programs on devices are to serve clients outside: auto, on or off \
             [default: auto]",
        ),
        field: Some("culvert.tc"),
    },
    Flag {
        name: DEVICES,
        takes: Takes::Texts("DEVICE"),
        help: "Serve clients outside on this device, or on those whose names begin so (eth*); may be \
               repeated [default: those that lead to other hosts]",
        check_help: Some(
            "The devices that would be served [default: those that lead to other hosts]",
        ),
        field: Some("culvert.devices"),
    },
    Flag {
        name: KEEP_CLIENT_ADDRESS,
        takes: Takes::Switch,
        help: "Endpoints on this node see the address of clients outside that programs on devices serve, \
               also where these would be masqueraded; those on other nodes see this node there \
               [default: false]",
        check_help: None,
        field: Some("culvert.keepClientAddress"),
    },
    Flag {
        name: SOURCE_PORTS,
        takes: Takes::Text {
            name: "FIRST-LAST",
            default: DEFAULT_SOURCE_PORTS,
        },
        help: "Ports of this node that programs on devices use in the place of a client's where the \
               endpoint sees this node; those in net.ipv4.ip_local_reserved_ports are left out \
               [default: 32768-65535]",
        check_help: None,
        field: Some("culvert.sourcePorts"),
    },
    Flag {
        name: KERNEL_LOG,
        takes: Takes::Nothing,
        help: "Log each call that the programs of the eBPF backend redirect to an endpoint or \
               refuse, but not those that they leave alone; needs --log-level debug, and costs \
               time on every connect. Lines that come faster than they are read are lost, and not \
               counted",
        check_help: None,
        field: None,
    },
];

/// What is used if nothing else is given: above all ports that Kubernetes gives to NodePorts by default.
const DEFAULT_SOURCE_PORTS: &str = "32768-65535";

/// The kernel refuses hash maps of more buckets than fit 4 GiB; this is far above any cluster.
const MOST_ENTRIES: u32 = 1 << 26;

/// Whether programs on devices serve clients outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tc {
    /// Where nothing would be bypassed, once a packet backend serves, if one lies beneath.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

fn mistake(flag: &'static str, value: &str, why: String) -> FlagMistake {
    // Nothing at all would not be seen.
    let value = if value.is_empty() { "\"\"" } else { value }.to_owned();
    FlagMistake { flag, value, why }
}

/// What `--tc` says; the last one counts.
pub(crate) fn tc(given: &Given, mistakes: &mut Vec<FlagMistake>) -> Tc {
    match given.texts(TC).last() {
        None | Some("auto") => Tc::Auto,
        Some("on") => Tc::On,
        Some("off") => Tc::Off,
        Some(other) => {
            let why = format!("must be {}", one_of(TC_WORDS));
            mistakes.push(mistake(TC, other, why));
            Tc::Off
        }
    }
}

/// The devices that `--devices` names, each also as a list with commas.
pub(crate) fn devices(given: &Given, mistakes: &mut Vec<FlagMistake>) -> Vec<Pattern> {
    let names = given.texts(DEVICES).flat_map(|text| text.split(','));
    let mut patterns = Vec::new();
    for name in names {
        match name.trim().parse::<Pattern>() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => mistakes.push(mistake(DEVICES, name, error.to_string())),
        }
    }
    patterns
}

/// The ports that `--source-ports` names; the last one counts.
pub(crate) fn source_ports(given: &Given, mistakes: &mut Vec<FlagMistake>) -> RangeInclusive<u16> {
    let text = given.texts(SOURCE_PORTS).last();
    let text = text.unwrap_or(DEFAULT_SOURCE_PORTS);
    let ports = text.split_once('-').and_then(|(first, last)| {
        let first: u16 = first.trim().parse().ok()?;
        let last: u16 = last.trim().parse().ok()?;
        (LEAST_SOURCE_PORT <= first && first <= last).then_some(first..=last)
    });
    ports.unwrap_or_else(|| {
        let why = format!(
            "must be the first and the last of some ports from {LEAST_SOURCE_PORT} to {}, such as \
             {DEFAULT_SOURCE_PORTS}",
            u16::MAX
        );
        mistakes.push(mistake(SOURCE_PORTS, text, why));
        // Whatever it is: nobody serves with a mistake.
        LEAST_SOURCE_PORT..=u16::MAX
    })
}

/// Entries by map name, for those that shall differ from the defaults.
pub(crate) fn map_sizes(given: &Given, mistakes: &mut Vec<FlagMistake>) -> BTreeMap<String, u32> {
    let sizable = || {
        let all = MAPS.iter().chain(&EDGE_MAPS);
        all.filter(|shape| shape.sizable).map(|shape| shape.name)
    };
    let mut sizes = BTreeMap::new();
    for text in given.texts(MAP_SIZE) {
        let Some((name, entries)) = text.split_once('=') else {
            let why = "must have the form NAME=ENTRIES".to_owned();
            mistakes.push(mistake(MAP_SIZE, text, why));
            continue;
        };
        if !sizable().any(|known| known == name) {
            let names: Vec<_> = sizable().collect();
            let why = format!(
                "there is no map {name} whose size can be set; choose from {}",
                names.join(", ")
            );
            mistakes.push(mistake(MAP_SIZE, text, why));
            continue;
        }
        match entries.parse::<u32>() {
            Ok(entries) if (1..=MOST_ENTRIES).contains(&entries) => {
                sizes.insert(name.to_owned(), entries);
            }
            _ => {
                let why = format!("entries must be a whole number from 1 to {MOST_ENTRIES}");
                mistakes.push(mistake(MAP_SIZE, text, why));
            }
        }
    }
    sizes
}

/// The flags that are given and wait for programs on devices, where none come. `serves`: whether this backend
/// serves at all.
pub(crate) fn idle(given: &Given, serves: bool) -> Vec<&'static str> {
    let tc = tc(given, &mut Vec::new());
    if serves && tc != Tc::Off {
        return Vec::new();
    }
    let idle = [
        (TC, tc == Tc::On),
        (DEVICES, given.is_given(DEVICES)),
        (KEEP_CLIENT_ADDRESS, given.is_on(KEEP_CLIENT_ADDRESS)),
        (SOURCE_PORTS, given.is_given(SOURCE_PORTS)),
    ];
    let idle = idle.into_iter().filter(|(_, is_idle)| *is_idle);
    idle.map(|(flag, _)| flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[(&'static str, &str)]) -> Given {
        let mut given = Given::default();
        for (flag, value) in flags {
            given.insert(flag, vec![value.into()]);
        }
        given
    }

    #[test]
    fn what_waits_for_programs_on_devices_that_never_come_is_told() {
        let (device, keeps) = ((DEVICES, "eth0"), (KEEP_CLIENT_ADDRESS, "true"));
        let ports = (SOURCE_PORTS, "2000-3000");
        for (flags, serves, expected) in [
            (&[(TC, "on"), device, keeps, ports][..], true, &[][..]),
            (&[device], true, &[]),
            (
                &[(TC, "off"), device, keeps, ports],
                true,
                &[DEVICES, KEEP_CLIENT_ADDRESS, SOURCE_PORTS],
            ),
            (&[(TC, "off"), (KEEP_CLIENT_ADDRESS, "false")], true, &[]),
            // Nobody waits for what is the default.
            (&[(TC, "auto"), (TC, "off")], false, &[]),
            (
                &[(TC, "on"), device, keeps, ports],
                false,
                &[TC, DEVICES, KEEP_CLIENT_ADDRESS, SOURCE_PORTS],
            ),
        ] {
            let given = given(flags);
            assert_eq!(idle(&given, serves), expected, "{given:?}");
        }
    }

    #[test]
    fn ports_are_the_first_and_the_last_one() {
        let read = |text: &str| {
            let mut mistakes = Vec::new();
            let ports = source_ports(&given(&[(SOURCE_PORTS, text)]), &mut mistakes);
            let told: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
            (ports, told.join("\n"))
        };
        let none = source_ports(&Given::default(), &mut Vec::new());
        assert_eq!(none, 32768..=65535);
        assert_eq!(read(DEFAULT_SOURCE_PORTS), (none, String::new()));
        for (text, expected) in [
            ("1024-65535", 1024..=65535),
            ("40000-40000", 40000..=40000),
            ("2000 - 3000", 2000..=3000),
        ] {
            assert_eq!(read(text), (expected, String::new()));
        }
        for text in [
            "",
            "80",
            "1023-2000",
            "3000-2000",
            "2000-65536",
            "2000-",
            "1-2-3",
        ] {
            let (ports, told) = read(text);
            assert!(ports.contains(&2000));
            let shown = if text.is_empty() { "\"\"" } else { text };
            let begins = format!("--source-ports {shown}: must be the first and the last of some");
            assert!(told.starts_with(&begins), "{told}");
        }
    }

    #[test]
    fn a_device_without_a_name_is_shown() {
        let mut mistakes = Vec::new();
        assert!(devices(&given(&[(DEVICES, "eth0,")]), &mut mistakes).len() == 1);
        assert!(mistakes[0].to_string().starts_with("--devices \"\": "));
    }
}
