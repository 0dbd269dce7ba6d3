# Leads into a bare root: first into a cgroup, which is then the root of the hierarchy that is seen,
# then into namespaces that end, with all processes and mounts in them, when this process does.
# Arguments: the cgroup, the script for inside, and what that takes.
set -e
cgroup=$1 inside=$2
shift 2
echo $$ >"$cgroup/cgroup.procs"
exec unshare --mount --propagation private --pid --fork --kill-child --cgroup --ipc \
    sh -c "$inside" sh "$@"
