#!/bin/sh
# Runs a command in network, process and mount namespaces of its own: labs in it have every address, name and process
# to themselves, and nothing of them outlives it. Needs root. The shell stays as process 1, since it reaps orphans.
# What is mounted below /run is the machine's own labs'; hidden by another /run it would still be listed.
set -eu
# Garbage collection is a fifth of the CPU time of the engine and the API servers; memory is there for less of it.
export GOGC=400
exec unshare --net --pid --mount --fork --kill-child --mount-proc -- sh -c '
	for mount in $(awk "\$5 ~ \"^/run/netns\" { print \$5 }" /proc/self/mountinfo | sort -r); do umount -l "$mount"; done
	mount -t tmpfs tmpfs /run && ip link set lo up && LAB_TESTS_ALONE=1 "$@"
' sh "$@"
