/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two queue pairs of one process that are connected to each other over the loopback, for programs that make a
 * mistake on purpose.
 */
#ifndef VB_CHECK_WORLD_H
#define VB_CHECK_WORLD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                       \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

enum {
	BUFFER_BYTES = 4096,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_ATOMIC
};

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer;
};

struct world {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct side a, b;
};

/* How it is made; 0: the usual. */
struct wish {
	int cqe;
	unsigned mr_access, qp_access;       /* of b */
	unsigned rnr_retry, retry_cnt;       /* of a */
	unsigned max_rd_atomic, mtu, sq_psn; /* of a; b has 4, 1024, 1 */
	enum ibv_mtu path_mtu;               /* of both */
	const char *device;                  /* else the loopback's */
	bool no_reads;                       /* max_rd_atomic of a is 0 */
	bool unsignaled;                     /* else each send has a completion */
	bool b_stays_in_init;
	bool b_mistakes_gid;                 /* of a */
	uint32_t send_wr;
};

struct world make_world(struct wish wish);
void end_world(struct world *w);

struct ibv_qp *make_qp(struct world *w, struct ibv_cq *cq, const struct wish *wish, enum ibv_qp_type type);
void connect_qp(struct world *w, struct ibv_qp *qp, uint32_t peer, const struct wish *wish, bool is_a);
void to_init(struct ibv_qp *qp, unsigned access);

/* A request with one entry: bytes of the side's buffer with its key. */
struct ibv_send_wr *request(struct side *s, enum ibv_wr_opcode opcode, uint32_t bytes, struct side *remote);
int post(struct ibv_qp *qp, struct ibv_send_wr *wr);
int post_receive(struct ibv_qp *qp, uint64_t addr, uint32_t bytes, uint32_t lkey);
/* Receives into the side's own buffer. */
void receive(struct side *s, uint32_t bytes);
/* The next completion. */
struct ibv_wc next(struct ibv_cq *cq);
/* Which must be a success. */
void done(struct ibv_cq *cq);

#endif
