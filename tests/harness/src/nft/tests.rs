//! What the kernel does with rules, in small tables.

use super::*;
use crate::traced::fixtures::{is_own, packet};

const TABLE: &str = r#"
table ip test {
	comment "of a test"
	map services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . tcp . 80 comment "web" : goto web,
			     10.96.0.2 . tcp . 80 : goto sticky,
			     10.96.0.3 . tcp . 80 : accept }
	}
	map endpoints {
		typeof ip daddr . numgen random mod 1 : ip daddr . th dport
		elements = { 10.96.0.1 . 4 : 10.244.0.5 . 8080, 10.96.0.1 . 5 : 10.244.1.5 . 8080 }
	}
	set allowed {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.0-10.255.255.255, 192.0.2.0/28, 203.0.113.9 }
	}
	set clients {
		typeof ip saddr . meta mark
		size 65535
		flags dynamic,timeout
	}
	chain early {
		type filter hook prerouting priority dstnat - 10; policy accept;
		ct state new ip daddr 10.96.0.1 ip saddr != @allowed drop comment "not you"
		accept
	}
	chain nat-in {
		type nat hook prerouting priority dstnat; policy accept;
		iifname "veth*" jump mark
		jump services
	}
	chain nat-out {
		type nat hook output priority -100; policy accept;
		fib saddr type local jump services
	}
	chain late {
		type filter hook prerouting priority -90; policy accept;
		ct status dnat return
		ip daddr 10.96.0.0/16 reject
	}
	chain snat {
		type nat hook postrouting priority srcnat; policy accept;
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
	}
	chain mark {
		ip saddr 10.244.0.9 return
		meta mark set meta mark | 0x00004000
	}
	chain services {
		ip daddr . meta l4proto . th dport vmap @services
	}
	chain web {
		dnat ip to ip daddr . numgen random mod 2 offset 4 map @endpoints
	}
	chain sticky {
		ip saddr . meta mark & 0x00000000 | 0x00000001 @clients goto first
		numgen random mod 2 vmap { 0 : goto first, 1 : goto second }
	}
	chain first {
		update @clients { ip saddr . meta mark & 0x00000000 | 0x00000001 timeout 10s }
		meta l4proto tcp dnat to 10.244.0.5:8080
	}
	chain second {
		dnat to 10.244.1.5:8080
	}
}
"#;

#[test]
fn a_packet_goes_through_the_hooks_in_order() {
    let rules = Ruleset::parse(TABLE).unwrap();
    let both = "10.244.0.5:8080 10.244.1.5:8080";
    let masqueraded = "10.244.0.5:8080+masquerade 10.244.1.5:8080+masquerade";
    for (from, to, expected) in [
        ("10.1.2.3", "10.96.0.1:80", both),
        ("192.0.2.15", "10.96.0.1:80", both),
        ("203.0.113.9", "10.96.0.1:80", both),
        ("192.0.2.16", "10.96.0.1:80", "dropped"),
        // What a jump comes back from, and what a name begins with.
        ("10.244.0.7@veth7", "10.96.0.1:80", masqueraded),
        ("10.244.0.9@veth9", "10.96.0.1:80", both),
        ("10.244.0.7@eth0", "10.96.0.1:80", both),
        // What the host sends meets other hooks.
        ("192.0.2.11", "10.96.0.1:80", both),
        ("192.0.2.11", "10.96.0.3:80", "untouched"),
        // Accepting ends one chain, not the journey.
        ("10.1.2.3", "10.96.0.3:80", "rejected"),
        ("10.1.2.3", "10.96.0.9:80", "rejected"),
        ("10.1.2.3", "8.8.8.8:80", "untouched"),
    ] {
        let fate = rules.fate(&packet(from, to), &is_own).unwrap();
        assert_eq!(fate.to_string(), expected, "{from} -> {to}");
    }
}

#[test]
fn what_rules_remember_decides_about_the_next_packet() {
    let mut rules = Ruleset::parse(TABLE).unwrap();
    let keeps = |rules: &Ruleset, to| rules.keeps_clients(&packet("10.1.2.3", to), &is_own);
    assert!(!keeps(&rules, "10.96.0.1:80").unwrap());
    // The second one remembers nothing.
    assert!(!keeps(&rules, "10.96.0.2:80").unwrap());
    let one = TABLE.replace(
        "mod 2 vmap { 0 : goto first, 1 : goto second }",
        "mod 1 vmap { 0 : goto first }",
    );
    rules = Ruleset::parse(&one).unwrap();
    assert!(keeps(&rules, "10.96.0.2:80").unwrap());
}

#[test]
fn chance_may_decide_about_nothing_but_the_endpoint() {
    let fate = |text: &str| {
        let rules = Ruleset::parse(text).unwrap();
        let fate = rules.fate(&packet("10.1.2.3", "10.96.0.1:80"), &is_own);
        fate.unwrap_err().to_string()
    };
    let with_three = TABLE.replace("mod 2 offset 4", "mod 3 offset 4");
    // One of the numbers has no endpoint.
    let error = fate(&with_three);
    assert!(error.contains("chance decides"), "{error}");
    // Two have the same.
    let error = fate(&with_three.replace(
        "10.96.0.1 . 5 :",
        "10.96.0.1 . 6 : 10.244.0.5 . 8080, 10.96.0.1 . 5 :",
    ));
    assert!(error.contains("more often"), "{error}");
}

#[test]
fn whatever_is_not_known_is_an_error() {
    for (before, after, part) in [
        ("ct status dnat return", "ct mark 1 return", "\"ct\""),
        ("ct status dnat return", "ct status snat return", "snat"),
        ("ct state new", "ct state established", "established"),
        ("jump services", "jump service", "no chain service"),
        ("jump services", "jump late", "nothing may lead"),
        ("@endpoints", "@end", "no set end"),
        ("@endpoints", "@allowed", "the other kind"),
        ("flags interval", "", "interval"),
        ("flags dynamic,timeout", "", "dynamic"),
        ("reject", "reject counter", "comes after"),
        ("203.0.113.9 }", "fd00::9 }", "another family"),
        (
            "203.0.113.9 }",
            "203.0.113.9, 203.0.113.9 }",
            "two elements",
        ),
        ("policy accept", "policy drop", "policy"),
        ("priority srcnat", "priority dstnat", "no priority"),
        ("ip daddr 10.96.0.0/16", "ip6 daddr fd00::/64", "\"ip6\""),
        (
            "ip daddr 10.96.0.0/16",
            "ip daddr 10.96.0.1/16",
            "no network",
        ),
    ] {
        assert!(TABLE.contains(before), "{before}");
        let error = Ruleset::parse(&TABLE.replace(before, after)).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{after}: {error:#}");
    }
    // Only where the kernel takes them.
    for (before, after) in [
        (
            "ip daddr 10.96.0.0/16 reject",
            "ip daddr 10.96.0.0/16 masquerade",
        ),
        ("iifname \"veth*\" jump mark", "reject"),
        ("ip daddr 10.96.0.0/16 reject", "dnat to 10.244.0.5:80"),
    ] {
        let rules = Ruleset::parse(&TABLE.replace(before, after)).unwrap();
        let error = rules.fate(&packet("10.1.2.3", "10.96.0.9:80"), &is_own);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("does not belong"), "{after}: {error}");
    }
}
