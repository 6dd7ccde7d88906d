/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures: copies of the packets that this process sends and receives, and events of the program's, for an
 * inspecting program (formats: inspect.h). Code that handles a packet asks vb_capture_is_on, a load of a flag
 * that rarely changes, and only then records the packet. One capture at a time. The ring belongs to the
 * inspecting program; from it this file reads only how far the program has read. The library's sentences
 * (base/log.h) are events, too.
 *
 * Any thread may record. A lock makes the ring's writers one.
 */
#ifndef VB_HOST_CAPTURE_H
#define VB_HOST_CAPTURE_H

#include "host/host.h"
#include "host/inspect.h"

extern VB_EXPORT atomic_bool vb_capture_flag;

static inline bool vb_capture_is_on(void)
{
	return vb_unlikely(atomic_load_explicit(&vb_capture_flag, memory_order_relaxed));
}

/*
 * Tells an object that is being made whether there is a capture. The caller has made it one of those that a
 * capture marks when it begins or ends: if that happens at the same time, both marks are the same in the end.
 */
static inline void vb_capture_follow(void (*mark)(void *object, bool is_captured), void *object)
{
	bool is_on;
	do {
		is_on = atomic_load(&vb_capture_flag);
		mark(object, is_on);
	} while (is_on != atomic_load(&vb_capture_flag));
}

/* What is known of a packet beside its bytes. */
struct vb_capture_note {
	const struct vb_inbox_addr *addr;
	uint64_t time_ns;  /* of a struct vb_capture_moment; 0: now */
	unsigned flags;    /* VB_CAPTURE_* */
	uint32_t qpn;      /* this process's end; 0: unknown */
	uint16_t ip_id;
	pid_t peer_pid;    /* through shared memory, without an ip_id: whose memory; 0: unknown */
};

/* When something begins that is noted once it has happened. time_ns 0: there was no capture. */
struct vb_capture_moment {
	uint64_t time_ns;
	unsigned capture; /* vb_capture_serial */
};

VB_EXPORT struct vb_capture_moment vb_capture_begin_now(void);
VB_EXPORT void vb_capture_end_now(struct vb_capture_moment moment);

/*
 * The client writes nothing that is later until vb_capture_end, so notes in between may have this time. Each
 * moment needs its end. A wait of seconds in between costs the capture its order.
 */
static inline struct vb_capture_moment vb_capture_begin(void)
{
	return vb_capture_is_on() ? vb_capture_begin_now() : (struct vb_capture_moment){ 0 };
}

static inline void vb_capture_end(struct vb_capture_moment moment)
{
	if (vb_unlikely(moment.time_ns != 0))
		vb_capture_end_now(moment);
}

/* The pieces are a packet from the BTH on, with its ICRC if the flags say so. */
VB_EXPORT void vb_capture_packet(const struct vb_capture_note *note, const struct iovec *pieces,
				 unsigned count);

/*
 * time_ns: of a struct vb_capture_moment; 0: now. is_packet and kept are set here. text: or NULL. Locks of
 * objects may be held.
 */
VB_EXPORT void vb_capture_event(const struct vb_capture_event *event, const char *text);
/* A finding or an explanation. */
void vb_capture_sentence(const char *by, const char *sentence);

/* 0. -EBUSY: there is a capture. -EINVAL or -EPERM: it is no ring. The caller keeps the descriptor. */
int vb_capture_start(int memfd, const struct vb_capture_filter *filter, bool has_events);
void vb_capture_stop(void);
/* How often a capture has started, for code that counts within one capture. */
unsigned vb_capture_serial(void);
void vb_capture_count(uint64_t *packets, uint64_t *dropped);
/* A forked child has no capture. */
void vb_capture_forget(void);

#endif
