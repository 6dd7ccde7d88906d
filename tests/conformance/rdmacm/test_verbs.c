/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs of rdma_verbs.h on ids: registration, posting, reaping, and what they refuse. */
#include "../../kernel.h"
#include "cm.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "../no_memory.h"

enum { DEPTH = 8, SGES = 3, SIZE = 4096 };

/* Two connected ids with QPs whose completion queues the library made, and a buffer of each. */
struct wired {
	struct pair p;
	uint8_t client_buf[SIZE], server_buf[SIZE];
	struct ibv_mr *client_mr, *server_mr;
};

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
					  .sq_sig_all = 1,
					  .cap = { .max_send_wr = DEPTH,
						   .max_recv_wr = DEPTH,
						   .max_send_sge = SGES,
						   .max_recv_sge = SGES,
						   .max_inline_data = 64 } };
}

static void add_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = qp_attr();

	attr.qp_type = type;
	assert_ok(rdma_create_qp(id, NULL, &attr));
}

static struct wired *wire_up_with(enum ibv_qp_type type, const char *ip)
{
	struct wired *w = calloc(1, sizeof(*w));
	struct rdma_cm_event *event;

	assert_non_null(w);
	w->p = listening_pair(ip, RDMA_PS_TCP);
	add_qp(w->p.client, type);
	assert_ok(rdma_connect(w->p.client, NULL));
	event = expect(w->p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	w->p.server = event->id;
	assert_int_equal(w->p.server->qp_type, type);
	add_qp(w->p.server, type);
	assert_ok(rdma_accept(w->p.server, NULL));
	assert_ok(rdma_ack_cm_event(event));
	expect_acked(w->p.client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(w->p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	return w;
}

static struct wired *wire_up(const char *ip) { return wire_up_with(IBV_QPT_RC, ip); }

static void tear_down(struct wired *w)
{
	if (w->client_mr)
		assert_ok(rdma_dereg_mr(w->client_mr));
	if (w->server_mr)
		assert_ok(rdma_dereg_mr(w->server_mr));
	rdma_destroy_qp(w->p.client);
	rdma_destroy_qp(w->p.server);
	destroy_pair(&w->p);
	free(w);
}

static void register_msgs(struct wired *w)
{
	w->client_mr = rdma_reg_msgs(w->p.client, w->client_buf, SIZE);
	w->server_mr = rdma_reg_msgs(w->p.server, w->server_buf, SIZE);
	assert_non_null(w->client_mr);
	assert_non_null(w->server_mr);
}

static void expect_send_comp(struct rdma_cm_id *id, void *context, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, opcode);
	assert_int_equal(wc.wr_id, (uintptr_t)context);
}

static void expect_recv_comp(struct rdma_cm_id *id, void *context, uint32_t bytes)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wr_id, (uintptr_t)context);
	assert_int_equal(wc.byte_len, bytes);
}

static void fill(uint8_t *buf, uint8_t seed)
{
	for (int i = 0; i < SIZE; i++)
		buf[i] = (uint8_t)(i * 31 + seed);
}

/* ---- messages ---- */

static void message_of(enum ibv_qp_type type, const char *ip)
{
	struct wired *w = wire_up_with(type, ip);
	int send_context, recv_context;

	register_msgs(w);
	fill(w->client_buf, 1);
	assert_ok(rdma_post_recv(w->p.server, &recv_context, w->server_buf, SIZE, w->server_mr));
	assert_ok(rdma_post_send(w->p.client, &send_context, w->client_buf, 1000, w->client_mr, 0));
	expect_send_comp(w->p.client, &send_context, IBV_WC_SEND);
	expect_recv_comp(w->p.server, &recv_context, 1000);
	assert_memory_equal(w->server_buf, w->client_buf, 1000);
	assert_int_equal(w->server_buf[1000], 0);
	tear_down(w);
}

static void message_on(const char *ip) { message_of(IBV_QPT_RC, ip); }
static void unreliable_message_on(const char *ip) { message_of(IBV_QPT_UC, ip); }

static void send__arrives(void **state)
{
	(void)state;
	on_each_address(message_on);
}

static void send__arrives_unreliably(void **state)
{
	(void)state;
	on_each_address(unreliable_message_on);
}

static void send__inline_needs_no_region(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	char text[] = "inline";

	(void)state;
	register_msgs(w);
	assert_ok(rdma_post_recv(w->p.server, NULL, w->server_buf, SIZE, w->server_mr));
	assert_ok(rdma_post_send(w->p.client, NULL, text, sizeof(text), NULL, IBV_SEND_INLINE));
	memset(text, 0, sizeof(text)); /* it was copied */
	expect_send_comp(w->p.client, NULL, IBV_WC_SEND);
	expect_recv_comp(w->p.server, NULL, sizeof(text));
	assert_string_equal((char *)w->server_buf, "inline");
	tear_down(w);
}

/* rdma_xclient counts on it: inline data in place of the entries, without having asked. */
static void inline__is_granted_where_entries_would_be(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr(), init;
	struct ibv_qp_attr seen;

	(void)state;
	attr.cap.max_inline_data = 0;
	assert_ok(rdma_create_qp(id, NULL, &attr));
	assert_true(attr.cap.max_inline_data >= SGES * sizeof(struct ibv_sge));
	assert_int_equal(ibv_query_qp(id->qp, &seen, IBV_QP_CAP, &init), 0);
	assert_int_equal(seen.cap.max_inline_data, attr.cap.max_inline_data);
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void send__vectors_gather_and_scatter(void **state)
{
	struct wired *w = wire_up("127.0.0.1");

	(void)state;
	register_msgs(w);
	fill(w->client_buf, 2);
	struct ibv_sge from[] = { { (uintptr_t)w->client_buf, 10, w->client_mr->lkey },
				  { (uintptr_t)w->client_buf + 100, 20, w->client_mr->lkey },
				  { (uintptr_t)w->client_buf + 200, 30, w->client_mr->lkey } };
	struct ibv_sge to[] = { { (uintptr_t)w->server_buf, 25, w->server_mr->lkey },
				{ (uintptr_t)w->server_buf + 500, 500, w->server_mr->lkey } };
	assert_ok(rdma_post_recvv(w->p.server, w, to, 2));
	assert_ok(rdma_post_sendv(w->p.client, w, from, 3, 0));
	expect_send_comp(w->p.client, w, IBV_WC_SEND);
	expect_recv_comp(w->p.server, w, 60);
	assert_memory_equal(w->server_buf, w->client_buf, 10);
	assert_memory_equal(w->server_buf + 10, w->client_buf + 100, 15);
	assert_memory_equal(w->server_buf + 500, w->client_buf + 115, 5);
	assert_memory_equal(w->server_buf + 505, w->client_buf + 200, 30);
	tear_down(w);
}

static void send__unsignaled_completes_silently(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct ibv_qp_init_attr attr = qp_attr();
	struct rdma_cm_event *event;
	uint8_t from[8] = { 1 }, to[8];
	struct ibv_wc wc;

	(void)state;
	attr.sq_sig_all = 0;
	assert_ok(rdma_create_qp(p.client, NULL, &attr));
	assert_ok(rdma_connect(p.client, NULL));
	event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	add_qp(p.server, IBV_QPT_RC);
	struct ibv_mr *mr = rdma_reg_msgs(p.server, to, sizeof(to));
	assert_ok(rdma_post_recv(p.server, NULL, to, sizeof(to), mr)); /* before the connection is there */
	assert_ok(rdma_post_recv(p.server, NULL, to, sizeof(to), mr));
	assert_ok(rdma_accept(p.server, NULL));
	assert_ok(rdma_ack_cm_event(event));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_post_send(p.client, &from, from, sizeof(from), NULL, IBV_SEND_INLINE));
	assert_ok(
		rdma_post_send(p.client, &to, from, sizeof(from), NULL, IBV_SEND_INLINE | IBV_SEND_SIGNALED));
	expect_send_comp(p.client, &to, IBV_WC_SEND);
	assert_int_equal(ibv_poll_cq(p.client->send_cq, 1, &wc), 0);
	expect_recv_comp(p.server, NULL, sizeof(to));
	expect_recv_comp(p.server, NULL, sizeof(to));
	assert_ok(rdma_dereg_mr(mr));
	rdma_destroy_qp(p.client);
	rdma_destroy_qp(p.server);
	destroy_pair(&p);
}

/* ---- the peer's memory ---- */

static void rdma_on(const char *ip)
{
	struct wired *w = wire_up(ip);
	struct ibv_mr *readable_mr = rdma_reg_read(w->p.server, w->server_buf, SIZE);
	uint8_t writable[SIZE] = { 0 };
	struct ibv_mr *writable_mr = rdma_reg_write(w->p.server, writable, SIZE);

	assert_non_null(readable_mr);
	assert_non_null(writable_mr);
	w->client_mr = rdma_reg_msgs(w->p.client, w->client_buf, SIZE);
	fill(w->server_buf, 3);
	assert_ok(rdma_post_read(w->p.client, w, w->client_buf, SIZE, w->client_mr, 0,
				 (uintptr_t)w->server_buf, readable_mr->rkey));
	expect_send_comp(w->p.client, w, IBV_WC_RDMA_READ);
	assert_memory_equal(w->client_buf, w->server_buf, SIZE);
	assert_ok(rdma_post_write(w->p.client, writable, w->client_buf + 5, 100, w->client_mr, 0,
				  (uintptr_t)writable + 7, writable_mr->rkey));
	expect_send_comp(w->p.client, writable, IBV_WC_RDMA_WRITE);
	assert_memory_equal(writable + 7, w->client_buf + 5, 100);
	assert_int_equal(writable[6], 0);
	assert_int_equal(writable[107], 0);
	assert_ok(rdma_dereg_mr(readable_mr));
	assert_ok(rdma_dereg_mr(writable_mr));
	tear_down(w);
}

static void read_and_write__move_data(void **state)
{
	(void)state;
	on_each_address(rdma_on);
}

static void readv_and_writev__take_vectors(void **state)
{
	struct wired *w = wire_up("127.0.0.1");

	(void)state;
	w->client_mr = rdma_reg_msgs(w->p.client, w->client_buf, SIZE);
	w->server_mr = rdma_reg_write(w->p.server, w->server_buf, SIZE);
	fill(w->client_buf, 4);
	struct ibv_sge sgl[] = { { (uintptr_t)w->client_buf + 50, 11, w->client_mr->lkey },
				 { (uintptr_t)w->client_buf + 10, 22, w->client_mr->lkey } };
	assert_ok(rdma_post_writev(w->p.client, w, sgl, 2, 0, (uintptr_t)w->server_buf, w->server_mr->rkey));
	expect_send_comp(w->p.client, w, IBV_WC_RDMA_WRITE);
	assert_memory_equal(w->server_buf, w->client_buf + 50, 11);
	assert_memory_equal(w->server_buf + 11, w->client_buf + 10, 22);

	struct ibv_mr *readable_mr = rdma_reg_read(w->p.server, w->server_buf, SIZE);
	memset(w->client_buf, 0, SIZE);
	assert_ok(rdma_post_readv(w->p.client, w, sgl, 2, 0, (uintptr_t)w->server_buf, readable_mr->rkey));
	expect_send_comp(w->p.client, w, IBV_WC_RDMA_READ);
	assert_memory_equal(w->client_buf + 50, w->server_buf, 11);
	assert_memory_equal(w->client_buf + 10, w->server_buf + 11, 22);
	assert_ok(rdma_dereg_mr(readable_mr));
	tear_down(w);
}

/* The kinds of registration give the peer what their names say and no more. */
static void write__to_a_region_for_messages_fails(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct ibv_wc wc;

	(void)state;
	register_msgs(w);
	assert_ok(rdma_post_write(w->p.client, w, w->client_buf, 8, w->client_mr, 0, (uintptr_t)w->server_buf,
				  w->server_mr->rkey));
	assert_int_equal(rdma_get_send_comp(w->p.client, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(wc.wr_id, (uintptr_t)w);
	tear_down(w);
}

static void read__from_a_region_for_writing_fails(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct ibv_wc wc;

	(void)state;
	w->client_mr = rdma_reg_msgs(w->p.client, w->client_buf, SIZE);
	w->server_mr = rdma_reg_write(w->p.server, w->server_buf, SIZE);
	assert_ok(rdma_post_read(w->p.client, w, w->client_buf, 8, w->client_mr, 0, (uintptr_t)w->server_buf,
				 w->server_mr->rkey));
	assert_int_equal(rdma_get_send_comp(w->p.client, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	tear_down(w);
}

/* ---- datagrams ---- */

static void add_ud_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = qp_attr();

	attr.qp_type = IBV_QPT_UD;
	assert_ok(rdma_create_qp(id, NULL, &attr));
}

enum { GRH_BYTES = 40 };

static void datagram_on(const char *ip)
{
	struct pair p = listening_pair(ip, RDMA_PS_UDP);
	uint8_t from[100], to[GRH_BYTES + 100];
	struct rdma_cm_event *event;

	memset(from, 7, sizeof(from));
	add_ud_qp(p.client);
	assert_ok(rdma_connect(p.client, NULL));
	event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	add_ud_qp(p.server);
	struct ibv_mr *to_mr = rdma_reg_msgs(p.server, to, sizeof(to)),
		      *from_mr = rdma_reg_msgs(p.client, from, sizeof(from));
	assert_ok(rdma_post_recv(p.server, to, to, sizeof(to), to_mr));
	assert_ok(rdma_accept(p.server, NULL));
	assert_ok(rdma_ack_cm_event(event));

	event = expect(p.client_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.ud.qp_num, p.server->qp->qp_num);
	struct ibv_ah *ah = ibv_create_ah(p.client->pd, &event->param.ud.ah_attr);
	assert_non_null(ah);
	assert_ok(rdma_post_ud_send(p.client, from, from, sizeof(from), from_mr, 0, ah,
				    event->param.ud.qp_num));
	assert_ok(rdma_ack_cm_event(event));
	expect_send_comp(p.client, from, IBV_WC_SEND);
	expect_recv_comp(p.server, to, sizeof(to));
	assert_memory_equal(to + GRH_BYTES, from, sizeof(from));

	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_ok(rdma_dereg_mr(to_mr));
	assert_ok(rdma_dereg_mr(from_mr));
	rdma_destroy_qp(p.client);
	rdma_destroy_qp(p.server);
	destroy_pair(&p);
}

static void ud_send__arrives(void **state)
{
	(void)state;
	on_each_address(datagram_on);
}

/* ---- refusals ---- */

static void post__without_a_qp(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	uint8_t buf[16];
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf)); /* the default domain is there already */
	struct ibv_sge sge = { (uintptr_t)buf, sizeof(buf), 0 };
	struct ibv_wc wc;

	(void)state;
	assert_non_null(mr);
	assert_refused(EINVAL, rdma_post_recv(id, NULL, buf, sizeof(buf), mr));
	assert_refused(EINVAL, rdma_post_recvv(id, NULL, &sge, 1));
	assert_refused(EINVAL, rdma_post_send(id, NULL, buf, sizeof(buf), mr, 0));
	assert_refused(EINVAL, rdma_post_sendv(id, NULL, &sge, 1, 0));
	assert_refused(EINVAL, rdma_post_read(id, NULL, buf, sizeof(buf), mr, 0, 0, 0));
	assert_refused(EINVAL, rdma_post_readv(id, NULL, &sge, 1, 0, 0, 0));
	assert_refused(EINVAL, rdma_post_write(id, NULL, buf, sizeof(buf), mr, 0, 0, 0));
	assert_refused(EINVAL, rdma_post_writev(id, NULL, &sge, 1, 0, 0, 0));
	assert_refused(EINVAL, rdma_post_ud_send(id, NULL, buf, sizeof(buf), mr, 0, NULL, 1));
	assert_refused(EINVAL, rdma_get_send_comp(id, &wc));
	assert_refused(EINVAL, rdma_get_recv_comp(id, &wc));
	assert_ok(rdma_dereg_mr(mr));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void post__before_the_connection(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	uint8_t buf[16];

	(void)state;
	add_qp(id, IBV_QPT_RC);
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));
	for (int i = 0; i < DEPTH; i++)
		assert_ok(rdma_post_recv(id, NULL, buf, sizeof(buf), mr));
	assert_refused(EINVAL, rdma_post_send(id, NULL, buf, sizeof(buf), mr, 0));
	assert_refused(EINVAL, rdma_post_read(id, NULL, buf, sizeof(buf), mr, 0, 0, 0));
	assert_refused(EINVAL, rdma_post_write(id, NULL, buf, sizeof(buf), mr, 0, 0, 0));
	rdma_destroy_qp(id);
	assert_ok(rdma_dereg_mr(mr));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void post__more_than_fits(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct ibv_sge sgl[64] = { { 0 } };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int posted = 0;

	(void)state;
	register_msgs(w);
	assert_int_equal(ibv_query_qp(w->p.server->qp, &attr, IBV_QP_CAP, &init), 0);
	for (size_t i = 0; i < 64; i++)
		sgl[i] = (struct ibv_sge){ (uintptr_t)w->server_buf, 1, w->server_mr->lkey };
	if (attr.cap.max_recv_sge < 64)
		assert_refused(EINVAL,
			       rdma_post_recvv(w->p.server, NULL, sgl, (int)attr.cap.max_recv_sge + 1));
	while (rdma_post_recv(w->p.server, NULL, w->server_buf, SIZE, w->server_mr) == 0)
		assert_true(++posted <= (int)attr.cap.max_recv_wr);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(posted, attr.cap.max_recv_wr);
	tear_down(w);
}

/* No receive is there, so the queue stays full. */
static void post__to_a_full_queue(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct rdma_cm_id *id = w->p.client;
	struct ibv_sge sge = { (uintptr_t)w->client_buf, 8, 0 };

	(void)state;
	register_msgs(w);
	sge.lkey = w->client_mr->lkey;
	while (rdma_post_recv(id, NULL, w->client_buf, 8, w->client_mr) == 0)
		;
	assert_refused(ENOMEM, rdma_post_recv(id, NULL, w->client_buf, 8, w->client_mr));
	assert_refused(ENOMEM, rdma_post_recvv(id, NULL, &sge, 1));
	while (rdma_post_send(id, NULL, w->client_buf, 8, w->client_mr, 0) == 0)
		;
	assert_refused(ENOMEM, rdma_post_send(id, NULL, w->client_buf, 8, w->client_mr, 0));
	assert_refused(ENOMEM, rdma_post_sendv(id, NULL, &sge, 1, 0));
	assert_refused(ENOMEM, rdma_post_read(id, NULL, w->client_buf, 8, w->client_mr, 0, 0, 0));
	assert_refused(ENOMEM, rdma_post_readv(id, NULL, &sge, 1, 0, 0, 0));
	assert_refused(ENOMEM, rdma_post_write(id, NULL, w->client_buf, 8, w->client_mr, 0, 0, 0));
	assert_refused(ENOMEM, rdma_post_writev(id, NULL, &sge, 1, 0, 0, 0));
	tear_down(w);
}

static void ud_send__of_more_inline_than_fits(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_UDP);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint8_t buf[SIZE] = { 0 };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };

	(void)state;
	add_ud_qp(id);
	assert_int_equal(ibv_query_gid(id->verbs, 1, 0, &to.grh.dgid), 0);
	struct ibv_ah *ah = ibv_create_ah(id->pd, &to);
	assert_non_null(ah);
	assert_int_equal(ibv_query_qp(id->qp, &attr, IBV_QP_CAP, &init), 0);
	assert_refused(ENOMEM, rdma_post_ud_send(id, NULL, buf, attr.cap.max_inline_data + 1, NULL,
						 IBV_SEND_INLINE, ah, 1));
	assert_int_equal(ibv_destroy_ah(ah), 0);
	rdma_destroy_qp(id);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

#define assert_no_region(err, call)         \
	do {                                \
		errno = 0;                  \
		assert_null(call);          \
		assert_int_equal(errno, err); \
	} while (0)

/* A range from there leaves the address space. */
static void *nowhere(void) { return (void *)(UINTPTR_MAX - 8); }

static void reg__refused(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	uint8_t buf[16];

	(void)state;
	if (kernel_tells_what_is_mapped()) {
		assert_no_region(EFAULT, rdma_reg_msgs(id, hole, 16));
		assert_no_region(EFAULT, rdma_reg_read(id, hole, 16));
		assert_no_region(EFAULT, rdma_reg_write(id, hole, 16));
	}
	assert_no_region(EINVAL, rdma_reg_msgs(id, nowhere(), 64));
	assert_no_region(EINVAL, rdma_reg_read(id, nowhere(), 64));
	assert_no_region(EINVAL, rdma_reg_write(id, nowhere(), 64));
	if (HAVE_ALLOCATOR) {
		null_when_out(ENOMEM, mr = rdma_reg_msgs(id, buf, sizeof(buf)), assert_ok(rdma_dereg_mr(mr)));
		null_when_out(ENOMEM, mr = rdma_reg_read(id, buf, sizeof(buf)), assert_ok(rdma_dereg_mr(mr)));
		null_when_out(ENOMEM, mr = rdma_reg_write(id, buf, sizeof(buf)),
			      assert_ok(rdma_dereg_mr(mr)));
	}
	munmap(hole, 4096);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void dereg__while_a_window_is_bound(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct ibv_mr *mr =
		ibv_reg_mr(w->p.client->pd, w->client_buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(w->p.client->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .bind_info = {
					    .mr = mr, .addr = (uintptr_t)w->client_buf, .length = 8 } };
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(ibv_bind_mw(w->p.client->qp, mw, &bind), 0);
	assert_int_equal(rdma_get_send_comp(w->p.client, &wc), 1);
	assert_refused(EBUSY, rdma_dereg_mr(mr));
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_ok(rdma_dereg_mr(mr));
	tear_down(w);
}

static void on_alarm(int signal) { (void)signal; }

/* A signal ends the wait, and a descriptor that does not block has none. */
static void comp__waits_no_longer(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct rdma_cm_id *id = w->p.client;
	struct sigaction act = { .sa_handler = on_alarm }, before; /* without SA_RESTART */
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct ibv_wc wc;

	(void)state;
	sigaction(SIGALRM, &act, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	assert_refused(EINTR, rdma_get_send_comp(id, &wc));
	assert_refused(EINTR, rdma_get_recv_comp(id, &wc));
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &before, NULL);
	assert_int_equal(fcntl(id->send_cq_channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(fcntl(id->recv_cq_channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_refused(EAGAIN, rdma_get_send_comp(id, &wc));
	assert_refused(EAGAIN, rdma_get_recv_comp(id, &wc));
	tear_down(w);
}

/* ibv_post_recv takes a list up to its first bad request, and tells which that is. */
static void post_recv__stops_at_the_first_bad(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	uint8_t buf[16];

	(void)state;
	add_qp(id, IBV_QPT_RC);
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));
	struct ibv_sge sge = { (uintptr_t)buf, sizeof(buf), mr->lkey };
	struct ibv_recv_wr wr[3] = { { .next = &wr[1], .sg_list = &sge, .num_sge = 1 },
				     { .next = &wr[2], .sg_list = &sge, .num_sge = 1000 },
				     { .sg_list = &sge, .num_sge = 1 } };
	struct ibv_recv_wr *bad = NULL;
	assert_int_equal(ibv_post_recv(id->qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr[1]);
	rdma_destroy_qp(id);
	assert_ok(rdma_dereg_mr(mr));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* With an SRQ the id's receives go there, and the QP itself takes none. */
static void post_recv__goes_to_the_srq(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 2, .max_sge = 1 } };
	struct ibv_recv_wr wr = { 0 }, *bad = NULL;
	uint8_t buf[16];

	(void)state;
	assert_ok(rdma_create_srq(id, NULL, &attr));
	struct ibv_mr *mr = rdma_reg_msgs(id, buf, sizeof(buf));
	assert_ok(rdma_post_recv(id, NULL, buf, sizeof(buf), mr)); /* needs no QP */
	add_qp(id, IBV_QPT_RC);
	assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_ok(rdma_post_recv(id, NULL, buf, sizeof(buf), mr));
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	assert_ok(rdma_dereg_mr(mr));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* The queue that is made for its completions has room for all of them, whatever max_recv_wr says. */
static void srq__has_room_for_its_completions(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);
	struct ibv_srq_init_attr queue = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = qp_attr();
	uint8_t in[8], out[8] = { 0 };

	(void)state;
	add_qp(p.client, IBV_QPT_RC);
	assert_ok(rdma_connect(p.client, NULL));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_create_srq(p.server, NULL, &queue));
	attr.cap.max_recv_wr = 0;
	assert_ok(rdma_create_qp(p.server, NULL, &attr));
	struct ibv_mr *mr = rdma_reg_msgs(p.server, in, sizeof(in));
	assert_non_null(mr);
	for (int i = 0; i < DEPTH; i++)
		assert_ok(rdma_post_recv(p.server, NULL, in, sizeof(in), mr));
	assert_ok(rdma_accept(p.server, NULL));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	for (int i = 0; i < DEPTH; i++)
		assert_ok(rdma_post_send(p.client, NULL, out, sizeof(out), NULL, IBV_SEND_INLINE));
	for (int i = 0; i < DEPTH; i++)
		expect_send_comp(p.client, NULL, IBV_WC_SEND);
	for (int i = 0; i < DEPTH; i++)
		expect_recv_comp(p.server, NULL, sizeof(out));
	assert_ok(rdma_dereg_mr(mr));
	rdma_destroy_qp(p.client);
	rdma_destroy_qp(p.server);
	rdma_destroy_srq(p.server);
	destroy_pair(&p);
}

/* ---- the end ---- */

/*
 * The request says which kind it is for; domain, SRQ and completion queue are those that rdma_cm has for the
 * device.
 */
static void xrc__sends_to_the_srq(void **state)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_IB);
	struct ibv_qp_init_attr_ex sending = { .qp_type = IBV_QPT_XRC_SEND,
					       .cap = { .max_send_wr = 2, .max_send_sge = 1 } };
	struct ibv_qp_init_attr receiving = { .qp_type = IBV_QPT_XRC_RECV };
	struct ibv_srq_init_attr queue = { .attr = { .max_wr = 2, .max_sge = 1 } };
	struct rdma_conn_param param = some_param();
	uint8_t in[16] = { 0 }, out[16] = "to the srq";
	struct ibv_wc wc;
	uint32_t srqn = 0;

	assert_ok(rdma_create_qp_ex(p.client, &sending));
	assert_null(p.client->recv_cq);
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_int_equal(p.server->qp_type, IBV_QPT_XRC_RECV);
	assert_ok(rdma_create_qp(p.server, NULL, &receiving));
	assert_ok(rdma_create_srq(p.server, NULL, &queue));
	assert_int_equal(ibv_get_srq_num(p.server->srq, &srqn), 0);
	struct ibv_mr *in_mr = rdma_reg_msgs(p.server, in, sizeof(in)),
		      *out_mr = rdma_reg_msgs(p.client, out, sizeof(out));
	assert_ok(rdma_post_recv(p.server, NULL, in, sizeof(in), in_mr));
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);

	struct ibv_sge sge = { (uintptr_t)out, sizeof(out), out_mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED,
				  .qp_type.xrc.remote_srqn = srqn },
			   *bad;
	assert_int_equal(ibv_post_send(p.client->qp, &wr, &bad), 0);
	assert_int_equal(rdma_get_recv_comp(p.server, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(in, out, sizeof(in));

	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_dereg_mr(in_mr));
	assert_ok(rdma_dereg_mr(out_mr));
	rdma_destroy_qp(p.client);
	rdma_destroy_qp(p.server);
	assert_non_null(p.server->recv_cq);
	rdma_destroy_srq(p.server);
	assert_null(p.server->recv_cq);
	destroy_pair(&p);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_ok(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void disconnect__flushes_what_was_posted(void **state)
{
	struct wired *w = wire_up("127.0.0.1");
	struct ibv_wc wc;

	(void)state;
	register_msgs(w);
	assert_ok(rdma_post_recv(w->p.client, &wc, w->client_buf, SIZE, w->client_mr));
	assert_ok(rdma_post_recv(w->p.server, w, w->server_buf, SIZE, w->server_mr));
	assert_ok(rdma_disconnect(w->p.client));
	assert_int_equal(rdma_get_recv_comp(w->p.client, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, (uintptr_t)&wc);
	/* The event alone ends nothing on the other side: it may still have completions to take. */
	expect_acked(w->p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_int_equal(state_of(w->p.server->qp), IBV_QPS_RTS);
	assert_int_equal(ibv_poll_cq(w->p.server->recv_cq, 1, &wc), 0);
	assert_ok(rdma_disconnect(w->p.server));
	assert_int_equal(rdma_get_recv_comp(w->p.server, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, (uintptr_t)w);
	tear_down(w);
}

/* The program makes a QP, posts one receive to it, and puts it into the id itself. */
static void put_own_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = qp_attr();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	int mask;

	init.send_cq = init.recv_cq = ibv_create_cq(id->verbs, DEPTH, NULL, NULL, 0);
	assert_non_null(init.recv_cq);
	id->qp = ibv_create_qp(id->pd, &init);
	assert_non_null(id->qp);
	assert_ok(rdma_init_qp_attr(id, &attr, &mask));
	assert_int_equal(ibv_modify_qp(id->qp, &attr, mask), 0);
	assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
}

static void expect_flushed(struct ibv_qp *qp)
{
	struct ibv_wc wc;
	int n;

	assert_int_equal(state_of(qp), IBV_QPS_ERR);
	while ((n = ibv_poll_cq(qp->recv_cq, 1, &wc)) == 0)
		;
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
}

static void destroy_own_qp(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = id->qp->recv_cq;

	assert_int_equal(ibv_destroy_qp(id->qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	id->qp = NULL;
}

/* The client has a QP of its own, and the server the id of its request. */
static struct pair asking_pair(void)
{
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);

	put_own_qp(p.client);
	assert_ok(rdma_connect(p.client, NULL));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	return p;
}

static void accept_request(struct pair *p)
{
	assert_ok(rdma_accept(p->server, NULL));
	expect_acked(p->client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(p->server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static void disconnect__flushes_a_qp_that_the_program_put_there(void **state)
{
	struct pair p = asking_pair();

	(void)state;
	put_own_qp(p.server);
	accept_request(&p);
	assert_int_equal(state_of(p.client->qp), IBV_QPS_RTS);
	assert_int_equal(state_of(p.server->qp), IBV_QPS_RTS);
	assert_ok(rdma_disconnect(p.client));
	expect_flushed(p.client->qp);
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_disconnect(p.server));
	expect_flushed(p.server->qp);
	destroy_own_qp(p.client);
	destroy_own_qp(p.server);
	destroy_pair(&p);
}

/* Implementations of DAPL make the QP before a request comes, on another id. */
static void disconnect__flushes_a_qp_of_another_id(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *other = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);

	(void)state;
	put_own_qp(other);
	struct pair p = asking_pair();
	p.server->qp = other->qp;
	other->qp = NULL;
	assert_ok(rdma_destroy_id(other));
	accept_request(&p);
	struct ibv_qp *kept = p.client->qp;
	p.client->qp = NULL;
	assert_ok(rdma_disconnect(p.client));
	assert_int_equal(state_of(kept), IBV_QPS_RTS); /* it is the id's no more */
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	assert_ok(rdma_disconnect(p.server));
	expect_flushed(p.server->qp);
	p.client->qp = kept;
	destroy_own_qp(p.client);
	destroy_own_qp(p.server);
	destroy_pair(&p);
	rdma_destroy_event_channel(ch);
}

static void rejected__flushes_a_qp_that_the_program_put_there(void **state)
{
	struct pair p = asking_pair();

	(void)state;
	assert_ok(rdma_reject(p.server, NULL, 0));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_REJECTED);
	assert_ok(rdma_ack_cm_event(event));
	expect_flushed(p.client->qp);
	destroy_own_qp(p.client);
	destroy_pair(&p);
}

/* The client does not wait for an answer any more, and what the server accepts afterwards comes too late. */
static void disconnect__while_connecting(void **state)
{
	struct pair p = asking_pair();

	(void)state;
	assert_ok(rdma_disconnect(p.client));
	expect_flushed(p.client->qp);
	put_own_qp(p.server);
	assert_ok(rdma_accept(p.server, NULL));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_CONNECT_ERROR);
	assert_ok(rdma_ack_cm_event(event));
	destroy_own_qp(p.client);
	destroy_own_qp(p.server);
	destroy_pair(&p);
}

static void disconnect__of_a_request(void **state)
{
	struct pair p = asking_pair();

	(void)state;
	put_own_qp(p.server);
	assert_ok(rdma_disconnect(p.server));
	expect_flushed(p.server->qp);
	assert_false(readable(p.client_ch->fd, 0)); /* it is still to be answered */
	destroy_own_qp(p.server);
	assert_ok(rdma_destroy_id(p.server));
	p.server = NULL;
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_REJECTED);
	assert_ok(rdma_ack_cm_event(event));
	destroy_own_qp(p.client);
	destroy_pair(&p);
}

/* It fails, as there is no connection to end, but not before it has flushed. */
static void disconnect__of_what_is_no_connection(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);

	(void)state;
	put_own_qp(id);
	assert_refused(EINVAL, rdma_disconnect(id));
	expect_flushed(id->qp);
	destroy_own_qp(id);
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void disconnect__of_datagrams(void **state)
{
	struct pair p = requested_pair("127.0.0.1", RDMA_PS_UDP);
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;

	(void)state;
	add_ud_qp(p.server);
	assert_ok(rdma_accept(p.server, NULL));
	struct rdma_cm_event *event = expect(p.client_ch, RDMA_CM_EVENT_ESTABLISHED);
	assert_ok(rdma_ack_cm_event(event));
	assert_int_equal(state_of(p.server->qp), IBV_QPS_RTS);
	assert_int_equal(ibv_post_recv(p.server->qp, &wr, &bad), 0);
	assert_ok(rdma_disconnect(p.server));
	expect_flushed(p.server->qp);
	assert_ok(rdma_disconnect(p.client)); /* it has no QP */
	rdma_destroy_qp(p.server);
	destroy_pair(&p);
}

static void reg__of_nothing(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_resolved(ch, "127.0.0.1", htons(1), RDMA_PS_TCP);
	struct ibv_mr *mr = rdma_reg_msgs(id, NULL, 0); /* nothing is a region, too */

	(void)state;
	assert_non_null(mr);
	assert_ok(rdma_dereg_mr(mr));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send__arrives),
		cmocka_unit_test(send__arrives_unreliably),
		cmocka_unit_test(send__inline_needs_no_region),
		cmocka_unit_test(inline__is_granted_where_entries_would_be),
		cmocka_unit_test(send__vectors_gather_and_scatter),
		cmocka_unit_test(send__unsignaled_completes_silently),
		cmocka_unit_test(read_and_write__move_data),
		cmocka_unit_test(readv_and_writev__take_vectors),
		cmocka_unit_test(write__to_a_region_for_messages_fails),
		cmocka_unit_test(read__from_a_region_for_writing_fails),
		cmocka_unit_test(ud_send__arrives),
		cmocka_unit_test(post__without_a_qp),
		cmocka_unit_test(post__before_the_connection),
		cmocka_unit_test(post__more_than_fits),
		cmocka_unit_test(post__to_a_full_queue),
		cmocka_unit_test(ud_send__of_more_inline_than_fits),
		cmocka_unit_test(reg__refused),
		cmocka_unit_test(dereg__while_a_window_is_bound),
		cmocka_unit_test(comp__waits_no_longer),
		cmocka_unit_test(post_recv__stops_at_the_first_bad),
		cmocka_unit_test(post_recv__goes_to_the_srq),
		cmocka_unit_test(srq__has_room_for_its_completions),
		cmocka_unit_test(xrc__sends_to_the_srq),
		cmocka_unit_test(disconnect__flushes_what_was_posted),
		cmocka_unit_test(disconnect__flushes_a_qp_that_the_program_put_there),
		cmocka_unit_test(disconnect__flushes_a_qp_of_another_id),
		cmocka_unit_test(rejected__flushes_a_qp_that_the_program_put_there),
		cmocka_unit_test(disconnect__while_connecting),
		cmocka_unit_test(disconnect__of_a_request),
		cmocka_unit_test(disconnect__of_what_is_no_connection),
		cmocka_unit_test(disconnect__of_datagrams),
		cmocka_unit_test(reg__of_nothing),
	};

	enter_own_network();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
