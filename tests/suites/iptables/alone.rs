//! One agent at a time writes the chains of a network namespace.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::*;
use crate::nftables::lost_rights::drop_rights;

/// Threads that ask, of one user.
const ASKERS: usize = 12;

#[test]
fn a_second_agent_on_a_node_is_told_who_serves_there_and_takes_nothing_from_it() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let files = [(FILE, &*service(1, &[1, 2]))];
        let mut second = Agent::prepare(&node.shop.world, options(), &files).unwrap();
        let mut first = Agent::start(&node.shop.world, options(), &files).unwrap();
        let mut prober = node.prober();
        let before = node.rules();
        let who = format!("process {} (proxy-agent)", first.pid().unwrap());
        // Their pin directories, and with them their sockets, differ. Many ask, and nobody uses up the room for that.
        for _ in 0..2 {
            second.spawn().unwrap();
            let (code, log) = second.wait_for_exit().unwrap();
            assert_eq!(code, Some(4), "{log:?}");
            let mut told = log.iter().filter_map(|line| line.text("error"));
            assert!(told.any(|error| error.contains(&who)), "{log:?}");
        }
        let refused = node.ask(&second, "cleanup");
        assert_eq!(refused.code, Some(4), "{refused:?}");
        assert!(refused.stderr.contains(&who), "{refused:?}");
        assert_eq!(node.rules(), before);
        answering(&mut prober);
        first.kill().unwrap();
        second.launch().unwrap();
        assert_eq!(second.serving().unwrap().flag("adopted"), Some(true));
        answering(&mut prober);
        second.terminate().unwrap();
        assert_eq!(node.ask(&first, "cleanup").code, Some(0));
    }
}

/// Anybody may take a name, and keeps nobody from serving by that.
#[test]
fn a_user_who_has_the_name_of_the_lock_keeps_no_agent_from_serving() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let netns = node.shop.world.node().netns();
    let bound = netns.run(|| {
        drop_rights();
        let name = SocketAddr::from_abstract_name("culvert-iptables");
        UnixListener::bind_addr(&name.unwrap())
    });
    let _squatter = bound.unwrap().unwrap();
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut agent = Agent::prepare(&node.shop.world, options(), &files).unwrap();
    agent.spawn().unwrap();
    let told = agent
        .wait_for("lock of iptables taken by somebody else")
        .unwrap();
    assert!(
        told.text("holder").unwrap().contains("user 65534"),
        "{told:?}"
    );
    agent.wait_for("serving").unwrap();
    answering(&mut node.prober());
}

/// Who connects again and again, so that there is hardly ever room for another one.
#[test]
fn a_user_who_keeps_the_lock_busy_keeps_nobody_from_hearing_whose_it_is() {
    if !can_run() {
        return;
    }
    let node = Node::new("nft");
    let files = [(FILE, &*service(1, &[1, 2]))];
    let mut second = Agent::prepare(&node.shop.world, options(), &files).unwrap();
    let first = Agent::start(&node.shop.world, options(), &files).unwrap();
    let before = node.rules();
    let is_over = Arc::new(AtomicBool::new(false));
    let (netns, over) = (node.shop.world.node().netns(), Arc::clone(&is_over));
    let flood = netns.run(|| {
        let ask = |over: Arc<AtomicBool>| {
            drop_rights();
            let name = SocketAddr::from_abstract_name("culvert-iptables").unwrap();
            while !over.load(Ordering::Relaxed) {
                drop(UnixStream::connect_addr(&name));
            }
        };
        let askers = (0..ASKERS).map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || ask(over))
        });
        askers.collect::<Vec<_>>()
    });
    second.spawn().unwrap();
    let (code, log) = second.wait_for_exit().unwrap();
    let refused = node.ask(&second, "cleanup");
    is_over.store(true, Ordering::Relaxed);
    flood
        .unwrap()
        .into_iter()
        .for_each(|asker| asker.join().unwrap());
    assert_eq!(code, Some(4), "{log:?}");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let who = format!("process {} (proxy-agent)", first.pid().unwrap());
    assert!(refused.stderr.contains(&who), "{refused:?}");
    assert_eq!(node.rules(), before);
}

/// Those who ask whose the lock is use up the room for that only while its holder does nothing at all.
#[test]
fn however_often_others_ask_who_serves_they_are_told() {
    if !can_run() {
        return;
    }
    let node = Node::new("legacy");
    let files = [(FILE, &*service(1, &[1, 2]))];
    let second = Agent::prepare(&node.shop.world, options(), &files).unwrap();
    let first = Agent::start(&node.shop.world, options(), &files).unwrap();
    let process = Pid::from_raw(first.pid().unwrap());
    kill(process, Signal::SIGSTOP).unwrap();
    for _ in 0..3 {
        let refused = node.ask(&second, "cleanup");
        assert_eq!(refused.code, Some(4), "{refused:?}");
    }
    kill(process, Signal::SIGCONT).unwrap();
    answering(&mut node.prober());
}
