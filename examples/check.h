/* SPDX-License-Identifier: BSD-2-Clause */
/* How the examples end when something goes wrong: with a sentence about it, and status 1. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void check(int failed, const char *what)
{
	if (failed)
		fail(what, strerror(errno));
}

/* got: what rdma_get_send_comp or rdma_get_recv_comp returned. The completion itself may report a failure. */
static inline void check_completion(int got, const struct ibv_wc *wc, const char *what)
{
	check(got != 1, what);
	if (wc->status != IBV_WC_SUCCESS)
		fail(what, ibv_wc_status_str(wc->status));
}
