#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What programs find under /sys/class/infiniband when `verbatim run` starts them: scripts, Debian's tools, and
# each file call there is. usage: sysfs.sh BUILD_DIR PATH_OF_SYSFS_CALLS
set -u
verbatim=$(realpath "$1")/verbatim
calls=$(realpath "$2")
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work/run LC_ALL=C
mkdir "$XDG_RUNTIME_DIR"
unset VERBATIM_SYSFS VERBATIM_DEBUG LD_PRELOAD ASAN_OPTIONS
class=/sys/class/infiniband

. "$(dirname "$0")/tap.sh"

matches() { # NAME PATTERN ACTUAL
	[[ $3 =~ $2 ]] && check "$1" "" "" || check "$1" "$2" "$3"
}
run() { "$verbatim" run "$@"; }
value() { run cat "$class/vb_lo/$1"; }
has() { type -P "$1" >/dev/null; }

# ---- each call ----

run "$calls" >"$work/calls"
check calls__all_are_led 0 $?
grep -A1 '^not ok' "$work/calls" | sed 's/^/# /'
matches calls__are_many '^1\.\.[6-9][0-9]$' "$(tail -1 "$work/calls")"
check calls__not_without_run 1 "$("$calls" >/dev/null; echo $?)"

# ---- formats ----

check device__node_type "1: CA" "$(value node_type)"
matches device__guid '^([0-9a-f]{4}:){3}[0-9a-f]{4}$' "$(value node_guid)"
check device__guid_is_that_of_the_verbs "$(run ibv_devices | awk '$1 == "vb_lo" { print $2 }')" "$(value node_guid | tr -d :)"
check device__net lo "$(run ls $class/vb_lo/device/net)"
matches device__parent "/vb_[^/]*/device/net/[^/]+$" "$(run sh -c "echo $class/*/device/net/* | cut -d' ' -f1")"
check device__numa_node -1 "$(value device/numa_node)"
matches device__local_cpus '^[0-9a-f]+(,[0-9a-f]{8})*$' "$(value device/local_cpus)"
check port__state "4: ACTIVE" "$(value ports/1/state)"
check port__phys_state "5: LinkUp" "$(value ports/1/phys_state)"
check port__rate "200 Gb/sec (4X HDR)" "$(value ports/1/rate)"
check port__link_layer Ethernet "$(value ports/1/link_layer)"
check port__lid 0x0 "$(value ports/1/lid)"
matches port__cap_mask '^0x[0-9a-f]{8}$' "$(value ports/1/cap_mask)"
check port__pkey 0xffff "$(value ports/1/pkeys/0)"
check gid__of_loopback 0000:0000:0000:0000:0000:ffff:7f00:0001 "$(value ports/1/gids/0)"
check gid__type "RoCE v2" "$(value ports/1/gid_attrs/types/0)"
check gid__interface lo "$(value ports/1/gid_attrs/ndevs/0)"
check gid__unused_are_zero 0000:0000:0000:0000:0000:0000:0000:0000 "$(value ports/1/gids/63)"
check gid__unused_have_no_type 1 "$(value ports/1/gid_attrs/types/63 2>/dev/null; echo $?)"
check verbs__name_of_the_device vb_lo "$(run grep -lx vb_lo -r ${class}_verbs/ | xargs -n1 "$verbatim" run cat)"
check verbs__abi 6 "$(run cat ${class}_verbs/abi_version)"

check dev__device_files "rdma_cm uverbs" "$(run ls /dev/infiniband | tr -d 0-9 | sort -u | xargs)"
check dev__may_be_used 0 "$(run test -c /dev/infiniband/rdma_cm -a -r /dev/infiniband/rdma_cm -a -w /dev/infiniband/rdma_cm; echo $?)"
check dev__other_files_are_the_kernels "$(ls -l /dev/null)" "$(run ls -l /dev/null)"

# ---- programs ----

check sh__changes_into_it "$class/vb_lo/ports/1" "$(run sh -c "cd $class/vb_lo/ports/1 && pwd")"
check sh__names_relative_to_it "4: ACTIVE" "$(run sh -c "cd $class/vb_lo/ports && cat 1/state")"
check sh__child_of_a_child "1: CA" "$(run sh -c "sh -c 'env cat $class/vb_lo/node_type'")"
gids=$(run sh -c "for d in $class/*; do for p in \$d/ports/*; do for t in \$p/gid_attrs/types/*; do
	echo \${d##*/} \${p##*/} \${t##*/} \$(cat \$p/gids/\${t##*/}) \$(cat \$t) \$(cat \$p/gid_attrs/ndevs/\${t##*/}); done; done; done")
matches sh__table_of_gids 'vb_lo 1 0 0000:0000:0000:0000:0000:ffff:7f00:0001 RoCE v2 lo' "$gids"
check find__regular_files "$class/vb_lo/ports/1/gids/5" "$(run find -L $class/vb_lo/ports -path '*gids/5')"
check ls__long "$class/vb_lo -> ../../devices/virtual/infiniband/vb_lo" "$(run ls -dl $class/vb_lo | sed 's/.* \//\//')"
check python__lists "['vb_lo']" "$(run python3 -c "import os; print([d for d in os.listdir('$class') if d == 'vb_lo'])")"
check python__walks "$class/vb_lo/ports/1/state" \
	"$(run python3 -c "import pathlib; print(*pathlib.Path('$class/vb_lo/').glob('ports/*/state'))")"
check python__realpath /sys/devices/virtual/infiniband/vb_lo \
	"$(run python3 -c "import os; print(os.path.realpath('$class/vb_lo'))")"
if has ibstat; then
	matches ibstat__knows_the_device "CA 'vb_lo'.*CA type: verbatim.*State: Active.*Rate: 200.*Link layer: Ethernet" "$(run ibstat vb_lo)"
	matches ibstatus__knows_the_device "'vb_lo' port 1 status:.*0000:ffff:7f00:0001.*4: ACTIVE.*200 Gb/sec" "$(run ibstatus vb_lo)"
else
	skip ibstat "infiniband-diags is not here"
fi
if has ib_write_bw; then # the port is 0x4959
	perf="ib_write_bw -d vb_lo -x 0 -F -n 200 -p 18777 --report-counters=counters/port_xmit_data,hw_counters/sent_pkts"
	run --wire $perf >"$work/server" 2>&1 &
	server=$!
	for _ in {1..200}; do grep -q ':4959 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.05; done
	run --wire $perf 127.0.0.1 >"$work/client" 2>&1
	status=$?
	wait $server
	check perftest__status "0 0" "$status $?"
	bytes=$(sed -n 's/^\tcounters\/port_xmit_data=\([0-9]*\).*/\1/p' "$work/client")
	if [[ ${VERBATIM_TEST_ISOLATED-} == network ]]; then
		skip perftest__reports_counters "/sys tells of another network"
	else
		check perftest__reports_counters 1 "$((${bytes:-0} > 200 * 65536 / 4 ? 1 : 0))"
	fi
else
	skip perftest "perftest is not here"
fi

if has ucx_perftest && compgen -G '/usr/lib*/*/ucx/libuct_ib.so*' >/dev/null; then # asks sysfs for the GIDs' types, and whether there is a device file; the port is 0x495a
	read -ra ucx < <(TMPDIR=$work PYTHONPATH=$(dirname "$0") python3 -c 'import harness; print(harness.ucx_perftest())')
	ucx=(env TMPDIR="$work" "${ucx[@]}") # Open MPI leaves files where a server is ended
	export UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=vb_lo:1
	run "${ucx[@]}" -t tag_lat -n 300 -s 1024 -p 18778 >"$work/server" 2>&1 &
	server=$!
	for _ in {1..200}; do grep -q ':495A .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.05; done
	# Against hanging: two programs that poll get slow on a busy machine.
	timeout 200 "$verbatim" run "${ucx[@]}" -t tag_lat -n 300 -s 1024 -p 18778 127.0.0.1 >"$work/client" 2>&1
	status=$?
	kill $server 2>/dev/null
	wait $server 2>/dev/null
	unset UCX_TLS UCX_NET_DEVICES
	check ucx__status 0 $status
	check ucx__result 1 "$(grep -c '^Final: *300 ' "$work/client")"
else
	skip ucx "ucx-utils, or its module for verbs, is not here"
fi

# ---- programs that make their system calls themselves ----

# PROGRAM WORDS...: until its output is another than WORDS, or for 20 s.
until_not() {
	local before=$1
	shift
	for _ in {1..200}; do [[ $("$@" 2>/dev/null) == "$before" ]] || return 0; sleep 0.1; done
	return 1
}
# Traffic through shared memory until stop_traffic; the port is 0x495b.
start_traffic() {
	"$verbatim" run ibv_rc_pingpong -d vb_lo -g 0 -n 1000000000 -p 18779 >"$work/pong" 2>&1 &
	traffic=$!
	for _ in {1..200}; do grep -q ':495B .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.05; done
	"$verbatim" run ibv_rc_pingpong -d vb_lo -g 0 -n 1000000000 -p 18779 127.0.0.1 >"$work/ping" 2>&1 &
	traffic+=" $!"
}
stop_traffic() {
	kill -KILL $traffic
	wait $traffic 2>/dev/null
}
helpers() { pgrep -u "$(id -u)" -x verbatim-sysfs | wc -l; }

if ! has busybox || readelf -l "$(type -P busybox)" | grep -q INTERP; then
	skip mounts "no busybox that is linked statically"
elif ! unshare -m true 2>/dev/null && ! unshare -rm true 2>/dev/null; then
	check mounts__without_a_namespace_it_runs hello "$(run busybox echo hello)"
	skip mounts "no mount namespaces here"
else
	check mounts__a_file "1: CA" "$(run busybox cat $class/vb_lo/node_type)"
	check mounts__the_same_names "$(run ls $class/vb_lo/ports/1)" "$(run busybox ls $class/vb_lo/ports/1)"
	check mounts__links /sys/devices/virtual/infiniband/vb_lo "$(run busybox realpath $class/vb_lo)"
	check mounts__other_files_are_the_kernels "$(ls /sys/class /sys/class/net | grep -v '^infiniband')" \
		"$(run busybox ls /sys/class /sys/class/net | grep -v '^infiniband')"
	check mounts__user "$(id -u) $(id -g)" "$(run busybox sh -c 'echo $(id -u) $(id -g)')"
	check mounts__status 7 "$(run busybox sh -c 'exit 7'; echo $?)"
	check mounts__none_in_the_world "" "$(grep ' /sys/class' /proc/self/mounts)"
	if [[ $(id -u) == 0 ]] && setpriv --reuid=12345 --regid=12345 --clear-groups "$verbatim" --version >/dev/null 2>&1; then
		# An ordinary user, and a /proc by which nobody can be mapped: a user namespace would have none.
		check mounts__where_users_cannot_be_mapped 12345 "$(unshare -m sh -c 'mount -n -t tmpfs none /proc &&
			mkdir -p /proc/self/ns && touch /proc/self/ns/net && ln -s "$0" /proc/self/exe &&
			ln -s /dev/full /proc/self/uid_map && touch /proc/self/setgroups /proc/self/gid_map &&
			exec setpriv --reuid=12345 --regid=12345 --clear-groups "$0" run busybox id -u' "$verbatim")"
	else
		skip mounts__where_users_cannot_be_mapped "only root can become another user"
	fi
	check mounts__off 1 "$(run --no-sysfs busybox cat $class/vb_lo/node_type 2>/dev/null; echo $?)"
	start_traffic
	check mounts__counters_move 0 "$(run busybox sh -c "read a <$class/vb_lo/ports/1/hw_counters/rdma_sends
		for i in \$(seq 200); do
			read b <$class/vb_lo/ports/1/hw_counters/rdma_sends
			[ \$b = \$a ] || break
			sleep 0.1
		done
		[ \$b -gt \$a ]; echo \$?")"
	stop_traffic
	until_not 1 eval '(($(helpers) > 0)) && echo 1'
	check mounts__no_helper_stays 0 "$(helpers)"
fi
if has prometheus-node-exporter && { unshare -m true || unshare -rm true; } 2>/dev/null; then
	"$verbatim" run prometheus-node-exporter --web.listen-address=127.0.0.1:19100 --web.disable-exporter-metrics \
		--collector.disable-defaults --collector.infiniband >"$work/exporter" 2>&1 &
	exporter=$!
	metric() { curl -s http://127.0.0.1:19100/metrics | sed -n "s/^$1.*} //p"; }
	sent='node_infiniband_port_packets_transmitted_total{device="vb_lo"'
	until_not "" metric "$sent"
	check exporter__is_led 1 "$(metric node_scrape_collector_success)"
	check exporter__state 4 "$(metric 'node_infiniband_state_id{device="vb_lo"')"
	before=$(metric "$sent")
	start_traffic
	until_not "$before" metric "$sent"
	check exporter__counters_move 0 $?
	stop_traffic
	kill $exporter
	wait $exporter
else
	skip exporter "prometheus-node-exporter is not here, or no mount namespaces are"
fi

# ---- the moment ----

sent() { value ports/1/counters/port_xmit_packets; }
if [[ ${VERBATIM_TEST_ISOLATED-} == network ]]; then
	skip counters__move "/sys tells of another network"
else
	before=$(sent)
	bash -c 'echo >/dev/udp/127.0.0.1/9' 2>/dev/null
	check counters__move 1 "$(($(sent) > before ? 1 : 0))"
fi
cat >"$work/namespace" <<EOF
ip link set lo up
"$verbatim" run ls $class
ip link add name left type veth peer name right && ip address add 192.0.2.1/24 dev left && ip address add 198.51.100.1/24 dev right
ip link set right up && ip link set left up
"$verbatim" run ls $class
"$verbatim" run cat $class/vb_left/ports/1/gids/1
ip address add 192.0.2.2/24 dev left
"$verbatim" run cat $class/vb_left/ports/1/gids/2
ip link delete left
"$verbatim" run ls $class
EOF
if unshare -rn ip link add name left type veth peer name right 2>/dev/null; then
	trees() { find "$XDG_RUNTIME_DIR/verbatim-$(id -u)" -mindepth 1 -maxdepth 1 | wc -l; }
	user='ip link set lo up; exec "$0" run python3 -c "import os, sys; os.listdir(sys.argv[1]); print(flush=True); input()" "$1"'
	coproc unshare -rn sh -c "$user" "$verbatim" $class
	read -r -u "${COPROC[0]}"
	run ls $class >/dev/null
	check tree__of_who_lives_stays 2 "$(trees)"
	echo >&"${COPROC[1]}"
	wait "$COPROC_PID"
	run ls $class >/dev/null
	check tree__of_whom_is_gone_goes 1 "$(trees)"
	check namespace__of_its_own "vb_lo vb_left vb_lo vb_right 0000:0000:0000:0000:0000:ffff:c000:0201 0000:0000:0000:0000:0000:ffff:c000:0202 vb_lo" \
		"$(unshare -rn sh "$work/namespace" 2>&1 | xargs)"
else
	skip namespace "no namespaces or veth interfaces here"
fi
seq 40 | xargs -P8 -I{} "$verbatim" run sh -c "cat $class/vb_lo/ports/1/state $class/vb_lo/ports/1/gids/0" 2>&1 | cat >"$work/many"
check many_at_once "40 4: ACTIVE|40 0000:0000:0000:0000:0000:ffff:7f00:0001|" \
	"$(sort -r "$work/many" | uniq -c | sed 's/^ *//' | tr '\n' '|')"

# ---- where it is not ----

check off__by_option 2 "$(run --no-sysfs ls $class 2>/dev/null; echo $?)"
check off__by_variable 2 "$(VERBATIM_SYSFS=off run ls $class 2>/dev/null; echo $?)"
check other_paths__are_the_kernels "$(ls /sys/class/net)" "$(run ls /sys/class/net)"
if [[ ${VERBATIM_TEST_ISOLATED-} != root && ${VERBATIM_TEST_ISOLATED-} != user ]]; then
	skip place__that_others_may_write_is_passed_over "this user's files in /dev/shm are no test's"
else
	mkdir -p "$work/hostile/verbatim-$(id -u)"
	chmod 777 "$work/hostile/verbatim-$(id -u)"
	matches place__that_others_may_write_is_passed_over "^/dev/shm|^/tmp" \
		"$(XDG_RUNTIME_DIR=$work/hostile run env -u LD_PRELOAD sh -c : ; XDG_RUNTIME_DIR=$work/hostile run \
			sh -c "cd $class && env -u LD_PRELOAD /bin/pwd -P")"
	rm -rf {/dev/shm,/tmp}/"verbatim-$(id -u)"
fi
check place__is_this_users_alone 700 "$(stat -c %a "$XDG_RUNTIME_DIR/verbatim-$(id -u)")"
check debris__none "" "$(find "$XDG_RUNTIME_DIR" -name '.new*')"
cp -r "$(dirname "$verbatim")/lib" "$work/a folder" 2>/dev/null && cp "$verbatim" "$work/" && mkdir "$work/x y" &&
	cp "$verbatim" "$work/x y/" && mv "$work/a folder" "$work/x y/lib"
check folder_with_a_space__runs_without "hello" "$("$work/x y/verbatim" run echo hello 2>&1)"
if echo 'int main(void) { return 0; }' | cc -x c -fsanitize=address -o "$work/sanitized" - 2>/dev/null; then
	check sanitizers__start 0 "$(run "$work/sanitized" 2>&1; echo $?)"
else
	skip sanitizers__start "no AddressSanitizer here"
fi

echo "1..$count"
exit $failed
