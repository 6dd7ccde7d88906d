/* SPDX-License-Identifier: BSD-2-Clause */
#include "adapter/memory/arena.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "host/memory/memory.h"

enum { MIN_SHIFT = 6, MAX_SHIFT = 33, PIECE_SHIFT = 20 /* opened at a time */,
	PIECES = VB_ARENA_MOST >> PIECE_SHIFT,
       SHARES = 256 /* of the address space */, SPARE = 2 /* arenas for which there must be room */ };

struct vb_arena_head *vb_arena;

static int fd = -1;
static uint64_t arena_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t unused = VB_ARENA_HEAP;      /* the heap beyond it was never handed out, and is zero */
/* per size the first free block; its first word is the offset of the next */
static uint64_t free_blocks[MAX_SHIFT + 1];

static atomic_bool is_open[PIECES];          /* written under the lock */

/*
 * In a forked child: the host has already replaced the mapping by private memory and closed the descriptor.
 */
static void forget(void)
{
	vb_arena = NULL;
	fd = -1;
	unused = VB_ARENA_HEAP;
	memset(free_blocks, 0, sizeof(free_blocks));
	memset((void *)is_open, 0, sizeof(is_open));
	pthread_mutex_init(&lock, NULL);
}

static int open_piece_locked(void *arena, uint64_t piece)
{
	if (is_open[piece])
		return 0;
	int err = vb_shm_open((char *)arena + (piece << PIECE_SHIFT), 1u << PIECE_SHIFT);
	if (!err)
		atomic_store_explicit(&is_open[piece], true, memory_order_release);
	return err;
}

static int open_locked(uint64_t offset, size_t bytes)
{
	int err = 0;
	for (uint64_t piece = offset >> PIECE_SHIFT; !err && piece <= (offset + bytes - 1) >> PIECE_SHIFT;
	     piece++)
		err = open_piece_locked(vb_arena, piece);
	return err;
}

/* An entry does not cross a piece's end. */
int vb_arena_open(uint64_t offset, size_t bytes)
{
	if (vb_likely(atomic_load_explicit(&is_open[offset >> PIECE_SHIFT], memory_order_acquire)))
		return 0;
	pthread_mutex_lock(&lock);
	int err = open_locked(offset, bytes);
	pthread_mutex_unlock(&lock);
	return err;
}

static uint64_t share_of(uint64_t space)
{
	uint64_t bytes = VB_ARENA_MOST;
	while (bytes > VB_ARENA_LEAST && bytes > space / SHARES)
		bytes /= 2;
	return bytes;
}

/* Others are not limited as this process may be. */
void vb_arena_look_for_room(void)
{
	if (vb_links_are_refused())
		return;
	if (fd < 0)
		vb_explain_limit("link",
				 "memory cannot be shared, as files may not be long enough (RLIMIT_FSIZE): "
				 "connections to other processes take the wire");
	else if (vb_shm_has_room(SPARE * share_of(vb_address_space())))
		return;
	else
		vb_explain_limit(
			"link",
			"no address space is left for the memory of further processes: connections to them take the wire");
	vb_links_refuse();
}

/* As much as a file may have; if that is too little, memory that no peer can map. */
static int make(void **addr)
{
	int err;
	arena_bytes = share_of(vb_address_limit());
	while ((err = vb_shm_create(arena_bytes, "verbatim", &fd, addr)) == -EFBIG &&
	       arena_bytes > VB_ARENA_LEAST)
		arena_bytes /= 2;
	return err == -EFBIG ? vb_shm_create_alone(arena_bytes, addr) : err;
}

static int start_locked(void)
{
	void *addr;
	int err = make(&addr);
	if (err)
		return err;
	err = open_piece_locked(addr, 0);
	if (err) {
		vb_shm_unmap(addr, arena_bytes);
		vb_fd_close(fd);
		fd = -1;
		return err;
	}
	struct vb_arena_head *head = addr;
	head->magic = VB_ARENA_MAGIC;
	head->version = VB_LINK_VERSION;
	vb_random(&head->nonce, sizeof(head->nonce));
	vb_arena = head;
	return 0;
}

int vb_arena_start(void)
{
	vb_host_at_fork(forget); /* before the lock is held for the first time */
	pthread_mutex_lock(&lock);
	int err = vb_arena ? 0 : start_locked();
	pthread_mutex_unlock(&lock);
	return err;
}

bool vb_arena_is_made(void)
{
	pthread_mutex_lock(&lock);
	bool is_made = vb_arena != NULL;
	pthread_mutex_unlock(&lock);
	return is_made;
}

void vb_arena_next_generation(void)
{
	if (!vb_arena) /* in a forked child, which has nothing that anybody could rely on */
		return;
	uint32_t generation = atomic_load_explicit(&vb_arena->generation, memory_order_relaxed);
	while (generation != VB_GENERATION_LAST &&
	       !atomic_compare_exchange_weak(&vb_arena->generation, &generation, generation + 1))
		;
}

int vb_arena_fd(void)
{
	return fd;
}

uint64_t vb_arena_bytes(void) { return arena_bytes; }

static unsigned size_shift(size_t bytes)
{
	unsigned shift = MIN_SHIFT;
	while ((1ull << shift) < bytes)
		shift++;
	return shift;
}

static uint64_t take_locked(unsigned shift)
{
	uint64_t offset = free_blocks[shift];
	if (offset) {
		memcpy(&free_blocks[shift], vb_arena_at(offset), sizeof(uint64_t));
		memset(vb_arena_at(offset), 0, 1ull << shift);
		return offset;
	}
	if (arena_bytes - unused < (1ull << shift) || open_locked(unused, 1ull << shift))
		return 0;
	offset = unused;
	unused += 1ull << shift;
	return offset;
}

uint64_t vb_arena_alloc(size_t bytes)
{
	unsigned shift = size_shift(bytes);
	if (shift > MAX_SHIFT)
		return 0;
	pthread_mutex_lock(&lock);
	uint64_t offset = take_locked(shift);
	pthread_mutex_unlock(&lock);
	return offset;
}

void vb_arena_free(uint64_t offset, size_t bytes)
{
	unsigned shift = size_shift(bytes);
	pthread_mutex_lock(&lock);
	memcpy(vb_arena_at(offset), &free_blocks[shift], sizeof(uint64_t));
	free_blocks[shift] = offset;
	pthread_mutex_unlock(&lock);
}

uint64_t vb_arena_in_use(void)
{
	pthread_mutex_lock(&lock);
	uint64_t bytes = unused - VB_ARENA_HEAP;
	pthread_mutex_unlock(&lock);
	return bytes;
}
