/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/ticks.h"
#include "fuzz.h"
#include "host/ipc/guard.h"
#include "host/loop/activity.h"
#include "host/loop/share.h"
#include "host/memory/fence.h"
#include "host/ipc/capture.h"
#include "host/memory/lines.h"
#include "host/memory/memory.h"
#include "host/loop/notifier.h"
#include "host/net/privilege.h"
#include "host/private.h"
#include "host/net/raw.h"
#include "host/memory/remap.h"
#include "host/net/route.h"
#include "host/memory/touch.h"
#include "local/shared.h"

enum { PEER_PID = 4242, LINK_FD = 100, ARENA_FD = 101, EVENT_FD = 102, OWN_ARENA_FD = 103, INBOX_FD = 104,
	PORT_FD = 105, WAITER_FD = 106 };
enum { MAX_PORTS = 8, MAX_TIMERS = 128, MAX_PASSES = 64, MAX_LINK_BYTES = 256, MAX_INBOX_BYTES = 8192 };

struct fake_host fake;
uint8_t *fake_arena;
const uint8_t *fake_arena_seen;
uint8_t fake_memory[FAKE_MEMORY_BYTES];

/* ---- life ---- */

int vb_host_open(void) { return 0; }
int vb_host_run(void) { return 0; }
int vb_host_get(void) { return 0; }
void vb_host_put(void) { }
unsigned vb_host_generation(void) { return 0; }
bool vb_local_is_off(void) { return false; }
bool vb_link_is_infiniband(void) { return false; }
void vb_local_turn_off(void) { }
int vb_file_read(const char *path, char *text, size_t size) { return -ENOENT; }
bool vb_may_bind_port(uint16_t port) { return true; }
void vb_host_at_fork(void (*child)(void)) { }
void vb_host_around_fork(enum vb_fork_rank rank, const struct vb_fork_steps *steps) { }
int vb_fd_own(int fd) { return fd; }
void vb_fd_close(int fd) { }
void vb_fd_close_locked(int fd) { }
void vb_host_lock(void) { }
void vb_host_unlock(void) { }

/* In one thread all stores are seen. */
bool vb_fence_prepare(void) { return true; }
atomic_bool vb_fence_is_prepared = true;
bool vb_fence_heavy(void) { return true; }
void vb_fence_others(void) {}

void vb_random(void *buf, size_t bytes)
{
	static uint64_t random = 1;
	for (size_t i = 0; i < bytes; i++) {
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		((uint8_t *)buf)[i] = (uint8_t)(random >> 56);
	}
}

/* ---- clock and timers ---- */

static struct {
	struct vb_timer *timer;
	uint64_t at;
} timers[MAX_TIMERS];

uint64_t vb_now_ns(void) { return fake.now_ns; }
void vb_sleep_ns(uint64_t ns) { fake.now_ns += ns; }

/* Each look is a microsecond after the last, so that the same input always does the same. */
uint64_t vb_ticks(void)
{
	static uint64_t ticks;

	return ticks += vb_ticks_us();
}

void vb_timer_cancel(struct vb_timer *t)
{
	for (unsigned i = 0; i < MAX_TIMERS; i++)
		if (timers[i].timer == t)
			timers[i].timer = NULL;
}

void vb_timer_set(struct vb_timer *t, uint64_t deadline_ns)
{
	unsigned i = 0;

	vb_timer_cancel(t);
	while (i < MAX_TIMERS && timers[i].timer)
		i++;
	must(i < MAX_TIMERS);
	timers[i].timer = t;
	timers[i].at = deadline_ns;
}

static int next_timer(uint64_t until)
{
	int next = -1;

	for (int i = 0; i < MAX_TIMERS; i++)
		if (timers[i].timer && timers[i].at <= until && (next < 0 || timers[i].at < timers[next].at))
			next = i;
	return next;
}

unsigned fake_timers(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAX_TIMERS; i++)
		n += timers[i].timer != NULL;
	return n;
}

void fake_pass_time(uint64_t ns)
{
	uint64_t until = fake.now_ns + ns;
	int next;

	for (unsigned fired = 0; (next = next_timer(until)) >= 0 && fired < 4 * MAX_TIMERS; fired++) {
		struct vb_timer *t = timers[next].timer;
		if (timers[next].at > fake.now_ns)
			fake.now_ns = timers[next].at;
		timers[next].timer = NULL;
		t->fire(t, fake.now_ns);
		fake_run();
	}
	fake.now_ns = until;
}

/* ---- the loop ---- */

static uint64_t (*pass)(uint64_t now_ns);
static bool woken;

void vb_loop_set_pass(uint64_t (*function)(uint64_t now_ns)) { pass = function; }
void vb_loop_wake(void) { woken = true; }
int vb_loop_eventfd(void) { return EVENT_FD; }
int vb_loop_waiter_eventfd(void) { return WAITER_FD; }
void vb_loop_wake_waiter(void) {}
int vb_loop_wait(void) { return fake.sleep ? fake.sleep() : -EINTR; }

void vb_eventfd_ring(int fd)
{
	void (*ringing)(void) = fake.ringing;
	must(fd == EVENT_FD || fd == WAITER_FD);
	fake.rings++;
	fake.ringing = NULL;
	if (ringing)
		ringing();
}

bool fake_is_program;
bool vb_loop_is_current(void) { return !fake_is_program; }
uint64_t vb_loop_sleeps(void) { return 0; }
uint64_t vb_loop_asleep_ns(void) { return 0; }
bool vb_loop_callback_is_stopped(void) { return false; }
bool vb_loop_has_caller(void) { return false; }

int vb_loop_call(void (*function)(void *arg), void *arg)
{
	function(arg);
	return 0;
}

void fake_run(void)
{
	for (unsigned i = 0; pass && i < MAX_PASSES; i++) {
		woken = false;
		if (pass(fake.now_ns) && !woken)
			return;
	}
}

/* ---- slots and inboxes: host/ipc/inbox.c itself, over sockets that are none ---- */

int vb_slot_take(uint32_t *slot) { return -EADDRNOTAVAIL; }
uint32_t vb_slot_first(void) { return FAKE_OWN_SLOT; }
bool vb_slot_is_mine(uint32_t slot) { return slot == FAKE_OWN_SLOT; }
int vb_slot_inbox(uint32_t slot) { return -1; }
bool vb_slot_is_spoofed(uint32_t slot, const struct in6_addr *src) { return false; }
bool vb_slot_is_of(uint32_t slot, uid_t user) { return false; }
bool vb_sender_is_trusted(const struct ucred *sender, const struct in6_addr *dst)
{
	return !fake.sends_as_stranger;
}
struct vb_name vb_name_of_inbox(uint32_t slot) { return (struct vb_name){ .bytes = (socklen_t)slot }; }
uint32_t vb_name_parse_inbox(const struct sockaddr_un *un, socklen_t bytes) { return FAKE_PEER_SLOT; }

/* The names by which the compiler calls these system calls in host/ipc/inbox.c. */
int fake_socket(int domain, int type, int protocol);
int fake_bind(int fd, const struct sockaddr *addr, socklen_t len);
int fake_connect(int fd, const struct sockaddr *addr, socklen_t len);
int fake_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int fake_setsockopt(int fd, int level, int option, const void *value, socklen_t len);
ssize_t fake_recv(int fd, void *buffer, size_t bytes, int flags);
int fake_close(int fd);
ssize_t fake_sendmsg(int fd, const struct msghdr *m, int flags);

static struct {
	uint8_t bytes[MAX_INBOX_BYTES];
	size_t len;
	bool waiting, truncated;
} inbox;

int vb_receive_messages(int fd, struct mmsghdr *headers, unsigned n, int flags)
{
	size_t done = 0;

	if (!inbox.waiting)
		return -1;
	inbox.waiting = false;
	struct msghdr *m = &headers[0].msg_hdr;
	for (size_t i = 0; i < m->msg_iovlen && done < inbox.len; i++) {
		size_t part = vb_min_u64(m->msg_iov[i].iov_len, inbox.len - done);
		memcpy(m->msg_iov[i].iov_base, inbox.bytes + done, part);
		done += part;
	}
	headers[0].msg_len = (unsigned)done;
	m->msg_flags = inbox.truncated || done < inbox.len ? MSG_TRUNC : 0;
	m->msg_controllen = 0;
	return 1;
}

ssize_t fake_sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t bytes = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++) {
		if (fake.left)
			fake.left(m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
		bytes += m->msg_iov[i].iov_len;
	}
	fake.sent_datagrams++;
	errno = -fake.send_result;
	return fake.send_result ? -1 : (ssize_t)bytes;
}

/*
 * Ports: all names are free, and nobody holds any. A socket's own name is as short as none: only there can
 * others be connected to.
 */
int fake_socket(int domain, int type, int protocol) { return PORT_FD; }
int fake_bind(int fd, const struct sockaddr *addr, socklen_t len) { return 0; }
int fake_setsockopt(int fd, int level, int option, const void *value, socklen_t len) { return 0; }
ssize_t fake_recv(int fd, void *buffer, size_t bytes, int flags) { return -1; }
int fake_close(int fd) { return 0; }

int fake_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	errno = ECONNREFUSED;
	return addr->sa_family == AF_UNSPEC || len == sizeof(addr->sa_family) ? 0 : -1;
}

int fake_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	*len = sizeof(addr->sa_family);
	return 0;
}

static void wait_in_inbox(const void *bytes, size_t len, bool truncated)
{
	must(len <= sizeof(inbox.bytes));
	memcpy(inbox.bytes, bytes, len);
	inbox.len = len;
	inbox.waiting = true;
	inbox.truncated = truncated;
}

void fake_inbox_message(const void *bytes, size_t len, bool truncated)
{
	wait_in_inbox(bytes, len, truncated);
	vb_inbox_receive(INBOX_FD, NULL, NULL);
}

/* ---- captures: none ---- */

atomic_bool vb_capture_flag;
struct vb_capture_moment vb_capture_begin_now(void) { return (struct vb_capture_moment){ 0 }; }
void vb_capture_end_now(struct vb_capture_moment moment) { }
void vb_capture_packet(const struct vb_capture_note *note, const struct iovec *pieces, unsigned count) { }
void vb_capture_event(const struct vb_capture_event *event, const char *text) { }
void vb_capture_sentence(const char *by, const char *sentence) { }
int vb_capture_start(int memfd, const struct vb_capture_filter *filter, bool has_events) { return -EINVAL; }
void vb_capture_stop(void) { }
unsigned vb_capture_serial(void) { return 0; }

void vb_capture_count(uint64_t *packets, uint64_t *dropped)
{
	*packets = *dropped = 0;
}

/* ---- UDP ---- */

static struct {
	void (*packet)(const struct vb_udp_packet *packet);
	void (*batch_done)(void);
	bool is_open;
} udp;

void vb_udp_set_handler(void (*packet)(const struct vb_udp_packet *packet), void (*batch_done)(void))
{
	udp.packet = packet;
	udp.batch_done = batch_done;
}

int vb_udp_open(void)
{
	udp.is_open = true;
	return 0;
}

bool vb_udp_is_open(void) { return udp.is_open; }
bool vb_udp_receive(void) { return false; }
bool vb_udp_is_receiving(void) { return false; }
bool vb_udp_has_arrivals(void) { return false; }
bool vb_udp_drain(void) { return true; }
void vb_udp_watch(bool wake) { }
uint16_t vb_udp_source_port(const struct vb_inbox_addr *addr) { return addr->udp_sport; }
int vb_udp_prepare(const struct vb_inbox_addr *addr)
{
	if (fake.connecting)
		fake.connecting();
	return 0;
}

void vb_udp_set_returned_handler(void (*returned)(const struct in6_addr *host, const void *bytes, size_t len))
{
}
unsigned vb_udp_segments(void) { return VB_UDP_MAX_SEGMENTS; }
int vb_udp_join(const struct in6_addr *group, unsigned ifindex) { return 0; }
void vb_udp_leave(const struct in6_addr *group, unsigned ifindex) { }
void vb_udp_misdirected(void) { }
void vb_udp_await_steering(void) { }
void vb_udp_count(struct vb_udp_counts *counts) { memset(counts, 0, sizeof(*counts)); }

int vb_udp_send(const struct vb_inbox_addr *addr, unsigned ifindex, const void *bytes, size_t len,
		size_t segment)
{
	must(len <= VB_UDP_MAX_BYTES && segment && (len + segment - 1) / segment <= VB_UDP_MAX_SEGMENTS);
	fake.segment = segment;
	if (fake.left)
		fake.left(bytes, len);
	fake.sent_packets += (unsigned)((len + segment - 1) / segment);
	return fake.send_result;
}

void fake_udp_packet(const struct vb_udp_packet *packet)
{
	if (!udp.packet)
		return;
	udp.packet(packet);
	if (fake.meanwhile)
		fake.meanwhile();
	if (udp.batch_done)
		udp.batch_done();
}

/* ---- links ---- */

void vb_link_show_user(void) { }

static void (*acceptor)(int fd, const struct vb_peer_cred *cred);
static struct vb_watch *link_watch;

static struct {
	uint8_t bytes[MAX_LINK_BYTES];
	size_t len;
	int num_fds;
} link_in;

void vb_link_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred)) { acceptor = accepted; }

int vb_link_connect(uint32_t slot, int *fd, struct vb_peer_cred *cred)
{
	if (slot != FAKE_PEER_SLOT || !fake.is_there || link_watch)
		return -ECONNREFUSED;
	*fd = LINK_FD;
	*cred = (struct vb_peer_cred){ .pid = PEER_PID, .uid = getuid() };
	return 0;
}

const struct vb_rpc_ops *fake_desk_ops;
void *fake_desk_owner;

int vb_rpc_open(const char *name, const struct vb_rpc_ops *ops, void *owner, struct vb_rpc_server **desk)
{
	fake_desk_ops = ops;
	fake_desk_owner = owner;
	*desk = NULL;
	return 0;
}

void vb_rpc_close(struct vb_rpc_server *desk) { fake_desk_ops = NULL; }
bool vb_rpc_exists(const char *prefix, const char *except) { return false; }
int vb_rpc_connect(const char *name, int *fd) { return -ECONNREFUSED; }
ssize_t vb_rpc_call(int fd, const void *request, size_t bytes, void *reply, size_t room) { return -EPIPE; }

void vb_inspection_set_acceptor(void (*accepted)(int fd, const struct vb_peer_cred *cred)) { }
int vb_inspection_call(const char *name, unsigned patience_ms, int *fd) { return -ECONNREFUSED; }
int vb_inspection_write(int memfd, const void *bytes, size_t n) { return -EPERM; }

bool vb_link_has_news(int fd) { return false; }
bool vb_link_is_eventfd(int fd) { return fd == EVENT_FD || fd == WAITER_FD; }

void vb_link_end(int fd) { fake.has_hung_up = true; }


enum vb_activity vb_process_activity(pid_t pid) { return VB_ACTIVITY_UNKNOWN; }
uint64_t vb_thread_ran_ns(pid_t tid) { return 1; }
bool vb_thread_lacks_processor(pid_t tid, uint64_t since_ns, uint64_t enough_ns)
{
	return fake.threads_lack_processor;
}
bool vb_thread_has_moved_on(struct vb_thread_looks *looks) { return true; }
bool vb_process_wait_is_over(struct vb_process_wait *patience, pid_t pid, uint64_t now_ns) { return true; }

bool vb_link_has_hung_up(int fd)
{
	if (fake.has_hung_up || !fake.patience)
		return true;
	fake.patience--;
	return false;
}

int vb_link_send(int fd, const void *msg, size_t bytes, const int *fds, int nfds)
{
	return fake.has_hung_up ? -EPIPE : fake.link_result;
}

static struct vb_watch *port_watches[MAX_PORTS];

int vb_watch_start(struct vb_watch *w, uint32_t events)
{
	if (w->fd == LINK_FD)
		link_watch = w;
	for (unsigned i = 0; w->fd == PORT_FD && i < MAX_PORTS; i++)
		if (!port_watches[i]) {
			port_watches[i] = w;
			return 0;
		}
	return w->fd == PORT_FD ? -ENOSPC : 0;
}

void vb_watch_stop(struct vb_watch *w)
{
	if (link_watch == w)
		link_watch = NULL;
	for (unsigned i = 0; i < MAX_PORTS; i++)
		if (port_watches[i] == w)
			port_watches[i] = NULL;
}

void fake_port_message(unsigned which, const void *bytes, size_t len)
{
	struct vb_watch *w = port_watches[which % MAX_PORTS];

	if (!w)
		return;
	wait_in_inbox(bytes, len, false);
	w->ready(w, 0);
}

ssize_t vb_link_recv(int fd, void *msg, size_t bytes, int *fds, int *nfds)
{
	if (fake.has_hung_up)
		return 0;
	if (link_in.len > bytes)
		return -EMSGSIZE;
	memcpy(msg, link_in.bytes, link_in.len);
	*nfds = link_in.num_fds;
	for (int i = 0; i < *nfds; i++)
		fds[i] = i == 0 ? ARENA_FD : i == 1 ? EVENT_FD : WAITER_FD;
	return (ssize_t)link_in.len;
}

bool fake_link_is_open(void) { return link_watch != NULL; }

void fake_link_accept(void)
{
	struct vb_peer_cred cred = { .pid = PEER_PID, .uid = getuid() };

	if (acceptor && !link_watch && fake.is_there && !fake.has_hung_up)
		acceptor(LINK_FD, &cred);
}

void fake_link_message(const void *bytes, size_t len, int num_fds)
{
	if (!link_watch)
		return;
	link_in.len = len < sizeof(link_in.bytes) ? len : sizeof(link_in.bytes);
	memcpy(link_in.bytes, bytes, link_in.len);
	link_in.num_fds = num_fds;
	link_watch->ready(link_watch, 0);
}

void fake_link_hang_up(void)
{
	fake.has_hung_up = true;
	if (link_watch)
		link_watch->ready(link_watch, 0);
}

void fake_link_hello(void)
{
	const struct vb_arena_head *head = (const void *)fake_arena;
	struct vb_link_hello hello = { .magic = VB_LINK_MAGIC,
				       .version = VB_LINK_VERSION,
				       .first_slot = FAKE_PEER_SLOT,
				       .nonce = head->nonce,
				       .bells = VB_ARENA_HEAP,
				       .arena_bytes = VB_ARENA_MOST,
				       .arena_address = FAKE_ARENA };

	fake_link_message(&hello, sizeof(hello), 3);
}

/* ---- memory ---- */

int vb_shm_create(size_t bytes, const char *name, int *fd, void **addr)
{
	*fd = OWN_ARENA_FD;
	*addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return *addr == MAP_FAILED ? -ENOMEM : 0;
}

int vb_shm_create_alone(size_t bytes, void **addr) { return -ENOMEM; }

int vb_shm_open(void *addr, size_t bytes) { return 0; }

int vb_shm_map_peer(int fd, size_t bytes, const void **addr)
{
	if (fd != ARENA_FD || bytes != VB_ARENA_MOST)
		return -EINVAL;
	*addr = fake_arena_seen;
	return 0;
}

/* The peer's segments are all the same memory. */
int vb_shm_map_segment(int fd, size_t bytes, bool writable, void **addr)
{
	*addr = fake_memory;
	return bytes == FAKE_MEMORY_BYTES ? 0 : -EINVAL;
}

void vb_shm_unmap(const void *addr, size_t bytes) { must(addr == fake_arena_seen || addr == fake_memory); }

/* ---- moving pages: there are none that could be ---- */

uint64_t vb_page_bytes(void) { return 4096; }
uint64_t vb_address_space(void) { return UINT64_C(1) << 47; }
uint64_t vb_address_limit(void) { return fake.address_limit ? fake.address_limit : UINT64_C(1) << 47; }
bool vb_shm_has_room(size_t bytes) { return true; }
void vb_links_refuse(void) { }
void vb_link_explain_lack(int err) { }
unsigned vb_fd_share(void) { return 1024; }
bool vb_links_are_refused(void) { return false; }
enum vb_remap_way vb_remap_way(void) { return VB_REMAP_ANYTIME; }
void vb_remap_exclude_caller(void) { }
bool vb_remap_may_now(void) { return true; }
int vb_remap_check(uintptr_t at, size_t bytes, struct vb_remap_plan *plan) { return -EPERM; }
bool vb_remap_is_own_stack(const void *addr, size_t bytes) { return false; }
int vb_remap_open(size_t bytes, int *fd) { return -EPERM; }
int vb_remap_in(uintptr_t at, size_t bytes, unsigned advice, int fd, uint64_t offset) { return -EPERM; }
int vb_remap_seal(int fd, bool writable) { return -EPERM; }
int vb_remap_back(int fd, unsigned advice) { return -EPERM; }
bool vb_remap_is_at(int fd, uint64_t offset, uintptr_t at, size_t bytes) { return false; }
int vb_remap_fork_copy(int fd) { return 0; }
void vb_remap_fork_restore(void) { }
void vb_remap_fork_drop(void) { }

int vb_mem_check(const void *addr, size_t bytes, bool writable) { return fake.memory_result; }
int vb_raw_open(unsigned ifindex, bool hears, int *fd) { return -EPERM; }
int vb_raw_send(int fd, unsigned ifindex, const struct iovec *iov, unsigned n) { return 0; }
bool vb_raw_receive(int fd, void *frame, size_t room, struct vb_raw_frame *heard) { return false; }
void vb_raw_close(int fd) { }
int vb_mem_populate(const void *addr, size_t bytes, bool writable) { return fake.memory_result; }
int vb_null_pages(size_t bytes, void **pages) { return -ENOMEM; }

/* ---- copies between processes ---- */

pid_t vb_copy_self(void) { return getpid(); }
void vb_copy_allow_peers(void) { }

/* The peer's byte at an address of its, or NULL. */
static uint8_t *memory_at(uint64_t at)
{
	if (at - FAKE_MEMORY < FAKE_MEMORY_BYTES)
		return fake_memory + (at - FAKE_MEMORY);
	return at - FAKE_ARENA < sizeof(struct vb_arena_head) ? fake_arena + (at - FAKE_ARENA) : NULL;
}

struct cursor {
	const struct iovec *iov;
	size_t left, used;
};

/* The next byte's address; false at the end. */
static bool next_byte(struct cursor *c, uint64_t *at)
{
	while (c->left && c->used == c->iov->iov_len) {
		c->iov++;
		c->left--;
		c->used = 0;
	}
	if (!c->left)
		return false;
	*at = (uintptr_t)c->iov->iov_base + c->used++;
	return true;
}

static int copy(pid_t pid, struct cursor local, struct cursor remote, bool to_peer, size_t *done)
{
	uint64_t here, there;

	*done = 0;
	if (!fake.can_copy)
		return -EPERM;
	if (pid != PEER_PID || fake.has_hung_up)
		return -ESRCH;
	for (size_t i = 0; fake.touched && i < local.left; i++)
		fake.touched(local.iov[i].iov_base, local.iov[i].iov_len, !to_peer);
	while (next_byte(&local, &here) && next_byte(&remote, &there)) {
		uint8_t *byte = memory_at(there);
		if (!byte)
			return -EFAULT;
		if (to_peer)
			*byte = *(uint8_t *)(uintptr_t)here;
		else
			*(uint8_t *)(uintptr_t)here = *byte;
		if (++*done == 16 && fake.meanwhile)
			fake.meanwhile();
	}
	return 0;
}

int vb_copy_from_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		      size_t nremote, const _Atomic(uint32_t) *stop, size_t *done)
{
	if (stop && atomic_load(stop))
		return -ECANCELED;
	return copy(pid, (struct cursor){ local, nlocal, 0 }, (struct cursor){ remote, nremote, 0 }, false,
		    done);
}

int vb_copy_to_peer(pid_t pid, const struct iovec *local, size_t nlocal, const struct iovec *remote,
		    size_t nremote, const _Atomic(uint32_t) *stop, size_t *done)
{
	if (stop && atomic_load(stop))
		return -ECANCELED;
	return copy(pid, (struct cursor){ local, nlocal, 0 }, (struct cursor){ remote, nremote, 0 }, true,
		    done);
}

/* ---- interfaces: a loopback, and an Ethernet 10.0.0.1 unless it is gone, or has another address ---- */

static struct in6_addr v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff, [12] = a, b, c, d } };
}

int vb_netif_list(struct vb_netif **list, unsigned *count)
{
	unsigned n = 0;

	*list = calloc(2, sizeof(**list));
	if (!*list)
		return -ENOMEM;
	if (!fake.has_no_ethernet)
		(*list)[n++] = (struct vb_netif){ .name = "eth0",
						  .index = 2,
						  .mtu = 9000,
						  .mac = { 2, 0, 0, 0, 0, (uint8_t)(1 + fake.mac) },
						  .up = true,
						  .running = true,
						  .naddrs = 1,
						  .addrs = { { .ip = v4(10, 0, 0, (uint8_t)(1 + fake.ip)),
							       .prefix_len = 24 } } };
	(*list)[n++] = (struct vb_netif){ .name = "lo",
					  .index = 1,
					  .mtu = 65536,
					  .loopback = true,
					  .up = true,
					  .running = true,
					  .naddrs = 1,
					  .addrs = { { .ip = v4(127, 0, 0, 1), .prefix_len = 8 } } };
	*count = n;
	return 0;
}

static void (*interfaces_watcher)(void *arg);
static void *interfaces_arg;

void vb_netif_expire(void) {}

int vb_netif_watch(void (*changed)(void *arg), void *arg)
{
	interfaces_watcher = changed;
	interfaces_arg = arg;
	return 0;
}

void fake_interfaces_changed(void)
{
	if (interfaces_watcher)
		interfaces_watcher(interfaces_arg);
}

bool vb_netif_is_local(const struct in6_addr *ip)
{
	struct in6_addr lo = v4(127, 0, 0, 1), eth = v4(10, 0, 0, 1);
	return !memcmp(ip, &lo, sizeof(lo)) || !memcmp(ip, &eth, sizeof(eth));
}

/* ---- routes: everything is a neighbour ---- */

int vb_route_find(const struct in6_addr *dst, uint32_t scope, const struct in6_addr *source,
		  struct vb_route *route)
{
	*route = (struct vb_route){
		.destination = *dst, .source = v4(10, 0, 0, 1), .next_hop = *dst, .ifindex = 2, .mtu = 9000
	};
	return 0;
}

bool vb_route_is_ready(const struct vb_route *route)
{
	return fake.send_result == 0 && !fake.has_silent_neighbours;
}
void vb_route_kick(const struct vb_route *route) { }

/* ---- notifiers ---- */

int vb_notifier_init(struct vb_notifier *n)
{
	*n = (struct vb_notifier){ .fd = -1 };
	return 0;
}

void vb_notifier_fini(struct vb_notifier *n) { }
void vb_notifier_raise(struct vb_notifier *n) { n->sequence++; }
void vb_notifier_wake(struct vb_notifier *n) { }
void vb_notifier_clear(struct vb_notifier *n) { }
int vb_notifier_may_wait(const struct vb_notifier *n) { return -EAGAIN; }
int vb_notifier_wait(struct vb_notifier *n, uint32_t sequence) { return -EAGAIN; }
int vb_fd_lift(int fd, int least) { return fd; }

/* ---- start ---- */

static void map_arena(void)
{
	int fd = memfd_create("peer", MFD_CLOEXEC);

	must(fd >= 0 && ftruncate(fd, (off_t)VB_ARENA_MOST) == 0);
	fake_arena = mmap(NULL, VB_ARENA_MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	fake_arena_seen = mmap(NULL, VB_ARENA_MOST, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	must(fake_arena != MAP_FAILED && fake_arena_seen != MAP_FAILED);
	close(fd);
}

void fake_reset(void)
{
	uint64_t now = fake.now_ns ? fake.now_ns : 1000000000;

	if (!fake_arena)
		map_arena();
	must(fake_timers() == 0 && !link_watch);
	fake = (struct fake_host){ .now_ns = now, .is_there = true, .patience = 8 };
	memset(fake_memory, 0, sizeof(fake_memory));
}

/* ---- memory ---- */

/* Of malloc, so that a sanitizer sees uses of what was given back. */
void *vb_lines_take(size_t bytes)
{
	void *at;
	return posix_memalign(&at, VB_CACHE_LINE, bytes) ? NULL : at;
}

void vb_lines_give(void *block, size_t bytes) { free(block); }

void vb_touch_prepare(void) { }
void vb_touch_look(void) { }
atomic_bool vb_touch_lost;

int vb_touch_bytes(void *to, const void *from, size_t bytes)
{
	vb_copy_ordered(to, from, bytes);
	return 0;
}

/* There are no restartable sequences here: each copy looks at the word once. */
_Atomic(ptrdiff_t) vb_rseq_offset;
uint64_t *vb_rseq_find(void)
{
	static uint64_t sequence;
	return &sequence;
}

int vb_touch_bytes_unless(void *to, const void *from, size_t bytes, const _Atomic(uint32_t) *stop,
			  uint64_t *sequence)
{
	return atomic_load(stop) ? -ECANCELED : vb_touch_bytes(to, from, bytes);
}

int vb_touch_atomically(_Atomic(uint64_t) *word, enum vb_touch_op op, uint64_t value, uint64_t compare,
			uint64_t *found)
{
	*found = compare;
	if (op == VB_TOUCH_ADD)
		*found = atomic_fetch_add(word, value);
	else if (op == VB_TOUCH_STORE)
		atomic_store(word, value);
	else
		atomic_compare_exchange_strong(word, found, value);
	return 0;
}

int vb_touch_atomically_unless(const _Atomic(uint32_t) *stop, _Atomic(uint64_t) *word, enum vb_touch_op op,
			       uint64_t value, uint64_t compare, uint64_t *found)
{
	return atomic_load(stop) ? -ECANCELED : vb_touch_atomically(word, op, value, compare, found);
}
