#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Fetches a stock kernel of Debian's and makes the initial ramdisk of the guest from it, all in one directory:
#
#   kernel/boot/vmlinuz-VERSION, kernel/lib/modules/VERSION    the package, unpacked, nothing of it installed
#   initrd.img                                                 mounts what guest_init.sh names and goes on there
#   version                                                    VERSION: all is there
#
# Nothing is done twice: the package is fetched once, the ramdisk is made anew if this script has changed
# since.
#
# usage: kernel.sh DIRECTORY [PACKAGE [ROOT]]
#   DIRECTORY  an absolute path; the guest finds its modules there
#   PACKAGE    the one that stands for the newest kernel of a kind: linux-image-amd64 if not said
#   ROOT       the folder that becomes the guest's root, with a busybox: this machine's if not said
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kind=${2:-linux-image-amd64}
root=${3:-}
mkdir -p "$1"
cd "$1"

# What the ramdisk loads, in this order: the bus, the interface, the control port, the files of this machine.
modules=(virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net
	virtio_console netfs fscache 9pnet 9p 9pnet_virtio overlay)

# The one package that the kind stands for, into fetched/.
download() {
	local package
	package=$(apt-cache depends "$kind" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
	[[ $package ]] || { echo "apt knows no $kind" >&2; return 1; }
	(cd fetched && apt-get download -q -q "$package")
}

fetch() {
	rm -rf fetched unpacked
	mkdir fetched
	# Its lists may be missing, or so old that the package is no longer where they say.
	download || { apt-get update -q -q && download; }
	dpkg-deb -x fetched/linux-image-*.deb unpacked
	rm -r fetched
	[[ -e unpacked/lib ]] || ln -s usr/lib unpacked/lib
	depmod -b unpacked "$(ls unpacked/lib/modules)"
	mv unpacked kernel
}

ramdisk() {
	local version=$1 name file
	rm -rf ramdisk
	mkdir -p ramdisk/{bin,dev,proc,sys,mnt,modules}
	if [[ $root ]]; then cp "$root/bin/busybox" ramdisk/bin/; else cp "$(command -v busybox)" ramdisk/bin/; fi
	for name in sh mount mkdir insmod cat chroot ln; do
		ln -s busybox "ramdisk/bin/$name"
	done
	for name in "${modules[@]}"; do
		file=$(find "kernel/lib/modules/$version" -name "$name.ko*" -print -quit)
		case $file in # none: built into some kernels
		*.xz) xz -dc "$file" >"ramdisk/modules/$name.ko" ;;
		*.ko) cp "$file" ramdisk/modules/ ;;
		esac
	done
	for name in "${modules[@]}"; do
		[[ ! -e ramdisk/modules/$name.ko ]] || echo "$name.ko"
	done >ramdisk/modules/order
	{
		echo "#!/bin/sh"
		echo "modules=$PWD/kernel/lib/modules/$version here=$here base=$root shown='${root:+${here%/tests/*} $PWD}'"
		cat "$here/guest_init.sh"
	} >ramdisk/init
	chmod +x ramdisk/init
	(cd ramdisk && find . | cpio -o -H newc --quiet | gzip -1) >initrd.img
	rm -r ramdisk
}

[[ -d kernel ]] || fetch
version=$(ls kernel/lib/modules)
if [[ ! -e version || $0 -nt version || $here/guest_init.sh -nt version ]]; then
	ramdisk "$version"
	echo "$version" >version
fi
