/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's segments that this process has mapped: which keys lead there, and which do no longer. */
#include "local/mapped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <sys/mman.h>

#include "adapter/memory/hold.h"

enum { BYTES = 4096, KEY = 5 << 8, GONE = 3 /* of mapped.c */ };

static const uint64_t va = 0x10000;
static uint8_t segment[BYTES];
static struct vb_peer peer;
static struct vb_key *key; /* the entry of KEY in the peer's table */
static bool is_used;       /* what is mapped, for as long as anybody waits */

static bool await(uint64_t deadline_ns) { return !is_used; }

static void map_as(uint64_t serial)
{
	struct vb_mapping *m = &peer.mapped->mapping[serial % VB_MAPPINGS];
	m->base = segment;
	m->bytes = BYTES;
	m->writable = true;
	atomic_store(&m->serial, serial);
}

/* With a key's entry that names this segment. */
static void *found(uint64_t serial)
{
	atomic_store(&key->va, va);
	atomic_store(&key->segment_at, 0);
	atomic_store(&key->segment, serial);
	return vb_mapped_at(&peer, KEY, va + 8, 8, true);
}

static int make(void **state)
{
	size_t bytes = VB_ARENA_KEYS + BYTES;
	peer.arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(peer.arena, MAP_FAILED);
	key = (struct vb_key *)vb_key_at(vb_key_table(peer.arena), KEY);
	vb_mapped_open(&peer);
	assert_non_null(peer.mapped);
	vb_memory_set_peers(await);
	return 0;
}

static void say_gone(uint64_t serial)
{
	struct vb_link_segment m = { .magic = VB_LINK_MAGIC, .what = GONE, .serial = serial };
	assert_int_equal(vb_mapped_take_message(&peer, &m, NULL, 0), 0);
}

/* It stays mapped, but no key leads there: neither its own nor one that can have no segment. */
static void gone__while_it_is_used(void **state)
{
	is_used = true;
	for (uint64_t serial = VB_MAPPINGS; serial < 2 * VB_MAPPINGS; serial++) {
		map_as(serial);
		assert_ptr_equal(found(serial), segment + 8);
		assert_null(found(serial + 1));
		assert_null(found(VB_KEY_NO_SEGMENT));
		say_gone(serial);
		assert_null(found(serial));
		assert_null(found(serial + 1));
		assert_null(found(serial + VB_MAPPINGS));
		assert_null(found(VB_KEY_NO_SEGMENT));
		assert_true(atomic_load(&peer.mapped->mapping[serial % VB_MAPPINGS].serial) != 0);
		atomic_store(&peer.mapped->mapping[serial % VB_MAPPINGS].serial, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(gone__while_it_is_used, make),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
