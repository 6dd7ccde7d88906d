/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/pace.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"

enum {
	/*
	 * in a row that find the process halted: one may meet all its threads between two waits for each
	 * other
	 */
	LOOKS = 3,
	LOOK_NS = 10000000, /* apart */
	BLIND_LOOKS = 100,  /* where /proc does not tell: 1 s */
	MAX_LOOKS = 1000,   /* of who has the time, and does not use it: 10 s */
};

/* The letter behind the name, which may have anything in it. */
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

enum vb_pace vb_process_pace(pid_t pid)
{
	VB_UNCANCELLED;
	char path[32];
	enum vb_pace pace = VB_PACE_UNKNOWN;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = pid > 0 ? opendir(path) : NULL;
	for (struct dirent *d; threads && pace != VB_PACE_RUNNING && (d = readdir(threads));) {
		char state = d->d_name[0] == '.' ? 0 : state_of(pid, d->d_name);
		if (state)
			pace = strchr("RD", state) ? VB_PACE_RUNNING : VB_PACE_HALTED;
	}
	if (threads)
		closedir(threads);
	return pace;
}

static bool look(struct vb_patience *p, pid_t pid)
{
	enum vb_pace pace = vb_process_pace(pid);
	p->halted = pace == VB_PACE_HALTED ? p->halted + 1 : 0;
	p->looks++;
	return p->halted == LOOKS || p->looks == MAX_LOOKS ||
	       (pace == VB_PACE_UNKNOWN && p->looks >= BLIND_LOOKS);
}

bool vb_patience_is_over(struct vb_patience *p, pid_t pid, uint64_t now_ns)
{
	if (!p->next_look_ns)
		p->next_look_ns = now_ns + LOOK_NS;
	if (now_ns < p->next_look_ns)
		return false;
	p->next_look_ns = now_ns + LOOK_NS;
	return look(p, pid);
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

/* 0: the thread is gone. */
static uint64_t time_run_ns(pid_t tid)
{
	struct timespec t;
	return clock_gettime(clock_of(tid), &t) ? 0 :
						  (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + 1;
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
	uint64_t ran_ns = time_run_ns(looks->tid);
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
