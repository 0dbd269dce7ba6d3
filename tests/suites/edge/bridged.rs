//! The way to another node goes over a bridge. Where netfilter is told of what bridges carry (`br_netfilter`,
//! which the kubelet's preflight checks ask for), it meets packets before programs on the bridge do.

use std::fmt::Write as _;

use proxy_model::Protocol;
use proxy_tests::{
    Agent,
    requires::{self, Need},
};

use super::{
    SUITE,
    elsewhere::Site,
    journeys::{dial, tracked},
    rig::{FILE, on_node, options, prober, served, tell_netfilter},
};

/// Puts ext2 in a bridge, which has its addresses then. Netfilter is told of what it carries, or not.
fn bridge(site: &Site, is_told: bool) {
    let node = site.shop.world.node().netns();
    let mut script =
        "link add br2 type bridge\nlink set br2 up\nlink set ext2 master br2\n".to_owned();
    for (address, length) in site.other.node.into_iter().zip([24, 64]) {
        writeln!(script, "addr flush dev ext2").unwrap();
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        writeln!(script, "addr add {address}/{length} dev br2 {nodad}").unwrap();
    }
    node.ip(&script).unwrap();
    tell_netfilter(&site.shop, is_told);
}

/// As most firewalls have it.
pub const STRICT: &str = "table inet strict { chain forward { \
    type filter hook forward priority filter; ct state invalid drop; }; }";

#[test]
fn what_netfilter_meets_before_the_programs_is_left_to_it() {
    for is_told in [false, true] {
        if !requires::met(SUITE, &[Need::BridgeNetfilter]) {
            return;
        }
        let Some(site) = Site::build() else {
            return;
        };
        bridge(&site, is_told);
        on_node(&site.shop, "nft", &[STRICT]);
        let objects = site.objects();
        let options = options(&["--keep-client-address"]);
        let mut agent = Agent::start(&site.shop.world, options, &[(FILE, &*objects)]).unwrap();
        for device in ["ext1", "br2"] {
            served(&mut agent, device);
        }
        let mut client = prober(&site.client);
        for node in [site.client.node, site.other.node] {
            dial(&mut client, node);
        }
        for client in site.client.addresses {
            for flow in tracked(&site.shop, client) {
                let port = match flow.protocol {
                    Protocol::Udp => 5353,
                    _ => 8080,
                };
                let is_led = flow.original[1].port() == port;
                assert_eq!(is_led, !is_told, "{flow:?}");
            }
        }
    }
}
