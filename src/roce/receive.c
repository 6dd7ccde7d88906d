/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes in by UDP: packets whose ICRC is right go to the queue pair that they are for
 * (roce/deliver.h), to the CM, or to the inbox of another process (roce/forward.h). Threads that poll
 * receive them, and the progress thread while nobody polls (struct vb_path_io).
 */
#include "roce/receive.h"

#include <sched.h>
#include <string.h>

#include "adapter/inspection/counts.h"
#include "adapter/progress/path.h"
#include "base/poll_time.h"
#include "base/tuned.h"
#include "host/ipc/capture.h"
#include "roce/burst.h"
#include "roce/delayed_ack.h"
#include "roce/deliver.h"
#include "roce/forward.h"
#include "wire/cm_msg.h"
#include "wire/packet.h"

/* ---- receiving: one thread at a time ---- */

static struct vb_icrc_solver solver;
/* of the packet at hand, and of those joined with it; often that of the one before */
static struct vb_inbox_addr arrival_addr;
static struct vb_icrc_route arrival_route;
static struct vb_icrc_known arrival_known;
static _Thread_local struct vb_roce_batch batch; /* the QPs whose packets this thread has received */

static void set_arrival_addr(const struct vb_inbox_addr *addr)
{
	if (!memcmp(&arrival_addr, addr, sizeof(*addr)))
		return;
	arrival_addr = *addr;
	vb_roce_icrc_route(&arrival_route, addr);
	arrival_known = (struct vb_icrc_known){ 0 };
}

static bool is_intact(const struct vb_udp_packet *p, uint16_t *id)
{
	*id = (uint16_t)p->index; /* a sender that has the kernel cut its packets starts at 0 */
	if (p->index == 0)
		set_arrival_addr(&p->addr);
	if (p->len < VB_BTH_BYTES + VB_ICRC_BYTES || p->len > VB_ROCE_PACKET_BYTES)
		return false;
	if (vb_roce_ignores_icrc)
		return true;
	return vb_icrc_check_any_ip_id(&solver, &arrival_route, &arrival_known, p->bytes, p->len, id);
}

static void (*gsi_handler)(const struct vb_inbox_msg *msg, unsigned ifindex);

void vb_roce_set_gsi_handler(void (*arrived)(const struct vb_inbox_msg *msg, unsigned ifindex))
{
	gsi_handler = arrived;
}

static void pass_on(uint32_t slot, const struct vb_inbox_msg *msg)
{
	vb_udp_misdirected();
	vb_forward(slot, msg);
}

/* Captures what is for this process; the others capture what they get. Of QP 1, its receiver does. */
__attribute__((cold, noinline)) static void note_arrival(const struct vb_udp_packet *p, bool intact,
							 uint16_t id)
{
	if (p->len < VB_BTH_BYTES + VB_ICRC_BYTES)
		return;
	uint32_t qpn = vb_bth_destination_qpn((const struct vb_bth *)p->bytes);
	struct vb_capture_note note = { .addr = &p->addr,
					.flags = VB_CAPTURE_HAS_ICRC | (intact ? 0 : VB_CAPTURE_BAD_ICRC),
					.qpn = qpn,
					.ip_id = id };
	struct iovec packet = { (void *)(uintptr_t)p->bytes, p->len };
	if (qpn == VB_MULTICAST_QPN || vb_slot_is_mine(qpn >> VB_SLOT_SHIFT))
		vb_capture_packet(&note, &packet, 1);
}

/* A datagram that claims to come from a local process that would have used shared memory or an inbox. */
static bool is_forged(const struct vb_udp_packet *p)
{
	if (p->bytes[0] >> VB_OPCODE_BITS != VB_SERVICE_UD ||
	    p->len < VB_BTH_BYTES + sizeof(struct vb_deth) + VB_ICRC_BYTES ||
	    vb_bth_destination_qpn((const struct vb_bth *)p->bytes) == VB_MULTICAST_QPN)
		return false;
	return vb_slot_is_spoofed(vb_deth_source_qpn((const struct vb_deth *)(p->bytes + VB_BTH_BYTES)) >>
					 VB_SLOT_SHIFT,
				 &p->addr.src);
}

static void packet_arrived(const struct vb_udp_packet *p)
{
	uint16_t id;
	bool intact = is_intact(p, &id);
	if (vb_capture_is_on())
		note_arrival(p, intact, id);
	if (!intact || is_forged(p)) {
		vb_drop(intact ? VB_DROP_FORGED : VB_DROP_BAD_ICRC);
		return;
	}
	struct vb_inbox_msg msg = {
		.addr = p->addr,
		.payload = p->bytes,
		.payload_bytes = p->len - VB_ICRC_BYTES,
		.sender_uid = (uid_t)-1,
		.is_trusted = true,
	};
	uint32_t qpn = vb_bth_destination_qpn((const struct vb_bth *)p->bytes), slot = qpn >> VB_SLOT_SHIFT;
	if (qpn == VB_GSI_QPN)
		gsi_handler(&msg, p->ifindex);
	else if (qpn == VB_MULTICAST_QPN || vb_slot_is_mine(slot))
		vb_roce_deliver(&msg, p->ifindex, &batch);
	else if (slot)
		pass_on(slot, &msg);
	else
		vb_drop(VB_DROP_NO_QP);
}

static void batch_done(void)
{
	vb_progress_note_arrivals();
	vb_roce_batch_end(&batch);
}

/* ---- polling ---- */

/* Of stay_awake: only the progress thread uses them. */
static struct vb_poll_time poll_time;
static uint64_t seen; /* packets that had come when it looked last */

/* True: packets came. */
static bool await_packets(void)
{
	uint64_t before = vb_now_ns(),
		 until = before < poll_time.rests_until_ns ? before : before + VB_AWAKE_NS;
	while (before < until) {
		sched_yield();
		uint64_t now = vb_now_ns();
		bool met_others = vb_poll_time_met_others(&poll_time, before, now);
		if (vb_udp_receive())
			return true;
		before = met_others ? until : now;
	}
	return false;
}

/*
 * The progress thread is about to sleep. A wake-up costs both sides more than the next packets of a stream
 * take to come. So after many packets it stays awake, unless other threads want the processor. True: packets
 * came.
 */
static bool stay_awake(void)
{
	struct vb_udp_counts counts;
	vb_udp_count(&counts);
	bool is_stream = counts.packets_in - seen >= VB_STREAM_PACKETS;
	seen = counts.packets_in;
	return is_stream && await_packets();
}

static bool pump(void)
{
	if (!vb_roce_is_used())
		return false;
	vb_delayed_ack_send();
	return vb_udp_receive() || (vb_loop_is_current() && stay_awake());
}

/* Without QPs that use the port, polling threads do not look here: then the progress thread wakes up. */
static bool watch(bool wake)
{
	wake |= !vb_roce_is_used();
	vb_udp_watch(wake);
	return wake;
}

static bool is_busy(void) { return vb_udp_is_receiving() || vb_bursts_are_used(); }

static const struct vb_path_io io = {
	.pump = pump, .set_wakeup = watch, .is_busy = is_busy, .has_arrivals = vb_udp_has_arrivals
};

static void forget(void)
{
	batch.count = 0;
	seen = 0;
	poll_time = (struct vb_poll_time){ 0 };
}

__attribute__((constructor)) static void listen_to_udp(void)
{
	vb_udp_set_handler(packet_arrived, batch_done);
	vb_path_set_io(&io);
	vb_host_at_fork(forget);
}
