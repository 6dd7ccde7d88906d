#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A small Ceph cluster whose messages go by RDMA: a monitor, an object store in memory, and a client that
# writes objects and reads them. examples/ceph.toml starts it in a lab, one part on each host. All hosts share
# the directory that it is started in. Nobody is asked for a password: this is for trying, not for keeping.
#
# usage: verbatim run sh ceph.sh monitor | store | client
set -eu
export CEPH_CONF="$PWD/ceph.conf"
cluster=11111111-2222-3333-4444-555555555555
address=$(getent ahostsv4 "$(hostname)" | { read -r first _ && echo "$first"; })

# Few and small buffers suffice.
configure() {
	cat >ceph.conf.new <<-END
		[global]
		fsid = $cluster
		mon initial members = a
		mon host = v2:$address:3300
		mon allow pool size one = true
		auth cluster required = none
		auth service required = none
		auth client required = none
		ms type = async+rdma
		ms async rdma device name = vb_eth0
		ms async rdma receive buffers = 256
		ms async rdma receive queue len = 128
		ms async rdma send buffers = 64
		ms async rdma buffer size = 65536
		ms bind msgr1 = false
		osd objectstore = memstore
		osd pool default size = 1
		osd pool default min size = 1
		osd crush chooseleaf type = 0
		keyring = $PWD/keyring
		mon data = $PWD/monitor
		osd data = $PWD/store
		log file = $PWD/\$name.log
		run dir = /tmp
	END
}

monitor() {
	configure
	CEPH_CONF=$PWD/ceph.conf.new
	mkdir monitor
	ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *'
	ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
	monmaptool --create --fsid $cluster --addv a "[v2:$address:3300]" map
	ceph-mon -i a --mkfs --monmap map --keyring keyring
	mv ceph.conf.new ceph.conf # the others wait for it
	CEPH_CONF=$PWD/ceph.conf exec ceph-mon -i a -f --public-addr "$address"
}

store() {
	until [ -e ceph.conf ]; do sleep 0.2; done
	mkdir store
	uuid=$(cat /proc/sys/kernel/random/uuid)
	ceph osd new "$uuid" 0
	ceph-osd -i 0 --mkfs --osd-uuid "$uuid"
	exec ceph-osd -i 0 -f --public-addr "$address"
}

client() {
	until [ -e ceph.conf ]; do sleep 0.2; done
	until ceph osd stat | grep -q '1 up'; do sleep 0.5; done
	ceph osd pool create things 4
	head -c 20000000 /dev/urandom >written
	rados -p things put object written
	rados -p things get object read
	cmp written read
	rados -p things bench 2 write -b 65536
	echo "all bytes came back"
}

"$1"
