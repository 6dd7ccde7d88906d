#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs what building and `make demo` need, with "tests" what `make check` needs beyond that, with "long"
# what `make check-all` does beyond that, with "bench" what `make bench` does, with "docs" what `make docs`
# does, with "install" what `make check-install` does, with "release" what `make release` does, with "aarch64"
# what `make check-aarch64` does; and only what is missing. With nothing missing it needs neither root nor a
# network.
# Debian and Ubuntu: packages are installed. What a release has not is named and left out; its cases are
# skipped. Others: the line that installs the equivalents is printed.
# usage: setup.sh [tests | long | bench | docs | install | release | aarch64]...
set -eu

# package:probe, the package as Debian calls it, with its architecture if that is another, the probe a command,
# a library or a file that shows that it (or an equivalent) is there
needed=(
	meson:meson
	ninja-build:ninja
	pkg-config:pkg-config
	libc6-dev:/usr/include/stdio.h
	libisal-dev:/usr/include/isa-l.h
	g++:g++
	libtomlplusplus-dev:/usr/include/toml++/toml.h
	libncurses-dev:/usr/include/ncurses.h
	ibverbs-utils:ibv_rc_pingpong
	rdmacm-utils:rping
	perftest:ib_send_bw
	python3:/usr/bin/python3
	iproute2:ip
)
for_tests=(
	libcmocka-dev:/usr/include/cmocka.h
	libdw1:libdw.so.1
	libibverbs-dev:/usr/include/infiniband/verbs.h
	librdmacm-dev:/usr/include/rdma/rdma_cma.h
	infiniband-diags:ibstat
	python3-pyverbs:/usr/lib/python3/dist-packages/pyverbs/__init__.py
	util-linux:setpriv
	tmux:tmux
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
	qemu-utils:qemu-img
	qemu-block-extra:/usr/share/doc/qemu-block-extra
	tgt:/usr/sbin/tgtd
	busybox-static:/usr/share/doc/busybox-static
	prometheus-node-exporter:prometheus-node-exporter
	nodejs:node
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
	libgloo-dev:/usr/include/gloo/config.h
)
for_long=(
	ceph-mon:ceph-mon
	ceph-osd:ceph-osd
	ceph-common:rados
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
for_docs=(
	chromium:chromium
	tmux:tmux
	python3-rich:/usr/lib/python3/dist-packages/rich/__init__.py
)
for_install=(
	debhelper:dh
	dpkg-dev:dpkg-buildpackage
	lintian:lintian
	debootstrap:/usr/sbin/debootstrap
	buildah:buildah
)
for_release=(
	make:make
	nasm:nasm
	binutils:readelf
	gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc
	g++-aarch64-linux-gnu:aarch64-linux-gnu-g++
)
for_aarch64=(
	"${for_release[@]}"
	libc6-dev-arm64-cross:/usr/aarch64-linux-gnu/include/stdio.h
	libcmocka-dev:arm64:/usr/lib/aarch64-linux-gnu/pkgconfig/cmocka.pc
	qemu-user:qemu-aarch64
	qemu-system-arm:qemu-system-aarch64
	cpio:cpio
	kmod:/usr/sbin/depmod
	xz-utils:xz
)
for part; do
	declare -n for_part=for_$part
	needed+=("${for_part[@]}")
done

present() {
	case $1 in
	/*) [[ -e $1 ]] ;;
	lib*.so.*) compgen -G "/usr/lib/*/$1" >/dev/null || compgen -G "/usr/lib*/$1" >/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

missing=()
for entry in "${needed[@]}"; do
	present "${entry##*:}" || missing+=("${entry%:*}")
done
present gcc || present clang || missing+=(gcc)
[[ ${#missing[@]} -gt 0 ]] || exit 0

# What others call Debian's packages: "-" is one that has no counterpart, or is in another. What is not listed
# has Debian's name.
declare -A dnf=([libncurses-dev]=ncurses-devel [pkg-config]=pkgconf-pkg-config [libc6-dev]=glibc-devel [libisal-dev]=isa-l-devel [ibverbs-utils]=libibverbs-utils
	[rdmacm-utils]=librdmacm-utils [iproute2]=iproute [libcmocka-dev]=libcmocka-devel [libdw1]=elfutils-libs [libibverbs-dev]=rdma-core-devel
	[librdmacm-dev]=- [python3-pyverbs]=python3-pyverbs [tshark]=wireshark-cli [wireshark-common]=- [netcat-traditional]=- [nginx-light]=nginx
	[redis-server]=redis [redis-tools]=- [qemu-system-x86]=qemu-system-x86-core [qemu-utils]=qemu-img [qemu-block-extra]=qemu-block-iscsi [tgt]=scsi-target-utils [busybox-static]=busybox [groff-base]=groff [ucx-utils]=ucx
	[libfabric-bin]=libfabric [dapl2-utils]=- [openmpi-bin]=openmpi [libopenmpi-dev]=openmpi-devel [libmpich-dev]=mpich-devel [g++]=gcc-c++
	[libtomlplusplus-dev]=tomlplusplus-devel [libgloo-dev]=-)
declare -A zypper=([libncurses-dev]=ncurses-devel [ninja-build]=ninja [pkg-config]=pkgconf-pkg-config [libc6-dev]=glibc-devel [libisal-dev]=isa-l-devel
	[ibverbs-utils]=libibverbs-utils [rdmacm-utils]=librdmacm-utils [libcmocka-dev]=libcmocka-devel [libdw1]=libdw1
	[libibverbs-dev]=rdma-core-devel [librdmacm-dev]=- [tshark]=wireshark [wireshark-common]=- [netcat-traditional]=- [nginx-light]=nginx
	[redis-server]=redis [redis-tools]=- [groff-base]=groff [ucx-utils]=ucx-tools [libfabric-bin]=libfabric [dapl2-utils]=-
	[openmpi-bin]=openmpi [libopenmpi-dev]=openmpi-devel [libmpich-dev]=mpich-devel [g++]=gcc-c++
	[libtomlplusplus-dev]=tomlplusplus-devel [libgloo-dev]=- [qemu-utils]=qemu-tools [qemu-block-extra]=qemu-block-iscsi)
declare -A pacman=([libncurses-dev]=ncurses [ninja-build]=ninja [pkg-config]=pkgconf [libc6-dev]=glibc [libisal-dev]=isa-l [ibverbs-utils]=rdma-core [rdmacm-utils]=-
	[python3]=python [libcmocka-dev]=cmocka [libdw1]=libelf [libibverbs-dev]=- [librdmacm-dev]=- [python3-pyverbs]=- [tshark]=wireshark-cli
	[wireshark-common]=- [netcat-traditional]=- [nginx-light]=nginx [redis-server]=redis [redis-tools]=- [busybox-static]=busybox
	[groff-base]=groff [ucx-utils]=openucx [libfabric-bin]=libfabric [dapl2-utils]=- [openmpi-bin]=openmpi [libopenmpi-dev]=-
	[libmpich-dev]=- [g++]=- [libtomlplusplus-dev]=tomlplusplus [libgloo-dev]=- [qemu-utils]=qemu-img [qemu-block-extra]=qemu-block-iscsi
	[ceph-mon]=ceph [ceph-osd]=- [ceph-common]=-)
declare -A apk=([libncurses-dev]=ncurses-dev [ninja-build]=ninja-build [pkg-config]=pkgconf [libc6-dev]=musl-dev [libisal-dev]=isa-l-dev [ibverbs-utils]=rdma-core
	[rdmacm-utils]=- [libcmocka-dev]=cmocka-dev [libdw1]=elfutils [libibverbs-dev]=rdma-core-dev [librdmacm-dev]=- [python3-pyverbs]=-
	[wireshark-common]=- [netcat-traditional]=- [nginx-light]=nginx [redis-server]=redis [redis-tools]=- [groff-base]=groff
	[ucx-utils]=- [libfabric-bin]=libfabric [dapl2-utils]=- [openmpi-bin]=openmpi [libopenmpi-dev]=openmpi-dev [libmpich-dev]=-
	[libtomlplusplus-dev]=tomlplusplus-dev [libgloo-dev]=- [qemu-utils]=qemu-img [qemu-block-extra]=- [tgt]=-)

# line_for TABLE COMMAND...: what to type where Debian's packages have other names
line_for() {
	local -n names=$1
	local line=("${@:2}") package
	for package in "${missing[@]}"; do
		package=${names[$package]-$package}
		[[ $package == - ]] || line+=("$package")
	done
	echo "Please install what is missing (names as far as they are known): ${line[*]}" >&2
	exit 1
}

if ! present apt-get; then
	! present dnf || line_for dnf sudo dnf install
	! present zypper || line_for zypper sudo zypper install
	! present pacman || line_for pacman sudo pacman -S --needed
	! present apk || line_for apk sudo apk add
	echo "Please install the equivalents of these packages of Debian's: ${missing[*]}" >&2
	exit 1
fi
# as_root COMMAND...
as_root() {
	if [[ $(id -u) == 0 ]]; then
		"$@"
	elif present sudo; then
		sudo "$@"
	else
		echo "Missing packages: ${missing[*]} (installing them needs root or sudo)" >&2
		exit 1
	fi
}
# Tells what of the missing packages this release has.
sort_out() {
	local package
	there=() absent=()
	for package in "${missing[@]}"; do
		if apt-cache show "$package" >/dev/null 2>&1; then
			there+=("$package")
		else
			absent+=("$package")
		fi
	done
}

# Packages of another architecture are known once that is.
if [[ ${missing[*]} == *:arm64* && $(dpkg --print-foreign-architectures) != *arm64* ]]; then
	as_root dpkg --add-architecture arm64
	as_root apt-get update -q
fi
sort_out
if [[ ${#there[@]} -gt 0 ]] || ! compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; then
	as_root apt-get update -q
	sort_out
fi
[[ ${#absent[@]} -eq 0 ]] || echo "This release has no ${absent[*]}: cases that need them are skipped."
[[ ${#there[@]} -gt 0 ]] || exit 0
echo "Installing: ${there[*]}"
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${there[@]}"
