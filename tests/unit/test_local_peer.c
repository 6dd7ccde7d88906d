/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer says on its link, with descriptors as the kernel has them (fuzz_peer has all the rest). */
#include "adapter/start.h"
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "local/shared.h"

struct ready {
	uint64_t magic;
	uint32_t can_copy, reserved;
};

/* The process under test: its slot, and then it waits. */
static void be_there(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	say(sock, vb_slot_first());
	hear(sock);
}

/* A link, after its greeting. */
static int meet(uint32_t slot)
{
	struct vb_link_hello hello;
	struct vb_peer_cred cred;
	int fd, fds[VB_LINK_MAX_FDS], n = 0;
	assert_int_equal(vb_link_connect(slot, &fd, &cred), 0);
	struct pollfd there = { .fd = fd, .events = POLLIN };
	if (poll(&there, 1, 5000) != 1 || vb_link_recv(fd, &hello, sizeof(hello), fds, &n) != sizeof(hello))
		return -1;
	for (int i = 0; i < n; i++)
		vb_fd_close(fds[i]);
	return fd;
}

/* A pipe that has no room, and would block. */
static int full_pipe(void)
{
	static char page[4096];
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	while (write(ends[1], page, sizeof(page)) > 0)
		;
	fcntl(ends[1], F_SETFL, 0);
	return ends[1];
}

/* A peer that sleeps, to be rung with what it gives for its eventfds. */
static void say_hello(int fd, const int *bells)
{
	struct vb_arena_head *head;
	int memfd;
	assert_int_equal(vb_shm_create(VB_ARENA_LEAST, "peer", &memfd, (void **)&head), 0);
	assert_int_equal(vb_shm_open(head, 4096), 0);
	head->magic = VB_ARENA_MAGIC;
	head->version = VB_LINK_VERSION;
	head->nonce = 7;
	atomic_store(&head->asleep, 2);
	struct vb_link_hello hello = { .magic = VB_LINK_MAGIC,
				       .version = VB_LINK_VERSION,
				       .first_slot = VB_SLOT_COUNT - 3,
				       .nonce = 7,
				       .bells = VB_ARENA_HEAP,
				       .arena_bytes = VB_ARENA_LEAST };
	struct ready ready = { .magic = VB_LINK_MAGIC };
	int fds[3] = { memfd, bells[0], bells[1] };
	assert_int_equal(vb_link_send(fd, &hello, sizeof(hello), fds, 3), 0);
	(void)vb_link_send(fd, &ready, sizeof(ready), NULL, 0); /* unless it has hung up */
	vb_fd_close(memfd);
}

/* Whatever this one gives to be rung with, others are served. */
static void greet_with(const int *bells)
{
	struct child c = child_start(be_there);
	uint32_t slot = (uint32_t)hear(c.sock);
	int first = meet(slot), second;
	assert_true(first >= 0);
	say_hello(first, bells);
	usleep(50000);
	second = meet(slot);
	assert_true(second >= 0);
	vb_fd_close(first);
	vb_fd_close(second);
	assert_int_equal(child_end(&c), 0);
}

static void peer__with_eventfds(void **state)
{
	int bells[2] = { eventfd(0, EFD_NONBLOCK), eventfd(0, 0) };
	uint64_t rings;
	greet_with(bells);
	assert_int_equal(read(bells[0], &rings, sizeof(rings)), sizeof(rings));
	close(bells[0]);
	close(bells[1]);
}

static void peer__with_pipes(void **state)
{
	int bells[2] = { full_pipe(), full_pipe() };
	greet_with(bells);
	close(bells[0]);
	close(bells[1]);
}

static int start(void **state) { return vb_host_get(); }

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer__with_eventfds),
		cmocka_unit_test(peer__with_pipes),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
