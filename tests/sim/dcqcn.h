/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sender of DCQCN, the congestion control of hardware adapters, for comparison in sim_fabric.c. CNPs
 * reduce its rate. The rate grows again with the time and the bytes since the last CNP. Algorithm and
 * parameters: Zhu and others, "Congestion control for large-scale RDMA deployments", SIGCOMM 2015.
 */
#ifndef VB_SIM_DCQCN_H
#define VB_SIM_DCQCN_H

#include <stdint.h>

struct dcqcn {
	double rate, target, line;    /* bytes per second */
	double alpha;                 /* how congested the path is, 0 to 1 */
	uint64_t alpha_at, growth_at; /* ns: when each changes next */
	uint64_t bytes;               /* sent since the last growth by bytes */
	unsigned by_time, by_bytes;   /* growths since the last CNP */
};

void dcqcn_init(struct dcqcn *d, uint64_t now_ns, double line);
void dcqcn_notified(struct dcqcn *d, uint64_t now_ns);
/* A packet of so many bytes goes out; when the next one may. */
uint64_t dcqcn_sent(struct dcqcn *d, uint64_t now_ns, uint64_t bytes);

#endif
