#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a test where nothing else on the machine can meet it, and tells what the test left behind. Meson starts each test through it.
#
#   ┌ network of the test ────────────┐        ┌ far end ┐     Both are network namespaces. The test also has process
#   │ lo   eth0 10.66.0.1 fd66::1    ─┼─ veth ─┼─ far    │     numbers of its own, an empty /tmp, /run and /dev/shm, and a
#   └─────────────────────────────────┘        └─────────┘     localhost with both addresses. All of it ends with the test.
#
# The sources are read-only there, but for the build directory, in which this script starts. An ordinary user is root inside, in a user
# namespace. Where the machine allows no namespaces, a line says so, and the test runs without. A test that leaves a process, or a file in /tmp, /run or /dev/shm, has failed. What a failed test said of its failures
# is repeated on standard error, which is what Meson shows.
#
# VERBATIM_TEST_ISOLATED tells the test who made this world, "root" or "user"; without one it is "no".
# usage: isolated.sh COMMAND [ARGUMENT...]
set -u
me=$(realpath "${BASH_SOURCE[0]}")
PATH=$PATH:/usr/sbin:/sbin
tree=${me%/tests/*}
own=/run/verbatim-test    # the folder of this script in the world
hidden=()                 # folders that are empty there
left_limit=500            # times 10 ms, for processes that are ending

# ---- the world, made by its process 1 ----

# Empties a folder for the test, unless the sources or the build are in it.
hide() {
	[[ -d $1 && $tree/ != "$1"/* && $PWD/ != "$1"/* ]] && mount -n -t tmpfs -o mode=1777 tmpfs "$1" && hidden+=("$1")
}

protect_sources() {
	local build=$PWD
	mkdir $own/build
	mount -n --bind "$build" $own/build
	mount -n --bind "$tree" "$tree"
	mount -n -o remount,bind,ro "$tree"
	[[ $build/ != "$tree"/* ]] || mount -n --bind $own/build "$build"
	umount -n $own/build
	cd "$build" || exit 99
}

# Where localhost lacks an address, /etc gets a file that has both.
name_localhost() {
	local known
	known=$(getent ahosts localhost)
	[[ $known == *127.0.0.1* && $known == *::1* ]] && return
	printf '127.0.0.1 localhost\n::1 localhost\n' >"$own/hosts"
	if [[ -e /etc/hosts ]]; then
		mount -n --bind "$own/hosts" /etc/hosts
	else
		mkdir -p "$own"/etc/{upper,work}
		mv "$own/hosts" "$own/etc/upper"
		mount -n -t overlay -o "lowerdir=/etc,upperdir=$own/etc/upper,workdir=$own/etc/work" overlay /etc
	fi
}

make_network() {
	ip netns add test || return
	# No duplicate address detection: addresses are there at once.
	ip netns exec test sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad' 2>/dev/null
	ip link set lo up
	ip -n test link set lo up
	ip link add far type veth peer name eth0 netns test || return
	ip link set far up
	ip -n test -batch - <<-END
		address add 10.66.0.1/24 dev eth0
		address add fd66::1/64 dev eth0 nodad
		link set eth0 up
	END
	until [[ $(ip -n test -brief link show eth0) == *" UP "* ]]; do sleep 0.01; done
}

world() {
	local status
	mount -n -t proc proc /proc
	hide /run && mkdir -m 700 $own $own/user || exit 99
	hide /tmp && export TMPDIR=/tmp
	hide /dev/shm
	protect_sources
	name_localhost || echo "# localhost has no name in this test"
	make_network || echo "# no eth0 in this test"
	export XDG_RUNTIME_DIR=$own/user
	run_test $own ip netns exec test "$@"
	status=$?
	leaves_no_file || status=$((status ? status : 1))
	exit $status
}

# ---- the test ----

# Runs the test, which is told of in a folder; its exit status, or 1 where it has left processes in its world.
run_test() {
	local said=$1/said status teller
	shift
	mkfifo "$said.pipe"
	# In TAP, cmocka calls a skipped case "not ok", which for Meson is a failure.
	sed -u -e 's/^not ok \([0-9]*\) # SKIP/ok \1 # SKIP/' -e "w $said" <"$said.pipe" &
	teller=$!
	"$@" >"$said.pipe"
	status=$?
	[[ $VERBATIM_TEST_ISOLATED == no ]] || leaves_no_process $teller || status=$((status ? status : 1))
	wait $teller
	[[ $status == 0 || $status == 77 ]] || last_words "$said" >&2
	return $status
}

# What the test said of its failed cases, or the last that it said.
last_words() {
	local failed
	failed=$(awk '/^not ok/ { shown = 1 } /^(ok|1\.\.)/ { shown = 0 } shown' "$1")
	if [[ $failed ]]; then head -n 80 <<<"$failed"; else tail -n 20 "$1"; fi
}

# Is nobody here but process 1 and one that it has started itself? A process that is about to end has time to; others are ended.
leaves_no_process() {
	local waits pid left
	for ((waits = 0; waits < left_limit; waits++)); do
		left=()
		for pid in /proc/[0-9]*; do
			pid=${pid#/proc/}
			[[ $pid == 1 || $pid == "$1" ]] || left+=("$pid")
		done
		[[ ${#left[@]} -gt 0 ]] || return 0
		sleep 0.01
	done
	for pid in "${left[@]}"; do
		echo "left behind: process $pid, $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
		kill -KILL "$pid"
	done
	return 1
}

leaves_no_file() {
	local left
	left=$(find "${hidden[@]}" -mindepth 1 -maxdepth 1 ! -path $own ! -path /run/netns)
	[[ -z $left ]] || echo "left behind:" $left >&2
	[[ -z $left ]]
}

# ---- the machine ----

if [[ ${1-} == --world ]]; then
	shift
	world "$@"
fi
for maker in root user; do
	enter=(unshare --net --mount --pid --fork --kill-child)
	[[ $maker == root ]] || enter+=(--user --map-root-user)
	if reason=$("${enter[@]}" sh -c 'mount -n -t proc proc /proc && mount -n -t tmpfs tmpfs /run && ip netns add test' 2>&1); then
		VERBATIM_TEST_ISOLATED=$maker exec "${enter[@]}" "$me" --world "$@"
	fi
done
echo "# not isolated: $reason"
folder=$(mktemp -d) || exit 99
trap 'rm -r "$folder"' EXIT
export VERBATIM_TEST_ISOLATED=no
run_test "$folder" "$@"
