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
	unsigned unshown;     /* there was no room to remember them: the same one may be among them twice */
} said = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

/* What a sentence says, without its numbers: words with a digit are left out. */
static uint64_t mix_words(uint64_t hash, const char *sentence)
{
	for (const char *word = sentence; *word;) {
		size_t n = strcspn(word, " ");
		bool is_number = strcspn(word, "0123456789") < n;
		for (size_t i = 0; i < n && !is_number; i++)
			hash = mix(hash, (unsigned char)word[i]);
		word += n + (word[n] == ' ');
	}
	return hash;
}

/* A finding is the same if it says the same of the same place, or object if it has no place. */
static uint64_t identity(enum vb_check check, const struct vb_place *place, const void *object,
			 const char *sentence)
{
	uint64_t hash = mix_words(mix(1, check), sentence);
	if (!place || !place->trace || !place->trace->count)
		return mix(hash, (uintptr_t)object) | 1;
	for (unsigned i = 0; i < place->trace->count && i < FRAMES_WITHIN; i++)
		hash = mix(hash, (uintptr_t)place->trace->frames[i]);
	return hash | 1;
}

enum news { NEW, REPEATED, UNSHOWN };

static enum news note_locked(uint64_t hash)
{
	for (unsigned i = 0; i < said.count; i++)
		if (said.known[i] == hash) {
			said.repeated++;
			return REPEATED;
		}
	if (said.count == KEPT) {
		said.unshown++;
		return UNSHOWN;
	}
	said.known[said.count++] = hash;
	return NEW;
}

__attribute__((format(printf, 1, 2))) static void say_of_all(const char *fmt, ...)
{
	char line[256];
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	vb_say(line, n > 0 ? vb_min_u64((uint64_t)n, sizeof(line) - 1) : 0);
}

static void print_count(void)
{
	char more[48] = "", unshown[48] = "";
	unsigned count = said.count - said.inherited;
	if (said.repeated)
		snprintf(more, sizeof(more), ", met %u times more", said.repeated);
	if (said.unshown)
		snprintf(unshown, sizeof(unshown), ", and others %u times", said.unshown);
	if (count || said.repeated || said.unshown)
		say_of_all("verbatim: checks: %u finding%s%s%s\n", count, count == 1 ? "" : "s", more,
			   unshown);
}

/* Names are looked up by one thread at a time. */
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

/* Threads of the parent may have held the locks. What it has reported it counts itself. */
static void forget(void)
{
	pthread_mutex_init(&said.lock, NULL);
	pthread_mutex_init(&naming, NULL);
	said.inherited = said.count;
	said.repeated = said.unshown = 0;
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

/* Is it new, so that it is told? The first one beyond those that are remembered is told of. */
static bool is_told(uint64_t hash)
{
	pthread_mutex_lock(&said.lock);
	enum news news = note_locked(hash);
	unsigned count = said.count, unshown = said.unshown;
	pthread_mutex_unlock(&said.lock);
	if (news == NEW && count == 1)
		atexit(print_count);
	if (news == UNSHOWN && unshown == 1)
		say_of_all("verbatim: checks: that were %u findings, and there are others: they are counted, "
			   "and neither told nor compared with each other\n",
			   count);
	return news == NEW;
}

static void report(enum vb_check check, const char *page, const struct vb_place *place, const void *object,
		   const char *fmt, va_list args)
{
	char sentence[1024];
	int saved_errno = errno;
	if (!is_on[check])
		return;
	vsnprintf(sentence, sizeof(sentence), fmt, args);
	if (is_told(identity(check, place, object, sentence))) {
		if (vb_capture_is_on())
			vb_capture_sentence(checks[check].name, sentence);
		print(check, page, place, sentence);
		if (is_fatal)
			abort();
	}
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
