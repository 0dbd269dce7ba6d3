#!/busybox sh
# First program of a guest. Makes a root file system out of the host's (read-only, below) and a
# memory file system (above, thrown away), and hands over to second.sh inside it.
# Runs with nothing but busybox; the modules were copied in the order they must be loaded.
set -e
bb() { /busybox "$@"; }

bb mount -t proc none /proc
bb mount -t sysfs none /sys
bb mount -t devtmpfs none /dev
while read -r module; do
    bb insmod "/modules/$module" || echo "culvert-vm: loading $module failed"
done </modules/order

bb mount -t virtiofs -o ro host /host
bb mount -t tmpfs -o mode=755,size=90% none /upper
bb mkdir /upper/data /upper/work
bb mount -t overlay -o lowerdir=/host,upperdir=/upper/data,workdir=/upper/work none /new
for name in dev proc sys; do
    bb mkdir -p "/new/$name"
    bb mount --move "/$name" "/new/$name"
done
for name in run tmp; do
    bb mkdir -p "/new/$name"
    bb mount -t tmpfs -o mode=1777 none "/new/$name"
done
bb mkdir -p /new/run/control /new/run/host /new/run/lock /new/run/netns
bb mount --bind /host /new/run/host
bb mount -t virtiofs control /new/run/control

# The host's modules are those of another kernel.
release=$(bb uname -r)
modules=$(bb sed 's/.*culvert\.modules=\([^ ]*\).*/\1/' /new/proc/cmdline)
bb mkdir -p /new/usr/lib/modules
bb mount -t tmpfs none /new/usr/lib/modules
bb mkdir "/new/usr/lib/modules/$release"
bb mount --bind "/host$modules" "/new/usr/lib/modules/$release"

exec /busybox switch_root -c /dev/console /new /bin/bash /run/control/second.sh
