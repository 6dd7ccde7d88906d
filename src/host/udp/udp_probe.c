/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers probes of other processes that learn how to steer (udp_steer.c). */
#include "host/udp/udp_private.h"

#include "base/cancel.h"

static uint32_t fill_slots(uint16_t *slots)
{
	uint32_t n = vb_slot_list(slots);
	for (uint32_t i = 0; i < n; i++)
		slots[i] = htons(slots[i]);
	return n;
}

bool vb_udp_answer_probe(int fd, const struct vb_udp_packet *p)
{
	VB_UNCANCELLED;
	static struct vb_udp_answer answer; /* one thread at a time receives */
	bool ipv4 = vb_ip_is_v4(&p->addr.src);
	union vb_ip_address to = vb_ip_address(&p->addr.src, ipv4, p->addr.udp_sport);

	if (p->len != sizeof answer.head)
		return false;
	memcpy(&answer.head, p->bytes, sizeof answer.head);
	if (answer.head.magic[0] != htonl(VB_PROBE_MAGIC) ||
	    answer.head.magic[1] != htonl(VB_PROBE_STEER_MAGIC))
		return false;
	if (p->ifindex != VB_LOOPBACK_IFINDEX || !vb_ip_is_loopback(&p->addr.src) ||
	    p->addr.udp_sport == VB_ROCE_PORT)
		return true;
	uint32_t n = fill_slots(answer.slots);
	answer.head.magic[0] = htonl(VB_PROBE_ANSWER_MAGIC);
	answer.head.slot_count = htonl(n);
	sendto(fd, &answer, sizeof answer.head + n * sizeof answer.slots[0], MSG_DONTWAIT | MSG_NOSIGNAL,
	       &to.any, vb_ip_address_bytes(ipv4));
	return true;
}
