#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Two programs as an ordinary user without any capability, in a user, network, mount and pid namespace of
# their own with an empty /tmp and no /dev/shm, as in a locked-down container.
#
#   root --setpriv--> uid 65534 --unshare--> uid 0 of a new user namespace, which prepares:
#     lo up · /tmp: an empty tmpfs (holds the copied libraries) · /dev: null, zero, full, random, urandom and no more
#   --setpriv--> no capability, none to be gained: the programs
#
# usage: sandbox.sh BUILD_DIR
set -u

if [[ ${1-} == --inside ]]; then
	# Uid 0 of the new namespace: prepare, then drop every capability.
	stage=$2
	set -e
	ip link set lo up
	mount -n -t tmpfs -o mode=755 tmpfs /mnt
	for name in null zero full random urandom; do
		touch "/mnt/$name"
		mount -n --bind "/dev/$name" "/mnt/$name"
	done
	ln -s /proc/self/fd /mnt/fd
	mount -n --move /mnt /dev
	mount -n -t tmpfs -o mode=1777 tmpfs /mnt
	cp -r "$stage"/. /mnt/
	mount -n --move /mnt /tmp
	cd /tmp
	exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
		bash /tmp/sandbox.sh --programs
fi

if [[ ${1-} == --programs ]]; then
	cd /tmp || exit 99
	caps=$(awk '/^Cap(Eff|Prm|Bnd|Amb)/ { printf "%s", $2 }' /proc/self/status)
	[[ $caps =~ ^0+$ ]] && echo "ok 1 - no capability" || echo "not ok 1 - no capability"
	[[ ! -e /dev/shm ]] && echo "ok 2 - no /dev/shm" || echo "not ok 2 - no /dev/shm"

	number=2
	# Is there a TCP listener or a listening port of the connection manager in this network namespace?
	listens() {
		cat /proc/net/tcp /proc/net/tcp6 /proc/net/unix 2>/dev/null |
			awk '$4 == "0A" || /@verbatim\/port\// && $6 == "01" { found = 1 } END { exit !found }'
	}
	# both NAME SERVER CLIENT: passes when both commands end with 0
	both() {
		local server pids client_status server_status
		number=$((number + 1))
		if ! type -P "${2%% *}" >/dev/null; then
			echo "ok $number - $1 # SKIP ${2%% *} is not installed"
			return
		fi
		timeout -k 1 120 /tmp/build/verbatim run $2 >server.log 2>&1 &
		server=$!
		until listens || ! kill -0 $server 2>/dev/null; do sleep 0.05; done
		timeout -k 1 120 /tmp/build/verbatim run $3 >client.log 2>&1
		client_status=$?
		wait $server
		server_status=$?
		if [[ $client_status == 0 && $server_status == 0 ]]; then
			echo "ok $number - $1"
			return
		fi
		echo "not ok $number - $1"
		echo "# client $client_status, server $server_status"
		sed 's/^/# server: /' server.log
		sed 's/^/# client: /' client.log
	}
	both rping "rping -s -V -a 127.0.0.1 -p 7500 -C 200" "rping -c -V -a 127.0.0.1 -p 7500 -C 200"
	both ib_send_bw "ib_send_bw -F -d vb_lo -x 0 -n 200" "ib_send_bw -F -d vb_lo -x 0 -n 200 127.0.0.1"
	both ib_write_bw_R "ib_write_bw -F -R -d vb_lo -n 200" "ib_write_bw -F -R -d vb_lo -n 200 127.0.0.1"
	echo "1..$number"
	exit 0
fi

build=$(realpath "$1")
for library in libibverbs.so.1 librdmacm.so.1; do
	[[ -e $build/lib/$library ]] || { echo "Bail out! $build/lib/$library is missing: build first"; exit 1; }
done
ordinary=()
if [[ $(id -u) == 0 ]]; then
	ordinary=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all)
fi
enter=("${ordinary[@]}" unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc)
if ! reason=$("${enter[@]}" true 2>&1); then
	echo "1..0 # SKIP no user namespace for an ordinary user here (${reason:-unshare failed})"
	exit 0
fi

stage=$(mktemp -d "$build/sandbox.XXXXXX") || exit 99
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/build/lib"
cp "$build/verbatim" "$stage/build/"
cp -L "$build"/lib/lib*.so.1 "$stage/build/lib/"
cp "$0" "$stage/sandbox.sh"
chmod -R a+rX "$stage"
if ! "${ordinary[@]}" test -r "$stage/sandbox.sh"; then
	echo "1..0 # SKIP the build directory cannot be read by an ordinary user"
	exit 0
fi
timeout -k 5 500 "${enter[@]}" bash "$stage/sandbox.sh" --inside "$stage"
