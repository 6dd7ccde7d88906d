/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How far a scenario has come: what has happened, what is to be done next, and in the end whether all was as
 * expected. Pure: times are arguments, in nanoseconds since the lab was made, and the caller does the rest.
 *
 *     running ── all ended, a limit, an interruption ──> draining ── all output read ──> ended
 *
 * A program: waiting, running, ended. What is to be done comes in the order of its time, and in the file's,
 * events first; an event is over before the next thing is done.
 */
#ifndef VB_TOOLS_LAB_PROGRESS_H
#define VB_TOOLS_LAB_PROGRESS_H

#include "scenario.h"

#define LAB_NEVER UINT64_MAX

enum lab_phase { LAB_PHASE_RUNNING, LAB_PHASE_DRAINING, LAB_PHASE_ENDED };

enum lab_step_kind {
	LAB_STEP_WAIT, /* until at_ns, or until something comes */
	LAB_STEP_START, /* program `number`; whether that fails is told by lab_progress_ended */
	LAB_STEP_EVENT, /* event `number`; its end is told by lab_progress_happened */
	LAB_STEP_KILL, /* program `number` */
	LAB_STEP_DRAIN, /* end the lab, and read what is left of output */
};

struct lab_step {
	enum lab_step_kind kind;
	unsigned number;
	uint64_t at_ns;
};

enum lab_state_of_program { LAB_WAITING, LAB_RUNNING, LAB_OVER };

struct lab_progress {
	const struct lab_scenario *scenario;
	enum lab_phase phase;
	struct lab_program_progress {
		enum lab_state_of_program state;
		uint64_t due_ns; /* LAB_NEVER: not known */
		uint64_t started_ns, ended_ns;
		struct lab_end end;
		bool is_late; /* it was killed because of its limit */
		bool *found; /* of each pattern of its output */
		char *unwanted; /* the first line that should be absent, and which pattern it matches */
		char *failure; /* why it could not be started, or is lost */
	} *programs;
	struct lab_event_progress {
		uint64_t due_ns;
		bool has_begun, is_over;
		char *failure;
	} *events;
	int pending; /* the event that has begun and is not over; -1: none */
	char failure[LAB_TEXT_BYTES]; /* of the whole; "": none */
	uint64_t ended_ns;
};

/* False: out of memory. The scenario lives as long. */
bool lab_progress_open(struct lab_progress *p, const struct lab_scenario *scenario);
void lab_progress_close(struct lab_progress *p);

/* What to do now. It counts as done, but for an event, which begins. */
struct lab_step lab_progress_next(struct lab_progress *p, uint64_t now);

/* A line of a program's, or so much of one as there is. */
void lab_progress_printed(struct lab_progress *p, unsigned program, const char *text, size_t size,
			  bool is_whole, uint64_t now);
/* Why: of LAB_END_FAILED. */
void lab_progress_ended(struct lab_progress *p, unsigned program, struct lab_end end, const char *why,
			uint64_t now);
/* The event that has begun is over; why it has failed, or NULL. */
void lab_progress_happened(struct lab_progress *p, const char *why);
/* Nothing more is to be started: what has happened to the whole. */
void lab_progress_stop(struct lab_progress *p, const char *why);
void lab_progress_drained(struct lab_progress *p, uint64_t now);

/* ---- in the end ---- */

/* Calls for each expectation that did not hold, of a program or, for -1, of the whole; how many. */
typedef void lab_judge(void *context, const char *text);
unsigned lab_progress_judge(const struct lab_progress *p, int program, lab_judge *judge, void *context);
/* Did an event happen that should have? */
bool lab_progress_missed(const struct lab_progress *p, unsigned event);

enum { LAB_END_BYTES = 64 };
/* "exit status 1", "killed by SIGKILL". */
void lab_end_text(struct lab_end end, char text[LAB_END_BYTES]);

#endif
