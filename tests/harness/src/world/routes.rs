//! Addresses and routes of a host, as lines for `ip -batch`. Pure.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::NODE_ADDRESSES;

/// The prefixes that every host of a world has on its wire: the pod networks of a cluster.
const PREFIXES: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 244, 0, 0)), 16),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0)),
        48,
    ),
];

/// Adds lines that give `device` its addresses and its routes.
pub(super) fn configure(script: &mut String, device: &str, addresses: &[IpAddr], extra: &[IpAddr]) {
    let mut line = |args: std::fmt::Arguments<'_>| {
        writeln!(script, "{args}").expect("writing to a String cannot fail");
    };
    for address in addresses {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        line(format_args!(
            "addr add {address}/{} dev {device}{nodad}",
            host_length(*address)
        ));
    }
    // A host without an address of a family has no use for routes of that family.
    for (prefix, length) in PREFIXES {
        if addresses
            .iter()
            .any(|address| address.is_ipv4() == prefix.is_ipv4())
        {
            line(format_args!("route add {prefix}/{length} dev {device}"));
        }
    }
    for address in extra {
        let same = |own: &IpAddr| own.is_ipv4() == address.is_ipv4();
        if addresses.iter().any(same) && !addresses.contains(address) {
            line(format_args!(
                "route add {address}/{} dev {device}",
                host_length(*address)
            ));
        }
    }
}

/// Adds lines that give a pod its addresses, and the node as its only neighbour.
pub(super) fn route_through_node(script: &mut String, addresses: &[IpAddr]) {
    let mut line = |args: std::fmt::Arguments<'_>| {
        writeln!(script, "{args}").expect("writing to a String cannot fail");
    };
    for address in addresses {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        line(format_args!(
            "addr add {address}/{} dev eth0{nodad}",
            host_length(*address)
        ));
    }
    for (gateway, everywhere) in NODE_ADDRESSES.into_iter().zip(["0.0.0.0/0", "::/0"]) {
        let mut own = addresses.iter();
        if own.any(|address| address.is_ipv4() == gateway.is_ipv4()) {
            let length = host_length(gateway);
            line(format_args!("route add {gateway}/{length} dev eth0"));
            line(format_args!(
                "route add {everywhere} via {gateway} dev eth0"
            ));
        }
    }
}

const fn host_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether `address` lies in a prefix that every host has on its wire.
pub(crate) fn on_wire(address: IpAddr) -> bool {
    PREFIXES
        .iter()
        .any(|(prefix, length)| match (prefix, address) {
            (IpAddr::V4(prefix), IpAddr::V4(address)) => {
                (prefix.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*length)
            }
            (IpAddr::V6(prefix), IpAddr::V6(address)) => {
                (prefix.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(*length)
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pod_networks_are_on_the_wire() {
        for (address, expected) in [
            ("10.244.0.5", true),
            ("10.244.255.254", true),
            ("10.245.0.1", false),
            ("192.0.2.11", false),
            ("fd00:10:244:2::10", true),
            ("fd00:10:96::a", false),
        ] {
            assert_eq!(on_wire(address.parse().unwrap()), expected, "{address}");
        }
    }
}
