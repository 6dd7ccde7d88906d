/* SPDX-License-Identifier: BSD-2-Clause */
/* Shortcuts by themselves: what fits one, and when it leads nowhere any more. */
#include "adapter/shortcut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "adapter/key.h"

enum { BYTES = 4096, RKEY = 0x300, LKEY = 0x200, INLINE = 64 };

static uint8_t here[BYTES], there[BYTES];
static _Atomic(uint32_t) busy, cut;
static struct vb_arena_head theirs;

static const uint64_t to = 0x10000;

static struct vb_shortcut open_shortcut(void)
{
	return (struct vb_shortcut){
		.their_arena = &theirs,
		.busy = &busy,
		.their_revision = atomic_load(&theirs.revision),
		.our_revision = atomic_load(&vb_arena->revision),
		.rkey = RKEY, .lkey = LKEY,
		.theirs = to, .their_bytes = BYTES, .there = there,
		.ours = (uintptr_t)here, .our_bytes = BYTES,
	};
}

static struct ibv_sge piece_at(uint64_t skip, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)here + skip, length, LKEY };
}

static struct ibv_send_wr write_of(struct ibv_sge *sge, uint64_t skip)
{
	return (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1, .sg_list = sge, .send_flags = IBV_SEND_SIGNALED,
				     .wr.rdma = { .remote_addr = to + skip, .rkey = RKEY } };
}

static bool fits(uint64_t from_skip, uint64_t to_skip, uint32_t length)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(from_skip, length);
	struct ibv_send_wr wr = write_of(&sge, to_skip);
	return vb_shortcut_fits_write(&s, &wr, INLINE);
}

static void fits__what_lies_within(void **state)
{
	assert_true(fits(0, 0, 1));
	assert_true(fits(0, 0, BYTES));
	assert_true(fits(BYTES - 8, 0, 8));
	assert_true(fits(0, BYTES - 8, 8));
}

static void fits__nothing_beyond(void **state)
{
	assert_false(fits(0, 0, 0));
	assert_false(fits(0, 0, BYTES + 1));
	assert_false(fits(BYTES - 7, 0, 8));
	assert_false(fits(0, BYTES - 7, 8));
	assert_false(fits(BYTES, 0, 1));
	assert_false(fits(0, BYTES, 1));
	assert_false(fits((uint64_t)-1, 0, 8));
	assert_false(fits(0, (uint64_t)-1, 8));
	assert_false(fits((uint64_t)-8, 0, 16));
	assert_false(fits(0, (uint64_t)-8, 16));
	assert_false(fits(0, 0, UINT32_MAX));
}

static void fits__nothing_once_forgotten(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(0, 8);
	struct ibv_send_wr wr = write_of(&sge, 0);
	assert_true(vb_shortcut_fits_write(&s, &wr, INLINE));
	vb_shortcut_forget(&s);
	assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
}

static void fits__no_other_request(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(0, 8);
	struct ibv_send_wr plain = write_of(&sge, 0), wr;
	static const enum ibv_wr_opcode others[] = { IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_WRITE };
	static const unsigned flags[] = { IBV_SEND_FENCE, IBV_SEND_SOLICITED, IBV_SEND_IP_CSUM, 1u << 20 };
	for (unsigned i = 0; i < VB_ARRAY_LEN(others); i++) {
		wr = plain;
		wr.opcode = others[i];
		assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
	}
	for (unsigned i = 0; i < VB_ARRAY_LEN(flags); i++) {
		wr = plain;
		wr.send_flags |= flags[i];
		assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
	}
	wr = plain;
	wr.next = &plain;
	assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
	wr = plain;
	wr.wr.rdma.rkey++;
	assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
	for (wr = plain, wr.num_sge = -1; wr.num_sge <= 2; wr.num_sge++)
		assert_int_equal(vb_shortcut_fits_write(&s, &wr, INLINE), wr.num_sge == 1);
	sge.lkey++;
	assert_false(vb_shortcut_fits_write(&s, &plain, INLINE));
}

/* Inline data may lie anywhere, and has no key. */
static void fits__inline_data(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = { 0x1234, INLINE, 0xbad };
	struct ibv_send_wr wr = write_of(&sge, 0);
	wr.send_flags |= IBV_SEND_INLINE;
	assert_true(vb_shortcut_fits_write(&s, &wr, INLINE));
	sge.length++;
	assert_false(vb_shortcut_fits_write(&s, &wr, INLINE));
}

/* A READ needs its key, and has a shortcut of its own. */
static void fits__reads(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(8, 16);
	struct ibv_send_wr wr = write_of(&sge, 16);
	assert_false(vb_shortcut_fits_read(&s, &wr));
	wr.opcode = IBV_WR_RDMA_READ;
	assert_true(vb_shortcut_fits_read(&s, &wr));
	wr.send_flags |= IBV_SEND_INLINE;
	assert_false(vb_shortcut_fits_read(&s, &wr));
	wr.send_flags = IBV_SEND_FENCE;
	assert_false(vb_shortcut_fits_read(&s, &wr));
	wr.send_flags = 0;
	wr.wr.rdma.remote_addr = to + BYTES - 15;
	assert_false(vb_shortcut_fits_read(&s, &wr));
	wr.wr.rdma.remote_addr = to;
	sge = piece_at(BYTES - 15, 16);
	assert_false(vb_shortcut_fits_read(&s, &wr));
	sge = piece_at(0, 16);
	sge.lkey++;
	assert_false(vb_shortcut_fits_read(&s, &wr));
}

static void enter__until_something_was_revoked(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(0, 8);
	struct ibv_send_wr wr = write_of(&sge, 16);
	uint32_t idle = atomic_load(&busy), key;
	assert_ptr_equal(vb_shortcut_enter(&s, &wr), there + 16);
	assert_int_equal(atomic_load(&busy), idle + 1);
	assert_true(vb_shortcut_leave(&s, &cut));
	assert_int_equal(atomic_load(&busy), idle + 2);

	assert_int_equal(vb_key_take(&key), 0);
	vb_key_revoke(key);
	assert_null(vb_shortcut_enter(&s, &wr));
	assert_int_equal(atomic_load(&busy), idle + 4);
	s = open_shortcut();
	assert_non_null(vb_shortcut_enter(&s, &wr));
	assert_true(vb_shortcut_leave(&s, &cut));
	atomic_fetch_add(&theirs.revision, 1);
	assert_null(vb_shortcut_enter(&s, &wr));
	assert_int_equal(atomic_load(&busy) % 2, 0);
}

/* What another link's peer had to be told of does not concern this one. */
static void leave__tells_of_a_link_that_was_cut(void **state)
{
	struct vb_shortcut s = open_shortcut();
	struct ibv_sge sge = piece_at(0, 8);
	struct ibv_send_wr wr = write_of(&sge, 16);
	assert_non_null(vb_shortcut_enter(&s, &wr));
	atomic_store(&theirs.cuts, 1);
	assert_true(vb_shortcut_leave(&s, &cut));
	assert_non_null(vb_shortcut_enter(&s, &wr));
	atomic_store(&cut, 1);
	assert_false(vb_shortcut_leave(&s, &cut));
	assert_int_equal(atomic_load(&busy) % 2, 0);
	atomic_store(&theirs.cuts, 0);
	atomic_store(&cut, 0);
}

static void revision__stays_at_the_last(void **state)
{
	atomic_store(&vb_arena->revision, VB_REVISION_LAST - 1);
	vb_arena_revise();
	assert_int_equal(atomic_load(&vb_arena->revision), VB_REVISION_LAST);
	vb_arena_revise();
	assert_int_equal(atomic_load(&vb_arena->revision), VB_REVISION_LAST);
	atomic_store(&vb_arena->revision, 0);
}

static int start(void **state)
{
	return vb_arena_start();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fits__what_lies_within),
		cmocka_unit_test(fits__nothing_beyond),
		cmocka_unit_test(fits__nothing_once_forgotten),
		cmocka_unit_test(fits__no_other_request),
		cmocka_unit_test(fits__inline_data),
		cmocka_unit_test(fits__reads),
		cmocka_unit_test(enter__until_something_was_revoked),
		cmocka_unit_test(leave__tells_of_a_link_that_was_cut),
		cmocka_unit_test(revision__stays_at_the_last),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
