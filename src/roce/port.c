/* SPDX-License-Identifier: BSD-2-Clause */
#include "roce/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/inet.h"
#include "base/log.h"
#include "host/ipc/capture.h"

enum { FLOW_PORT_BITS = 14 };

/* ---- opening ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
bool vb_roce_ignores_icrc;
atomic_int vb_roce_users;

static int open_locked(void)
{
	const char *icrc = getenv("VERBATIM_ICRC");
	vb_roce_ignores_icrc = icrc && !strcmp(icrc, "ignore");
	return vb_udp_open();
}

int vb_roce_open(void)
{
	pthread_mutex_lock(&open_lock);
	int err = vb_udp_is_open() ? 0 : open_locked();
	pthread_mutex_unlock(&open_lock);
	return err;
}

/* A thread of the parent may have held the lock. */
static void forget(void)
{
	pthread_mutex_init(&open_lock, NULL);
	atomic_store(&vb_roce_users, 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

/* ---- routes ---- */

uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn)
{
	uint32_t mix = flow_label & 0xfffff;
	if (!mix) {
		uint64_t both = (uint64_t)source_qpn * destination_qpn;
		mix = (uint32_t)(both ^ both >> 20 ^ both >> 40) & 0xfffff;
	}
	uint32_t low = mix & ((1u << FLOW_PORT_BITS) - 1), high = mix >> FLOW_PORT_BITS;
	return (uint16_t)(VB_ROCE_FIRST_SOURCE_PORT | ((low ^ high) & ((1u << FLOW_PORT_BITS) - 1)));
}

void vb_roce_icrc_route(struct vb_icrc_route *icrc, const struct vb_inbox_addr *addr)
{
	bool ipv4 = vb_ip_is_v4(&addr->dst);
	unsigned skip = ipv4 ? 12 : 0;
	memset(icrc, 0, sizeof(*icrc));
	icrc->ip_version = ipv4 ? 4 : 6;
	memcpy(icrc->source, addr->src.s6_addr + skip, sizeof(addr->src) - skip);
	memcpy(icrc->destination, addr->dst.s6_addr + skip, sizeof(addr->dst) - skip);
	icrc->source_port = addr->udp_sport;
	icrc->destination_port = VB_ROCE_PORT;
}

void vb_roce_route_init(struct vb_roce_route *route, const struct vb_inbox_addr *addr, unsigned ifindex)
{
	route->addr = *addr;
	route->addr.udp_sport = vb_udp_source_port(addr);
	if (!route->addr.hop_limit)
		route->addr.hop_limit = VB_HOP_LIMIT;
	route->ifindex = ifindex;
	route->qpn = 0;
	vb_roce_icrc_route(&route->icrc, &route->addr);
}

/* ---- sending ---- */

/* The kernel counts the identifications of what it cuts. */
__attribute__((cold, noinline)) static void note_departure(const struct vb_roce_route *route,
							   uint64_t time_ns, const uint8_t *bytes, size_t len,
							   size_t segment, unsigned flags)
{
	struct vb_capture_note note = { .addr = &route->addr,
					.time_ns = time_ns,
					.flags = VB_CAPTURE_OUT | VB_CAPTURE_HAS_ICRC | flags,
					.qpn = route->qpn };
	for (size_t at = 0; at < len; at += segment, note.ip_id++) {
		struct iovec packet = { (void *)(uintptr_t)(bytes + at), vb_min_u64(segment, len - at) };
		vb_capture_packet(&note, &packet, 1);
	}
}

/*
 * A packet that the kernel refuses is lost, as on a wire, and the program hears of it by a timeout at best.
 * The first packet with each error is explained.
 */
__attribute__((cold, noinline)) static void explain_refusal(const struct vb_roce_route *route, size_t bytes,
							    int err)
{
	enum { BITS = 64 };
	static _Atomic(uint64_t) told[4]; /* by errno value */
	unsigned number = (unsigned)-err % (BITS * VB_ARRAY_LEN(told));
	uint64_t bit = UINT64_C(1) << number % BITS;
	char to[INET6_ADDRSTRLEN];
	if (err == -EAGAIN || err == -EOPNOTSUPP || !vb_is_explaining() ||
	    (atomic_fetch_or(&told[number / BITS], bit) & bit))
		return;
	inet_ntop(AF_INET6, &route->addr.dst, to, sizeof(to));
	vb_explain_limit("sender", "the kernel sends no packet of %zu bytes to %s: %s; such packets are lost",
			 bytes, to, strerror(-err));
}

int vb_roce_transmit_now(const struct vb_roce_route *route, const void *bytes, size_t len, size_t segment)
{
	struct vb_capture_moment moment = vb_capture_begin();
	int err = vb_udp_send(&route->addr, route->ifindex, bytes, len, segment);
	if (vb_unlikely(moment.time_ns != 0) && !err)
		note_departure(route, moment.time_ns, bytes, len, segment, 0);
	vb_capture_end(moment);
	if (vb_unlikely(err))
		explain_refusal(route, segment, err);
	return err;
}

void vb_roce_note_loss(const struct vb_roce_route *route, const void *bytes, size_t len)
{
	if (vb_capture_is_on())
		note_departure(route, 0, bytes, len, len, VB_CAPTURE_LOST);
}
