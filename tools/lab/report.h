/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happens in a scenario, as lines for people or objects of JSON, and in the end as JUnit XML.
 *
 * What is reported is kept until it is written: lab_report_write never waits, so that a reader that stands
 * still holds up no time limit.
 */
#ifndef VB_TOOLS_LAB_REPORT_H
#define VB_TOOLS_LAB_REPORT_H

#include "progress.h"

struct lab_report {
	const struct lab_scenario *scenario;
	const char *name; /* of the file */
	bool as_json;
	FILE *text; /* whose end is `unwritten` */
	struct lab_unwritten {
		char *bytes;
		size_t begin, size, room; /* what is written already lies before the beginning */
	} unwritten;
	struct lab_tail {
		char *bytes; /* the last lines of a program, printable */
		size_t size;
	} *tails;
};

/* False: out of memory. */
bool lab_report_open(struct lab_report *r, const struct lab_scenario *s, const char *name, bool as_json);
void lab_report_close(struct lab_report *r);

void lab_report_start(struct lab_report *r, unsigned program, uint64_t now);
void lab_report_output(struct lab_report *r, unsigned program, const char *text, size_t size, uint64_t now);
/* Why: of LAB_END_FAILED. */
void lab_report_end(struct lab_report *r, unsigned program, struct lab_end end, const char *why,
		    uint64_t now);
/* Why it has failed, or NULL. */
void lab_report_event(struct lab_report *r, unsigned event, const char *why, uint64_t now);
/* True if all expectations held. */
bool lab_report_verdict(struct lab_report *r, const struct lab_progress *p);

/* Is there so much unwritten that no more is to be read? */
bool lab_report_is_full(const struct lab_report *r);
bool lab_report_has_unwritten(const struct lab_report *r);
/* Writes as much as a descriptor takes that poll(2) says is writable; false: nobody reads. */
bool lab_report_write(struct lab_report *r, int fd);

void lab_report_junit(const struct lab_report *r, const struct lab_progress *p, FILE *out);
/* Of a scenario without a lab. */
void lab_report_junit_error(const struct lab_report *r, const char *why, FILE *out);

/* Bytes as text in UTF-8 that a terminal shows as it is; what is none, and control characters, as \xNN. */
void lab_print_clean(FILE *out, const char *bytes, size_t size);

#endif
