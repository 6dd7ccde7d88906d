/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC's shared receive queues and who meets at them, with threads: the adapter is whole, the host below it a
 * fake (tests/fuzz).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "adapter/progress/progress.h"
#include "adapter/queues/observer.h"
#include "adapter/xrc_server.h"
#include "fake_host.h"
#include "rig.h"

static struct {
	struct vb_xrc_server share;
	struct vb_xrcd xrcd;
	struct vb_srq srq;
	struct vb_qp qp; /* XRC_RECV */
	pthread_t thread;
} t;

static int begin(void **state)
{
	struct ibv_srq_attr attr = { .max_wr = 8, .max_sge = 1 };
	struct vb_qp_init_attr init = { .type = IBV_QPT_XRC_RECV, .xrcd = &t.xrcd };
	bool others;
	memset(&t, 0, sizeof(t));
	rig_set_up();
	memcpy(t.share.name, "domain", 7);
	assert_int_equal(vb_xrc_server_open(&t.share, 1, &others), 0);
	t.xrcd = (struct vb_xrcd){ .ctx = &rig.ctx, .number = 1, .share = &t.share };
	assert_int_equal(vb_srq_init(&t.srq, &rig.pd, &attr), 0);
	assert_int_equal(vb_xrc_srq_join(&t.srq, &t.xrcd, &rig.cq), 0);
	assert_int_equal(vb_qp_init(&t.qp, NULL, &init), 0);
	return 0;
}

static int end(void **state)
{
	vb_xrc_server_close(&t.share);
	rig_tear_down();
	return 0;
}

static void *destroy_qp(void *unused)
{
	assert_int_equal(vb_qp_fini(&t.qp), 0);
	return NULL;
}

static void *destroy_srq(void *unused)
{
	assert_int_equal(vb_srq_fini(&t.srq), 0);
	return NULL;
}

/*
 * A poll has the completion queue's lock, and finds that another thread has its hot queue pair's: it queues
 * that queue pair. Meanwhile another thread destroys a queue pair, which waits for the completion queue.
 */
static void qp__goes_while_a_poll_queues_another(void **state)
{
	struct rig_qp *hot = rig_add_qp(IBV_QPT_RC);
	vb_lock(&rig.cq.lock);
	assert_int_equal(pthread_create(&t.thread, NULL, destroy_qp, NULL), 0);
	while (!atomic_load(&t.srq.cq_users))
		sched_yield();
	vb_progress_retry(&hot->qp);
	vb_unlock(&rig.cq.lock);
	assert_int_equal(pthread_join(t.thread, NULL), 0);
	destroy_srq(NULL);
}

/* A guest's request has found no receive. */
static void destroy_while_one_waits(struct vb_qp *qp, uint64_t retry_ns)
{
	assert_true(vb_lock_is_taken(&qp->resp_lock));
	assert_int_equal(pthread_create(&t.thread, NULL, destroy_srq, NULL), 0);
}

/* Both let the guest's queue pair go from the queue: one at a time. */
static void srq__goes_while_a_guest_asks(void **state)
{
	static const struct vb_observer observer = { .starved = destroy_while_one_waits };
	static _Alignas(16) uint8_t reply[VB_RPC_MAX_BYTES];
	struct vb_xrc_request request = { .version = VB_XRC_VERSION,
					  .op = VB_XRC_TAKE,
					  .qpn = FAKE_PEER_SLOT << VB_SLOT_SHIFT | 5,
					  .srqn = t.srq.number };
	void *guest = fake_desk_ops->connect(fake_desk_owner);
	vb_observer = &observer;
	assert_int_equal(fake_desk_ops->call(guest, &request, sizeof(request), reply),
			 sizeof(struct vb_xrc_reply));
	vb_observer = NULL;
	assert_int_equal(((struct vb_xrc_reply *)reply)->err, -EAGAIN);
	assert_int_equal(pthread_join(t.thread, NULL), 0);
	fake_desk_ops->disconnect(guest);
	destroy_qp(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(qp__goes_while_a_poll_queues_another),
		TEST(srq__goes_while_a_guest_asks),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
