/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs: remote direct memory access from user space. Link with -libverbs.
 *
 * A program opens a device (query.h), makes a protection domain and registers memory in it (memory.h), makes
 * completion queues (cq.h) and queue pairs (qp.h) or shared receive queues (srq.h), connects the queue pairs
 * by moving them through their states, posts work requests (post.h) and polls for completions (cq.h).
 *
 * Every object is owned by the program from the call that made it to the call that destroys it, and must
 * outlive whatever was made on it. All calls may be made from any thread; destroying an object while another
 * call uses it is an error of the program. Structures are filled by the library and may be read, not
 * written, unless said otherwise.
 *
 * Names, values and layouts are those of rdma-core, so a program compiled with either's headers runs on
 * either library. Comments name the manual page that tells more.
 */
#ifndef INFINIBAND_VERBS_H
#define INFINIBAND_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <linux/types.h>
#include <sys/types.h>
#include <infiniband/verbs_api.h>
#include <infiniband/verbs/ah.h>
#include <infiniband/verbs/context.h>
#include <infiniband/verbs/cq.h>
#include <infiniband/verbs/device.h>
#include <infiniband/verbs/flow.h>
#include <infiniband/verbs/memory.h>
#include <infiniband/verbs/newer.h>
#include <infiniband/verbs/post.h>
#include <infiniband/verbs/qp.h>
#include <infiniband/verbs/query.h>
#include <infiniband/verbs/srq.h>

#endif /* INFINIBAND_VERBS_H */
