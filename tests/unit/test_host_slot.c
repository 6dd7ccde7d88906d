/* SPDX-License-Identifier: BSD-2-Clause */
#include "../between.h"
#include "child.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "host/host.h"

static int start_host(void **state) { return vb_host_get(); }

static int stop_host(void **state)
{
	vb_host_put();
	return 0;
}

static struct sockaddr_un abstract_name(const char *text, socklen_t *bytes)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t len = strlen(text);
	memcpy(un.sun_path + 1, text, len);
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
	return un;
}

/* A datagram socket with that abstract name; NULL: none. */
static int raw_socket(const char *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t bytes;
	struct sockaddr_un un = abstract_name(name ? name : "", &bytes);
	if (name && bind(fd, (struct sockaddr *)&un, bytes) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool slot_name_is_taken(uint32_t slot)
{
	char name[64];
	snprintf(name, sizeof name, "verbatim/slot/%u", slot);
	int fd = raw_socket(name);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

/* ---- packets ---- */

/* A BTH with this destination QP, then a tag. */
struct packet {
	uint8_t bytes[16];
};

static struct packet packet_for(uint32_t qpn, uint32_t tag)
{
	struct packet p = { { [5] = (uint8_t)(qpn >> 16), [6] = (uint8_t)(qpn >> 8), [7] = (uint8_t)qpn } };
	memcpy(&p.bytes[12], &tag, sizeof tag);
	return p;
}

static const struct vb_inbox_addr some_addr = {
	.src = { .s6_addr = { 1, 2, 3 } }, .dst = { .s6_addr = { 4, 5, 6 } },
	.flow_label = 0x54321, .udp_sport = 0xc123, .traffic_class = 7, .hop_limit = 64,
};

static int send_packet(uint32_t slot, uint32_t qpn, uint32_t tag)
{
	struct packet p = packet_for(qpn, tag);
	struct iovec iov[2] = { { p.bytes, 5 }, { p.bytes + 5, sizeof p.bytes - 5 } };
	return vb_inbox_send(slot, &some_addr, iov, 2);
}

static int send_to_port(const char *name, uint32_t tag)
{
	struct packet p = packet_for(1, tag);
	struct iovec iov = { p.bytes, sizeof p.bytes };
	return vb_port_send(name, strlen(name), &some_addr, &iov, 1);
}

/* What a handler saw last. */
struct seen {
	atomic_uint count, tag, sender_slot;
	_Atomic uid_t uid;
	atomic_bool addr_is_right, on_loop;
	atomic_size_t bytes;
};

static void note(void *arg, const struct vb_inbox_msg *msg)
{
	struct seen *s = arg;
	uint32_t tag;
	memcpy(&tag, msg->payload + 12, sizeof tag);
	s->tag = tag;
	s->bytes = msg->payload_bytes;
	s->sender_slot = msg->sender_slot;
	s->uid = msg->sender_uid;
	s->addr_is_right = memcmp(&msg->addr, &some_addr, sizeof some_addr) == 0;
	s->on_loop = vb_loop_is_current();
	s->count++;
}

static struct seen qp_seen, cm_seen;

static int set_handlers(void **state)
{
	memset(&qp_seen, 0, sizeof qp_seen);
	memset(&cm_seen, 0, sizeof cm_seen);
	vb_inbox_set_handler(0, note, &qp_seen);
	vb_inbox_set_handler(1, note, &cm_seen);
	return 0;
}

/* ---- slots ---- */

static void slot__is_taken_and_mine(void **state)
{
	uint32_t first = vb_slot_first();
	assert_between(first, 1, VB_SLOT_COUNT - 1);
	assert_true(vb_slot_is_mine(first));
	assert_false(vb_slot_is_mine(0));
	assert_false(vb_slot_is_mine(VB_SLOT_COUNT));
	assert_true(slot_name_is_taken(first));
}

static void slot_take__gives_more_that_work(void **state)
{
	uint32_t more = 0;
	assert_int_equal(vb_slot_take(&more), 0);
	assert_int_not_equal(more, vb_slot_first());
	assert_true(vb_slot_is_mine(more));
	assert_int_equal(send_packet(more, more << VB_SLOT_SHIFT | 3, 77), 0);
	assert_true(WAIT_FOR(qp_seen.count));
	assert_int_equal(qp_seen.tag, 77);
	assert_int_equal(qp_seen.sender_slot, vb_slot_first());
}

static void tell_slot(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	hear(sock);
}

static void slots__of_processes_differ_and_die_with_them(void **state)
{
	struct child children[4];
	uint64_t slots[5] = { vb_slot_first() };

	for (int i = 0; i < 4; i++) {
		children[i] = child_start(tell_slot);
		slots[i + 1] = hear(children[i].sock);
		assert_between(slots[i + 1], 1, VB_SLOT_COUNT - 1);
		for (int j = 0; j <= i; j++)
			assert_int_not_equal(slots[j], slots[i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		assert_true(slot_name_is_taken((uint32_t)slots[i + 1]));
		child_kill(&children[i]);
		assert_false(slot_name_is_taken((uint32_t)slots[i + 1]));
	}
	assert_int_equal(send_packet((uint32_t)slots[1], 0, 0), -ECONNREFUSED);
}

/* ---- inboxes ---- */

static void inbox__delivers_by_qp_with_sender(void **state)
{
	uint32_t slot = vb_slot_first();
	assert_int_equal(send_packet(slot, slot << VB_SLOT_SHIFT | 9, 5), 0);
	assert_true(WAIT_FOR(qp_seen.count));
	assert_int_equal(cm_seen.count, 0);
	assert_int_equal(send_packet(slot, 1, 6), 0);
	assert_true(WAIT_FOR(cm_seen.count));
	assert_int_equal(qp_seen.count, 1);
	assert_int_equal(qp_seen.tag, 5);
	assert_int_equal(cm_seen.tag, 6);
	assert_int_equal(cm_seen.bytes, sizeof(struct packet));
	assert_int_equal(cm_seen.sender_slot, slot);
	assert_int_equal(cm_seen.uid, geteuid());
	assert_true(cm_seen.addr_is_right);
	assert_true(cm_seen.on_loop);
}

static void send_as_asked(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	for (uint64_t slot; (slot = hear(sock)) != UINT64_MAX;)
		say(sock, (uint64_t)-send_packet((uint32_t)slot, 1, 99));
}

static void inbox__delivers_from_another_process(void **state)
{
	struct child c = child_start(send_as_asked);
	uint64_t slot = hear(c.sock);
	say(c.sock, vb_slot_first());
	assert_int_equal(hear(c.sock), 0);
	assert_true(WAIT_FOR(cm_seen.count));
	assert_int_equal(cm_seen.tag, 99);
	assert_int_equal(cm_seen.sender_slot, slot);
	assert_int_equal(child_end(&c), 0);
}

static void hear_without_recvmmsg(int sock)
{
	if (!forbid(SYS_recvmmsg)) {
		say(sock, 0);
		return;
	}
	say(sock, 1);
	CHILD_CHECK(vb_host_get() == 0);
	set_handlers(NULL);
	for (uint32_t i = 1; i <= 3; i++) {
		CHILD_CHECK(send_packet(vb_slot_first(), 1, i) == 0);
		CHILD_CHECK(WAIT_FOR(cm_seen.count == i));
	}
	CHILD_CHECK(cm_seen.tag == 3);
}

/* A sandbox that knows recvmsg alone. */
static void inbox__delivers_without_recvmmsg(void **state)
{
	struct child c = child_start(hear_without_recvmmsg);
	bool could = hear(c.sock);
	assert_int_equal(child_end(&c), 0);
	if (!could)
		SKIP("no seccomp here");
}

/* A stopped receiver: the queue fills up, and the sender is told instead of blocked. */
static void inbox_send__to_a_stopped_process_is_refused_at_last(void **state)
{
	struct child c = child_start(tell_slot);
	uint32_t slot = (uint32_t)hear(c.sock);
	int err = 0;

	child_stop(&c);
	for (int i = 0; !err && i < 100000; i++)
		err = send_packet(slot, 1, 0);
	assert_int_equal(err, -EAGAIN);
	child_kill(&c);
}

static void inbox_send__refuses_wrong_sizes(void **state)
{
	static uint8_t big[VB_INBOX_MAX_BYTES + 1];
	struct iovec many[VB_INBOX_MAX_IOV + 1] = { { big, 64 } };
	struct iovec iov = { big, sizeof big };
	uint32_t slot = vb_slot_first();

	assert_int_equal(vb_inbox_send(slot, &some_addr, &iov, 1), -EMSGSIZE);
	iov.iov_len = 11; /* less than a BTH */
	assert_int_equal(vb_inbox_send(slot, &some_addr, &iov, 1), -EMSGSIZE);
	assert_int_equal(vb_inbox_send(slot, &some_addr, many, VB_INBOX_MAX_IOV + 1), -EINVAL);
	assert_int_equal(vb_inbox_send(VB_SLOT_COUNT + 5, &some_addr, many, 1), -ECONNREFUSED);
	iov.iov_len = VB_INBOX_MAX_BYTES;
	assert_int_equal(vb_inbox_send(slot, &some_addr, &iov, 1), 0);
	assert_true(WAIT_FOR(qp_seen.count));
	assert_int_equal(qp_seen.bytes, VB_INBOX_MAX_BYTES);
}

/* Writes what one valid message looks like, as a stranger captures it from a port, and returns its size. */
static size_t capture_message(uint8_t *bytes, size_t size)
{
	int fd = raw_socket("verbatim/port/capture");
	assert_int_equal(send_to_port("capture", 1234), 0);
	ssize_t n = recv(fd, bytes, size, 0);
	close(fd);
	assert_true(n > (ssize_t)sizeof(struct packet));
	return (size_t)n;
}

static void send_raw(int fd, const void *bytes, size_t n, int pass_fd)
{
	char name[64];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	snprintf(name, sizeof name, "verbatim/slot/%u", vb_slot_first());
	socklen_t name_bytes;
	struct sockaddr_un un = abstract_name(name, &name_bytes);
	struct iovec iov = { (void *)bytes, n };
	struct msghdr m = { .msg_name = &un, .msg_namelen = name_bytes, .msg_iov = &iov, .msg_iovlen = 1 };
	if (pass_fd >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
				       .cmsg_type = SCM_RIGHTS,
				       .cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(c), &pass_fd, sizeof pass_fd);
	}
	assert_int_equal(sendmsg(fd, &m, 0), n);
}

static void inbox__drops_malformed_messages(void **state)
{
	uint8_t good[8192] = { 0 }, bad[8192] = { 0 };
	size_t n = capture_message(good, sizeof good);
	int fd = raw_socket(NULL);

	memcpy(bad, good, n);
	bad[0] ^= 1; /* the magic */
	send_raw(fd, bad, n, -1);
	send_raw(fd, good, 0, -1);
	send_raw(fd, good, n - 5, -1); /* less than a BTH */
	send_raw(fd, good, sizeof good, -1); /* larger than a packet can be */
	send_raw(fd, good, n, -1);
	assert_true(WAIT_FOR(cm_seen.count));
	assert_int_equal(cm_seen.count, 1);
	assert_int_equal(cm_seen.tag, 1234);
	assert_int_equal(qp_seen.count, 0);
	close(fd);
}

static void inbox__trusts_only_exact_slot_names(void **state)
{
	static const char *const names[] = {
		NULL,
		"verbatim/slot/",
		"verbatim/slot/0",
		"verbatim/slot/07",
		"verbatim/slot/4096",
		"verbatim/slot/99999",
		"verbatim/slot/12x",
		"verbatim/slot/-1",
		"verbatim/port/12",
		"verbatim/slot/1 ",
	};
	uint8_t good[8192];
	size_t n = capture_message(good, sizeof good);

	for (size_t i = 0; i < VB_ARRAY_LEN(names); i++) {
		int fd = raw_socket(names[i]);
		assert_true(fd >= 0);
		cm_seen.sender_slot = 1;
		unsigned before = cm_seen.count;
		send_raw(fd, good, n, -1);
		assert_true(WAIT_FOR(cm_seen.count == before + 1));
		assert_int_equal(cm_seen.sender_slot, 0);
		close(fd);
	}
	uint32_t free_slot = 1;
	char name[64];
	while (slot_name_is_taken(free_slot))
		free_slot++;
	snprintf(name, sizeof name, "verbatim/slot/%u", free_slot);
	int fd = raw_socket(name);
	unsigned before = cm_seen.count;
	send_raw(fd, good, n, -1);
	assert_true(WAIT_FOR(cm_seen.count == before + 1));
	assert_int_equal(cm_seen.sender_slot, free_slot);
	close(fd);
}

static int lowest_free_fd(void)
{
	int fd = dup(STDIN_FILENO);
	close(fd);
	return fd;
}

static void inbox__discards_passed_descriptors(void **state)
{
	if (!kernel_drops_descriptors())
		SKIP(STAY_OPEN);
	uint8_t good[8192];
	size_t n = capture_message(good, sizeof good);
	int fd = raw_socket(NULL), before = lowest_free_fd();

	send_raw(fd, good, n, STDIN_FILENO);
	assert_true(WAIT_FOR(cm_seen.count));
	assert_int_equal(cm_seen.uid, geteuid());
	assert_int_equal(lowest_free_fd(), before);
	close(fd);
}

/* ---- ports ---- */

static void port_bind__is_exclusive(void **state)
{
	struct vb_port a = { 0 }, b = { 0 };
	const char name[] = { 'n', 0, 1, 2 };

	assert_int_equal(vb_port_bind(&a, name, sizeof name), 0);
	assert_int_equal(vb_port_bind(&b, name, sizeof name), -EADDRINUSE);
	assert_int_equal(vb_port_bind(&b, name, sizeof name - 1), 0);
	vb_port_close(&a);
	vb_port_close(&b);
	assert_int_equal(vb_port_bind(&a, name, sizeof name), 0);
	vb_port_close(&a);
}

static void port_bind__limits_the_name(void **state)
{
	struct vb_port port;
	char name[VB_PORT_NAME_MAX + 1] = { 1 };
	assert_int_equal(vb_port_bind(&port, name, sizeof name), -EINVAL);
	assert_int_equal(vb_port_bind(&port, name, sizeof name - 1), 0);
	vb_port_close(&port);
}

static void bind_port(int sock)
{
	struct vb_port port;
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, (uint64_t)-vb_port_bind(&port, "shared", 6));
	hear(sock);
}

static void port_bind__is_exclusive_between_processes(void **state)
{
	struct vb_port port;
	struct child c = child_start(bind_port);
	assert_int_equal(hear(c.sock), 0);
	assert_int_equal(vb_port_bind(&port, "shared", 6), -EADDRINUSE);
	child_kill(&c);
	assert_int_equal(vb_port_bind(&port, "shared", 6), 0);
	vb_port_close(&port);
}

static void port_send__is_refused_until_listen(void **state)
{
	struct vb_port port;
	struct seen seen = { 0 };

	assert_int_equal(send_to_port("p", 1), -ECONNREFUSED);
	assert_false(vb_port_is_bound("p", 1));
	assert_int_equal(vb_port_bind(&port, "p", 1), 0);
	assert_true(vb_port_is_bound("p", 1));
	assert_int_equal(send_to_port("p", 2), -EPERM);
	assert_int_equal(vb_port_listen(&port, note, &seen), 0);
	assert_true(vb_port_is_bound("p", 1));
	assert_int_equal(send_to_port("p", 3), 0);
	assert_true(WAIT_FOR(seen.count));
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.tag, 3);
	assert_int_equal(seen.sender_slot, vb_slot_first());
	assert_true(seen.addr_is_right);
	assert_int_equal(cm_seen.count, 0);
	vb_port_close(&port);
	assert_int_equal(send_to_port("p", 4), -ECONNREFUSED);
}

static atomic_bool bound_often;

static void *send_all_the_time(void *arg)
{
	unsigned long taken = 0;
	while (!bound_often)
		taken += send_to_port("often", 1) == 0;
	return (void *)taken;
}

/* Not between two of the steps of binding either: what got in there would never be heard of. */
static void port_send__is_refused_while_it_binds(void **state)
{
	enum { TIMES = 3000 };
	struct vb_port port;
	pthread_t sender;
	void *taken;

	bound_often = false;
	assert_int_equal(pthread_create(&sender, NULL, send_all_the_time, NULL), 0);
	for (int i = 0; i < TIMES; i++) {
		assert_int_equal(vb_port_bind(&port, "often", 5), 0);
		vb_port_close(&port);
	}
	bound_often = true;
	pthread_join(sender, &taken);
	assert_ptr_equal(taken, NULL);
}

static struct vb_port *closing;
static atomic_uint closings;
static atomic_bool held, let_go;

static void close_own_port(void *arg, const struct vb_inbox_msg *msg)
{
	held = true;
	while (!let_go)
		usleep(100);
	vb_port_close(closing);
	free(closing);
	closings++;
}

/* Several messages wait when the first one's handler closes the port: the others must not reach it. */
static void port_close__in_its_handler_ends_delivery(void **state)
{
	held = let_go = false;
	closings = 0;
	closing = calloc(1, sizeof *closing);
	assert_int_equal(vb_port_bind(closing, "closing", 7), 0);
	assert_int_equal(vb_port_listen(closing, close_own_port, NULL), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(send_to_port("closing", 0), 0);
	assert_true(WAIT_FOR(held));
	let_go = true;
	assert_true(WAIT_FOR(closings));
	assert_int_equal(send_packet(vb_slot_first(), 1, 0), 0);
	assert_true(WAIT_FOR(cm_seen.count));
	assert_int_equal(closings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(slot__is_taken_and_mine, set_handlers),
		cmocka_unit_test_setup(slot_take__gives_more_that_work, set_handlers),
		cmocka_unit_test_setup(slots__of_processes_differ_and_die_with_them, set_handlers),
		cmocka_unit_test_setup(inbox__delivers_by_qp_with_sender, set_handlers),
		cmocka_unit_test_setup(inbox__delivers_from_another_process, set_handlers),
		cmocka_unit_test_setup(inbox__delivers_without_recvmmsg, set_handlers),
		cmocka_unit_test_setup(inbox_send__to_a_stopped_process_is_refused_at_last, set_handlers),
		cmocka_unit_test_setup(inbox_send__refuses_wrong_sizes, set_handlers),
		cmocka_unit_test_setup(inbox__drops_malformed_messages, set_handlers),
		cmocka_unit_test_setup(inbox__trusts_only_exact_slot_names, set_handlers),
		cmocka_unit_test_setup(inbox__discards_passed_descriptors, set_handlers),
		cmocka_unit_test_setup(port_bind__is_exclusive, set_handlers),
		cmocka_unit_test_setup(port_bind__limits_the_name, set_handlers),
		cmocka_unit_test_setup(port_bind__is_exclusive_between_processes, set_handlers),
		cmocka_unit_test_setup(port_send__is_refused_until_listen, set_handlers),
		cmocka_unit_test_setup(port_send__is_refused_while_it_binds, set_handlers),
		cmocka_unit_test_setup(port_close__in_its_handler_ends_delivery, set_handlers),
	};
	return cmocka_run_group_tests(tests, start_host, stop_host);
}
