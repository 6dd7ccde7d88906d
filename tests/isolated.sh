#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a test where nothing else on the machine can meet it, and tells what the test left behind. Meson starts
# each test through it.
#
#   ┌ network of the test ────────────┐        ┌ far end ┐     Both are network namespaces. The test also has process
#   │ lo   eth0 10.66.0.1 fd66::1    ─┼─ veth ─┼─ far    │     numbers of its own, an empty /tmp, /run and /dev/shm, and a
#   └─────────────────────────────────┘        └─────────┘     localhost with both addresses. All of it ends with the test.
#
# The sources are read-only there, but for the build directory, in which this script starts. A test that
# leaves a process, or a file in /tmp, /run or /dev/shm, has failed. What a failed test said of its failures
# is repeated on standard error, which is what Meson shows.
#
# VERBATIM_TEST_ISOLATED tells the test how much of this the machine allows:
#   root     all of it
#   user     all of it, to an ordinary user, who is root inside, of a user namespace
#   network  the network alone, as within some chroots
#   no       nothing; a line says why
# usage: isolated.sh COMMAND [ARGUMENT...]
set -u
me=$(realpath "${BASH_SOURCE[0]}")
PATH=$PATH:/usr/sbin:/sbin
tree=${me%/tests/*}
own=                      # the folder of this script in the world, mostly in /run
hidden=()                 # folders that are empty there
left_limit=500            # times 10 ms, for processes that are ending

# ---- files ----

# Empties a folder for the test, unless the sources or the build are in it.
hide() {
	[[ -d $1 && $tree/ != "$1"/* && $PWD/ != "$1"/* ]] && mount -n -t tmpfs -o mode=1777 tmpfs "$1" && hidden+=("$1")
}

protect_sources() {
	local build=$PWD
	mkdir "$own/build"
	mount -n --bind "$build" "$own/build"
	mount -n --bind "$tree" "$tree"
	mount -n -o remount,bind,ro "$tree"
	[[ $build/ != "$tree"/* ]] || mount -n --bind "$own/build" "$build"
	umount -n "$own/build"
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

# ---- network ----

# This process is in the namespace of the far end. Another one holds that of the test, and ends when nobody
# can write to it any more.
make_network() {
	exec {line}> >(exec unshare --net cat)
	holder=$!
	until [[ $(readlink /proc/$holder/ns/net) != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.01; done
	ip link set lo up
	# No duplicate address detection: addresses are there at once.
	in_network sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; exec ip link set lo up' 2>/dev/null
	ip link add far type veth peer name eth0 netns $holder || return
	ip link set far up
	in_network ip -batch - <<-END
		address add 10.66.0.1/24 dev eth0
		address add fd66::1/64 dev eth0 nodad
		link set eth0 up
	END
	until [[ $(in_network ip -brief link show eth0) == *" UP "* ]]; do sleep 0.01; done
	# The kernel makes the route to an IPv6 address a while later.
	until [[ $(in_network ip -6 route show table local fd66::1) ]]; do sleep 0.01; done
}

in_network() { nsenter --net=/proc/$holder/ns/net "$@" {line}>&-; }

end_network() {
	exec {line}>&-
	wait $holder
}

# ---- processes ----

# Are there, but for process 1, none but those that are named? A process that is about to end has time to;
# others are ended.
leaves_no_process() {
	local waits pid left
	for ((waits = 0; waits < left_limit; waits++)); do
		left=()
		for pid in /proc/[0-9]*; do
			pid=${pid#/proc/}
			[[ " 1 $* " == *" $pid "* ]] || left+=("$pid")
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
	left=$(find "${hidden[@]}" -mindepth 1 -maxdepth 1 ! -path "$own")
	[[ -z $left ]] || echo "left behind:" $left >&2
	[[ -z $left ]]
}

# What the test said of its failed cases, or the last that it said.
last_words() {
	local failed
	failed=$(awk '/^not ok/ { shown = 1 } /^(ok|1\.\.)/ { shown = 0 } shown' "$1")
	if [[ $failed ]]; then head -n 80 <<<"$failed"; else tail -n 20 "$1"; fi
}

# Runs the test, which is told of in a folder; its exit status, or 1 if it leaves processes where it has
# numbers of its own.
run_test() {
	local said=$1/said status teller
	shift
	mkfifo "$said.pipe"
	# In TAP, cmocka calls a skipped case "not ok", which for Meson is a failure.
	sed -u -e 's/^not ok \([0-9]*\) # SKIP/ok \1 # SKIP/' -e "w $said" <"$said.pipe" &
	teller=$!
	"$@" >"$said.pipe"
	status=$?
	[[ $$ != 1 ]] || leaves_no_process $teller $holder || status=$((status ? status : 1))
	wait $teller
	[[ $status == 0 || $status == 77 ]] || last_words "$said" >&2
	return $status
}

# ---- how much of it there is ----

all_of_it() { # this is process 1
	local status
	mount -n -t proc proc /proc
	hide /run
	hide /tmp && export TMPDIR=/tmp
	hide /dev/shm
	own=${hidden[0]?}/verbatim-test
	mkdir -m 700 "$own" "$own/user" || exit 99
	protect_sources
	name_localhost || echo "# localhost has no name in this test"
	make_network || echo "# no eth0 in this test"
	in_network mount -n -t sysfs sysfs /sys
	XDG_RUNTIME_DIR=$own/user run_test "$own" in_network "$@"
	status=$?
	end_network
	leaves_no_file || status=$((status ? status : 1))
	exit $status
}

in_a_folder() {
	local folder status
	folder=$(mktemp -d) || exit 99
	run_test "$folder" "$@"
	status=$?
	rm -r "$folder"
	return $status
}

network_alone() {
	local status
	make_network || echo "# no eth0 in this test"
	in_a_folder in_network "$@"
	status=$?
	end_network
	exit $status
}

case ${1-} in
--all) all_of_it "${@:2}" ;;
--network) network_alone "${@:2}" ;;
esac
for maker in root chroot user; do
	enter=(unshare --net --mount --pid --fork --kill-child)
	case $maker in
	chroot) # Its root is no mount that could be made private. The mounts below tell whether others would see the test's.
		! grep -qE ' (shared|master):' /proc/self/mountinfo || continue
		enter+=(--propagation unchanged) ;;
	user) enter+=(--user --map-root-user) ;;
	esac
	if reason=$("${enter[@]}" sh -c 'mount -n -t proc proc /proc && mount -n -t tmpfs tmpfs /run && unshare --net true' 2>&1); then
		# unshare(1) of util-linux 2.37 makes its program ignore INT and TERM, nohup(1) HUP.
		enter+=(env --default-signal=INT,TERM,HUP)
		VERBATIM_TEST_ISOLATED=${maker/chroot/root} exec "${enter[@]}" "$me" --all "$@"
	fi
done
if unshare --net true 2>/dev/null; then
	VERBATIM_TEST_ISOLATED=network exec unshare --net "$me" --network "$@"
fi
echo "# not isolated: $reason"
export VERBATIM_TEST_ISOLATED=no
in_a_folder "$@"
