#!/bin/sh
# Runs a command in network, process and mount namespaces of its own: labs in it have every address, name and process
# to themselves, and nothing of them outlives it. Needs root. The shell stays as process 1, since it reaps orphans.
set -eu
exec unshare --net --pid --mount --fork --kill-child --mount-proc -- \
	sh -c 'mount -t tmpfs tmpfs /run && ip link set lo up && LAB_TESTS_ALONE=1 "$@"' sh "$@"
