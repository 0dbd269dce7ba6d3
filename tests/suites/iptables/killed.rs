//! A program of iptables that is killed while it writes, and an agent that is: nobody else notices, and what was to be
//! written is written then.

use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};
use proxy_tests::{
    Traffic,
    agent::Rights,
    shop::{LoadKind, loads},
};

use super::*;

/// What stands before the programs of iptables: one of these happens, once, to the program for which there is a file
/// that names it.
const WRAPPER: &str = r#"
dir=${0%/*} program=${0##*/}
PATH=${PATH#*:}
[ -e "$dir/$program.moment" ] || exec "$program" "$@"
moment=$(cat "$dir/$program.moment")
rm "$dir/$program.moment"
input=$(cat)
given() { printf '%s\n' "$input"; }
case $moment in
    at-once) ;;
    within-a-table) given | sed '/^COMMIT/,$d' | "$program" "$@" ;;
    between-tables) given | sed '/^COMMIT/q' | "$program" "$@" ;;
    at-the-end) given | "$program" "$@" ;;
    agent-at-once) kill -9 $PPID ;;
    agent-between-tables) given | sed '/^COMMIT/q' | "$program" "$@"; kill -9 $PPID ;;
    agent-first) kill -9 $PPID; given | "$program" "$@" ;;
    agent-long-before) exec 3<> "$dir/go"; kill -9 $PPID; read -r _ <&3; given | "$program" "$@" ;;
esac
kill -9 $$
"#;

/// To Services whose rules do not change, and to one that has one endpoint all the time.
const LOADS: [LoadKind; 4] = [
    ("http", Transport::Http, false, false),
    ("tcp6", Transport::Tcp, false, true),
    ("kept", Transport::Tcp, true, false),
    ("udp", Transport::Udp, false, false),
];
const CHANGING: [LoadKind; 2] = [
    ("changing", Transport::Http, false, false),
    ("changing6", Transport::Tcp, false, true),
];

/// Two clusters. From one to the other, chains of a Service change, and where nobody is there, who dials is refused.
const ONE: [&[u8]; 3] = [&[1, 2], &[3], &[]];
const OTHER: [&[u8]; 3] = [&[1, 2], &[3, 4], &[5]];

fn cluster(endpoints: [&[u8]; 3]) -> String {
    let services = (1..).zip(endpoints);
    services
        .map(|(number, endpoints)| service(number, endpoints))
        .collect()
}

/// A directory with what stands before the programs of a flavour.
struct Fuse {
    dir: tempfile::TempDir,
    programs: [String; 2],
}

impl Fuse {
    fn new(flavour: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let programs = ["iptables", "ip6tables"].map(|name| format!("{name}-{flavour}-restore"));
        for program in &programs {
            faults::put(&dir.path().join(program), WRAPPER);
        }
        Self { dir, programs }
    }

    /// The next time that the program of a family is run, this happens.
    fn light(&self, program: &str, moment: &str) {
        let path = self.dir.path();
        let staged = path.join("staged");
        fs::write(&staged, moment).unwrap();
        fs::rename(&staged, path.join(format!("{program}.moment"))).unwrap();
    }

    fn is_lit(&self, program: &str) -> bool {
        let path = self.dir.path().join(format!("{program}.moment"));
        path.exists()
    }

    /// An agent that finds them first, and may write where they say what has happened.
    fn options(&self) -> AgentOptions {
        AgentOptions {
            rights: Rights::Root,
            ..faults::finding(&self.dir)
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Traffic that no change and no fault may disturb.
fn traffic(node: &Node) -> Traffic {
    let mut all = loads(1, &LOADS);
    all.extend(loads(2, &CHANGING));
    Traffic::start("pod", &node.shop.client, all).unwrap()
}

/// Lights the fuse of each program at each of `moments`, there and back between both clusters, on a node of each
/// flavour. `recover` follows what is changed until it is in force; traffic goes on all the time.
fn at_each(moments: &[&str], recover: impl Fn(&mut Agent<'_>, &mut Traffic, &str)) {
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let fuse = Fuse::new(flavour);
        let files = [(FILE, &*cluster(ONE))];
        let mut agent = Agent::start(&node.shop.world, fuse.options(), &files).unwrap();
        let one = node.rules();
        agent.apply_and_sync(FILE, &cluster(OTHER)).unwrap();
        let both = [(ONE, one), (OTHER, node.rules())];
        let mut traffic = traffic(&node);
        let mut next = both.iter().cycle();
        for moment in moments {
            for program in fuse.programs.iter().flat_map(|one| [one, one]) {
                let what = format!("{program}, {moment}");
                let (state, rules) = next.next().unwrap();
                fuse.light(program, moment);
                agent.apply(FILE, &cluster(*state)).unwrap();
                recover(&mut agent, &mut traffic, &what);
                assert!(!fuse.is_lit(program), "{what}");
                assert_eq!(node.rules(), *rules, "{what}");
                traffic.goes_on(&what).unwrap();
            }
        }
        traffic.stop().unwrap();
    }
}

#[test]
fn a_restore_that_is_killed_disturbs_nobody_and_the_rest_follows() {
    if !can_run() {
        return;
    }
    let moments = ["at-once", "within-a-table", "between-tables", "at-the-end"];
    at_each(&moments, |agent, _, _| {
        agent
            .wait_for("change not written; comparing all tables")
            .unwrap();
        agent.wait_until_synced().unwrap();
    });
}

/// What is killed then refuses no Service, though it failed with what all of them need.
#[test]
fn a_first_restore_that_is_killed_is_done_again_and_blames_no_service() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let fuse = Fuse::new(flavour);
        let files = [(FILE, &*cluster(ONE))];
        let mut agent = Agent::prepare(&node.shop.world, fuse.options(), &files).unwrap();
        fuse.light(&fuse.programs[0], "between-tables");
        agent.launch().unwrap();
        assert!(!fuse.is_lit(&fuse.programs[0]));
        let log = agent.log();
        let blamed = log
            .iter()
            .find(|line| line.message() == Some("service not programmed"));
        assert!(blamed.is_none(), "{flavour}: {blamed:?}");
        let killed = node.rules();
        agent.terminate().unwrap();
        // As on a node where nothing is killed.
        let undisturbed = Node::new(flavour);
        let with = AgentOptions {
            rights: fuse.options().rights,
            ..options()
        };
        let _agent = Agent::start(&undisturbed.shop.world, with, &files).unwrap();
        assert_eq!(killed, undisturbed.rules(), "{flavour}");
    }
}

#[test]
fn an_agent_that_is_killed_while_it_writes_disturbs_nobody_and_goes_on_after_a_restart() {
    if !can_run() {
        return;
    }
    let moments = ["agent-at-once", "agent-between-tables", "agent-first"];
    at_each(&moments, |agent, traffic, what| {
        let (code, _) = agent.wait_for_exit().unwrap();
        assert_eq!(code, None, "{what}");
        traffic.goes_on(what).unwrap();
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
    });
}

/// A program that waits for the lock of the tables would write when the next agent has written already.
#[test]
fn what_a_killed_agent_left_to_be_written_is_never_written() {
    if !can_run() {
        return;
    }
    for flavour in FLAVOURS {
        let node = Node::new(flavour);
        let fuse = Fuse::new(flavour);
        let go = fuse.path().join("go");
        mkfifo(&go, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let files = [(FILE, &*cluster(ONE))];
        let mut agent = Agent::start(&node.shop.world, fuse.options(), &files).unwrap();
        let before = node.rules();
        let mut traffic = traffic(&node);
        fuse.light(&fuse.programs[0], "agent-long-before");
        agent.apply(FILE, &cluster(OTHER)).unwrap();
        agent.wait_for_exit().unwrap();
        // Whoever reads is the program: it is gone when nobody does.
        let is_read = || {
            let mut gate = fs::File::options();
            let gate = gate.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
            gate.open(&go).is_ok()
        };
        let end = Instant::now() + LIMIT;
        while is_read() {
            assert!(Instant::now() < end, "{flavour}: it lives on");
            thread::sleep(Duration::from_millis(10));
        }
        // Meanwhile it is as it was before.
        agent.apply(FILE, &cluster(ONE)).unwrap();
        agent.launch().unwrap();
        assert_eq!(node.rules(), before, "{flavour}");
        traffic.goes_on(flavour).unwrap();
        traffic.stop().unwrap();
    }
}
