/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/nanoseconds.h"
#include "faults/plan.h"

struct line {
	char *at;
	size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(l->at + l->len, l->size - l->len, fmt, args);
	va_end(args);
	if (n > 0)
		l->len = l->len + (size_t)n < l->size ? l->len + (size_t)n : l->size - 1;
}

/* ---- pieces ---- */

static void put_time(struct line *l, uint64_t ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = { { "s", VB_NS_PER_S }, { "ms", VB_NS_PER_MS }, { "us", VB_NS_PER_US }, { "ns", 1 } };
	unsigned i = 0;
	while (i + 1 < VB_ARRAY_LEN(units) && ns % units[i].ns)
		i++;
	put(l, "%llu %s", (unsigned long long)(ns / units[i].ns), units[i].unit);
}

static void put_which(struct line *l, const struct vb_fault_rule *r)
{
	unsigned long long first = r->first, last = r->last;
	switch ((enum vb_fault_how)r->how) {
	case VB_FAULT_EACH:
		put(l, "all of");
		break;
	case VB_FAULT_RANGE:
		if (r->last == VB_FAULT_FOREVER)
			put(l, "number %llu and all that follow of", first);
		else if (first == last)
			put(l, "number %llu of", first);
		else
			put(l, "numbers %llu to %llu of", first, last);
		break;
	case VB_FAULT_EVERY:
		put(l, "one in %llu, counted, of", first);
		break;
	case VB_FAULT_SHARE:
		put(l, "%g %%, by chance, of", (double)r->first / 10000);
		break;
	}
	put(l, " the ");
}

static void put_qp(struct line *l, const struct vb_fault_rule *r)
{
	if (r->qp)
		put(l, "queue pair %u", r->qp);
	else
		put(l, "each queue pair");
}

static void put_peer(struct line *l, const struct vb_fault_rule *r, const char *before)
{
	char text[INET6_ADDRSTRLEN];
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	bool is_v4 = true;
	for (unsigned i = 0; i < sizeof(v4); i++)
		is_v4 = is_v4 && r->peer[i] == v4[i];
	if (r->has_peer)
		put(l, " %s %s", before,
		    inet_ntop(is_v4 ? AF_INET : AF_INET6, r->peer + (is_v4 ? sizeof(v4) : 0), text,
			      sizeof(text)));
}

static void put_calls(struct line *l, const struct vb_fault_rule *r)
{
	put_which(l, r);
	put(l, "calls of %s", r->verb->name);
	if (!r->verb->of_qp)
		return;
	put(l, " on ");
	put_qp(l, r);
}

/* Of what a call triggers: does it happen once, whatever else is called? */
static bool is_first_call(const struct vb_fault_rule *r)
{
	return vb_fault_site_of(r->kind) == VB_FAULT_TRIGGER && r->verb && !r->has_which && r->times == 1;
}

static void put_trigger(struct line *l, const struct vb_fault_rule *r)
{
	put(l, ": ");
	if (!r->verb) {
		put(l, r->has_after ? "once" : "at once");
	} else if (is_first_call(r)) {
		put(l, "at the first call of %s", r->verb->name);
		if (r->qp)
			put(l, " on queue pair %u", r->qp);
	} else {
		put(l, "at ");
		put_calls(l, r);
	}
}

static const char *way_of(const struct vb_fault_rule *r)
{
	return r->direction == VB_FAULT_IN  ? "gets" :
	       r->direction == VB_FAULT_OUT ? "sends" :
					      "sends or gets";
}

static const char *end_of(const struct vb_fault_rule *r)
{
	return r->direction == VB_FAULT_IN ? "from" : r->direction == VB_FAULT_OUT ? "to" : "to or from";
}

static void put_packets(struct line *l, const struct vb_fault_rule *r)
{
	static const char *const words[] = {
#define X(what, word, text) text,
		VB_FAULT_PACKET_WORDS(X)
#undef X
	};
	put(l, ": ");
	put_which(l, r);
	put(l, "%s that ", words[r->of]);
	if (r->of == VB_FAULT_OF_CM)
		put(l, "the process");
	else
		put_qp(l, r);
	put(l, " %s", way_of(r));
	put_peer(l, r, end_of(r));
}

static void put_messages(struct line *l, const struct vb_fault_rule *r, const char *name)
{
	put(l, ": ");
	put_which(l, r);
	put(l, "%ss that the process %s", name, way_of(r));
	put_peer(l, r, end_of(r));
	if (r->port)
		put(l, " for port %u", r->port);
}

static void put_for(struct line *l, const struct vb_fault_rule *r)
{
	if (r->time_ns == VB_FAULT_FOREVER) {
		put(l, " for good");
		return;
	}
	put(l, " for ");
	put_time(l, r->time_ns);
}

/* ---- kinds ---- */

static void put_delay(struct line *l, const struct vb_fault_rule *r)
{
	put(l, "late by ");
	put_time(l, r->time_ns);
	if (r->time_max_ns != r->time_ns) {
		put(l, " to ");
		put_time(l, r->time_max_ns);
	}
}

static void put_completion(struct line *l, const struct vb_fault_rule *r)
{
	static const char *const words[] = {
#define X(what, word, text) text,
		VB_FAULT_COMPLETION_WORDS(X)
#undef X
	};
	put(l, "polled as IBV_WC_%s, with the queue pair in the error state: ",
	    vb_fault_word_of(&vb_fault_statuses, r->value));
	put_which(l, r);
	put(l, "%s of ", words[r->of]);
	put_qp(l, r);
}

static void put_devices(struct line *l, const struct vb_fault_rule *r)
{
	if (*r->device)
		put(l, "%s", r->device);
	else
		put(l, "every device");
}

/* What is said by a number may have a name. */
static void put_number(struct line *l, const char *what, const struct vb_fault_words *words, int value)
{
	const char *word = vb_fault_word_of(words, value);

	put(l, "%s %d", what, value);
	if (*word != '?')
		put(l, " (%s)", word);
}

static void put_kind(struct line *l, const struct vb_fault_rule *r)
{
	switch ((enum vb_fault_kind)r->kind) {
	case VB_FAULT_DROP:
		put(l, "lost");
		put_packets(l, r);
		break;
	case VB_FAULT_DELAY:
		put_delay(l, r);
		put_packets(l, r);
		break;
	case VB_FAULT_DUPLICATE:
		put(l, "doubled");
		put_packets(l, r);
		break;
	case VB_FAULT_REORDER:
		put(l, "overtaken by the next one");
		put_packets(l, r);
		break;
	case VB_FAULT_CORRUPT:
		put(l, "with a wrong bit");
		put_packets(l, r);
		break;
	case VB_FAULT_FREEZE:
		put(l, "nothing goes out or comes in");
		put_for(l, r);
		put_trigger(l, r);
		break;
	case VB_FAULT_STALL:
		put(l, "longer by ");
		put_time(l, r->time_ns);
		put(l, ": ");
		put_calls(l, r);
		break;
	case VB_FAULT_FAIL:
		put_number(l, "failed with errno", &vb_fault_errnos, r->value);
		put(l, ": ");
		put_calls(l, r);
		break;
	case VB_FAULT_COMPLETE:
		put_completion(l, r);
		break;
	case VB_FAULT_RNR:
		put(l, "not there for its message,");
		put_for(l, r);
		put(l, ": ");
		put_which(l, r);
		put(l, "receives that are posted to ");
		put_qp(l, r);
		break;
	case VB_FAULT_LINK:
		put(l, "the link of ");
		put_devices(l, r);
		put(l, " is down");
		put_for(l, r);
		put_trigger(l, r);
		break;
	case VB_FAULT_EVENT:
		put(l, "IBV_EVENT_%s of ", vb_fault_word_of(&vb_fault_events, r->value));
		put_devices(l, r);
		put_trigger(l, r);
		break;
	case VB_FAULT_LOSE:
		put(l, "lost");
		put_messages(l, r, vb_fault_word_of(&vb_fault_messages, r->value));
		break;
	case VB_FAULT_REFUSE:
		put_number(l, "rejected with reason", &vb_fault_reasons, r->value);
		put_messages(l, r, "connection request");
		break;
	case VB_FAULT_VANISH:
		put(l, r->has_peer ? "the peer" : "every peer");
		put_peer(l, r, "at");
		put(l, " is gone without a word");
		put_trigger(l, r);
		break;
	case VB_FAULT_NKINDS:
		break;
	}
}

size_t vb_fault_explain(const struct vb_fault_rule *rule, char *line, size_t size)
{
	struct line l = { line, size, 0 };
	*line = '\0';
	put_kind(&l, rule);
	if (rule->has_after) {
		bool is_action = vb_fault_site_of(rule->kind) == VB_FAULT_TRIGGER && !rule->verb;
		put(&l, is_action ? ", " : ", not before ");
		put_time(&l, rule->after_ns);
		put(&l, " after the first device was opened");
	}
	if (rule->times && !is_first_call(rule))
		put(&l, ", %llu times at most", (unsigned long long)rule->times);
	return l.len;
}
