/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread is cancelled where it waits for an event, and in no other function of the host: callers may hold
 * locks, and expect their descriptors and memory back.
 */
#include "child.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "host/host.h"
#include "host/ipc/rpc.h"
#include "host/loop/activity.h"
#include "host/loop/notifier.h"
#include "host/memory/memory.h"
#include "host/memory/remap.h"
#include "host/memory/vma.h"
#include "host/net/holder.h"
#include "host/net/privilege.h"
#include "host/net/raw.h"
#include "host/net/route.h"
#include "host/trace.h"
#include "host/tree.h"
#include "host/udp/udp.h"

static const struct in6_addr here = { .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };

static void draw(void)
{
	uint32_t number;
	vb_random(&number, sizeof(number));
}

static void raise_descriptor(void)
{
	int fd = vb_fd_raise(eventfd(0, EFD_CLOEXEC));
	vb_eventfd_ring(fd);
	vb_fd_close(fd);
}

static void notify(void)
{
	struct vb_notifier n;
	if (vb_notifier_init(&n))
		return;
	vb_notifier_raise(&n);
	vb_notifier_wake(&n);
	vb_notifier_clear(&n);
	vb_notifier_fini(&n);
}

static void read_files(void)
{
	char text[64];
	vb_file_read("/proc/sys/kernel/ostype", text, sizeof(text));
	vb_file_line("/proc/sys/kernel/ostype", text, sizeof(text));
	vb_file_number("/proc/sys/kernel/pid_max");
}

static void keep_time(void)
{
	vb_sleep_ns(1);
	vb_process_activity(getpid());
	vb_thread_has_moved_on(&(struct vb_thread_looks){ .tid = gettid() });
}

static void nothing(void *unused) {}
static void no_event(struct vb_watch *w, uint32_t events) {}
static void no_time(struct vb_timer *t, uint64_t now_ns) {}

static void use_loop(void)
{
	struct vb_watch w = { .fd = eventfd(0, EFD_CLOEXEC), .ready = no_event };
	struct vb_timer t = { .fire = no_time };
	vb_watch_start(&w, 1);
	vb_watch_stop(&w);
	vb_timer_set(&t, vb_now_ns());
	vb_timer_cancel(&t);
	vb_loop_call(nothing, NULL);
	vb_loop_wake();
	vb_fd_close(w.fd);
}

static void use_ports(void)
{
	struct vb_port port;
	struct vb_inbox_addr addr = { .src = here, .dst = here };
	struct iovec packet = { (char[16]){ 0 }, 16 };
	if (vb_port_bind(&port, "cancel", 6))
		return;
	vb_port_is_bound("cancel", 6);
	vb_port_listen(&port, NULL, NULL);
	vb_port_send("cancel", 6, &addr, &packet, 1);
	vb_port_close(&port);
}

static void *no_client(void *owner) { return NULL; }

static void use_links(void)
{
	static const struct vb_rpc_ops ops = { .connect = no_client };
	struct vb_rpc_server *server;
	struct vb_peer_cred cred;
	char text[8];
	int fd;
	if (!vb_link_connect(vb_slot_first(), &fd, &cred)) {
		vb_link_send(fd, text, sizeof(text), NULL, 0);
		vb_link_recv(fd, text, sizeof(text), NULL, NULL);
		vb_link_has_news(fd);
		vb_link_has_hung_up(fd);
		vb_fd_close(fd);
	}
	if (vb_rpc_open("cancel", &ops, NULL, &server))
		return;
	vb_rpc_exists("cancel", "");
	if (!vb_rpc_connect("cancel", &fd)) {
		vb_rpc_call(fd, text, sizeof(text), text, sizeof(text));
		vb_fd_close(fd);
	}
	vb_rpc_close(server);
}

static bool see(void *arg, const struct vb_vma *v) { return true; }

static void use_memory(void)
{
	enum { BYTES = 16 << 16 };
	struct vb_remap_plan plan;
	void *at, *shared;
	int fd = vb_token_create("cancel");
	vb_token_is_same(fd, fd);
	vb_token_close(fd);
	vb_null_pages(BYTES, &at);
	vb_vma_each(true, see, NULL);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	vb_mem_check(at, BYTES, true);
	vb_mem_populate(at, BYTES, true);
	vb_remap_check((uintptr_t)at, BYTES, &plan);
	munmap(at, BYTES);
	if (!vb_shm_create(BYTES, "cancel", &fd, &shared)) {
		vb_shm_unmap(shared, BYTES);
		vb_fd_close(fd);
	}
	if (!vb_remap_open(BYTES, &fd)) {
		vb_file_map(fd, 0, BYTES, true, &at);
		*(char *)at = 1;
		vb_remap_fork_copy(fd);
		vb_remap_fork_drop();
		vb_unmap(at, BYTES);
		vb_fd_close(fd);
	}
}

static void no_packet(const struct vb_udp_packet *p) {}

static void use_network(void)
{
	struct vb_inbox_addr addr = { .src = here, .dst = here };
	struct vb_holder holder;
	struct vb_netif *list;
	struct vb_route route;
	uint8_t frame[64];
	unsigned count;
	struct vb_raw_frame heard;
	int fd;
	if (!vb_netif_list(&list, &count))
		free(list);
	vb_netif_is_local(&here);
	if (!vb_route_find(&here, 0, NULL, &route)) {
		vb_route_is_ready(&route);
		vb_route_kick(&route);
	}
	vb_may_bind_port(1);
	vb_holders_of_udp(true, VB_ROCE_PORT, &holder, 1);
	if (!vb_raw_open(1, true, &fd)) {
		vb_raw_receive(fd, frame, sizeof(frame), &heard);
		vb_raw_close(fd);
	}
	vb_udp_open();
	addr.udp_sport = vb_udp_source_port(&addr);
	vb_udp_send(&addr, 0, frame, sizeof(frame), sizeof(frame));
	vb_udp_drain();
	vb_udp_await_steering();
}

static void use_tree(void)
{
	struct vb_tree tree = { .entries = NULL };
	vb_tree_root();
	vb_tree_add(&tree, VB_TREE_FILE, "text", "file");
	vb_tree_write(&tree, true);
	vb_tree_free(&tree);
	tree = (struct vb_tree){ .entries = NULL };
	vb_tree_write(&tree, true);
}

static void use_trace(void)
{
	struct vb_trace trace;
	char text[256];
	vb_trace_prepare();
	vb_trace_take(&trace);
	vb_trace_text(&trace, 4, text, sizeof(text));
}

static const struct call {
	const char *name;
	void (*run)(void);
} calls[] = {
	{ "random", draw }, { "descriptors", raise_descriptor }, { "notifiers", notify },
	{ "files", read_files }, { "time", keep_time }, { "loop", use_loop }, { "ports", use_ports },
	{ "links", use_links }, { "memory", use_memory }, { "network", use_network }, { "tree", use_tree },
	{ "trace", use_trace },
};

static bool has_returned;

static void *call_cancelled(void *arg)
{
	const struct call *c = arg;
	pthread_cancel(pthread_self());
	c->run();
	has_returned = true;
	pthread_testcancel();
	return NULL;
}

static void cancel__ends_no_call(void **state)
{
	unsigned ended = 0;
	for (const struct call *c = calls; c < calls + VB_ARRAY_LEN(calls); c++) {
		pthread_t thread;
		void *result;
		has_returned = false;
		assert_int_equal(pthread_create(&thread, NULL, call_cancelled, (void *)(uintptr_t)c), 0);
		assert_int_equal(pthread_join(thread, &result), 0);
		assert_ptr_equal(result, PTHREAD_CANCELED); /* behind the call it may be cancelled again */
		if (!has_returned)
			printf("# %s: the thread was cancelled within\n", c->name);
		ended += !has_returned;
	}
	assert_int_equal(ended, 0);
}

static int start(void **state)
{
	vb_udp_set_handler(no_packet, NULL);
	return vb_host_get();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cancel__ends_no_call),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
