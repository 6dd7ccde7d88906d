/* SPDX-License-Identifier: BSD-2-Clause */
#include "host/net/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cancel.h"
#include "base/offload.h"
#include "host/private.h"

/* PACKET_VNET_HDR works: for all sockets, or (an emulator's kernel) for none. */
static atomic_bool has_headers;

static int set_up(int fd, unsigned ifindex, bool receives)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET,
				  .sll_protocol = receives ? htons(ETH_P_ALL) : 0,
				  .sll_ifindex = (int)ifindex };
	struct packet_mreq all = { .mr_ifindex = (int)ifindex, .mr_type = PACKET_MR_PROMISC };
	int on = 1;
	if (!ifindex)
		return 0;
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)))
		return -errno;
	if (!receives)
		return 0;
	/*
	 * A flow rule may be for any address. The kernel removes VLAN tags, and passes them as control
	 * messages. What it has left to do for the interface is said in a header before each frame.
	 */
	setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all));
	setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on));
	atomic_store(&has_headers, !setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)));
	return 0;
}

int vb_raw_open(unsigned ifindex, bool receives, int *fd)
{
	vb_host_lock();
	*fd = vb_fd_own(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int err = *fd < 0 ? -errno : 0;
	vb_host_unlock();
	if (err)
		return err == -EACCES ? -EPERM : err;
	err = set_up(*fd, ifindex, receives);
	if (err)
		vb_fd_close(*fd);
	return err;
}

int vb_raw_send(int fd, unsigned ifindex, const struct iovec *iov, unsigned n)
{
	VB_UNCANCELLED;
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int)ifindex };
	struct msghdr m = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = (struct iovec *)iov, .msg_iovlen = n
	};
	if (sendmsg(fd, &m, MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == EFAULT || errno == EMSGSIZE || errno == EAGAIN ? -errno : 0;
}

/* Puts the VLAN tag, which the kernel removed, back behind the two addresses. */
static size_t insert_vlan(uint8_t *frame, size_t bytes, size_t room, uint16_t tpid, uint16_t tci)
{
	enum { ADDRESSES = 12, TAG = 4 };
	uint16_t tag[2] = { htons(tpid ? tpid : ETH_P_8021Q), htons(tci) };
	if (bytes < ADDRESSES || bytes + TAG > room)
		return bytes;
	memmove(frame + ADDRESSES + TAG, frame + ADDRESSES, bytes - ADDRESSES);
	memcpy(frame + ADDRESSES, tag, sizeof(tag));
	return bytes + TAG;
}

static size_t restore(struct msghdr *m, uint8_t *frame, size_t bytes, size_t room)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct tpacket_auxdata aux;
		if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA ||
		    c->cmsg_len < CMSG_LEN(sizeof(aux)))
			continue;
		memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		if (aux.tp_status & TP_STATUS_VLAN_VALID)
			return insert_vlan(frame, bytes, room,
					   aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : 0,
					   aux.tp_vlan_tci);
	}
	return bytes;
}

/* Group frames that go out come back, as through an adapter's own switch. Loopback returns them itself. */
static bool comes_back(const struct sockaddr_ll *from, const uint8_t *frame, size_t bytes)
{
	return from->sll_hatype != ARPHRD_LOOPBACK && bytes && (frame[0] & 1);
}

bool vb_raw_receive(int fd, void *frame, size_t room, struct vb_raw_frame *heard)
{
	VB_UNCANCELLED;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	struct virtio_net_hdr left = { .flags = 0 };
	size_t before = atomic_load(&has_headers) ? sizeof(left) : 0;
	struct iovec iov[] = { { &left, before }, { frame, room } };
	struct sockaddr_ll from;
	struct msghdr m = { .msg_name = &from,
			    .msg_namelen = sizeof(from),
			    .msg_iov = iov,
			    .msg_iovlen = VB_ARRAY_LEN(iov),
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	*heard = (struct vb_raw_frame){ .bytes = 0 };
	if (n < 0 && errno == EINVAL) /* a frame whose header the kernel cannot write is lost */
		return true;
	if (n <= (ssize_t)before)
		return false;
	size_t bytes = (size_t)n - before;
	if (from.sll_pkttype == PACKET_OUTGOING && !comes_back(&from, frame, bytes))
		return true;
	/* What comes in on loopback is of this host, too. */
	heard->is_own = from.sll_pkttype == PACKET_OUTGOING || from.sll_hatype == ARPHRD_LOOPBACK;
	heard->segment = left.gso_type == VIRTIO_NET_HDR_GSO_NONE ? 0 : left.gso_size;
	heard->protocol = vb_offload_protocol(&left);
	if (!heard->segment)
		vb_offload_fill_checksum(&left, frame, bytes);
	heard->bytes = restore(&m, frame, bytes, room);
	return true;
}

void vb_raw_close(int fd)
{
	vb_fd_close(fd);
}
