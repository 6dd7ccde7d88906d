/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which path a connection takes: the local one, or the next ("wire", a stand-in). Both ends must choose
 * alike.
 */
#include "strangers.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>

#include "../between.h"
#include "../sanitized.h"
#include "adapter/peer.h"
#include "adapter/progress/path.h"
#include "adapter/start.h"
#include "local/peer.h"

enum { LOCAL = 1, WIRE, NO_LIMIT = 90, MOST_TAKEN = 4096 };
#define GIBIBYTE (1ull << 30)

static bool claims_all(struct vb_qp *qp) { return true; }
static bool claims_a_type(struct vb_qp *qp) { return qp->type == IBV_QPT_DRIVER; }
static bool nothing(void) { return false; }

static struct vb_path_ops wire = {
	.name = "wire", .rank = VB_PATH_WIRE, .claims = claims_all, .poll = nothing, .is_pending = nothing
};
/* Registered behind `wire`, and asked before it. */
static struct vb_path_ops late = { .name = "late", .rank = VB_PATH_LOCAL, .claims = claims_a_type };

/* The last one that chose: its choice holds until the next. */
static struct vb_qp chooser;

static int choice(enum ibv_qp_type type, struct in6_addr dgid, uint32_t slot)
{
	vb_path_unclaim(&chooser);
	if (chooser.path_state)
		vb_peer_put(chooser.path_state);
	chooser = (struct vb_qp){ .type = type, .attr.dest_qp_num = slot << VB_SLOT_SHIFT | 5 };
	memcpy(&chooser.attr.ah_attr.grh.dgid, &dgid, sizeof(dgid));
	const struct vb_path_ops *path = vb_path_choose(&chooser);
	return path == &wire ? WIRE : !strcmp(path->name, "local") ? LOCAL : 0;
}

static struct in6_addr ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (struct in6_addr){ .s6_addr = { [10] = 0xff, 0xff, a, b, c, d } };
}

static int choice_here(uint32_t slot) { return choice(IBV_QPT_RC, ipv4(127, 0, 0, 1), slot); }

/* ---- the other end ---- */

static void be_a_peer(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	say(sock, vb_slot_first());
	say(sock, (uint64_t)choice_here((uint32_t)hear(sock)));
	hear(sock);
}

static void become_another_user(void)
{
	if (setresuid(OTHER_USER, OTHER_USER, OTHER_USER) < 0)
		_exit(NO_OTHER_USER);
}

/* A program of root's that works for this user now, and could be root again. */
static void be_effectively_the_same_user(int sock)
{
	become_effectively(geteuid(), OTHER_USER);
	be_a_peer(sock);
}

static void hide(int sock)
{
	prctl(PR_SET_DUMPABLE, 0);
	be_a_peer(sock);
}

static void hide_later(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	hide(sock);
}

static void be_in_another_namespace(int sock)
{
	enter_nameless_namespace();
	prctl(PR_SET_DUMPABLE, 1);
	be_a_peer(sock);
}

static void be_some_user_in_another_namespace(int sock)
{
	become(SOME_USER);
	be_in_another_namespace(sock);
}

static void be_other_user_in_another_namespace(int sock)
{
	become(OTHER_USER);
	be_in_another_namespace(sock);
}

static void be_without_local(int sock)
{
	setenv("VERBATIM_LOCAL", "off", 1);
	be_a_peer(sock);
}

static void be_another_user(int sock)
{
	become_another_user();
	be_a_peer(sock);
}

/* As a service that gives up its rights once it has its devices. */
static void become_another_user_later(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	become_another_user();
	vb_link_show_user(); /* what making a queue pair does */
	be_a_peer(sock);
}

/* What a child inherits counts, too. */
static rlim_t address_space_in_use(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHILD_CHECK(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void be_confined(int sock, rlim_t bytes)
{
	rlim_t most = address_space_in_use() + bytes;
	struct rlimit limit = { most, most };
	if (setrlimit(RLIMIT_AS, &limit) || vb_shm_has_room(bytes + GIBIBYTE))
		_exit(NO_LIMIT);
	be_a_peer(sock);
}

/* Not enough to map what this process shows. */
static void be_without_room(int sock) { be_confined(sock, 20 * GIBIBYTE); }
/* Not enough for as much of its own. */
static void be_with_little_room(int sock) { be_confined(sock, 64 * GIBIBYTE); }

/* Files may not be longer (ulimit -f): what would make one is ended by SIGXFSZ. */
static void be_with_files_of(int sock, rlim_t bytes)
{
	struct rlimit limit = { bytes, bytes };
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	be_a_peer(sock);
}

static void be_with_files_of_a_mebibyte(int sock) { be_with_files_of(sock, 1 << 20); }
static void be_with_files_of_a_gibibyte(int sock) { be_with_files_of(sock, GIBIBYTE); }

/* ---- few descriptors ---- */

static int spare_fds; /* that a process has */

static struct rlimit limit_descriptors(int beyond)
{
	struct rlimit before, few;
	int lowest = dup(STDIN_FILENO);
	CHILD_CHECK(lowest >= 0 && !close(lowest) && !getrlimit(RLIMIT_NOFILE, &before));
	few = (struct rlimit){ .rlim_cur = (rlim_t)(lowest + beyond), .rlim_max = before.rlim_max };
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	return before;
}

/* A link is made in several steps, each of which may be the one for which there is no descriptor. */
static void be_short_of_descriptors(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	limit_descriptors(spare_fds);
	be_a_peer(sock);
}

/* It has plenty when it chooses, but had none before. */
static void be_short_for_a_while(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	struct rlimit before = limit_descriptors(spare_fds);
	say(sock, vb_slot_first());
	uint32_t slot = (uint32_t)hear(sock);
	setrlimit(RLIMIT_NOFILE, &before);
	say(sock, (uint64_t)choice_here(slot));
	hear(sock);
}

/* What both ends choose, this one first or last. */
static int common_choice(void (*peer)(int sock), int first)
{
	struct child c = child_start(peer);
	uint64_t slot = hear(c.sock);
	assert_int_not_equal(slot, UINT64_MAX);
	int mine = first ? choice_here((uint32_t)slot) : 0;
	say(c.sock, vb_slot_first());
	int theirs = (int)hear(c.sock);
	assert_int_equal(first ? mine : choice_here((uint32_t)slot), theirs);
	assert_int_equal(child_end(&c), 0);
	return theirs;
}

/* With each number of descriptors that are left, from none to plenty. */
static void agree_whatever_is_left(void (*peer)(int sock))
{
	int local = 0, wired = 0;
	for (spare_fds = 0; spare_fds < 200; spare_fds = spare_fds < 12 ? spare_fds + 1 : spare_fds * 4) {
		for (int first = 0; first < 2; first++) {
			int common = common_choice(peer, first);
			local += common == LOCAL;
			wired += common == WIRE;
		}
	}
	assert_true(local && wired);
}

/* In 200 ms, with nothing to do. */
static uint64_t idle_processor_ns(void)
{
	struct timespec before, after;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep(200000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	return (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000 + (uint64_t)after.tv_nsec -
	       (uint64_t)before.tv_nsec;
}

static void refuse_links(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	vb_links_refuse();
	usleep(50000);
	say(sock, idle_processor_ns());
	be_a_peer(sock);
}

/* Both ends choose, this one first or last; the two must agree on `want`. */
static void agree(void (*peer)(int sock), int want)
{
	for (int first = 0; first < 2; first++) {
		struct child c = child_start(peer);
		uint64_t slot = hear(c.sock);
		int refusal = slot == UINT64_MAX ? WEXITSTATUS(child_end(&c)) : 0;
		if (refusal == NO_OTHER_USER)
			SKIP("this process cannot become another user, or enter a namespace");
		if (refusal == NO_LIMIT)
			SKIP("address space cannot be limited here");
		int mine = first ? choice_here((uint32_t)slot) : 0;
		say(c.sock, vb_slot_first());
		assert_int_equal(hear(c.sock), want);
		assert_int_equal(first ? mine : choice_here((uint32_t)slot), want);
		assert_int_equal(child_end(&c), 0);
	}
}

static void choice__this_process_is_local(void **state)
{
	assert_int_equal(choice_here(vb_slot_first()), LOCAL);
}

static void choice__same_user_is_local(void **state) { agree(be_a_peer, LOCAL); }
static void choice__switched_off_at_one_end_is_wire(void **state) { agree(be_without_local, WIRE); }
static void choice__another_user_is_wire(void **state) { agree(be_another_user, WIRE); }

static void choice__without_address_space_is_wire(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_TAKE_ROOM);
	agree(be_without_room, WIRE);
}

static void choice__with_little_address_space_is_local(void **state)
{
	if (SANITIZED)
		SKIP(SANITIZERS_TAKE_ROOM);
	agree(be_with_little_room, LOCAL);
}

static void choice__with_short_files_is_wire(void **state) { agree(be_with_files_of_a_mebibyte, WIRE); }
static void choice__with_long_files_is_local(void **state) { agree(be_with_files_of_a_gibibyte, LOCAL); }

static void choice__with_few_descriptors_is_alike(void **state)
{
	agree_whatever_is_left(be_short_of_descriptors);
}
static void choice__after_few_descriptors_is_alike(void **state)
{
	agree_whatever_is_left(be_short_for_a_while);
}

/* What this end lacks is a matter of the moment. */
static void expect_to_listen_again(void)
{
	int now = WIRE;
	for (unsigned tries = 0; tries < 100 && now != LOCAL; tries++)
		now = common_choice(be_a_peer, 0);
	assert_int_equal(now, LOCAL);
}

/* This end has few; the other one has enough. */
static void choice__with_few_descriptors_here_is_alike(void **state)
{
	for (int left = 0; left < 12; left++) {
		for (int first = 0; first < 2; first++) {
			struct child c = child_start(be_a_peer);
			uint64_t slot = hear(c.sock);
			struct rlimit before = limit_descriptors(left);
			int mine = first ? choice_here((uint32_t)slot) : 0;
			say(c.sock, vb_slot_first());
			uint64_t theirs = hear(c.sock);
			mine = first ? mine : choice_here((uint32_t)slot);
			assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
			assert_int_equal(mine, theirs);
			assert_int_equal(child_end(&c), 0);
		}
	}
	expect_to_listen_again();
}

/* All descriptors that this process may have, and how many of them these are. */
static int take_descriptors(int taken[MOST_TAKEN], struct rlimit *before)
{
	int n = 0, highest = MOST_TAKEN - 1;
	while (fcntl(highest, F_GETFD) < 0)
		highest--;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
	struct rlimit few = { .rlim_cur = (rlim_t)highest + 1, .rlim_max = before->rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((taken[n] = dup(STDIN_FILENO)) >= 0)
		n++;
	return n;
}

/* A child that is about to execute a program has this process's descriptors until then. */
static void choice__this_end_listens_again_after_a_child_had_its_sockets(void **state)
{
	static int taken[MOST_TAKEN];
	struct rlimit before;
	pid_t holder = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	while (!holder)
		pause();
	assert_true(holder > 0);
	struct child c = child_start(be_a_peer);
	(void)hear(c.sock);
	int n = take_descriptors(taken, &before);
	say(c.sock, vb_slot_first());
	(void)hear(c.sock);
	while (n)
		close(taken[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(child_end(&c), 0);
	kill(holder, SIGKILL);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	expect_to_listen_again();
}

/* A listener that was shut down is ready for ever, and nothing that the progress thread shall look at. */
static void choice__with_links_refused_the_thread_sleeps(void **state)
{
	struct child c = child_start(refuse_links);
	assert_between(hear(c.sock), 0, 100000000);
	uint64_t slot = hear(c.sock);
	say(c.sock, vb_slot_first());
	assert_int_equal(hear(c.sock), WIRE);
	assert_int_equal(choice_here((uint32_t)slot), WIRE);
	assert_int_equal(child_end(&c), 0);
}

static void choice__changed_user_is_wire(void **state) { agree(become_another_user_later, WIRE); }

static void choice__effectively_the_same_user_is_wire(void **state)
{
	agree(be_effectively_the_same_user, WIRE);
}
static void choice__hidden_memory_is_wire(void **state) { agree(hide, WIRE); }
static void choice__memory_hidden_later_is_wire(void **state) { agree(hide_later, WIRE); }
static void choice__another_user_namespace_is_wire(void **state) { agree(be_in_another_namespace, WIRE); }

/* There both users have the same number, 65534. */
static void choice__users_without_numbers_are_wire(void **state)
{
	struct child c[2] = { child_start(be_some_user_in_another_namespace),
			      child_start(be_other_user_in_another_namespace) };
	uint64_t slots[2];
	if (is_impossible(&c[0], &slots[0]) || is_impossible(&c[1], &slots[1]))
		SKIP("this process cannot become another user, or enter a namespace");
	for (int i = 0; i < 2; i++)
		say(c[i].sock, slots[!i]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(hear(c[i].sock), WIRE);
	for (int i = 2; i--;) /* the second has the first one's socket, too */
		assert_int_equal(child_end(&c[i]), 0);
}

static void choose_oneself(int sock)
{
	setenv("VERBATIM_LOCAL", "off", 1);
	CHILD_CHECK(vb_adapter_start() == 0);
	say(sock, (uint64_t)choice_here(vb_slot_first()));
}

static void choice__switched_off_for_oneself_is_wire(void **state)
{
	struct child c = child_start(choose_oneself);
	assert_int_equal(hear(c.sock), WIRE);
	assert_int_equal(child_end(&c), 0);
}

static void choice__nobody_is_wire(void **state)
{
	struct child c = child_start(be_a_peer);
	uint32_t slot = (uint32_t)hear(c.sock);
	assert_int_equal(choice_here(slot), LOCAL);
	child_kill(&c);
	assert_int_equal(choice_here(slot), WIRE);
	assert_int_equal(choice_here(0), WIRE);
}

/* A slot of another build's, whose links have another name. */
static void choice__another_version_is_wire(void **state)
{
	const uint32_t slot = VB_SLOT_COUNT - 2;
	int sock[2];
	for (int i = 0; i < 2; i++) {
		struct sockaddr_un un = { .sun_family = AF_UNIX };
		int n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1,
				 i ? "verbatim/link/%u" : "verbatim/slot/%u", slot);
		sock[i] = socket(AF_UNIX, i ? SOCK_SEQPACKET : SOCK_DGRAM, 0);
		if (bind(sock[i], (struct sockaddr *)&un,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)))
			SKIP("somebody has the slot");
	}
	assert_int_equal(listen(sock[1], 1), 0);
	assert_int_equal(choice_here(slot), WIRE);
	close(sock[0]);
	close(sock[1]);
}

static void choice__another_address_is_wire(void **state)
{
	assert_int_equal(choice(IBV_QPT_RC, ipv4(192, 0, 2, 1), vb_slot_first()), WIRE);
	assert_int_equal(choice(IBV_QPT_RC, ipv4(127, 0, 0, 2), vb_slot_first()), LOCAL);
	assert_int_equal(choice(IBV_QPT_RC, in6addr_any, vb_slot_first()), WIRE);
}

static void choice__other_services_are_not_local(void **state)
{
	assert_int_equal(choice(IBV_QPT_UC, ipv4(127, 0, 0, 1), vb_slot_first()), WIRE);
	assert_int_equal(choice(IBV_QPT_UD, ipv4(127, 0, 0, 1), vb_slot_first()), WIRE);
}

static void choice__goes_by_rank(void **state)
{
	struct vb_qp qp = { .type = IBV_QPT_DRIVER };
	assert_ptr_equal(vb_path_choose(&qp), &late);
}

/* ---- deaths ---- */

static atomic_uint deaths;

static void note_death(void *arg, uint32_t slot) { atomic_fetch_add(&deaths, 1); }
static void do_nothing(void *arg) { }

/* What the progress thread is at is done when this call is. */
static unsigned deaths_by_now(void)
{
	CHILD_CHECK(!vb_loop_call(do_nothing, NULL));
	return atomic_exchange(&deaths, 0);
}

static void choose_and_count_deaths(int sock)
{
	CHILD_CHECK(vb_adapter_start() == 0);
	atomic_store(&deaths, 0); /* the parent's */
	say(sock, vb_slot_first());
	say(sock, (uint64_t)choice_here((uint32_t)hear(sock)));
	say(sock, deaths_by_now());
	hear(sock);
}

/* It was stopped when this end chose, and lives on: neither end takes the declined link for a death. */
static void death__is_no_declined_link(void **state)
{
	struct child c = child_start(choose_and_count_deaths);
	uint32_t slot = (uint32_t)hear(c.sock);
	deaths_by_now(); /* of the tests before */
	child_stop(&c);
	assert_int_equal(choice_here(slot), WIRE);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	say(c.sock, vb_slot_first());
	assert_int_equal(hear(c.sock), WIRE);
	assert_int_equal(hear(c.sock), 0);
	assert_int_equal(deaths_by_now(), 0);
	assert_int_equal(child_end(&c), 0);
}

static int start(void **state)
{
	unsetenv("VERBATIM_LOCAL");
	vb_path_register(&wire);
	vb_path_register(&late);
	vb_peer_death_subscribe(note_death, NULL);
	return vb_adapter_start();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(choice__this_process_is_local),
		cmocka_unit_test(choice__same_user_is_local),
		cmocka_unit_test(choice__switched_off_at_one_end_is_wire),
		cmocka_unit_test(choice__another_user_is_wire),
		cmocka_unit_test(choice__without_address_space_is_wire),
		cmocka_unit_test(choice__with_little_address_space_is_local),
		cmocka_unit_test(choice__with_short_files_is_wire),
		cmocka_unit_test(choice__with_long_files_is_local),
		cmocka_unit_test(choice__with_few_descriptors_is_alike),
		cmocka_unit_test(choice__after_few_descriptors_is_alike),
		cmocka_unit_test(choice__with_few_descriptors_here_is_alike),
		cmocka_unit_test(choice__this_end_listens_again_after_a_child_had_its_sockets),
		cmocka_unit_test(choice__with_links_refused_the_thread_sleeps),
		cmocka_unit_test(choice__changed_user_is_wire),
		cmocka_unit_test(choice__effectively_the_same_user_is_wire),
		cmocka_unit_test(choice__hidden_memory_is_wire),
		cmocka_unit_test(choice__memory_hidden_later_is_wire),
		cmocka_unit_test(choice__another_user_namespace_is_wire),
		cmocka_unit_test(choice__users_without_numbers_are_wire),
		cmocka_unit_test(choice__switched_off_for_oneself_is_wire),
		cmocka_unit_test(choice__nobody_is_wire),
		cmocka_unit_test(choice__another_version_is_wire),
		cmocka_unit_test(choice__another_address_is_wire),
		cmocka_unit_test(choice__other_services_are_not_local),
		cmocka_unit_test(choice__goes_by_rank),
		cmocka_unit_test(death__is_no_declined_link),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
