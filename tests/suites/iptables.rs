//! The chains in the tables of iptables, of both flavours: adopted after a restart, mended when somebody else was at
//! them, next to those of others, and in the place of kube-proxy's. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "iptables/alone.rs"]
mod alone;
#[path = "iptables/beneath.rs"]
mod beneath;
#[path = "iptables/checked.rs"]
mod checked;
#[path = "iptables/counted.rs"]
mod counted;
#[path = "iptables/faults.rs"]
mod faults;
#[path = "iptables/killed.rs"]
mod killed;
#[path = "iptables/localnet.rs"]
mod localnet;
#[path = "iptables/neighbours.rs"]
mod neighbours;
#[path = "iptables/random.rs"]
mod random;

use std::{collections::BTreeSet, os::fd::AsFd as _, process::Command};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LIMIT,
    pod::Transport,
    process::{self, Finished, Process},
    requires::{self, Need, PRIVILEGED},
    shop::{answers, frontend, http, service},
};

use crate::nftables::answering;

const SUITE: &str = "iptables";
const FILE: &str = "cluster.yaml";
const FLAVOURS: [&str; 2] = ["nft", "legacy"];
/// A chain by which kubelet is known.
const KUBELETS: &str = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n";
const NEEDS: &[Need] = &[
    Need::Tool("iptables-nft-restore"),
    Need::Tool("iptables-legacy-restore"),
];

/// Whether the suite can run here.
fn can_run() -> bool {
    requires::met(SUITE, PRIVILEGED) && requires::met(SUITE, NEEDS)
}

fn options() -> AgentOptions {
    AgentOptions {
        arguments: vec!["--proxy-mode=iptables".to_owned()],
        ..AgentOptions::default()
    }
}

/// A node whose kubelet uses this flavour.
struct Node {
    shop: Shop,
    flavour: &'static str,
}

impl Node {
    fn new(flavour: &'static str) -> Self {
        let node = Self {
            shop: Shop::routed().unwrap(),
            flavour,
        };
        // For both families, by which a kernel with modules has those of both: agents may load none.
        for family in ["iptables", "ip6tables"] {
            node.restore_of(family, KUBELETS);
        }
        node
    }

    /// From now on, its kubelet uses the flavour `after` instead.
    fn move_kubelet(&self, after: &str) {
        let gone = KUBELETS.replace("COMMIT", "-X KUBE-KUBELET-CANARY\nCOMMIT");
        for family in ["iptables", "ip6tables"] {
            self.restore_of(family, &gone);
            let program = format!("{family}-{after}-restore");
            let netns = self.shop.world.node().netns();
            netns.feed(&[&program, "--noflush"], KUBELETS).unwrap();
        }
    }

    /// Has `iptables-restore` take this.
    fn restore(&self, input: &str) {
        self.restore_of("iptables", input);
    }

    fn restore_of(&self, family: &str, input: &str) {
        let program = format!("{family}-{}-restore", self.flavour);
        let netns = self.shop.world.node().netns();
        netns
            .feed(&[&program, "--noflush", "-w", "20"], input)
            .unwrap();
    }

    /// What is in the tables of a family, without counters and the time.
    fn saved(&self, program: &str) -> String {
        let save = format!("{program}-{}-save", self.flavour);
        let done = self
            .shop
            .world
            .node()
            .netns()
            .run(|| Command::new(save).output().unwrap());
        let text = String::from_utf8(done.unwrap().stdout).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| line.split(" [").next().unwrap());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Of both families, as sets: the order of rules in chains that all share is nobody's.
    fn rules(&self) -> BTreeSet<String> {
        let both = ["iptables", "ip6tables"].map(|program| self.saved(program));
        both.iter()
            .flat_map(|text| text.lines())
            .map(ToOwned::to_owned)
            .collect()
    }

    fn prober(&self) -> Prober {
        Prober::start(&self.shop.client).unwrap()
    }

    /// `proxy-agent SUBCOMMAND` on the node, with the pin directory of `agent`.
    fn ask(&self, agent: &Agent<'_>, subcommand: &str) -> Finished {
        let mut command = agent.command(subcommand).unwrap();
        let netns = self.shop.world.node().netns();
        process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
        Process::run("proxy-agent", command, LIMIT).unwrap()
    }
}

#[test]
fn a_restart_adopts_the_rules_and_writes_only_what_changed() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
        let mut prober = node.prober();
        answering(&mut prober);
        let serving = agent.serving().unwrap();
        assert_eq!(serving.flag("adopted"), Some(false));
        assert_eq!(serving.text("flavour"), Some(flavour));
        let before = node.rules();
        agent.kill().unwrap();
        answering(&mut prober);
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
        assert_eq!(node.rules(), before);
        // While nobody serves, a Service goes and another one comes.
        agent.kill().unwrap();
        agent.apply(FILE, &service(2, &[3])).unwrap();
        agent.launch().unwrap();
        let only = [http(3)].into();
        assert_eq!(
            answers(&mut prober, Transport::Tcp, frontend(2, 80)).unwrap(),
            only
        );
        let left: Vec<_> = node
            .rules()
            .into_iter()
            .filter(|rule| rule.contains("10.96.0.1/"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

/// As many changes as one likes come to the rules that are written at once.
#[test]
fn any_row_of_changes_leads_to_the_rules_of_one_full_restore() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
        for (number, endpoints) in [
            (2, &[1, 2, 3][..]),
            (3, &[]),
            (2, &[3]),
            (3, &[1]),
            (1, &[2]),
            (4, &[4, 5]),
            (2, &[]),
            (1, &[2, 4]),
            (3, &[1, 5]),
        ] {
            let file = format!("s{number}.yaml");
            let file = if number == 1 { FILE } else { &*file };
            agent
                .apply_and_sync(file, &service(number, endpoints))
                .unwrap();
        }
        agent.delete("s4.yaml").unwrap();
        agent.wait_until_synced().unwrap();
        let by_changes = node.rules();
        agent.kill().unwrap();
        for program in ["iptables", "ip6tables"] {
            for table in ["nat", "filter"] {
                let program = format!("{program}-{flavour}");
                for clear in ["-F", "-X"] {
                    let words = [&*program, "-w", "20", "-t", table, clear];
                    node.shop.world.node().netns().feed(&words, "").unwrap();
                }
            }
        }
        agent.launch().unwrap();
        assert_eq!(node.rules(), by_changes, "{flavour}");
    }
}

#[test]
fn what_somebody_else_does_to_the_rules_is_noticed_and_mended() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
        let mut prober = node.prober();
        answering(&mut prober);
        let before = node.rules();
        let saved = node.saved("iptables");
        let chain = |prefix: &str| {
            let all = saved.lines().filter_map(|line| line.strip_prefix(':'));
            let mut named = all.filter(|line| line.starts_with(prefix));
            named.next().unwrap().split(' ').next().unwrap().to_owned()
        };
        let (service, endpoint) = (chain("KUBE-SVC-"), chain("KUBE-SEP-"));
        // Each with an object of its own, by which its repair is told from that of the others.
        for (what, input, object) in [
            (
                "half of a chain is gone",
                format!("*nat\n-D {service} 2\nCOMMIT\n"),
                format!("nat {service}"),
            ),
            (
                "an endpoint is another one",
                format!(
                    "*nat\n-R {endpoint} 2 -p tcp -j DNAT --to-destination 10.9.9.9:9\nCOMMIT\n-N\n"
                )
                .replace("-N\n", ""),
                format!("nat {endpoint}"),
            ),
            (
                "a rule comes first",
                "*nat\n-I KUBE-SERVICES -j RETURN\nCOMMIT\n".to_owned(),
                "nat KUBE-SERVICES".to_owned(),
            ),
            (
                "nothing leads there",
                "*nat\n-D PREROUTING 1\nCOMMIT\n".to_owned(),
                "nat PREROUTING".to_owned(),
            ),
            (
                "the canary is gone",
                "*mangle\n-X KUBE-PROXY-CANARY\nCOMMIT\n".to_owned(),
                "mangle KUBE-PROXY-CANARY".to_owned(),
            ),
            // As with a reload of firewalld.
            (
                "flushed",
                "*nat\n-F\nCOMMIT\n*filter\n-F\nCOMMIT\n".to_owned(),
                "filter KUBE-FORWARD".to_owned(),
            ),
        ] {
            node.restore(&input);
            agent
                .wait_for_line(what, |line| {
                    let told = line.text("object").unwrap_or_default();
                    line.message() == Some("repaired") && told == object
                })
                .unwrap_or_else(|error| panic!("{flavour}, {what}: {error:#}"));
            answering(&mut prober);
            assert_eq!(node.rules(), before, "{flavour}, {what}");
        }
    }
}

#[test]
fn chains_of_others_stay_and_go_on_working() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        // kubelet, a firewall, and a plugin whose rules lead to a chain that has kube-proxy's name.
        node.restore(
            "*filter\n:KUBE-FIREWALL - [0:0]\n:THEIRS - [0:0]\n-A FORWARD -j THEIRS\n\
             -A THEIRS -p tcp --dport 9999 -j DROP\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n\
             *nat\n:CNI - [0:0]\n-A PREROUTING -j CNI\n\
             -A CNI -d 198.51.100.1 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.0.5:8080\nCOMMIT\n",
        );
        let theirs = node.rules();
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
        let mut prober = node.prober();
        answering(&mut prober);
        let to = "198.51.100.1:80".parse().unwrap();
        let only = [http(5)].into();
        assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), only);
        agent.apply_and_sync(FILE, &service(1, &[2])).unwrap();
        agent.terminate().unwrap();
        let lost: Vec<_> = theirs.difference(&node.rules()).cloned().collect();
        assert_eq!(lost, Vec::<String>::new());
        let done = node.ask(&agent, "cleanup");
        assert_eq!(done.code, Some(0), "{done:?}");
        let told = format!("removed the chains in tables of iptables-{flavour}");
        assert!(done.stdout.contains(&told), "{done:?}");
        assert_eq!(node.rules(), theirs, "{flavour}");
        assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), only);
    }
}

/// kubelet may come to use the other flavour, with an update of the host.
#[test]
fn after_the_flavour_has_changed_nothing_is_led_by_rules_of_the_other() {
    if !can_run() {
        return;
    }
    for (before, after) in [("nft", "legacy"), ("legacy", "nft")] {
        let node = Node::new(before);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
        agent.kill().unwrap();
        node.move_kubelet(after);
        agent.apply(FILE, &service(2, &[3])).unwrap();
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().text("flavour"), Some(after));
        let only = [http(3)].into();
        let reached = answers(&mut node.prober(), Transport::Tcp, frontend(2, 80));
        assert_eq!(reached.unwrap(), only);
        assert!(!node.saved("iptables").contains("KUBE-SVC"), "{before}");
    }
}
