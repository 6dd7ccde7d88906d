/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fork while another thread is in the middle of a call, perhaps with a lock: the child has no such thread,
 * and must not wait for it. One thread stops at each of its allocations and before it lets go of each mutex,
 * in turn, and there the process forks.
 */
#include "world.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "../../kernel.h"
#include "../../sanitized.h"

static __thread int left = -1; /* points of this thread until the one where it stops; below 0: it does not */

#if SANITIZED
enum { HAVE_ALLOCATOR = false };
static void stop_at(int n, int tell, int wait) {}
#else
enum { HAVE_ALLOCATOR = true };

enum { PATIENCE_MS = 100 };

static int told, awaited;

/*
 * Tells that it is here, and waits for the fork. A fork waits for some locks. If this thread has one of them,
 * the thread goes on after a while, and the fork comes a bit later.
 */
static void stop_here(void)
{
	struct pollfd p = { .fd = awaited, .events = POLLIN };
	int saved = errno;
	if (write(told, "s", 1) == 1)
		poll(&p, 1, PATIENCE_MS);
	errno = saved;
}

static void pass(void)
{
	if (left >= 0 && left-- == 0)
		stop_here();
}

static void stop_at(int n, int tell, int wait)
{
	told = tell;
	awaited = wait;
	left = n;
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	pass();
	return __libc_malloc(n);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	pass();
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	pass();
	return __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t n)
{
	pass();
	return __libc_memalign(alignment, n);
}

__attribute__((visibility("default"))) int posix_memalign(void **p, size_t alignment, size_t n)
{
	pass();
	*p = __libc_memalign(alignment, n);
	return *p ? 0 : ENOMEM;
}

__attribute__((visibility("default"))) void *mmap(void *at, size_t n, int prot, int flags, int fd,
						  off_t offset)
{
	pass();
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*_Atomic unlock)(pthread_mutex_t *mutex);
	if (!atomic_load(&unlock))
		atomic_store(&unlock, (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
	pass();
	return atomic_load(&unlock)(mutex);
}

__attribute__((visibility("default"))) ssize_t getrandom(void *to, size_t n, unsigned flags)
{
	pass();
	return syscall(SYS_getrandom, to, n, flags);
}
#endif

#define MUST(condition)                                                                   \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "# line %d: not so: %s\n", __LINE__, #condition);  \
			_exit(1);                                                         \
		}                                                                         \
	} while (0)

static void use_memory(struct world *w)
{
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_parent_domain_init_attr parent_attr = { .pd = w->pd };
	struct ibv_mr *none = ibv_alloc_null_mr(w->pd);
	struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1);
	struct ibv_dm *dm = ibv_alloc_dm(w->ctx, &dm_attr);
	struct ibv_pd *parent = ibv_alloc_parent_domain(w->ctx, &parent_attr),
		      *again = ibv_import_pd(w->ctx, w->pd->handle);
	MUST(none && mw && dm && parent && again);
	ibv_unimport_pd(again);
	MUST(!ibv_dealloc_pd(parent) && !ibv_free_dm(dm) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(none));
}

static void use_queues(struct world *w)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &attr);
	MUST(srq && !ibv_resize_cq(w->cq, 100));
	struct wire x = connected(w, NULL);
	MUST(!post_recv(w, x.b, 1) && !post_send(w, x.a, 2, 0));
	drain(w->cq, 2);
	disconnected(&x);
	MUST(!ibv_destroy_srq(srq));
}

/*
 * What `verbatim run` has programs read (src/answers). It is written without a stop, since that has hundreds
 * of points; then it is looked for.
 */
static void use_sysfs(void)
{
	typedef const char *refresh_fn(const char *path);
	refresh_fn *refresh = (refresh_fn *)dlsym(RTLD_DEFAULT, "vb_sysfs_refresh");
	int points = left;
	left = -1;
	MUST(refresh && refresh("/sys/class/infiniband"));
	left = points;
	MUST(refresh("/sys/class/infiniband"));
}

/* Of each kind of calls some. */
static void *work(void *unused)
{
	void *world;
	make_world(&world);
	use_memory(world);
	use_queues(world);
	use_sysfs();
	end_world(&world);
	return NULL;
}

struct worker {
	int n, tell, wait;
};

static void *work_and_stop(void *arg)
{
	const struct worker *w = arg;
	stop_at(w->n, w->tell, w->wait);
	work(NULL);
	stop_at(-1, w->tell, w->wait);
	MUST(write(w->tell, "d", 1) == 1);
	return NULL;
}

/* What waits for ever is ended. */
static bool child_works(void)
{
	enum { MOST_S = 100 };
	int status;
	pid_t pid = fork();
	if (!pid) {
		is_forked_child = true;
		alarm(MOST_S);
		work(NULL);
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

enum { CHILD_WORKED, CHILD_FAILED, NO_SUCH_POINT };

/* In a process of its own, where all is done for the first time. */
static int fork_at(int n)
{
	int to_main[2], to_worker[2], result = NO_SUCH_POINT;
	pthread_t thread;
	char what;
	MUST(!pipe(to_main) && !pipe(to_worker));
	struct worker w = { n, to_main[1], to_worker[0] };
	MUST(!pthread_create(&thread, NULL, work_and_stop, &w));
	MUST(read(to_main[0], &what, 1) == 1);
	if (what == 's') {
		result = child_works() ? CHILD_WORKED : CHILD_FAILED;
		MUST(write(to_worker[1], "g", 1) == 1);
	}
	MUST(!pthread_join(thread, NULL));
	return result;
}

static void child__works_wherever_others_were(void **state)
{
	int n = 0, result = CHILD_WORKED, status;
	void *here;
	if (!HAVE_ALLOCATOR)
		SKIP("the sanitizer's allocator cannot be replaced");
	backtrace(&here, 1); /* loads a library, for which the C library has locks of its own */
	for (; result == CHILD_WORKED; n++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(fork_at(n));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		result = WEXITSTATUS(status);
	}
	if (result != NO_SUCH_POINT)
		fail_msg("a child that was forked at the worker's point %d does not work", n - 1);
	assert_true(n > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(child__works_wherever_others_were),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
