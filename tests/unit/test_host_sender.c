/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom an inbox believes: messages of other users, who claim to bring what others sent. */
#include "strangers.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/un.h>

#include "host/udp/udp.h"

enum { TAG_AT = 12, BTH = 16 };

/* ---- messages: a BTH for QP 1, then a tag ---- */

static struct in6_addr v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (struct in6_addr){ .s6_addr = { [10] = 0xff, 0xff, a, b, c, d } };
}

static struct in6_addr here(void) { return v4(127, 0, 0, 1); }
static struct in6_addr another_host(void) { return v4(192, 0, 2, 7); }

static int send_tag(uint32_t slot, struct in6_addr src, uint32_t tag)
{
	uint8_t packet[BTH] = { [7] = 1 };
	struct vb_inbox_addr addr = { .src = src, .dst = here() };
	struct iovec iov = { packet, sizeof(packet) };
	memcpy(packet + TAG_AT, &tag, sizeof(tag));
	return vb_inbox_send(slot, &addr, &iov, 1);
}

/* The same from a socket without a name. */
static void send_nameless(uint32_t slot, struct in6_addr src, uint32_t tag)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct {
		uint32_t magic, flow_label, rest;
		struct in6_addr src, dst;
		uint8_t packet[BTH];
	} m = { .magic = 0x76620001, .src = src, .dst = here(), .packet = { [7] = 1 } };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "verbatim/slot/%u", slot);
	memcpy(m.packet + TAG_AT, &tag, sizeof(tag));
	CHILD_CHECK(sendto(fd, &m, sizeof(m), 0, (struct sockaddr *)&un,
			   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == sizeof(m));
	close(fd);
}

enum { TAGS = 16, LAST = TAGS - 1 };

static struct {
	atomic_bool came, is_trusted;
	atomic_uint sender_slot;
} seen[TAGS];

static void note(void *arg, const struct vb_inbox_msg *msg)
{
	uint32_t tag;
	memcpy(&tag, msg->payload + TAG_AT, sizeof(tag));
	seen[tag % TAGS].is_trusted = msg->is_trusted;
	seen[tag % TAGS].sender_slot = msg->sender_slot;
	seen[tag % TAGS].came = true;
}

static int set_handler(void **state)
{
	memset((void *)seen, 0, sizeof(seen));
	vb_inbox_set_handler(1, note, NULL);
	return 0;
}

/*
 * Messages come in order, so when one of this process's own has come, those before it have come or never
 * will.
 */
static void have_all(void)
{
	seen[LAST].came = false;
	assert_true(WAIT_FOR(send_tag(vb_slot_first(), here(), LAST) == 0));
	assert_true(WAIT_FOR(seen[LAST].came));
}

/* ---- the other user ---- */

enum { REMOTE, LOCAL, NAMELESS_REMOTE, NAMELESS_LOCAL };

static void send_all_kinds(uint32_t slot)
{
	CHILD_CHECK(WAIT_FOR(send_tag(slot, another_host(), REMOTE) == 0));
	CHILD_CHECK(WAIT_FOR(send_tag(slot, here(), LOCAL) == 0));
	send_nameless(slot, another_host(), NAMELESS_REMOTE);
	send_nameless(slot, here(), NAMELESS_LOCAL);
}

static void be_another_user(int sock)
{
	become(OTHER_USER);
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	for (uint64_t slot; (slot = hear(sock)) != UINT64_MAX; say(sock, 1))
		send_all_kinds((uint32_t)slot);
}

static void another_user__speaks_for_its_own_slot(void **state)
{
	struct child c = child_start(be_another_user);
	uint64_t slot;
	if (is_impossible(&c, &slot))
		SKIP("this process cannot become another user");
	say(c.sock, vb_slot_first());
	assert_int_equal(hear(c.sock), 1);
	have_all();
	assert_true(seen[LOCAL].came);
	assert_false(seen[LOCAL].is_trusted);
	assert_int_equal(seen[LOCAL].sender_slot, slot);
	assert_false(seen[REMOTE].came);
	assert_false(seen[NAMELESS_REMOTE].came);
	assert_false(seen[NAMELESS_LOCAL].came);
	assert_int_equal(child_end(&c), 0);
}

static void be_the_same_user(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	for (uint64_t slot; (slot = hear(sock)) != UINT64_MAX; say(sock, 1))
		send_all_kinds((uint32_t)slot);
}

static void the_same_user__brings_anything(void **state)
{
	struct child c = child_start(be_the_same_user);
	hear(c.sock);
	say(c.sock, vb_slot_first());
	assert_int_equal(hear(c.sock), 1);
	have_all();
	for (int tag = REMOTE; tag <= NAMELESS_LOCAL; tag++)
		assert_true(seen[tag].came && seen[tag].is_trusted);
	assert_int_equal(child_end(&c), 0);
}

/* ---- who has the port ---- */

static int bind_port(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(VB_ROCE_PORT) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHILD_CHECK(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0);
	return fd;
}

/* It has the port at first, and closes it when it is told slot 0. */
static void have_the_port(int sock)
{
	become(OTHER_USER);
	CHILD_CHECK(vb_host_get() == 0);
	int fd = bind_port();
	say(sock, vb_slot_first());
	for (uint64_t slot; (slot = hear(sock)) != UINT64_MAX; say(sock, 1)) {
		if (slot)
			send_all_kinds((uint32_t)slot);
		else
			close(fd);
	}
}

/* Is what it sends believed now? */
static bool is_trusted(struct child *c)
{
	set_handler(NULL);
	say(c->sock, vb_slot_first());
	assert_int_equal(hear(c->sock), 1);
	have_all();
	return seen[REMOTE].came && seen[REMOTE].is_trusted && seen[NAMELESS_LOCAL].came;
}

static void who_has_the_port__brings_anything_while_he_has_it(void **state)
{
	struct child c = child_start(have_the_port);
	uint64_t slot;
	if (is_impossible(&c, &slot))
		SKIP("this process cannot become another user");
	assert_true(WAIT_FOR(is_trusted(&c))); /* it is not looked up each time */
	say(c.sock, 0);
	assert_int_equal(hear(c.sock), 1);
	assert_true(WAIT_FOR(!is_trusted(&c)));
	assert_int_equal(child_end(&c), 0);
}

/* It takes another address's port: what comes here does not come to it. */
static void have_another_address(int sock)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(VB_ROCE_PORT),
				   .sin_addr = { htonl(0x7f000002) } };
	become(OTHER_USER);
	CHILD_CHECK(vb_host_get() == 0);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHILD_CHECK(bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0);
	say(sock, vb_slot_first());
	for (uint64_t to; (to = hear(sock)) != UINT64_MAX; say(sock, 1))
		send_all_kinds((uint32_t)to);
}

static void who_has_another_address__is_not_believed(void **state)
{
	struct child c = child_start(have_another_address);
	uint64_t slot;
	if (is_impossible(&c, &slot))
		SKIP("this process cannot become another user");
	assert_false(is_trusted(&c));
	assert_int_equal(child_end(&c), 0);
}

/* ---- other receivers ---- */

/* Tells which kinds came, as bits, once it is asked. */
static void receive(int sock)
{
	set_handler(NULL);
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	hear(sock);
	CHILD_CHECK(WAIT_FOR(send_tag(vb_slot_first(), here(), LAST) == 0));
	CHILD_CHECK(WAIT_FOR(seen[LAST].came));
	uint64_t kinds = 0;
	for (int tag = REMOTE; tag <= NAMELESS_LOCAL; tag++)
		kinds |= (uint64_t)(seen[tag].came && seen[tag].is_trusted) << tag;
	say(sock, kinds);
	hear(sock);
}

static void receive_as_another_user(int sock)
{
	become(OTHER_USER);
	receive(sock);
}

static void root__brings_anything(void **state)
{
	struct child c = child_start(receive_as_another_user);
	uint64_t slot;
	if (is_impossible(&c, &slot) || geteuid())
		SKIP("this process cannot become another user");
	send_all_kinds((uint32_t)slot);
	say(c.sock, 1);
	assert_int_equal(hear(c.sock), 1 << REMOTE | 1 << LOCAL | 1 << NAMELESS_REMOTE | 1 << NAMELESS_LOCAL);
	assert_int_equal(child_end(&c), 0);
}

static void receive_in_nameless_namespace(int sock)
{
	become(SOME_USER);
	enter_nameless_namespace();
	set_handler(NULL);
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	hear(sock);
	send_tag(vb_slot_first(), here(), LAST);
	CHILD_CHECK(WAIT_FOR(seen[LAST].came));
	say(sock, (uint64_t)seen[REMOTE].came);
	hear(sock);
}

/* There the kernel calls both users 65534, who are not one for that. */
static void users_without_numbers__are_not_the_same(void **state)
{
	struct child receiver = child_start(receive_in_nameless_namespace),
		     sender = child_start(be_another_user);
	uint64_t slot, other;
	if (is_impossible(&receiver, &slot) || is_impossible(&sender, &other))
		SKIP("this process cannot become another user, or enter a namespace");
	say(sender.sock, slot);
	assert_int_equal(hear(sender.sock), 1);
	say(receiver.sock, 1);
	assert_int_equal(hear(receiver.sock), 0);
	assert_int_equal(child_end(&sender), 0);
	assert_int_equal(child_end(&receiver), 0);
}

static void send_all_and_end(int sock)
{
	CHILD_CHECK(vb_host_get() == 0);
	send_all_kinds((uint32_t)hear(sock));
	hear(sock);
}

/* It has a child, who is as nameless as it, bring it messages. */
static void bring_oneself(int sock)
{
	become(SOME_USER);
	enter_nameless_namespace();
	prctl(PR_SET_DUMPABLE, 1);
	set_handler(NULL);
	CHILD_CHECK(vb_host_get() == 0);
	struct child c = child_start(send_all_and_end);
	say(c.sock, vb_slot_first());
	CHILD_CHECK(WAIT_FOR(seen[NAMELESS_LOCAL].came)); /* while that process is there */
	CHILD_CHECK(child_end(&c) == 0);
	say(sock, (uint64_t)(seen[REMOTE].came && seen[REMOTE].is_trusted));
	hear(sock);
}

static void users_without_numbers__are_the_same_to_themselves(void **state)
{
	struct child c = child_start(bring_oneself);
	uint64_t is_trusted;
	if (is_impossible(&c, &is_trusted))
		SKIP("this process cannot become another user, or enter a namespace");
	assert_int_equal(is_trusted, 1);
	assert_int_equal(child_end(&c), 0);
}

/* ---- this process has the port: from here on it keeps it ---- */

static void nobody_else__has_the_port_that_this_process_has(void **state)
{
	assert_int_equal(vb_udp_open(), 0);
	another_user__speaks_for_its_own_slot(state);
}

static int start_host(void **state) { return vb_host_get(); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(another_user__speaks_for_its_own_slot, set_handler),
		cmocka_unit_test_setup(the_same_user__brings_anything, set_handler),
		cmocka_unit_test_setup(who_has_the_port__brings_anything_while_he_has_it, set_handler),
		cmocka_unit_test_setup(who_has_another_address__is_not_believed, set_handler),
		cmocka_unit_test_setup(root__brings_anything, set_handler),
		cmocka_unit_test_setup(users_without_numbers__are_not_the_same, set_handler),
		cmocka_unit_test_setup(users_without_numbers__are_the_same_to_themselves, set_handler),
		cmocka_unit_test_setup(nobody_else__has_the_port_that_this_process_has, set_handler),
	};
	return cmocka_run_group_tests(tests, start_host, NULL);
}
