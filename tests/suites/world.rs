//! The harness itself: worlds connect their hosts and leave nothing behind.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use proxy_tests::{
    Prober, Server, World, cgroup,
    pod::{Listen, Load, Transport},
    process::Process,
    requires::{self, PRIVILEGED},
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address in a test is well-formed")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address in a test is well-formed")
}

#[test]
fn hosts_reach_each_other_in_both_families_and_nothing_else() {
    if !requires::met("world", PRIVILEGED) {
        return;
    }
    let world = World::reaching(&[ip("192.0.2.11")]).unwrap();
    let endpoints = [ip("10.244.1.5"), ip("fd00:10:244:1::5"), ip("192.0.2.11")];
    let endpoints = world.pod("endpoints", &endpoints).unwrap();
    let client = world
        .pod("client", &[ip("10.244.0.2"), ip("fd00:10:244::2")])
        .unwrap();
    let v4 = at("10.244.1.5:80");
    let v6 = at("[fd00:10:244:1::5]:80");
    let extra = at("192.0.2.11:80");
    let listen = [
        Listen::tcp(v4),
        Listen::udp(v4),
        Listen::tcp(v6),
        Listen::udp(v6),
    ];
    let listen = [&listen[..], &[Listen::tcp(extra)]].concat();
    let _server = Server::start(&endpoints, &listen).unwrap();
    for host in [world.node(), &client, &endpoints] {
        let mut prober = Prober::start(host).unwrap();
        for (transport, _) in Transport::ALL {
            for to in [v4, v6] {
                if transport.is_mapped() && to.is_ipv6() {
                    continue;
                }
                for attempt in prober.send(transport, to, 2).unwrap() {
                    assert_eq!(
                        attempt.answer_as(to),
                        Ok(to),
                        "{transport} from {}",
                        host.name()
                    );
                    assert_eq!(
                        attempt.peer.is_some(),
                        transport.is_connected(),
                        "{attempt:?}"
                    );
                    assert_eq!(attempt.from.is_some(), transport.is_udp(), "{attempt:?}");
                }
            }
        }
        assert_eq!(
            prober.send(Transport::Tcp, extra, 1).unwrap()[0].answer,
            Some(extra)
        );
        for nobody in [at("10.96.0.1:80"), at("[fd00:10:96::1]:80")] {
            for transport in [Transport::Tcp, Transport::Udp, Transport::UdpConnected] {
                let attempt = prober.send(transport, nobody, 1).unwrap().remove(0);
                assert_eq!(
                    attempt.errno(),
                    Some("ENETUNREACH"),
                    "{transport}: {attempt:?}"
                );
            }
        }
        let closed = prober
            .send(Transport::Tcp, at("10.244.1.5:81"), 1)
            .unwrap()
            .remove(0);
        assert_eq!(closed.error.as_deref(), Some("connect ECONNREFUSED"));
    }
}

#[test]
fn open_sockets_and_loads_are_kept_until_closed() {
    if !requires::met("world", PRIVILEGED) {
        return;
    }
    let world = World::new().unwrap();
    let pod = world.pod("endpoints", &[ip("10.244.1.5")]).unwrap();
    let to = at("10.244.1.5:80");
    let _server = Server::start(&pod, &[Listen::tcp(to), Listen::udp(to)]).unwrap();
    let mut prober = Prober::start(world.node()).unwrap();
    for transport in [
        Transport::Tcp,
        Transport::Http,
        Transport::Udp,
        Transport::UdpConnected,
    ] {
        for _ in 0..2 {
            let attempts = prober.send_on("kept", transport, to, 3).unwrap();
            assert!(
                attempts
                    .iter()
                    .all(|attempt| attempt.answer_as(to) == Ok(to)),
                "{attempts:?}"
            );
        }
        prober.close("kept").unwrap();
        prober.close("kept").expect_err("a closed socket is gone");
    }
    for keep in [false, true] {
        let load = |name: &str, transport| Load {
            name: name.to_owned(),
            transport,
            to,
            threads: 2,
            pause: Duration::from_micros(100),
            keep,
        };
        prober.load_start(load("tcp", Transport::Http)).unwrap();
        prober.load_start(load("udp", Transport::Udp)).unwrap();
        for name in ["tcp", "udp"] {
            assert!(prober.load_report(name).unwrap().answered >= 2, "{name}");
            let report = prober.load_stop(name).unwrap();
            assert!(report.failures.is_empty(), "{report:?}");
            assert_eq!(report.answers.get(&to), Some(&report.answered));
        }
    }
}

#[test]
fn a_world_takes_its_cgroups_and_processes_with_it() {
    if !requires::met("world", PRIVILEGED) {
        return;
    }
    let world = World::new().unwrap();
    let cgroup = world.cgroup().path().to_owned();
    let pod = world.pod("client", &[ip("10.244.0.2")]).unwrap();
    let prober = Prober::start(&pod).unwrap();
    let process = format!("/proc/{}", prober.process().pid());
    let procs = std::fs::read_to_string(pod.cgroup().path().join("cgroup.procs")).unwrap();
    assert_eq!(procs.trim(), prober.process().pid().to_string());
    assert!(cgroup.exists());
    // The world goes first: what still runs in it is killed.
    drop(world);
    assert!(!cgroup.exists());
    drop(prober);
    assert!(!Path::new(&process).exists());
}

/// Not a test: what the next one kills. Builds a world, says so, and waits.
#[test]
#[ignore = "run by a_killed_run_leaves_no_process_and_is_swept"]
fn hold_a_world() {
    let world = World::new().unwrap();
    let pod = world.pod("client", &[ip("10.244.0.2")]).unwrap();
    let prober = Prober::start(&pod).unwrap();
    let mut stdout = std::io::stdout();
    writeln!(
        stdout,
        "HOLDING {} {}",
        prober.process().pid(),
        world.cgroup().path().display()
    )
    .unwrap();
    stdout.flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_killed_run_leaves_no_process_and_is_swept() {
    if !requires::met("world", PRIVILEGED) {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "world::hold_a_world", "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = Process::spawn("a run to kill", command).unwrap();
    let stdout = BufReader::new(run.child().stdout.take().unwrap());
    let line = stdout
        .lines()
        .map(Result::unwrap)
        .find(|line| line.contains("HOLDING "))
        .unwrap();
    let (_, held) = line.split_once("HOLDING ").unwrap();
    let (pid, cgroup) = held.split_once(' ').unwrap();
    let (process, cgroup) = (Path::new("/proc").join(pid), PathBuf::from(cgroup));
    assert!(process.exists() && cgroup.exists());
    run.signal(Signal::SIGKILL).unwrap();
    run.wait(Duration::from_mins(1)).unwrap();
    // Its children get their own SIGKILL, and init reaps them: nobody tells us when.
    let deadline = Instant::now() + Duration::from_mins(1);
    let gone =
        || std::fs::read_to_string(process.join("cmdline")).is_ok_and(|line| line.is_empty());
    while process.exists() && !gone() {
        assert!(
            Instant::now() < deadline,
            "{} is still there",
            process.display()
        );
        thread::sleep(Duration::from_millis(5));
    }
    drop(run);
    cgroup::sweep(&cgroup::mount_point().unwrap());
    assert!(!cgroup.exists());
}
