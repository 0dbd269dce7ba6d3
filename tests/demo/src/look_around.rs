//! Commands to look into a running demo with, ready to be pasted into a shell.

use std::path::Path;

use proxy_harness::{Agent, World, world::Host};

/// A command and what it shows.
#[derive(Debug)]
pub(super) struct Hint {
    pub(super) shows: &'static str,
    pub(super) command: String,
}

/// The commands for this world, its agent and its client.
pub(super) fn hints(world: &World, agent: &Agent<'_>, client: &Host, client_pid: i32) -> Vec<Hint> {
    let pins = agent.pins().path().display();
    let cgroup = world.cgroup().path().display();
    let map = |name| format!("bpftool map dump pinned {pins}/services-v*/{name}");
    let procs = client.cgroup().path().join("cgroup.procs");
    let netns = format!("/proc/{client_pid}/ns/net");
    let inside = |command: &str| inside(&procs, &netns, command);
    let hint = |shows, command| Hint { shows, command };
    vec![
        hint(
            "all pins: maps, and links that keep the programs attached",
            format!("find {pins}"),
        ),
        hint("Service ports the agent programmed", map("SERVICES")),
        hint("what clients dial", map("FRONTENDS")),
        hint("refusals and rare events", map("COUNTERS")),
        hint(
            "the programs on the node's cgroup",
            format!("bpftool cgroup show {cgroup}"),
        ),
        hint(
            "one of the links",
            format!("bpftool link show pinned {pins}/links/culvert_conn4"),
        ),
        hint(
            "a program's code",
            format!(
                "bpftool prog dump xlated id $(bpftool -j link show pinned \
             {pins}/links/culvert_conn4 | grep -o '\"prog_id\":[0-9]*' | cut -d: -f2) linum"
            ),
        ),
        hint(
            "the manifests: edit them, the agent follows",
            format!("ls -l {}", agent.manifest("").display()),
        ),
        hint(
            "a Service, dialled from the client pod",
            inside("curl -s http://10.96.10.1/"),
        ),
        hint(
            "the same over IPv6",
            inside("curl -s 'http://[fd00:10:96::1001]/'"),
        ),
        hint("its routes: none leads to a ClusterIP", inside("ip route")),
    ]
}

/// A command that runs in a pod: in its network, and in its cgroup, which is what the programs
/// are attached to.
fn inside(procs: &Path, netns: &str, command: &str) -> String {
    format!(
        "sh -c 'echo 0 > {}; exec nsenter --net={netns} \"$@\"' - {command}",
        procs.display()
    )
}
