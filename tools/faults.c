/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbatim faults: what can be broken on purpose, and what an expression says. Exit status 1: it cannot be
 * read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "row.h"

/* What may stand behind the word of a fault, with the words that are needed first. */
static const char *const forms[VB_FAULT_NKINDS] = {
	[VB_FAULT_DROP] = "PACKETS",
	[VB_FAULT_DELAY] = "TIME[-TIME] PACKETS",
	[VB_FAULT_DUPLICATE] = "PACKETS",
	[VB_FAULT_REORDER] = "PACKETS",
	[VB_FAULT_CORRUPT] = "PACKETS",
	[VB_FAULT_FREEZE] = "TIME WHEN",
	[VB_FAULT_STALL] = "TIME CALL [WHICH] [qp=N]",
	[VB_FAULT_FAIL] = "CALL ERRNO [WHICH] [qp=N]",
	[VB_FAULT_COMPLETE] = "any|send|write|read|atomic|recv STATUS [WHICH] [qp=N]",
	[VB_FAULT_RNR] = "[WHICH] [for TIME] [qp=N]",
	[VB_FAULT_LINK] = "down [for TIME] [device=NAME] WHEN",
	[VB_FAULT_EVENT] = "EVENT [device=NAME] WHEN",
	[VB_FAULT_LOSE] = "MESSAGE [WHICH] [in|out] [peer=IP]",
	[VB_FAULT_REFUSE] = "[REASON] [WHICH] [in|out] [peer=IP] [port=N]",
	[VB_FAULT_VANISH] = "[peer=IP] WHEN",
};

static void print_faults(void)
{
	static const char *const texts[] = {
#define X(kind, word, text) text,
		VB_FAULT_KINDS(X)
#undef X
	};
	printf("verbatim run --faults 'seed=7; drop 1%%; fail ibv_reg_mr ENOMEM #3' PROGRAM\n\n");
	for (unsigned i = 0; i < VB_FAULT_NKINDS; i++)
		printf("  %s %s\n      %s\n", vb_fault_word_of(&vb_fault_kind_words, (int)i), forms[i],
		       texts[i]);
	printf("\nWHICH    #5, #5-9, #5+ (counted), every 10, 1%% (by chance); all without it\n"
	       "PACKETS  [WHICH] [in|out] [of data|request|send|write|read|atomic|ack|cm|all] "
	       "[qp=N] [peer=IP]\n"
	       "WHEN     at CALL [WHICH] [qp=N], or after TIME; from the beginning on without it\n"
	       "All take 'after TIME', and those that count 'times N'. "
	       "verbatim faults --words lists calls and other words;\n"
	       "verbatim faults EXPRESSION says what an expression means; "
	       "verbatim-faults(7) is the manual.\n");
}

static void print_words(const char *title, const struct vb_fault_words *words)
{
	printf("%s:", title);
	for (unsigned i = 0; i < words->count; i++)
		printf(" %s", words->words[i].name);
	printf("\n");
}

static void print_all_words(void)
{
	printf("calls:");
	for (unsigned i = 0; i < vb_fault_nverbs; i++)
		printf(" %s", vb_fault_verbs[i].name);
	printf("\n");
	print_words("errnos", &vb_fault_errnos);
	print_words("statuses", &vb_fault_statuses);
	print_words("events", &vb_fault_events);
	print_words("messages", &vb_fault_messages);
	print_words("reasons", &vb_fault_reasons);
}

/* ---- expressions ---- */

/* So many of a character as a part of the text is wide; tabs stay. */
static void put_below(const char *text, size_t bytes, char mark)
{
	char *part = strndup(text, bytes);

	for (char *rest = part, *word; (word = strsep(&rest, "\t"));) {
		for (int n = text_columns(word); n > 0; n--)
			fputc(mark, stderr);
		if (rest)
			fputc('\t', stderr);
	}
	free(part);
}

/* From 1. */
static size_t column_of(const char *line, size_t bytes)
{
	size_t column = 1;

	for (size_t i = 0; i < bytes; i++)
		column += (line[i] & 0xc0) != 0x80; /* where a character begins */
	return column;
}

/* The line of the text that the mistake is in, and marks below it. */
static void show_mistake(const char *text, const struct vb_fault_error *error)
{
	size_t from = error->at, to = error->at, line = 1;
	while (from && text[from - 1] != '\n')
		from--;
	while (text[to] && text[to] != '\n')
		to++;
	for (size_t i = 0; i < from; i++)
		line += text[i] == '\n';
	complain("faults: line %zu, column %zu: %s", line, column_of(text + from, error->at - from),
		 error->why);
	fprintf(stderr, "  %.*s\n  ", (int)(to - from), text + from);
	put_below(text + from, error->at - from, ' ');
	put_below(error->bytes ? text + error->at : "^", error->bytes ? error->bytes : 1, '^');
	fputc('\n', stderr);
}

/* Malloc'ed; NULL: *why says why not. */
static char *read_file(const char *path, const char **why)
{
	FILE *file = fopen(path, "re");
	char *text = file ? calloc(1, VB_FAULT_TEXT_BYTES + 2) : NULL;
	size_t n = text ? fread(text, 1, VB_FAULT_TEXT_BYTES + 1, file) : 0;
	bool good = text && !ferror(file);

	*why = good ? "no text" : strerror(errno);
	if (file)
		fclose(file);
	if (good && !memchr(text, 0, n))
		return text;
	free(text);
	return NULL;
}

char *faults_text(const char *setting, const char **why)
{
	char *text;

	if (*setting == '@')
		return read_file(setting + 1, why);
	text = strdup(setting);
	*why = text ? NULL : strerror(ENOMEM);
	return text;
}

bool check_faults(const char *setting, struct vb_fault_plan *plan, char **text)
{
	struct vb_fault_error error;
	const char *why;

	*text = faults_text(setting, &why);
	if (!*text) {
		complain("%s: %s", setting + (*setting == '@'), why);
		return false;
	}
	if (vb_fault_parse(*text, strlen(*text), plan, &error) == 0)
		return true;
	show_mistake(*text, &error);
	free(*text);
	return false;
}

static void explain(const struct vb_fault_plan *plan, const char *text)
{
	char line[512];
	printf("seed %llu\n", (unsigned long long)plan->seed);
	for (unsigned i = 0; i < plan->count; i++) {
		const struct vb_fault_rule *r = &plan->rules[i];
		vb_fault_explain(r, line, sizeof(line));
		printf("%2u  %.*s\n    %s\n", i + 1, (int)r->bytes, text + r->at, line);
	}
	if (vb_fault_plan_has(plan, VB_FAULT_WIRE_KINDS))
		printf("The process takes the wire for all connections, those within this host too.\n");
}

/* The arguments as one expression; malloc'ed. */
static char *join(int argc, char **argv)
{
	size_t bytes = 1;
	for (int i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 1;
	char *text = calloc(1, bytes);
	for (int i = 0; text && i < argc; i++) {
		strcat(text, argv[i]);
		if (i + 1 < argc)
			strcat(text, " ");
	}
	return text;
}

static bool take_option(void *words, const char *name, const char *value) { return *(bool *)words = true; }

int command_faults(int argc, char **argv)
{
	struct vb_fault_plan plan;
	char *text, *setting;
	bool words = false, good;
	int first = take_options(argc, argv, OPTIONS_FIRST, take_option, &words);

	if (first < 0)
		return EXIT_OURS;
	if (words && first < argc)
		return complain("faults: --words takes no expression");
	if (words || first == argc) {
		(words ? print_all_words : print_faults)();
		return 0;
	}
	setting = join(argc - first, argv + first);
	if (!setting)
		return complain("out of memory");
	good = check_faults(setting, &plan, &text);
	free(setting);
	if (!good)
		return EXIT_FAILURE;
	explain(&plan, text);
	free(text);
	return 0;
}
