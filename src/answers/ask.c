/* SPDX-License-Identifier: BSD-2-Clause */
#include "answers/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "base/waits.h"
#include "host/ipc/rights.h"
#include "host/net/holder.h"

enum { MAX_SLOTS = 4096 };

static uint64_t now_ms(void)
{
	return vb_clock_ns(CLOCK_MONOTONIC) / VB_NS_PER_MS;
}

/* ---- finding ---- */

/* What /proc shows of a process, whether it answers or not. */
static void read_proc(struct process *p)
{
	char path[64], text[256];
	FILE *f;

	strcpy(p->name, "?");
	p->run_state = '?';
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)p->pid);
	f = p->pid > 0 ? fopen(path, "re") : NULL;
	if (!f)
		return;
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0'; /* a name may have an end of line in it */
	char *begin = strchr(text, '('), *end = strrchr(text, ')');
	if (begin && end && end > begin && end[1] == ' ') {
		snprintf(p->name, sizeof(p->name), "%.*s", (int)(end - begin - 1), begin + 1);
		vb_clean_text(p->name);
		p->run_state = end[2];
	}
	fclose(f);
}

static const char stopped[] = "no answer: it is stopped";

static bool is_stopped(const struct process *p) { return p->run_state == 'T' || p->run_state == 't'; }

static const char *why_silent(const struct process *p)
{
	switch (p->run_state) {
	case 'T':
	case 't':
		return stopped;
	case 'Z':
	case 'X':
		return "no answer: it is ending";
	}
	return "no answer in time";
}

const char *process_why_not(const struct ucred *who, int socket, int *lack)
{
	struct vb_peer_cred peer = { .pid = who->pid, .uid = who->uid };
	int pidfd = socket < 0 ? -ENOPROTOOPT : vb_rights_pidfd(socket);
	const char *why = who->uid == geteuid() ? vb_rights_why_not(&peer, pidfd, lack) :
						  "another user's process";

	if (pidfd >= 0)
		close(pidfd);
	return why;
}

/* Root may look into any process. socket: -1, or a connection to it. */
static void take_owner(struct process *p, const struct ucred *owner, int socket, bool *is_short)
{
	int lack = 0;
	const char *why = geteuid() ? process_why_not(owner, socket, &lack) : NULL;

	p->pid = owner->pid;
	p->uid = owner->uid;
	read_proc(p);
	*is_short |= lack != 0;
	p->is_foreign = why && !lack;
	if (why || lack)
		snprintf(p->trouble, sizeof(p->trouble), "%.95s", lack ? strerror(-lack) : why);
}

/* So many have asked it, and it has answered none of them, that it takes no more. */
static bool describe_crowded(struct process *p, const char *name, bool *is_short)
{
	struct ucred owner;

	vb_holder_of_name(name, &owner.pid, &owner.uid);
	take_owner(p, &owner, -1, is_short);
	if (!p->trouble[0])
		strcpy(p->trouble, why_silent(p));
	return true;
}

/* False: the process has ended, or *is_short: there is no socket for it. */
static bool connect_to(struct process *p, bool *is_short)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	int len = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, VB_INSPECTION_NAME "%u", p->slot);

	p->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	*is_short |= p->fd < 0;
	if (p->fd < 0 || connect(p->fd, (struct sockaddr *)&un,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) < 0)
		return errno == EAGAIN && describe_crowded(p, un.sun_path + 1, is_short);
	if (getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return false;
	take_owner(p, &peer, p->fd, is_short);
	return true;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void add(struct processes *all, uint32_t slot)
{
	struct process *list = realloc(all->list, (all->count + 1) * sizeof(*list)), *p;

	if (!list) {
		all->is_short = true;
		return;
	}
	all->list = list;
	p = &list[all->count];
	*p = (struct process){ .slot = slot, .uid = (uid_t)-1, .fd = -1, .memfd = -1 };
	if (connect_to(p, &all->is_short)) {
		if (p->trouble[0])
			close_fd(&p->fd);
		all->count++;
	} else {
		close_fd(&p->fd);
	}
}

/* The slot in a name of /proc/net/unix; 0: the name is another. */
static uint32_t slot_of(const char *line)
{
	static const char prefix[] = "@" VB_INSPECTION_NAME;
	const char *name = strstr(line, prefix);
	unsigned long slot = name ? strtoul(name + sizeof(prefix) - 1, NULL, 10) : 0;

	return slot < MAX_SLOTS ? (uint32_t)slot : 0;
}

static __thread bool seen[MAX_SLOTS];

/* An accepted connection has its listener's name, so each name appears more than once. */
static void read_names(void)
{
	char line[512];
	FILE *f = fopen("/proc/net/unix", "re");

	memset(seen, !f, sizeof(seen)); /* without the list each name is tried */
	while (f && fgets(line, sizeof(line), f))
		seen[slot_of(line)] = true;
	if (f)
		fclose(f);
}

static void add_seen(struct processes *all)
{
	for (uint32_t slot = 1; slot < MAX_SLOTS; slot++)
		if (seen[slot])
			add(all, slot);
}

void processes_find(struct processes *all)
{
	*all = (struct processes){ .count = 0 };
	read_names();
	add_seen(all);
}

static void forget_records(struct process *p)
{
	free(p->records);
	p->records = NULL;
	p->bytes = 0;
}

static void forget(struct process *p)
{
	close_fd(&p->fd);
	close_fd(&p->memfd);
	forget_records(p);
}

/* Its socket may lead to one that is gone; then it says so when it is asked. */
static bool is_kept(struct process *p)
{
	if (!seen[p->slot] || p->fd < 0 || p->trouble[0])
		return false;
	seen[p->slot] = false;
	read_proc(p);
	forget_records(p);
	return true;
}

void processes_refresh(struct processes *all)
{
	unsigned kept = 0;

	all->keeps = true;
	read_names();
	for (unsigned i = 0; i < all->count; i++) {
		if (is_kept(&all->list[i]))
			all->list[kept++] = all->list[i];
		else
			forget(&all->list[i]);
	}
	all->count = kept;
	add_seen(all);
}

/* ---- asking ---- */

int process_question(const struct process *p, const struct vb_question *q, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)q, sizeof(*q) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS,
			       .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(p->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* An empty file, which it writes to from the beginning. */
static int make_place(struct process *p)
{
	if (p->memfd < 0)
		p->memfd = memfd_create("verbatim-answer", MFD_CLOEXEC);
	return p->memfd < 0 || ftruncate(p->memfd, 0) || lseek(p->memfd, 0, SEEK_SET) ? -errno : 0;
}

static void ask(struct process *p, uint32_t kinds, bool *is_short)
{
	struct vb_question q = { .magic = VB_INSPECTION_MAGIC, .what = VB_ASK_STATE, .kinds = kinds };
	int err = 0;

	if (is_stopped(p)) { /* it would have to be waited for in vain */
		strcpy(p->trouble, stopped);
		close_fd(&p->fd);
		return;
	}
	err = make_place(p);
	if (!err)
		err = process_question(p, &q, p->memfd);
	p->waits = !err;
	if (!err)
		return;
	*is_short |= err == -EMFILE || err == -ENFILE || err == -ENOMEM;
	snprintf(p->trouble, sizeof(p->trouble), "cannot be asked: %s", strerror(-err));
	close_fd(&p->fd);
}

/*
 * Takes what the process has written, even if its answer is an error or missing. Holes were not written: a
 * file of them costs nothing, and would cost its reader memory.
 */
static void take_records(struct process *p)
{
	enum { BLOCK = 512 };
	struct stat st;
	ssize_t n;

	if (fstat(p->memfd, &st) < 0 || st.st_size <= 0 || st.st_blocks <= 0)
		return;
	size_t size = st.st_size < VB_STATE_MAX_BYTES ? (size_t)st.st_size : VB_STATE_MAX_BYTES;
	size = vb_min_u64(size, (uint64_t)st.st_blocks * BLOCK);
	p->records = malloc(size);
	if (!p->records) {
		strcpy(p->trouble, "answered, but there is no memory for it");
		return;
	}
	while (p->bytes < size &&
	       (n = pread(p->memfd, p->records + p->bytes, size - p->bytes, (off_t)p->bytes)) > 0)
		p->bytes += (size_t)n;
}

static void receive_answer(struct process *p)
{
	struct vb_answer a;
	ssize_t n = recv(p->fd, &a, sizeof(a), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		strcpy(p->trouble, "it ended, or refused to answer");
	else if (n != sizeof(a) || a.magic != VB_INSPECTION_MAGIC)
		strcpy(p->trouble, "its answer is of another version");
	else if (a.error)
		snprintf(p->trouble, sizeof(p->trouble), "answered in part: %s",
			 strerror(a.error < 0 && a.error > -4096 ? -a.error : EPROTO));
	take_records(p);
	p->waits = false;
}

static unsigned count_waiting(const struct processes *all, struct pollfd *polls)
{
	unsigned waiting = 0;

	for (unsigned i = 0; i < all->count; i++) {
		const struct process *p = &all->list[i];
		polls[i] = (struct pollfd){ .fd = p->waits ? p->fd : -1, .events = POLLIN };
		waiting += p->waits;
	}
	return waiting;
}

/* Who has not answered may do so later: its socket and file are not used again. */
static void end_asking(struct process *p, bool keeps)
{
	if (p->waits) {
		read_proc(p);
		strcpy(p->trouble, why_silent(p));
		take_records(p);
	}
	if (p->waits || !keeps) {
		close_fd(&p->fd);
		close_fd(&p->memfd);
	}
	p->waits = false;
}

void processes_ask(struct processes *all, uint32_t kinds, unsigned timeout_ms)
{
	uint64_t end = now_ms() + timeout_ms, now;
	struct pollfd *polls = calloc(all->count + 1, sizeof(*polls));

	if (!polls) {
		all->is_short = true;
		return;
	}
	for (unsigned i = 0; i < all->count; i++)
		if (all->list[i].fd >= 0)
			ask(&all->list[i], kinds, &all->is_short);
	while (count_waiting(all, polls) && (now = now_ms()) < end &&
	       vb_poll(polls, all->count, (int)(end - now)) >= 0)
		for (unsigned i = 0; i < all->count; i++)
			if (polls[i].fd >= 0 && polls[i].revents)
				receive_answer(&all->list[i]);
	for (unsigned i = 0; i < all->count; i++)
		end_asking(&all->list[i], all->keeps);
	free(polls);
}

void processes_free(struct processes *all)
{
	for (unsigned i = 0; i < all->count; i++)
		forget(&all->list[i]);
	free(all->list);
	*all = (struct processes){ .count = 0 };
}

/* ---- records ---- */

static const size_t sizes[] = {
#define X(name, struct_name) [VB_RECORD_##name] = sizeof(struct vb_record_##struct_name),
	VB_RECORDS(X)
#undef X
};

const void *process_next(const struct process *p, size_t *at, enum vb_record_kind kind)
{
	static __thread _Alignas(8) uint8_t found[VB_RECORD_MAX];
	struct vb_record head;

	while (p->bytes - *at >= sizeof(head)) {
		const uint8_t *record = p->records + *at;
		memcpy(&head, record, sizeof(head));
		if (head.bytes < sizeof(head) || head.bytes > p->bytes - *at)
			return NULL;
		*at += head.bytes;
		if (head.kind != kind)
			continue;
		memset(found, 0, sizeof(found));
		memcpy(found, record, head.bytes < sizes[kind] ? head.bytes : sizes[kind]);
		return found;
	}
	return NULL;
}

unsigned process_count(const struct process *p, enum vb_record_kind kind)
{
	size_t at = 0;
	unsigned n = 0;

	while (process_next(p, &at, kind))
		n++;
	return n;
}

static bool owns(const struct process *p, uint32_t slot)
{
	size_t at = 0;
	const struct vb_record_process *r = process_next(p, &at, VB_RECORD_PROCESS);

	for (unsigned i = 0; r && i < VB_ARRAY_LEN(r->slots); i++)
		if (r->slots[i] == slot)
			return true;
	return p->slot == slot;
}

const struct process *processes_of_slot(const struct processes *all, uint32_t slot)
{
	for (unsigned i = 0; i < all->count; i++)
		if (slot && owns(&all->list[i], slot))
			return &all->list[i];
	return NULL;
}
