//! In a container the agent finds the host's root of cgroups, which is not where it is on a host.

use std::{os::fd::AsFd as _, process::Command};

use proxy_tests::{
    World,
    agent::{AdminDirectory, LIMIT, Rights},
    cgroup,
    container::Volume,
    process::{self, Process},
    requires::{self, Need},
};
use serde_json::Value;

use super::{CGROUP, OF_CHART, SUITE, container, is_root_here, mount, unpacked::Image};

#[test]
fn the_hosts_root_of_cgroups_is_found_by_its_mount() {
    if !is_root_here() || !requires::met(SUITE, &[Need::RootOfCgroups]) {
        return;
    }
    let image = Image::unpack("");
    let world = World::new().unwrap();
    let mut container = container(&image, &OF_CHART);
    let root = cgroup::mount_point().unwrap();
    mount(&mut container, Volume::to_read(root, CGROUP));
    let admin_directory = AdminDirectory::keep().unwrap();
    let launcher = Rights::Exactly(container)
        .launcher(&[], &admin_directory)
        .unwrap();
    let mut command = Command::new(&launcher[0]);
    command.args(&launcher[1..]);
    command.args(["proxy-agent", "check", "--output=json"]);
    // A pod's own, of which /sys/fs/cgroup in the container is the root. Nothing is attached: `check`
    // only looks.
    let own = world.cgroup().child("pod").unwrap();
    process::enter(&mut command, None, Some(own.as_fd())).unwrap();
    let done = Process::run("proxy-agent", command, LIMIT).unwrap();
    let check: Value = serde_json::from_str(&done.stdout).unwrap();
    let requirements = check["backends"][0]["requirements"].as_array().unwrap();
    let mut found = requirements.iter();
    let found = found.find(|one| one["name"] == "cgroup v2").unwrap();
    assert_eq!(found["found"], format!("{CGROUP} (inode 1)"), "{found}");
}
