/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fault injection: what verbatim-faults(7) describes, as text, as a plan, and as decisions. Pure: the caller
 * says what happens and how much time has passed, and gets the rules that apply. adapter/fault_injection.h
 * and the layers above it carry the faults out.
 *
 * A plan is a seed and rules in the order of the text. A rule watches one kind of thing, its site (a packet,
 * a call, ...), counts what its filters let through, and bites some of it by these counts. Counts are kept
 * for each queue pair where the thing is a queue pair's, else for the process, so that threads that use
 * different queue pairs do not disturb each other's. Chance is a hash of seed, rule, queue pair and count:
 * the same for the same, whatever else goes on.
 *
 * Counts live in a vb_fault_state, which the caller guards by a lock; a plan never changes.
 */
#ifndef VB_FAULTS_PLAN_H
#define VB_FAULTS_PLAN_H

#include "faults/words.h"

enum {
	VB_FAULT_RULES = 32,
	/* 0: the process; else queue pairs in the order of their creation, which after 4096 begins anew */
	VB_FAULT_OBJECTS = 4097,
	VB_FAULT_DEVICE_BYTES = 64,
	VB_FAULT_TEXT_BYTES = 4096, /* of an expression, at most */
};

enum vb_fault_how { VB_FAULT_EACH, VB_FAULT_RANGE, VB_FAULT_EVERY, VB_FAULT_SHARE };
enum vb_fault_direction { VB_FAULT_OUT, VB_FAULT_IN, VB_FAULT_BOTH /* of a rule alone */ };
enum vb_fault_site {
	VB_FAULT_PACKET,
	VB_FAULT_CALL,
	VB_FAULT_TRIGGER,
	VB_FAULT_COMPLETION,
	VB_FAULT_RECEIVE,
	VB_FAULT_MESSAGE
};

#define VB_FAULT_FOREVER UINT64_MAX

struct vb_fault_rule {
	uint8_t kind;            /* enum vb_fault_kind */
	uint8_t how;             /* enum vb_fault_how */
	uint8_t direction;       /* of packets and messages */
	/* RANGE: counts from 1 on; EVERY: first is the step; SHARE: first is parts per million */
	uint64_t first, last;
	uint64_t time_ns, time_max_ns; /* of a delay: between the two; else how long: VB_FAULT_FOREVER */
	uint64_t after_ns;
	uint64_t times;          /* bites at most; 0: any number */
	/* of packets: enum vb_fault_packets; of a completion: enum vb_fault_completion */
	uint32_t of;
	/* what it leads to: errno, status, event, reason; of LOSE: the message's attribute id */
	int value;
	uint32_t qp;             /* 0: any */
	uint16_t port;           /* of a service; 0: any */
	bool has_peer, has_after, has_which;
	uint8_t peer[16];        /* IPv4 as ::ffff:a.b.c.d */
	/* of calls: FAIL, STALL, or whose calls trigger it; NULL: none do */
	const struct vb_fault_verb *verb;
	char device[VB_FAULT_DEVICE_BYTES]; /* "": all */
	uint32_t at, bytes;      /* where it stands in the text */
};

struct vb_fault_plan {
	uint64_t seed;
	unsigned count;
	struct vb_fault_rule rules[VB_FAULT_RULES];
};

/* What is wrong with an expression, and where: `bytes` of it from `at` on (0: at its end). */
struct vb_fault_error {
	size_t at, bytes;
	const char *why;
};

/* 0, or -EINVAL with *error. The plan keeps nothing of the text. */
int vb_fault_parse(const char *text, size_t bytes, struct vb_fault_plan *plan,
		   struct vb_fault_error *error) VB_MUST_USE;

/* The site that rules of a kind watch. */
enum vb_fault_site vb_fault_site_of(enum vb_fault_kind kind);
/* Is there a rule of the kinds that are set (1 << enum vb_fault_kind)? */
bool vb_fault_plan_has(const struct vb_fault_plan *plan, uint32_t kinds);

/* Kinds that need packets to be packets: with one of these, a process takes the wire for all connections. */
#define VB_FAULT_WIRE_KINDS                                                                                  \
	(1u << VB_FAULT_DROP | 1u << VB_FAULT_DELAY | 1u << VB_FAULT_DUPLICATE | 1u << VB_FAULT_REORDER |    \
	 1u << VB_FAULT_CORRUPT | 1u << VB_FAULT_FREEZE | 1u << VB_FAULT_LINK | 1u << VB_FAULT_VANISH)

/* ---- decisions ---- */

/* What happens now. Members that its site does not have are not looked at. */
struct vb_fault_subject {
	enum vb_fault_site site;
	uint64_t elapsed_ns;           /* since the process opened its first device */
	enum vb_fault_direction direction;
	uint32_t packets;              /* what the packet is: bits 1 << enum vb_fault_packets */
	uint32_t completion;           /* bits 1 << enum vb_fault_completion */
	const char *verb;
	unsigned message;              /* attribute id */
	uint32_t qp;                   /* whose it is, 0: the process's */
	uint16_t port;                 /* the service that a request is for; 0: none */
	const uint8_t *peer;           /* NULL: unknown */
	bool is_repeat;                /* a packet that was sent before, see vb_fault_is_repeat */
};

struct vb_fault_state {
	uint64_t counts[VB_FAULT_RULES][VB_FAULT_OBJECTS];
	uint64_t bites[VB_FAULT_RULES], repeats[VB_FAULT_RULES];
	/* of a direction's requests and answers: the one expected next; 0: none was seen */
	uint32_t psn[2][2][VB_FAULT_OBJECTS];
};

struct vb_fault_bite {
	const struct vb_fault_rule *rule;
	unsigned number;               /* of the rule, from 1 on */
	uint64_t count;                /* which one it was */
	uint64_t random;
};

/*
 * Shows the subject to each rule from *cursor (0 at first) on, up to one that bites: true. False: no further
 * one does. A caller that wants one bite alone asks on until false, so that all rules count.
 */
bool vb_fault_next(const struct vb_fault_plan *plan, struct vb_fault_state *state,
		   const struct vb_fault_subject *subject, unsigned *cursor, struct vb_fault_bite *bite);

/*
 * Repetitions depend on time. So they are not counted, and only rules for all packets from some count on, or
 * for a share, bite them. The caller shows each packet of a reliable service once, in the order in which it
 * goes or comes.
 */
bool vb_fault_is_repeat(struct vb_fault_state *state, enum vb_fault_direction direction, bool answers,
			uint32_t qp, uint32_t psn);

/* Between the two times of a delay. */
uint64_t vb_fault_delay_ns(const struct vb_fault_bite *bite);

/* ---- words ---- */

/* A rule as a sentence without a full stop. Ends with a zero; returns its length. */
size_t vb_fault_explain(const struct vb_fault_rule *rule, char *line, size_t size);

#endif
