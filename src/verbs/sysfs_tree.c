/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices as the kernel would show them in sysfs: a tree of files (host/tree.h) that the preload library
 * of `verbatim run` puts in place of /sys/class/infiniband. Formats and units are those of the kernel's own
 * RoCE devices. A device is below devices/virtual, as rdma_rxe's are. Its `device` is that of its interface,
 * or a folder with the files of a device on no bus. Programs that check for a device file in /dev/infiniband
 * find one; opening it leads nowhere.
 */
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/nanoseconds.h"
#include "host/tree.h"
#include "verbs/verbs.h"

/*
 * Updates the part of the tree that a path names. Returns the root, or NULL with errno if there is no place
 * for a tree. One caller at a time.
 */
VB_EXPORT const char *vb_sysfs_refresh(const char *path);

/*
 * Sets who knows the sums of the ports' counts over all processes of the user (answers/ports.c). It gets the
 * tree's root, and fills in up to `room` records. Returns how many.
 */
typedef unsigned vb_port_sums(const char *root, struct vb_record_port *list, unsigned room);
VB_EXPORT void vb_sysfs_set_sums(vb_port_sums *sums);

enum { VERBS_ABI = 6, MAD_ABI = 5, MOST_PORTS = 64 };

/*
 * Programs read many files one after the other. For this time only what is below `counters` or `hw_counters`
 * is written anew.
 */
enum { FRESH_NS = 20 * VB_NS_PER_MS };

#define DEVICES "devices/virtual/infiniband"
#define PUT(text, ...)    vb_tree_add(tree, VB_TREE_FILE, text, __VA_ARGS__)
#define LINK(to, ...)     vb_tree_add(tree, VB_TREE_LINK, to, __VA_ARGS__)
#define COUNT(number, ...) \
	vb_tree_add(tree, VB_TREE_COUNTER, TEXT("%llu", (unsigned long long)(number)), __VA_ARGS__)

static const char *text(char *room, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static const char *text(char *room, size_t bytes, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(room, bytes, format, args);
	va_end(args);
	return room;
}

#define TEXT(...) text((char[VB_TREE_TEXT]){ 0 }, VB_TREE_TEXT, __VA_ARGS__)

/* Groups of 16 bits. */
static const char *hex(char room[40], const void *from, unsigned bytes)
{
	const uint8_t *b = from;
	size_t n = 0;
	for (unsigned i = 0; i < bytes; i += 2)
		n += (size_t)sprintf(room + n, i ? ":%02x%02x" : "%02x%02x", b[i], b[i + 1]);
	return room;
}

#define HEX(from, bytes) hex((char[40]){ 0 }, from, bytes)

/* ---- the port ---- */

static const char *state_name(enum ibv_port_state state)
{
	switch (state) {
	case IBV_PORT_NOP:
		return "0: NOP";
	case IBV_PORT_DOWN:
		return "1: DOWN";
	case IBV_PORT_INIT:
		return "2: INIT";
	case IBV_PORT_ARMED:
		return "3: ARMED";
	case IBV_PORT_ACTIVE:
		return "4: ACTIVE";
	case IBV_PORT_ACTIVE_DEFER:
		return "5: ACTIVE_DEFER";
	}
	return "0: NOP";
}

static const char *physical_name(unsigned state)
{
	static const char *const names[] = { "0: <unknown>",
					     "1: Sleep",
					     "2: Polling",
					     "3: Disabled",
					     "4: PortConfigurationTraining",
					     "5: LinkUp",
					     "6: LinkErrorRecovery",
					     "7: Phy Test" };
	return names[state < VB_ARRAY_LEN(names) ? state : 0];
}

/* In units of 100 Mb/s. */
static const char *rate(char room[64], const struct ibv_port_attr *a)
{
	static const struct {
		unsigned code, lane;
		const char *name;
	} speeds[] = { { 1, 25, "" },	    { 2, 50, " DDR" },	 { 4, 100, " QDR" },  { 8, 100, " FDR10" },
		       { 16, 140, " FDR" }, { 32, 250, " EDR" }, { 64, 500, " HDR" }, { 128, 1000, " NDR" } };
	static const struct {
		unsigned code, lanes;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };
	unsigned s = 0, w = 0;
	while (s < VB_ARRAY_LEN(speeds) - 1 && speeds[s].code != a->active_speed)
		s++;
	while (w < VB_ARRAY_LEN(widths) - 1 && widths[w].code != a->active_width)
		w++;
	unsigned sum = speeds[s].lane * widths[w].lanes;
	snprintf(room, 64, "%u%s Gb/sec (%uX%s)", sum / 10, sum % 10 ? ".5" : "", widths[w].lanes,
		 speeds[s].name);
	return room;
}

static void add_gids(struct vb_tree *tree, struct vb_device *dev)
{
	struct in6_addr table[VB_GID_TABLE] = { 0 };
	vb_device_gids(dev, table);
	for (unsigned i = 0; i < VB_GID_TABLE; i++) {
		PUT(HEX(&table[i], 16), DEVICES "/%s/ports/1/gids/%u", dev->name, i);
		if (IN6_IS_ADDR_UNSPECIFIED(&table[i]))
			continue;
		PUT("RoCE v2", DEVICES "/%s/ports/1/gid_attrs/types/%u", dev->name, i);
		PUT(dev->ifname, DEVICES "/%s/ports/1/gid_attrs/ndevs/%u", dev->name, i);
	}
}

/*
 * ---- counters: the interface's, and what went through shared memory instead. As that begins and ends at
 * this port, it counts in both directions, as what a NIC loops back does. ----
 */

static vb_port_sums *port_sums;

void vb_sysfs_set_sums(vb_port_sums *sums) { port_sums = sums; }

/* All zeros for a port that no process has used. */
static const struct vb_counts *counts_of(const struct vb_device *dev, const struct vb_record_port *list,
					 unsigned n)
{
	static const struct vb_counts none;
	for (unsigned i = 0; i < n; i++)
		if (!strncmp(list[i].device, dev->name, sizeof(list[i].device)))
			return &list[i].counts;
	return &none;
}

#define COUNT_OF(name) offsetof(struct vb_counts, name)

static uint64_t count_at(const struct vb_counts *counts, size_t offset)
{
	return *(const uint64_t *)((const char *)counts + offset);
}

static uint64_t netif_count(const struct vb_device *dev, const char *name)
{
	return vb_file_number(TEXT("/sys/class/net/%s/%s", dev->ifname, name));
}

/* The other counters do not exist. */
static const char *const never[] = {
	"VL15_dropped",
	"excessive_buffer_overrun_errors",
	"link_error_recovery",
	"local_link_integrity_errors",
	"port_rcv_constraint_errors",
	"port_rcv_remote_physical_errors",
	"port_rcv_switch_relay_errors",
	"port_xmit_constraint_errors",
	"port_xmit_wait",
	"symbol_error",
};

enum { NOT_SHARED = SIZE_MAX };

static const struct {
	const char *name, *source;
	unsigned unit; /* bytes */
	size_t shared; /* what is added to it */
} counters[] = {
	{ "link_downed", "carrier_down_count", 1, NOT_SHARED },
	{ "multicast_rcv_packets", "statistics/multicast", 1, NOT_SHARED },
	{ "port_rcv_data", "statistics/rx_bytes", 4, COUNT_OF(shared_bytes) },
	{ "port_rcv_errors", "statistics/rx_errors", 1, NOT_SHARED },
	{ "port_rcv_packets", "statistics/rx_packets", 1, COUNT_OF(shared_packets) },
	{ "port_xmit_data", "statistics/tx_bytes", 4, COUNT_OF(shared_bytes) },
	{ "port_xmit_discards", "statistics/tx_dropped", 1, NOT_SHARED },
	{ "port_xmit_packets", "statistics/tx_packets", 1, COUNT_OF(shared_packets) },
	{ "unicast_rcv_packets", "statistics/rx_packets", 1, COUNT_OF(shared_packets) },
	{ "unicast_xmit_packets", "statistics/tx_packets", 1, COUNT_OF(shared_packets) },
};

static void add_counters(struct vb_tree *tree, struct vb_device *dev, const struct vb_counts *counts)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(counters); i++) {
		uint64_t shared =
			counters[i].shared == NOT_SHARED ? 0 : count_at(counts, counters[i].shared);
		COUNT((netif_count(dev, counters[i].source) + shared) / counters[i].unit,
		      DEVICES "/%s/ports/1/counters/%s", dev->name, counters[i].name);
	}
	for (size_t i = 0; i < VB_ARRAY_LEN(never); i++)
		COUNT(0, DEVICES "/%s/ports/1/counters/%s", dev->name, never[i]);
}

/* The n-th number, from 0, of the last "Udp: ..." line. */
static uint64_t udp_count(unsigned n)
{
	char line[512];
	unsigned long long value = 0;
	FILE *f = fopen("/proc/self/net/snmp", "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *at = line + 5;
		if (strncmp(line, "Udp: ", 5))
			continue;
		for (unsigned i = 0; i <= n; i++)
			value = strtoull(at, &at, 10);
	}
	if (f)
		fclose(f);
	return value;
}

/* RoCE is UDP, which the kernel counts for the whole network namespace. The rest is as processes count it. */
static void add_hw_counters(struct vb_tree *tree, struct vb_device *dev, const struct vb_counts *counts)
{
	static const struct {
		const char *name;
		size_t offset;
	} own[] = {
		{ "completer_retry_err", COUNT_OF(timeouts) },
		{ "duplicate_request", COUNT_OF(duplicates) },
		{ "out_of_seq_request", COUNT_OF(early) },
		{ "rcvd_rnr_err", COUNT_OF(rnr_received) },
		{ "rcvd_seq_err", COUNT_OF(sequence_received) },
		{ "rdma_atomics", COUNT_OF(atomics) },
		{ "rdma_reads", COUNT_OF(reads) },
		{ "rdma_recvs", COUNT_OF(receives) },
		{ "rdma_sends", COUNT_OF(sends) },
		{ "rdma_writes", COUNT_OF(writes) },
		{ "send_rnr_err", COUNT_OF(rnr_sent) },
	};
	enum { IN = 0, OUT = 3, FULL = 4 };
	static const struct {
		const char *name;
		unsigned n;
	} udp[] = { { "rcvd_pkts", IN }, { "sent_pkts", OUT }, { "out_of_buffer", FULL } };
	for (size_t i = 0; i < VB_ARRAY_LEN(udp); i++)
		COUNT(udp_count(udp[i].n), DEVICES "/%s/ports/1/hw_counters/%s", dev->name, udp[i].name);
	for (size_t i = 0; i < VB_ARRAY_LEN(own); i++)
		COUNT(count_at(counts, own[i].offset), DEVICES "/%s/ports/1/hw_counters/%s", dev->name,
		      own[i].name);
	PUT("0", DEVICES "/%s/ports/1/hw_counters/lifespan", dev->name);
}

static void add_port(struct vb_tree *tree, struct vb_device *dev)
{
	struct ibv_port_attr a;
	char speed[64];
	vb_port_attr(dev, &a);
#define PORT(file, value) PUT(value, DEVICES "/%s/ports/1/" file, dev->name)
	PORT("state", state_name(a.state));
	PORT("phys_state", physical_name(a.phys_state));
	PORT("rate", rate(speed, &a));
	PORT("lid", TEXT("0x%x", a.lid));
	PORT("lid_mask_count", TEXT("%u", a.lmc));
	PORT("sm_lid", TEXT("0x%x", a.sm_lid));
	PORT("sm_sl", TEXT("%u", a.sm_sl));
	PORT("cap_mask", TEXT("0x%08x", a.port_cap_flags));
	PORT("link_layer", a.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "Ethernet");
	PORT("has_smi", "0");
	PORT("pkeys/0", "0xffff");
#undef PORT
	add_gids(tree, dev);
}

/* ---- the device ---- */

static const char *all_processors(char *room, size_t bytes)
{
	if (!vb_file_line("/sys/devices/system/cpu/online", room, bytes))
		snprintf(room, bytes, "0");
	return room;
}

/* Words of 32 bits, the highest first. */
static const char *processor_mask(char room[VB_TREE_TEXT])
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned words = (unsigned)(n > 0 ? n + 31 : 32) / 32;
	size_t used = 0;
	for (unsigned i = words; i-- > 0 && used < VB_TREE_TEXT - 16;) {
		uint32_t word = i == words - 1 && n % 32 > 0 ? (1u << n % 32) - 1 : UINT32_MAX;
		used += (size_t)sprintf(room + used, used ? ",%08x" : "%x", word);
	}
	return room;
}

/* The interface's device, if it has one. */
static void add_parent(struct vb_tree *tree, const struct vb_device *dev)
{
	const char *link = TEXT("/sys/class/net/%s/device", dev->ifname);
	char *real = realpath(link, NULL), room[VB_TREE_TEXT];
	if (real) {
		LINK(real, DEVICES "/%s/device", dev->name);
		free(real);
		return;
	}
	PUT("-1", DEVICES "/%s/device/numa_node", dev->name);
	PUT(all_processors(room, sizeof(room)), DEVICES "/%s/device/local_cpulist", dev->name);
	PUT(processor_mask(room), DEVICES "/%s/device/local_cpus", dev->name);
	LINK(TEXT("/sys/class/net/%s", dev->ifname), DEVICES "/%s/device/net/%s", dev->name, dev->ifname);
	LINK(TEXT("../../%s", dev->name), DEVICES "/%s/device/infiniband/%s", dev->name, dev->name);
}

static void add_device(struct vb_tree *tree, struct vb_device *dev)
{
	struct ibv_device_attr a;
	vb_device_attr(dev, &a);
#define DEVICE(file, value) PUT(value, DEVICES "/%s/" file, dev->name)
	DEVICE("node_type", "1: CA");
	DEVICE("node_guid", HEX(&a.node_guid, 8));
	DEVICE("sys_image_guid", HEX(&a.sys_image_guid, 8));
	DEVICE("node_desc", TEXT("verbatim on %s", dev->ifname));
	DEVICE("fw_ver", a.fw_ver);
	DEVICE("hw_rev", "0");
	DEVICE("hca_type", "verbatim");
	DEVICE("board_id", "verbatim");
	DEVICE("parent", dev->ifname);
	DEVICE("uevent", TEXT("NAME=%s", dev->name));
#undef DEVICE
	LINK("../../../../class/infiniband", DEVICES "/%s/subsystem", dev->name);
	LINK(TEXT("../../" DEVICES "/%s", dev->name), "class/infiniband/%s", dev->name);
	add_port(tree, dev);
	add_parent(tree, dev);
	PUT(dev->name, "class/infiniband_verbs/uverbs%u/ibdev", dev->number);
	PUT("1", "class/infiniband_verbs/uverbs%u/abi_version", dev->number);
	LINK("/dev/null", "dev/infiniband/uverbs%u", dev->number);
	LINK(TEXT("../../../" DEVICES "/%s/device", dev->name), "class/infiniband_verbs/uverbs%u/device",
	     dev->number);
}

/* Their values are asked of all processes, so they are written only where the program may read them. */
static void keep_counters(struct vb_tree *tree, const struct vb_device *dev)
{
	vb_tree_add(tree, VB_TREE_KEPT, "", DEVICES "/%s/ports/1/counters", dev->name);
	vb_tree_add(tree, VB_TREE_KEPT, "", DEVICES "/%s/ports/1/hw_counters", dev->name);
}

static void add_classes(struct vb_tree *tree)
{
	PUT(TEXT("%u", VERBS_ABI), "class/infiniband_verbs/abi_version");
	PUT(TEXT("%u", MAD_ABI), "class/infiniband_mad/abi_version");
	LINK("/sys/class/net", "class/net");
	LINK("/dev/null", "dev/infiniband/rdma_cm");
}

enum part { COUNTERS, ALL_ELSE };

static int write_tree(const char *root, enum part part)
{
	static struct vb_record_port ports[MOST_PORTS];
	unsigned nports = part == COUNTERS && port_sums ? port_sums(root, ports, MOST_PORTS) : 0;
	struct vb_tree tree = { .entries = NULL };
	struct vb_device **list;
	unsigned count;
	int err = vb_device_list(&list, &count);
	if (err)
		return err;
	if (part == ALL_ELSE)
		add_classes(&tree);
	for (unsigned i = 0; i < count; i++) {
		if (part == ALL_ELSE) {
			add_device(&tree, list[i]);
			keep_counters(&tree, list[i]);
		} else {
			const struct vb_counts *counts = counts_of(list[i], ports, nports);
			add_counters(&tree, list[i], counts);
			add_hw_counters(&tree, list[i], counts);
		}
		vb_device_put(list[i]);
	}
	free(list);
	vb_tree_write(&tree, part == ALL_ELSE);
	vb_tree_free(&tree);
	return 0;
}

/* A program that has opened a folder may open counters by relative paths, which this library does not see. */
static bool is_folder(const char *root, const char *path)
{
	static const char sysfs[] = "/sys";
	size_t outside = strncmp(path, sysfs, strlen(sysfs)) ? 0 : strlen(sysfs);
	struct stat st;
	return !stat(TEXT("%s%s", root, path + outside), &st) && S_ISDIR(st.st_mode);
}

const char *vb_sysfs_refresh(const char *path)
{
	static _Atomic(uint64_t) fresh_until_ns, counters_fresh_until_ns;
	/* the root for which the state holds: a process may change its network namespace */
	static char of[VB_TREE_PATH];
	const char *root = vb_tree_root();
	int err = 0;
	if (!root)
		return NULL;
	bool is_other = strcmp(root, of) != 0;
	/* FRESH_NS begins after the write: with many devices the write alone takes longer than that */
	if (is_other || vb_now_ns() >= atomic_load(&fresh_until_ns)) {
		err = write_tree(root, ALL_ELSE);
		snprintf(of, sizeof(of), "%s", root);
		atomic_store(&fresh_until_ns, vb_now_ns() + FRESH_NS);
	}
	bool are_old = is_other || vb_now_ns() >= atomic_load(&counters_fresh_until_ns);
	if (!err && (strstr(path, "counters") || (are_old && is_folder(root, path)))) {
		err = write_tree(root, COUNTERS);
		atomic_store(&counters_fresh_until_ns, vb_now_ns() + FRESH_NS);
	}
	if (!err)
		return root;
	errno = -err;
	return NULL;
}
