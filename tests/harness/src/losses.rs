//! What the kernel counted of packets that it lost, in the network namespace of a process: where to
//! look when a request got no answer.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

/// Pairs of lines: names, then values, both after the name of a group.
const GROUPED: [&str; 2] = ["net/snmp", "net/netstat"];
/// Lines of a name and a value.
const NAMED: &str = "net/snmp6";
/// A line of names, then one of values in hexadecimal for each processor.
const CONNTRACK: &str = "net/stat/nf_conntrack";

/// Those that count losses, or tell of them.
const TELLING: &[&str] = &[
    "InDiscards",
    "OutDiscards",
    "InAddrErrors",
    "InHdrErrors",
    "OutNoRoutes",
    "IPReversePathFilter",
    "InDestUnreachs",
    "OutDestUnreachs",
    "NoPorts",
    "InErrors",
    "RcvbufErrors",
    "SndbufErrors",
    "ListenDrops",
    "invalid",
    "clashres",
    "chainlength",
    "insert_failed",
    "drop",
    "early_drop",
];

/// Losses of the namespace of `process` so far, `counter=value`, as far as there are any.
pub fn counted(process: Pid) -> Result<Vec<String>> {
    let dir = Path::new("/proc").join(process.to_string());
    let read = |name: &str| {
        let file = dir.join(name);
        fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
    };
    let mut all = BTreeMap::new();
    for name in GROUPED {
        all.extend(grouped(&read(name)?));
    }
    all.extend(named(&read(NAMED)?));
    // Without conntrack it counts nothing.
    all.extend(read(CONNTRACK).map_or_else(|_| Vec::new(), |text| by_processor(&text)));
    Ok(all
        .into_iter()
        .filter(|(name, value)| *value > 0 && tells(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect())
}

/// `Udp.NoPorts`, `Udp6NoPorts`, `conntrack.drop`.
fn tells(name: &str) -> bool {
    let own = name.rsplit_once('.').map_or(name, |(_, own)| own);
    TELLING.iter().any(|one| {
        let group = own.strip_suffix(one);
        group.is_some_and(|group| group.is_empty() || group.ends_with('6'))
    })
}

fn grouped(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<_> = text.lines().collect();
    let pairs = lines.chunks_exact(2).filter_map(|pair| {
        let (group, names) = pair[0].split_once(": ")?;
        let (_, values) = pair[1].split_once(": ")?;
        Some((group, names, values))
    });
    let counters = pairs.flat_map(|(group, names, values)| {
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        // Some are limits, and -1 if there is none.
        pairs
            .filter_map(move |(name, value)| Some((format!("{group}.{name}"), value.parse().ok()?)))
    });
    counters.collect()
}

fn named(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    });
    lines.collect()
}

fn by_processor(text: &str) -> Vec<(String, u64)> {
    let mut lines = text.lines();
    let names: Vec<_> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let rows: Vec<Vec<_>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    let sum = |column: usize| {
        let values = rows.iter().filter_map(|row| row.get(column));
        values
            .filter_map(|value| u64::from_str_radix(value, 16).ok())
            .sum()
    };
    let counters = names
        .iter()
        .enumerate()
        .map(|(column, name)| (format!("conntrack.{name}"), sum(column)));
    counters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_of_losses_is_picked_out_of_what_the_kernel_counts() {
        let text = "Ip: Forwarding InDiscards\nIp: 1 3\nTcp: MaxConn InErrs\nTcp: -1 0\n";
        let expected = [
            ("Ip.Forwarding", 1),
            ("Ip.InDiscards", 3),
            ("Tcp.InErrs", 0),
        ];
        assert_eq!(
            grouped(text),
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        let text = "Udp6NoPorts                     \t4\n";
        assert_eq!(named(text), [("Udp6NoPorts".to_owned(), 4)]);
        let text = "entries  drop\n0000000f 00000001\n0000000f 0000000a\n";
        let expected = [("conntrack.entries", 30), ("conntrack.drop", 11)];
        assert_eq!(
            by_processor(text),
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        for name in ["Ip.InDiscards", "Udp6NoPorts", "conntrack.early_drop"] {
            assert!(tells(name), "{name}");
        }
        for name in ["Ip.Forwarding", "conntrack.entries", "TcpExt.TCPHPHits"] {
            assert!(!tells(name), "{name}");
        }
    }

    #[test]
    fn the_kernel_is_understood() {
        counted(Pid::this()).unwrap();
        let file = fs::read_to_string("/proc/self/net/snmp").unwrap();
        let names: Vec<_> = grouped(&file).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"Udp.NoPorts".to_owned()), "{names:?}");
    }
}
