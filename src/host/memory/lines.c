/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/memory/lines.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "host/memory/pages.h"

enum {
	MOST_LINES = 64,        /* of a block; malloc provides longer ones, which are few */
	REGION_BYTES = 1 << 20, /* mapped at a time */
};

/* With AddressSanitizer all blocks come from malloc, so that it finds uses of freed ones. */
#ifdef __SANITIZE_ADDRESS__
enum { ALL_ARE_MALLOCS = true };
#else
enum { ALL_ARE_MALLOCS = false };
#endif

struct free_block {
	struct free_block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct free_block *free_blocks[MOST_LINES + 1]; /* by lines */
static char *region;                                   /* the unused rest of the last one */
static size_t region_lines;

static size_t lines_of(size_t bytes) { return vb_align_up(bytes, VB_CACHE_LINE) / VB_CACHE_LINE; }
static bool is_mallocs(size_t lines) { return ALL_ARE_MALLOCS || lines > MOST_LINES; }

static void free_locked(void *at, size_t lines)
{
	struct free_block *block = at;
	block->next = free_blocks[lines];
	free_blocks[lines] = block;
}

/* Maps a new region. The rest of the last one is too short for the caller, and becomes a free block. */
static bool map_locked(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *at = vb_map_pages(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at == MAP_FAILED)
		return false;
	if (region_lines)
		free_locked(region, region_lines);
	region = at;
	region_lines = REGION_BYTES / VB_CACHE_LINE;
	return true;
}

static void *take_locked(size_t lines)
{
	struct free_block *block = free_blocks[lines];
	if (block) {
		free_blocks[lines] = block->next;
		return block;
	}
	if (region_lines < lines && !map_locked())
		return NULL;
	void *at = region;
	region += lines * VB_CACHE_LINE;
	region_lines -= lines;
	return at;
}

void *vb_lines_take(size_t bytes)
{
	size_t lines = lines_of(bytes);
	void *at;
	if (is_mallocs(lines))
		return posix_memalign(&at, VB_CACHE_LINE, lines * VB_CACHE_LINE) ? NULL : at;
	pthread_mutex_lock(&lock);
	at = take_locked(lines);
	pthread_mutex_unlock(&lock);
	return at;
}

void vb_lines_give(void *block, size_t bytes)
{
	size_t lines = lines_of(bytes);
	if (!block || is_mallocs(lines)) {
		free(block);
		return;
	}
	pthread_mutex_lock(&lock);
	free_locked(block, lines);
	pthread_mutex_unlock(&lock);
}

void vb_lines_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	for (unsigned i = 0; i <= MOST_LINES; i++)
		free_blocks[i] = NULL;
	region_lines = 0;
}
