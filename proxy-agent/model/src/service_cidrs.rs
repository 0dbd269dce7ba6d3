//! The ranges that ClusterIPs are taken from: what nothing but a Service may have. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

use crate::Diagnostic;

/// What is on every host.
const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// The ranges to go by, of those in `ServiceCIDR` objects with their names, and what is wrong with the
/// others. Backends drop what goes to a ClusterIP that no Service has; a range that holds addresses of
/// the node itself cannot be meant so, and would cut it off.
pub(crate) fn usable<'a>(
    named: impl Iterator<Item = (&'a str, IpNet)>,
    node: &[IpAddr],
) -> (BTreeSet<IpNet>, Vec<Diagnostic>) {
    let (mut usable, mut diagnostics) = (BTreeSet::new(), Vec::new());
    for (name, range) in named {
        let mut own = node.iter().chain(&LOOPBACK);
        let Some(address) = own.find(|address| range.contains(*address)) else {
            usable.insert(range);
            continue;
        };
        diagnostics.push(Diagnostic {
            object: format!("ServiceCIDR {name}").into(),
            field: "spec.cidrs".to_owned(),
            message: format!(
                "{range} holds {address}, which is this node's own: packets to unallocated \
                 addresses in it are not dropped"
            ),
        });
    }
    (usable, diagnostics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_holds_the_node_is_told_and_left_out() {
        let node = ["192.0.2.1", "fd00::1"].map(|text| text.parse().unwrap());
        let ranges = [
            ("a", "10.96.0.0/12", true),
            ("b", "192.0.0.0/16", false),
            ("c", "fd00::/16", false),
            ("d", "fd00:10:96::/112", true),
            ("e", "127.0.0.0/8", false),
            ("f", "0.0.0.0/0", false),
            ("g", "::/0", false),
        ];
        let named = ranges.map(|(name, range, _)| (name, range.parse().unwrap()));
        let (usable, diagnostics) = usable(named.into_iter(), &node);
        let expected = ranges.iter().filter(|(_, _, usable)| *usable);
        assert_eq!(
            usable,
            expected
                .map(|(_, range, _)| range.parse().unwrap())
                .collect()
        );
        assert_eq!(diagnostics.len(), 5);
        let text = diagnostics[0].to_string();
        assert!(
            text.starts_with("ServiceCIDR b: spec.cidrs: 192.0.0.0/16 holds 192.0.2.1, "),
            "{text}"
        );
    }
}
