//! What the memory limits of this process's cgroups leave, of both versions of cgroups. Reads files;
//! what is above the mounts that this process sees is not known.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::super::cgroup::unescape;

/// What one limit leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Bytes that can still be used; files that are merely cached do not count as used.
    pub free: u64,
    /// The limit, in bytes.
    pub limit: u64,
    /// Whose it is.
    pub cgroup: PathBuf,
}

/// A version of cgroups, and its names.
struct Hierarchy {
    /// Type of its file system.
    filesystem: &'static str,
    /// What stands beside its mounts and processes; nothing in version 2.
    controller: Option<&'static str>,
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat`: bytes of files that give way.
    cached: [&'static str; 2],
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        filesystem: "cgroup2",
        controller: None,
        limit: "memory.max",
        usage: "memory.current",
        cached: ["inactive_file", "active_file"],
    },
    Hierarchy {
        filesystem: "cgroup",
        controller: Some("memory"),
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cached: ["total_inactive_file", "total_active_file"],
    },
];

/// What the tightest limit leaves; `None` where none is seen.
pub fn tightest() -> Option<Room> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let (cgroups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    let all = HIERARCHIES.iter().filter_map(|one| {
        let (top, own) = one.place(&cgroups, &mounts)?;
        one.tightest(&top, &own)
    });
    all.min_by_key(|room| room.free)
}

impl Hierarchy {
    /// Where it is mounted, and the directory of this process there, by the texts of
    /// `/proc/self/cgroup` (cgroups(7)) and `/proc/self/mountinfo` (proc(5)).
    fn place(&self, cgroups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
        let is_ours = |controllers: &str| match self.controller {
            Some(name) => controllers.split(',').any(|one| one == name),
            None => controllers.is_empty(),
        };
        let path = cgroups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            is_ours(fields.next()?).then(|| fields.next())?
        })?;
        mounts.lines().find_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut filesystem = filesystem.split(' ');
            let is_type = filesystem.next() == Some(self.filesystem);
            let options = filesystem.nth(1)?;
            let has = |name| options.split(',').any(|option| option == name);
            if !is_type || !self.controller.is_none_or(has) {
                return None;
            }
            let mut mount = mount.split(' ').skip(3).map(unescape);
            let (root, top) = (mount.next()?, PathBuf::from(mount.next()?));
            // Of a mount that shows another part of the hierarchy nothing follows.
            let below = Path::new(path).strip_prefix(root).ok()?;
            let own = top.join(below);
            Some((top, own))
        })
    }

    /// The tightest limit from `own` up to `top`.
    fn tightest(&self, top: &Path, own: &Path) -> Option<Room> {
        let all = own.ancestors().take_while(|one| one.starts_with(top));
        all.filter_map(|cgroup| self.room(cgroup))
            .min_by_key(|room| room.free)
    }

    /// `None` if `cgroup` has no limit.
    fn room(&self, cgroup: &Path) -> Option<Room> {
        let read = |file| fs::read_to_string(cgroup.join(file)).ok();
        let number = |file| read(file)?.trim().parse::<u64>().ok();
        // Without a limit version 2 says `max`, and version 1 the largest number of pages there is.
        let limit = number(self.limit).filter(|limit| *limit < 1 << 62)?;
        let stat = read("memory.stat").unwrap_or_default();
        let cached = self.cached.iter().filter_map(|name| {
            let value = stat
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value?.parse::<u64>().ok()
        });
        let used = number(self.usage)?.saturating_sub(cached.sum());
        Some(Room {
            free: limit.saturating_sub(used),
            limit,
            cgroup: cgroup.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with both versions, and a container's view of version 2.
    const BOTH: &str = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw
";

    #[test]
    fn the_directory_of_this_process_is_found_in_each_version() {
        let [second, first] = &HIERARCHIES;
        let cgroups = "8:pids:/\n4:cpu,memory:/pods/a\n0::/system/agent\n";
        let place = |one: &Hierarchy, mounts: &str| one.place(cgroups, mounts);
        let expected = |top: &str, own: &str| Some((PathBuf::from(top), PathBuf::from(own)));
        assert_eq!(
            place(first, BOTH),
            expected("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/pods/a")
        );
        assert_eq!(
            place(second, BOTH),
            expected(
                "/sys/fs/cgroup/unified",
                "/sys/fs/cgroup/unified/system/agent"
            )
        );
        let below = "41 31 0:38 /system /a\\040b rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(place(second, below), expected("/a b", "/a b/agent"));
        assert_eq!(place(first, below), None);
        let elsewhere = "41 31 0:38 /../other /cg rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place(second, elsewhere), None);
        assert_eq!(second.place("", BOTH), None);
    }

    #[test]
    fn the_tightest_limit_up_to_the_mount_counts_and_cached_files_are_free() {
        let top = tempfile::tempdir().unwrap();
        let (top, pod) = (top.path(), top.path().join("pods/a"));
        fs::create_dir_all(&pod).unwrap();
        let write = |cgroup: &Path, files: &[(&str, &str)]| {
            for (file, text) in files {
                fs::write(cgroup.join(file), text).unwrap();
            }
        };
        let [second, first] = &HIERARCHIES;
        assert_eq!(second.tightest(top, &pod), None);
        write(&pod, &[("memory.max", "max\n"), ("memory.current", "7\n")]);
        assert_eq!(second.tightest(top, &pod), None);
        write(
            &top.join("pods"),
            &[
                ("memory.max", "1000\n"),
                ("memory.current", "700\n"),
                (
                    "memory.stat",
                    "anon 1\ninactive_file 100\nactive_file 50\nactive_file_x 9\n",
                ),
            ],
        );
        let room = |free, limit, cgroup: &Path| Room {
            free,
            limit,
            cgroup: cgroup.to_owned(),
        };
        let pods = room(450, 1000, &top.join("pods"));
        assert_eq!(second.tightest(top, &pod), Some(pods));
        write(&pod, &[("memory.max", "300\n"), ("memory.current", "299")]);
        assert_eq!(second.tightest(top, &pod), Some(room(1, 300, &pod)));
        // More may be used than a limit that was lowered allows.
        write(&pod, &[("memory.current", "301")]);
        assert_eq!(second.tightest(top, &pod), Some(room(0, 300, &pod)));
        write(
            &pod,
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.usage_in_bytes", "5\n"),
            ],
        );
        assert_eq!(first.tightest(top, &pod), None);
        write(&pod, &[("memory.limit_in_bytes", "9\n")]);
        assert_eq!(first.tightest(top, &pod), Some(room(4, 9, &pod)));
    }
}
