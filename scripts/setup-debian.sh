#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs what building and `make demo` need on Debian, with "tests" what `make check` needs beyond that, with "bench" what
# `make bench` does, with "install" what `make check-install` does; and only what is missing. With nothing missing it needs neither root nor a network.
# usage: setup-debian.sh [tests | bench | install]
set -eu

# package:probe, the probe being a command or a file that shows that the package (or an equivalent) is there
needed=(
	meson:meson
	ninja-build:ninja
	pkg-config:pkg-config
	libc6-dev:/usr/include/stdio.h
	libisal-dev:/usr/include/isa-l.h
	ibverbs-utils:ibv_rc_pingpong
	rdmacm-utils:rping
	perftest:ib_send_bw
	python3:/usr/bin/python3
	iproute2:ip
)
for_tests=(
	libcmocka-dev:/usr/include/cmocka.h
	libdw1:/usr/share/doc/libdw1
	libibverbs-dev:/usr/include/infiniband/verbs.h
	librdmacm-dev:/usr/include/rdma/rdma_cma.h
	infiniband-diags:ibstat
	python3-pyverbs:/usr/lib/python3/dist-packages/pyverbs/__init__.py
	util-linux:setpriv
	tshark:tshark
	wireshark-common:dumpcap
	nftables:/usr/sbin/nft
	ethtool:/usr/sbin/ethtool
	iperf3:iperf3
	netcat-traditional:nc.traditional
	nginx-light:/usr/sbin/nginx
	curl:curl
	wrk:wrk
	redis-server:redis-server
	redis-tools:redis-benchmark
	qemu-system-x86:qemu-system-x86_64
	busybox-static:/usr/share/doc/busybox-static
	cpio:cpio
	kmod:/usr/sbin/depmod
	groff-base:groff
	cmake:cmake
	ucx-utils:ucx_perftest
	libfabric-bin:fi_pingpong
	fio:fio
	qperf:qperf
	dapl2-utils:dtest
	openmpi-bin:mpirun.openmpi
	libopenmpi-dev:mpicc.openmpi
	mpich:mpirun.mpich
	libmpich-dev:mpicc.mpich
	g++:g++
	libgloo-dev:/usr/include/gloo/config.h
)
for_bench=(
	ucx-utils:ucx_perftest
	iperf3:iperf3
	valgrind:valgrind
	util-linux:taskset
	nftables:/usr/sbin/nft
	ethtool:/usr/sbin/ethtool
	qemu-system-x86:qemu-system-x86_64
	busybox-static:/usr/share/doc/busybox-static
	cpio:cpio
	kmod:/usr/sbin/depmod
)
for_install=(
	debhelper:dh
	dpkg-dev:dpkg-buildpackage
	lintian:lintian
	debootstrap:/usr/sbin/debootstrap
	buildah:buildah
)
case ${1:-} in
install) needed+=("${for_install[@]}") ;;
tests) needed+=("${for_tests[@]}") ;;
bench) needed+=("${for_bench[@]}") ;;
esac

present() {
	case $1 in
	/*) [[ -e $1 ]] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing=()
for entry in "${needed[@]}"; do
	present "${entry#*:}" || missing+=("${entry%%:*}")
done
present gcc || present clang || missing+=(gcc)
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "Not a Debian system; please install the equivalents of: ${missing[*]}" >&2
	exit 1
fi
as_root=()
if [[ $(id -u) != 0 ]]; then
	if ! command -v sudo >/dev/null; then
		echo "Missing packages: ${missing[*]} (installing them needs root or sudo)" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
