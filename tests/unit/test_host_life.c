/* SPDX-License-Identifier: BSD-2-Clause */
#include "../between.h"
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "host/host.h"
#include "host/memory/memory.h"
#include "host/net/raw.h"

static int start_host(void **state) { return vb_host_get(); }

static void count(struct vb_timer *t, uint64_t now_ns) { (*(atomic_int *)t->arg)++; }

/* True if the progress thread of this process fires timers. */
static bool loop_runs(void)
{
	atomic_int fired = 0;
	struct vb_timer t = { .fire = count, .arg = &fired };
	vb_timer_set(&t, vb_now_ns());
	bool runs = WAIT_FOR(fired);
	vb_timer_cancel(&t);
	return runs;
}

static void host_get__again_keeps_the_slot(void **state)
{
	uint32_t slot = vb_slot_first();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(vb_host_get(), 0);
		vb_host_put();
	}
	vb_host_put();
	assert_int_equal(vb_slot_first(), slot);
	assert_int_equal(vb_host_get(), 0);
	assert_int_equal(vb_slot_first(), slot);
	assert_true(loop_runs());
}

static void random__differs(void **state)
{
	uint64_t a[4] = { 0 }, b[4] = { 0 };
	vb_random(a, sizeof a);
	vb_random(b, sizeof b);
	assert_memory_not_equal(a, b, sizeof a);
	assert_true(a[3] || b[3]);
}

static void now_ns__goes_forward(void **state)
{
	uint64_t last = vb_now_ns();
	for (int i = 0; i < 1000; i++) {
		uint64_t now = vb_now_ns();
		assert_true(now >= last);
		last = now;
	}
}

static void file_field__is_found_in_any_line(void **state)
{
	char path[32], value[8];
	int fd = memfd_create("field", MFD_CLOEXEC);
	FILE *file = fdopen(fd, "w");
	assert_non_null(file);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fputs("Num\nUnum: 1\nNum:\t 23 kB\nLong: 0123456789\n", file);
	for (int i = 0; i < 5000; i++)
		fputs("x ", file);
	fputs("\nLast: end", file);
	fflush(file);
	assert_int_equal(vb_file_field(path, "Num:", value, sizeof(value)), 0);
	assert_string_equal(value, "23 kB");
	assert_int_equal(vb_file_field(path, "Long:", value, sizeof(value)), 0);
	assert_string_equal(value, "0123456");
	assert_int_equal(vb_file_field(path, "Last:", value, sizeof(value)), 0);
	assert_string_equal(value, "end");
	assert_int_equal(vb_file_field(path, "None:", value, sizeof(value)), -ENODATA);
	assert_string_equal(value, "");
	fclose(file);
	assert_int_equal(vb_file_field(path, "Num:", value, sizeof(value)), -ENOENT);
}

/* ---- a child that starts its own host ---- */

static uint32_t parent_slot;
static unsigned parent_generation;
static int parent_eventfd, parent_link;
static struct vb_timer parent_timer;
static struct vb_watch parent_watch;
static struct vb_port parent_port;
static atomic_int parent_fired;
static bool handler_ran;

static void note_fork(void) { handler_ran = true; }

static void forget_and_restart(int sock)
{
	CHILD_CHECK(handler_ran);
	CHILD_CHECK(vb_host_generation() != parent_generation);
	CHILD_CHECK(vb_slot_first() == 0 && !vb_slot_is_mine(parent_slot));
	CHILD_CHECK(fcntl(parent_eventfd, F_GETFD) < 0);
	CHILD_CHECK(fcntl(parent_link, F_GETFD) < 0);
	struct vb_inbox_addr addr = { 0 };
	struct iovec iov = { (char[12]){ 0 }, 12 };
	CHILD_CHECK(vb_inbox_send(parent_slot, &addr, &iov, 1) == -ENOTCONN);
	vb_loop_wake();

	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_slot_first() != 0 && vb_slot_first() != parent_slot);
	CHILD_CHECK(vb_slot_is_mine(vb_slot_first()) && !vb_slot_is_mine(parent_slot));
	CHILD_CHECK(loop_runs());
	say(sock, vb_slot_first());
	/* What it inherited is dead, but may be let go. */
	vb_timer_cancel(&parent_timer);
	vb_watch_stop(&parent_watch);
	vb_port_close(&parent_port);
	CHILD_CHECK(loop_runs());
	vb_timer_set(&parent_timer, vb_now_ns());
	CHILD_CHECK(WAIT_FOR(parent_fired));
	hear(sock);
}

static void never(struct vb_watch *w, uint32_t epoll_events) {}

static void fork__child_gets_its_own_host_and_the_parent_goes_on(void **state)
{
	struct vb_peer_cred cred;
	int pair[2];

	parent_slot = vb_slot_first();
	parent_generation = vb_host_generation();
	parent_eventfd = vb_loop_eventfd();
	assert_int_equal(vb_link_connect(parent_slot, &parent_link, &cred), 0);
	vb_host_at_fork(note_fork);
	parent_timer = (struct vb_timer){ .fire = count, .arg = &parent_fired };
	vb_timer_set(&parent_timer, UINT64_MAX - 1);
	assert_int_equal(pipe(pair), 0);
	parent_watch = (struct vb_watch){ .fd = pair[0], .ready = never };
	assert_int_equal(vb_watch_start(&parent_watch, EPOLLIN), 0);
	assert_int_equal(vb_port_bind(&parent_port, "life", 4), 0);

	struct child c = child_start(forget_and_restart);
	uint64_t slot = hear(c.sock);
	assert_between(slot, 1, VB_SLOT_COUNT - 1);
	assert_int_not_equal(slot, parent_slot);
	assert_int_equal(child_end(&c), 0);

	assert_int_equal(vb_host_generation(), parent_generation);
	assert_int_equal(vb_slot_first(), parent_slot);
	assert_int_equal(parent_fired, 0);
	assert_false(handler_ran);
	assert_true(loop_runs());
	assert_int_equal(vb_port_bind(&(struct vb_port){ 0 }, "life", 4), -EADDRINUSE);
	vb_timer_cancel(&parent_timer);
	vb_watch_stop(&parent_watch);
	vb_port_close(&parent_port);
	vb_fd_close(parent_link);
	close(pair[0]);
	close(pair[1]);
}

/* ---- an idle child must not keep its parent's names alive ---- */

static void fork_and_die(int sock)
{
	struct vb_port port;
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(vb_port_bind(&port, "orphan", 6) == 0);
	pid_t orphan = fork();
	if (orphan == 0) {
		char byte;
		say(sock, vb_slot_first()); /* after the handlers: 0 */
		CHILD_CHECK(read(sock, &byte, 1) == 0);
		_exit(0);
	}
	say(sock, vb_slot_first());
}

static void fork__child_does_not_hold_its_dead_parents_names(void **state)
{
	struct child c = child_start(fork_and_die);
	struct vb_peer_cred cred;
	struct vb_port port;
	int fd, status;

	uint64_t slot = hear(c.sock) + hear(c.sock);
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	assert_int_equal(status, 0);
	assert_int_equal(vb_link_connect((uint32_t)slot, &fd, &cred), -ECONNREFUSED);
	assert_int_equal(vb_port_bind(&port, "orphan", 6), 0);
	vb_port_close(&port);
	close(c.sock); /* the orphan ends */
}

/* ---- other ways to make a process ---- */

static void exec__inherits_no_descriptor(void **state)
{
	char *argv[] = { "sh", "-c",
			 "ls -l /proc/self/fd | grep -E 'socket|eventfd|eventpoll|memfd' && exit 1; exit 0",
			 NULL };
	extern char **environ;
	void *addr;
	int fd, status;
	pid_t pid;

	assert_int_equal(vb_shm_create(4096, "exec", &fd, &addr), 0);
	for (int spawned = 0; spawned < 2; spawned++) {
		if (spawned) {
			assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ), 0);
		} else if ((pid = fork()) == 0) {
			execv("/bin/sh", argv);
			_exit(2);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	vb_shm_unmap(addr, 4096);
	vb_fd_close(fd);
}

static atomic_bool stop_busy;

static void *keep_busy(void *unused)
{
	while (!stop_busy) {
		struct vb_port port;
		void *addr;
		int fd;
		if (vb_port_bind(&port, "busy", 4) == 0)
			vb_port_close(&port);
		if (vb_shm_create(4096, "busy", &fd, &addr) == 0) {
			vb_shm_unmap(addr, 4096);
			vb_fd_close(fd);
		}
		struct vb_timer t = { .fire = count, .arg = &parent_fired };
		vb_timer_set(&t, vb_now_ns());
		vb_timer_cancel(&t);
	}
	return NULL;
}

static void restart(int sock)
{
	struct vb_port port;
	CHILD_CHECK(vb_host_get() == 0);
	CHILD_CHECK(loop_runs());
	while (vb_port_bind(&port, "busy", 4) == -EADDRINUSE)
		usleep(10);
	vb_port_close(&port);
}

/* Forks while another thread is inside the host: no child may find a lock held. */
static void fork__beside_a_busy_thread(void **state)
{
	pthread_t busy;
	assert_int_equal(pthread_create(&busy, NULL, keep_busy, NULL), 0);
	for (int i = 0; i < 30; i++) {
		struct child c = child_start(restart);
		assert_int_equal(hear(c.sock), UINT64_MAX);
		assert_int_equal(child_end(&c), 0);
	}
	stop_busy = true;
	pthread_join(busy, NULL);
	assert_true(loop_runs());
}

static atomic_int forked_status = -1;

static void fork_in_callback(struct vb_timer *t, uint64_t now_ns)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		CHILD_CHECK(!vb_loop_is_current());
		CHILD_CHECK(vb_host_get() == 0);
		CHILD_CHECK(loop_runs());
		_exit(0);
	}
	waitpid(pid, &status, 0);
	forked_status = status;
}

static void fork__in_a_callback(void **state)
{
	struct vb_timer t = { .fire = fork_in_callback };
	vb_timer_set(&t, vb_now_ns());
	assert_true(WAIT_FOR(forked_status != -1));
	vb_timer_cancel(&t);
	assert_int_equal(forked_status, 0);
}

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool in_callback, waits_for_callback;

static void lock_outer(void) { pthread_mutex_lock(&outer); }
static void unlock_outer(void) { pthread_mutex_unlock(&outer); }

static void take_outer_while_waited_for(struct vb_timer *t, uint64_t now_ns)
{
	in_callback = true;
	while (!waits_for_callback)
		usleep(100);
	usleep(20000); /* the other thread is about to sleep */
	lock_outer();
	unlock_outer();
}

static void nothing(void *unused) { }

static void wait_for_callback(void)
{
	waits_for_callback = true;
	vb_loop_call(nothing, NULL);
}

/* As a callback of rdma_cm takes its lock, while a fork waits until memory has moved back. */
static void fork__waits_for_the_progress_thread_without_a_lock(void **state)
{
	static const struct vb_fork_steps cm = { .lock = lock_outer, .parent = unlock_outer,
						 .child = unlock_outer },
					  memory = { .before = wait_for_callback }, none;
	struct vb_timer t = { .fire = take_outer_while_waited_for };
	vb_host_around_fork(VB_FORK_CM, &cm);
	vb_host_around_fork(VB_FORK_MEMORY, &memory);
	vb_timer_set(&t, vb_now_ns());
	assert_true(WAIT_FOR(in_callback));
	struct child c = child_start(restart);
	assert_int_equal(hear(c.sock), UINT64_MAX);
	assert_int_equal(child_end(&c), 0);
	vb_host_around_fork(VB_FORK_CM, &none);
	vb_host_around_fork(VB_FORK_MEMORY, &none);
	vb_timer_cancel(&t);
}

/* ---- a fork in the moment in which there is something new ---- */

enum { NO_DESCRIPTOR = 1 << 20, NULL_BYTES = 1 << 20 };
static _Thread_local bool is_watched; /* the thread that makes descriptors */
static atomic_int new_fd;             /* -1: none yet; -2: not watched for */
static atomic_bool has_forked;
static pid_t forker_tid;

static char state_of_forker(void)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)forker_tid);
	vb_file_read(path, text, sizeof(text));
	const char *end = strrchr(text, ')');
	return end ? end[2] : 0;
}

/* Here the other thread forks, or waits until it may. */
static int meet_fork(int fd)
{
	int none = -1;
	int saved_errno = errno;
	if (is_watched && fd >= 0 && atomic_compare_exchange_strong(&new_fd, &none, fd))
		while (!has_forked && state_of_forker() != 'S')
			sched_yield();
	errno = saved_errno;
	return fd;
}

int socket(int domain, int type, int protocol)
{
	return meet_fork((int)syscall(SYS_socket, domain, type, protocol));
}

int memfd_create(const char *name, unsigned flags)
{
	return meet_fork((int)syscall(SYS_memfd_create, name, flags));
}

ssize_t recvmsg(int socket, struct msghdr *m, int flags)
{
	ssize_t n = syscall(SYS_recvmsg, socket, m, flags);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(m);
	int fd;
	if (c && c->cmsg_type == SCM_RIGHTS)
		meet_fork(*(const int *)memcpy(&fd, CMSG_DATA(c), sizeof(fd)));
	return n;
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (is_watched && fd < 0)
		meet_fork(NO_DESCRIPTOR);
	return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

static atomic_bool forker_is_there;

static int look_in_child(void)
{
	void *pages;
	alarm(60);
	return fcntl(new_fd, F_GETFD) >= 0 || vb_null_pages(NULL_BYTES, &pages);
}

/*
 * Never asleep but in fork(). The result: does the child lack the new descriptor, and nothing that it needs?
 */
static void *fork_when_there_is_one(void *unused)
{
	int status = -1;
	forker_tid = gettid();
	forker_is_there = true;
	while (new_fd == -1)
		sched_yield();
	pid_t pid = new_fd < 0 ? -1 : fork();
	if (pid == 0)
		_exit(look_in_child());
	has_forked = true;
	if (pid > 0)
		waitpid(pid, &status, 0);
	return pid < 0 ? NULL : (void *)(intptr_t)(status + 1);
}

static void make_shm(void)
{
	void *addr;
	int fd;
	assert_int_equal(vb_shm_create(4096, "moment", &fd, &addr), 0);
	vb_shm_unmap(addr, 4096);
	vb_fd_close(fd);
}

static void make_raw(void)
{
	int fd;
	if (!vb_raw_open(0, false, &fd))
		vb_raw_close(fd);
}

static int moment_link[2];

static void make_received(void)
{
	int fds[VB_LINK_MAX_FDS], n;
	char byte;
	assert_int_equal(vb_link_send(moment_link[0], "x", 1, &(int){ STDIN_FILENO }, 1), 0);
	assert_int_equal(vb_link_recv(moment_link[1], &byte, 1, fds, &n), 1);
	assert_int_equal(n, 1);
	vb_fd_close(fds[0]);
}

static void make_port(void)
{
	struct vb_port port;
	assert_int_equal(vb_port_bind(&port, "moment", 6), 0);
	vb_port_close(&port);
}

static void make_null_pages(void)
{
	void *pages;
	assert_int_equal(vb_null_pages(NULL_BYTES, &pages), 0);
}

static void check_moment(void (*make)(void))
{
	pthread_t forker;
	void *result;
	new_fd = -1;
	has_forked = forker_is_there = false;
	assert_int_equal(pthread_create(&forker, NULL, fork_when_there_is_one, NULL), 0);
	while (!forker_is_there)
		sched_yield();
	is_watched = true;
	make();
	is_watched = false;
	new_fd = new_fd == -1 ? -2 : new_fd;
	pthread_join(forker, &result);
	assert_true(!result || (intptr_t)result == 1);
}

static void fork__while_something_is_made(void **state)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, moment_link), 0);
	check_moment(make_null_pages);
	check_moment(make_port);
	check_moment(make_shm);
	check_moment(make_raw);
	check_moment(make_received);
	close(moment_link[0]);
	close(moment_link[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_get__again_keeps_the_slot),
		cmocka_unit_test(random__differs),
		cmocka_unit_test(now_ns__goes_forward),
		cmocka_unit_test(file_field__is_found_in_any_line),
		cmocka_unit_test(fork__child_gets_its_own_host_and_the_parent_goes_on),
		cmocka_unit_test(fork__child_does_not_hold_its_dead_parents_names),
		cmocka_unit_test(exec__inherits_no_descriptor),
		cmocka_unit_test(fork__beside_a_busy_thread),
		cmocka_unit_test(fork__in_a_callback),
		cmocka_unit_test(fork__waits_for_the_progress_thread_without_a_lock),
		cmocka_unit_test(fork__while_something_is_made),
	};
	return cmocka_run_group_tests(tests, start_host, NULL);
}
