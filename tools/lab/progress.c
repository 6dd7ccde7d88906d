/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"

enum { LINE_SHOWN = 120 };

static uint64_t first_due(const struct lab_when *when)
{
	return when->cause == LAB_FROM_THE_BEGINNING ? when->at_ns : LAB_NEVER;
}

bool lab_progress_open(struct lab_progress *p, const struct lab_scenario *s)
{
	*p = (struct lab_progress){ .scenario = s, .pending = -1 };
	p->programs = calloc(s->n_programs + 1u, sizeof(*p->programs));
	p->events = calloc(s->n_events + 1u, sizeof(*p->events));
	if (!p->programs || !p->events)
		return false;
	for (unsigned i = 0; i < s->n_events; i++)
		p->events[i].due_ns = first_due(&s->events[i].when);
	for (unsigned i = 0; i < s->n_programs; i++) {
		p->programs[i].due_ns = first_due(&s->programs[i].when);
		p->programs[i].found = calloc(s->programs[i].output.count + 1u, sizeof(bool));
		if (!p->programs[i].found)
			return false;
	}
	return true;
}

void lab_progress_close(struct lab_progress *p)
{
	for (unsigned i = 0; p->programs && i < p->scenario->n_programs; i++) {
		free(p->programs[i].found);
		free(p->programs[i].unwanted);
		free(p->programs[i].failure);
	}
	for (unsigned i = 0; p->events && i < p->scenario->n_events; i++)
		free(p->events[i].failure);
	free(p->programs);
	free(p->events);
}

/* ---- causes ---- */

/* Something has happened to a program that others wait for: what, and with LAB_AFTER_TEXT its text. */
struct news {
	enum lab_cause cause;
	unsigned program;
	const char *text;
	size_t size;
	bool is_whole;
	uint64_t now;
};

static void consider(const struct lab_when *when, uint64_t *due, const struct news *news)
{
	if (*due != LAB_NEVER || when->cause != news->cause || when->program != news->program)
		return;
	if (when->cause != LAB_AFTER_TEXT ||
	    lab_matches(&when->text.list[0], news->text, news->size, news->is_whole))
		*due = news->now + when->at_ns;
}

static void spread(struct lab_progress *p, struct news news)
{
	const struct lab_scenario *s = p->scenario;

	for (unsigned i = 0; i < s->n_events; i++)
		consider(&s->events[i].when, &p->events[i].due_ns, &news);
	for (unsigned i = 0; i < s->n_programs; i++)
		consider(&s->programs[i].when, &p->programs[i].due_ns, &news);
}

/* ---- what next ---- */

/* Will this program run, or does it? Not if what it waits for cannot happen; `depth` ends circles. */
static bool can_run(const struct lab_progress *p, unsigned program, unsigned depth)
{
	const struct lab_program_progress *now = &p->programs[program];

	if (now->state != LAB_WAITING || now->due_ns != LAB_NEVER)
		return now->state != LAB_OVER;
	return depth > 0 && can_run(p, p->scenario->programs[program].when.program, depth - 1);
}

static bool is_over(const struct lab_progress *p)
{
	const struct lab_scenario *s = p->scenario;

	for (unsigned i = 0; i < s->n_programs; i++)
		if (!s->programs[i].is_daemon && can_run(p, i, s->n_programs))
			return false;
	return true;
}

/* When the limit of a program is over; LAB_NEVER: it has none. */
static uint64_t end_of(const struct lab_progress *p, unsigned program)
{
	const struct lab_program_progress *now = &p->programs[program];
	uint64_t limit = p->scenario->programs[program].limit_ns;

	return now->state == LAB_RUNNING && limit && !now->is_late ? now->started_ns + limit : LAB_NEVER;
}

static void take_earlier(struct lab_step *step, enum lab_step_kind kind, unsigned number, uint64_t at)
{
	if (at < step->at_ns)
		*step = (struct lab_step){ kind, number, at };
}

/* What is to be done first, whenever that is. */
static struct lab_step find_first(const struct lab_progress *p)
{
	const struct lab_scenario *s = p->scenario;
	struct lab_step first = { .kind = LAB_STEP_WAIT, .at_ns = LAB_NEVER };

	for (unsigned i = 0; p->pending < 0 && i < s->n_events; i++)
		if (!p->events[i].has_begun)
			take_earlier(&first, LAB_STEP_EVENT, i, p->events[i].due_ns);
	for (unsigned i = 0; p->pending < 0 && i < s->n_programs; i++)
		if (p->programs[i].state == LAB_WAITING)
			take_earlier(&first, LAB_STEP_START, i, p->programs[i].due_ns);
	for (unsigned i = 0; i < s->n_programs; i++)
		take_earlier(&first, LAB_STEP_KILL, i, end_of(p, i));
	take_earlier(&first, LAB_STEP_DRAIN, 0, s->limit_ns);
	return first;
}

static void do_step(struct lab_progress *p, const struct lab_step *step, uint64_t now)
{
	switch (step->kind) {
	case LAB_STEP_WAIT:
		return;
	case LAB_STEP_START:
		p->programs[step->number].state = LAB_RUNNING;
		p->programs[step->number].started_ns = now;
		spread(p, (struct news){ LAB_AFTER_START, step->number, .now = now });
		return;
	case LAB_STEP_EVENT:
		p->events[step->number].has_begun = true;
		p->pending = (int)step->number;
		return;
	case LAB_STEP_KILL:
		p->programs[step->number].is_late = true;
		return;
	case LAB_STEP_DRAIN:
		p->phase = LAB_PHASE_DRAINING;
		return;
	}
}

static void stop_late(struct lab_progress *p)
{
	char text[LAB_END_BYTES];

	snprintf(text, sizeof(text), "it was not over within %g s", (double)p->scenario->limit_ns / 1e9);
	lab_progress_stop(p, text);
}

struct lab_step lab_progress_next(struct lab_progress *p, uint64_t now)
{
	struct lab_step step = { .kind = LAB_STEP_WAIT, .at_ns = LAB_NEVER };

	if (p->phase != LAB_PHASE_RUNNING)
		return step;
	if (*p->failure || (p->pending < 0 && is_over(p))) {
		step = (struct lab_step){ .kind = LAB_STEP_DRAIN };
	} else {
		step = find_first(p);
		if (step.at_ns > now)
			return (struct lab_step){ .kind = LAB_STEP_WAIT, .at_ns = step.at_ns };
		if (step.kind == LAB_STEP_DRAIN)
			stop_late(p);
	}
	do_step(p, &step, now);
	return step;
}

/* ---- what has happened ---- */

static void look_for(struct lab_progress *p, unsigned program, const char *text, size_t size)
{
	const struct lab_program *of = &p->scenario->programs[program];
	struct lab_program_progress *now = &p->programs[program];
	const struct lab_patterns *absent = &of->absent;

	for (unsigned i = 0; i < of->output.count; i++)
		if (!now->found[i])
			now->found[i] = lab_matches(&of->output.list[i], text, size, true);
	for (unsigned i = 0; i < absent->count && !now->unwanted; i++)
		if (lab_matches(&absent->list[i], text, size, true) &&
		    asprintf(&now->unwanted, "'%s' is in its output: %.*s", absent->list[i].text,
			     (int)(size < LINE_SHOWN ? size : LINE_SHOWN), text) < 0)
			now->unwanted = NULL;
}

void lab_progress_printed(struct lab_progress *p, unsigned program, const char *text, size_t size,
			  bool is_whole, uint64_t now)
{
	spread(p, (struct news){ LAB_AFTER_TEXT, program, text, size, is_whole, now });
	if (is_whole)
		look_for(p, program, text, size);
}

void lab_progress_ended(struct lab_progress *p, unsigned program, struct lab_end end, const char *why,
			uint64_t now)
{
	struct lab_program_progress *of = &p->programs[program];

	of->state = LAB_OVER;
	of->end = end;
	of->ended_ns = now;
	if (why)
		of->failure = strdup(why);
	spread(p, (struct news){ LAB_AFTER_END, program, .now = now });
}

void lab_progress_happened(struct lab_progress *p, const char *why)
{
	struct lab_event_progress *event;

	if (p->pending < 0)
		return;
	event = &p->events[p->pending];
	event->is_over = true;
	if (why)
		event->failure = strdup(why);
	p->pending = -1;
}

void lab_progress_stop(struct lab_progress *p, const char *why)
{
	if (!*p->failure && p->phase == LAB_PHASE_RUNNING)
		snprintf(p->failure, sizeof(p->failure), "%s", why);
}

void lab_progress_drained(struct lab_progress *p, uint64_t now)
{
	p->phase = LAB_PHASE_ENDED;
	p->ended_ns = now;
}

/* ---- in the end ---- */

void lab_end_text(struct lab_end end, char text[LAB_END_BYTES])
{
	const char *name = end.kind == LAB_END_SIGNAL ? lab_signal_name(end.number) : NULL;

	if (name)
		snprintf(text, LAB_END_BYTES, "killed by SIG%s", name);
	else
		snprintf(text, LAB_END_BYTES, "%s %d",
			 end.kind == LAB_END_SIGNAL ? "killed by signal" : "exit status", end.number);
}

struct judgement {
	lab_judge *judge;
	void *context;
	unsigned count;
};

__attribute__((format(printf, 2, 3))) static void fail(struct judgement *j, const char *fmt, ...)
{
	char text[LAB_TEXT_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	j->count++;
	if (j->judge)
		j->judge(j->context, text);
}

static void judge_end(const struct lab_program *of, const struct lab_program_progress *now,
		      struct judgement *j)
{
	char found[LAB_END_BYTES], wanted[LAB_END_BYTES];

	if (now->is_late) {
		fail(j, "it did not end within %g s", (double)of->limit_ns / 1e9);
		return;
	}
	if (of->expected.kind == LAB_END_ANY ||
	    (now->end.kind == of->expected.kind && now->end.number == of->expected.number))
		return;
	lab_end_text(now->end, found);
	lab_end_text(of->expected, wanted);
	fail(j, "%s, expected: %s", found, wanted);
}

static void judge_state(const struct lab_progress *p, unsigned program, struct judgement *j)
{
	const struct lab_program *of = &p->scenario->programs[program];
	const struct lab_program_progress *now = &p->programs[program];

	if (now->failure)
		fail(j, "%s", now->failure);
	else if (now->state == LAB_WAITING && !*p->failure)
		fail(j, "it was not started: what it waits for did not happen");
	else if (now->state == LAB_WAITING)
		fail(j, "it was not started");
	else if (now->state == LAB_RUNNING && !of->is_daemon)
		fail(j, "it had not ended");
	else if (now->state == LAB_OVER)
		judge_end(of, now, j);
}

static void judge_program(const struct lab_progress *p, unsigned program, struct judgement *j)
{
	const struct lab_program *of = &p->scenario->programs[program];
	const struct lab_program_progress *now = &p->programs[program];

	judge_state(p, program, j);
	for (unsigned i = 0; i < of->output.count; i++)
		if (!now->found[i])
			fail(j, "'%s' is not in its output", of->output.list[i].text);
	if (now->unwanted)
		fail(j, "%s", now->unwanted);
}

static void judge_whole(const struct lab_progress *p, struct judgement *j)
{
	const struct lab_scenario *s = p->scenario;

	if (*p->failure)
		fail(j, "%s", p->failure);
	for (unsigned i = 0; i < s->n_events; i++)
		if (p->events[i].failure)
			fail(j, "line %u, %s %s: %s", s->events[i].line, lab_event_word(s->events[i].kind),
			     s->events[i].text, p->events[i].failure);
}

unsigned lab_progress_judge(const struct lab_progress *p, int program, lab_judge *judge, void *context)
{
	struct judgement j = { judge, context, 0 };

	if (program < 0)
		judge_whole(p, &j);
	else
		judge_program(p, (unsigned)program, &j);
	return j.count;
}

bool lab_progress_missed(const struct lab_progress *p, unsigned event) { return !p->events[event].has_begun; }
