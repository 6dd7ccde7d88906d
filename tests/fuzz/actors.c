/* SPDX-License-Identifier: BSD-2-Clause */
#include "actors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "adapter/memory/arena.h"

enum { BACKLOG = 16 };

/* ---- processes ---- */

int socket_at(enum order_op op, const struct vb_name *name)
{
	int s = socket(AF_UNIX, (op == BIND ? SOCK_DGRAM : SOCK_SEQPACKET) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const struct sockaddr *sa = (const struct sockaddr *)&name->un;

	if (op == CONNECT ? connect(s, sa, name->bytes) :
			    bind(s, sa, name->bytes) || (op == LISTEN && listen(s, BACKLOG))) {
		close(s);
		return -1;
	}
	return s;
}

void obey(int sock)
{
	static struct order o;
	int inbox = -1;

	while (recv(sock, &o, sizeof(o), 0) > 0) {
		int fd = -1;
		if (o.op == SEND)
			send_with(inbox, &o.name, o.message, o.bytes, &inbox, o.with_descriptor);
		else
			fd = socket_at(o.op, &o.name);
		if (o.op == BIND)
			inbox = fd;
		must(vb_link_send(sock, &fd, sizeof(fd), &fd, fd >= 0) == 0);
		if (fd >= 0 && o.op != BIND)
			close(fd);
	}
	_exit(0);
}

void await(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	must(TEMP_FAILURE_RETRY(poll(&p, 1, 60000)) == 1);
}

int tell(struct actor *a, const struct order *o)
{
	int fd = -1, reply, n = 0;

	must(send(a->sock, o, sizeof(*o), MSG_NOSIGNAL) == sizeof(*o));
	await(a->sock);
	must(vb_link_recv(a->sock, &reply, sizeof(reply), &fd, &n) == sizeof(reply));
	return n ? fd : -1;
}

int have_socket(struct actor *a, enum order_op op, struct vb_name name)
{
	return tell(a, &(struct order){ .op = op, .name = name });
}

struct actor start_actor(void (*body)(int sock), uid_t user)
{
	struct actor a = { 0 };
	int pair[2];

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	pid_t pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		if (user && setresuid(user, user, user))
			_exit(0);
		if (user)
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* forgotten with the user */
		body(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	a.sock = pair[0];
	return a;
}

bool settle_down(struct actor *a, uint32_t slot)
{
	struct pollfd p = { .fd = a->sock };

	if (poll(&p, 1, 100) == 1) /* it could not become another user, and has gone */
		return false;
	int inbox = have_socket(a, BIND, vb_name_of_inbox(slot));
	must(inbox >= 0);
	vb_fd_close(inbox);
	a->slot = slot;
	return true;
}

/* ---- descriptors ---- */

int arena_fd = -1, ring_fd = -1;

int memfd_of(size_t bytes, unsigned flags, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | flags);

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && seals)
		(void)fcntl(fd, F_ADD_SEALS, seals);
	return fd;
}

/* The same file once more, as it is wanted there; the descriptor is closed. */
static int reopen(int fd, int how)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, how | O_CLOEXEC);
	close(fd);
	return again;
}

/* Both of its ends, so that who writes would wait. */
static int full_pipe(void)
{
	static char page[4096];
	int ends[2];

	must(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	while (write(ends[1], page, sizeof(page)) > 0)
		;
	int both = reopen(ends[1], O_RDWR);
	close(ends[0]);
	return both;
}

int make_thing(unsigned thing)
{
	const int fixed = F_SEAL_SHRINK | F_SEAL_GROW;

	switch (thing % THINGS) {
	case ARENA: return fcntl(arena_fd, F_DUPFD_CLOEXEC, 0);
	case BELL: return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	case SEGMENT: return memfd_of(SEGMENT_BYTES, MFD_ALLOW_SEALING, fixed);
	case RING: return fcntl(ring_fd, F_DUPFD_CLOEXEC, 0);
	case OTHER_THINGS: return memfd_of(SEGMENT_BYTES, 0, 0);
	case 5: return memfd_of(0, MFD_ALLOW_SEALING, fixed);
	case 6: return memfd_of(SEGMENT_BYTES, MFD_ALLOW_SEALING, fixed | F_SEAL_WRITE);
	case 7: return memfd_of(VB_ARENA_LEAST, MFD_ALLOW_SEALING, 0);
	case 8: return memfd_of(VB_ARENA_LEAST, MFD_ALLOW_SEALING, fixed);
	case 9: return memfd_of(2 << 20, MFD_ALLOW_SEALING | MFD_HUGETLB, fixed);
	case 10: return reopen(memfd_of(SEGMENT_BYTES, MFD_ALLOW_SEALING, fixed), O_RDONLY);
	case 11: return full_pipe();
	case 12: return reopen(full_pipe(), O_WRONLY); /* without a reader */
	case 13: return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 14: return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 15: return epoll_create1(EPOLL_CLOEXEC);
	case 16: return eventfd(7, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	case 17: return memfd_of(CAPTURE_BYTES, MFD_ALLOW_SEALING, 0);
	default: return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	}
}

void send_with(int fd, const struct vb_name *to, const void *bytes, size_t n, const int *fds, unsigned nfds)
{
	struct iovec iov = { (void *)(uintptr_t)bytes, n };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MOST_THINGS * sizeof(int))] = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (to) {
		m.msg_name = (void *)(uintptr_t)&to->un;
		m.msg_namelen = to->bytes;
	}
	if (nfds) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
				       .cmsg_type = SCM_RIGHTS,
				       .cmsg_len = CMSG_LEN(nfds * sizeof(int)) };
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	(void)!sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}
