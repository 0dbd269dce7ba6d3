# Second program of a guest: the file systems that tests need, then the command, then power off.
# The exit code of the command goes to the host as a file; its output through the console.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=dumb

mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs -o mode=1777 none /dev/shm
ln -sfn /proc/self/fd /dev/fd
mount -t cgroup2 none /sys/fs/cgroup
mount -t bpf none /sys/fs/bpf
ip link set lo up
# Most modules are loaded when they are asked for; these have files that must be there first.
modprobe -a tun br_netfilter

setsid bash /run/control/command.sh </dev/null >/dev/hvc0 2>&1
echo $? >/run/control/exit-code.part
mv /run/control/exit-code.part /run/control/exit-code
sync
echo o >/proc/sysrq-trigger
# Powering off takes a moment, and the first process must not end before.
while :; do sleep 1; done
