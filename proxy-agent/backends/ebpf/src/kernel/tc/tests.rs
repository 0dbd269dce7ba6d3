//! Programs on devices of a real kernel, in a network namespace of their own; as root. Packets are
//! sent to a neighbour that is none: they leave by one end of a pair, and arrive at the other.

mod clsact;
mod tcx;

use std::{
    net::UdpSocket,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::resource::{RLIM_INFINITY, Resource, setrlimit},
    unistd::geteuid,
};
use proxy_netlink::route::RouteSocket;

use super::{Attached, Direction, Found, Hook, Program, State, on_device};
use crate::kernel::{
    pins::{PinDir, PinPath},
    syscalls::{count_runs, identity, load_classifier, run_count},
};

/// What a test works with.
struct Bench {
    pins: PinDir,
    route: RouteSocket,
    /// Which end of a pair packets leave by.
    out: Hook,
}

impl Bench {
    fn directory(&self) -> PinPath<'_> {
        self.pins.devices()
    }

    /// The device of this name.
    fn link(&mut self, name: &str) -> proxy_netlink::route::Link {
        let links = self.route.links().unwrap();
        links.into_iter().find(|link| link.name == name).unwrap()
    }

    fn hook(&mut self, device: &str, direction: Direction) -> Hook {
        Hook {
            index: self.link(device).index,
            device: device.to_owned(),
            direction,
        }
    }

    /// All programs on a device.
    fn found(&mut self, device: &str) -> Vec<Found> {
        let link = self.link(device);
        let has_filters = !self.route.qdiscs().unwrap().is_empty();
        on_device(&link, has_filters, &mut self.route).unwrap()
    }

    fn names(&mut self, device: &str) -> Vec<String> {
        let found = self.found(device).into_iter();
        found.filter_map(|found| found.name).collect()
    }

    fn pinned(&self) -> Vec<String> {
        let pins = super::pinned::all(&self.directory()).unwrap();
        let names = pins
            .iter()
            .map(|(_, _, pin)| pin.shown().file_name().unwrap().to_owned());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    fn state(&mut self, attached: &Attached, loaded: &OwnedFd) -> State {
        let present = attached.present(program(loaded), &mut self.route);
        present.unwrap().state
    }
}

fn program(loaded: &OwnedFd) -> Program<'_> {
    Program {
        name: "culvert_eth_out",
        fd: loaded.as_fd(),
    }
}

fn ours() -> OwnedFd {
    load_classifier("culvert_eth_out").unwrap()
}

fn id(loaded: &OwnedFd) -> u32 {
    identity(loaded).unwrap().id
}

fn run(line: &str) {
    let (tool, line) = line.split_once(' ').unwrap();
    let status = Command::new(tool).args(line.split(' ')).status();
    assert!(status.unwrap().success(), "{tool} {line}");
}

/// Runs `test` with a pair of devices, `va` and `vb`, if this process may make one.
fn with_devices(test: impl FnOnce(&mut Bench) + Send + 'static) {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: a network namespace takes root");
        return;
    }
    let ran = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        // Before Linux 5.11 programs count against it. Where it cannot be raised it is not needed.
        setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).ok();
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        let at = tempfile::tempdir().unwrap();
        mount(Some("bpf"), at.path(), Some("bpf"), MsFlags::empty(), none).unwrap();
        for line in [
            "ip link add va type veth peer name vb",
            "sysctl -qw net.ipv6.conf.va.disable_ipv6=1 net.ipv6.conf.vb.disable_ipv6=1",
            "ip link set va up",
            "ip link set vb up",
            "ip addr add 192.0.2.1/24 dev va",
            "ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev va",
        ] {
            run(line);
        }
        let mut bench = Bench {
            pins: PinDir::for_test(at.path()),
            route: RouteSocket::default(),
            out: Hook {
                index: 0,
                device: String::new(),
                direction: Direction::Egress,
            },
        };
        bench.out = bench.hook("va", Direction::Egress);
        test(&mut bench);
        drop(bench);
        unmounted(at.path());
    });
    ran.join().expect("what is asserted");
}

fn unmounted(at: &Path) {
    nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH).unwrap();
}

/// How many packets left, while `meanwhile` ran.
fn send(meanwhile: impl FnOnce()) -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    let sender = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                sent += u64::from(socket.send_to(b"x", "192.0.2.2:9").is_ok());
            }
            sent
        }
    });
    meanwhile();
    stop.store(true, Ordering::Relaxed);
    sender.join().unwrap()
}

/// Each packet meets one of two programs that take each other's place, and no packet meets none.
fn swaps_without_a_gap(bench: &mut Bench, attached: &mut Attached, first: &OwnedFd) {
    let second = ours();
    let _counts = count_runs().unwrap();
    let (pins, route) = (&bench.pins, &mut bench.route);
    let both = [&second, first];
    let met_many = |one: &&OwnedFd| run_count(one).unwrap() > 500;
    let until = Instant::now() + Duration::from_secs(30);
    let sent = send(|| {
        let mut swaps = 0;
        // On a busy machine the sender may not run for a while.
        while swaps < 500 || !both.iter().all(met_many) {
            for next in both {
                let mended = attached.mend(program(next), &pins.devices(), route);
                mended.unwrap();
            }
            swaps += 2;
            assert!(Instant::now() < until, "packets meet only one");
        }
    });
    let met = [first, &second].map(|one| run_count(one).unwrap());
    eprintln!("{sent} packets, {met:?} met by each of the two");
    assert!(
        sent > 1000 && met.iter().all(|met| *met > 0),
        "{sent}: {met:?}"
    );
    assert_eq!(met.iter().sum::<u64>(), sent);
    assert_eq!(bench.state(attached, first), State::InForce);
    assert_eq!(bench.state(attached, &second), State::Replaced(id(first)));
}
