//! `cleanup`: removes what agents left in the kernel, and waits for those who still need it.

use std::{
    fs, io,
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::SignalFd,
        socket::{getsockopt, sockopt::PeerCredentials},
    },
};
use proxy_agent::{
    admin, backends,
    config::{
        self,
        cli::{CleanupArgs, PinArgs},
    },
    leftovers,
};
use proxy_backend::{Host, OpenError, Settings};

use crate::print;

/// How often it is looked whether connections have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Removes what is in the kernel, and stays if that is wanted.
pub fn cleanup(args: &CleanupArgs) -> Result<(), Error> {
    // Before anything else, so that a signal that comes meanwhile is heard: process 1 of a container
    // gets none that it does not wait for.
    let waits = args.hold || args.wait.is_some();
    let ends = waits.then(Ends::listen).transpose();
    let ends = ends.context("waiting for signals")?;
    let limit = args.wait.zip(ends.as_ref());
    let patience = limit.map(|(limit, ends)| Patience { limit, ends });
    clean(&args.pins, patience.as_ref())?;
    if let Some(ends) = ends.filter(|_| args.hold) {
        print("clean; waiting for SIGTERM\n")?;
        while !ends.come_within(LOOK).context("waiting for signals")? {}
    }
    Ok(())
}

/// SIGTERM and SIGINT.
struct Ends(SignalFd);

impl Ends {
    /// Has them do nothing else.
    fn listen() -> io::Result<Self> {
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGTERM);
        ends.add(Signal::SIGINT);
        ends.thread_block()?;
        Ok(Self(SignalFd::new(&ends)?))
    }

    /// Whether one comes within this time.
    fn come_within(&self, time: Duration) -> io::Result<bool> {
        let mut asked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut asked, time)? > 0)
    }
}

/// How long `cleanup` waits for connections to end.
struct Patience<'a> {
    limit: Duration,
    ends: &'a Ends,
}

impl Patience<'_> {
    /// Waits until no connection would break, or the time is over.
    fn wait(&self, host: &dyn Host, settings: &Settings) -> Result<(), Error> {
        let end = Instant::now() + self.limit;
        let mut told = false;
        loop {
            let open = host.wind_down(settings)?;
            if open == 0 {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return print(&format!("{open} connections from outside end now\n"));
            }
            if !told {
                let limit = self.limit.as_secs();
                print(&format!(
                    "{open} connections from outside are translated on devices; waiting up to \
                     {limit} s for them to end\n"
                ))?;
                told = true;
            }
            if self
                .ends
                .come_within(left.min(LOOK))
                .context("waiting for signals")?
            {
                return Err(Error::msg(format!(
                    "stopped while {open} connections from outside were open, which go on: nothing \
                     is translated for new ones; run this again to remove the rest"
                )));
            }
        }
    }
}

/// Removes what is in the kernel, of agents and of kube-proxy, as kube-proxy's `--cleanup` does of
/// its own. What fails keeps nothing else from being removed.
pub fn cleanup_all(args: &PinArgs) -> Result<(), Error> {
    clean(args, None)?;
    let found = leftovers::find();
    let removed = leftovers::remove(&found);
    let lines = removed.removed.iter();
    let lines = lines.map(|leftover| format!("removed what kube-proxy left: {leftover}\n"));
    print(&lines.collect::<String>())?;
    let kept = found.kept.iter().map(|kept| format!("left {kept}\n"));
    print(&kept.collect::<String>())?;
    let waiting = removed.waiting.iter();
    let waiting = waiting.map(|left| format!("{left}: still leads connections; run this again"));
    let problems: Vec<String> = found
        .problems
        .into_iter()
        .chain(removed.problems)
        .chain(waiting)
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::msg(problems.join("\n")))
}

/// Removes what is in the kernel. What one backend left goes also where rights for that of another
/// are missing. What an agent with other pins serves with here stays, and what is at these pins goes:
/// hooks that an agent of before left decide before those of the one that serves.
fn clean(args: &PinArgs, patience: Option<&Patience<'_>>) -> Result<(), Error> {
    let settings = config::cleanup(args)?;
    // Before anything is removed.
    let (mut free, mut held) = (Vec::new(), None);
    for host in backends::ALL.iter().filter_map(|kind| kind.host()) {
        match host.nobody_serves() {
            Ok(()) => free.push(host),
            Err(error) => held = held.or(Some(error)),
        }
    }
    let socket = admin::socket_path(&settings.pin_dir);
    // Not every backend holds the pins; one that serves would write its rules again.
    if is_answered(&socket) {
        return Err(held.unwrap_or(OpenError::Locked(settings.pin_dir)).into());
    }
    if !free.iter().any(|host| host.left_something(&settings)) {
        held.map_or(Ok(()), Err)?;
        held = None;
    }
    // What new connections may meet goes at once: it is followed by nobody any more.
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for host in free {
        let waits = patience.is_some() && host.wind_down(&settings)? > 0;
        if waits { &mut later } else { &mut now }.push(host);
    }
    let gone = remove(now, &settings);
    if let Some(held) = held {
        print(&["left what serves here: ", &held.to_string(), "\n"].concat())?;
    }
    for host in later {
        if let Some(patience) = patience {
            patience.wait(host, &settings)?;
        }
        remove(vec![host], &settings)?;
    }
    gone?;
    // Of an agent that was killed; a running one would have kept the pins locked.
    proxy_api::server::socket::remove(&socket)
        .with_context(|| format!("removing {}", socket.display()))?;
    // Fails while sockets of other agents are in it.
    socket.parent().and_then(|all| fs::remove_dir(all).ok());
    Ok(())
}

/// Whether an agent is behind the socket. One that was killed may have left it, for a moment, to what it had forked to
/// run a program.
fn is_answered(socket: &Path) -> bool {
    /// How long is waited for one that is seen nowhere, and between two looks.
    const MOMENT: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_millis(5);
    let until = Instant::now() + MOMENT;
    loop {
        let Ok(stream) = UnixStream::connect(socket) else {
            return false;
        };
        // The one who listened first.
        let peer = getsockopt(&stream, PeerCredentials);
        let is_there = peer.is_ok_and(|peer| Path::new(&format!("/proc/{}", peer.pid())).exists());
        if is_there || Instant::now() >= until {
            return true;
        }
        thread::sleep(LOOK);
    }
}

/// Removes what these left, and prints what it was. What fails keeps nothing else from being removed.
fn remove(hosts: Vec<&dyn Host>, settings: &Settings) -> Result<(), Error> {
    let (mut removed, mut failed) = (String::new(), None);
    for host in hosts {
        match host.cleanup(settings) {
            Ok(lines) => removed.push_str(&lines),
            Err(error) => {
                let is_held = error.is_holder();
                failed = failed.or(Some(error));
                if is_held {
                    break;
                }
            }
        }
    }
    print(&removed)?;
    Ok(failed.map_or(Ok(()), Err)?)
}
