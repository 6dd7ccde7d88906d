/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ids that are looked at by another process while their program's threads bind, resolve, connect and destroy
 * them. What the visitor reads is read by the progress thread: ThreadSanitizer sees here what is written
 * without the lock.
 */
#include <pthread.h>
#include <spawn.h>

#include "../../kernel.h"
#include "cm.h"

enum { LOOKS = 30, TEXT_BYTES = 1 << 16 };

extern char **environ;

static struct {
	char source[64];      /* of the listener that is there all the while */
	atomic_bool is_over;
	unsigned complete;    /* looks that had that listener, as it is */
} seen;

/* What `verbatim show PID ids` prints, "" if it fails. */
static void look(char text[TEXT_BYTES])
{
	char pid[16];
	char *const argv[] = { "verbatim", "show", "ids", pid, NULL };
	posix_spawn_file_actions_t actions;
	int out[2], status = -1;
	size_t used = 0;
	pid_t child;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	text[0] = '\0';
	if (pipe2(out, O_CLOEXEC))
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	int err = posix_spawn(&child, VERBATIM_PROGRAM, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	for (ssize_t n = 1; !err && n > 0 && used < TEXT_BYTES - 1; used += n > 0 ? (size_t)n : 0)
		n = read(out[0], text + used, TEXT_BYTES - 1 - used);
	close(out[0]);
	text[err || waitpid(child, &status, 0) != child || status ? 0 : used] = '\0';
}

static void *keep_looking(void *arg)
{
	static char text[TEXT_BYTES];

	(void)arg;
	for (unsigned i = 0; i < LOOKS; i++) {
		look(text);
		const char *row = strstr(text, seen.source), *end = row ? strchr(row, '\n') : NULL;
		while (row && row > text && row[-1] != '\n')
			row--;
		const char *state = row ? strstr(row, "listening") : NULL;
		seen.complete += state && end && state < end;
	}
	atomic_store(&seen.is_over, true);
	return NULL;
}

/* Two ids with queue pairs, through all that is told of them. */
static void live(void)
{
	/* Each call writes the id's completion queues into its own. */
	struct ibv_qp_init_attr of_client = { .cap = { .max_send_wr = 1,
						       .max_recv_wr = 1,
						       .max_send_sge = 1,
						       .max_recv_sge = 1 },
					      .qp_type = IBV_QPT_RC },
				of_server = of_client;
	struct rdma_conn_param param = { .retry_count = 7 };
	struct pair p = listening_pair("127.0.0.1", RDMA_PS_TCP);

	assert_ok(rdma_create_qp(p.client, NULL, &of_client));
	assert_ok(rdma_connect(p.client, &param));
	struct rdma_cm_event *event = expect(p.server_ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	p.server = event->id;
	assert_ok(rdma_ack_cm_event(event));
	assert_ok(rdma_create_qp(p.server, NULL, &of_server));
	assert_ok(rdma_accept(p.server, &param));
	expect_acked(p.client_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	expect_acked(p.server_ch, RDMA_CM_EVENT_ESTABLISHED, 0);
	assert_ok(rdma_disconnect(p.client));
	expect_acked(p.server_ch, RDMA_CM_EVENT_DISCONNECTED, 0);
	rdma_destroy_qp(p.client);
	rdma_destroy_qp(p.server);
	destroy_pair(&p);
}

/* Bound to what it cannot have, and to nothing in particular. */
static void fail_to_live(const char *taken)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *id = new_id(ch, RDMA_PS_TCP);
	struct address any = address("0.0.0.0", 0), nowhere = address("192.0.2.1", 0),
		       here = address("127.0.0.1", 0);

	here = with_port(here, htons((uint16_t)atoi(strchr(taken, ':') + 1)));
	assert_refused(EADDRNOTAVAIL, rdma_bind_addr(id, sockaddr(&nowhere)));
	assert_refused(EADDRINUSE, rdma_bind_addr(id, sockaddr(&here)));
	assert_ok(rdma_bind_addr(id, sockaddr(&any)));
	assert_ok(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

static void ids__told_while_they_change(void **state)
{
	struct rdma_event_channel *ch = new_channel();
	struct rdma_cm_id *listener = new_listener(ch, "127.0.0.1", RDMA_PS_TCP, 1);
	pthread_t looker;

	(void)state;
	snprintf(seen.source, sizeof(seen.source), "127.0.0.1:%u ", ntohs(rdma_get_src_port(listener)));
	assert_int_equal(pthread_create(&looker, NULL, keep_looking, NULL), 0);
	while (!atomic_load(&seen.is_over)) {
		live();
		fail_to_live(seen.source);
	}
	pthread_join(looker, NULL);
	assert_int_equal(seen.complete, LOOKS);
	assert_ok(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static bool can_be_started(void)
{
	char *argv[] = { VERBATIM_PROGRAM, "--version", NULL };
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t child;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	int err = posix_spawn(&child, VERBATIM_PROGRAM, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return !err && waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids__told_while_they_change),
	};

	if (!can_be_started()) {
		printf("1..0 # SKIP " NO_PROGRAMS "\n");
		return 0;
	}
	return cmocka_run_group_tests_name("rdmacm_looked_at", tests, NULL, NULL);
}
