/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the measuring programs share: processes that are forked and meet, a device, connected RC queue pairs,
 * figures.
 *
 * A program forks before it opens a device. Memory that its processes share is taken before (shared_memory),
 * and tells them about each other. Whatever fails ends the process with a sentence, and its kin with it.
 * Results are lines "name value" on standard output, one for each figure, with the unit in the name.
 */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	enum ibv_mtu mtu;
};

/* A place in shared memory where a number of processes wait for each other, again and again. */
struct meeting {
	atomic_uint arrived;
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
void check(bool good, const char *what);

uint64_t now_ns(void);
uint64_t cpu_ns(void);                               /* used by this process */
double median(double *values, size_t count);         /* sorts them */
void figure(const char *name, double value);

void *shared_memory(size_t bytes);
void meet(struct meeting *meeting, unsigned parties);        /* sleeps meanwhile */
void meet_spinning(struct meeting *meeting, unsigned parties);

/* Forks a child that runs `body` and exits; it dies with its parent. The parent goes on. */
void fork_child(void (*body)(unsigned number), unsigned number);
void await_children(void);                           /* all must have ended well */
void use_cpu(int cpu);                               /* -1: any */

/* The device on the loopback interface and its IPv4 GID. */
void open_device(struct device *device);
struct ibv_qp *make_qp(struct device *device, struct ibv_cq *cq, unsigned depth, bool signal_all);
void initialize_qp(struct ibv_qp *qp);               /* RESET to INIT */
/* INIT to RTS; also of an XRC queue pair. */
void connect_qp(struct device *device, struct ibv_qp *qp, uint32_t peer_qpn);

#endif
