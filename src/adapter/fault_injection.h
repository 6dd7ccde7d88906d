/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults on purpose in this process: VERBATIM_FAULTS as a plan (faults/plan.h). Faults of ports and devices
 * are made here; those of packets, completions, receives and messages in their layers (roce/packet_faults.h,
 * verbs/faulty_ops.c, rdmacm/agent/message_fault.h), which ask the plan.
 *
 * vb_faults_on is set before main and never changes: looking at it costs a branch. Posts and polls do not
 * look; a context's tables have other functions instead. If the expression cannot be read, the library says
 * so on standard error when it is loaded, and every call that can fail fails with EINVAL: no program runs
 * without the faults that it was meant to have.
 *
 * Counts, the clock and what is down or gone start anew in a forked child. All functions may be called by any
 * thread, with any lock but vb_fault_call, which may wait and takes locks of devices and queue pairs.
 */
#ifndef VB_ADAPTER_FAULT_INJECTION_H
#define VB_ADAPTER_FAULT_INJECTION_H

#include "adapter/object.h"
#include "faults/plan.h"

extern VB_EXPORT bool vb_faults_on;
extern bool vb_faults_on_wire; /* one of its rules is about packets, links or peers */

/* The process has opened a device: times count from the first on. */
void vb_fault_begin(void);

/* Has a rule of one of these kinds (1 << enum vb_fault_kind)? */
bool vb_fault_has(uint32_t kinds);

/*
 * Fills bites with what the rules do to a subject, in their order, whose elapsed_ns need not be set; returns
 * how many.
 */
VB_EXPORT unsigned vb_fault_ask(struct vb_fault_subject *subject, struct vb_fault_bite bites[VB_FAULT_RULES]);

/*
 * What happens to a call of this name: 0, perhaps late, or a negative errno. qpn: its queue pair's; 0: none.
 */
VB_EXPORT int vb_fault_meet(const char *call, uint32_t qpn);

static inline int vb_fault_call(const char *call, uint32_t qpn)
{
	return vb_unlikely(vb_faults_on) ? vb_fault_meet(call, qpn) : 0;
}

/* The number that rules know a queue pair by: they are counted as they are created. 0: of none. */
uint32_t vb_fault_qp(uint32_t qpn);

/* Is the way between these addresses cut: is the link down, or has the peer vanished? */
VB_EXPORT bool vb_fault_is_cut(const struct in6_addr *own, const struct in6_addr *peer);
/* Until when nothing goes out or comes in; 0 or past: it does. */
uint64_t vb_fault_frozen_until(void);

/* Is it a packet that this queue pair has sent or got before? (vb_fault_is_repeat) */
bool vb_fault_repeats(enum vb_fault_direction direction, bool answers, uint32_t qp, uint32_t psn);
/* A queue pair is connected anew: its packet sequence numbers begin anywhere. */
void vb_fault_forget_psns(uint32_t qpn);

/*
 * A completion of this queue pair was made to fail: its queue, or all of it, fails as after a real failure.
 */
void vb_qp_fail_queue(uint32_t qpn, bool is_recv);
/* Completions of that queue that wait to be polled become flushed ones. */
void vb_cq_flush(struct vb_cq *cq, uint32_t qpn, bool is_recv);

#endif
