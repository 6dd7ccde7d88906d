/* SPDX-License-Identifier: BSD-2-Clause */
/* verbatim capture: processes that run, and those that start while it does. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "recorder.h"

enum { STEP_MS = 5, SEEK_EVERY = 40, MAX_PIDS = 64, MAX_REFUSED = 1024, ANSWER_S = 5 };

struct job {
	struct recorder_options options;
	pid_t pids[MAX_PIDS];
	unsigned pid_count;
	double seconds;          /* 0: until interrupted */
	bool quiet;
	uint32_t refused[MAX_REFUSED]; /* slots of processes that cannot be captured: said once */
	unsigned refused_count;
	bool is_short;           /* processes could not be looked for: said once */
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) { interrupted = 1; }

/*
 * What is being written then is written to its end, however slowly it is read. A second signal ends the
 * command at once.
 */
static void heed_interrupts(void)
{
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = SA_RESTART | SA_RESETHAND };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (!is_ignored(SIGHUP))
		sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static bool take_pid(struct job *job, const char *value)
{
	char *end;
	long pid = strtol(value, &end, 10);

	if (*end || pid <= 0 || pid > INT_MAX)
		return refuse_value("pid", value);
	if (job->pid_count == MAX_PIDS) {
		complain("capture: %d processes can be named at most", MAX_PIDS);
		return false;
	}
	job->pids[job->pid_count++] = (pid_t)pid;
	return true;
}

static bool take_option(void *context, const char *name, const char *value)
{
	struct job *job = context;

	if (strcmp(name, "quiet") == 0)
		return job->quiet = true;
	if (strcmp(name, "pid") == 0)
		return take_pid(job, value);
	if (strcmp(name, "seconds") == 0)
		return take_seconds(value, &job->seconds) || refuse_value(name, value);
	return recorder_option(&job->options, name, value);
}

static bool is_wanted(const struct job *job, const struct process *p)
{
	for (unsigned i = 0; i < job->pid_count; i++)
		if (job->pids[i] == p->pid)
			return true;
	return !job->pid_count;
}

static bool was_refused(struct job *job, uint32_t slot)
{
	for (unsigned i = 0; i < job->refused_count; i++)
		if (job->refused[i] == slot)
			return true;
	if (job->refused_count < MAX_REFUSED)
		job->refused[job->refused_count++] = slot;
	return false;
}

static void refuse(struct job *job, const struct process *p, const char *why)
{
	if (!was_refused(job, p->slot))
		complain("%s[%d] is not captured: %s", p->name, (int)p->pid, why);
}

/* Says which of those that were asked for are not there at all. */
static void name_absent(const struct job *job, const struct processes *all)
{
	for (unsigned i = 0, at; i < job->pid_count; i++) {
		for (at = 0; at < all->count && all->list[at].pid != job->pids[i];)
			at++;
		if (at == all->count)
			complain("process %d is not one that uses verbatim here", (int)job->pids[i]);
	}
}

/* Takes those in that are new. */
static void seek(struct job *job, struct recorder *r, bool is_first)
{
	struct processes all;
	const char *why;

	processes_find(&all);
	if (all.is_short && !job->is_short)
		complain("not all processes are seen: out of memory, or of descriptors (ulimit -n)");
	job->is_short |= all.is_short;
	if (is_first)
		name_absent(job, &all);
	for (unsigned i = 0; i < all.count; i++) {
		struct process *p = &all.list[i];
		if (!is_wanted(job, p) || recorder_has(r, p))
			continue;
		if (p->trouble[0]) {
			if (job->pid_count)
				refuse(job, p, p->trouble);
			continue;
		}
		int fd = p->fd;
		p->fd = -1;
		if (!recorder_add(r, fd, p, &why))
			refuse(job, p, why);
	}
	processes_free(&all);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* How many packets there are, each second, for a user who watches. */
static void show_progress(const struct job *job, const struct recorder *r, double *next_s)
{
	double now = now_s();

	if (job->quiet || now < *next_s || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%" PRIu64 " packets ", recorder_written(r));
	*next_s = now + 1;
}

/*
 * The time begins once the processes that were found first have answered. A process that may be stopped is
 * not waited for for long.
 */
static bool is_time_over(const struct job *job, const struct recorder *r, double began_s, double *end_s)
{
	double now = now_s();

	if (job->seconds <= 0)
		return false;
	if (!*end_s && (!recorder_asked(r) || now >= began_s + ANSWER_S))
		*end_s = now + job->seconds;
	return *end_s && now >= *end_s;
}

/* Or those that were asked for have ended. */
static bool is_over(const struct job *job, const struct recorder *r, double began_s, double *end_s)
{
	return is_time_over(job, r, began_s, end_s) || (job->pid_count && !recorder_live(r));
}

static int record(struct job *job)
{
	struct recorder *r = recorder_open(&job->options);
	double began_s = now_s(), end_s = 0, progress_s = began_s + 1;
	unsigned found;

	if (!r)
		return 1;
	heed_interrupts(); /* not before: opening a pipe takes until somebody reads it */
	seek(job, r, true);
	found = recorder_live(r);
	if (!job->quiet && (found || !job->pid_count))
		fprintf(stderr, "verbatim: capturing %u process%s into %s; ^C ends it\n", found,
			found == 1 ? "" : "es", job->options.path);
	for (unsigned step = 1;
	     !interrupted && !is_over(job, r, began_s, &end_s) && !recorder_step(r, -1, STEP_MS); step++) {
		show_progress(job, r, &progress_s);
		if (step % SEEK_EVERY == 0)
			seek(job, r, false);
	}
	if (progress_s > began_s + 1)
		fputc('\r', stderr);
	bool any = recorder_captured(r);
	return recorder_close(r, job->quiet) || (job->pid_count && !any);
}

int command_capture(int argc, char **argv)
{
	static struct job job;
	int file;

	recorder_defaults(&job.options);
	file = take_options(argc, argv, OPTIONS_ANYWHERE, take_option, &job);
	if (file < 0)
		return EXIT_OURS;
	if (file == argc)
		return complain("capture needs a file to write ('-': standard output)");
	if (file + 1 < argc)
		return complain("capture writes one file, not '%s' too", argv[file + 1]);
	job.options.path = argv[file];
	if (strcmp(job.options.path, "-") == 0 && isatty(STDOUT_FILENO))
		return complain("a capture is not for a terminal");
	return record(&job);
}
