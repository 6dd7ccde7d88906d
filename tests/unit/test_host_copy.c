/* SPDX-License-Identifier: BSD-2-Clause */
#include "child.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "host/host.h"

enum { AREA = 1 << 20, HOLE = 1 << 16 /* whole pages of any size */, NO_OTHER_USER = 2 };

/*
 * Private memory: after the fork each process has its own at the same address. The page behind it is not
 * mapped.
 */
static uint8_t *area;

static uint8_t pattern(size_t i, uint8_t salt) { return (uint8_t)(i * 31 + (i >> 8) + salt); }

static bool has_pattern(const uint8_t *p, size_t bytes, uint8_t salt)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != pattern(i, salt))
			return false;
	return true;
}

static void put_pattern(uint8_t *p, size_t bytes, uint8_t salt)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = pattern(i, salt);
}

/* Fills its area, then answers each question whether it has a salt's pattern. */
static void hold_area(int sock)
{
	vb_copy_allow_peers();
	put_pattern(area, AREA, 1);
	say(sock, 1);
	for (uint64_t salt; (salt = hear(sock)) != UINT64_MAX;)
		say(sock, has_pattern(area, AREA, (uint8_t)salt));
}

static struct child peer;

static int start(void **state)
{
	area = mmap(NULL, AREA + HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(area + AREA, HOLE);
	peer = child_start(hold_area);
	return hear(peer.sock) != 1;
}

static int end(void **state)
{
	munmap(area, AREA);
	return child_end(&peer);
}

static bool peer_has(uint8_t salt)
{
	say(peer.sock, salt);
	return hear(peer.sock) == 1;
}

#define SKIP_IF_FORBIDDEN()                                              \
	do {                                                             \
		if (is_forbidden())                                      \
			SKIP("process_vm_readv is not allowed here");    \
	} while (0)

static bool is_forbidden(void)
{
	struct iovec here = { (char[1]){ 0 }, 1 }, there = { area, 1 };
	size_t done;
	return vb_copy_from_peer(peer.pid, &here, 1, &there, 1, NULL, &done) == -EPERM;
}

/*
 * Cuts memory into n pieces of changing sizes (the first ones, empty ones among them, up to 3 · step bytes);
 * the last takes the rest.
 */
static void cut(uint8_t *p, size_t bytes, struct iovec *iov, size_t n, size_t step)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = i % 4 * step;
		if (i == n - 1 || len > bytes)
			len = bytes;
		iov[i] = (struct iovec){ p, len };
		p += len;
		bytes -= len;
	}
}

static void copy_from_peer__moves_any_lists(void **state)
{
	static const size_t shapes[][2] = {
		{ 1, 1 }, { 1, 3000 }, { 3000, 1 }, { 33, 5000 }, { 2500, 2600 }
	};
	static struct iovec local[5000], remote[5000];
	size_t done;

	SKIP_IF_FORBIDDEN();
	for (size_t i = 0; i < VB_ARRAY_LEN(shapes); i++) {
		memset(area, 0, AREA);
		cut(area, AREA, local, shapes[i][0], 97);
		cut(area, AREA, remote, shapes[i][1], 41);
		assert_int_equal(vb_copy_from_peer(peer.pid, local, shapes[i][0], remote, shapes[i][1], NULL,
						   &done),
				 0);
		assert_int_equal(done, AREA);
		assert_true(has_pattern(area, AREA, 1));
	}
}

static void copy_to_peer__moves_any_lists(void **state)
{
	static struct iovec local[2000], remote[3000];
	size_t done;

	SKIP_IF_FORBIDDEN();
	put_pattern(area, AREA, 2);
	cut(area, AREA, local, VB_ARRAY_LEN(local), 13);
	cut(area, AREA, remote, VB_ARRAY_LEN(remote), 101);
	assert_int_equal(vb_copy_to_peer(peer.pid, local, VB_ARRAY_LEN(local), remote, VB_ARRAY_LEN(remote),
					 NULL, &done),
			 0);
	assert_int_equal(done, AREA);
	assert_true(peer_has(2));
	put_pattern(area, AREA, 1);
	struct iovec whole = { area, AREA };
	assert_int_equal(vb_copy_to_peer(peer.pid, &whole, 1, &whole, 1, NULL, &done), 0);
	assert_true(peer_has(1));
}

static void copy__ends_with_the_shorter_list(void **state)
{
	uint8_t small[10], sentinel[20] = { 0 };
	struct iovec here = { small, sizeof small }, there = { area, AREA }, none[2] = { { area, 0 } };
	size_t done;

	SKIP_IF_FORBIDDEN();
	assert_int_equal(vb_copy_from_peer(peer.pid, &here, 1, &there, 1, NULL, &done), 0);
	assert_int_equal(done, 10);
	here = (struct iovec){ sentinel, sizeof sentinel };
	there.iov_len = 10;
	assert_int_equal(vb_copy_from_peer(peer.pid, &here, 1, &there, 1, NULL, &done), 0);
	assert_int_equal(done, 10);
	assert_memory_equal(sentinel, small, 10);
	assert_int_equal(sentinel[10], 0);
	assert_int_equal(vb_copy_from_peer(peer.pid, none, 2, &there, 1, NULL, &done), 0);
	assert_int_equal(done, 0);
	assert_int_equal(vb_copy_from_peer(peer.pid, NULL, 0, NULL, 0, NULL, &done), 0);
}

static void copy__stops_at_unmapped_memory(void **state)
{
	static uint8_t local[3 * HOLE];
	struct iovec here = { local, sizeof local }, there = { area + AREA - HOLE, 3 * HOLE };
	size_t done;

	SKIP_IF_FORBIDDEN();
	assert_int_equal(vb_copy_from_peer(peer.pid, &here, 1, &there, 1, NULL, &done), -EFAULT);
	assert_true(done <= HOLE);
	assert_memory_equal(local, area + AREA - HOLE, done);
	/* here it ends there, too */
	assert_int_equal(vb_copy_to_peer(peer.pid, &there, 1, &here, 1, NULL, &done), -EFAULT);
	there = (struct iovec){ NULL, 8 };
	assert_int_equal(vb_copy_to_peer(peer.pid, &here, 1, &there, 1, NULL, &done), -EFAULT);
	assert_int_equal(done, 0);
}

static void copy__of_a_dead_process_fails(void **state)
{
	struct iovec iov = { area, 16 };
	size_t done;

	SKIP_IF_FORBIDDEN();
	struct child c = child_start(hold_area);
	assert_int_equal(hear(c.sock), 1);
	child_kill(&c);
	assert_int_equal(vb_copy_from_peer(c.pid, &iov, 1, &iov, 1, NULL, &done), -ESRCH);
	assert_int_equal(done, 0);
}

static void copy__of_a_process_of_another_user_fails(void **state)
{
	struct iovec iov = { (char[8]){ 0 }, 8 }, there = { area, 8 };
	size_t done;

	SKIP_IF_FORBIDDEN();
	pid_t pid = fork();
	if (pid == 0) {
		if (setresuid(65533, 65533, 65533) < 0)
			_exit(NO_OTHER_USER);
		_exit(vb_copy_from_peer(peer.pid, &iov, 1, &there, 1, NULL, &done) != -EPERM);
	}
	int status;
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == NO_OTHER_USER)
		SKIP("this process cannot become another user");
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_from_peer__moves_any_lists),
		cmocka_unit_test(copy_to_peer__moves_any_lists),
		cmocka_unit_test(copy__ends_with_the_shorter_list),
		cmocka_unit_test(copy__stops_at_unmapped_memory),
		cmocka_unit_test(copy__of_a_dead_process_fails),
		cmocka_unit_test(copy__of_a_process_of_another_user_fails),
	};
	return cmocka_run_group_tests(tests, start, end);
}
