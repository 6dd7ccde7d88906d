/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/loop/activity.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"

enum {
	/* in a row that find the process halted: a single look may find all threads asleep by chance */
	LOOKS = 3,
	LOOK_NS = 10 * VB_NS_PER_MS, /* from one look to the next */
	BLIND_LOOKS = 100,  /* where /proc does not tell: 1 s */
	MAX_LOOKS = 1000,   /* at a process that could run: 10 s */
};

/* The letter behind the last parenthesis: the name before it may hold any character. */
static char state_of(pid_t pid, const char *thread)
{
	char path[64], text[512];
	const char *end;
	snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, thread);
	FILE *file = fopen(path, "re");
	size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (file)
		fclose(file);
	text[n] = 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

enum vb_activity vb_process_activity(pid_t pid)
{
	VB_UNCANCELLED;
	char path[32];
	enum vb_activity activity = VB_ACTIVITY_UNKNOWN;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = pid > 0 ? opendir(path) : NULL;
	for (struct dirent *d; threads && activity != VB_ACTIVITY_RUNNING && (d = readdir(threads));) {
		char state = d->d_name[0] == '.' ? 0 : state_of(pid, d->d_name);
		if (state)
			activity = strchr("RD", state) ? VB_ACTIVITY_RUNNING : VB_ACTIVITY_HALTED;
	}
	if (threads)
		closedir(threads);
	return activity;
}

static bool look(struct vb_process_wait *w, pid_t pid)
{
	enum vb_activity activity = vb_process_activity(pid);
	w->halted = activity == VB_ACTIVITY_HALTED ? w->halted + 1 : 0;
	w->looks++;
	return w->halted == LOOKS || w->looks == MAX_LOOKS ||
	       (activity == VB_ACTIVITY_UNKNOWN && w->looks >= BLIND_LOOKS);
}

bool vb_process_wait_is_over(struct vb_process_wait *w, pid_t pid, uint64_t now_ns)
{
	if (!w->next_look_ns)
		w->next_look_ns = now_ns + LOOK_NS;
	if (now_ns < w->next_look_ns)
		return false;
	w->next_look_ns = now_ns + LOOK_NS;
	return look(w, pid);
}

/*
 * Of a thread's own processor time, the clock's number as the kernel forms it (clock_getcpuclockid(3) does so
 * for processes).
 */
static clockid_t clock_of(pid_t tid)
{
	enum { PER_THREAD = 4, SCHEDULED = 2 };
	return (clockid_t)(~(unsigned)tid << 3 | PER_THREAD | SCHEDULED);
}

uint64_t vb_thread_ran_ns(pid_t tid)
{
	struct timespec t;
	return clock_gettime(clock_of(tid), &t) ? 0 : vb_ns_of_timespec(t) + 1;
}

static bool sleeps(pid_t tid)
{
	VB_UNCANCELLED;
	char thread[16];
	snprintf(thread, sizeof(thread), "%d", (int)tid);
	char state = state_of(getpid(), thread);
	return !state || state == 'S';
}

bool vb_thread_has_moved_on(struct vb_thread_looks *looks)
{
	bool slept = sleeps(looks->tid);
	uint64_t ran_ns = vb_thread_ran_ns(looks->tid);
	if (!ran_ns)
		return true;
	bool is_first = !looks->ran_ns,
	     has_slept_on = !is_first && slept && looks->slept && ran_ns == looks->ran_ns;
	if (is_first)
		looks->first_ns = ran_ns;
	looks->slept = slept;
	looks->ran_ns = ran_ns;
	return has_slept_on || ran_ns - looks->first_ns > VB_THREAD_RUNS_NS;
}

bool vb_thread_lacks_processor(pid_t tid, uint64_t since_ns, uint64_t enough_ns)
{
	uint64_t ran_ns = vb_thread_ran_ns(tid);
	return ran_ns && ran_ns - since_ns < enough_ns && !sleeps(tid);
}
