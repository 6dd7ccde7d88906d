/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program on the library, without the verbs: a device, two protection domains with a page of memory each,
 * and queue pairs. And its friend, a process of the same kind, which it can write to.
 */
#ifndef VB_FUZZ_PROGRAM_H
#define VB_FUZZ_PROGRAM_H

#include "actors.h"
#include "adapter/object.h"

enum { QKEY = 0x1234, ZONE_BYTES = 4096, DATAGRAMS_AT = 3072 /* in closed, behind letters */ };
enum { LOCALHOST = 0x7f000001, FAR_AWAY = 0xc0000207 };
enum {
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_REMOTE_ATOMIC
};

struct program {
	struct vb_context ctx;
	struct vb_pd pd, closed_pd; /* the second is of what nobody else may change */
	struct vb_mr mr, closed_mr;
	uint8_t *zone, *closed;     /* their memory */
};

extern struct program program;

void open_program(void);

/* A queue pair with a completion queue of its own. */
struct end {
	struct vb_cq cq;
	struct vb_qp qp;
	uint32_t posted, done;
};

void add_end(struct end *e, enum ibv_qp_type type, struct vb_pd *pd);
void remove_end(struct end *e);
/* From RESET to RTS, as far as it goes. address: IPv4 */
int connect_end(struct end *e, uint32_t address, uint32_t qpn);
void receive_into(struct end *e, uint8_t *at, uint32_t lkey, uint32_t bytes);
void post(struct end *e, enum ibv_wr_opcode opcode, uint8_t *at, uint32_t lkey, uint32_t bytes,
	  uint64_t remote, uint32_t rkey);

/* The friend's body, and the program's connection to it. */
void be_friend(int sock);
void meet_friend(struct actor *friend);
/* A letter there and back, and the same by WRITE and READ. */
void write_to_friend(void);

#endif
