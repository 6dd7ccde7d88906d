/* SPDX-License-Identifier: BSD-2-Clause */
#include "answers/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "answers/ask.h"
#include "base/base.h"
#include "base/clock.h"
#include "host/tree.h"

enum { PATIENCE_MS = 300, STEP_MS = 5, MOST_ENTRIES = 8192 };
/* Programs read many files one after the other. For this time no process is asked again. */
static const uint64_t fresh_ns = 20 * VB_NS_PER_MS;

/*
 * What a process said of a port. slot 0: the sum of what is gone. Readers may be in several pid namespaces:
 * the pid is what the process calls itself. Of a silent process neither pid nor device is known.
 */
struct entry {
	uint32_t slot;
	int32_t pid;
	struct vb_record_port port;
};

struct entries {
	struct entry *list;
	unsigned count;
	bool is_short; /* memory or descriptors were out: some are missing */
};

static void add_counts(struct vb_counts *to, const struct vb_counts *from)
{
#define X(name, what) to->name += from->name;
	VB_COUNTS(X)
#undef X
}

static bool is_port(const struct entry *e, const struct vb_record_port *port)
{
	return !strncmp(e->port.device, port->device, sizeof(port->device));
}

/* A further entry, or NULL: there is no room. */
static struct entry *append(struct entries *all, const struct entry *e)
{
	struct entry *list = all->count < MOST_ENTRIES ?
				     realloc(all->list, (all->count + 1) * sizeof(*list)) :
				     NULL;

	all->is_short |= !list;
	if (!list)
		return NULL;
	all->list = list;
	list[all->count] = *e;
	return &list[all->count++];
}

/* ---- the file: entries, as many as there are whole ones ---- */

static int open_file(const char *root)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" VB_TREE_PORTS, root);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/*
 * False: another process has the lock and keeps it. It may be stopped, so it is waited for no longer than one
 * that is asked.
 */
static bool lock_file(int fd)
{
	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; waited += STEP_MS) {
		if (waited >= PATIENCE_MS)
			return false;
		usleep(STEP_MS * 1000);
	}
	return true;
}

/* A child that was forked meanwhile has the descriptor, too, and would keep the lock. */
static void close_file(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

static void read_file(int fd, struct entries *all)
{
	struct entry e;

	for (off_t at = 0; pread(fd, &e, sizeof(e), at) == sizeof(e) && append(all, &e); at += sizeof(e))
		;
}

/* The kernel ends a process that writes beyond its limit (SIGXFSZ): the file stays as it is. */
static void write_file(int fd, const struct entries *all)
{
	size_t bytes = all->count * sizeof(*all->list);
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur < bytes)
		return;
	if (pwrite(fd, all->list, bytes, 0) != (ssize_t)bytes || ftruncate(fd, (off_t)bytes))
		(void)!ftruncate(fd, 0);
}

/* ---- processes ---- */

static int32_t pid_of(const struct process *p)
{
	size_t at = 0;
	const struct vb_record_process *r = process_next(p, &at, VB_RECORD_PROCESS);

	return r ? (int32_t)r->pid : 0;
}

static void ask_all(struct entries *all)
{
	struct processes processes;

	processes_find(&processes);
	processes_ask(&processes, 1u << VB_RECORD_PORT | 1u << VB_RECORD_PROCESS, PATIENCE_MS);
	for (unsigned i = 0; i < processes.count; i++) {
		const struct process *p = &processes.list[i];
		struct entry e = { .slot = p->slot, .pid = pid_of(p) };
		const struct vb_record_port *port;
		size_t at = 0;
		while ((port = process_next(p, &at, VB_RECORD_PORT))) {
			e.port = *port;
			append(all, &e);
		}
		if (p->trouble[0] && !e.port.device[0]) /* it is there, and says nothing now */
			append(all, &e);
	}
	all->is_short |= processes.is_short;
	processes_free(&processes);
}

static struct entry *find(const struct entries *all, const struct entry *like)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct entry *e = &all->list[i];
		if (e->slot == like->slot &&
		    (!e->port.device[0] || (e->pid == like->pid && is_port(e, &like->port))))
			return e;
	}
	return NULL;
}

/*
 * What was said before and is not said now: by a process that is silent, or may have been missed, it stays.
 * Another has gone.
 */
static void keep(struct entries *now, const struct entry *before)
{
	static const struct entry gone;
	struct entry *same = before->slot ? find(now, before) : NULL, sum = gone;

	if (same ? !same->port.device[0] : now->is_short && before->slot) {
		append(now, before);
		return;
	}
	if (same)
		return;
	sum.port = before->port;
	memset(&sum.port.counts, 0, sizeof(sum.port.counts));
	same = find(now, &sum);
	if (!same)
		same = append(now, &sum);
	if (same)
		add_counts(&same->port.counts, &before->port.counts);
}

static void forget_silent(struct entries *all)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].port.device[0])
			all->list[kept++] = all->list[i];
	all->count = kept;
}

static void look(const char *root, struct entries *now)
{
	struct entries before = { .list = NULL };
	int fd = open_file(root);
	bool is_ours = fd >= 0 && lock_file(fd);

	if (fd >= 0)
		read_file(fd, &before);
	ask_all(now);
	for (unsigned i = 0; i < before.count; i++)
		keep(now, &before.list[i]);
	forget_silent(now);
	if (is_ours && !now->is_short && !before.is_short)
		write_file(fd, now);
	if (fd >= 0)
		close_file(fd);
	free(before.list);
}

static void add_to(struct vb_record_port *list, unsigned room, unsigned *n, const struct entry *e)
{
	unsigned i = 0;

	while (i < *n && !is_port(e, &list[i]))
		i++;
	if (i == room)
		return;
	if (i == *n) {
		list[i] = e->port;
		++*n;
	} else {
		add_counts(&list[i].counts, &e->port.counts);
	}
}

unsigned ports_sum(const char *root, struct vb_record_port *list, unsigned room)
{
	static struct entries last;
	static char of[VB_TREE_PATH]; /* a process may change its network namespace */
	static uint64_t fresh_until;
	unsigned n = 0;

	if (vb_clock_ns(CLOCK_MONOTONIC) >= fresh_until || strcmp(root, of) != 0) {
		struct entries now = { .list = NULL }, before = last;
		look(root, &now);
		last = now; /* before the list is freed: another thread may fork meanwhile */
		free(before.list);
		snprintf(of, sizeof(of), "%s", root);
		fresh_until = vb_clock_ns(CLOCK_MONOTONIC) + fresh_ns;
	}
	for (unsigned i = 0; i < last.count; i++)
		add_to(list, room, &n, &last.list[i]);
	return n;
}
