//! What kube-proxy left is found and removed, and what others have is as it was. Its own rules, from
//! a real cluster, in network namespaces. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "leftovers/shared.rs"]
mod shared;

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt};
use proxy_agent::leftovers::{Found, Mode, find, find_again, remove};
use proxy_tests::{
    agent,
    bpffs::PinDir,
    netns::NetNs,
    requires::{self, Need},
};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("ip"),
    Need::Tool("nft"),
    Need::Tool("ipset"),
    Need::Tool("iptables-nft-save"),
    Need::Tool("iptables-legacy-save"),
];

const IPTABLES: &str = include_str!("../data/kube-proxy-iptables-node-a.txt");
const IP6TABLES: &str = include_str!("../data/kube-proxy-ip6tables-node-a.txt");
const NFTABLES: &str = include_str!("../data/kube-proxy-nftables-node-a.txt");

/// Rules as Docker, kubelet and an administrator have them.
const OTHERS: &str = "*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:DOCKER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -p tcp -m tcp --dport 81 -j REDIRECT --to-ports 82
-A POSTROUTING -o d0 -m comment --comment \"not -j KUBE-SERVICES\" -j MASQUERADE
-A DOCKER -i d0 -j RETURN
COMMIT
*filter
:DOCKER-USER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -j DOCKER-USER
-A DOCKER-USER -j RETURN
COMMIT
";

/// Runs `test` on a thread in a namespace of its own.
fn in_namespace(test: impl FnOnce() + Send) {
    if !requires::met("leftovers", NEEDS) {
        return;
    }
    let netns = NetNs::new().unwrap();
    netns.ip("link set lo up\n").unwrap();
    netns.run(test).unwrap();
}

/// What a program prints that is given `input`.
fn run(command: &str, input: &str) -> String {
    let mut words = command.split(' ');
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command}: {input}");
    String::from_utf8(output.stdout).unwrap()
}

fn restore(kind: &str, rules: &str) {
    run(&format!("{kind}-restore --noflush --wait=20"), rules);
}

/// The chains that somebody made, and all rules.
fn saved(kind: &str) -> Vec<String> {
    let saved = run(&format!("{kind}-save"), "");
    let mut table = "";
    let mut told = Vec::new();
    for line in saved.lines() {
        table = line.strip_prefix('*').unwrap_or(table);
        if line.starts_with("-A") || (line.starts_with(':') && line.contains(" - ")) {
            let line = line.split(" [").next().unwrap();
            told.push(format!("{table} {line}"));
        }
    }
    told
}

/// Kube-proxy counts with objects that not every kernel has; it leaves them away there, too.
fn without_counting(rules: &str) -> String {
    let mut rules = rules.to_owned();
    for object in [
        "ct_state_invalid_dropped_pkts",
        "localhost_nps_accepted_pkts",
    ] {
        rules = rules.replace(&format!(" -m nfacct --nfacct-name  {object}"), "");
    }
    rules
}

fn told(found: &Found) -> Vec<String> {
    found.leftovers.iter().map(ToString::to_string).collect()
}

/// Removes what is found, all of it.
fn remove_all() -> Found {
    let found = find();
    let removed = remove(&found);
    assert_eq!(removed.problems, Vec::<String>::new());
    assert_eq!(removed.removed, found.leftovers);
    let left = find();
    assert_eq!(told(&left), Vec::<String>::new());
    assert_eq!(left.problems, found.problems);
    found
}

/// Kube-proxy's rules among those of others, in the iptables of one kind.
fn of_kind(kind: &str) {
    in_namespace(|| {
        let [v4, v6] = [format!("iptables-{kind}"), format!("ip6tables-{kind}")];
        restore(&v4, OTHERS);
        restore(&v6, OTHERS);
        let before = [saved(&v4), saved(&v6)];
        assert_eq!(told(&find()), Vec::<String>::new());
        restore(&v4, &without_counting(IPTABLES));
        restore(&v6, &without_counting(IP6TABLES));

        let found = remove_all();
        assert_eq!(found.modes(), [Mode::Iptables]);
        assert_eq!(found.problems, Vec::<String>::new());
        let expected: Vec<String> = [(&v4, "IPv4", 64, 174), (&v6, "IPv6", 20, 48)]
            .iter()
            .flat_map(|(name, family, parts, rules)| {
                let of = format!("iptables mode, {family}: chains in table");
                [
                    format!("{of} `mangle` of {name}, 1 part"),
                    format!("{of} `filter` of {name}, 6 parts"),
                    format!("{of} `nat` of {name}, {parts} parts, {rules} rules"),
                ]
            })
            .collect();
        let mut told = told(&found);
        told.sort();
        for line in expected {
            assert!(
                told.iter().any(|told| told.starts_with(&line)),
                "{line}: {told:#?}"
            );
        }
        assert_eq!(told.len(), 6);
        for (name, before) in [v4, v6].iter().zip(before) {
            let after = saved(name);
            let (kubelets, others): (Vec<_>, Vec<_>) = after
                .into_iter()
                .partition(|line| line.contains("KUBE-FIREWALL"));
            assert_eq!(others, before, "{name}");
            // Made by kube-proxy for kubelet, which has the same.
            assert!(kubelets.len() >= 3, "{kubelets:?}");
        }
    });
}

/// The agent's `--cleanup` in this thread's namespace, where no program is to be found: exit code,
/// standard output and standard error.
fn clean_without_programs(pins: &PinDir) -> (Option<i32>, String, String) {
    let mut command = Command::new(agent::path().unwrap());
    command.env("PATH", "/nowhere");
    command.args(["--cleanup", "--pin-dir"]).arg(pins.path());
    let done = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// What the programs would have found, the kernel tells, too.
#[test]
fn chains_in_iptables_nft_without_any_program() {
    let stranger = "*nat\n:MINE - [0:0]\n-A MINE -j KUBE-MARK-MASQ\nCOMMIT\n";
    in_namespace(|| {
        let [v4, v6] = ["iptables", "ip6tables"].map(|name| format!("{name}-nft"));
        let both = [&*v4, &*v6];
        for kind in both {
            restore(kind, OTHERS);
        }
        let before = both.map(saved);
        restore(both[0], &without_counting(IPTABLES));
        restore(both[1], &without_counting(IP6TABLES));
        restore(both[1], stranger);
        let by_programs = told(&find());
        assert_eq!(by_programs.len(), 6);

        // A chain that somebody else's rule leads to stays.
        let pins = PinDir::new().unwrap();
        let (code, removed, problems) = clean_without_programs(&pins);
        for leftover in by_programs {
            let line = format!("removed what kube-proxy left: {leftover}\n");
            assert!(removed.contains(&line), "{line}: {removed}");
        }
        assert_eq!((code, &*problems), (Some(0), ""));
        let left = "left table `nat` of ip6tables-nft: ";
        let left = removed.lines().find(|line| line.starts_with(left)).unwrap();
        assert!(left.ends_with("-A MINE … -j KUBE-MARK-MASQ"), "{left}");
        let stay = saved(both[1]);
        for line in ["nat :KUBE-MARK-MASQ -", "nat :KUBE-POSTROUTING -"] {
            assert!(stay.iter().any(|one| one == line), "{stay:#?}");
        }

        restore(both[1], "*nat\n-F MINE\n-X MINE\nCOMMIT\n");
        let (code, _, problems) = clean_without_programs(&pins);
        assert_eq!((code, &*problems), (Some(0), ""));
        for (kind, before) in both.into_iter().zip(before) {
            let after: Vec<_> = saved(kind)
                .into_iter()
                .filter(|line| !line.contains("KUBE-FIREWALL"))
                .collect();
            assert_eq!(after, before, "{kind}");
        }
    });
}

/// Only the programs know what is in these.
#[test]
fn chains_in_iptables_legacy_without_any_program_are_told() {
    in_namespace(|| {
        let kind = "legacy";
        restore(&format!("iptables-{kind}"), &without_counting(IPTABLES));
        let (code, _, problems) = clean_without_programs(&PinDir::new().unwrap());
        assert_eq!(code, Some(1), "{problems}");
        assert!(problems.contains("legacy has tables here"), "{problems}");
        assert!(problems.contains("-tools"), "{problems}");
        assert!(!problems.contains("ip6tables"), "{problems}");
    });
}

#[test]
fn chains_in_iptables_nft() {
    of_kind("nft");
}

#[test]
fn chains_in_iptables_legacy() {
    of_kind("legacy");
}

#[test]
fn tables_of_nftables_mode() {
    in_namespace(|| {
        run(
            "nft -f -",
            "add table ip kube-proxy-2\nadd chain ip kube-proxy-2 a\nadd table inet kube-proxy\n",
        );
        let before = run("nft list ruleset", "");
        run("nft -f -", NFTABLES);
        let found = remove_all();
        assert_eq!(found.modes(), [Mode::Nftables]);
        let told = told(&found);
        assert_eq!(told.len(), 2, "{told:?}");
        for (line, family) in told.iter().zip(["IPv4", "IPv6"]) {
            let expected = format!("nftables mode, {family}: table `kube-proxy` of nftables, ");
            assert!(line.starts_with(&expected), "{line}");
            assert!(line.contains("parts") && line.contains("rules"), "{line}");
        }
        assert_eq!(run("nft list ruleset", ""), before);
        // Again: what is gone is no problem.
        assert_eq!(remove(&found).problems, Vec::<String>::new());
    });
}

#[test]
fn device_sets_and_chains_of_ipvs_mode() {
    in_namespace(|| {
        // Any kind of device will do: what counts is its name.
        run(
            "ip -batch -",
            "link add kube-ipvs0 type bridge\naddress add 10.96.0.1/32 dev kube-ipvs0\n\
             address add 10.96.0.10/32 dev kube-ipvs0\nlink add mine type bridge\n",
        );
        run(
            "ipset restore",
            "create KUBE-CLUSTER-IP hash:ip,port\n\
             create KUBE-6-CLUSTER-IP hash:ip,port family inet6\n\
             create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\n\
             create KUBE-SRC-TMCUBWVAGBCZKHPG hash:ip\n",
        );
        // The rules of the mode name its sets, which cannot be destroyed before.
        restore(
            "iptables-nft",
            "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODE-PORT - [0:0]\n\
             -A PREROUTING -j KUBE-SERVICES\n\
             -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\n\
             -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT\nCOMMIT\n",
        );
        let found = remove_all();
        assert_eq!(found.modes(), [Mode::Ipvs]);
        assert_eq!(
            told(&found),
            [
                "ipvs mode, IPv4: chains in table `nat` of iptables-nft, 2 parts, 3 rules",
                "ipvs mode: device `kube-ipvs0`, 2 parts",
                "ipvs mode: sets (ipset), 3 parts",
            ]
        );
        assert_eq!(run("ipset list -n", ""), "KUBE-SRC-TMCUBWVAGBCZKHPG\n");
        let links = run("ip -o link", "");
        assert!(
            links.contains("mine:") && !links.contains("kube-ipvs0"),
            "{links}"
        );
    });
}

/// The virtual servers of this namespace, as ipvsadm names them.
fn virtual_servers() -> Vec<String> {
    let saved = run("ipvsadm -S -n", "");
    let servers = saved.lines().filter(|line| line.starts_with("-A"));
    let mut servers: Vec<_> = servers
        .map(|line| {
            line.split(' ')
                .skip(1)
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    servers.sort();
    servers
}

#[test]
fn virtual_servers_at_its_addresses_go_and_those_of_others_stay() {
    if !requires::met(
        "leftovers",
        &[Need::Root, Need::Tool("ipvsadm"), Need::Ipvs],
    ) {
        return;
    }
    in_namespace(|| {
        run(
            "ip -batch -",
            "link add kube-ipvs0 type bridge\naddress add 10.96.0.1/32 dev kube-ipvs0\n\
             address add fd00:10:96::1/128 dev kube-ipvs0\n\
             link add mine type bridge\naddress add 192.0.2.1/24 dev mine\n",
        );
        run(
            "ipvsadm -R",
            "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.0.1:8080 -m\n\
             -A -u [fd00:10:96::1]:53 -s rr\n-A --sctp-service 10.96.0.1:7777 -s rr\n\
             -A -t 192.0.2.1:30080 -s rr\n-A -t 203.0.113.9:80 -s rr\n",
        );
        let told_of = |found: &Found| told(found).join("; ");
        let found = remove_all();
        assert_eq!(
            told_of(&found),
            "ipvs mode: virtual servers, 3 parts; ipvs mode: device `kube-ipvs0`, 2 parts"
        );
        assert_eq!(
            virtual_servers(),
            ["-t 192.0.2.1:30080", "-t 203.0.113.9:80"]
        );

        // Only its sets tell that it served NodePorts here.
        run("ipset restore", "create KUBE-CLUSTER-IP hash:ip,port\n");
        let found = remove_all();
        assert_eq!(
            told_of(&found),
            "ipvs mode: virtual servers, 1 part; ipvs mode: sets (ipset), 1 part"
        );
        assert_eq!(virtual_servers(), ["-t 203.0.113.9:80"]);
    });
}

#[test]
fn a_virtual_server_stays_until_its_last_connection_has_ended() {
    let needs = [Need::Root, Need::Tool("ipvsadm"), Need::Ipvs];
    if !requires::met("leftovers", &needs) {
        return;
    }
    in_namespace(|| {
        run(
            "ip -batch -",
            "link add kube-ipvs0 type bridge\naddress add 10.96.0.1/32 dev kube-ipvs0\n\
             address add 10.96.0.2/32 dev kube-ipvs0\n\
             address add 10.244.0.1/32 dev lo\n",
        );
        run("ipset restore", "create KUBE-CLUSTER-IP hash:ip,port\n");
        let listener = TcpListener::bind("10.244.0.1:8080").unwrap();
        run(
            "ipvsadm -R",
            "-A -t 10.96.0.1:80 -s rr\n-a -t 10.96.0.1:80 -r 10.244.0.1:8080 -m\n\
             -A -t 10.96.0.2:80 -s rr\n-a -t 10.96.0.2:80 -r 10.244.0.1:8080 -m\n",
        );
        let mut client = TcpStream::connect("10.96.0.1:80").unwrap();
        let (mut served, _) = listener.accept().unwrap();
        let mut exchange = |text: &[u8]| {
            client.write_all(text).unwrap();
            let mut heard = vec![0; text.len()];
            served.read_exact(&mut heard).unwrap();
            assert_eq!(heard, text);
        };
        exchange(b"before");
        for _ in 0..2 {
            let removed = remove(&find());
            assert_eq!(removed.problems, Vec::<String>::new());
            let waiting: Vec<_> = removed.waiting.iter().map(ToString::to_string).collect();
            assert_eq!(
                waiting,
                [
                    "ipvs mode: virtual servers, 1 part",
                    "ipvs mode: device `kube-ipvs0`, 2 parts",
                    "ipvs mode: sets (ipset), 1 part",
                ]
            );
            assert_eq!(virtual_servers(), ["-t 10.96.0.1:80"]);
            exchange(b"meanwhile");
        }
        // Reset, so that the kernel forgets it in seconds.
        let reset = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(&client, sockopt::Linger, &reset).unwrap();
        drop(client);
        let deadline = Instant::now() + Duration::from_mins(2);
        while !remove(&find_again()).waiting.is_empty() {
            assert!(Instant::now() < deadline, "{:?}", virtual_servers());
            thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(told(&find()), Vec::<String>::new());
        assert_eq!(virtual_servers(), Vec::<String>::new());
    });
}
