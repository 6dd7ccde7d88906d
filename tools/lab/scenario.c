/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/nanoseconds.h"
#include "scenario.h"

struct reader {
	struct lab_scenario *scenario;
	struct lab_links links; /* on which settings are tried */
	const char *file;
	char *why;
};

/* Takes the value of a key into `into`; false after a reason. */
typedef bool taker(struct reader *r, const struct lab_toml *value, void *into);

struct key {
	const char *name;
	taker *take;
	size_t where; /* in what is taken */
};

/* ---- values ---- */

__attribute__((format(printf, 4, 5)))
static void explain(struct reader *r, const struct lab_toml *value, const char *key, const char *fmt, ...)
{
	size_t n = (size_t)snprintf(r->why, LAB_TEXT_BYTES, "%.400s:%u: %s%.60s%s", r->file, value->line,
				    key ? "'" : "", key ? key : "", key ? "': " : "");
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->why + n, LAB_TEXT_BYTES - n, fmt, args);
	va_end(args);
}

/* What is wrong with a value, and of which key; false. */
#define REFUSE_AS(r, value, key, ...) (explain(r, value, key, __VA_ARGS__), false)
/* The same of a value that has its key: those of an array have none. */
#define REFUSE(r, value, ...) REFUSE_AS(r, value, (value)->key, __VA_ARGS__)

static const struct lab_toml *find(const struct lab_toml *table, const char *key)
{
	for (size_t i = 0; i < table->count; i++)
		if (strcmp(table->items[i].key, key) == 0)
			return &table->items[i];
	return NULL;
}

static bool is_one_of(const char *name, const struct key *keys)
{
	while (keys->name && strcmp(keys->name, name) != 0)
		keys++;
	return keys->name;
}

/* Takes the keys that are there, in the order of the list. */
static bool take_table(struct reader *r, const struct lab_toml *table, const struct key *keys, void *into)
{
	const struct lab_toml *value;

	if (table->kind != LAB_TOML_TABLE)
		return REFUSE(r, table, "this is no table");
	for (size_t i = 0; i < table->count; i++)
		if (!is_one_of(table->items[i].key, keys))
			return REFUSE(r, &table->items[i], "there is no such key here");
	for (; keys->name; keys++) {
		value = find(table, keys->name);
		if (value && !keys->take(r, value, (char *)into + keys->where))
			return false;
	}
	return true;
}

/* It may be empty. */
static bool take_string(struct reader *r, const struct lab_toml *value, void *into)
{
	if (value->kind != LAB_TOML_STRING)
		return REFUSE(r, value, "a text is wanted, in quotes");
	*(const char **)into = value->text;
	return true;
}

static bool take_text(struct reader *r, const struct lab_toml *value, void *into)
{
	if (!take_string(r, value, into))
		return false;
	return *value->text || REFUSE(r, value, "this text is empty");
}

static bool take_number(struct reader *r, const struct lab_toml *value, unsigned least, unsigned most,
			unsigned *into)
{
	if (value->kind != LAB_TOML_INTEGER || value->number < least || value->number > most)
		return REFUSE(r, value, "a number from %u to %u is wanted", least, most);
	*into = (unsigned)value->number;
	return true;
}

static bool take_time(struct reader *r, const struct lab_toml *value, void *into)
{
	if (value->kind != LAB_TOML_STRING || !lab_time_parse(value->text, into))
		return REFUSE(r, value, "a time is a text with a unit, such as \"500ms\" or \"2s\"");
	return true;
}

static bool take_limit(struct reader *r, const struct lab_toml *value, void *into)
{
	if (!take_time(r, value, into))
		return false;
	return *(uint64_t *)into > 0 || REFUSE(r, value, "a limit is more than nothing");
}

static bool take_flag(struct reader *r, const struct lab_toml *value, void *into)
{
	if (value->kind != LAB_TOML_BOOLEAN)
		return REFUSE(r, value, "true or false is wanted");
	*(bool *)into = value->number;
	return true;
}

/* A text, or several: the list points to them, with NULL behind the last one. */
static bool take_texts(struct reader *r, const struct lab_toml *value, void *into)
{
	const struct lab_toml *items = value->kind == LAB_TOML_ARRAY ? value->items : value;
	size_t count = value->kind == LAB_TOML_ARRAY ? value->count : 1;
	const char **texts = calloc(count + 1, sizeof(*texts));

	*(const char ***)into = texts;
	for (size_t i = 0; texts && i < count; i++)
		if (!take_string(r, &items[i], &texts[i]))
			return false;
	return texts || REFUSE(r, value, "out of memory");
}

/* ---- patterns ---- */

static bool add_pattern(struct reader *r, const struct lab_toml *value, struct lab_patterns *patterns)
{
	struct lab_pattern *p = &patterns->list[patterns->count];
	int error;

	if (!take_text(r, value, &p->text))
		return false;
	error = regcomp(&p->regex, p->text, REG_EXTENDED);
	if (error) {
		char text[128];
		regerror(error, &p->regex, text, sizeof(text));
		return REFUSE(r, value, "this is no regular expression: %s", text);
	}
	patterns->count++;
	return true;
}

/* One or several. */
static bool take_patterns(struct reader *r, const struct lab_toml *value, void *into)
{
	const struct lab_toml *items = value->kind == LAB_TOML_ARRAY ? value->items : value;
	size_t count = value->kind == LAB_TOML_ARRAY ? value->count : 1;
	struct lab_patterns *patterns = into;

	patterns->list = calloc(count + 1, sizeof(*patterns->list));
	for (size_t i = 0; patterns->list && i < count; i++)
		if (!add_pattern(r, &items[i], patterns))
			return false;
	return patterns->list || REFUSE(r, value, "out of memory");
}

static void free_patterns(struct lab_patterns *patterns)
{
	for (unsigned i = 0; i < patterns->count; i++)
		regfree(&patterns->list[i].regex);
	free(patterns->list);
}

bool lab_matches(const struct lab_pattern *pattern, const char *text, size_t size, bool is_whole)
{
	regmatch_t range = { 0, (regoff_t)size };

	return regexec(&pattern->regex, text, 1, &range, REG_STARTEND | (is_whole ? 0 : REG_NOTEOL)) == 0;
}

/* ---- signals ---- */

static const struct {
	const char *name;
	int number;
} signals[] = {
	{ "HUP", SIGHUP }, { "INT", SIGINT }, { "QUIT", SIGQUIT }, { "ILL", SIGILL }, { "TRAP", SIGTRAP },
	{ "ABRT", SIGABRT }, { "BUS", SIGBUS }, { "FPE", SIGFPE }, { "KILL", SIGKILL }, { "USR1", SIGUSR1 },
	{ "SEGV", SIGSEGV }, { "USR2", SIGUSR2 }, { "PIPE", SIGPIPE }, { "ALRM", SIGALRM },
	{ "TERM", SIGTERM }, { "CONT", SIGCONT }, { "STOP", SIGSTOP }, { "XCPU", SIGXCPU }, { "SYS", SIGSYS },
};

int lab_signal_number(const char *name)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(signals); i++)
		if (strcmp(signals[i].name, name) == 0)
			return signals[i].number;
	return -1;
}

const char *lab_signal_name(int number)
{
	for (size_t i = 0; i < VB_ARRAY_LEN(signals); i++)
		if (signals[i].number == number)
			return signals[i].name;
	return NULL;
}

/* ---- the lab ---- */

static bool name_hosts(struct reader *r, const struct lab_toml *value, unsigned hosts, char *const *names)
{
	char why[LAB_WHY_BYTES];

	return lab_topology_open(&r->scenario->plan.topology, hosts, names, why) ||
	       REFUSE(r, value, "%s", why);
}

/* Their number, or their names. */
static bool take_hosts(struct reader *r, const struct lab_toml *value, void *into)
{
	char **names = NULL;
	unsigned hosts;
	bool taken;

	if (value->kind != LAB_TOML_ARRAY)
		return take_number(r, value, 1, LAB_HOSTS_MAX, &hosts) && name_hosts(r, value, hosts, NULL);
	if (value->count == 0 || value->count > LAB_HOSTS_MAX)
		return REFUSE(r, value, "a lab has 1 to %d hosts", LAB_HOSTS_MAX);
	taken = take_texts(r, value, &names) && name_hosts(r, value, (unsigned)value->count, names);
	free(names);
	return taken;
}

static bool add_links(struct reader *r, const struct lab_toml *list, char why[LAB_WHY_BYTES])
{
	struct lab_topology *topology = &r->scenario->plan.topology;
	const char *text;

	for (size_t i = 0; i < list->count; i++) {
		if (!take_text(r, &list->items[i], &text))
			return false;
		if (!lab_topology_add(topology, text, why))
			return REFUSE_AS(r, &list->items[i], list->key, "%s", why);
	}
	return lab_topology_is_whole(topology, why) || REFUSE(r, list, "%s", why);
}

/* A shape, or a list of links. */
static bool take_topology(struct reader *r, const struct lab_toml *value, void *into)
{
	char why[LAB_WHY_BYTES];
	const char *shape;

	if (value->kind == LAB_TOML_ARRAY)
		return add_links(r, value, why);
	return take_text(r, value, &shape) &&
	       (lab_topology_shape(&r->scenario->plan.topology, shape, why) || REFUSE(r, value, "%s", why));
}

static bool take_mtu(struct reader *r, const struct lab_toml *value, void *into)
{
	return take_number(r, value, LAB_MTU_MIN, LAB_MTU_MAX, into);
}

static bool take_seed(struct reader *r, const struct lab_toml *value, void *into)
{
	if (value->kind != LAB_TOML_INTEGER || value->number < 0)
		return REFUSE(r, value, "a number is wanted, 0 or more");
	*(uint64_t *)into = (uint64_t)value->number;
	return true;
}

/* Hosts that nothing else is said of are joined as a star. */
static bool complete_topology(struct reader *r, const struct lab_toml *value)
{
	struct lab_topology *topology = &r->scenario->plan.topology;
	char why[LAB_WHY_BYTES];

	if (r->links.topology)
		return true;
	if (topology->nodes == topology->hosts && !lab_topology_shape(topology, "star", why))
		return REFUSE_AS(r, value, "topology", "%s", why);
	return lab_links_open(&r->links, topology) || REFUSE_AS(r, value, NULL, "out of memory");
}

static bool try_setting(struct reader *r, const struct lab_toml *value, const char *key, const char *text)
{
	char why[LAB_WHY_BYTES] = "";

	if (!complete_topology(r, value))
		return false;
	return lab_links_order(&r->links, text, why) || REFUSE_AS(r, value, key, "%s", why);
}

static bool take_settings(struct reader *r, const struct lab_toml *value, void *into)
{
	char **settings;

	if (!take_texts(r, value, into))
		return false;
	settings = *(char ***)into;
	for (size_t i = 0; settings[i]; i++)
		if (!try_setting(r, value->kind == LAB_TOML_ARRAY ? &value->items[i] : value, value->key,
				 settings[i]))
			return false;
	return true;
}

/* ---- when ---- */

/* The number of the program with a name; -1: there is none. */
static int program_named(const struct lab_scenario *s, const char *name)
{
	for (unsigned i = 0; i < s->n_programs; i++)
		if (strcmp(s->programs[i].name, name) == 0)
			return (int)i;
	return -1;
}

static bool find_program(struct reader *r, const struct lab_toml *value, const char *name, unsigned *program)
{
	int found = program_named(r->scenario, name);

	*program = (unsigned)found;
	return found >= 0 || REFUSE(r, value, "there is no program '%.60s'", name);
}

static bool take_cause(struct reader *r, const struct lab_toml *value, enum lab_cause cause,
		       struct lab_when *when)
{
	const char *name;

	if (when->cause != LAB_FROM_THE_BEGINNING)
		return REFUSE(r, value, "one of 'starts', 'ends' and 'program' with 'prints' is wanted");
	when->cause = cause;
	return take_text(r, value, &name) && find_program(r, value, name, &when->program);
}

static bool take_starts(struct reader *r, const struct lab_toml *value, void *into)
{
	return take_cause(r, value, LAB_AFTER_START, into);
}

static bool take_ends(struct reader *r, const struct lab_toml *value, void *into)
{
	return take_cause(r, value, LAB_AFTER_END, into);
}

static bool take_printer(struct reader *r, const struct lab_toml *value, void *into)
{
	return take_cause(r, value, LAB_AFTER_TEXT, into);
}

static bool take_prints(struct reader *r, const struct lab_toml *value, void *into)
{
	if (value->kind != LAB_TOML_STRING)
		return REFUSE(r, value, "a text is wanted, in quotes");
	return take_patterns(r, value, into);
}

static bool take_after(struct reader *r, const struct lab_toml *value, void *into)
{
	static const struct key keys[] = {
		{ "starts", take_starts }, { "ends", take_ends }, { "program", take_printer },
		{ "prints", take_prints, offsetof(struct lab_when, text) }, { NULL },
	};
	struct lab_when *when = into;

	if (!take_table(r, value, keys, when))
		return false;
	if (when->cause == LAB_FROM_THE_BEGINNING || (when->cause == LAB_AFTER_TEXT) != when->text.count)
		return REFUSE(r, value, "one of 'starts', 'ends' and 'program' with 'prints' is wanted");
	return true;
}

/* ---- programs ---- */

static bool take_name(struct reader *r, const struct lab_toml *value, void *into)
{
	if (!take_text(r, value, into))
		return false;
	return lab_is_name(value->text) ||
	       REFUSE(r, value, "a name has letters, digits, '-' and '_', and at most %d", LAB_NAME_BYTES - 1);
}

static bool take_host(struct reader *r, const struct lab_toml *value, void *into)
{
	const char *name;
	int host;

	if (!take_text(r, value, &name))
		return false;
	host = lab_find_host(&r->scenario->plan, name);
	if (host < 0)
		return REFUSE(r, value, "the lab has no host '%.60s'", name);
	*(unsigned *)into = (unsigned)host;
	return true;
}

/* A list of words; or one text, which is the shell's. */
static bool take_command(struct reader *r, const struct lab_toml *value, void *into)
{
	char **words, ***argv = into;

	if (!take_texts(r, value, argv))
		return false;
	if (!(*argv)[0] || !*(*argv)[0])
		return REFUSE(r, value, "a program is wanted");
	if (value->kind == LAB_TOML_ARRAY)
		return true;
	words = calloc(4, sizeof(*words));
	if (!words)
		return REFUSE(r, value, "out of memory");
	words[0] = "/bin/sh";
	words[1] = "-c";
	words[2] = (*argv)[0];
	free(*argv);
	*argv = words;
	return true;
}

static bool add_variable(struct reader *r, const struct lab_toml *value, char **variable)
{
	if (value->kind != LAB_TOML_STRING)
		return REFUSE(r, value, "a text is wanted, in quotes");
	if (!*value->key || strchr(value->key, '='))
		return REFUSE(r, value, "no variable has such a name");
	if (asprintf(variable, "%s=%s", value->key, value->text) >= 0)
		return true;
	*variable = NULL;
	return REFUSE(r, value, "out of memory");
}

static bool take_environment(struct reader *r, const struct lab_toml *value, void *into)
{
	char **variables;

	if (value->kind != LAB_TOML_TABLE)
		return REFUSE(r, value, "this is no table");
	variables = *(char ***)into = calloc(value->count + 1, sizeof(*variables));
	for (size_t i = 0; variables && i < value->count; i++)
		if (!add_variable(r, &value->items[i], &variables[i]))
			return false;
	return variables || REFUSE(r, value, "out of memory");
}

static bool take_exit(struct reader *r, const struct lab_toml *value, void *into)
{
	struct lab_end *expected = into;
	unsigned status;

	if (value->kind == LAB_TOML_STRING && strcmp(value->text, "any") == 0) {
		expected->kind = LAB_END_ANY;
		return true;
	}
	if (value->kind != LAB_TOML_INTEGER || !take_number(r, value, 0, 255, &status))
		return REFUSE(r, value, "a number from 0 to 255 is wanted, or \"any\"");
	*expected = (struct lab_end){ LAB_END_EXIT, (int)status };
	return true;
}

static bool take_signal(struct reader *r, const struct lab_toml *value, void *into)
{
	struct lab_end *expected = into;
	const char *name;
	int number;

	if (expected->kind != LAB_END_NONE)
		return REFUSE(r, value, "a program ends by an exit status or by a signal, not by both");
	if (!take_text(r, value, &name))
		return false;
	number = lab_signal_number(name);
	if (number < 0)
		return REFUSE(r, value, "there is no signal '%.60s'; \"KILL\" is one", name);
	*expected = (struct lab_end){ LAB_END_SIGNAL, number };
	return true;
}

#define PROGRAM(key, take, field) { key, take, offsetof(struct lab_program, field) }

static bool take_program(struct reader *r, const struct lab_toml *table, struct lab_program *program)
{
	static const struct key keys[] = {
		PROGRAM("name", take_name, name),
		PROGRAM("host", take_host, host),
		PROGRAM("command", take_command, argv),
		PROGRAM("environment", take_environment, environment),
		PROGRAM("at", take_time, when.at_ns),
		PROGRAM("after", take_after, when),
		PROGRAM("daemon", take_flag, is_daemon),
		PROGRAM("exit", take_exit, expected),
		PROGRAM("signal", take_signal, expected),
		PROGRAM("output", take_patterns, output),
		PROGRAM("absent", take_patterns, absent),
		PROGRAM("limit", take_limit, limit_ns),
		{ NULL },
	};
	enum { NEEDED = 3 };

	if (!take_table(r, table, keys, program))
		return false;
	for (int i = 0; i < NEEDED; i++)
		if (!find(table, keys[i].name))
			return REFUSE_AS(r, table, "program", "'%s' is missing", keys[i].name);
	if (program->is_daemon && program->limit_ns)
		return REFUSE(r, find(table, "limit"), "nobody waits for the end of a daemon");
	if (program->expected.kind == LAB_END_NONE)
		program->expected.kind = LAB_END_EXIT;
	return true;
}

/* Programs refer to each other: their names come first. */
static bool take_names(struct reader *r, const struct lab_toml *list)
{
	struct lab_scenario *s = r->scenario;

	for (size_t i = 0; i < list->count; i++) {
		const struct lab_toml *table = &list->items[i];
		const struct lab_toml *name = table->kind == LAB_TOML_TABLE ? find(table, "name") : NULL;
		if (!name)
			return REFUSE_AS(r, table, "program", "'name' is missing");
		if (!take_name(r, name, &s->programs[i].name))
			return false;
		if (program_named(s, name->text) >= 0)
			return REFUSE(r, name, "there is a program '%s' already", name->text);
		s->n_programs++;
	}
	return true;
}

static bool take_programs(struct reader *r, const struct lab_toml *value, void *into)
{
	struct lab_scenario *s = r->scenario;

	if (value->kind != LAB_TOML_ARRAY || value->count > LAB_PROGRAMS_MAX)
		return REFUSE(r, value, "up to %d tables are wanted: [[program]]", LAB_PROGRAMS_MAX);
	s->programs = calloc(value->count + 1, sizeof(*s->programs));
	if (!s->programs)
		return REFUSE(r, value, "out of memory");
	if (!take_names(r, value))
		return false;
	for (size_t i = 0; i < value->count; i++)
		if (!take_program(r, &value->items[i], &s->programs[i]))
			return false;
	return true;
}

/* ---- events ---- */

static const char *const event_words[] = {
	[LAB_EVENT_LINK] = "link", [LAB_EVENT_HOST] = "host", [LAB_EVENT_SIGNAL] = "signal",
};

const char *lab_event_word(enum lab_event_kind kind) { return event_words[kind]; }

static bool take_what(struct reader *r, const struct lab_toml *value, enum lab_event_kind kind,
		      struct lab_event *event)
{
	if (event->kind != LAB_EVENT_NONE)
		return REFUSE(r, value, "an event is one of 'link', 'host' and 'signal'");
	event->kind = kind;
	return take_text(r, value, &event->text);
}

static bool take_link_event(struct reader *r, const struct lab_toml *value, void *into)
{
	return take_what(r, value, LAB_EVENT_LINK, into) && try_setting(r, value, value->key, value->text);
}

/* The first word, and what follows it. */
static const char *cut_word(const char *text, char word[LAB_NAME_BYTES])
{
	size_t cut = strcspn(text, " ");

	snprintf(word, LAB_NAME_BYTES, "%.*s", (int)cut, text);
	return text + cut + strspn(text + cut, " ");
}

static bool take_host_event(struct reader *r, const struct lab_toml *value, void *into)
{
	char verb[LAB_NAME_BYTES];
	const char *host;

	if (!take_what(r, value, LAB_EVENT_HOST, into))
		return false;
	host = cut_word(value->text, verb);
	if (!lab_is_host_verb(verb))
		return REFUSE(r, value, "kill, start, pause or resume is wanted, and a host");
	return lab_find_host(&r->scenario->plan, host) >= 0 ||
	       REFUSE(r, value, "the lab has no host '%.60s'", host);
}

static bool take_signal_event(struct reader *r, const struct lab_toml *value, void *into)
{
	struct lab_event *event = into;
	char name[LAB_NAME_BYTES];
	const char *program;

	if (!take_what(r, value, LAB_EVENT_SIGNAL, event))
		return false;
	program = cut_word(value->text, name);
	event->signal = lab_signal_number(name);
	if (event->signal < 0)
		return REFUSE(r, value, "a signal is wanted, such as TERM, and a program");
	return find_program(r, value, program, &event->program);
}

static bool take_event(struct reader *r, const struct lab_toml *table, struct lab_event *event)
{
	static const struct key keys[] = {
		{ "at", take_time, offsetof(struct lab_event, when.at_ns) },
		{ "after", take_after, offsetof(struct lab_event, when) },
		{ "link", take_link_event },
		{ "host", take_host_event },
		{ "signal", take_signal_event },
		{ NULL },
	};

	event->line = table->line;
	if (!take_table(r, table, keys, event))
		return false;
	if (event->kind == LAB_EVENT_NONE)
		return REFUSE_AS(r, table, "event", "one of 'link', 'host' and 'signal' is missing");
	return find(table, "at") || find(table, "after") ||
	       REFUSE_AS(r, table, "event", "'at' or 'after' is missing");
}

static bool take_events(struct reader *r, const struct lab_toml *value, void *into)
{
	struct lab_scenario *s = r->scenario;

	if (value->kind != LAB_TOML_ARRAY)
		return REFUSE(r, value, "tables are wanted: [[event]]");
	s->events = calloc(value->count + 1, sizeof(*s->events));
	if (!s->events)
		return REFUSE(r, value, "out of memory");
	for (; s->n_events < value->count; s->n_events++)
		if (!take_event(r, &value->items[s->n_events], &s->events[s->n_events])) {
			s->n_events++; /* it has something to be freed */
			return false;
		}
	return true;
}

/* ---- the whole ---- */

#define SCENARIO(key, take, field) { key, take, offsetof(struct lab_scenario, field) }

static bool take_all(struct reader *r, const struct lab_toml *document)
{
	static const struct key keys[] = { /* what others need comes first */
		SCENARIO("hosts", take_hosts, plan.topology),
		SCENARIO("topology", take_topology, plan.topology),
		SCENARIO("mtu", take_mtu, plan.mtu),
		SCENARIO("seed", take_seed, plan.topology.seed),
		SCENARIO("limit", take_limit, limit_ns),
		SCENARIO("links", take_settings, plan.settings),
		SCENARIO("program", take_programs, programs),
		SCENARIO("event", take_events, events),
		{ NULL },
	};

	if (!find(document, "hosts"))
		return REFUSE_AS(r, document, "hosts", "is missing: their number, or their names");
	return take_table(r, document, keys, r->scenario) && complete_topology(r, document);
}

bool lab_scenario_parse(struct lab_scenario *s, const char *file, const char *text, size_t size,
			char why[LAB_TEXT_BYTES])
{
	struct reader r = { .scenario = s, .file = file, .why = why };
	char wrong[LAB_TEXT_BYTES / 2];
	unsigned line;
	bool taken;

	*s = (struct lab_scenario){ .plan.mtu = LAB_MTU, .limit_ns = LAB_LIMIT_S * VB_NS_PER_S };
	why[0] = '\0';
	s->document = lab_toml_parse(text, size, &line, wrong, sizeof(wrong));
	if (!s->document) {
		if (line)
			snprintf(why, LAB_TEXT_BYTES, "%.400s:%u: %s", file, line, wrong);
		else
			snprintf(why, LAB_TEXT_BYTES, "%.400s: %s", file, wrong);
		return false;
	}
	taken = take_all(&r, s->document);
	if (r.links.topology)
		lab_links_close(&r.links);
	return taken;
}

static void free_program(struct lab_program *program)
{
	for (char **variable = program->environment; variable && *variable; variable++)
		free(*variable);
	free(program->environment);
	free(program->argv);
	free_patterns(&program->when.text);
	free_patterns(&program->output);
	free_patterns(&program->absent);
}

void lab_scenario_free(struct lab_scenario *s)
{
	for (unsigned i = 0; i < s->n_programs; i++)
		free_program(&s->programs[i]);
	for (unsigned i = 0; i < s->n_events; i++)
		free_patterns(&s->events[i].when.text);
	free(s->programs);
	free(s->events);
	free(s->plan.settings);
	lab_topology_close(&s->plan.topology);
	lab_toml_free(s->document);
}
