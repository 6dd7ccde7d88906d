/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases: every body on every path, each in its own process group of one or two processes. */
#include "rc.h"

#include "../../kernel.h"
#include "../../unit/netns.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCHDOG_S = 150 }; /* ends what hangs; on a busy machine later */

/* One line per path: each body runs on all of them. */
static const struct path {
	const char *name;
	bool threads;
	const char *variable, *value; /* of the environment; NULL: the library chooses its ways */
} paths[] = {
	{ "one process", true, NULL, NULL },
	{ "one process, process_vm", true, "VERBATIM_COPY", "process_vm" },
	{ "one process, link", true, "VERBATIM_COPY", "link" },
	{ "two processes", false, NULL, NULL },
	{ "two processes, mapped", false, "VERBATIM_COPY", "mapped" },
	{ "two processes, process_vm", false, "VERBATIM_COPY", "process_vm" },
	{ "two processes, link", false, "VERBATIM_COPY", "link" },
	{ "one process, roce", true, "VERBATIM_LOCAL", "off" },
	{ "two processes, roce", false, "VERBATIM_LOCAL", "off" },
};

struct instance {
	const struct body *body;
	const struct path *path;
};

static __thread const char *role = "";
static char case_name[128]; /* in what is said about it: a log of many cases tells which */
static volatile pid_t passive_pid;
volatile bool rc_peer_may_die;

/* ---- verdicts ---- */

void rc_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "# %s: %s %s:%d: %s\n", case_name, role, file, line, what);
	_exit(1);
}

void rc_fail_eq(const char *file, int line, const char *what, long long got, long long want)
{
	fprintf(stderr, "# %s: %s %s:%d: %s: %lld (0x%llx), not %lld (0x%llx)\n", case_name, role, file, line,
		what, got, got, want, want);
	_exit(1);
}

void rc_skip(const char *why)
{
	fprintf(stderr, "# %s: skipped: %s\n", case_name, why);
	_exit(SKIPPED);
}

int rc_reap(int pid)
{
	int status;
	CHECK_EQ(TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)), pid);
	return status;
}

static void bark(int signal)
{
	static const char text[] = ": the watchdog ended it: it hung\n";
	struct iovec said[] = { { "# ", 2 },
				{ case_name, strlen(case_name) },
				{ (char *)text, sizeof(text) - 1 } };
	ssize_t ignored = writev(STDERR_FILENO, said, 3);
	(void)ignored;
	_exit(2);
}

void rc_start_watchdog(void)
{
	double load = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	(void)getloadavg(&load, 1);
	signal(SIGALRM, bark);
	alarm((unsigned)(WATCHDOG_S * (SANITIZED ? 4 : 1) * (load > processors ? load / processors : 1)));
}

/* ---- one case ---- */

static bool has(const struct path *p, const char *variable, const char *value)
{
	return p->variable && !strcmp(p->variable, variable) && !strcmp(p->value, value);
}

static bool is_wire(const struct path *p) { return has(p, "VERBATIM_LOCAL", "off"); }

static struct end make_end(const struct instance *i, bool passive, int sock)
{
	const char *seed = getenv("VERBATIM_TEST_SEED");
	return (struct end){
		.passive = passive,
		.threads = i->path->threads,
		.copies_by_vm = has(i->path, "VERBATIM_COPY", "process_vm"),
		.copies_by_link = has(i->path, "VERBATIM_COPY", "link"),
		.wire = is_wire(i->path),
		.sock = sock,
		.seed = seed ? strtoull(seed, NULL, 0) : 1,
	};
}

struct start {
	const struct instance *instance;
	int sock;
};

static void *run_passive(void *arg)
{
	const struct start *s = arg;
	struct end e = make_end(s->instance, true, s->sock);
	role = "passive end";
	s->instance->body->run(&e);
	return NULL;
}

static void run_active(const struct instance *i, int sock)
{
	struct end e = make_end(i, false, sock);
	e.peer_pid = passive_pid;
	role = "active end";
	i->body->run(&e);
}

/* A passive process that fails takes the case with it, instead of leaving the active one to wait. */
static void passive_ended(int signal)
{
	int status;
	if (waitpid(passive_pid, &status, WNOHANG) != passive_pid)
		return;
	if (WIFEXITED(status) ? WEXITSTATUS(status) : !rc_peer_may_die)
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	passive_pid = 0;
}

static void start_passive_process(const struct instance *i, const int pair[2])
{
	sigset_t chld, before;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &before);
	signal(SIGCHLD, passive_ended);
	CHECK((passive_pid = fork()) >= 0);
	if (!passive_pid) {
		signal(SIGCHLD, SIG_DFL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		rc_start_watchdog();
		close(pair[0]);
		run_passive(&(struct start){ i, pair[1] });
		exit(0);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(pair[1]);
}

static void run_processes(const struct instance *i, const int pair[2])
{
	start_passive_process(i, pair);
	run_active(i, pair[0]);
	while (passive_pid)
		usleep(500);
}

static void run_threads(const struct instance *i, const int pair[2])
{
	pthread_t thread;
	struct start s = { i, pair[1] };
	CHECK(!pthread_create(&thread, NULL, run_passive, &s));
	run_active(i, pair[0]);
	pthread_join(thread, NULL);
}

/* cmocka would have this process, too, go on with its list of tests. */
static const int crashes[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };

static void run(const struct instance *i)
{
	int pair[2];
	snprintf(case_name, sizeof(case_name), "%s (%s)", i->body->name, i->path->name);
	rc_start_watchdog();
	signal(SIGPIPE, SIG_IGN);
	for (size_t n = 0; n < sizeof(crashes) / sizeof(*crashes); n++)
		signal(crashes[n], SIG_DFL);
	unsetenv("VERBATIM_COPY");
	unsetenv("VERBATIM_LOCAL");
	if (i->path->variable)
		setenv(i->path->variable, i->path->value, 1);
	if (is_wire(i->path))
		/*
		 * else other programs' packets and ours meet on one port, and theirs may take ours along when
		 * they end
		 */
		(void)netns_enter();
	if (has(i->path, "VERBATIM_COPY", "process_vm") && !kernel_copies())
		rc_skip(NO_COPIES);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	if (i->body->where == ALONE)
		run_active(i, pair[0]);
	else if (i->path->threads)
		run_threads(i, pair);
	else
		run_processes(i, pair);
}

static void run_case(void **state)
{
	const struct instance *i = *state;
	int status = -1;
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(i);
		exit(0);
	}
	assert_int_equal(TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		return; /* it has said why; what cmocka makes of a skip counts as a failure in TAP */
	if (status)
		fprintf(stderr, "# again: %s '%s (%s)'\n", program_invocation_name, i->body->name,
			i->path->name);
	if (WIFSIGNALED(status))
		fail_msg("ended by signal %d", WTERMSIG(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- all cases ---- */

static bool belongs(const struct body *b, const struct path *p)
{
	switch (b->where) {
	case BOTH:
		return true;
	case PROCESSES_ONLY:
		return !p->threads;
	case THREADS_ONLY:
	case ALONE:
		return p->threads;
	}
	return false;
}

/* argv[1]: run only the cases whose name contains it. */
int rc_main(int argc, char **argv, const struct body *bodies, size_t n)
{
	size_t npaths = sizeof(paths) / sizeof(paths[0]), count = 0;
	struct CMUnitTest *tests = calloc(n * npaths, sizeof(*tests));
	struct instance *instances = calloc(n * npaths, sizeof(*instances));
	for (size_t b = 0; b < n; b++) {
		for (size_t p = 0; p < npaths; p++) {
			char *name = NULL;
			if (!belongs(&bodies[b], &paths[p]) ||
			    asprintf(&name, "%s (%s)", bodies[b].name, paths[p].name) < 0)
				continue;
			if (argc > 1 && !strstr(name, argv[1])) {
				free(name);
				continue;
			}
			instances[count] = (struct instance){ &bodies[b], &paths[p] };
			tests[count] = (struct CMUnitTest){ .name = name,
							    .test_func = run_case,
							    .initial_state = &instances[count] };
			count++;
		}
	}
	if (!count)
		fprintf(stderr, "# no case has \"%s\" in its name\n", argc > 1 ? argv[1] : "");
	int failed = count ? _cmocka_run_group_tests(argv[0], tests, count, NULL, NULL) : 1;
	for (size_t i = 0; i < count; i++)
		free((char *)tests[i].name);
	free(tests);
	free(instances);
	return failed;
}

/* Children of a program with threads start threads here; ThreadSanitizer ends them unless told otherwise. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
