# First process inside: mounts what a machine has, makes the bare root the only one, runs a command,
# and notes what that left behind. It stays, because somebody must take in orphans.
# Arguments: the root, rustup's home, the directory of cargo's and rustc's proxies, the directory to
# start in, the command, the file for what is left.
set -e
root=$1 rustup=$2 proxies=$3 dir=$4 command=$5 left=$6

mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t bpf bpf "$root/sys/fs/bpf"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
# The second is where `mount` notes what it did; the file is the lock of iptables, which stays.
mkdir "$root/run/lock" "$root/run/mount"
: >"$root/run/xtables.lock"
# Where they are outside, too: toolchains may be links to others.
for kept in "$rustup" "$proxies"; do
    mkdir -p "$root$kept"
    mount --bind "$kept" "$root$kept"
    mount -o remount,bind,ro "$root$kept"
done

cd "$root"
pivot_root . .
umount -l .
cd "$dir"

# What is in the places that all share.
traces() {
    find /tmp /run /sys/fs/bpf -mindepth 1
    find /sys/fs/cgroup -mindepth 1 -type d
    cut -d ' ' -f 2 /proc/mounts | sed 's/^/mount /'
    for process in /proc/[0-9]*; do
        read -r id name state rest <"$process/stat" || continue
        # This shell and its copies that look; a zombie has ended.
        case $name:$state in "(sh):"* | "(sort):"* | *":Z") continue ;; esac
        echo "process $name"
    done
}

traces 2>/dev/null | sort >"$left.before"
code=0
sh -c "$command" || code=$?
traces 2>/dev/null | sort >"$left.after"
comm -13 "$left.before" "$left.after" >"$left"
exit "$code"
