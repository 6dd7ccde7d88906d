/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A scenario, as its file describes it: the lab, its programs, events and expectations. Parsing does no input
 * or output.
 */
#ifndef VB_TOOLS_LAB_SCENARIO_H
#define VB_TOOLS_LAB_SCENARIO_H

#include <regex.h>

#include "lab.h"
#include "toml.h"

enum {
	LAB_PROGRAMS_MAX = 256, /* which have two descriptors each */
	LAB_LIMIT_S = 300, /* of a whole scenario that says nothing else */
};

/* Of a line of output. */
struct lab_pattern {
	const char *text;
	regex_t regex;
};

struct lab_patterns {
	struct lab_pattern *list;
	unsigned count;
};

enum lab_cause { LAB_FROM_THE_BEGINNING, LAB_AFTER_START, LAB_AFTER_END, LAB_AFTER_TEXT };

struct lab_when {
	enum lab_cause cause;
	unsigned program; /* whose */
	struct lab_patterns text; /* one, of LAB_AFTER_TEXT */
	uint64_t at_ns; /* since then */
};

enum lab_end_kind { LAB_END_NONE, LAB_END_EXIT, LAB_END_SIGNAL, LAB_END_FAILED, LAB_END_ANY };

struct lab_end {
	enum lab_end_kind kind;
	int number; /* exit status or signal */
};

struct lab_program {
	const char *name;
	unsigned host;
	char **argv, **environment; /* the latter may be NULL */
	struct lab_when when;
	bool is_daemon; /* nobody waits for its end */
	struct lab_end expected;
	struct lab_patterns output, absent;
	uint64_t limit_ns; /* since its start; 0: none */
};

enum lab_event_kind { LAB_EVENT_NONE, LAB_EVENT_LINK, LAB_EVENT_HOST, LAB_EVENT_SIGNAL };

struct lab_event {
	enum lab_event_kind kind;
	const char *text; /* as the commands have it; of a signal: its name and the program's */
	unsigned line;
	unsigned program;
	int signal;
	struct lab_when when;
};

struct lab_scenario {
	struct lab_plan plan;
	struct lab_program *programs;
	struct lab_event *events;
	unsigned n_programs, n_events;
	uint64_t limit_ns;
	struct lab_toml *document; /* which has the strings */
};

/* False: why, with file, line and key. To be freed in any case. */
bool lab_scenario_parse(struct lab_scenario *s, const char *file, const char *text, size_t size,
			char why[LAB_TEXT_BYTES]);
void lab_scenario_free(struct lab_scenario *s);

const char *lab_event_word(enum lab_event_kind kind);
/* In a line; or, if it is not whole, in its beginning, whose end is no line's. */
bool lab_matches(const struct lab_pattern *pattern, const char *text, size_t size, bool is_whole);

/* Signals by names without SIG; -1: there is none. */
int lab_signal_number(const char *name);
/* NULL: it has no name here. */
const char *lab_signal_name(int number);

#endif
