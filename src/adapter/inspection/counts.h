/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What queue pairs and ports have done (struct vb_counts), and what became of packets that were dropped.
 *
 * A queue pair counts where it holds a lock anyway, without atomic operations: done, received, failed, and
 * what its path counts for it. When it leaves the path, these become its past. The port's sum is made when
 * somebody asks: of the queue pairs that there are, and of those that are gone. It never becomes smaller.
 *
 * Readers take no lock: busy threads hold sq.lock and resp_lock nearly all the time. Each count is one
 * aligned word, so a reader gets a value that it had. Two counts may be from different moments.
 */
#ifndef VB_ADAPTER_COUNTS_H
#define VB_ADAPTER_COUNTS_H

#include "adapter/object.h"

struct vb_path_ops;

/* What a queue pair had done when it left its last path. Few ever do, except to end. */
struct vb_past {
	struct vb_traffic done[VB_TRAFFIC_KINDS];
#define X(name, what) uint64_t name;
	VB_OTHER_COUNTS(X) /* by all its paths */
#undef X
};

uint64_t vb_count_read(const uint64_t *count);
uint32_t vb_position_read(const uint32_t *position);
/* Of a queue pair to which the caller has a reference. */
void vb_qp_count(struct vb_qp *qp, struct vb_counts *counts);
/* Its port is counted from here on. */
void vb_qp_count_begin(const struct vb_qp *qp);
/* The requests of this kind that it has completed on the path that it has. For the path's count. */
struct vb_traffic vb_qp_done_on_path(const struct vb_qp *qp, enum vb_traffic_kind kind);

/* Before the QP leaves its path: 0, or -ENOMEM. */
int vb_qp_count_prepare(struct vb_qp *qp);
/* The QP leaves its path, which has stopped: its path is NULL afterwards, what that has counted stays. */
void vb_qp_count_leave(struct vb_qp *qp, const struct vb_path_ops *path);

/*
 * Destruction: takes the QP out of the table of QP numbers. What it has counted becomes its port's, and what
 * it counts from here on with vb_qp_count_end. *end lives until then, and the QP may leave its path before.
 */
struct vb_count_end {
	struct vb_counts before;
	struct vb_past past;
};
void vb_qp_count_drop(struct vb_qp *qp, struct vb_count_end *end);
void vb_qp_count_end(struct vb_qp *qp, struct vb_count_end *end);

typedef bool vb_port_look(const char *device, const struct vb_counts *counts, void *arg);
/*
 * Calls look for each port with its sum, until it returns false; *cursor follows (0 at first). False: that
 * was all. The name is of a device.
 */
bool vb_ports_look(uint64_t *cursor, vb_port_look *look, void *arg);

/* A packet was dropped. */
void vb_drop(enum vb_drop why);
/*
 * Is somebody to hear why the queue pair drops packets, who has not heard of this reason since it was reset?
 */
bool vb_drop_is_news(struct vb_qp *qp, enum vb_drop why);
void vb_drops_read(uint64_t drops[VB_DROP_REASONS]);

#endif
