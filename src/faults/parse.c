/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * expression = clause { (";" | newline) clause }; a clause is the word of a fault, what it needs in this
 * order, and filters in any order. A '#' that no digit follows begins a comment, up to the end of the line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "faults/plan.h"

/* What a kind needs, in this order. */
enum need { NOTHING, A_DELAY, A_TIME, A_VERB, AN_ERRNO, A_COMPLETION, A_STATUS, AN_EVENT, A_MESSAGE,
	MAYBE_A_REASON, DOWN };

/* What else may be said, each once. */
enum { WHICH = 1 << 0, WAY = 1 << 1, OF = 1 << 2, QP = 1 << 3, PEER = 1 << 4, PORT = 1 << 5, DEVICE = 1 << 6,
	AFTER = 1 << 7,
       TIMES = 1 << 8, FOR = 1 << 9, AT = 1 << 10 };
enum { ON_PACKETS = WHICH | WAY | OF | QP | PEER | AFTER | TIMES, ON_CALLS = WHICH | QP | AFTER | TIMES,
       ON_MESSAGES = WHICH | WAY | PEER | AFTER | TIMES, AS_ACTION = WHICH | AT | QP | AFTER | TIMES };

static const struct kind {
	enum need needs[2];
	unsigned options;
} kinds[] = {
	[VB_FAULT_DROP]      = { { NOTHING }, ON_PACKETS },
	[VB_FAULT_DELAY]     = { { A_DELAY }, ON_PACKETS },
	[VB_FAULT_DUPLICATE] = { { NOTHING }, ON_PACKETS },
	[VB_FAULT_REORDER]   = { { NOTHING }, ON_PACKETS },
	[VB_FAULT_CORRUPT]   = { { NOTHING }, ON_PACKETS },
	[VB_FAULT_FREEZE]    = { { A_TIME }, AS_ACTION },
	[VB_FAULT_STALL]     = { { A_TIME, A_VERB }, ON_CALLS },
	[VB_FAULT_FAIL]      = { { A_VERB, AN_ERRNO }, ON_CALLS },
	[VB_FAULT_COMPLETE]  = { { A_COMPLETION, A_STATUS }, WHICH | QP | AFTER | TIMES },
	[VB_FAULT_RNR]       = { { NOTHING }, WHICH | QP | AFTER | TIMES | FOR },
	[VB_FAULT_LINK]      = { { DOWN }, AS_ACTION | FOR | DEVICE },
	[VB_FAULT_EVENT]     = { { AN_EVENT }, AS_ACTION | DEVICE },
	[VB_FAULT_LOSE]      = { { A_MESSAGE }, ON_MESSAGES },
	[VB_FAULT_REFUSE]    = { { MAYBE_A_REASON }, ON_MESSAGES | PORT },
	[VB_FAULT_VANISH]    = { { NOTHING }, AS_ACTION | PEER },
};
_Static_assert(VB_ARRAY_LEN(kinds) == VB_FAULT_NKINDS, "a row for each kind");

struct token {
	size_t at, bytes; /* bytes 0: the clause ends */
};

struct parser {
	const char *text;
	size_t bytes, at;
	struct vb_fault_error *error;
	struct token token; /* the next one */
	size_t end;         /* of the one before */
	unsigned said;      /* options of this clause */
	bool has_seed;
};

static int wrong(struct parser *p, struct token t, const char *why)
{
	*p->error = (struct vb_fault_error){ t.at, t.bytes, why };
	return -EINVAL;
}

/* ---- tokens ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
static bool ends_clause(char c) { return c == ';' || c == '\n'; }

static bool begins_comment(const struct parser *p)
{
	return p->text[p->at] == '#' && (p->at + 1 == p->bytes || !is_digit(p->text[p->at + 1]));
}

static void skip(struct parser *p)
{
	while (p->at < p->bytes && is_blank(p->text[p->at]))
		p->at++;
	if (p->at < p->bytes && begins_comment(p))
		while (p->at < p->bytes && p->text[p->at] != '\n')
			p->at++;
}

static void advance(struct parser *p)
{
	p->end = p->token.at + p->token.bytes;
	skip(p);
	size_t from = p->at;
	while (p->at < p->bytes && !is_blank(p->text[p->at]) && !ends_clause(p->text[p->at]))
		p->at++;
	p->token = (struct token){ from, p->at - from };
}

static bool token_is(const struct parser *p, const char *word)
{
	return p->token.bytes && vb_fault_word_is(word, p->text + p->token.at, p->token.bytes);
}

/* The part of a token behind "name="; bytes 0: it is another one, or nothing follows. */
static struct token value_of(const struct parser *p, const char *name)
{
	size_t n = strlen(name);
	struct token t = p->token;
	if (t.bytes <= n || p->text[t.at + n] != '=' || !vb_fault_word_is(name, p->text + t.at, n))
		return (struct token){ t.at, 0 };
	return (struct token){ t.at + n + 1, t.bytes - n - 1 };
}

/* ---- numbers ---- */

/* Digits from *t on, which moves behind them. False: there are none, or too many. */
static bool take_number(const struct parser *p, struct token *t, uint64_t *v)
{
	const uint64_t most = 1000000000000;
	size_t from = t->at;
	for (*v = 0; t->bytes && is_digit(p->text[t->at]) && *v < most; t->at++, t->bytes--)
		*v = *v * 10 + (uint64_t)(p->text[t->at] - '0');
	return t->at > from && *v < most;
}

/* A decimal fraction in units of 1 / scale, a power of ten; further places count as nothing. */
static bool take_decimal(const struct parser *p, struct token *t, uint64_t scale, uint64_t *v)
{
	if (!take_number(p, t, v))
		return false;
	*v *= scale;
	if (!t->bytes || p->text[t->at] != '.')
		return true;
	size_t from = ++t->at;
	for (t->bytes--; t->bytes && is_digit(p->text[t->at]); t->at++, t->bytes--)
		*v += (scale /= 10) * (uint64_t)(p->text[t->at] - '0');
	return t->at > from;
}

/* All of a token. */
static bool is_number(const struct parser *p, struct token t, uint64_t *v)
{
	return take_number(p, &t, v) && !t.bytes;
}

static bool take_time(const struct parser *p, struct token *t, uint64_t *ns)
{
	static const struct {
		const char *unit;
		uint64_t us;
	} units[] = { { "us", 1 }, { "ms", 1000 }, { "s", 1000000 }, { "min", 60000000 } };
	const uint64_t day_us = 86400000000;
	uint64_t thousandths;
	if (!take_decimal(p, t, 1000, &thousandths))
		return false;
	size_t n = 0;
	while (n < t->bytes && p->text[t->at + n] != '-')
		n++;
	for (size_t i = 0; i < VB_ARRAY_LEN(units); i++) {
		if (!vb_fault_word_is(units[i].unit, p->text + t->at, n))
			continue;
		t->at += n;
		t->bytes -= n;
		*ns = thousandths * units[i].us;
		return thousandths / 1000 <= day_us / units[i].us;
	}
	return false;
}

static const char bad_time[] = "a time is a number with a unit: 200us, 10ms, 1.5s, 2min; up to a day";

/* All of the next token. */
static int parse_time(struct parser *p, uint64_t *ns)
{
	struct token t = p->token;
	if (!take_time(p, &t, ns) || t.bytes)
		return wrong(p, p->token, bad_time);
	advance(p);
	return 0;
}

static const char no_time[] = "nothing happens in no time: more than 0 is expected here";

/* The same of what lasts. */
static int parse_duration(struct parser *p, uint64_t *ns)
{
	struct token t = p->token;
	int err = parse_time(p, ns);
	return !err && !*ns ? wrong(p, t, no_time) : err;
}

static int parse_delay(struct parser *p, struct vb_fault_rule *r)
{
	struct token t = p->token;
	if (!take_time(p, &t, &r->time_ns))
		return wrong(p, p->token, bad_time);
	r->time_max_ns = r->time_ns;
	if (t.bytes && p->text[t.at] == '-') {
		t.at++;
		t.bytes--;
		if (!take_time(p, &t, &r->time_max_ns) || r->time_max_ns < r->time_ns)
			return wrong(p, p->token, "between two times, the smaller one first: 1ms-5ms");
	}
	if (t.bytes)
		return wrong(p, p->token, bad_time);
	if (!r->time_max_ns)
		return wrong(p, p->token, no_time);
	advance(p);
	return 0;
}

/* ---- which ---- */

/* Behind the '#': 5, 5-9 or 5+. */
static int parse_range(struct parser *p, struct token t, struct vb_fault_rule *r)
{
	bool good = take_number(p, &t, &r->first);
	r->last = r->first;
	if (good && t.bytes == 1 && p->text[t.at] == '+') {
		t.bytes = 0;
		r->last = VB_FAULT_FOREVER;
	} else if (good && t.bytes && p->text[t.at] == '-') {
		t.at++;
		t.bytes--;
		good = take_number(p, &t, &r->last);
	}
	if (!good || t.bytes || !r->first || r->last < r->first)
		return wrong(p, p->token, "numbers count from 1: #5, #5-9, #5+");
	r->how = VB_FAULT_RANGE;
	advance(p);
	return 0;
}

static int parse_share(struct parser *p, struct vb_fault_rule *r)
{
	enum { PER_CENT = 10000, ALL = 100 * PER_CENT };
	struct token t = p->token;
	bool good = take_decimal(p, &t, PER_CENT, &r->first) && t.bytes == 1 && p->text[t.at] == '%';
	if (!good || !r->first || r->first > ALL)
		return wrong(p, p->token, "a share is more than 0% and up to 100%, in steps of 0.0001%");
	r->how = VB_FAULT_SHARE;
	advance(p);
	return 0;
}

static int parse_every(struct parser *p, struct vb_fault_rule *r)
{
	advance(p);
	if (!is_number(p, p->token, &r->first) || !r->first)
		return wrong(p, p->token, "'every' needs a number: every 10");
	r->how = VB_FAULT_EVERY;
	advance(p);
	return 0;
}

static bool is_share(const struct parser *p)
{
	return p->token.bytes && is_digit(p->text[p->token.at]) &&
	       p->text[p->token.at + p->token.bytes - 1] == '%';
}

/* ---- words ---- */

static int parse_word(struct parser *p, const struct vb_fault_words *words, int *value, const char *why)
{
	const struct vb_fault_word *w =
		p->token.bytes ? vb_fault_word_find(words, p->text + p->token.at, p->token.bytes) : NULL;
	if (!w)
		return wrong(p, p->token, why);
	*value = w->value;
	advance(p);
	return 0;
}

static int parse_verb(struct parser *p, struct vb_fault_rule *r)
{
	r->verb = p->token.bytes ? vb_fault_verb_find(p->text + p->token.at, p->token.bytes) : NULL;
	if (!r->verb)
		return wrong(
			p, p->token,
			"a call such as ibv_reg_mr or rdma_connect is expected here (verbatim faults --words lists them)");
	advance(p);
	return 0;
}

static int parse_errno(struct parser *p, struct vb_fault_rule *r)
{
	enum { MOST = 4095 };
	uint64_t v;
	if (!is_number(p, p->token, &v))
		return parse_word(p, &vb_fault_errnos, &r->value,
				  "an errno such as ENOMEM, or its number, is expected here");
	if (!v || v > MOST)
		return wrong(p, p->token, "errno values are from 1 to 4095");
	r->value = (int)v;
	advance(p);
	return 0;
}

/* It may be left out, as it is the consumer's by default. */
static int parse_reason(struct parser *p, struct vb_fault_rule *r)
{
	enum { CONSUMER = 28, MOST = 65535 };
	uint64_t v;
	r->value = CONSUMER;
	if (p->token.bytes && is_number(p, p->token, &v)) {
		if (!v || v > MOST)
			return wrong(p, p->token, "reasons are from 1 to 65535");
		r->value = (int)v;
		advance(p);
	} else if (p->token.bytes &&
		   vb_fault_word_find(&vb_fault_reasons, p->text + p->token.at, p->token.bytes)) {
		return parse_word(p, &vb_fault_reasons, &r->value, "");
	}
	return 0;
}

static int parse_need(struct parser *p, enum need need, struct vb_fault_rule *r)
{
	int value = 0, err = 0;
	switch (need) {
	case NOTHING:
		break;
	case A_DELAY:
		return parse_delay(p, r);
	case A_TIME:
		return parse_duration(p, &r->time_ns);
	case A_VERB:
		return parse_verb(p, r);
	case AN_ERRNO:
		return parse_errno(p, r);
	case A_COMPLETION:
		err = parse_word(p, &vb_fault_completion_words, &value,
				 "any, send, write, read, atomic or recv is expected here");
		r->of = (uint32_t)value;
		break;
	case A_STATUS:
		return parse_word(p, &vb_fault_statuses, &r->value,
				  "an error status such as LOC_PROT_ERR is expected here");
	case AN_EVENT:
		return parse_word(p, &vb_fault_events, &r->value,
				  "an event of port or device such as PORT_ERR is expected here");
	case A_MESSAGE:
		return parse_word(p, &vb_fault_messages, &r->value,
				  "REQ, REP, RTU, REJ, MRA, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP or APR is "
				  "expected here");
	case MAYBE_A_REASON:
		return parse_reason(p, r);
	case DOWN:
		if (!token_is(p, "down"))
			return wrong(p, p->token, "'link' needs 'down'; with 'for TIME' it comes up again");
		advance(p);
		break;
	}
	return err;
}

/* ---- options ---- */

static int parse_peer(struct parser *p, struct token v, struct vb_fault_rule *r)
{
	char text[INET6_ADDRSTRLEN] = "";
	uint8_t v4[12] = { [10] = 0xff, [11] = 0xff };
	if (v.bytes < sizeof(text))
		memcpy(text, p->text + v.at, v.bytes);
	r->has_peer = true;
	if (inet_pton(AF_INET6, text, r->peer) != 1) {
		memcpy(r->peer, v4, sizeof(v4));
		if (inet_pton(AF_INET, text, r->peer + sizeof(v4)) != 1)
			return wrong(p, v, "an IPv4 or IPv6 address is expected here");
	}
	advance(p);
	return 0;
}

static int parse_qp(struct parser *p, struct token v, struct vb_fault_rule *r)
{
	uint64_t n;
	if (!is_number(p, v, &n) || !n || n >= VB_FAULT_OBJECTS)
		return wrong(p, v, "queue pairs are counted in the order of their creation, from 1 to 4096");
	r->qp = (uint32_t)n;
	advance(p);
	return 0;
}

static int parse_port(struct parser *p, struct token v, struct vb_fault_rule *r)
{
	uint64_t n;
	if (!is_number(p, v, &n) || !n || n > UINT16_MAX)
		return wrong(p, v, "ports are from 1 to 65535");
	r->port = (uint16_t)n;
	advance(p);
	return 0;
}

static int parse_device(struct parser *p, struct token v, struct vb_fault_rule *r)
{
	if (v.bytes >= sizeof(r->device))
		return wrong(p, v, "no device has so long a name");
	memcpy(r->device, p->text + v.at, v.bytes);
	advance(p);
	return 0;
}

static int parse_times(struct parser *p, struct vb_fault_rule *r)
{
	advance(p);
	if (!is_number(p, p->token, &r->times) || !r->times)
		return wrong(p, p->token, "'times' needs a number: times 3");
	advance(p);
	return 0;
}

static int parse_of(struct parser *p, struct vb_fault_rule *r)
{
	int value = 0;
	advance(p);
	int err = parse_word(p, &vb_fault_packet_words, &value,
			     "data, request, send, write, read, atomic, ack, cm or all is expected here");
	r->of = (uint32_t)value;
	return err;
}

static int parse_after(struct parser *p, struct vb_fault_rule *r)
{
	advance(p);
	r->has_after = true;
	return parse_time(p, &r->after_ns);
}

static int parse_for(struct parser *p, struct vb_fault_rule *r)
{
	advance(p);
	return parse_duration(p, &r->time_ns);
}

static int parse_at(struct parser *p, struct vb_fault_rule *r)
{
	advance(p);
	return parse_verb(p, r);
}

/* Which option is the next token? 0: none. */
static unsigned option_of(const struct parser *p, struct token *value)
{
	static const struct {
		const char *word;
		unsigned option;
		bool has_value;
	} words[] = {
		{ "every", WHICH, false }, { "in", WAY, false }, { "out", WAY, false }, { "of", OF, false }, { "after", AFTER, false },
		{ "times", TIMES, false }, { "for", FOR, false }, { "at", AT, false }, { "qp", QP, true }, { "peer", PEER, true },
		{ "port", PORT, true }, { "device", DEVICE, true },
	};
	if (p->text[p->token.at] == '#' || is_share(p))
		return WHICH;
	for (size_t i = 0; i < VB_ARRAY_LEN(words); i++) {
		*value = value_of(p, words[i].word);
		if (words[i].has_value ? value->bytes != 0 : token_is(p, words[i].word))
			return words[i].option;
	}
	return 0;
}

static int parse_which(struct parser *p, struct vb_fault_rule *r)
{
	struct token t = p->token;
	r->has_which = true;
	if (token_is(p, "every"))
		return parse_every(p, r);
	if (is_share(p))
		return parse_share(p, r);
	return parse_range(p, (struct token){ t.at + 1, t.bytes - 1 }, r);
}

static int parse_option(struct parser *p, unsigned option, struct token value, struct vb_fault_rule *r)
{
	switch (option) {
	case WHICH:
		return parse_which(p, r);
	case WAY:
		r->direction = token_is(p, "in") ? VB_FAULT_IN : VB_FAULT_OUT;
		advance(p);
		return 0;
	case OF:
		return parse_of(p, r);
	case QP:
		return parse_qp(p, value, r);
	case PEER:
		return parse_peer(p, value, r);
	case PORT:
		return parse_port(p, value, r);
	case DEVICE:
		return parse_device(p, value, r);
	case AFTER:
		return parse_after(p, r);
	case TIMES:
		return parse_times(p, r);
	case FOR:
		return parse_for(p, r);
	}
	return parse_at(p, r);
}

static int parse_options(struct parser *p, struct vb_fault_rule *r)
{
	struct token value = { 0 };
	while (p->token.bytes) {
		struct token t = p->token;
		unsigned option = option_of(p, &value);
		if (!option && is_digit(p->text[t.at]))
			return wrong(
				p, t,
				"a number by itself says nothing: #5 is the fifth, 5% are five of a hundred, qp=5 and port=5 are names");
		if (!option)
			return wrong(p, t, "this word is not understood here");
		if (!(kinds[r->kind].options & option))
			return wrong(p, t, "this fault does not take that");
		if (p->said & option)
			return wrong(p, t, "this is said twice");
		p->said |= option;
		int err = parse_option(p, option, value, r);
		if (err)
			return err;
	}
	return 0;
}

/* ---- clauses ---- */

/* What only the whole clause shows. */
static int check_rule(struct parser *p, struct vb_fault_rule *r)
{
	struct token whole = { r->at, r->bytes };
	bool is_action = vb_fault_site_of(r->kind) == VB_FAULT_TRIGGER;
	bool is_of_cm = vb_fault_site_of(r->kind) == VB_FAULT_PACKET && r->of == VB_FAULT_OF_CM;
	if (r->qp && r->verb && !r->verb->of_qp)
		return wrong(
			p, whole,
			"qp= needs a call that is counted for each queue pair: ibv_post_send, ibv_post_recv, ibv_wr_complete, "
			"ibv_modify_qp, ibv_query_qp or ibv_destroy_qp");
	if (is_action && !r->verb && (p->said & (WHICH | QP | TIMES)))
		return wrong(p, whole, "what is counted? Say 'at CALL', or 'after TIME' alone");
	if (r->kind == VB_FAULT_REFUSE && !(p->said & WAY))
		r->direction = VB_FAULT_BOTH;
	if (is_action && r->verb && !r->has_which) {
		r->how = VB_FAULT_RANGE;
		r->first = r->last = 1;
		r->times = r->times ? r->times : 1; /* of whichever queue pair */
	}
	if (is_of_cm && r->direction == VB_FAULT_IN)
		return wrong(
			p, whole,
			"of what comes in, 'lose' takes the connection manager's messages; 'of cm' is for what goes out");
	if (is_of_cm && r->qp)
		return wrong(p, whole, "the connection manager's packets are no queue pair's: without qp=");
	return 0;
}

static int parse_rule(struct parser *p, struct vb_fault_plan *plan)
{
	struct token word = p->token;
	int kind, err = 0;
	if (parse_word(p, &vb_fault_kind_words, &kind,
		       "no such fault: drop, delay, duplicate, reorder, corrupt, freeze, stall, fail, "
		       "complete, rnr, link, event, lose, refuse or vanish is expected here, or seed"))
		return -EINVAL;
	if (plan->count == VB_FAULT_RULES)
		return wrong(p, word, "that is more than 32 faults");
	struct vb_fault_rule r = { .kind = (uint8_t)kind,
				   .time_ns = VB_FAULT_FOREVER,
				   .at = (uint32_t)word.at };
	p->said = 0;
	for (unsigned i = 0; i < VB_ARRAY_LEN(kinds[kind].needs) && !err; i++)
		err = parse_need(p, kinds[kind].needs[i], &r);
	if (!err)
		err = parse_options(p, &r);
	r.bytes = (uint32_t)(p->end - word.at);
	if (!err)
		err = check_rule(p, &r);
	if (!err)
		plan->rules[plan->count++] = r;
	return err;
}

static int parse_seed(struct parser *p, struct vb_fault_plan *plan)
{
	struct token value = value_of(p, "seed");
	if (p->has_seed)
		return wrong(p, p->token, "this is said twice");
	p->has_seed = true;
	if (!value.bytes) {
		advance(p);
		value = p->token;
	}
	if (!is_number(p, value, &plan->seed))
		return wrong(p, value, "a seed is a number of at most 12 digits: seed=7");
	advance(p);
	return p->token.bytes ? wrong(p, p->token, "nothing else stands behind a seed: a ';' is missing") : 0;
}

static bool is_seed(const struct parser *p)
{
	return token_is(p, "seed") || value_of(p, "seed").bytes;
}

int vb_fault_parse(const char *text, size_t bytes, struct vb_fault_plan *plan, struct vb_fault_error *error)
{
	struct parser p = { .text = text, .bytes = bytes, .error = error };
	int err = 0;
	*plan = (struct vb_fault_plan){ .seed = 1 };
	if (bytes > VB_FAULT_TEXT_BYTES)
		return wrong(&p, (struct token){ VB_FAULT_TEXT_BYTES, 0 }, "that is more than 4096 bytes");
	while (!err && p.at < bytes) {
		advance(&p);
		if (p.token.bytes)
			err = is_seed(&p) ? parse_seed(&p, plan) : parse_rule(&p, plan);
		p.at += p.at < bytes; /* what ends the clause */
	}
	return err;
}
