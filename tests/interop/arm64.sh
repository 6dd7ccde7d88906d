#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Makes what arm64 guests boot, in a directory: packages of Debian's for arm64, unpacked, nothing of them run.
#
#   apt.conf       for apt alone: the lists of two releases for arm64; this machine's packages are not looked at
#   root           programs of Debian 12; complete once root/unpacked is there
#   qemu-aarch64   for single programs: this machine's, or where that is older than 10, in which a child of a program with threads
#                  cannot start one, Debian 13's
#   4k, 16k        kernels by the size of their pages (kernel.sh): Debian 12's, and one of Debian 13's
#
# usage: arm64.sh DIRECTORY (an absolute path)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
me=$here/${0##*/}
mkdir -p "$1"
cd "$1"
export APT_CONFIG=$PWD/apt.conf
packages=(bash dash coreutils diffutils util-linux grep sed libc-bin busybox-static kmod procps iproute2 python3 libcmocka0 ibverbs-utils rdmacm-utils perftest)

configure_apt() {
	local mirror=http://deb.debian.org/debian key=/usr/share/keyrings/debian-archive-keyring.gpg release
	mkdir -p apt/lists/partial apt/archives/partial
	: >apt/status
	for release in bookworm trixie; do
		echo "deb [signed-by=$key] $mirror $release main"
	done >apt/sources.list
	cat >apt.conf <<-END
		APT::Architecture "arm64";
		APT::Architectures { "arm64"; "$(dpkg --print-architecture)"; };
		APT::Default-Release "bookworm";
		APT::Install-Recommends "false";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Dir::State "$PWD/apt";
		Dir::State::status "$PWD/apt/status";
		Dir::State::lists "$PWD/apt/lists";
		Dir::Cache "$PWD/apt";
		Dir::Cache::archives "$PWD/apt/archives";
		Dir::Etc::sourcelist "$PWD/apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
	END
}

# Packages have links in place of these folders only once their scripts have run.
unpack() {
	local folder file
	rm -rf root
	mkdir -p root/usr/{bin,sbin,lib} root/{proc,sys,dev,run,tmp,mnt,root}
	for folder in bin sbin lib; do
		ln -s "usr/$folder" "root/$folder"
	done
	for file in apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink -C root
	done
	printf '127.0.0.1 localhost\n::1 localhost\n' >root/etc/hosts
	printf 'root:x:0:0:root:/root:/bin/bash\n' >root/etc/passwd
	touch root/unpacked
}

get_qemu() {
	local own
	own=$(qemu-aarch64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
	if [[ ${own:-0} -ge 10 ]]; then
		ln -sf "$(command -v qemu-aarch64)" qemu-aarch64
		return
	fi
	mkdir fetched
	(cd fetched && apt-get download -q -q "qemu-user:$(dpkg --print-architecture)/trixie")
	dpkg-deb --fsys-tarfile fetched/*.deb | tar -x -C fetched ./usr/bin/qemu-aarch64
	mv fetched/usr/bin/qemu-aarch64 .
	rm -r fetched
}

if [[ ! -e apt/known || $me -nt apt/known ]]; then
	configure_apt
	apt-get update -q -q --error-on=any
	rm -rf root/unpacked qemu-aarch64 fetched
	touch apt/known
fi
if [[ ! -e root/unpacked ]]; then
	apt-get install -q -q -y --download-only "${packages[@]}"
	unpack
	apt-get clean
fi
[[ -e qemu-aarch64 ]] || get_qemu
"$here/kernel.sh" "$PWD/4k" linux-image-arm64 "$PWD/root"
"$here/kernel.sh" "$PWD/16k" linux-image-arm64-16k "$PWD/root"
