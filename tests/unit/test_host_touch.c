/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is not there, and whose signals are whose. Each case has a process of its own, since handlers
 * are for life.
 */
#include "child.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/copy.h"
#include "host/host.h"
#include "host/memory/touch.h"

enum { PAGE = 4096, AREA = 4 * PAGE };

static uint8_t *map(int prot)
{
	void *area = mmap(NULL, AREA, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHILD_CHECK(area != MAP_FAILED);
	return area;
}

/* Of a file that is shorter than the mapping. */
static uint8_t *map_beyond_a_file(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	CHILD_CHECK(fd >= 0 && !ftruncate(fd, PAGE));
	uint8_t *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHILD_CHECK(area != MAP_FAILED && !close(fd));
	return area + PAGE;
}

/* The status of a child that runs it, without cmocka's handlers; it ends with 0 if it comes back. */
static int status_of(void (*body)(int sock))
{
	sighandler_t segv = signal(SIGSEGV, SIG_DFL), bus = signal(SIGBUS, SIG_DFL);
	struct child c = child_start(body);
	int status;
	close(c.sock);
	signal(SIGSEGV, segv);
	signal(SIGBUS, bus);
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	return status;
}

static void die_quietly(void) { setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); }

/* ---- copies ---- */

static void copy_all_lengths(int sock)
{
	uint8_t *from = map(PROT_READ | PROT_WRITE), *to = map(PROT_READ | PROT_WRITE);
	vb_touch_prepare();
	for (unsigned i = 0; i < AREA; i++)
		from[i] = (uint8_t)(i * 7 + 1);
	for (unsigned n = 1; n < 1200; n++) {
		memset(to, 0, 1300);
		CHILD_CHECK(vb_touch_copy(to + 1 + n % 9, from + n % 5, n) == 0);
		CHILD_CHECK(!memcmp(to + 1 + n % 9, from + n % 5, n) && !to[n % 9] && !to[1 + n % 9 + n]);
	}
}

static void copy__of_any_length(void **state) { assert_int_equal(status_of(copy_all_lengths), 0); }

static void fail_with(uint8_t *gone)
{
	uint8_t *here = map(PROT_READ | PROT_WRITE);
	static const size_t lengths[] = { 1, 3, 4, 8, 9, 64, 511, 1031, 1032, 4096, 8192 };
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		for (int again = 0; again < 3; again++) {
			CHILD_CHECK(vb_touch_copy(gone, here, lengths[i]) == -EFAULT);
			CHILD_CHECK(vb_touch_copy(here, gone, lengths[i]) == -EFAULT);
			CHILD_CHECK(vb_touch_copy(here + PAGE, here, lengths[i] / 2 + 1) == 0);
		}
	for (enum vb_touch_op op = VB_TOUCH_STORE; op <= VB_TOUCH_COMPARE_SWAP; op++) {
		uint64_t found;
		CHILD_CHECK(vb_touch_atomically((void *)gone, op, 1, 2, &found) == -EFAULT);
	}
}

static void fail_where_nothing_is(int sock)
{
	uint8_t *unmapped = map(PROT_READ | PROT_WRITE);
	vb_touch_prepare();
	fail_with(map(PROT_NONE));
	fail_with(map_beyond_a_file());
	munmap(unmapped, AREA);
	uint8_t *edge = map(PROT_READ | PROT_WRITE), *from = map(PROT_READ | PROT_WRITE);
	mprotect(edge + PAGE, PAGE, PROT_NONE);
	CHILD_CHECK(vb_touch_copy(edge + PAGE - 20, from, 20) == 0);
	CHILD_CHECK(vb_touch_copy(edge + PAGE - 20, from, 21) == -EFAULT);
	CHILD_CHECK(vb_touch_copy(edge + 5, from, PAGE) == -EFAULT);
	mprotect(edge, PAGE, PROT_READ);
	CHILD_CHECK(vb_touch_copy(edge, from, 8) == -EFAULT);
	CHILD_CHECK(vb_touch_copy(from, edge, 8) == 0);
}

static void copy__fails_where_nothing_is(void **state)
{
	assert_int_equal(status_of(fail_where_nothing_is), 0);
}

static void operate(int sock)
{
	_Atomic(uint64_t) word = 5;
	uint64_t found;
	vb_touch_prepare();
	CHILD_CHECK(!vb_touch_atomically(&word, VB_TOUCH_ADD, 3, 0, &found) && found == 5 && word == 8);
	CHILD_CHECK(!vb_touch_atomically(&word, VB_TOUCH_COMPARE_SWAP, 1, 9, &found) && found == 8 &&
		    word == 8);
	CHILD_CHECK(!vb_touch_atomically(&word, VB_TOUCH_COMPARE_SWAP, 1, 8, &found) && found == 8 &&
		    word == 1);
	CHILD_CHECK(!vb_touch_atomically(&word, VB_TOUCH_STORE, 77, 0, &found) && word == 77);
}

static void atomics__are_what_they_are(void **state) { assert_int_equal(status_of(operate), 0); }

/* ---- faults of the program's own ---- */

static volatile uint8_t *volatile nowhere;

static void crash(int sock)
{
	die_quietly();
	vb_touch_prepare();
	nowhere = map(PROT_NONE);
	*nowhere = 1;
}

static void crash_on_a_file(int sock)
{
	die_quietly();
	vb_touch_prepare();
	*(volatile uint8_t *)map_beyond_a_file() = 1;
}

static void be_killed(int sock)
{
	die_quietly();
	vb_touch_prepare();
	kill(getpid(), SIGSEGV);
}

static void faults__end_a_program_that_handles_none(void **state)
{
	assert_int_equal(WTERMSIG(status_of(crash)), SIGSEGV);
	assert_int_equal(WTERMSIG(status_of(crash_on_a_file)), SIGBUS);
	assert_int_equal(WTERMSIG(status_of(be_killed)), SIGSEGV);
}

static void ignore(int sock)
{
	signal(SIGSEGV, SIG_IGN);
	vb_touch_prepare();
	kill(getpid(), SIGSEGV);
	fail_with(map(PROT_NONE));
}

static void signals__ignored_stay_so(void **state) { assert_int_equal(status_of(ignore), 0); }

static volatile sig_atomic_t handled;
static sigjmp_buf back;

static void mend(int sig, siginfo_t *info, void *context)
{
	sigset_t blocked;
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	handled += info->si_addr == (void *)nowhere && sigismember(&blocked, SIGUSR1) &&
				   sigismember(&blocked, SIGSEGV) ?
			   1 :
			   1000;
	mprotect((void *)(uintptr_t)nowhere, PAGE, PROT_READ | PROT_WRITE);
}

static void jump(int sig)
{
	handled++;
	siglongjmp(back, 1);
}

static void set_handler(struct sigaction *action)
{
	sigemptyset(&action->sa_mask);
	sigaddset(&action->sa_mask, SIGUSR1);
	CHILD_CHECK(!sigaction(SIGSEGV, action, NULL));
}

/* As collectors of garbage do: the handler makes the page, and the access goes on. */
static void handle_by_mending(int sock)
{
	sigset_t blocked;
	set_handler(&(struct sigaction){ .sa_sigaction = mend, .sa_flags = SA_SIGINFO });
	vb_touch_prepare();
	for (int i = 1; i <= 3; i++) {
		nowhere = map(PROT_NONE);
		*nowhere = 1;
		CHILD_CHECK(handled == i && *nowhere == 1);
	}
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	CHILD_CHECK(!sigismember(&blocked, SIGUSR1) && !sigismember(&blocked, SIGSEGV));
	fail_with(map(PROT_NONE));
	CHILD_CHECK(handled == 3);
}

/* As programs do that try whether an address is good. */
static void handle_by_jumping(int sock)
{
	set_handler(&(struct sigaction){ .sa_handler = jump });
	vb_touch_prepare();
	nowhere = map(PROT_NONE);
	for (int i = 1; i <= 3; i++) {
		if (!sigsetjmp(back, 1))
			*nowhere = 1;
		CHILD_CHECK(handled == i);
		fail_with(map(PROT_NONE));
	}
	CHILD_CHECK(handled == 3);
}

static void handle_once(int sock)
{
	die_quietly();
	set_handler(&(struct sigaction){ .sa_handler = jump, .sa_flags = (int)SA_RESETHAND });
	vb_touch_prepare();
	nowhere = map(PROT_NONE);
	if (!sigsetjmp(back, 1))
		*nowhere = 1;
	CHILD_CHECK(handled == 1);
	*nowhere = 1;
}

static void faults__are_their_handlers(void **state)
{
	assert_int_equal(status_of(handle_by_mending), 0);
	assert_int_equal(status_of(handle_by_jumping), 0);
	assert_int_equal(WTERMSIG(status_of(handle_once)), SIGSEGV);
}

/* ---- a handler that comes later ---- */

static void handle_later(int sock)
{
	struct sigaction ours;
	uint8_t *a = map(PROT_READ | PROT_WRITE), *b = map(PROT_READ | PROT_WRITE);
	uint64_t found;
	vb_touch_prepare();
	vb_touch_look();
	CHILD_CHECK(!vb_touch_is_lost() && !sigaction(SIGSEGV, NULL, &ours));
	set_handler(&(struct sigaction){ .sa_handler = jump });
	vb_touch_look();
	CHILD_CHECK(vb_touch_is_lost());
	CHILD_CHECK(vb_touch_copy(a, b, 8) == -EFAULT);
	CHILD_CHECK(!vb_touch_atomically((void *)a, VB_TOUCH_ADD, 1, 0, &found) && *(uint64_t *)a == 1 &&
		    !handled);
	CHILD_CHECK(!sigaction(SIGSEGV, &ours, NULL));
	vb_touch_look();
	CHILD_CHECK(!vb_touch_is_lost() && !vb_touch_copy(a, b, 8));
}

static void handler__that_comes_later_is_noticed(void **state)
{
	assert_int_equal(status_of(handle_later), 0);
}

/* The kernel is asked instead. */
static void touch_nothing_later(int sock)
{
	uint64_t found;
	vb_touch_prepare();
	set_handler(&(struct sigaction){ .sa_handler = jump });
	vb_touch_look();
	CHILD_CHECK(vb_touch_atomically((void *)map(PROT_NONE), VB_TOUCH_ADD, 1, 0, &found) == -EFAULT);
}

static void handler__that_comes_later_is_spared(void **state)
{
	if (!kernel_tells_what_is_mapped())
		SKIP(NOT_TOLD);
	assert_int_equal(status_of(touch_nothing_later), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy__of_any_length),
		cmocka_unit_test(copy__fails_where_nothing_is),
		cmocka_unit_test(atomics__are_what_they_are),
		cmocka_unit_test(faults__end_a_program_that_handles_none),
		cmocka_unit_test(signals__ignored_stay_so),
		cmocka_unit_test(faults__are_their_handlers),
		cmocka_unit_test(handler__that_comes_later_is_noticed),
		cmocka_unit_test(handler__that_comes_later_is_spared),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
