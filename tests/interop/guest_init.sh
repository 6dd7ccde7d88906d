# SPDX-License-Identifier: BSD-2-Clause
# The guest's first process: under a root that is this machine's, or a folder of it, read-only, with a layer
# of memory over it, it becomes agent.py. kernel.sh puts two lines before this: the interpreter, and where the
# kernel's modules and these tests are, which folder becomes the root, and what of this machine is shown in
# that one, too.
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do
	insmod "/modules/$module" || echo "insmod $module failed"
done
mkdir -p /mnt/machine /mnt/memory /mnt/root
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro machine /mnt/machine
mount -t tmpfs -o size=50% tmpfs /mnt/memory
mkdir -p /mnt/memory/upper /mnt/memory/work
mount -t overlay -o lowerdir=/mnt/machine$base,upperdir=/mnt/memory/upper,workdir=/mnt/memory/work overlay /mnt/root
root=/mnt/root
mount -t proc proc $root/proc
mount -t sysfs sys $root/sys
mount -t devtmpfs dev $root/dev
mkdir -p $root/dev/shm $root/lib/modules
mount -t tmpfs tmpfs $root/dev/shm
mount -t tmpfs tmpfs $root/run
for folder in $shown; do
	mkdir -p "$root$folder"
	mount -o bind "/mnt/machine$folder" "$root$folder"
done
ln -s "$modules" $root/lib/modules/
exec chroot $root /usr/bin/python3 "$here/agent.py"
