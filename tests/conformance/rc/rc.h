/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conformance of reliable connections, through the public interface alone. A body is one function that both
 * ends of a connection run, each as its role says; rc_main instantiates every body on every path (run.c:
 * paths): both ends as threads of one process, or as two processes, with each way of copying, and over UDP.
 * Each case runs in a process of its own under a watchdog, so that a case that crashes or hangs is one failed
 * case. The two ends talk over a socket (tell, hear, meet) besides the connection under test.
 */
#ifndef VB_CONFORMANCE_RC_H
#define VB_CONFORMANCE_RC_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "../../sanitized.h"

enum { SKIPPED = 77 };

/* ---- verdicts: a failed check ends the case ---- */

_Noreturn void rc_fail(const char *file, int line, const char *what);
_Noreturn void rc_fail_eq(const char *file, int line, const char *what, long long got, long long want);
_Noreturn void rc_skip(const char *why);

#define CHECK(condition)                                         \
	do {                                                     \
		if (!(condition))                                \
			rc_fail(__FILE__, __LINE__, #condition); \
	} while (0)
#define CHECK_EQ(got, want)                                                                \
	do {                                                                               \
		long long got_ = (long long)(got), want_ = (long long)(want);              \
		if (got_ != want_)                                                         \
			rc_fail_eq(__FILE__, __LINE__, #got " == " #want, got_, want_);    \
	} while (0)

/* ---- the two ends ---- */

/* How an end is made. params() gives what most bodies want. */
struct params {
	enum ibv_qp_type type; /* RC or UC */
	struct ibv_qp_cap cap;
	int cqe;              /* of each CQ */
	size_t bytes;         /* of the registered buffer */
	unsigned mr_access, qp_access;
	uint32_t srq_wr;      /* not 0: the QP uses an SRQ of that size */
	bool sig_all, channel, nonblocking;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, max_dest_rd_atomic;
};

struct params params(void);

/* What an end tells the other about a QP and its buffer. */
struct card {
	uint32_t qpn, psn, rkey;
	uint64_t addr, bytes;
	union ibv_gid gid;
};

struct end {
	bool passive;         /* which of the two */
	bool threads;         /* both ends are threads of one process */
	bool copies_by_vm, copies_by_link; /* the path forces this way of copying */
	bool wire;            /* the two ends speak as two hosts do */
	int peer_pid;         /* of the passive process, told to the active one; else 0 */
	int sock;
	uint64_t seed;
	struct params p;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint8_t *buf;
	struct ibv_mr *mr;
	struct card peer;     /* of the QP that qp is connected to */
};

/* Device, PD, CQs, buffer, QP (in RESET). */
void rc_open(struct end *e, const struct params *p);
/* rc_open and rc_connect of e->qp; both ends have done so when it returns. */
void rc_start(struct end *e, const struct params *p);
/* Destroys everything; each call must succeed. */
void rc_close(struct end *e);
/* rc_close once both ends are here. */
void rc_finish(struct end *e);

struct ibv_qp *rc_make_qp(struct end *e);
/* The first PSN that a queue pair sends with in the connection whose cards were swapped last. */
uint32_t rc_psn(const struct ibv_qp *qp, const struct end *e);
/* The other end makes the same call at the same time. */
struct card rc_swap_cards(struct end *e, struct ibv_qp *qp);
int rc_to_init(struct end *e, struct ibv_qp *qp);
int rc_to_rtr(struct end *e, struct ibv_qp *qp, const struct card *peer);
int rc_to_rts(struct end *e, struct ibv_qp *qp);
int rc_to(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state rc_state(struct ibv_qp *qp);
/* From RESET to RTS with the peer's, both at the same time; returns the peer's card. */
struct card rc_connect(struct end *e, struct ibv_qp *qp);
/* The end's own queue pair once more, from whatever state, with the peer's; both at the same time. */
void rc_reconnect(struct end *e);
void *rc_map(size_t bytes);
/* Nobody can use these pages any more, and no thread is given memory there. */
void rc_take_away(void *pages, size_t bytes);
/*
 * First of a case in which memory is taken away: it is left out where the kernel does not tell what is there.
 */
void rc_needs_holes(void);
/* Has the library put this page into memory that peers map? False as well if nothing is there. */
bool rc_is_moved(const void *at);
/* The same of n <= 32 places: bit k tells of at[k]. */
uint32_t rc_which_are_moved(const void *const *at, unsigned n);

/* ---- beside the connection ---- */

void tell(struct end *e, uint64_t value);
uint64_t hear(struct end *e);
/* Both ends have come here. */
void meet(struct end *e);
void tell_bytes(struct end *e, const void *bytes, size_t n);
void hear_bytes(struct end *e, void *bytes, size_t n);

/* ---- work ---- */

/* A send work request; what is left out is 0. Signaled unless quiet. */
struct op {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	uint64_t at;            /* in the end's buffer */
	uint32_t len;
	uint64_t remote_at;     /* in the peer's buffer */
	uint32_t imm;           /* host order */
	uint64_t compare, swap; /* or the number to add in compare */
	unsigned flags;
	bool quiet;
	struct ibv_qp *qp;      /* else the end's */
	struct ibv_sge *sge;    /* else one entry by at and len */
	int nsge;
	uint32_t lkey, rkey;    /* else the end's and the peer's */
};

int rc_post(struct end *e, const struct op *op);
#define POST(e, ...) CHECK_EQ(rc_post(e, &(struct op){ __VA_ARGS__ }), 0)
int rc_post_recv(struct end *e, struct ibv_qp *qp, uint64_t id, uint64_t at, uint32_t len);
/* A receive for e->qp, or its SRQ. */
void rc_recv(struct end *e, uint64_t id, uint64_t at, uint32_t len);

/* The next completion; fails the case if none comes. */
struct ibv_wc rc_wait(struct ibv_cq *cq);
/* The next completion, which must be this one. */
struct ibv_wc rc_expect(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
/* There is none now. */
void rc_expect_none(struct ibv_cq *cq);
/* The next event at the end's channel, which must be this queue's; acknowledged. */
void rc_expect_cq_event(struct end *e, struct ibv_cq *cq);
/* The next asynchronous event, which must be this one (COMM_EST aside); acknowledged. */
struct ibv_async_event rc_expect_event(struct end *e, enum ibv_event_type type);
void rc_expect_no_event(struct end *e);
bool rc_readable(int fd, int timeout_ms);

/* ---- data ---- */

uint64_t rc_hash(uint64_t x);
/* A generator: each call gives the next of a sequence. */
uint64_t rc_random(uint64_t *state);
uint32_t rc_below(uint64_t *state, uint32_t limit);
void rc_fill(void *to, size_t n, uint64_t seed);
void rc_set(void *to, size_t n, uint8_t value);
uint8_t rc_byte(const void *at);
uint64_t rc_word(const void *at);
void rc_set_word(void *at, uint64_t value);
void rc_verify_at(const char *file, int line, const void *at, size_t n, uint64_t seed);
#define VERIFY(at, n, seed) rc_verify_at(__FILE__, __LINE__, at, n, seed)
/* All n bytes have this value. */
void rc_verify_byte_at(const char *file, int line, const void *at, size_t n, uint8_t value);
#define VERIFY_BYTE(at, n, value) rc_verify_byte_at(__FILE__, __LINE__, at, n, value)

/* Waits for a child and gives its status. */
int rc_reap(int pid);
uint64_t rc_now_ms(void);
void rc_pause_ms(unsigned ms);
/*
 * Until its limit is what it was, which is returned, this process can make no descriptor, and so accepts no
 * links.
 */
struct rlimit rc_use_up_descriptors(void);
extern const bool rc_sanitized; /* slower, and with less memory to spare */
/* Is this `make check-all` (VERBATIM_TEST_LONG)? Costly bodies run in full there alone. */
bool rc_is_long(void);
/* How often to do what `make check-all` does n times: n, or a quarter. */
unsigned rc_times(unsigned n);

/* Each case has one. A case of many parts starts it anew for each. */
void rc_start_watchdog(void);

extern volatile bool rc_peer_may_die; /* the active process is going to kill the other one */

/* ---- instantiation ---- */

struct body {
	const char *name;
	void (*run)(struct end *e);
	enum { BOTH, THREADS_ONLY, PROCESSES_ONLY, ALONE } where; /* ALONE: one end, one process */
};

int rc_main(int argc, char **argv, const struct body *bodies, size_t n);

#define BODY(function) { #function, function, BOTH }
#define BODY_IN(function, where) { #function, function, where }
#define RC_MAIN(bodies)                                                                    \
	int main(int argc, char **argv)                                                    \
	{                                                                                  \
		return rc_main(argc, argv, bodies, sizeof(bodies) / sizeof((bodies)[0]));  \
	}

#endif
