/* SPDX-License-Identifier: BSD-2-Clause */
/* All findings come here: each is printed once, and counted. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/check.h"
#include "host/ipc/capture.h"

enum { KEPT = 1024, PLACE_BYTES = 512, FRAMES_PRINTED = 4, FRAMES_WITHIN = 2 };

static const struct {
	const char *name, *page;
} checks[] = {
#define X(constant, word, about) [VB_CHECK_##constant] = { word, about },
	VB_CHECKS(X)
#undef X
};

static bool is_on[VB_CHECK_COUNT], is_fatal;

void vb_check_choose(const bool on[VB_CHECK_COUNT], bool ends_program)
{
	memcpy(is_on, on, sizeof(is_on));
	is_fatal = ends_program;
}

/* What was reported already. */
static struct {
	pthread_mutex_t lock;
	uint64_t known[KEPT]; /* hashes; 0: free */
	unsigned count;       /* of these */
	unsigned inherited;   /* of these, which a parent has reported */
	unsigned repeated;
} said = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

/* A finding's place identifies it, or its object if it has no place. */
static uint64_t identity(enum vb_check check, const struct vb_place *place, const void *object)
{
	uint64_t hash = mix(1, check);
	if (!place || !place->trace || !place->trace->count)
		return mix(hash, (uintptr_t)object) | 1;
	for (unsigned i = 0; i < place->trace->count && i < FRAMES_WITHIN; i++)
		hash = mix(hash, (uintptr_t)place->trace->frames[i]);
	return hash | 1;
}

static bool is_new_locked(uint64_t hash)
{
	for (unsigned i = 0; i < said.count; i++)
		if (said.known[i] == hash) {
			said.repeated++;
			return false;
		}
	if (said.count == KEPT)
		return false;
	said.known[said.count++] = hash;
	return true;
}

static void print_count(void)
{
	char line[128];
	unsigned count = said.count - said.inherited;
	int n = said.repeated ?
			snprintf(line, sizeof(line), "verbatim: checks: %u finding%s, met %u times more\n",
				 count, count == 1 ? "" : "s", said.repeated) :
			snprintf(line, sizeof(line), "verbatim: checks: %u finding%s\n", count,
				 count == 1 ? "" : "s");
	if (count || said.repeated)
		vb_say(line, n > 0 ? (size_t)n : 0);
}

/* Names are looked up by one thread at a time. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

/* Threads of the parent may have held the locks. What it has reported it counts itself. */
static void forget(void)
{
	pthread_mutex_init(&said.lock, NULL);
	pthread_mutex_init(&naming, NULL);
	said.inherited = said.count;
	said.repeated = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	vb_host_at_fork(forget);
}

static void place_text(const struct vb_trace *trace, unsigned most, char *text, size_t size)
{
	pthread_mutex_lock(&naming);
	vb_trace_text(trace, most, text, size);
	pthread_mutex_unlock(&naming);
}

void vb_check_place_text(const struct vb_trace *trace, char *text, size_t size)
{
	place_text(trace, FRAMES_WITHIN, text, size);
}

static void print(enum vb_check check, const char *page, const struct vb_place *place, const char *sentence)
{
	char at[PLACE_BYTES] = "", text[2048];
	if (place && place->trace && place->trace->count)
		place_text(place->trace, FRAMES_PRINTED, at, sizeof(at));
	int n = snprintf(text, sizeof(text),
			 "verbatim: check %s: %s\n%s%s%s%s%s    see %s(3), verbatim-checks(7)\n",
			 checks[check].name, sentence, *at ? "    " : "", *at ? place->did : "",
			 *at ? " in " : "", at, *at ? "\n" : "", page ? page : checks[check].page);
	if (n > 0)
		vb_say(text, vb_min_u64((uint64_t)n, sizeof(text) - 1));
}

static void report(enum vb_check check, const char *page, const struct vb_place *place, const void *object,
		   const char *fmt, va_list args)
{
	char sentence[1024];
	int saved_errno = errno;
	if (!is_on[check])
		return;
	pthread_mutex_lock(&said.lock);
	bool is_new = is_new_locked(identity(check, place, object)), first = is_new && said.count == 1;
	pthread_mutex_unlock(&said.lock);
	if (!is_new)
		return;
	if (first)
		atexit(print_count);
	vsnprintf(sentence, sizeof(sentence), fmt, args);
	if (vb_capture_is_on())
		vb_capture_sentence(checks[check].name, sentence);
	print(check, page, place, sentence);
	if (is_fatal)
		abort();
	errno = saved_errno;
}

void vb_check_report(enum vb_check check, const char *page, const struct vb_place *place, const void *object,
		     const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	report(check, page, place, object, fmt, args);
	va_end(args);
}

void vb_check_report_here(enum vb_check check, const char *page, const char *fmt, ...)
{
	struct vb_trace here;
	va_list args;
	vb_trace_take(&here);
	va_start(args, fmt);
	report(check, page, &(struct vb_place){ "called", &here }, NULL, fmt, args);
	va_end(args);
}

/* A sentence about a message that arrived identifies itself: it contains its place, if it has one. */
static void report_arrival(enum vb_check check, const char *sentence)
{
	uint64_t hash = 0;
	for (const char *c = sentence; *c && *c != ','; c++) /* "QP 0x000001, ...": once for each */
		hash = mix(hash, (unsigned char)*c);
	vb_check_report(check, NULL, NULL, (void *)(uintptr_t)hash, "%s", sentence);
}

bool vb_check_is_internal(const struct vb_trace *trace)
{
	return vb_trace_is_of(trace, "librdmacm.so");
}

/* librdmacm destroys an object of its own to find out whether it is in use. */
static bool is_attempt(const char *call)
{
	struct vb_trace here;
	if (strncmp(call, "ibv_destroy_", strlen("ibv_destroy_")))
		return false;
	vb_trace_take(&here);
	return vb_check_is_internal(&here);
}

void vb_check_explained(const char *call, const char *sentence)
{
	if (!strcmp(call, "responder"))
		report_arrival(VB_CHECK_RKEY, sentence);
	else if (!strcmp(call, "receiver"))
		report_arrival(VB_CHECK_RECEIVE_BUFFER, sentence);
	else if (!strncmp(call, "ibv_", 4) && !is_attempt(call))
		vb_check_report_here(VB_CHECK_CALL, call, "%s: %s", call, sentence);
}
