//! The tables in the kernel: adopted after a restart, mended when somebody else was at them, and
//! next to those of others. Needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "nftables/beside_others.rs"]
mod beside_others;
#[path = "nftables/lost_answers.rs"]
mod lost_answers;
#[path = "nftables/lost_rights.rs"]
pub mod lost_rights;
#[path = "nftables/owner.rs"]
pub mod owner;
#[path = "nftables/rig.rs"]
mod rig;

use std::{
    io::Write as _,
    os::fd::AsFd as _,
    process::{Command, Stdio},
};

use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::LIMIT,
    pod::Transport,
    process::{self, Finished, Process},
    requires::{self, NFTABLES, PRIVILEGED},
    shop::{answers, dns, frontend, frontend6, http, service},
};

use self::owner::TableOwner;

const SUITE: &str = "nftables";
const FILE: &str = "cluster.yaml";

fn nftables() -> AgentOptions {
    AgentOptions {
        arguments: vec!["--proxy-mode=nftables".to_owned()],
        ..AgentOptions::default()
    }
}

/// Has `nft` do what `script` says, on the node.
fn nft(shop: &Shop, script: &str) -> String {
    let done = shop.world.node().netns().run(|| {
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = nft.stdin.take().unwrap();
        stdin.write_all(script.as_bytes()).unwrap();
        drop(stdin);
        nft.wait_with_output().unwrap()
    });
    let done = done.unwrap();
    assert!(done.status.success(), "{script}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// The table as `nft` lists it, elements in order.
fn table(shop: &Shop, family: &str) -> String {
    let mut elements: Vec<_> = nft(shop, &format!("list table {family} culvert\n"))
        .split([',', '\n'])
        .map(|part| part.trim().to_owned())
        .collect();
    elements.sort_unstable();
    elements.join("\n")
}

/// The first two endpoints answer, in both families.
pub fn answering(prober: &mut Prober) {
    let both = [http(1), http(2)].into();
    assert_eq!(
        answers(prober, Transport::Tcp, frontend(1, 80)).unwrap(),
        both
    );
    let both = [dns(1), dns(2)].into();
    assert_eq!(
        answers(prober, Transport::Udp, frontend(1, 53)).unwrap(),
        both
    );
    let answers6 = answers(prober, Transport::Tcp, frontend6(1, 80)).unwrap();
    assert_eq!(answers6.len(), 2);
}

#[test]
fn a_restart_adopts_the_tables_and_writes_only_what_changed() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, nftables(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    answering(&mut prober);
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(false));
    let before = (table(&shop, "ip"), table(&shop, "ip6"));
    agent.kill().unwrap();
    answering(&mut prober);
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
    assert_eq!((table(&shop, "ip"), table(&shop, "ip6")), before);
    // While nobody serves, a Service goes and another one comes.
    agent.kill().unwrap();
    agent.apply(FILE, &service(2, &[3])).unwrap();
    agent.launch().unwrap();
    let only = [http(3)].into();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)).unwrap(),
        only
    );
    assert!(!table(&shop, "ip").contains("10.96.0.1 "));
}

#[test]
fn what_somebody_else_does_to_the_tables_is_noticed_and_mended() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, nftables(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let before = table(&shop, "ip");
    for (what, script, object) in [
        ("flushed", "flush ruleset\n", "table ip culvert"),
        ("deleted", "delete table ip culvert\n", "table ip culvert"),
        (
            "an element is gone",
            "delete element ip culvert services { 10.96.0.1 . tcp . 80 }\n",
            "services { 10.96.0.1 . tcp . 80 }",
        ),
        (
            "an endpoint is another one",
            "delete element ip culvert endpoints { 10.96.0.1 . tcp . 80 . 0 }\n\
             add element ip culvert endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.9.9.9 . 9 }\n",
            "endpoints { 10.96.0.1 . tcp . 80 . 0 }",
        ),
        (
            "an element is added",
            "add element ip culvert unserved { 10.96.0.1 . tcp . 80 : drop }\n",
            "unserved { 10.96.0.1 . tcp . 80 }",
        ),
        (
            "a chain is empty",
            "flush chain ip culvert services\n",
            "chain services",
        ),
        (
            "a rule comes first",
            "insert rule ip culvert dnat-prerouting drop\n",
            "chain dnat-prerouting",
        ),
        (
            "the kernel passes it by",
            "add table ip culvert { flags dormant; }\n",
            "table ip culvert",
        ),
        (
            "a chain is added",
            "add chain ip culvert mine { type filter hook prerouting priority -120; }\n\
             add rule ip culvert mine drop\n",
            "chain mine",
        ),
        (
            "a set is another one",
            "delete table ip culvert\nadd table ip culvert\n\
             add set ip culvert services { type ipv4_addr; }\n",
            "set services",
        ),
    ] {
        nft(&shop, script);
        let repaired = agent
            .wait_for_line(what, |line| {
                let told = line.text("object").unwrap_or_default();
                line.message() == Some("repaired") && told.contains(object)
            })
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        drop(repaired);
        answering(&mut prober);
        // What was added, the next change takes away at the latest.
        agent
            .apply_and_sync("more.yaml", &service(2, &[3]))
            .unwrap();
        agent.delete("more.yaml").unwrap();
        agent.wait_until_synced().unwrap();
        assert_eq!(table(&shop, "ip"), before, "{what}");
    }
}

/// `proxy-agent SUBCOMMAND` on the node, with the pin directory of `agent`.
fn on_the_node(shop: &Shop, agent: &Agent<'_>, subcommand: &str) -> Finished {
    let mut command = agent.command(subcommand).unwrap();
    let netns = shop.world.node().netns();
    process::enter(&mut command, Some(netns.as_fd()), None).unwrap();
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

#[test]
fn a_second_agent_on_a_node_is_told_who_serves_there_and_takes_nothing_from_it() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut second = Agent::prepare(&shop.world, nftables(), &files).unwrap();
    let mut first = Agent::start(&shop.world, nftables(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    let before = (table(&shop, "ip"), table(&shop, "ip6"));
    let who = format!("process {} of ", first.pid().unwrap());

    // Their pin directories, and with them their sockets, differ.
    second.spawn().unwrap();
    let (code, log) = second.wait_for_exit().unwrap();
    assert_eq!(code, Some(4), "{log:?}");
    let told = log.iter().filter_map(|line| line.text("error"));
    let told: Vec<_> = told.filter(|error| error.contains(&who)).collect();
    assert_eq!(told.len(), 1, "{log:?}");
    let refused = on_the_node(&shop, &second, "cleanup");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains(&who), "{refused:?}");
    let checked = on_the_node(&shop, &second, "check");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains(&who), "{checked:?}");
    assert_eq!((table(&shop, "ip"), table(&shop, "ip6")), before);
    answering(&mut prober);

    first.kill().unwrap();
    second.launch().unwrap();
    assert_eq!(second.serving().unwrap().flag("adopted"), Some(true));
    answering(&mut prober);
    second.terminate().unwrap();
    assert_eq!(on_the_node(&shop, &first, "cleanup").code, Some(0));
}

/// As a program does that an agent was just starting when it was killed.
#[test]
fn a_holder_that_ends_while_an_agent_starts_is_waited_for() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    let holder = TableOwner::of(shop.world.node(), "ip culvert-lock").unwrap();

    let mut options = nftables();
    options.arguments.push("--log-level=debug".to_owned());
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::prepare(&shop.world, options, &files).unwrap();
    agent.spawn().unwrap();
    agent.wait_for("waiting for another agent to end").unwrap();
    holder.release().unwrap();
    agent.wait_for("serving").unwrap();
}

#[test]
fn tables_of_others_stay_as_they_are_and_go_on_working() {
    if !requires::met(SUITE, PRIVILEGED) || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let shop = Shop::routed().unwrap();
    // A firewall, and somebody else who translates.
    nft(
        &shop,
        "add table ip theirs\n\
         add chain ip theirs forward { type filter hook forward priority 0; policy accept; }\n\
         add rule ip theirs forward tcp dport 9999 drop\n\
         add chain ip theirs prerouting { type nat hook prerouting priority -100; }\n\
         add rule ip theirs prerouting ip daddr 198.51.100.1 tcp dport 80 dnat to 10.244.0.5:8080\n",
    );
    let theirs = nft(&shop, "list table ip theirs\n");
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&shop.world, nftables(), &files).unwrap();
    let mut prober = Prober::start(&shop.client).unwrap();
    answering(&mut prober);
    let to = "198.51.100.1:80".parse().unwrap();
    let only = [http(5)].into();
    assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), only);
    agent.apply_and_sync(FILE, &service(1, &[2])).unwrap();
    agent.terminate().unwrap();
    assert_eq!(nft(&shop, "list table ip theirs\n"), theirs);
    let done = on_the_node(&shop, &agent, "cleanup");
    assert_eq!(done.code, Some(0), "{done:?}");
    for family in ["ip", "ip6"] {
        let told = format!("removed the table {family} culvert");
        assert!(done.stdout.contains(&told), "{done:?}");
    }
    assert_eq!(nft(&shop, "list ruleset\n"), theirs);
    assert_eq!(answers(&mut prober, Transport::Tcp, to).unwrap(), only);
}
