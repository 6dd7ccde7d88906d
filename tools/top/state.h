/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model behind `verbatim top`: processes and queue pairs as the latest sample shows them, with rates
 * since the sample before. It reads no clock and does no input or output. It does not trust what processes
 * say.
 */
#ifndef VB_TOOLS_TOP_STATE_H
#define VB_TOOLS_TOP_STATE_H

#include "answers/ask.h"
#include "describe.h"

/* X(NAME, heading, field of struct top_line): columns by which lines can be sorted, the greatest first. */
#define TOP_SORTS(X)                    \
	X(OUT, "out/s", out)            \
	X(IN, "in/s", in)               \
	X(REQUESTS, "requests/s", requests) \
	X(MESSAGES, "messages/s", messages) \
	X(QUEUED, "queued", queued)     \
	X(WAITING, "receives", waiting) \
	X(TROUBLE, "trouble", trouble_rate)

enum top_sort {
#define X(name, heading, field) TOP_SORT_##name,
	TOP_SORTS(X)
#undef X
	TOP_SORT_PID,
	TOP_SORTINGS
};

enum top_view { TOP_PROCESSES, TOP_QPS, TOP_VIEWS };

enum { TOP_TEXT = 64, TOP_TROUBLE = 96 };

/* A process, or a queue pair. */
struct top_line {
	uint32_t slot, qpn;      /* qpn 0: a process's */
	pid_t pid;
	char name[TOP_TEXT], user[TOP_TEXT], to[FIELD_TEXT];
	const char *type, *state;
	char path[16];
	unsigned qps;
	bool is_known;           /* the process answered */
	bool has_rates;          /* it was known before, too */
	/* per second: requests that were finished, and messages that took a receive; bytes */
	double requests, messages, out, in;
	double queued, waiting;  /* requests without a completion, receives that are not used */
	double trouble_rate;     /* retries, drops, NAKs and the like per second; more for what is broken */
	char trouble[TOP_TROUBLE];
	bool is_bad;
	struct vb_counts counts;
	uint64_t drops;
};

struct top_lines {
	struct top_line *list;
	unsigned count, room;
};

struct top {
	double at_s;             /* of the last look; 0: there was none */
	struct top_lines lines[TOP_VIEWS], before[TOP_VIEWS];
	struct top_line sum;     /* of all processes */
};

struct top_choice {
	enum top_view view;
	enum top_sort sort;
	bool is_reversed, only_trouble;
	char filter[TOP_TEXT];   /* lines that contain it, whatever the case; empty: all */
};

typedef bool top_wants(const void *arg, const struct process *p);
/* Takes the records, of kinds top_kinds, of the processes that are wanted; NULL: of all. False: no memory. */
bool top_look(struct top *top, const struct processes *all, double now_s, top_wants *wants, const void *arg);
extern const uint32_t top_kinds;
void top_free(struct top *top);

/* The chosen lines in their order, as pointers that end with NULL; NULL: no memory. The caller frees it. */
const struct top_line **top_choose(const struct top *top, const struct top_choice *choice);
const char *top_sort_name(enum top_sort sort);
/* As fields; of a view's lines each has the same. */
void top_row(struct row *row, const struct top_line *line, enum top_view view);

#endif
