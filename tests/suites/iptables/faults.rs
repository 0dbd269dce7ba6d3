//! Programs that refuse, wait or are missing.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use proxy_tests::{AgentOptions, requires::NFTABLES, shop::small_service};

use super::*;
use crate::layers::rig::metrics;

/// One that is found before the real one of this name, and runs a script.
fn instead_of(program: &str, script: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join(program), script);
    dir
}

/// A program that runs a script.
pub fn put(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// An agent that finds the programs in `dir` first.
pub fn finding(dir: &tempfile::TempDir) -> AgentOptions {
    let path = std::env::var("PATH").unwrap();
    AgentOptions {
        launcher: vec![
            "env".to_owned(),
            format!("PATH={}:{path}", dir.path().display()),
        ],
        ..options()
    }
}

/// The same, which verifies partial restores so.
fn verifying(dir: &tempfile::TempDir, verify: &str) -> AgentOptions {
    let mut options = finding(dir);
    let flag = format!("--iptables-verify-partial={verify}");
    options.arguments.push(flag);
    options
}

/// The legacy program names no line but the last one.
#[test]
fn a_service_that_is_refused_is_found_and_stops_no_other() {
    if !can_run() {
        return;
    }
    let node = Node::new("legacy");
    let refuses = "input=$(cat)\n\
                   case $input in *'d 10.96.0.3 '*) echo 'line 999 failed' >&2; exit 1;; esac\n\
                   PATH=${PATH#*:}\nprintf '%s\\n' \"$input\" | iptables-legacy-restore \"$@\"\n";
    let dir = instead_of("iptables-legacy-restore", refuses);
    let files = [
        (FILE, &*service(1, &[1, 2])),
        ("bad.yaml", &*small_service(3, &[1])),
    ];
    let mut agent = Agent::prepare(&node.shop.world, finding(&dir), &files).unwrap();
    agent.spawn().unwrap();
    let told = agent.wait_for("service not programmed").unwrap();
    let raw = &told.raw;
    assert!(raw.contains("line 999 failed"), "{raw}");
    let mut prober = node.prober();
    answering(&mut prober);
    // Others change meanwhile.
    agent.apply("more.yaml", &service(2, &[3])).unwrap();
    let only = [http(3)].into();
    agent.wait_until_synced().unwrap();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)).unwrap(),
        only
    );
}

#[test]
fn without_a_program_that_works_it_is_told_what_to_install() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let options = AgentOptions {
        launcher: vec!["env".to_owned(), "PATH=/nowhere".to_owned()],
        ..options()
    };
    let mut agent =
        Agent::prepare(&node.shop.world, options, &[(FILE, &*service(1, &[1]))]).unwrap();
    agent.spawn().unwrap();
    let (code, log) = agent.wait_for_exit().unwrap();
    assert_eq!(code, Some(3), "{log:?}");
    let told = log
        .iter()
        .filter_map(|line| line.text("error"))
        .collect::<String>();
    assert!(
        told.contains("iptables-nft-restore") && told.contains("install the package iptables"),
        "{log:?}"
    );
}

/// Others may write the tables of the nft flavour by another program, in words that iptables does not have.
#[test]
fn tables_that_cannot_be_read_keep_nobody_from_serving_by_others_or_from_cleaning_up() {
    if !can_run() || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let node = Node::new("nft");
    let theirs = "table ip nat {\n  map m { type ipv4_addr : ipv4_addr; }\n\
                  chain PREROUTING { type nat hook prerouting priority -100; dnat to ip daddr map @m; }\n}\n";
    let netns = node.shop.world.node().netns();
    netns.feed(&["nft", "-f", "-"], theirs).unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let options = AgentOptions {
        arguments: vec!["--proxy-mode=nftables".to_owned()],
        ..AgentOptions::default()
    };
    let mut agent = Agent::start(&node.shop.world, options, &files).unwrap();
    answering(&mut node.prober());
    agent.terminate().unwrap();
    let done = node.ask(&agent, "cleanup");
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// A lock that somebody holds for ever makes no rule go away, and what is to be written is written once it is let go.
#[test]
fn while_others_hold_the_lock_what_is_in_force_stays_and_then_the_rest_follows() {
    if !can_run() {
        return;
    }
    let node = Node::new("legacy");
    // Not that of the host: other tests take that.
    let lock = tempfile::NamedTempFile::new().unwrap();
    let options = AgentOptions {
        launcher: vec![
            "env".to_owned(),
            format!("XTABLES_LOCKFILE={}", lock.path().display()),
        ],
        ..options()
    };
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&node.shop.world, options, &files).unwrap();
    let mut prober = node.prober();
    answering(&mut prober);
    lock.as_file().lock().unwrap();
    agent.apply("more.yaml", &service(2, &[3])).unwrap();
    let told = agent
        .wait_for("change not written; comparing all tables")
        .unwrap();
    assert!(
        told.text("error").unwrap().contains("held the lock"),
        "{told:?}"
    );
    answering(&mut prober);
    lock.as_file().unlock().unwrap();
    agent.wait_until_synced().unwrap();
    let only = [http(3)].into();
    assert_eq!(
        answers(&mut prober, Transport::Tcp, frontend(2, 80)).unwrap(),
        only
    );
}

/// A defect in what a change comes to, planted between the agent and the kernel: rules of a chain get lost.
#[test]
fn what_a_partial_restore_does_wrong_is_found_told_and_mended() {
    if !can_run() {
        return;
    }
    for (flavour, verify) in [
        ("nft", "sampled"),
        ("legacy", "sampled"),
        ("nft", "always"),
        ("legacy", "always"),
        ("legacy", "never"),
    ] {
        let node = Node::new(flavour);
        let program = format!("iptables-{flavour}-restore");
        // A restore that brings a third endpoint; what mends the chains of Services does not.
        let planted = format!(
            "input=$(cat)\ncase $input in *'--to-destination 10.244.0.3:'*)\n\
             input=$(printf '%s\\n' \"$input\" | grep -v -e --probability);;\nesac\n\
             PATH=${{PATH#*:}}\nprintf '%s\\n' \"$input\" | {program} \"$@\"\n"
        );
        let dir = instead_of(&program, &planted);
        let options = verifying(&dir, verify);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options, &files).unwrap();
        agent.apply(FILE, &service(1, &[1, 2, 3])).unwrap();
        let what = "partial restore left what a full one would not; mended";
        if verify != "never" {
            let told = agent.wait_for(what).unwrap();
            let chain = told.text("chain").unwrap();
            assert!(chain.contains("nat KUBE-SVC-"), "{told:?}");
        }
        if verify != "sampled" {
            agent.wait_until_synced().unwrap();
        }
        let has_all = || node.saved("iptables").contains("0.333333333");
        if verify == "never" {
            assert!(!has_all(), "nothing was planted");
            let mut command = agent.command("state").unwrap();
            command.arg("--kernel");
            let told = Process::run("proxy-agent", command, LIMIT).unwrap();
            assert!(told.stdout.contains("nat KUBE-SVC-"), "{told:?}");
            continue;
        }
        assert!(has_all());
        // Of TCP and of UDP.
        let both = "culvert_iptables_partial_restore_differences_total{ip_family=\"IPv4\"} 2\n";
        let told = metrics(&node.shop);
        assert!(told.contains(both), "{told}");
        let all = [1, 2, 3].map(http).into();
        let reached = answers(&mut node.prober(), Transport::Tcp, frontend(1, 80));
        assert_eq!(reached.unwrap(), all);
    }
}

/// Between a restore and the look at what it led to.
#[test]
fn what_others_change_while_a_change_is_written_is_mended_as_theirs() {
    if !can_run() {
        return;
    }
    for (flavour, verify) in [("nft", "never"), ("legacy", "never"), ("nft", "always")] {
        let node = Node::new(flavour);
        let program = format!("iptables-{flavour}-restore");
        let by_others = format!(
            "input=$(cat)\nPATH=${{PATH#*:}}\nprintf '%s\\n' \"$input\" | {program} \"$@\"\n\
             case $input in *'--to-destination 10.244.0.3:'*) iptables-{flavour} -w 20 -F KUBE-FORWARD;; esac\n"
        );
        let dir = instead_of(&program, &by_others);
        let options = verifying(&dir, verify);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut agent = Agent::start(&node.shop.world, options, &files).unwrap();
        agent.apply(FILE, &service(1, &[1, 2, 3])).unwrap();
        agent
            .wait_for_line("the repair", |line| {
                let object = line.text("object");
                line.message() == Some("repaired") && object == Some("filter KUBE-FORWARD")
            })
            .unwrap_or_else(|error| panic!("{flavour}, {verify}: {error:#}"));
        let nothing = "culvert_iptables_partial_restore_differences_total{ip_family=\"IPv4\"} 0\n";
        let told = metrics(&node.shop);
        assert!(told.contains(nothing), "{flavour}, {verify}: {told}");
    }
}

/// `iptables-nft-save` leaves out a table with such rules, and ends well.
#[test]
fn a_table_that_the_program_cannot_show_whole_is_told_and_nothing_is_written_twice() {
    if !can_run() || !requires::met(SUITE, NFTABLES) {
        return;
    }
    let node = Node::new("nft");
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::start(&node.shop.world, options(), &files).unwrap();
    answering(&mut node.prober());
    let netns = node.shop.world.node().netns();
    let theirs = "add chain ip nat theirs\nadd rule ip nat theirs ct state new counter\n";
    netns.feed(&["nft", "-f", "-"], theirs).unwrap();
    let told = agent
        .wait_for_line("why", |line| {
            let error = line.text("error").or(line.text("reason"));
            error.is_some_and(|text| text.contains("is incompatible"))
        })
        .unwrap();
    assert!(told.raw.contains("iptables-nft-save"), "{told:?}");
    let done = node.ask(&agent, "state");
    assert_eq!(done.code, Some(0), "{done:?}");
    netns
        .feed(&["nft", "flush", "chain", "ip", "nat", "theirs"], "")
        .unwrap();
    agent.apply(FILE, &service(1, &[1, 3])).unwrap();
    agent.wait_until_synced().unwrap();
    let saved = node.saved("iptables");
    let jumps = saved.matches("-A PREROUTING").count();
    assert_eq!(jumps, 1, "{saved}");
}
