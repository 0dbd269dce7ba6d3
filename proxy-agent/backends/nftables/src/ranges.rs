//! Ranges of sources as sets of intervals, under a name that stands for exactly these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proxy_model::IpFamily;

use super::{names, ruleset::Ranges};

/// `ranges` of `family`, those that touch or overlap joined: the kernel takes no others.
pub fn named(family: IpFamily, ranges: &[IpNet]) -> Ranges {
    let of_family = ranges
        .iter()
        .filter(|range| IpFamily::of(range.addr()) == family);
    let mut all: Vec<_> = of_family
        .map(|range| (number(range.network()), number(range.broadcast())))
        .collect();
    all.sort_unstable();
    let mut joined: Vec<(u128, u128)> = Vec::with_capacity(all.len());
    for (first, last) in all {
        match joined.last_mut() {
            Some((_, before)) if first <= before.saturating_add(1) => *before = last.max(*before),
            _ => joined.push((first, last)),
        }
    }
    let joined = joined.into_iter();
    let ranges: Vec<_> = joined
        .map(|(first, last)| (address(family, first), address(family, last)))
        .collect();
    let text = ranges
        .iter()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect::<Vec<_>>()
        .join(",");
    Ranges {
        name: format!("sources-{:016x}", names::hash(&[&text])).into(),
        ranges,
    }
}

/// The elements of a set of intervals: where one begins, and, marked, the first address after it.
/// What ends with the last address of all needs no end.
pub fn ends(ranges: &Ranges) -> Vec<(IpAddr, bool)> {
    let ends = ranges.ranges.iter().flat_map(|(first, last)| {
        let end = next(*last).map(|end| (end, true));
        [Some((*first, false)), end].into_iter().flatten()
    });
    ends.collect()
}

/// The address after `address`; `None` after the last one.
fn next(address_before: IpAddr) -> Option<IpAddr> {
    match address_before {
        IpAddr::V4(v4) => Some(Ipv4Addr::from_bits(v4.to_bits().checked_add(1)?).into()),
        IpAddr::V6(v6) => Some(Ipv6Addr::from_bits(v6.to_bits().checked_add(1)?).into()),
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(family: IpFamily, number: u128) -> IpAddr {
    match family {
        // An IPv4 address has no more bits.
        IpFamily::V4 => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        IpFamily::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(family: IpFamily, ranges: &[&str]) -> Vec<String> {
        let ranges: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let named = named(family, &ranges);
        let ranges = named.ranges.iter();
        ranges
            .map(|(first, last)| format!("{first}-{last}"))
            .collect()
    }

    #[test]
    fn ranges_that_touch_or_overlap_are_one() {
        let ranges = [
            "203.0.113.128/25",
            "203.0.113.0/25",
            "203.0.113.7/32",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "255.255.255.255/32",
            "fd00::/64",
        ];
        let expected = [
            "10.0.0.0-10.255.255.255",
            "203.0.113.0-203.0.113.255",
            "255.255.255.255-255.255.255.255",
        ];
        assert_eq!(joined(IpFamily::V4, &ranges), expected);
        assert_eq!(
            joined(IpFamily::V6, &ranges),
            ["fd00::-fd00::ffff:ffff:ffff:ffff"]
        );
        assert_eq!(joined(IpFamily::V6, &ranges[..1]), [""; 0]);
    }

    #[test]
    fn the_name_stands_for_the_ranges() {
        let name = |range: &str| named(IpFamily::V4, &[range.parse().unwrap()]).name;
        assert_eq!(name("203.0.113.0/24"), name("203.0.113.0/24"));
        assert_ne!(name("203.0.113.0/24"), name("203.0.112.0/24"));
    }

    #[test]
    fn after_the_last_address_comes_none() {
        let next = |address: &str| next(address.parse().unwrap());
        assert_eq!(next("10.0.0.255"), Some("10.0.1.0".parse().unwrap()));
        assert_eq!(next("255.255.255.255"), None);
        assert_eq!(next("fd00::ffff"), Some("fd00::1:0".parse().unwrap()));
    }
}
