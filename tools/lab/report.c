/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../command.h"
#include "../row.h"
#include "base/utf8.h"
#include "report.h"

enum {
	FULL_BYTES = 256 << 10,
	TAIL_BYTES = 64 << 10, /* of a program's output, in JUnit XML */
};

/* ---- bytes ---- */

void lab_print_clean(FILE *out, const char *bytes, size_t size)
{
	for (size_t at = 0, n; at < size; at += n ? n : 1) {
		n = vb_printable_size(bytes + at, size - at);
		if (n)
			fwrite(bytes + at, 1, n, out);
		else
			fprintf(out, "\\x%02x", (unsigned char)bytes[at]);
	}
}

/* The same on the heap; "" if there is no memory. */
static char *clean(const char *bytes, size_t size)
{
	char *text = NULL;
	size_t cleaned;
	FILE *f = open_memstream(&text, &cleaned);

	if (!f)
		return strdup("");
	lab_print_clean(f, bytes, size);
	fclose(f);
	return text;
}

static ssize_t keep(void *cookie, const char *bytes, size_t size)
{
	struct lab_unwritten *u = cookie;

	if (u->size + size > u->room) {
		size_t room = 2 * (u->size + size);
		char *more = realloc(u->bytes, room);
		if (!more)
			return -1;
		u->bytes = more;
		u->room = room;
	}
	memcpy(u->bytes + u->size, bytes, size);
	u->size += size;
	return (ssize_t)size;
}

bool lab_report_open(struct lab_report *r, const struct lab_scenario *s, const char *name, bool as_json)
{
	*r = (struct lab_report){ .scenario = s, .name = name, .as_json = as_json };
	r->text = fopencookie(&r->unwritten, "w", (cookie_io_functions_t){ .write = keep });
	r->tails = calloc(s->n_programs + 1u, sizeof(*r->tails));
	return r->text && r->tails;
}

void lab_report_close(struct lab_report *r)
{
	for (unsigned i = 0; r->tails && i < r->scenario->n_programs; i++)
		free(r->tails[i].bytes);
	free(r->tails);
	if (r->text)
		fclose(r->text);
	free(r->unwritten.bytes);
}

bool lab_report_is_full(const struct lab_report *r)
{
	return r->unwritten.size - r->unwritten.begin >= FULL_BYTES;
}

bool lab_report_has_unwritten(const struct lab_report *r) { return r->unwritten.size > 0; }

/* Writes at most PIPE_BUF bytes: a writable pipe accepts them without blocking, even without O_NONBLOCK. */
bool lab_report_write(struct lab_report *r, int fd)
{
	struct lab_unwritten *u = &r->unwritten;
	size_t left = u->size - u->begin;
	ssize_t n = write(fd, u->bytes + u->begin, left < PIPE_BUF ? left : PIPE_BUF);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	u->begin += (size_t)n;
	if (u->begin == u->size)
		u->begin = u->size = 0;
	return true;
}

/* ---- lines ---- */

static const char *host_of(const struct lab_report *r, unsigned program)
{
	return r->scenario->plan.topology.names[r->scenario->programs[program].host];
}

static double seconds(uint64_t ns) { return (double)ns / 1e9; }

/* Begins what is said at a time: an object of JSON of this type, or a line. */
static void begin(struct lab_report *r, const char *type, uint64_t now)
{
	if (r->as_json)
		fprintf(r->text, "{\"type\":\"%s\",\"time\":%.6f", type, seconds(now));
	else
		fprintf(r->text, "%9.3f", seconds(now));
}

static void end(struct lab_report *r)
{
	fputs(r->as_json ? "}\n" : "\n", r->text);
	fflush(r->text);
}

static void add_json(struct lab_report *r, const char *name, const char *text)
{
	char *cleaned = clean(text, strlen(text));

	fprintf(r->text, ",\"%s\":", name);
	json_text(r->text, cleaned);
	free(cleaned);
}

/* Whose it is; in a line, with what separates it from the rest. */
static void add_program(struct lab_report *r, unsigned program, const char *separator)
{
	const char *name = r->scenario->programs[program].name;

	if (r->as_json)
		fprintf(r->text, ",\"host\":\"%s\",\"program\":\"%s\"", host_of(r, program), name);
	else
		fprintf(r->text, " %s %s%s ", host_of(r, program), name, separator);
}

void lab_report_start(struct lab_report *r, unsigned program, uint64_t now)
{
	begin(r, "start", now);
	add_program(r, program, ":");
	if (!r->as_json)
		fputs("starts", r->text);
	end(r);
}

static void keep_tail(struct lab_tail *tail, const char *line)
{
	size_t size = strlen(line), cut;
	const char *newline;

	if (!tail->bytes)
		tail->bytes = malloc(2 * TAIL_BYTES);
	if (!tail->bytes || size >= TAIL_BYTES)
		return;
	if (tail->size + size + 1 > 2 * TAIL_BYTES) {
		cut = tail->size - TAIL_BYTES + size + 1;
		newline = memchr(tail->bytes + cut, '\n', tail->size - cut);
		cut = newline ? (size_t)(newline + 1 - tail->bytes) : tail->size;
		tail->size -= cut;
		memmove(tail->bytes, tail->bytes + cut, tail->size);
	}
	memcpy(tail->bytes + tail->size, line, size);
	tail->size += size;
	tail->bytes[tail->size++] = '\n';
}

void lab_report_output(struct lab_report *r, unsigned program, const char *text, size_t size, uint64_t now)
{
	char *line = clean(text, size);

	keep_tail(&r->tails[program], line);
	begin(r, "output", now);
	add_program(r, program, "|");
	if (r->as_json)
		add_json(r, "text", line);
	else
		fputs(line, r->text);
	end(r);
	free(line);
}

static void add_json_end(struct lab_report *r, struct lab_end end, const char *why)
{
	const char *name = end.kind == LAB_END_SIGNAL ? lab_signal_name(end.number) : NULL;

	if (name)
		fprintf(r->text, ",\"signal\":\"%s\"", name);
	else if (end.kind == LAB_END_SIGNAL)
		fprintf(r->text, ",\"signal\":\"%d\"", end.number);
	else if (end.kind == LAB_END_EXIT)
		fprintf(r->text, ",\"exit\":%d", end.number);
	else
		add_json(r, "failure", why);
}

void lab_report_end(struct lab_report *r, unsigned program, struct lab_end how, const char *why, uint64_t now)
{
	char text[LAB_END_BYTES];

	begin(r, "end", now);
	add_program(r, program, ":");
	lab_end_text(how, text);
	if (r->as_json)
		add_json_end(r, how, why);
	else
		fputs(why ? why : text, r->text);
	end(r);
}

void lab_report_event(struct lab_report *r, unsigned event, const char *why, uint64_t now)
{
	const struct lab_event *e = &r->scenario->events[event];
	const char *word = lab_event_word(e->kind);

	begin(r, "event", now);
	if (r->as_json) {
		add_json(r, word, e->text);
		if (why)
			add_json(r, "failure", why);
	} else {
		fprintf(r->text, " %s %s%s%s", word, e->text, why ? ": " : "", why ? why : "");
	}
	end(r);
}

/* ---- the verdict ---- */

struct verdict {
	struct lab_report *report;
	int program; /* -1: the whole */
	uint64_t now;
	bool has_begun; /* a list of JSON */
};

static void say_failure(void *context, const char *text)
{
	struct verdict *v = context;
	struct lab_report *r = v->report;
	char *cleaned = clean(text, strlen(text));

	if (r->as_json) {
		fputs(v->has_begun ? "," : "", r->text);
		json_text(r->text, cleaned);
		v->has_begun = true;
	} else {
		begin(r, "", v->now);
		if (v->program >= 0)
			add_program(r, (unsigned)v->program, ": FAILED:");
		else
			fputs(" FAILED: ", r->text);
		fputs(cleaned, r->text);
		end(r);
	}
	free(cleaned);
}

/* What did not hold of one program, or of the whole; how much. */
static unsigned say_failures(struct lab_report *r, const struct lab_progress *p, int program)
{
	struct verdict v = { r, program, p->ended_ns, false };
	unsigned count;

	if (r->as_json)
		fputs("\"failures\":[", r->text);
	count = lab_progress_judge(p, program, say_failure, &v);
	if (r->as_json)
		fputs("]", r->text);
	return count;
}

/* Events that did not happen tell that a scenario has not tried what it says. */
static void say_missed(struct lab_report *r, const struct lab_progress *p)
{
	const struct lab_scenario *s = r->scenario;
	bool is_first = true;

	if (r->as_json)
		fputs(",\"missed\":[", r->text);
	for (unsigned i = 0; i < s->n_events; i++) {
		if (!lab_progress_missed(p, i))
			continue;
		if (r->as_json)
			fprintf(r->text, "%s%u", is_first ? "" : ",", s->events[i].line);
		else
			fprintf(r->text, "%9.3f note: line %u, %s %s: did not happen\n", seconds(p->ended_ns),
				s->events[i].line, lab_event_word(s->events[i].kind), s->events[i].text);
		is_first = false;
	}
	if (r->as_json)
		fputs("]", r->text);
}

static bool is_held(const struct lab_progress *p)
{
	unsigned failures = lab_progress_judge(p, -1, NULL, NULL);

	for (unsigned i = 0; i < p->scenario->n_programs; i++)
		failures += lab_progress_judge(p, (int)i, NULL, NULL);
	return failures == 0;
}

static void say_json(struct lab_report *r, const struct lab_progress *p, bool held)
{
	begin(r, "verdict", p->ended_ns);
	fprintf(r->text, ",\"held\":%s,", held ? "true" : "false");
	say_failures(r, p, -1);
	say_missed(r, p);
	fputs(",\"programs\":[", r->text);
	for (unsigned i = 0; i < r->scenario->n_programs; i++) {
		fprintf(r->text, "%s{\"host\":\"%s\",\"program\":\"%s\",", i ? "," : "", host_of(r, i),
			r->scenario->programs[i].name);
		say_failures(r, p, (int)i);
		fputs("}", r->text);
	}
	fputs("]", r->text);
	end(r);
}

static void say_lines(struct lab_report *r, const struct lab_progress *p, bool held)
{
	unsigned n = r->scenario->n_programs, failed = 0;

	say_missed(r, p);
	for (unsigned i = 0; i < n; i++)
		failed += say_failures(r, p, (int)i) > 0;
	say_failures(r, p, -1);
	begin(r, "", p->ended_ns);
	if (held)
		fprintf(r->text, " held: all that was expected of %u programs", n);
	else
		fprintf(r->text, " FAILED: %u of %u programs", failed, n);
	end(r);
}

bool lab_report_verdict(struct lab_report *r, const struct lab_progress *p)
{
	bool held = is_held(p);

	(r->as_json ? say_json : say_lines)(r, p, held);
	return held;
}

/* ---- JUnit ---- */

static void print_xml(FILE *out, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		switch (text[i]) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc(text[i], out);
		}
}

/* Of the file. */
static void print_name(const struct lab_report *r, FILE *out)
{
	char *name = clean(r->name, strlen(r->name));

	print_xml(out, name, strlen(name));
	free(name);
}

static void add_failure(void *context, const char *text)
{
	FILE *out = context;
	char *cleaned = clean(text, strlen(text));

	fputs("      <failure message=\"", out);
	print_xml(out, cleaned, strlen(cleaned));
	fputs("\"/>\n", out);
	free(cleaned);
}

static void begin_case(const struct lab_report *r, const char *name, uint64_t ns, FILE *out)
{
	fputs("    <testcase classname=\"", out);
	print_name(r, out);
	fprintf(out, "\" name=\"%s\" time=\"%.6f\">\n", name, seconds(ns));
}

static void add_case(const struct lab_report *r, const struct lab_progress *p, int program, FILE *out)
{
	const struct lab_tail *tail = program >= 0 ? &r->tails[program] : NULL;
	const struct lab_program_progress *of = program >= 0 ? &p->programs[program] : NULL;
	uint64_t end_ns = of && of->state == LAB_OVER ? of->ended_ns : p->ended_ns;
	uint64_t from_ns = of && of->state == LAB_WAITING ? end_ns : of ? of->started_ns : 0;

	begin_case(r, of ? r->scenario->programs[program].name : "scenario", end_ns - from_ns, out);
	lab_progress_judge(p, program, add_failure, out);
	if (tail && tail->size) {
		fputs("      <system-out>", out);
		print_xml(out, tail->bytes, tail->size);
		fputs("</system-out>\n", out);
	}
	fputs("    </testcase>\n", out);
}

/* Up to its counts. */
static void begin_suite(const struct lab_report *r, FILE *out)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"", out);
	print_name(r, out);
}

void lab_report_junit(const struct lab_report *r, const struct lab_progress *p, FILE *out)
{
	unsigned n = r->scenario->n_programs, failures = 0;

	for (int i = -1; i < (int)n; i++)
		failures += lab_progress_judge(p, i, NULL, NULL) > 0;
	begin_suite(r, out);
	fprintf(out, "\" tests=\"%u\" failures=\"%u\" errors=\"0\" time=\"%.6f\">\n", n + 1, failures,
		seconds(p->ended_ns));
	for (int i = -1; i < (int)n; i++)
		add_case(r, p, i, out);
	fputs("  </testsuite>\n</testsuites>\n", out);
}

void lab_report_junit_error(const struct lab_report *r, const char *why, FILE *out)
{
	begin_suite(r, out);
	fputs("\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0\">\n", out);
	begin_case(r, "scenario", 0, out);
	fputs("      <error message=\"", out);
	print_xml(out, why, strcspn(why, "\n"));
	fputs("\">", out);
	print_xml(out, why, strlen(why));
	fputs("</error>\n    </testcase>\n  </testsuite>\n</testsuites>\n", out);
}
