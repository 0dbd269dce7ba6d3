//! What programs on devices would bypass is found where it is: rules of nftables and of both kinds of
//! iptables, and policies of IPsec, loaded by their own programs. What every node has is no reason.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::Write as _,
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::LIMIT,
    process::{self, Process},
    requires::{self, Need},
    shop::small_service,
};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Bpf,
    Need::Tool("ip"),
    Need::Tool("nft"),
    Need::Tool("iptables-nft-restore"),
    Need::Tool("iptables-legacy-restore"),
];

/// As kubelet, kube-proxy, CNI plugins, Docker, a DNS cache on the node and Calico without policies of host
/// endpoints leave it.
const USUAL: &str = "*raw
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
-A PREROUTING -j cali-PREROUTING
-A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -j CT --notrack
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
COMMIT
*mangle
:KUBE-KUBELET-CANARY - [0:0]
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A POSTROUTING -j MARK --set-xmark 0x1/0x1
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -p tcp -m tcp --dport 81 -j DNAT --to-destination 172.17.0.2:80
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -p tcp -m tcp --dport 22 -j DROP
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m conntrack --ctorigsrc 192.0.2.9 -j DROP
-A KUBE-FIREWALL -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
";

/// Rules of nftables that are no reason.
const USUAL_NFT: &str = "table inet usual {
  chain forward { type filter hook forward priority filter; policy drop; ct state invalid drop; ct status snat accept; }
  chain late { type filter hook prerouting priority dstnat + 1; drop; }
  chain marks { type filter hook prerouting priority mangle; counter; log prefix \"x\"; accept; }
  chain nowhere { drop; }
}
";

/// How rules are loaded.
#[derive(Clone, Copy)]
enum By {
    Nft,
    /// Of both kinds and both families.
    Iptables,
    Ip,
}

/// Rules, and what is said about them.
const CASES: &[(By, &str, &[&str])] = &[
    (
        By::Nft,
        "table inet talos { chain prerouting { type filter hook prerouting priority -150; policy drop; accept; } }",
        &["table inet talos, chain prerouting drops packets"],
    ),
    (
        By::Nft,
        "table ip firewalld { chain forwards { type filter hook forward priority 10; ct status dnat accept; drop; } }",
        &["table ip firewalld, chain forwards goes by how conntrack translated the destination"],
    ),
    (
        By::Nft,
        "table ip6 f { chain forwards { type filter hook forward priority 0; ct original ip6 daddr fd00::1 drop; } }",
        &["table ip6 f, chain forwards goes by"],
    ),
    (
        By::Nft,
        "table ip f { chain forwards { type filter hook forward priority 0; meta l4proto tcp ct original proto-dst 30080 drop; } }",
        &["table ip f, chain forwards goes by"],
    ),
    (
        By::Nft,
        "table ip m { chain pre { type filter hook prerouting priority mangle; iifname \"eth0\" jump sets; }
         chain sets { ct mark set 0x80; } }",
        &["table ip m, chain sets marks packets before their destination is translated (of eth0)"],
    ),
    (
        By::Nft,
        "table ip m { chain pre { type filter hook prerouting priority raw; iifname \"et*\" tcp dport vmap { 1: drop, 2: accept }; } }",
        &["table ip m, chain pre decides by a map before their destination is translated (of et*)"],
    ),
    (
        By::Nft,
        "table netdev n { chain in { type filter hook ingress device lo priority 0; tcp dport 1 drop; } }",
        &["table netdev n, chain in drops packets before their destination is translated (of lo)"],
    ),
    (
        By::Nft,
        "table ip q { chain pre { type filter hook prerouting priority -300; tcp dport 2 tproxy to :5; } }",
        &["table ip q, chain pre diverts packets"],
    ),
    (
        By::Iptables,
        "*raw\n-A PREROUTING -i eth0 -p tcp -m tcp --dport 30080 -j DROP\nCOMMIT\n",
        &["chain PREROUTING drops packets before their destination is translated (of eth0)"],
    ),
    (
        By::Iptables,
        "*mangle\n:AWS - [0:0]\n-A PREROUTING -i en+ -j AWS\n-A AWS -j CONNMARK --set-xmark 0x80/0x80\nCOMMIT\n",
        &["chain AWS marks packets before their destination is translated (of en*)"],
    ),
    (
        By::Iptables,
        "*filter\n-A FORWARD -m conntrack --ctstate DNAT -j ACCEPT\nCOMMIT\n",
        &["chain FORWARD goes by"],
    ),
    (
        By::Iptables,
        "*filter\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -p tcp -m conntrack --ctorigdstport 80 -j DROP\nCOMMIT\n",
        &["chain DOCKER-USER goes by"],
    ),
    (
        By::Iptables,
        "*mangle\n:cali-from-host-endpoint - [0:0]\n:cali-fh-eth0 - [0:0]\n-A PREROUTING -j cali-from-host-endpoint\n-A cali-from-host-endpoint -i eth0 -g cali-fh-eth0\n-A cali-fh-eth0 -j DROP\nCOMMIT\n",
        &["chain cali-from-host-endpoint drops packets before their destination is translated (of eth0)"],
    ),
    (
        By::Ip,
        "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action allow",
        &["IPsec policies (ip xfrm policy) are in force"],
    ),
];

/// Runs a program in the node's network.
fn run(shop: &Shop, command: &str, input: &str) {
    let run = || {
        let mut words = command.split_whitespace();
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success(), "{command}: {input}");
    };
    shop.world.node().netns().run(run).unwrap();
}

/// What `check` says about rules that would be bypassed.
fn told(shop: &Shop, agent: &Agent<'_>) -> Value {
    let mut command = agent.command("check").unwrap();
    command.args(["-o", "json", "--tc=auto"]);
    let netns = shop.world.node().netns();
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    let json: Value =
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let of_ebpf = json["backends"][0]["requirements"].as_array().unwrap();
    let is_it = |one: &&Value| one["name"] == "bypassed rules";
    let one = of_ebpf.iter().find(is_it);
    one.unwrap_or_else(|| panic!("{done:?}"))["found"].clone()
}

/// Each statement on a line of its own, as `nft` has it.
fn in_lines(rules: &str) -> String {
    rules
        .replace("; ", ";\n")
        .replace(" }", "\n}")
        .replace("} }", "}\n}\n")
        + "\n"
}

fn restore(kind: &str) -> [String; 2] {
    ["iptables", "ip6tables"].map(|name| format!("{name}-{kind}-restore --noflush --wait=20"))
}

/// For IPv6, where addresses are those of IPv4.
fn without_addresses(rules: &str) -> String {
    let of_v4 = |line: &&str| {
        line.contains("0.0.0/8")
            || line.contains("/32")
            || line.contains("192.0.2.9")
            || line.contains("172.17")
    };
    let lines = rules.lines().filter(|line| !of_v4(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn rules_that_every_node_has_are_no_reason() {
    if !requires::met("bypasses", NEEDS) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [("web.yaml", &*small_service(1, &[1]))];
    let agent = Agent::prepare(&shop.world, AgentOptions::default(), &files).unwrap();
    assert_eq!(told(&shop, &agent), "none", "nothing is there");
    for kind in ["nft", "legacy"] {
        let [v4, v6] = restore(kind);
        run(&shop, &v4, USUAL);
        run(&shop, &v6, &without_addresses(USUAL));
    }
    run(&shop, "nft -f -", USUAL_NFT);
    assert_eq!(told(&shop, &agent), "none");
}

#[test]
fn what_would_be_bypassed_is_named_with_its_place() {
    if !requires::met("bypasses", NEEDS) {
        return;
    }
    for (by, rules, expected) in CASES {
        let kinds: &[&str] = match by {
            By::Iptables => &["nft", "legacy"],
            By::Nft | By::Ip => &[""],
        };
        for kind in kinds {
            let shop = Shop::routed().unwrap();
            let files = [("web.yaml", &*small_service(1, &[1]))];
            let agent = Agent::prepare(&shop.world, AgentOptions::default(), &files).unwrap();
            match by {
                By::Nft => run(&shop, "nft -f -", &in_lines(rules)),
                By::Ip => run(&shop, &format!("ip {rules}"), ""),
                By::Iptables => restore(kind).iter().for_each(|one| run(&shop, one, rules)),
            }
            let told = told(&shop, &agent);
            let told = told.as_str().unwrap();
            for one in *expected {
                // Of both families.
                let times = if matches!(by, By::Iptables) { 2 } else { 1 };
                assert_eq!(told.matches(one).count(), times, "{rules}: {told}");
            }
        }
    }
}
