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
#include <sys/time.h>

#include "base/copy.h"
#include "host/host.h"
#include "host/memory/touch.h"

enum { PAGE = 65536 /* whole pages of any kernel */, AREA = 4 * PAGE, LONGEST = 16384 };

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

typedef int copier(void *to, const void *from, size_t bytes);

static _Atomic(uint32_t) stop;
static int copy_unless(void *to, const void *from, size_t bytes)
{
	return vb_touch_copy_unless(&stop, to, from, bytes);
}
static int copy_always(void *to, const void *from, size_t bytes) { return vb_touch_copy(to, from, bytes); }
/* What the cases of both use. */
static copier *copy = copy_always;

static void assert_works_with_both(void (*body)(int sock))
{
	copy = copy_always;
	assert_int_equal(status_of(body), 0);
	if (!vb_rseq())
		return;
	copy = copy_unless;
	assert_int_equal(status_of(body), 0);
	copy = copy_always;
}

/* Also with the string moves that are not this processor's fastest. */
static void assert_works_with_all(void (*body)(int sock))
{
	assert_works_with_both(body);
#ifdef __x86_64__
	vb_touch_moves_bytes = !vb_touch_moves_bytes;
	assert_works_with_both(body);
	vb_touch_moves_bytes = !vb_touch_moves_bytes;
#endif
}

static void fill(uint8_t *area)
{
	for (unsigned i = 0; i < AREA; i++)
		area[i] = (uint8_t)(i * 7 + 1);
}

static void copy_all_lengths(int sock)
{
	uint8_t *from = map(PROT_READ | PROT_WRITE), *to = map(PROT_READ | PROT_WRITE);
	vb_touch_prepare();
	fill(from);
	for (unsigned n = 1; n < 1200; n++) {
		memset(to, 0, 1300);
		CHILD_CHECK(copy(to + 1 + n % 9, from + n % 5, n) == 0);
		CHILD_CHECK(!memcmp(to + 1 + n % 9, from + n % 5, n) && !to[n % 9] && !to[1 + n % 9 + n]);
	}
}

static void copy__of_any_length(void **state) { assert_works_with_all(copy_all_lengths); }

static void copy_what_is_forbidden(int sock)
{
	uint8_t *from = map(PROT_READ | PROT_WRITE), *to = map(PROT_READ | PROT_WRITE), none[1300] = { 0 };
	_Atomic(uint64_t) word = 5;
	uint64_t found;
	stop = 1;
	fill(from);
	for (unsigned n = 1; n < 1200; n++)
		CHILD_CHECK(copy_unless(to, from, n) == -ECANCELED && !memcmp(to, none, sizeof(none)));
	for (enum vb_touch_op op = VB_TOUCH_ADD; op <= VB_TOUCH_COMPARE_SWAP; op++)
		CHILD_CHECK(vb_touch_atomically_unless(&stop, &word, op, 1, 5, &found) == -ECANCELED);
	CHILD_CHECK(word == 5);
}

static void copy__of_nothing_once_it_is_told(void **state)
{
	if (!vb_rseq())
		SKIP("no restartable sequences");
	assert_int_equal(status_of(copy_what_is_forbidden), 0);
}

/* Interrupts copies, and makes one of its own in between. */
static void interrupt(int signal)
{
	static uint64_t from = 77, to;
	(void)copy_unless(&to, &from, sizeof(to));
}

/* A copy that was interrupted begins anew, until one comes to its end. */
static void copy_between_signals(int sock)
{
	static const size_t lengths[] = { 1, 3, 4, 8, 9, 64, 511, 1031, LONGEST };
	const struct itimerval often = { .it_interval = { .tv_usec = 50 }, .it_value = { .tv_usec = 50 } };
	uint8_t *from = map(PROT_READ | PROT_WRITE), *to = map(PROT_READ | PROT_WRITE);
	_Atomic(uint64_t) word = 0;
	uint64_t found;
	signal(SIGPROF, interrupt);
	CHILD_CHECK(!setitimer(ITIMER_PROF, &often, NULL));
	fill(from);
	for (uint64_t i = 0; i < 200000; i++) {
		size_t n = lengths[i % VB_ARRAY_LEN(lengths)];
		to[n - 1] = 0;
		CHILD_CHECK(copy_unless(to, from, n) == 0 && to[n - 1] == from[n - 1] && to[0] == from[0]);
		CHILD_CHECK(!vb_touch_atomically_unless(&stop, &word, VB_TOUCH_ADD, 1, 0, &found) &&
			    found == i && word == i + 1);
	}
	CHILD_CHECK(!memcmp(to, from, LONGEST));
}

static void copy__is_not_hurt_by_signals(void **state)
{
	if (!vb_rseq())
		SKIP("no restartable sequences");
	assert_int_equal(status_of(copy_between_signals), 0);
}

static void fail_with(uint8_t *gone)
{
	uint8_t *here = map(PROT_READ | PROT_WRITE);
	static const size_t lengths[] = { 1, 3, 4, 8, 9, 64, 511, 1031, 1032, 4096, 8192 };
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
		for (int again = 0; again < 3; again++) {
			CHILD_CHECK(copy(gone, here, lengths[i]) == -EFAULT);
			CHILD_CHECK(copy(here, gone, lengths[i]) == -EFAULT);
			CHILD_CHECK(copy(here + PAGE, here, lengths[i] / 2 + 1) == 0);
		}
	for (enum vb_touch_op op = VB_TOUCH_STORE; op <= VB_TOUCH_COMPARE_SWAP; op++) {
		uint64_t found;
		CHILD_CHECK(vb_touch_atomically((void *)gone, op, 1, 2, &found) == -EFAULT);
		if (copy == copy_unless && op != VB_TOUCH_STORE)
			CHILD_CHECK(vb_touch_atomically_unless(&stop, (void *)gone, op, 1, 2, &found) ==
				    -EFAULT);
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
	CHILD_CHECK(copy(edge + PAGE - 20, from, 20) == 0);
	CHILD_CHECK(copy(edge + PAGE - 20, from, 21) == -EFAULT);
	CHILD_CHECK(copy(edge + 5, from, PAGE) == -EFAULT);
	mprotect(edge, PAGE, PROT_READ);
	CHILD_CHECK(copy(edge, from, 8) == -EFAULT);
	CHILD_CHECK(copy(from, edge, 8) == 0);
}

static void copy__fails_where_nothing_is(void **state) { assert_works_with_all(fail_where_nothing_is); }

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
	if (!vb_rseq())
		return;
	CHILD_CHECK(!vb_touch_atomically_unless(&stop, &word, VB_TOUCH_ADD, 3, 0, &found) && found == 77 &&
		    word == 80);
	CHILD_CHECK(!vb_touch_atomically_unless(&stop, &word, VB_TOUCH_COMPARE_SWAP, 1, 9, &found) &&
		    found == 80 && word == 80);
	CHILD_CHECK(!vb_touch_atomically_unless(&stop, &word, VB_TOUCH_COMPARE_SWAP, 1, 80, &found) &&
		    found == 80 && word == 1);
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
		cmocka_unit_test(copy__of_nothing_once_it_is_told),
		cmocka_unit_test(copy__is_not_hurt_by_signals),
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
