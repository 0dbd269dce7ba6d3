//! Who may touch what is pinned: on a BPF file system in which everybody may make directories,
//! nobody without rights keeps an agent from serving, or decides what it reads. Needs root and BPF.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs::{self, Permissions},
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use nix::{
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
    mount::{MntFlags, umount2},
};
use proxy_backend_ebpf::mount_bpffs;
use proxy_tests::{
    Agent, AgentOptions, Prober, Shop,
    agent::{self, LIMIT, LogLine, Rights},
    launcher::{NOBODY, OwnBpffs},
    pod::Transport,
    process::{Finished, Process},
    requires::{self, Need, PRIVILEGED},
    shop::{frontend, http, small_service},
};

const SUITE: &str = "pins";
const FILE: &str = "web.yaml";
const PARTS: [&str; 4] = ["", "services-v1", "flows-v1", "links"];

/// An agent that is to pin on a BPF file system of its own, and where that pin directory is seen.
fn prepare<'w>(shop: &'w Shop, bpffs: &OwnBpffs) -> (Agent<'w>, PathBuf) {
    let options = AgentOptions {
        launcher: bpffs.launcher(),
        ..AgentOptions::default()
    };
    let files = [(FILE, &*small_service(1, &[1]))];
    let agent = Agent::prepare(&shop.world, options, &files).unwrap();
    let seen = bpffs.seen(agent.pins().path());
    (agent, seen)
}

fn nobody(bpffs: &OwnBpffs, script: &str) -> Finished {
    Process::run("sh", bpffs.as_nobody(script), LIMIT).unwrap()
}

/// Has somebody without rights do this, who must be able to.
fn let_nobody(bpffs: &OwnBpffs, script: &str) {
    let done = nobody(bpffs, script);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// `proxy-agent SUBCOMMAND` where the agent runs.
fn ask(bpffs: &OwnBpffs, agent: &Agent<'_>, subcommand: &str) -> Finished {
    let mut command = bpffs.command(agent::path().unwrap());
    command
        .arg(subcommand)
        .arg("--pin-dir")
        .arg(agent.pins().path());
    Process::run("proxy-agent", command, LIMIT).unwrap()
}

#[track_caller]
/// Which endpoint answers for the Service, as what was dialled.
fn served(shop: &Shop) -> Result<SocketAddr, String> {
    let mut prober = Prober::start(&shop.client).unwrap();
    let to = frontend(1, 80);
    let attempt = prober.send(Transport::Tcp, to, 1).unwrap().remove(0);
    attempt.answer_as(to)
}

fn assert_serves(shop: &Shop) {
    assert_eq!(served(shop), Ok(http(1)));
}

/// Nobody but root can look into the directory, or change what is in it.
#[track_caller]
fn assert_closed(pins: &Path) {
    for part in PARTS {
        let there = fs::symlink_metadata(pins.join(part)).unwrap();
        let mode = there.mode() & 0o7777;
        assert!(
            there.is_dir() && there.uid() == 0 && mode == 0o700,
            "{part}: {mode:o}"
        );
    }
}

fn is_told(log: &[LogLine], text: &str) -> bool {
    log.iter().any(|line| line.raw.contains(text))
}

fn open_to_others(pins: &Path, mode: u32) {
    for part in PARTS {
        fs::set_permissions(pins.join(part), Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn others_can_neither_lock_the_pins_nor_look_at_them() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let (mut agent, pins) = prepare(&shop, &bpffs);
    agent.launch().unwrap();
    agent.terminate().unwrap();
    assert_closed(&pins);
    for part in PARTS {
        let path = agent.pins().path().join(part);
        for program in ["flock -n -s", "ls"] {
            let done = nobody(&bpffs, &format!("{program} {} true", path.display()));
            assert!(done.stderr.contains("Permission denied"), "{done:?}");
        }
    }
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
    assert_serves(&shop);
}

/// How somebody comes to hold the lock of a directory.
type Lock = fn(&OwnBpffs, &Path) -> anyhow::Result<Process>;

/// Earlier versions let others look into their directories, and so lock them.
#[test]
fn pins_that_were_open_to_others_are_closed_and_adopted_while_somebody_locks_them() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let (mut agent, pins) = prepare(&shop, &bpffs);
    agent.launch().unwrap();
    let directory = agent.pins().path().to_owned();
    let mut ways: Vec<Lock> = vec![OwnBpffs::lock_as_nobody];
    // A holder that cannot be seen may be an agent in another container.
    if requires::met(SUITE, &[Need::EveryProcess]) {
        ways.push(OwnBpffs::inherit_lock_as_nobody);
    }
    for lock in ways {
        agent.terminate().unwrap();
        open_to_others(&pins, 0o755);
        let holder = lock(&bpffs, &directory).unwrap();
        agent.launch().unwrap();
        assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));
        assert!(
            is_told(&agent.log(), "that another user locks"),
            "{:?}",
            agent.log()
        );
        assert_closed(&pins);
        assert_serves(&shop);
        drop(holder);
    }
    // An agent is no such holder, whoever asks.
    let refused = ask(&bpffs, &agent, "cleanup");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_serves(&shop);
}

#[test]
fn what_another_user_made_first_is_put_aside() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let make = "mkdir -p PINS/services-v1; ln -s /etc PINS/links; flock -n -s PINS true";
    let alias = "mkdir THEIRS; ln -s THEIRS PINS";
    let closed = "mkdir -m 0 PINS";
    for (script, stays) in [
        (make, "PINS-of-user-65534-0"),
        (alias, "THEIRS"),
        (closed, "/"),
    ] {
        let (mut agent, pins) = prepare(&shop, &bpffs);
        let path = agent.pins().path().display().to_string();
        let on = |text: &str| {
            text.replace("PINS", &path)
                .replace("THEIRS", &format!("{path}x"))
        };
        let_nobody(&bpffs, &on(script));
        for (command, part) in [
            ("check", "belongs to user 65534"),
            ("cleanup", "nothing of"),
        ] {
            let done = ask(&bpffs, &agent, command);
            assert_eq!(done.code, Some(0), "{done:?}");
            assert!(done.stdout.contains(part), "{command} {script}: {done:?}");
        }
        assert_eq!(fs::symlink_metadata(&pins).unwrap().uid(), NOBODY);
        agent.launch().unwrap();
        assert_closed(&pins);
        assert!(
            is_told(&agent.log(), "another user's entry put aside"),
            "{:?}",
            agent.log()
        );
        assert_serves(&shop);
        let theirs = bpffs.seen(Path::new(&on(stays)));
        assert!(
            fs::symlink_metadata(&theirs).is_ok(),
            "{}",
            theirs.display()
        );
        if stays == "THEIRS" {
            assert_eq!(fs::read_dir(theirs).unwrap().count(), 0);
        }
        agent.terminate().unwrap();
        assert_eq!(ask(&bpffs, &agent, "cleanup").code, Some(0));
    }
}

#[test]
fn what_another_user_put_among_the_pins_is_put_aside() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let (mut agent, pins) = prepare(&shop, &bpffs);
    fs::create_dir(&pins).unwrap();
    fs::set_permissions(&pins, Permissions::from_mode(0o1777)).unwrap();
    let path = agent.pins().path().display();
    let_nobody(
        &bpffs,
        &format!("mkdir -p {path}/links/culvert_conn4; ln -s /etc {path}/services-v1"),
    );
    agent.launch().unwrap();
    assert_closed(&pins);
    assert_serves(&shop);
    agent.terminate().unwrap();
    let done = ask(&bpffs, &agent, "cleanup");
    assert!(done.stdout.contains("links-of-user-65534-0"), "{done:?}");
}

#[test]
fn where_only_root_can_have_done_it_root_is_told() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    // A way to somewhere else.
    let (mut agent, pins) = prepare(&shop, &bpffs);
    let aside = pins.with_extension("").with_file_name("aside");
    fs::create_dir(&aside).unwrap();
    symlink("aside", &pins).unwrap();
    let refuses = |agent: &mut Agent<'_>, part: &str| {
        agent.spawn().unwrap();
        let (code, log) = agent.wait_for_exit().unwrap();
        assert_eq!(code, Some(3), "{log:?}");
        assert!(is_told(&log[log.len() - 1..], part), "{log:?}");
        let check = ask(&bpffs, agent, "check");
        assert!(check.stdout.contains(part), "{check:?}");
    };
    refuses(&mut agent, "symbolic link");
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 0);
    fs::remove_file(&pins).unwrap();

    // What an agent of another user serves with, which takes all rights to look into.
    agent.options().rights = Rights::Root;
    agent.launch().unwrap();
    agent.terminate().unwrap();
    chown(&pins, Some(NOBODY), None).unwrap();
    refuses(&mut agent, "run the agent as that user");
    assert_serves(&shop);
    chown(&pins, Some(0), None).unwrap();
    agent.launch().unwrap();
    assert_eq!(agent.serving().unwrap().flag("adopted"), Some(true));

    // Given away where others may make nothing.
    let (mut agent, pins) = prepare(&shop, &bpffs);
    let around = pins.parent().unwrap();
    fs::set_permissions(around, Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(&pins).unwrap();
    chown(&pins, Some(NOBODY), None).unwrap();
    refuses(&mut agent, "belongs to user 65534");
    fs::remove_dir(&pins).unwrap();
}

#[test]
fn pins_of_another_shape_are_replaced() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let (mut agent, pins) = prepare(&shop, &bpffs);
    agent.launch().unwrap();
    let began = Instant::now();
    for (one, other) in [
        ("services-v1/FRONTENDS", "services-v1/SERVICES"),
        ("flows-v1/PEERS", "flows-v1/FLOWS"),
        ("services-v1/SETS", "links/culvert_conn4"),
    ] {
        agent.kill().unwrap();
        exchange(&pins.join(one), &pins.join(other));
        // What is not a link leads no socket.
        if other.starts_with("links") {
            fs::remove_file(pins.join(other)).unwrap();
        }
        agent.launch().unwrap();
        assert!(is_told(&agent.log(), "do not fit"), "{:?}", agent.log());
        // The kernel detaches a program whose last pin is gone in its own time.
        while served(&shop).is_err() {
            assert!(began.elapsed() < LIMIT, "{:?}", served(&shop));
        }
    }
}

/// Between a look at a pin and its use another map takes its place: what is used is looked at.
#[test]
fn pins_that_are_exchanged_all_the_time_crash_no_agent() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let (shop, bpffs) = (Shop::new().unwrap(), OwnBpffs::new().unwrap());
    let (mut agent, pins) = prepare(&shop, &bpffs);
    agent.launch().unwrap();
    for _ in 0..6 {
        agent.kill().unwrap();
        let over = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                let services = pins.join("services-v1");
                while !over.load(Ordering::Relaxed) {
                    let pair = ["FRONTENDS", "SERVICES"].map(|name| services.join(name));
                    let flags = RenameFlags::RENAME_EXCHANGE;
                    renameat2(AT_FDCWD, &pair[0], AT_FDCWD, &pair[1], flags).ok();
                }
            });
            agent.spawn().unwrap();
            let begun = agent.wait_for_line("it served, or ended", |line| {
                matches!(line.message(), Some("serving" | "stopped"))
            });
            over.store(true, Ordering::Relaxed);
            begun.unwrap().message() == Some("stopped")
        });
        if ended {
            let (code, log) = agent.wait_for_exit().unwrap();
            assert_eq!(code, Some(1), "{log:?}");
            assert!(is_told(&log, "its pin was replaced"), "{log:?}");
            agent.launch().unwrap();
        }
        assert_serves(&shop);
    }
}

fn exchange(one: &Path, other: &Path) {
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
}

/// A directory that something is mounted on.
struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left to be told.
        umount2(self.0.path(), MntFlags::MNT_DETACH).ok();
    }
}

#[test]
fn the_file_system_that_the_agent_mounts_is_closed_to_others() {
    if !requires::met(SUITE, PRIVILEGED) {
        return;
    }
    let mounted = Mounted(tempfile::tempdir().unwrap());
    let path = mounted.0.path();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    mount_bpffs(path).unwrap();
    // The kernel adds the sticky bit.
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_it = |line: &&str| line.split(' ').nth(4) == path.to_str();
    let line = mounts.lines().find(is_it).unwrap();
    assert!(line.contains(" - bpf "), "{line}");
    for option in ["nosuid", "nodev", "noexec"] {
        let mut words = line.split([' ', ',']);
        assert!(words.any(|word| word == option), "{option}: {line}");
    }
}
