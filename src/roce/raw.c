/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/device/device.h"
#include "adapter/inspection/counts.h"
#include "adapter/memory/arena.h"
#include "adapter/memory/hold.h"
#include "adapter/memory/ranges.h"
#include "adapter/progress/progress.h"
#include "adapter/queues/queue.h"
#include "base/log.h"
#include "host/net/raw.h"
#include "wire/frame.h"

enum {
	ETHER_BYTES = VB_ETHER_BYTES,
	VLAN_BYTES = VB_VLAN_BYTES,
	ETHER_VLAN = VB_ETHER_VLAN,
	ETHER_IP4 = 0x0800,
	ETHER_IP6 = 0x86dd,
	BATCH = 64
};

/* ---- what a frame says, in the form of the filters ---- */

struct fields {
	struct ibv_flow_eth_filter eth;
	struct ibv_flow_ipv4_ext_filter ip4;
	struct ibv_flow_ipv6_filter ip6;
	struct ibv_flow_tcp_udp_filter ports;
	bool has_ip4, has_ip6;
	uint8_t protocol; /* whose ports are known; 0: none */
};

static void parse_ports(struct fields *f, uint8_t protocol, const uint8_t *at, size_t left)
{
	if ((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || left < 4)
		return;
	f->protocol = protocol;
	memcpy(&f->ports.src_port, at, 2);
	memcpy(&f->ports.dst_port, at + 2, 2);
}

static void parse_ip4(struct fields *f, const uint8_t *ip, size_t left)
{
	enum { SHORTEST = 20, OFFSET_MASK = 0x1f };
	if (left < SHORTEST || ip[0] >> 4 != 4)
		return;
	size_t header = (size_t)(ip[0] & 15) * 4;
	f->has_ip4 = true;
	memcpy(&f->ip4.src_ip, ip + 12, 4);
	memcpy(&f->ip4.dst_ip, ip + 16, 4);
	f->ip4.proto = ip[9];
	f->ip4.tos = ip[1];
	f->ip4.ttl = ip[8];
	f->ip4.flags = ip[6] >> 5;
	if (header >= SHORTEST && header <= left && !(ip[6] & OFFSET_MASK) && !ip[7])
		parse_ports(f, ip[9], ip + header, left - header);
}

static void parse_ip6(struct fields *f, const uint8_t *ip, size_t left)
{
	enum { HEADER = 40 };
	uint32_t first;
	if (left < HEADER || ip[0] >> 4 != 6)
		return;
	f->has_ip6 = true;
	memcpy(&first, ip, 4);
	f->ip6.flow_label = first & htonl(0xfffff);
	f->ip6.traffic_class = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
	f->ip6.next_hdr = ip[6];
	f->ip6.hop_limit = ip[7];
	memcpy(f->ip6.src_ip, ip + 8, 16);
	memcpy(f->ip6.dst_ip, ip + 24, 16);
	parse_ports(f, ip[6], ip + HEADER, left - HEADER);
}

static void parse(struct fields *f, const uint8_t *frame, size_t bytes)
{
	size_t at = ETHER_BYTES;
	memset(f, 0, sizeof(*f));
	memcpy(f->eth.dst_mac, frame, 6);
	memcpy(f->eth.src_mac, frame + 6, 6);
	memcpy(&f->eth.ether_type, frame + 12, 2);
	if (f->eth.ether_type == htons(ETHER_VLAN) && bytes >= ETHER_BYTES + VLAN_BYTES) {
		memcpy(&f->eth.vlan_tag, frame + 14, 2);
		memcpy(&f->eth.ether_type, frame + 16, 2);
		at += VLAN_BYTES;
	}
	if (f->eth.ether_type == htons(ETHER_IP4))
		parse_ip4(f, frame + at, bytes - at);
	else if (f->eth.ether_type == htons(ETHER_IP6))
		parse_ip6(f, frame + at, bytes - at);
}

/* ---- rules: under flows_lock ---- */

static pthread_mutex_t flows_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list flows = VB_LIST_INIT(flows); /* best priority first */

static bool agrees(const void *field, const void *val, const void *mask, size_t n)
{
	const uint8_t *f = field, *v = val, *m = mask;
	for (size_t i = 0; i < n; i++)
		if ((f[i] ^ v[i]) & m[i])
			return false;
	return true;
}

static bool spec_matches(const struct ibv_flow_spec *s, const struct fields *f)
{
	switch (s->hdr.type) {
	case IBV_FLOW_SPEC_ETH:
		return agrees(&f->eth, &s->eth.val, &s->eth.mask, sizeof(f->eth));
	case IBV_FLOW_SPEC_IPV4:
		return f->has_ip4 && agrees(&f->ip4, &s->ipv4.val, &s->ipv4.mask, sizeof(s->ipv4.val));
	case IBV_FLOW_SPEC_IPV4_EXT:
		return f->has_ip4 && agrees(&f->ip4, &s->ipv4_ext.val, &s->ipv4_ext.mask, sizeof(f->ip4));
	case IBV_FLOW_SPEC_IPV6:
		/* Without what fills the structure up. */
		return f->has_ip6 && agrees(&f->ip6, &s->ipv6.val, &s->ipv6.mask,
					    offsetof(struct ibv_flow_ipv6_filter, hop_limit) + 1);
	case IBV_FLOW_SPEC_TCP:
		return f->protocol == IPPROTO_TCP &&
		       agrees(&f->ports, &s->tcp_udp.val, &s->tcp_udp.mask, sizeof(f->ports));
	case IBV_FLOW_SPEC_UDP:
		return f->protocol == IPPROTO_UDP &&
		       agrees(&f->ports, &s->tcp_udp.val, &s->tcp_udp.mask, sizeof(f->ports));
	default:
		return false;
	}
}

static bool matches(const struct vb_flow *flow, const struct fields *f)
{
	for (unsigned i = 0; i < flow->nspecs; i++)
		if (!spec_matches(&flow->specs[i], f))
			return false;
	return true;
}

/* Where a frame goes. There is one set, of the progress thread, which grows and stays. */
struct targets {
	unsigned count, room;
	struct target {
		struct vb_qp *qp; /* with a reference */
		uint32_t tag;     /* of the rule that led there */
	} *list;
};

static bool has_room(struct targets *t)
{
	if (vb_likely(t->count < t->room))
		return true;
	unsigned room = 2 * t->room + 16;
	struct target *list = realloc(t->list, room * sizeof(*list));
	if (!list)
		return false;
	t->list = list;
	t->room = room;
	return true;
}

static void take(struct targets *t, struct vb_flow *flow, size_t bytes)
{
	if (flow->counters) {
		atomic_fetch_add(&flow->counters->packets, 1);
		atomic_fetch_add(&flow->counters->bytes, bytes);
	}
	if (flow->drops)
		return;
	for (unsigned i = 0; i < t->count; i++)
		if (t->list[i].qp == flow->qp)
			return;
	if (!has_room(t)) {
		vb_drop(VB_DROP_NO_ROOM);
		return;
	}
	vb_qp_ref(flow->qp);
	t->list[t->count++] = (struct target){ flow->qp, flow->tag };
}

/* Those of one type that match; true if one of them keeps the frame from others. */
static bool take_type(struct targets *t, unsigned ifindex, enum ibv_flow_attr_type type,
		      const struct fields *f, size_t bytes)
{
	bool trapped = false;
	unsigned priority = 0;
	struct vb_flow *flow;
	vb_list_for_each(flow, &flows, node) {
		const struct vb_device *device = flow->qp->ctx->device;
		if (flow->type != type || device->ifindex != ifindex || vb_device_has_no_link(device) ||
		    !matches(flow, f))
			continue;
		if (trapped && flow->priority != priority)
			break;
		take(t, flow, bytes);
		if (flow->lets_others)
			continue;
		trapped = true;
		priority = flow->priority;
	}
	return trapped;
}

static void find_targets(struct targets *t, unsigned ifindex, const struct fields *f, size_t bytes)
{
	t->count = 0;
	pthread_mutex_lock(&flows_lock);
	take_type(t, ifindex, IBV_FLOW_ATTR_SNIFFER, f, bytes);
	if (!take_type(t, ifindex, IBV_FLOW_ATTR_NORMAL, f, bytes)) {
		if (!(f->eth.dst_mac[0] & 1) || !take_type(t, ifindex, IBV_FLOW_ATTR_MC_DEFAULT, f, bytes))
			take_type(t, ifindex, IBV_FLOW_ATTR_ALL_DEFAULT, f, bytes);
	}
	pthread_mutex_unlock(&flows_lock);
}

/* ---- spreading ---- */

/* The Toeplitz hash: for each set bit of the input the 32 bits of the key from there on. */
static uint32_t toeplitz(const uint8_t key[40], const uint8_t *input, size_t n)
{
	uint32_t hash = 0;
	for (size_t bit = 0; bit < n * 8; bit++) {
		if (!(input[bit / 8] & 0x80 >> bit % 8))
			continue;
		uint64_t window = 0;
		for (unsigned i = 0; i < 5; i++)
			window = window << 8 | key[(bit / 8 + i) % 40];
		hash ^= (uint32_t)(window >> (8 - bit % 8));
	}
	return hash;
}

static uint32_t hash_of(const struct vb_rss *rss, const struct fields *f)
{
	uint8_t input[36];
	size_t n = 0;
	uint64_t src_port = f->protocol == IPPROTO_TCP ? IBV_RX_HASH_SRC_PORT_TCP :
			    f->protocol		       ? IBV_RX_HASH_SRC_PORT_UDP :
							 0;
	uint64_t dst_port = f->protocol == IPPROTO_TCP ? IBV_RX_HASH_DST_PORT_TCP :
			    f->protocol		       ? IBV_RX_HASH_DST_PORT_UDP :
							 0;
	const struct {
		bool there;
		uint64_t field;
		const void *at;
		size_t bytes;
	} parts[] = {
		{ f->has_ip4, IBV_RX_HASH_SRC_IPV4, &f->ip4.src_ip, 4 }, { f->has_ip4, IBV_RX_HASH_DST_IPV4, &f->ip4.dst_ip, 4 },
		{ f->has_ip6, IBV_RX_HASH_SRC_IPV6, f->ip6.src_ip, 16 }, { f->has_ip6, IBV_RX_HASH_DST_IPV6, f->ip6.dst_ip, 16 },
		{ true, src_port, &f->ports.src_port, 2 }, { true, dst_port, &f->ports.dst_port, 2 },
	};
	for (size_t i = 0; i < VB_ARRAY_LEN(parts); i++) {
		if (!parts[i].there || !(rss->fields & parts[i].field))
			continue;
		memcpy(input + n, parts[i].at, parts[i].bytes);
		n += parts[i].bytes;
	}
	return toeplitz(rss->key, input, n);
}

/* ---- receiving ---- */

struct heard {
	const uint8_t *frame;
	size_t bytes;
	bool is_own;        /* a process of this host sends it */
	bool is_checked;    /* its checksums are there and right */
	uint8_t fcs[VB_FCS_BYTES];
};

static void put_piece(struct vb_ranges *pieces, const void *at, size_t bytes)
{
	pieces->iov[pieces->count++] = (struct iovec){ (void *)(uintptr_t)at, bytes };
	pieces->bytes += bytes;
}

/*
 * What a queue is given of a frame: without its VLAN tag, which is told beside it, or with its check
 * sequence, if it wants that.
 */
static void cut_to_taste(const struct heard *h, unsigned flags, struct vb_ranges *pieces, uint32_t *cvlan)
{
	enum { ADDRESSES = 12 };
	bool tagged = h->bytes >= ETHER_BYTES + VLAN_BYTES && h->frame[ADDRESSES] == ETHER_VLAN >> 8 &&
		      !h->frame[ADDRESSES + 1];
	pieces->count = 0;
	pieces->bytes = 0;
	pieces->on_demand = false;
	pieces->stop = NULL;
	if (tagged && (flags & IBV_QP_CREATE_CVLAN_STRIPPING)) {
		*cvlan = (uint32_t)h->frame[ETHER_BYTES] << 8 | h->frame[ETHER_BYTES + 1];
		put_piece(pieces, h->frame, ADDRESSES);
		put_piece(pieces, h->frame + ADDRESSES + VLAN_BYTES, h->bytes - ADDRESSES - VLAN_BYTES);
	} else {
		put_piece(pieces, h->frame, h->bytes);
	}
	if (flags & IBV_QP_CREATE_SCATTER_FCS)
		put_piece(pieces, h->fcs, sizeof(h->fcs));
}

static enum ibv_wc_status scatter(const struct vb_rwqe *w, const struct vb_ranges *from)
{
	struct vb_ranges to;
	if (from->bytes > w->length)
		return IBV_WC_LOC_LEN_ERR;
	unsigned held = vb_memory_hold();
	enum vb_key_fault fault = vb_ranges_of_list(&to, vb_arena, vb_sg_list_of_receive(w), 0, from->bytes,
						    IBV_ACCESS_LOCAL_WRITE);
	if (fault == VB_KEY_OK && vb_ranges_copy(&to, from))
		fault = VB_KEY_UNMAPPED;
	vb_memory_release(held);
	return fault == VB_KEY_OK ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

/* Without a receive a frame is lost, as on any adapter. */
static void receive(struct vb_qp *qp, const struct heard *h, uint32_t tag)
{
	struct vb_rwqe w;
	struct vb_ranges pieces;
	struct vb_cqe e = { .opcode = IBV_WC_RECV, .status = IBV_WC_SUCCESS, .flow_tag = tag, .is_frame = 1,
			    .wc_flags = h->is_checked ? IBV_WC_IP_CSUM_OK : 0 };
	vb_lock(&qp->resp_lock);
	bool is_ready = vb_qp_listens(qp);
	if (is_ready && vb_receive_take(qp, &w)) {
		cut_to_taste(h, atomic_load(&qp->create_flags), &pieces, &e.cvlan);
		e.wr_id = w.wr_id;
		e.byte_len = (uint32_t)pieces.bytes;
		e.status = scatter(&w, &pieces);
		vb_receive_complete(qp, &e);
	} else {
		vb_drop(is_ready ? VB_DROP_NO_RECEIVE : VB_DROP_NOT_READY);
	}
	vb_unlock(&qp->resp_lock);
	if (vb_likely(e.status == IBV_WC_SUCCESS))
		return;
	vb_explain("receiver", "QP 0x%06x, receive wr_id 0x%llx, %llu bytes: a frame of %u bytes: %s",
		   qp->qpn, (unsigned long long)w.wr_id, (unsigned long long)w.length, e.byte_len,
		   e.status == IBV_WC_LOC_LEN_ERR ? "too short" :
						    "its memory is not registered for local writes");
	vb_qp_break(qp, -1);
}

static void give(const struct target *t, const struct heard *h, const struct fields *f)
{
	const struct vb_rss *rss = t->qp->rss;
	if (!h->is_own || !(atomic_load(&t->qp->create_flags) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB))
		receive(rss ? rss->queues[hash_of(rss, f) & (rss->count - 1)] : t->qp, h, t->tag);
	vb_qp_unref(t->qp);
}

/* Held while a frame goes where the rules say: the end of a rule waits for that. Before flows_lock. */
static pthread_mutex_t giving_lock = PTHREAD_MUTEX_INITIALIZER;

static void hand_over(unsigned ifindex, struct heard *h)
{
	static struct targets t;
	struct fields f;
	parse(&f, h->frame, h->bytes);
	pthread_mutex_lock(&giving_lock);
	find_targets(&t, ifindex, &f, h->bytes);
	if (t.count) {
		h->is_checked = vb_frame_checksums_are_right(h->frame, h->bytes);
		vb_frame_check_sequence(h->frame, h->bytes, h->fcs);
	}
	for (unsigned i = 0; i < t.count; i++)
		give(&t.list[i], h, &f);
	pthread_mutex_unlock(&giving_lock);
}

/*
 * Frames of a flow that the kernel has joined, or has not cut yet, as they are on a wire. What is within a
 * tunnel is lost: it would be longer than any receive.
 */
static void hand_over_pieces(unsigned ifindex, const struct heard *joined, const struct vb_raw_frame *how)
{
	static uint8_t frame[VB_RAW_MAX_FRAME]; /* the progress thread's */
	size_t header = vb_frame_header_bytes(joined->frame, joined->bytes, how->protocol);
	uint16_t number = 0;
	if (!header)
		vb_drop(VB_DROP_TOO_LONG);
	for (size_t at = header; header && at < joined->bytes; at += how->segment) {
		struct heard h = { .frame = frame, .is_own = joined->is_own };
		size_t piece = vb_min_u64(how->segment, joined->bytes - at);
		memcpy(frame, joined->frame, header);
		memcpy(frame + header, joined->frame + at, piece);
		vb_frame_cut(frame, header, piece, (uint32_t)(at - header), number++,
			     at + piece == joined->bytes);
		h.bytes = header + piece;
		hand_over(ifindex, &h);
	}
}

/* ---- listening: one socket per interface, while there are rules; under ears_lock ---- */

struct ear {
	struct vb_list node;
	struct vb_watch watch;
	unsigned ifindex, rules;
};

static pthread_mutex_t ears_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list ears = VB_LIST_INIT(ears);

static void readable(struct vb_watch *watch, uint32_t events)
{
	static uint8_t frame[VB_RAW_MAX_FRAME]; /* the progress thread's */
	const struct ear *ear = watch->arg;
	for (unsigned i = 0; i < BATCH; i++) {
		struct vb_raw_frame heard;
		if (!vb_raw_receive(watch->fd, frame, sizeof(frame), &heard))
			return;
		struct heard h = { .frame = frame, .bytes = heard.bytes, .is_own = heard.is_own };
		if (heard.segment)
			hand_over_pieces(ear->ifindex, &h, &heard);
		else if (h.bytes >= ETHER_BYTES)
			hand_over(ear->ifindex, &h);
	}
}

static struct ear *find_ear_locked(unsigned ifindex)
{
	struct ear *ear;
	vb_list_for_each(ear, &ears, node)
		if (ear->ifindex == ifindex)
			return ear;
	return NULL;
}

static int make_ear_locked(unsigned ifindex, struct ear **made)
{
	enum { READABLE = 1 }; /* EPOLLIN */
	struct ear *ear = calloc(1, sizeof(*ear));
	if (!ear)
		return -ENOMEM;
	int err = vb_raw_open(ifindex, true, &ear->watch.fd);
	if (err) {
		free(ear);
		return err;
	}
	ear->ifindex = ifindex;
	ear->watch.ready = readable;
	ear->watch.arg = ear;
	err = vb_watch_start(&ear->watch, READABLE);
	if (err) {
		vb_raw_close(ear->watch.fd);
		free(ear);
		return err;
	}
	vb_list_add_tail(&ears, &ear->node);
	*made = ear;
	return 0;
}

int vb_flow_add(struct vb_flow *flow)
{
	unsigned ifindex = flow->qp->ctx->device->ifindex;
	pthread_mutex_lock(&ears_lock);
	struct ear *ear = find_ear_locked(ifindex);
	int err = ear ? 0 : make_ear_locked(ifindex, &ear);
	if (!err)
		ear->rules++;
	pthread_mutex_unlock(&ears_lock);
	if (err)
		return err;
	pthread_mutex_lock(&flows_lock);
	struct vb_list *before = &flows;
	struct vb_flow *other;
	vb_list_for_each(other, &flows, node)
		if (before == &flows && other->priority > flow->priority)
			before = &other->node;
	vb_list_add_tail(before, &flow->node); /* in front of it */
	atomic_fetch_add(&flow->qp->mcast, 1);
	pthread_mutex_unlock(&flows_lock);
	return 0;
}

void vb_flow_remove(struct vb_flow *flow)
{
	unsigned ifindex = flow->qp->ctx->device->ifindex;
	pthread_mutex_lock(&flows_lock);
	vb_list_del(&flow->node);
	atomic_fetch_sub(&flow->qp->mcast, 1);
	pthread_mutex_unlock(&flows_lock);
	pthread_mutex_lock(&giving_lock); /* the frame at hand may have found the rule */
	pthread_mutex_unlock(&giving_lock);
	pthread_mutex_lock(&ears_lock);
	struct ear *ear = find_ear_locked(ifindex);
	bool last = ear && --ear->rules == 0;
	if (last)
		vb_list_del(&ear->node);
	pthread_mutex_unlock(&ears_lock);
	if (!last)
		return;
	vb_watch_stop(&ear->watch);
	vb_raw_close(ear->watch.fd);
	free(ear);
}

/* A forked child has no rules, and its sockets are closed. */
static void forget(void)
{
	pthread_mutex_init(&giving_lock, NULL);
	pthread_mutex_init(&flows_lock, NULL);
	pthread_mutex_init(&ears_lock, NULL);
	vb_list_init(&flows);
	vb_list_init(&ears);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}
