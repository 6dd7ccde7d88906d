/* SPDX-License-Identifier: BSD-2-Clause */
#include "top/state.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/base.h"

const uint32_t top_kinds = 1u << VB_RECORD_PROCESS | 1u << VB_RECORD_PORT | 1u << VB_RECORD_QP;

static const double broken_rate = 1e12; /* more than any retries */

/* ---- lines ---- */

static struct top_line *append(struct top_lines *lines)
{
	if (lines->count == lines->room) {
		unsigned room = lines->room ? 2 * lines->room : 64;
		struct top_line *list = realloc(lines->list, room * sizeof(*list));
		if (!list)
			return NULL;
		lines->list = list;
		lines->room = room;
	}
	struct top_line *line = &lines->list[lines->count++];
	memset(line, 0, sizeof(*line));
	return line;
}

static int by_identity(const void *a, const void *b)
{
	const struct top_line *one = a, *other = b;

	if (one->slot != other->slot)
		return one->slot < other->slot ? -1 : 1;
	if (one->pid != other->pid)
		return one->pid < other->pid ? -1 : 1;
	return one->qpn < other->qpn ? -1 : one->qpn > other->qpn;
}

/* NULL: it was not there. The list is in order. */
static const struct top_line *find(const struct top_lines *lines, const struct top_line *line)
{
	return lines->count ? bsearch(line, lines->list, lines->count, sizeof(*line), by_identity) : NULL;
}

/* ---- rates ---- */

/* What has come since; a queue pair with a number that another one had begins anew. */
static bool subtract(const struct top_line *now, const struct top_line *then, struct vb_counts *since)
{
#define X(name, what)                                       \
	since->name = now->counts.name - then->counts.name; \
	if (now->counts.name < then->counts.name)           \
		return false;
	VB_COUNTS(X)
#undef X
	return now->drops >= then->drops;
}

static void say(struct top_line *line, const char *fmt, const char *what, double rate)
{
	size_t used = strlen(line->trouble);
	char number[SCALED];

	scale_number(number, rate);
	if (used)
		used += (size_t)snprintf(line->trouble + used, sizeof(line->trouble) - used, ", ");
	if (used < sizeof(line->trouble))
		snprintf(line->trouble + used, sizeof(line->trouble) - used, fmt, number, what);
}

static void tell_trouble(struct top_line *line, const struct vb_counts *since, uint64_t drops, double since_s)
{
	const struct {
		uint64_t count;
		const char *what;
	} troubles[] = {
		{ since->failed, "failed" },
		{ since->resent, "resent" },
		{ since->timeouts, "timeouts" },
		{ since->rnr_sent + since->rnr_received, "without a receive" },
		{ since->naks_sent + since->naks_received, "refused" },
		{ drops, "dropped" },
	};

	for (size_t i = 0; i < VB_ARRAY_LEN(troubles); i++) {
		double rate = (double)troubles[i].count / since_s;
		if (!troubles[i].count)
			continue;
		line->trouble_rate += rate;
		line->is_bad = true;
		say(line, "%s %s/s", troubles[i].what, rate);
	}
}

static void set_rates(struct top_line *line, const struct top_lines *before, double since_s)
{
	const struct top_line *then = find(before, line);
	struct vb_counts since;

	line->has_rates = then && since_s > 0 && then->is_known && line->is_known &&
			  subtract(line, then, &since);
	if (!line->has_rates)
		return;
	line->requests = (double)requests_done(&since) / since_s;
	line->messages = (double)since.receives / since_s;
	line->out = (double)(since.send_bytes + since.write_bytes + since.atomic_bytes) / since_s;
	line->in = (double)(since.receive_bytes + since.read_bytes) / since_s;
	tell_trouble(line, &since, line->drops - then->drops, since_s);
}

/* It is so whatever happened since the last look. */
static void set_broken(struct top_line *line, const char *why)
{
	snprintf(line->trouble, sizeof(line->trouble), "%s", why);
	line->trouble_rate = broken_rate;
	line->is_bad = true;
}

/* ---- records ---- */

static void take_qp(struct top_line *line, const struct process *p, const struct vb_record_qp *r,
		    const struct processes *all)
{
	char name[FIELD_TEXT], address[46];

	peer_name(r, all, name);
	if (!name[0])
		address_text(r->peer_gid, address);
	line->slot = p->slot;
	line->pid = p->pid;
	line->qpn = r->qpn;
	line->is_known = true;
	line->type = qp_type_name(r->type);
	line->state = qp_state_name(r->state);
	line->queued = (uint32_t)(r->posted - r->completed);
	line->waiting = (uint32_t)(r->recv_posted - r->recv_taken);
	line->counts = r->counts;
	snprintf(line->name, sizeof(line->name), "%s", p->name);
	snprintf(line->to, sizeof(line->to), "%s", name[0] ? name : address);
	snprintf(line->path, sizeof(line->path), "%.*s", (int)strnlen(r->path, sizeof(r->path)), r->path);
	if (r->state == IBV_QPS_ERR || r->state == IBV_QPS_SQE)
		set_broken(line, "in the error state");
}

static void take_process(struct top_line *line, const struct process *p)
{
	const struct vb_record_process *r;
	size_t at = 0;

	line->slot = p->slot;
	line->pid = p->pid;
	line->is_known = !p->trouble[0];
	line->counts = process_counts(p);
	snprintf(line->name, sizeof(line->name), "%s", p->name);
	user_name(p->uid, line->user);
	r = process_next(p, &at, VB_RECORD_PROCESS);
	for (unsigned i = 0; r && i < VB_DROP_REASONS; i++)
		line->drops += r->drops[i];
	if (p->is_foreign) /* which is in order */
		snprintf(line->trouble, sizeof(line->trouble), "%s", p->trouble);
	else if (p->trouble[0])
		set_broken(line, p->trouble);
}

static void add_up(struct top_line *to, const struct top_line *from)
{
	to->requests += from->requests;
	to->messages += from->messages;
	to->out += from->out;
	to->in += from->in;
	to->queued += from->queued;
	to->waiting += from->waiting;
	to->is_bad |= from->is_bad;
	to->qps += from->qps;
}

static bool take_qps(struct top *top, const struct process *p, const struct processes *all, double since_s,
		     struct top_line *sum)
{
	_Alignas(8) uint8_t copy[VB_RECORD_MAX]; /* naming a peer looks at other records */
	const void *record;
	struct process alone = *p;
	size_t at = 0;

	while ((record = process_next(&alone, &at, VB_RECORD_QP))) {
		struct top_line *line = append(&top->lines[TOP_QPS]);
		if (!line)
			return false;
		memcpy(copy, record, sizeof(copy));
		take_qp(line, p, (const struct vb_record_qp *)copy, all);
		set_rates(line, &top->before[TOP_QPS], since_s);
		sum->queued += line->queued;
		sum->waiting += line->waiting;
		sum->qps++;
	}
	return true;
}

static bool take(struct top *top, const struct process *p, const struct processes *all, double since_s)
{
	struct top_line *line = append(&top->lines[TOP_PROCESSES]);

	if (!line)
		return false;
	take_process(line, p);
	set_rates(line, &top->before[TOP_PROCESSES], since_s);
	bool good = take_qps(top, p, all, since_s, line);
	add_up(&top->sum, line);
	return good;
}

bool top_look(struct top *top, const struct processes *all, double now_s, top_wants *wants, const void *arg)
{
	double since_s = top->at_s > 0 ? now_s - top->at_s : 0;
	bool good = true;

	for (unsigned v = 0; v < TOP_VIEWS; v++) {
		struct top_lines lines = top->before[v];
		top->before[v] = top->lines[v];
		top->lines[v] = lines;
		top->lines[v].count = 0;
	}
	top->sum = (struct top_line){ .has_rates = since_s > 0 };
	for (unsigned i = 0; i < all->count && good; i++)
		if (!wants || wants(arg, &all->list[i]))
			good = take(top, &all->list[i], all, since_s);
	for (unsigned v = 0; v < TOP_VIEWS; v++)
		if (top->lines[v].count)
			qsort(top->lines[v].list, top->lines[v].count, sizeof(struct top_line), by_identity);
	top->at_s = now_s;
	return good;
}

void top_free(struct top *top)
{
	for (unsigned v = 0; v < TOP_VIEWS; v++) {
		free(top->lines[v].list);
		free(top->before[v].list);
	}
	*top = (struct top){ .at_s = 0 };
}

/* ---- choosing ---- */

const char *top_sort_name(enum top_sort sort)
{
	static const char *const names[] = {
#define X(name, heading, field) heading,
		TOP_SORTS(X)
#undef X
		"pid",
	};
	return names[sort];
}

static double key_of(const struct top_line *line, enum top_sort sort)
{
	switch (sort) {
#define X(name, heading, field)     \
	case TOP_SORT_##name:       \
		return line->field;
		TOP_SORTS(X)
#undef X
	case TOP_SORT_PID:
	case TOP_SORTINGS:
		break;
	}
	return -(double)line->pid;
}

static const struct top_choice *sorting; /* of by_choice */

static int by_choice(const void *a, const void *b)
{
	const struct top_line *one = *(const struct top_line *const *)a,
			      *other = *(const struct top_line *const *)b;
	double x = key_of(one, sorting->sort), y = key_of(other, sorting->sort);
	int order = x > y ? -1 : x < y;

	if (!order)
		return by_identity(one, other);
	return sorting->is_reversed ? -order : order;
}

static bool contains(const char *text, const char *part)
{
	size_t n = strlen(part);

	for (; *text; text++) {
		size_t i = 0;
		while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
			i++;
		if (i == n)
			return true;
	}
	return !n;
}

static bool is_chosen(const struct top_line *line, const struct top_choice *choice)
{
	char text[512];

	if (choice->only_trouble && !line->is_bad)
		return false;
	if (!choice->filter[0])
		return true;
	snprintf(text, sizeof(text), "%d %s 0x%06x %s %s %s %s %s %s", (int)line->pid, line->name, line->qpn,
		 line->type ? line->type : "", line->state ? line->state : "", line->to, line->path,
		 line->user, line->trouble);
	return contains(text, choice->filter);
}

const struct top_line **top_choose(const struct top *top, const struct top_choice *choice)
{
	const struct top_lines *lines = &top->lines[choice->view];
	const struct top_line **chosen = calloc(lines->count + 1, sizeof(*chosen));
	unsigned n = 0;

	for (unsigned i = 0; chosen && i < lines->count; i++)
		if (is_chosen(&lines->list[i], choice))
			chosen[n++] = &lines->list[i];
	sorting = choice;
	if (n)
		qsort(chosen, n, sizeof(*chosen), by_choice);
	return chosen;
}

/* ---- fields ---- */

static void row_rates(struct row *row, const struct top_line *line)
{
	row_rate(row, "requests/s", line->requests);
	row_rate(row, "messages/s", line->messages);
	row_rate(row, "out/s", line->out);
	row_rate(row, "in/s", line->in);
	row_count(row, "queued", (uint64_t)line->queued);
	row_count(row, "receives", (uint64_t)line->waiting);
	row_bool(row, "has_rates", line->has_rates);
	row_detail(row);
	row_text(row, "trouble", line->trouble);
}

void top_row(struct row *row, const struct top_line *line, enum top_view view)
{
	row_number(row, "pid", (uint64_t)line->pid);
	if (view == TOP_PROCESSES) {
		row_text(row, "user", line->user);
		row_text(row, "name", line->name);
		row_number(row, "qps", line->qps);
	} else {
		row_text(row, "name", line->name);
		row_format(row, "qpn", "0x%06x", line->qpn);
		row_text(row, "type", line->type);
		row_text(row, "state", line->state);
		row_long_text(row, "to", line->to);
		row_text(row, "path", line->path);
	}
	row_rates(row, line);
}
