//! What the kernel does with rules, in small tables.

use super::*;
use crate::traced::fixtures::{is_own, packet};

const TABLES: &str = r#"
# iptables-restore --noflush
*filter
:REFUSED - [0:0]
-A REFUSED -m conntrack --ctstate DNAT -j RETURN
-A REFUSED -d 10.96.0.3 -p tcp -m comment --comment "nobody is there" -m tcp --dport 80 -j REJECT
-A REFUSED -d 10.96.0.4 -p tcp -m tcp --dport 80 -j DROP
-I INPUT -m conntrack ! --ctstate INVALID,RELATED -j REFUSED
-I FORWARD -m conntrack --ctstate NEW -j REFUSED
-I OUTPUT -j REFUSED
COMMIT
*nat
:SERVICES - [0:0]
:WEB - [0:0]
:STICKY - [0:0]
:ONE - [0:0]
:TWO - [0:0]
:MARK-IT - [0:0]
:LATE - [0:0]
-A SERVICES -d 10.96.0.1 -p tcp -m tcp --dport 80 -j WEB
-A SERVICES -d 10.96.0.2 -p tcp -m comment --comment sticky -m tcp --dport 80 -j STICKY
-A SERVICES -d 10.96.0.0/16 -m comment --comment "goes no further" -j ACCEPT
-A SERVICES ! -d 127.0.0.0/8 -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30080 -j WEB
-A WEB -s 10.9.0.0/16 -j RETURN
-A WEB ! -s 10.244.0.0/16 -j MARK-IT
-A WEB -m statistic --mode random --probability 0.3333333333 -j ONE
-A WEB -m statistic --mode random --probability 0.5000000000 -j TWO
-A WEB -p tcp -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A STICKY -m recent --rcheck --seconds 10 --reap --name ONE -j ONE
-A STICKY -m recent --rcheck --seconds 10 --reap --name TWO -j TWO
-A STICKY -m statistic --mode random --probability 0.5000000000 -j ONE
-A STICKY -j TWO
-A ONE -p tcp -m recent --set --name ONE -m tcp -j DNAT --to-destination 10.244.0.5:8080
-A TWO -p tcp -m recent --set --name TWO -m tcp -j DNAT --to-destination 10.244.1.5:8080
-A MARK-IT -i veth+ -j RETURN
-A MARK-IT -j MARK --set-xmark 0x4000/0x4000
-A LATE -m mark ! --mark 0x4000/0x4000 -j RETURN
-A LATE -j MARK --set-xmark 0x4000/0x0
-A LATE -j MASQUERADE --random-fully
-I PREROUTING -j SERVICES
-I PREROUTING -s 10.66.0.0/16 -j RETURN
-I OUTPUT -j SERVICES
-I POSTROUTING -j LATE
COMMIT
# ip6tables-restore --noflush
*nat
-I PREROUTING -d fd00::1 -p tcp -m tcp --dport 53 -j DNAT --to-destination [fd00::2]:53
COMMIT
"#;

#[test]
fn a_packet_goes_through_the_hooks_and_tables_in_order() {
    let rules = Ruleset::rendered(TABLES).unwrap();
    let plain = "10.244.0.5:8080 10.244.1.5:8080 10.244.2.5:8080";
    let masqueraded =
        "10.244.0.5:8080+masquerade 10.244.1.5:8080+masquerade 10.244.2.5:8080+masquerade";
    for (from, to, expected) in [
        ("10.244.0.7", "10.96.0.1:80", plain),
        ("10.1.2.3", "10.96.0.1:80", masqueraded),
        // What a name begins with.
        ("10.1.2.3@veth7", "10.96.0.1:80", plain),
        ("10.1.2.3@eth0", "10.96.0.1:80", masqueraded),
        // Back from a chain, it goes on behind what led there.
        ("10.9.0.1", "10.96.0.1:80", "untouched"),
        // What was put in last comes first.
        ("10.66.0.1", "10.96.0.1:80", "untouched"),
        // What the host sends meets other hooks, and by no interface.
        ("192.0.2.11", "10.96.0.1:80", masqueraded),
        ("192.0.2.11", "192.0.2.11:30080", masqueraded),
        ("10.244.0.7", "192.0.2.11:30080", plain),
        ("127.0.0.1", "127.0.0.1:30080", "untouched"),
        // Accepting ends one table, not the journey.
        ("10.1.2.3", "10.96.0.3:80", "rejected"),
        ("192.0.2.11", "10.96.0.3:80", "rejected"),
        ("10.1.2.3", "10.96.0.4:80", "dropped"),
        ("10.1.2.3", "10.96.0.4:81", "untouched"),
        ("10.1.2.3", "8.8.8.8:80", "untouched"),
        ("fd00::9", "[fd00::1]:53", "[fd00::2]:53"),
    ] {
        let fate = rules.fate(&packet(from, to), &is_own).unwrap();
        assert_eq!(fate.to_string(), expected, "{from} -> {to}");
    }
}

#[test]
fn what_rules_remember_decides_about_the_next_packet() {
    let keeps = |text: &str, to| {
        let rules = Ruleset::rendered(text).unwrap();
        rules.keeps_clients(&packet("10.1.2.3", to), &is_own)
    };
    assert!(!keeps(TABLES, "10.96.0.1:80").unwrap());
    assert!(keeps(TABLES, "10.96.0.2:80").unwrap());
    let forgets = TABLES.replace("-m recent --set --name TWO ", "");
    assert!(!keeps(&forgets, "10.96.0.2:80").unwrap());
}

#[test]
fn chance_may_decide_about_nothing_but_the_endpoint() {
    for (before, after, part) in [
        (
            "-j DNAT --to-destination 10.244.2.5:8080",
            "-j RETURN",
            "chance decides between",
        ),
        ("0.3333333333", "0.5000000000", "more often"),
    ] {
        let rules = Ruleset::rendered(&TABLES.replace(before, after)).unwrap();
        let fate = rules.fate(&packet("10.244.0.7", "10.96.0.1:80"), &is_own);
        let error = fate.unwrap_err().to_string();
        assert!(error.contains(part), "{after}: {error}");
    }
}

#[test]
fn whatever_is_not_known_is_an_error() {
    for (before, after, part) in [
        (
            "-m statistic --mode random",
            "-m statistic --mode nth",
            "only the mode random",
        ),
        (
            "-m addrtype --dst-type LOCAL",
            "-m addrtype --dst-type ANYCAST",
            "only LOCAL",
        ),
        (
            "-m addrtype --dst-type LOCAL",
            "-m addrtype --limit-iface-in",
            "is not known",
        ),
        (
            "-m addrtype --dst-type LOCAL",
            "-m addrtype",
            "asks nothing",
        ),
        ("-i veth+", "-o veth+", "is not known"),
        ("-i veth+", "-m physdev --physdev-in veth+", "is not known"),
        ("-i veth+", "-m limit", "is not known"),
        ("--ctstate NEW", "--ctstate NEU", "no state"),
        ("--set-xmark", "--or-mark", "only --set-xmark"),
        ("-s 10.9.0.0/16", "-s 10.9.0.1/16", "no network"),
        ("-s 10.9.0.0/16", "-s fd00::/16", "another family"),
        (
            "-p tcp -m tcp -j DNAT",
            "-m tcp -j DNAT",
            "of that protocol",
        ),
        (
            "-p tcp -m tcp -j DNAT",
            "-p icmp -m tcp -j DNAT",
            "no protocol icmp",
        ),
        (
            "8080\n-A STICKY",
            "8080 --persistent\n-A STICKY",
            "comes after",
        ),
        ("-j MARK-IT", "-j MARK-HIM", "no chain MARK-HIM"),
        ("-j MARK-IT", "-j POSTROUTING", "nothing may lead to"),
        ("-j MARK-IT", "-j REJECT", "cannot refuse"),
        ("-j MARK-IT", "-j DROP", "cannot drop"),
        ("-A WEB -s", "-R WEB -s", "\"-R\" is not known"),
        ("-A WEB -s", "-A WEBS -s", "no chain WEBS"),
        (":WEB - [0:0]", ":WEB - [0:0]\n:WEB - [0:0]", "two of WEB"),
        (":WEB - [0:0]", ":WEB DROP [0:0]", "policy"),
        ("*nat", "*raw", "no table raw"),
        ("COMMIT\n*nat", "*nat", "not committed"),
        ("--rcheck --seconds 10", "--rcheck", "checks for some time"),
        ("--rcheck --seconds 10", "--rcheck --rttl", "is not known"),
        ("comment \"nobody is there\"", "comment \"nobody", "quote"),
        ("# ip6tables-restore", "# iptables-restore", "two rule sets"),
    ] {
        assert!(TABLES.contains(before), "{before}");
        let error = Ruleset::rendered(&TABLES.replace(before, after)).unwrap_err();
        assert!(format!("{error:#}").contains(part), "{after}: {error:#}");
    }
    // Only where the kernel takes them.
    for (before, after) in [
        ("-I PREROUTING -j SERVICES", "-I PREROUTING -j LATE"),
        ("-I POSTROUTING -j LATE", "-I POSTROUTING -j ONE"),
    ] {
        let text = TABLES.replace(before, after).replace("! --mark", "--mark");
        let rules = Ruleset::rendered(&text).unwrap();
        let error = rules.fate(&packet("10.1.2.3", "10.97.0.9:80"), &is_own);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("does not belong"), "{after}: {error}");
    }
}

/// Rules of others have more words than ours, and spell some in another way.
#[test]
fn what_kube_proxy_writes_is_understood_as_it_is_shown() {
    let mut rules = Ruleset::default();
    let v4 = include_str!("../../../data/kube-proxy-iptables-node-a.txt");
    let v6 = include_str!("../../../data/kube-proxy-ip6tables-node-a.txt");
    rules.add(IpFamily::V4, v4).unwrap();
    rules.add(IpFamily::V6, v6).unwrap();
    let fate = rules.fate(&packet("203.0.113.9", "198.51.100.200:80"), &is_own);
    assert_eq!(fate.unwrap().to_string(), "untouched");
}
