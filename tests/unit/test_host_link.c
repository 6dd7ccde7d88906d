/* SPDX-License-Identifier: BSD-2-Clause */
#include "strangers.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/un.h>

#include "host/ipc/rpc.h"
#include "host/host.h"

static atomic_int accepted_fd = -1;
static struct vb_peer_cred accepted_cred;

static void accepted(int fd, const struct vb_peer_cred *cred)
{
	accepted_cred = *cred;
	accepted_fd = fd;
}

static int start_host(void **state)
{
	vb_link_set_acceptor(accepted);
	return vb_host_get();
}

static int stop_host(void **state)
{
	vb_host_put();
	return 0;
}

/* Both ends in this process. */
static void make_link(int ends[2])
{
	struct vb_peer_cred cred;
	accepted_fd = -1;
	assert_int_equal(vb_link_connect(vb_slot_first(), &ends[0], &cred), 0);
	assert_int_equal(cred.pid, getpid());
	assert_int_equal(cred.uid, geteuid());
	assert_true(WAIT_FOR(accepted_fd >= 0));
	ends[1] = accepted_fd;
}

static void link__keeps_message_boundaries_and_tells_hang_up(void **state)
{
	int ends[2];
	char got[16];

	make_link(ends);
	assert_int_equal(accepted_cred.pid, getpid());
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), -EAGAIN);
	assert_int_equal(vb_link_send(ends[0], "one", 3, NULL, 0), 0);
	assert_int_equal(vb_link_send(ends[0], "three", 5, NULL, 0), 0);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), 3);
	assert_memory_equal(got, "one", 3);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), 5);
	assert_false(vb_link_has_hung_up(ends[1]));
	vb_fd_close(ends[0]);
	assert_true(vb_link_has_hung_up(ends[1]));
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), 0);
	assert_int_equal(vb_link_send(ends[1], "x", 1, NULL, 0), -EPIPE);
	vb_fd_close(ends[1]);
}

static void link_recv__of_a_longer_message_loses_it(void **state)
{
	int ends[2], fds[VB_LINK_MAX_FDS], nfds = 9;
	char got[4];

	make_link(ends);
	assert_int_equal(vb_link_send(ends[0], "longer", 6, (int[]){ STDIN_FILENO }, 1), 0);
	assert_int_equal(vb_link_send(ends[0], "x", 1, NULL, 0), 0);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, fds, &nfds), -EMSGSIZE);
	assert_int_equal(nfds, 0);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), 1);
	vb_fd_close(ends[0]);
	vb_fd_close(ends[1]);
}

static void link_send__to_a_peer_that_hung_up_unread_says_so(void **state)
{
	int ends[2];
	make_link(ends);
	assert_int_equal(vb_link_send(ends[0], "x", 1, NULL, 0), 0);
	vb_fd_close(ends[1]);
	assert_int_equal(vb_link_send(ends[0], "x", 1, NULL, 0), -EPIPE);
	vb_fd_close(ends[0]);
}

static void link_send__to_a_peer_that_does_not_read_is_refused_at_last(void **state)
{
	static char block[32768];
	int ends[2], err = 0;

	make_link(ends);
	for (int i = 0; !err && i < 10000; i++)
		err = vb_link_send(ends[0], block, sizeof block, NULL, 0);
	assert_int_equal(err, -EAGAIN);
	vb_fd_close(ends[0]);
	vb_fd_close(ends[1]);
}

/* ---- descriptors ---- */

static int lowest_free_fd(void)
{
	int fd = dup(STDIN_FILENO);
	close(fd);
	return fd;
}

static void link__passes_descriptors(void **state)
{
	int ends[2], pair[2], fds[VB_LINK_MAX_FDS], nfds;
	char got[8];

	make_link(ends);
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(vb_link_send(ends[0], "fd", 2, pair, 2), 0);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, fds, &nfds), 2);
	assert_int_equal(nfds, 2);
	for (int i = 0; i < 2; i++)
		assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(fds[1], "through", 7), 7);
	assert_int_equal(read(pair[0], got, 7), 7);
	assert_memory_equal(got, "through", 7);
	for (int i = 0; i < 2; i++) {
		vb_fd_close(fds[i]);
		vb_fd_close(ends[i]);
		close(pair[i]);
	}
}

static void link_send__limits_descriptors(void **state)
{
	int ends[2], fds[VB_LINK_MAX_FDS + 1] = { 0 };
	make_link(ends);
	assert_int_equal(vb_link_send(ends[0], "x", 1, fds, VB_LINK_MAX_FDS), 0);
	assert_int_equal(vb_link_send(ends[0], "x", 1, fds, VB_LINK_MAX_FDS + 1), -EINVAL);
	vb_fd_close(ends[0]);
	vb_fd_close(ends[1]);
}

/* A peer may send any number: none may stay open here uncounted. */
static void link_recv__closes_surplus_descriptors(void **state)
{
	enum { MANY = VB_LINK_MAX_FDS + 3 };
	int ends[2], fds[VB_LINK_MAX_FDS], nfds;
	union {
		char bytes[CMSG_SPACE(MANY * sizeof(int))];
		struct cmsghdr header;
	} control = { .header = { .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS,
				  .cmsg_len = CMSG_LEN(MANY * sizeof(int)) } };
	struct iovec iov = { "x", 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};
	char got[8];

	make_link(ends);
	int before = lowest_free_fd();
	memset(CMSG_DATA(&control.header), 0, MANY * sizeof(int));
	assert_int_equal(sendmsg(ends[0], &m, 0), 1);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, fds, &nfds), 1);
	assert_int_equal(nfds, VB_LINK_MAX_FDS);
	for (int i = 0; i < nfds; i++)
		vb_fd_close(fds[i]);
	assert_int_equal(lowest_free_fd(), before);

	assert_int_equal(sendmsg(ends[0], &m, 0), 1);
	assert_int_equal(vb_link_recv(ends[1], got, sizeof got, NULL, NULL), 1);
	assert_int_equal(lowest_free_fd(), before);
	vb_fd_close(ends[0]);
	vb_fd_close(ends[1]);
}

/* ---- another process ---- */

static void accept_and_hold(int sock)
{
	vb_link_set_acceptor(accepted);
	accepted_fd = -1;
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	CHILD_CHECK(WAIT_FOR(accepted_fd >= 0));
	say(sock, (uint64_t)accepted_cred.pid);
	hear(sock);
}

static void link__hangs_up_when_the_peer_is_killed(void **state)
{
	struct child c = child_start(accept_and_hold);
	struct vb_peer_cred cred;
	int fd;
	char got[8];

	assert_int_equal(vb_link_connect((uint32_t)hear(c.sock), &fd, &cred), 0);
	assert_int_equal(cred.pid, c.pid);
	assert_int_equal(hear(c.sock), getpid());
	assert_int_equal(vb_link_send(fd, "unread", 6, NULL, 0), 0);
	assert_int_equal(vb_link_recv(fd, got, sizeof got, NULL, NULL), -EAGAIN);
	child_kill(&c);
	assert_int_equal(vb_link_recv(fd, got, sizeof got, NULL, NULL), 0);
	vb_fd_close(fd);
}

static void link_connect__to_a_free_slot_is_refused(void **state)
{
	struct child c = child_start(accept_and_hold);
	uint32_t slot = (uint32_t)hear(c.sock);
	struct vb_peer_cred cred;
	int fd;

	child_kill(&c);
	assert_int_equal(vb_link_connect(slot, &fd, &cred), -ECONNREFUSED);
}

static void accept_as_another_user(int sock)
{
	become(OTHER_USER);
	vb_link_set_acceptor(accepted);
	accepted_fd = -1;
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, vb_slot_first());
	/* And the other way round: it is connected, then turned away. */
	struct vb_peer_cred cred;
	int fd;
	CHILD_CHECK(vb_link_connect((uint32_t)hear(sock), &fd, &cred) == -EPERM);
	hear(sock);
	CHILD_CHECK(accepted_fd == -1);
}

static void link_connect__to_another_user_is_refused(void **state)
{
	struct child c = child_start(accept_as_another_user);
	uint64_t slot = hear(c.sock);
	struct vb_peer_cred cred;
	int fd;

	if (slot == UINT64_MAX && WEXITSTATUS(child_end(&c)) == NO_OTHER_USER)
		SKIP("this process cannot become another user");
	accepted_fd = -1;
	assert_int_equal(vb_link_connect((uint32_t)slot, &fd, &cred), -EPERM);
	say(c.sock, vb_slot_first());
	assert_int_equal(child_end(&c), 0);
	assert_int_equal(accepted_fd, -1);
}

/* ---- who comes in by himself, and is turned away: links, visits, desks ---- */

static int come(const char *kind, uint32_t slot)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "verbatim/%s/%u", kind, slot);
	CHILD_CHECK(connect(fd, (struct sockaddr *)&un,
			    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0);
	return fd;
}

/* Does the connection end without a word? Who is let in is told something, at a desk when he asks. */
static bool is_turned_away(const char *kind, uint32_t slot)
{
	int fd = come(kind, slot);
	char byte = 0;
	send(fd, &byte, 1, MSG_NOSIGNAL);
	bool ends = recv(fd, &byte, 1, 0) <= 0;
	close(fd);
	return ends;
}

/* Bits: of a link, of a visit, of a desk. */
static void try_doors(int sock)
{
	char link[16];
	snprintf(link, sizeof link, "link/%d", VB_LINK_VERSION);
	say(sock, 1);
	uint32_t slot = (uint32_t)hear(sock);
	say(sock, (uint64_t)is_turned_away(link, slot) | (uint64_t)is_turned_away("visit", slot) << 1 |
		  (uint64_t)is_turned_away("desk", slot) << 2);
	hear(sock);
}

static void try_as_effectively_other_user(int sock)
{
	become_effectively(OTHER_USER, SOME_USER);
	try_doors(sock);
}

static void try_hidden(int sock)
{
	become(OTHER_USER);
	prctl(PR_SET_DUMPABLE, 0);
	try_doors(sock);
}

static void try_from_another_namespace(int sock)
{
	become(OTHER_USER);
	enter_nameless_namespace();
	prctl(PR_SET_DUMPABLE, 1);
	try_doors(sock);
}

static void try_as_the_same_user(int sock)
{
	become(OTHER_USER);
	try_doors(sock);
}

/* /proc/PID/status names them all, in tens of kilobytes. */
static void try_as_a_user_of_many_groups(int sock)
{
	static gid_t groups[4000];
	for (unsigned i = 0; i < VB_ARRAY_LEN(groups); i++)
		groups[i] = 1000000000 + i;
	if (setgroups(VB_ARRAY_LEN(groups), groups))
		_exit(NO_OTHER_USER);
	try_as_the_same_user(sock);
}

static void *let_in(void *owner) { return owner; }
static size_t welcome(void *guest, const void *request, size_t bytes, void *reply) { return 1; }
static void see_off(void *guest) { }

static void open_desk(uint32_t slot)
{
	static const struct vb_rpc_ops ops = { .connect = let_in, .call = welcome, .disconnect = see_off };
	static struct vb_rpc_server *desk;
	char name[VB_RPC_NAME];
	snprintf(name, sizeof name, "verbatim/desk/%u", slot);
	CHILD_CHECK(vb_rpc_open(name, &ops, &desk, &desk) == 0);
}

static void let_stay(int fd, const struct vb_peer_cred *cred) { vb_link_send(fd, "", 1, NULL, 0); }

static void be_other_user(int sock)
{
	become(OTHER_USER);
	vb_link_set_acceptor(let_stay);
	vb_inspection_set_acceptor(let_stay);
	CHILD_CHECK(vb_host_get() == 0);
	open_desk(vb_slot_first());
	say(sock, vb_slot_first());
	hear(sock);
}

static void doors__open_for_those_alone_who_may_share_memory(void **state)
{
	const struct {
		void (*body)(int sock);
		unsigned turned_away;
	} guests[] = { { try_as_effectively_other_user, 7 },
		       { try_hidden, 7 },
		       { try_from_another_namespace, 7 },
		       { try_as_a_user_of_many_groups, 0 },
		       { try_as_the_same_user, 0 } };
	struct child host = child_start(be_other_user);
	uint64_t slot, ready;
	if (is_impossible(&host, &slot))
		SKIP("this process cannot become another user");
	for (size_t i = 0; i < VB_ARRAY_LEN(guests); i++) {
		struct child guest = child_start(guests[i].body);
		if (is_impossible(&guest, &ready))
			continue;
		say(guest.sock, slot);
		assert_int_equal(hear(guest.sock), guests[i].turned_away);
		assert_int_equal(child_end(&guest), 0);
	}
	assert_int_equal(child_end(&host), 0);
}

/* ---- and to whom this process does not go: captures' commands, desks ---- */

static const char name_of_host[] = "verbatim-test/host-link";

/* Says something to two who come, who take it for what they came for. */
static void listen_and_say(int sock)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	memcpy(un.sun_path + 1, name_of_host, sizeof name_of_host - 1);
	CHILD_CHECK(bind(fd, (struct sockaddr *)&un,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof name_of_host)) == 0);
	CHILD_CHECK(listen(fd, 2) == 0);
	say(sock, 1);
	for (int i = 0; i < 2; i++) {
		int guest = accept(fd, NULL, NULL);
		CHILD_CHECK(guest >= 0);
		send(guest, "", 1, MSG_NOSIGNAL);
		hear(sock);
		close(guest);
	}
}

static void listen_as_the_same_user(int sock)
{
	become(OTHER_USER);
	listen_and_say(sock);
}

static void listen_as_another_user(int sock)
{
	become(SOME_USER);
	listen_and_say(sock);
}

static void listen_as_effectively_same_user(int sock)
{
	become_effectively(OTHER_USER, SOME_USER);
	listen_and_say(sock);
}

static void listen_hidden(int sock)
{
	become(OTHER_USER);
	prctl(PR_SET_DUMPABLE, 0);
	listen_and_say(sock);
}

static void listen_in_another_namespace(int sock)
{
	become(OTHER_USER);
	enter_nameless_namespace();
	prctl(PR_SET_DUMPABLE, 1);
	listen_and_say(sock);
}

/* Each time it is told that somebody listens: what its calls give there. */
static void go_there(int sock)
{
	become(OTHER_USER);
	CHILD_CHECK(vb_host_get() == 0);
	say(sock, 1);
	while (hear(sock) != UINT64_MAX) {
		int fd = -1, err = vb_inspection_call(name_of_host, 60000, &fd);
		say(sock, (uint64_t)-err);
		if (!err)
			vb_fd_close(fd);
		err = vb_rpc_connect(name_of_host, &fd);
		say(sock, (uint64_t)-err);
		if (!err)
			vb_fd_close(fd);
	}
}

static void calls__reach_those_alone_who_may_share_memory(void **state)
{
	const struct {
		void (*body)(int sock);
		unsigned err;
	} hosts[] = { { listen_as_the_same_user, 0 },
		      { listen_as_another_user, EPERM },
		      { listen_as_effectively_same_user, EPERM },
		      { listen_hidden, EPERM },
		      { listen_in_another_namespace, EPERM } };
	struct child guest = child_start(go_there);
	uint64_t ready;
	if (is_impossible(&guest, &ready))
		SKIP("this process cannot become another user");
	for (size_t i = 0; i < VB_ARRAY_LEN(hosts); i++) {
		struct child host = child_start(hosts[i].body);
		if (is_impossible(&host, &ready))
			continue;
		assert_int_equal(ready, 1);
		say(guest.sock, 1);
		for (int call = 0; call < 2; call++) {
			assert_int_equal(hear(guest.sock), hosts[i].err);
			say(host.sock, 1);
		}
		assert_int_equal(child_end(&host), 0);
	}
	assert_int_equal(child_end(&guest), 0);
}

static atomic_uint passes;

static uint64_t count_passes(uint64_t now_ns)
{
	passes++;
	return UINT64_MAX;
}

/* VERBATIM_LOCAL=off. Its listeners, which do not listen, do not keep its progress thread awake either. */
static void refuse_links(int sock)
{
	struct vb_peer_cred cred;
	int fd;

	setenv("VERBATIM_LOCAL", "off", 1);
	CHILD_CHECK(vb_local_is_off());
	vb_loop_set_pass(count_passes);
	CHILD_CHECK(vb_host_get() == 0);
	uint32_t slot = vb_slot_first(), further;
	CHILD_CHECK(vb_slot_take(&further) == 0);
	CHILD_CHECK(vb_link_connect(slot, &fd, &cred) == -ECONNREFUSED);
	usleep(20000);
	CHILD_CHECK(passes < 100);
	say(sock, slot);
	say(sock, further);
	hear(sock);
}

static void link_connect__to_a_process_that_refuses_links(void **state)
{
	struct child c = child_start(refuse_links);
	struct vb_peer_cred cred;
	int fd;

	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_link_connect((uint32_t)hear(c.sock), &fd, &cred), -ECONNREFUSED);
	assert_int_equal(child_end(&c), 0);
}

/* A process that was root when it started and is not now is seen as what it is now, once it has said so. */
static void change_user(int sock)
{
	vb_link_set_acceptor(accepted);
	CHILD_CHECK(vb_host_get() == 0);
	if (setresuid(65533, 65533, 65533) < 0)
		_exit(NO_OTHER_USER);
	vb_link_show_user();
	say(sock, vb_slot_first());
	hear(sock);
}

static void link_connect__sees_the_user_that_a_process_has_become(void **state)
{
	struct child c = child_start(change_user);
	uint64_t slot = hear(c.sock);
	struct vb_peer_cred cred;
	int fd;

	if (slot == UINT64_MAX && WEXITSTATUS(child_end(&c)) == NO_OTHER_USER)
		SKIP("this process cannot become another user");
	assert_int_equal(vb_link_connect((uint32_t)slot, &fd, &cred), -EPERM);
	assert_int_equal(child_end(&c), 0);
}

/* A process that does not accept: its backlog fills up, and the caller is told instead of blocked. */
static void link_connect__to_a_stopped_process_does_not_block(void **state)
{
	enum { TRIES = 4096 };
	static int fds[TRIES];
	struct child c = child_start(accept_and_hold);
	uint32_t slot = (uint32_t)hear(c.sock);
	struct vb_peer_cred cred;
	int n = 0, err = 0;

	child_stop(&c);
	while (n < TRIES && !(err = vb_link_connect(slot, &fds[n], &cred)))
		n++;
	for (int i = 0; i < n; i++)
		vb_fd_close(fds[i]);
	child_kill(&c); /* who is stopped would stay if the case failed before */
	/* no descriptor is left, or none to look at the process by */
	assert_true(err == -EAGAIN || err == -EMFILE || err == -EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(link__keeps_message_boundaries_and_tells_hang_up),
		cmocka_unit_test(doors__open_for_those_alone_who_may_share_memory),
		cmocka_unit_test(calls__reach_those_alone_who_may_share_memory),
		cmocka_unit_test(link_recv__of_a_longer_message_loses_it),
		cmocka_unit_test(link_send__to_a_peer_that_hung_up_unread_says_so),
		cmocka_unit_test(link_send__to_a_peer_that_does_not_read_is_refused_at_last),
		cmocka_unit_test(link__passes_descriptors),
		cmocka_unit_test(link_send__limits_descriptors),
		cmocka_unit_test(link_recv__closes_surplus_descriptors),
		cmocka_unit_test(link__hangs_up_when_the_peer_is_killed),
		cmocka_unit_test(link_connect__to_a_free_slot_is_refused),
		cmocka_unit_test(link_connect__to_another_user_is_refused),
		cmocka_unit_test(link_connect__to_a_process_that_refuses_links),
		cmocka_unit_test(link_connect__sees_the_user_that_a_process_has_become),
		cmocka_unit_test(link_connect__to_a_stopped_process_does_not_block),
	};
	return cmocka_run_group_tests(tests, start_host, stop_host);
}
