/* SPDX-License-Identifier: BSD-2-Clause */
/* Bursts: packets of one flow, with their ICRC, that go out in one system call. */
#ifndef VB_ROCE_BURST_H
#define VB_ROCE_BURST_H

#include "roce/port.h"

struct vb_burst;

/*
 * There are bursts of two kinds, so that threads with one of either do not wait for each other. In the order
 * of locks: sq.lock > a burst of requests > resp_lock > a burst of answers > vb_memory_hold's.
 */
enum vb_burst_kind { VB_BURST_REQUESTS, VB_BURST_ANSWERS, VB_BURST_KINDS };

/*
 * Returns a burst that only this thread uses until it gives it back. If all of the kind are in use, the call
 * waits for one: give it back soon.
 */
struct vb_burst *vb_burst_take(enum vb_burst_kind kind);
/* Sends what is in it. Packets that cannot be sent are lost, as on a wire. */
void vb_burst_flush(struct vb_burst *burst);
/* Flushes it first. */
void vb_burst_give(struct vb_burst *burst);

/*
 * Begins a packet: copies its headers, returns where its payload_bytes go, which the caller fills.
 * vb_burst_commit then adds padding and ICRC; a packet that is not committed is forgotten. Of the packets up
 * to a flush, the first one's route is copied, and holds for those with the same pointer. A packet has at
 * most 4096 bytes of payload.
 */
uint8_t *vb_burst_begin(struct vb_burst *burst, const struct vb_roce_route *route, const void *header,
			size_t header_bytes, size_t payload_bytes);
/* False: there is no room for another packet like the first; to begin one would flush. */
bool vb_burst_commit(struct vb_burst *burst);

/*
 * A packet without payload that goes with those of a burst, by the route that was copied for them, once one
 * was begun: at once, ahead of them, or behind. header_bytes: a multiple of 4. No lock held.
 */
void vb_burst_send_ahead(const struct vb_burst *burst, const void *header, size_t header_bytes);
void vb_burst_append(struct vb_burst *burst, const void *header, size_t header_bytes);

/* A hint: is a thread sending? */
bool vb_bursts_are_used(void);

#endif
