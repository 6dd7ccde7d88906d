/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process of another user can do to queue pairs by messages to their process's inbox, which anybody
 * can send: packets that no wire brought. Messages come in order, so the datagram of its own that it sends
 * last, and may send, tells that those before it came to nothing.
 */
#include "../../kernel.h"
#include "../stranger.h"
#include "world.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	QKEY = 0x11111111,
	FIRST_PSN = 0,
	BYTES = 8,
	RECEIVES = 4,
	GRH = 40
};
enum {
	SEND_ONLY = 0x04,
	WRITE_ONLY = 0x0a,
	UC_SEND_ONLY = 0x24,
	UD_SEND_ONLY = 0x64
};

struct victim {
	uint32_t rc, uc, ud; /* queue pairs */
	uint32_t rkey;
	uint64_t addr;
	uint32_t peers_slot; /* of whom the connected ones expect packets, on this host */
};

/* ---- messages ---- */

struct message {
	struct {
		uint32_t magic, flow_label, rest;
		uint8_t src[16], dst[16];
	} header;
	uint8_t packet[64];
};

static uint8_t *put24(uint8_t *to, uint32_t n)
{
	to[0] = (uint8_t)(n >> 16);
	to[1] = (uint8_t)(n >> 8);
	to[2] = (uint8_t)n;
	return to + 3;
}

static uint8_t *put32(uint8_t *to, uint32_t n)
{
	*to = (uint8_t)(n >> 24);
	return put24(to + 1, n);
}

/* A BTH that asks for an ACK. */
static uint8_t *put_bth(uint8_t *to, uint8_t opcode, uint32_t qpn)
{
	uint8_t bth[12] = { opcode, 0, 0xff, 0xff };
	put24(bth + 5, qpn);
	bth[8] = 0x80;
	put24(bth + 9, FIRST_PSN);
	memcpy(to, bth, sizeof(bth));
	return to + sizeof(bth);
}

static const uint8_t localhost[16] = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
		     another_host[16] = { [10] = 0xff, 0xff, 192, 0, 2, 7 };

static void send_packet(int fd, uint32_t slot, const uint8_t src[16], uint8_t opcode, const struct victim *v,
			uint32_t source_qpn)
{
	struct message m = { .header.magic = INBOX_MAGIC };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/slot/%u", slot);
	uint8_t *at = put_bth(m.packet, opcode,
			      opcode == UD_SEND_ONLY ? v->ud :
			      opcode == UC_SEND_ONLY ? v->uc :
						       v->rc);
	memcpy(m.header.src, src, 16);
	memcpy(m.header.dst, localhost, 16);
	if (opcode == UD_SEND_ONLY) {
		at = put32(at, QKEY);
		at = put24(at + 1, source_qpn);
	} else if (opcode == WRITE_ONLY) {
		at = put32(put32(at, (uint32_t)(v->addr >> 32)), (uint32_t)v->addr);
		at = put32(put32(at, v->rkey), BYTES);
	}
	memset(at, 0xee, BYTES);
	size_t bytes = (size_t)(at + BYTES - (uint8_t *)&m);
	for (int tries = 10000;
	     tries && sendto(fd, &m, bytes, 0, (struct sockaddr *)&un,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0;
	     tries--)
		usleep(1000);
}

/* The stranger: everything that it may not do, then what it may. */
static void attack(int sock)
{
	struct victim v;
	int fd;
	if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER))
		_exit(NOT_POSSIBLE);
	uint32_t own = take_slot(&fd);
	if (!own || write(sock, &own, sizeof(own)) != sizeof(own) || read(sock, &v, sizeof(v)) != sizeof(v))
		_exit(1);
	uint32_t to = v.ud >> 12;
	for (int i = 0; i < 2; i++) {
		const uint8_t *src = i ? another_host : localhost;
		send_packet(fd, to, src, SEND_ONLY, &v, 0);
		send_packet(fd, to, src, WRITE_ONLY, &v, 0);
		send_packet(fd, to, src, UC_SEND_ONLY, &v, 0);
	}
	send_packet(fd, to, another_host, UD_SEND_ONLY, &v, own << 12 | 7);
	send_packet(fd, to, localhost, UD_SEND_ONLY, &v, v.peers_slot << 12 | 7);
	send_packet(fd, to, localhost, UD_SEND_ONLY, &v, own << 12 | 7);
	_exit(0);
}

/* ---- the victim ---- */

static struct ibv_qp *make_receiver(struct world *w, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = qp_attr(w);
	struct ibv_recv_wr *bad;
	attr.qp_type = type;
	struct ibv_qp *qp = ibv_create_qp(w->pd, &attr);
	assert_non_null(qp);
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QKEY,
				    .qp_access_flags = type == IBV_QPT_UD ? 0 : ANY_ACCESS };
	assert_errno(0, ibv_modify_qp(qp, &init,
				      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					      (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	struct ibv_sge sge = { .addr = (uintptr_t)w->buffer, .length = 256, .lkey = w->mr->lkey };
	for (uint64_t i = 0; i < RECEIVES; i++)
		assert_errno(0,
			     ibv_post_recv(qp,
					   &(struct ibv_recv_wr){ .wr_id = i, .sg_list = &sge, .num_sge = 1 },
					   &bad));
	return qp;
}

static void listen_to(struct ibv_qp *qp, enum ibv_qp_type type, const uint8_t peer[16], uint32_t qpn)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qpn,
				   .rq_psn = FIRST_PSN,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } } };
	memcpy(rtr.ah_attr.grh.dgid.raw, peer, 16);
	int mask = IBV_QP_STATE;
	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	assert_errno(0, ibv_modify_qp(qp, &rtr, mask));
}

static struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	for (int tries = 0; tries < 10000 && ibv_poll_cq(cq, 1, &wc) == 0; tries++)
		usleep(1000);
	return wc;
}

/* Connected to peer, who is of this host or another. False: this cannot be tried. */
static bool meet_a_stranger(struct world *w, const uint8_t peer[16])
{
	int pair[2], fd, status;
	uint32_t own;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	uint32_t peers_slot = take_slot(&fd); /* a process that has nothing to do with it */
	pid_t pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		alarm(60);
		attack(pair[1]);
	}
	close(pair[1]);
	if (read(pair[0], &own, sizeof(own)) != sizeof(own)) {
		close(pair[0]);
		close(fd);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), NOT_POSSIBLE);
		return false;
	}
	struct ibv_qp *rc = make_receiver(w, IBV_QPT_RC), *uc = make_receiver(w, IBV_QPT_UC),
		      *ud = make_receiver(w, IBV_QPT_UD);
	listen_to(rc, IBV_QPT_RC, peer, peers_slot << 12 | 1);
	listen_to(uc, IBV_QPT_UC, peer, peers_slot << 12 | 2);
	listen_to(ud, IBV_QPT_UD, peer, 0);
	memset(w->buffer, 0, BUFFER);
	struct victim v = { .rc = rc->qp_num,
			    .uc = uc->qp_num,
			    .ud = ud->qp_num,
			    .rkey = w->mr->rkey,
			    .addr = (uintptr_t)w->buffer + 1024,
			    .peers_slot = peers_slot };
	assert_int_equal(write(pair[0], &v, sizeof(v)), sizeof(v));
	struct ibv_wc wc = await(w->cq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.qp_num, ud->qp_num);
	assert_int_equal(wc.src_qp, own << 12 | 7);
	assert_int_equal(wc.wr_id, 0);
	assert_int_equal(ibv_poll_cq(w->cq, 1, &wc), 0);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(w->buffer[1024 + i], 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pair[0]);
	close(fd);
	assert_errno(0, ibv_destroy_qp(rc));
	assert_errno(0, ibv_destroy_qp(uc));
	assert_errno(0, ibv_destroy_qp(ud));
	return true;
}

static void stranger__cannot_speak_for_another_host(void **state)
{
	if (!meet_a_stranger(*state, another_host))
		SKIP(NO_OTHER_USER);
}

static void stranger__cannot_speak_for_another_process(void **state)
{
	if (!meet_a_stranger(*state, localhost))
		SKIP(NO_OTHER_USER);
}

/* ---- numbers that nobody can foretell ---- */

struct numbers {
	uint32_t rkey, index; /* of a process's first region and first queue pair */
};

static struct numbers numbers_of_a_process(void)
{
	struct numbers n;
	int pair[2], status;
	assert_int_equal(pipe(pair), 0);
	pid_t pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		void *state;
		is_forked_child = true;
		alarm(60);
		make_world(&state);
		struct world *w = state;
		n = (struct numbers){ w->mr->rkey, make_qp(w, NULL)->qp_num & 0xfff };
		_exit(write(pair[1], &n, sizeof(n)) != sizeof(n));
	}
	assert_int_equal(read(pair[0], &n, sizeof(n)), sizeof(n));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pair[0]);
	close(pair[1]);
	return n;
}

/* That all are alike by chance is one in 2^36. */
static void numbers__differ_from_process_to_process(void **state)
{
	enum { PROCESSES = 4 };
	struct numbers first = numbers_of_a_process();
	unsigned other_rkeys = 0, other_indexes = 0;
	for (int i = 1; i < PROCESSES; i++) {
		struct numbers n = numbers_of_a_process();
		other_rkeys += n.rkey != first.rkey;
		other_indexes += n.index != first.index;
	}
	assert_true(other_rkeys > 0);
	assert_true(other_indexes > 0);
}

/* Regions in a row are not keys in a row, nor at equal steps; and none is met twice while it is fresh. */
static void keys__differ_by_more_than_their_place(void **state)
{
	enum { REGIONS = 64 };
	struct world *w = *state;
	struct ibv_mr *mrs[REGIONS];
	unsigned tags_alike = 0, steps_alike = 0;
	for (int i = 0; i < REGIONS; i++)
		assert_non_null(mrs[i] = ibv_reg_mr(w->pd, w->buffer, BUFFER, ANY_ACCESS));
	for (int i = 1; i < REGIONS; i++) {
		tags_alike += (mrs[i]->rkey & 0xff) == (mrs[0]->rkey & 0xff);
		steps_alike += ((mrs[i]->rkey - mrs[i - 1]->rkey) & 0xff) ==
			       ((mrs[1]->rkey - mrs[0]->rkey) & 0xff);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(mrs[i]->rkey, mrs[j]->rkey);
	}
	assert_true(tags_alike < REGIONS / 2);
	assert_true(steps_alike < REGIONS / 2);
	for (int i = 0; i < REGIONS; i++)
		assert_errno(0, ibv_dereg_mr(mrs[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(stranger__cannot_speak_for_another_host),
		WORLD_TEST(stranger__cannot_speak_for_another_process),
		cmocka_unit_test(numbers__differ_from_process_to_process),
		WORLD_TEST(keys__differ_by_more_than_their_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
