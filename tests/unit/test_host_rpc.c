/* SPDX-License-Identifier: BSD-2-Clause */
#include "strangers.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "host/ipc/rpc.h"

static const char name[] = "verbatim-test/desk/1";
static atomic_int guests, came;
static atomic_bool slow; /* while it is, nobody is answered */

static void *come(void *owner)
{
	if (*(bool *)owner)
		return NULL; /* closed to new ones */
	came++;
	guests++;
	return &guests;
}

/* Answers with the same, one higher; "stop" is not answered. */
static size_t ask(void *guest, const void *request, size_t bytes, void *reply)
{
	assert_ptr_equal(guest, &guests);
	while (slow)
		vb_sleep_ns(1000000);
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)reply)[i] = (uint8_t)(((const uint8_t *)request)[i] + 1);
	return bytes == 4 && !memcmp(request, "stop", 4) ? 0 : bytes;
}

static void leave(void *guest) { guests--; }

static const struct vb_rpc_ops ops = { come, ask, leave };
static bool closed;

static int start_host(void **state)
{
	return vb_host_get();
}

static int stop_host(void **state)
{
	vb_host_put();
	return 0;
}

static void desk__answers_each_guest(void **state)
{
	static uint8_t much[VB_RPC_MAX_BYTES], back[VB_RPC_MAX_BYTES];
	struct vb_rpc_server *desk;
	int fd[2];
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_rpc_connect(name, &fd[i]), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(vb_rpc_call(fd[i], "abc", 3, back, sizeof(back)), 3);
		assert_memory_equal(back, "bcd", 3);
	}
	memset(much, 7, sizeof(much));
	assert_int_equal(vb_rpc_call(fd[0], much, sizeof(much), back, sizeof(back)), sizeof(much));
	assert_int_equal(back[sizeof(back) - 1], 8);
	assert_int_equal(guests, 2);
	vb_fd_close(fd[0]);
	assert_true(WAIT_FOR(guests == 1));
	vb_rpc_close(desk);
	assert_int_equal(guests, 0);
	assert_int_equal(vb_rpc_call(fd[1], "abc", 3, back, sizeof(back)), -EPIPE);
	vb_fd_close(fd[1]);
	assert_int_equal(vb_rpc_connect(name, &fd[0]), -ECONNREFUSED);
}

/* What came too late is not the answer to the next question. */
static void desk__that_answered_late(void **state)
{
	struct vb_rpc_server *desk;
	char back[8];
	int fd;
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	assert_int_equal(vb_rpc_connect(name, &fd), 0);
	slow = true;
	assert_int_equal(vb_rpc_call(fd, "abc", 3, back, sizeof(back)), -ETIMEDOUT);
	slow = false;
	vb_sleep_ns(10000000);
	assert_int_equal(vb_rpc_call(fd, "xyz", 3, back, sizeof(back)), -EPIPE);
	vb_fd_close(fd);
	vb_rpc_close(desk);
}

static void answer_for_ever(int sock)
{
	struct vb_rpc_server *desk;
	CHILD_CHECK(!vb_host_get() && !vb_rpc_open(name, &ops, &closed, &desk));
	say(sock, 1);
	for (;;)
		pause();
}

static uint64_t call_until_it_gives_up(int fd)
{
	uint64_t start = vb_now_ns();
	char back[8];
	assert_int_equal(vb_rpc_call(fd, "abc", 3, back, sizeof(back)), -ETIMEDOUT);
	return vb_now_ns() - start;
}

/* A stopped process is waited for, too, but not as long as one that could run. */
static void desk__of_a_stopped_process(void **state)
{
	struct vb_rpc_server *desk;
	char back[8];
	int fd;
	struct child server = child_start(answer_for_ever);
	assert_int_equal(hear(server.sock), 1);
	assert_int_equal(vb_rpc_connect(name, &fd), 0);
	child_stop(&server);
	pid_t waker = fork();
	if (!waker) {
		usleep(300000);
		kill(server.pid, SIGCONT);
		_exit(0);
	}
	assert_int_equal(vb_rpc_call(fd, "abc", 3, back, sizeof(back)), 3);
	assert_int_equal(waitpid(waker, NULL, 0), waker);
	child_stop(&server);
	uint64_t stopped_ns = call_until_it_gives_up(fd);
	vb_fd_close(fd);
	child_kill(&server);
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	assert_int_equal(vb_rpc_connect(name, &fd), 0);
	slow = true;
	assert_true(stopped_ns < call_until_it_gives_up(fd));
	slow = false;
	vb_fd_close(fd);
	vb_rpc_close(desk);
}

static void desk__name_is_one_processes(void **state)
{
	struct vb_rpc_server *desk, *second;
	assert_false(vb_rpc_exists("verbatim-test/desk/", ""));
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &second), -EADDRINUSE);
	assert_true(vb_rpc_exists("verbatim-test/desk/", ""));
	assert_false(vb_rpc_exists("verbatim-test/desk/", name));
	assert_false(vb_rpc_exists("verbatim-test/desk/2", ""));
	vb_rpc_close(desk);
	assert_false(vb_rpc_exists("verbatim-test/desk/", ""));
	assert_int_equal(vb_rpc_open("", &ops, &closed, &desk), -EINVAL);
}

static void have_a_name(int sock)
{
	struct vb_rpc_server *desk;
	CHILD_CHECK(!vb_host_get() && !vb_rpc_open("verbatim-test/desk/2", &ops, &closed, &desk));
	say(sock, 1);
	hear(sock);
}

/* As another user. An ordinary user's process cannot become one, and hides its memory instead. */
static void have_a_name_as_a_stranger(int sock)
{
	if (geteuid())
		CHILD_CHECK(!prctl(PR_SET_DUMPABLE, 0));
	else
		become(OTHER_USER);
	have_a_name(sock);
}

static bool exists_in(void (*body)(int sock))
{
	struct child c = child_start(body);
	assert_int_equal(hear(c.sock), 1);
	bool found = vb_rpc_exists("verbatim-test/desk/", name);
	child_end(&c);
	return found;
}

static void desk__of_a_stranger_does_not_exist(void **state)
{
	assert_true(exists_in(have_a_name));
	assert_false(exists_in(have_a_name_as_a_stranger));
}

static void desk__turns_guests_away(void **state)
{
	struct vb_rpc_server *desk;
	uint8_t back[8];
	int fd;
	closed = true;
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	assert_int_equal(vb_rpc_connect(name, &fd), 0);
	assert_true(WAIT_FOR(vb_link_has_hung_up(fd)));
	assert_true(vb_rpc_call(fd, "abc", 3, back, sizeof(back)) < 0);
	vb_fd_close(fd);
	closed = false;
	assert_int_equal(guests, 0);
	vb_rpc_close(desk);
}

/* It has no such thread: the parent answers whoever asks. */
static void desk__stays_the_parents(void **state)
{
	struct vb_rpc_server *desk;
	uint8_t back[8];
	int fd;
	assert_int_equal(vb_rpc_open(name, &ops, &closed, &desk), 0);
	came = 0;
	pid_t child = fork();
	if (!child) {
		bool good = vb_host_get() == 0 && vb_rpc_connect(name, &fd) == 0 &&
			    vb_rpc_call(fd, "x", 1, back, sizeof(back)) == 1;
		_exit(good && back[0] == 'y' ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(came, 1);
	vb_rpc_close(desk);
}

/* As one that becomes a daemon. */
static int close_all_and_end(void)
{
	struct vb_rpc_server *desk;
	uint8_t back[8];
	int fd;
	alarm(60);
	if (vb_host_get() || vb_rpc_open(name, &ops, &closed, &desk) || vb_rpc_connect(name, &fd) ||
	    vb_rpc_call(fd, "x", 1, back, sizeof(back)) != 1)
		return 1;
	for (int i = sysconf(_SC_OPEN_MAX) < 65536 ? (int)sysconf(_SC_OPEN_MAX) : 65536; i > 2; i--)
		close(i);
	vb_rpc_close(desk);
	return 0;
}

static void desk__ends_without_its_descriptors(void **state)
{
	pid_t child = fork();
	if (!child)
		_exit(close_all_and_end());
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(desk__answers_each_guest),
		cmocka_unit_test(desk__that_answered_late),
		cmocka_unit_test(desk__of_a_stopped_process),
		cmocka_unit_test(desk__name_is_one_processes),
		cmocka_unit_test(desk__of_a_stranger_does_not_exist),
		cmocka_unit_test(desk__turns_guests_away),
		cmocka_unit_test(desk__stays_the_parents),
		cmocka_unit_test(desk__ends_without_its_descriptors),
	};
	return cmocka_run_group_tests(tests, start_host, stop_host);
}
