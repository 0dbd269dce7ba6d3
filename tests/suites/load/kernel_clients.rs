//! Connections that the kernel opens for itself, as a mount of NFS does. It connects from a thread
//! of its own, which is in no cgroup but the root.

use std::{
    io::{self, ErrorKind, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proxy_tests::{
    Agent, AgentOptions, Shop,
    agent::LIMIT,
    cgroup,
    process::{Finished, Process},
    requires::{self, Need, PRIVILEGED},
    shop::{frontend, small_service},
};

const FILE: &str = "cluster.yaml";

/// Two servers of which the Service has one at a time.
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 244, 3, 1), Ipv4Addr::new(10, 244, 3, 2)];
const PORT: u16 = 8080;

/// Starts a mount of the kernel's NFS client, which tries so often again.
pub fn start_mount(shop: &Shop, at: &Path, server: SocketAddr, again: u32) -> Process {
    let (ip, port) = (server.ip(), server.port());
    let options = format!(
        "addr={ip},clientaddr=127.0.0.1,vers=4.1,proto=tcp,port={port},soft,timeo=10,\
         retrans={again},retry=0"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-i", "-t", "nfs4", "-o", &options]);
    command.arg(format!("{ip}:/")).arg(at);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    shop.client.spawn(command).unwrap()
}

/// One that ends because nobody answers.
pub fn mount(shop: &Shop, at: &Path, server: SocketAddr) -> Finished {
    start_mount(shop, at, server, 0).finish(LIMIT).unwrap()
}

/// A Service that no other test has: programs at the root of the cgroups see what all of them dial.
/// It is led to one of the servers.
fn led_to(server: Ipv4Addr) -> String {
    small_service(251, &[1]).replace("10.244.0.1\"", &format!("{server}\""))
}

/// A connection that comes within the time that the client needs to try again, several times over.
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    use std::os::fd::AsFd as _;

    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let within = PollTimeout::try_from(LIMIT).map_err(io::Error::other)?;
    if poll(&mut fds, within)? == 0 {
        return Err(ErrorKind::TimedOut.into());
    }
    listener.accept().map(|(stream, _)| stream)
}

/// The kernel's client connects again by itself, and knows the Service only. A kernel that keeps the
/// address that a program led it to would dial a server for ever that is gone (see
/// docs/ARCHITECTURE.md).
#[test]
fn a_mount_is_led_to_the_endpoint_of_now_when_it_connects_again() {
    if !requires::met("load", PRIVILEGED) || !requires::met("load", &[Need::Nfs]) {
        return;
    }
    let shop = Shop::new().unwrap();
    let pod = shop.world.pod("servers", &SERVERS.map(IpAddr::V4)).unwrap();
    let [first, second] = SERVERS.map(|server| {
        let bound = pod.netns().run(|| TcpListener::bind((server, PORT)));
        bound.unwrap().unwrap()
    });
    let options = AgentOptions {
        cgroup_path: Some(cgroup::mount_point().unwrap()),
        ..AgentOptions::default()
    };
    let files = [(FILE, &*led_to(SERVERS[0]))];
    let mut agent = Agent::start(&shop.world, options, &files).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let to = frontend(251, 80);
    let mut mount = start_mount(&shop, directory.path(), to, 1000);
    // It has connected, and asks something.
    let mut connection = accept(&first).unwrap();
    connection.read_exact(&mut [0; 4]).unwrap();
    agent.apply_and_sync(FILE, &led_to(SERVERS[1])).unwrap();
    drop((connection, first));
    let began = Instant::now();
    let connection = accept(&second);
    println!("connected again after {:?}", began.elapsed());
    assert!(connection.is_ok(), "{connection:?}");
    // Whoever mounts waits for an answer; a signal ends that.
    mount.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    mount.wait(LIMIT.max(Duration::from_mins(1))).unwrap();
}
