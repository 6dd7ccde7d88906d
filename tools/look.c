/* SPDX-License-Identifier: BSD-2-Clause */
#include "look.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

static const struct {
	const char *word;
	enum vb_record_kind kind;
} words[] = {
	{ "devices", VB_RECORD_DEVICE },
	{ "ports", VB_RECORD_PORT },
	{ "pds", VB_RECORD_PD },
	{ "qps", VB_RECORD_QP },
	{ "cqs", VB_RECORD_CQ },
	{ "srqs", VB_RECORD_SRQ },
	{ "mrs", VB_RECORD_MR },
	{ "ids", VB_RECORD_CM_ID },
};

static bool take_iterations(const char *text, unsigned *iterations)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*iterations = (unsigned)n;
	return end != text && !*end && n && n <= INT_MAX && *text != '-';
}

/* Of the options with seconds, --delay is --watch for commands that watch anyway. */
static bool parse_option(void *context, const char *name, const char *value)
{
	struct look *look = context;

	if (strcmp(name, "json") == 0)
		return look->json = true;
	if (strcmp(name, "timeout") == 0)
		return take_seconds(value, &look->patience_s) || refuse_value(name, value);
	if (strcmp(name, "iterations") == 0)
		return take_iterations(value, &look->iterations) || refuse_value(name, value);
	look->watch |= strcmp(name, "watch") == 0;
	return !value || take_seconds(value, &look->period_s) || refuse_value(name, value);
}

static bool parse_word(struct look *look, const char *arg)
{
	char *end;
	unsigned long pid = strtoul(arg, &end, 10);

	for (size_t i = 0; look->takes_kinds && i < VB_ARRAY_LEN(words); i++) {
		if (strcmp(arg, words[i].word) == 0) {
			look->kinds |= 1u << words[i].kind;
			return true;
		}
	}
	if (*end || end == arg || !pid || pid > INT_MAX)
		return false;
	if (look->pid_count < LOOK_PIDS)
		look->pids[look->pid_count] = (pid_t)pid;
	look->pid_count++;
	return true;
}

int look_parse(struct look *look, int argc, char **argv)
{
	int at;

	look->period_s = 1;
	look->patience_s = look->default_patience_s > 0 ? look->default_patience_s : 1;
	at = take_options(argc, argv, OPTIONS_ANYWHERE, parse_option, look);
	if (at < 0)
		return EXIT_OURS;
	for (; at < argc; at++)
		if (!parse_word(look, argv[at]))
			return complain(look->takes_kinds ?
						"%s: '%s' is no kind of object, and no number of a process" :
						"%s: '%s' is no number of a process",
					argv[0], argv[at]);
	if (look->pid_count > LOOK_PIDS)
		return complain("%s: %d processes can be named at most", argv[0], LOOK_PIDS);
	return 0;
}

bool look_wants(const struct look *look, const struct process *p)
{
	for (unsigned i = 0; i < look->pid_count; i++)
		if (look->pids[i] == p->pid)
			return true;
	return !look->pid_count;
}

static bool has_answered(const struct processes *all, pid_t pid)
{
	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].pid == pid)
			return !all->list[i].trouble[0];
	return false;
}

int look_status(const struct look *look, const struct processes *all)
{
	int status = 0;

	for (unsigned i = 0; i < look->pid_count; i++) {
		if (has_answered(all, look->pids[i]))
			continue;
		complain("process %d is not one that uses verbatim here, or did not answer",
			 (int)look->pids[i]);
		status = 1;
	}
	return status;
}

double look_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void look_sleep_s(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds };

	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

int look_run(struct look *look, uint32_t kinds,
	     void (*show)(const struct look *look, const struct processes *all, double since_s))
{
	double last = 0;
	int status;

	for (;; look_sleep_s(look->period_s)) {
		struct processes all;
		double now = look_now_s();
		processes_find(&all);
		processes_ask(&all, kinds | 1u << VB_RECORD_PROCESS, (unsigned)(look->patience_s * 1000));
		if (all.is_short)
			return complain("out of memory, or of descriptors (ulimit -n)");
		if (look->watch && !look->json && (last > 0 || isatty(STDOUT_FILENO)))
			fputs(isatty(STDOUT_FILENO) ? "\033[H\033[2J" : "\n", stdout);
		show(look, &all, last > 0 ? now - last : 0);
		status = look_status(look, &all);
		processes_free(&all);
		last = now;
		if (!flush_output())
			return 1;
		if (!look->watch)
			return status;
	}
}
