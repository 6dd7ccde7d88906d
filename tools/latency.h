/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a program's sends took, by operation and size, and where their time went: in the send queue until
 * the first packet left, under way and with the peer until the completion, and in the completion queue until
 * the program polled it. It is told all records of a capture in the order of time. Only requests with a
 * completion of their own count.
 */
#ifndef VB_TOOLS_LATENCY_H
#define VB_TOOLS_LATENCY_H

#include <stdbool.h>
#include <stdio.h>

#include "histogram.h"
#include "host/inspect.h"

enum { LATENCY_PERCENTILES = 5 };
extern const struct latency_percentile {
	const char *name;
	unsigned per_mille;
} latency_percentiles[LATENCY_PERCENTILES]; /* the last is the maximum */

enum latency_piece { LATENCY_QUEUE, LATENCY_UNDER_WAY, LATENCY_UNPOLLED, LATENCY_PIECES };
extern const char *const latency_pieces[LATENCY_PIECES];

/* Requests of one operation whose sizes are between the same powers of two. */
struct latency_group {
	uint32_t opcode, size_class;
	uint32_t least_bytes, most_bytes;
	uint64_t failed;
	uint64_t sums_ns[LATENCY_PIECES]; /* of those in the histogram */
	struct histogram histogram;       /* ns from post to completion */
};

struct latency_process {
	char name[80];
	uint64_t lost;                    /* records that its ring had no room for */
	struct latency_group **groups;    /* in the order of operation and size */
	unsigned group_count;
	struct latency_qp *qps[256];      /* lists, by the number's lowest bits */
	unsigned qp_count;
};

struct latency {
	struct latency_process **processes; /* by the number that the recorder gives them; NULL: unknown */
	unsigned count;
};

/* A process with a number of its own. */
void latency_begin(struct latency *l, unsigned process, const char *name);
void latency_event(struct latency *l, unsigned process, const struct vb_capture_event *e);
/* bytes: what is kept of it. */
void latency_packet(struct latency *l, unsigned process, const struct vb_capture_packet *p,
		    const uint8_t *bytes);
void latency_end(struct latency *l, unsigned process, uint64_t lost);

void latency_print(const struct latency *l, FILE *out);
/* A picture of all groups, as SVG. False after a message. */
bool latency_draw(const struct latency *l, const char *path);
void latency_free(struct latency *l);

/* "1.23 us" */
void latency_text(uint64_t ns, char text[32]);
/* "64", or "65-128". */
void latency_sizes(const struct latency_group *g, char text[32]);

#endif
