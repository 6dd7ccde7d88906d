/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Numbers that were tuned: they decide how fast programs are, and never what is right. Each says what a
 * larger and a smaller one would cost. They were found by measuring, on machines with two processors, near
 * each other and far, and with more threads than processors. If you change one, show the rows that it moves,
 * in turns with the build before.
 *
 * Limits, batch sizes and the protocols' times are not tuned. They stand where they are used.
 */
#ifndef VB_BASE_TUNED_H
#define VB_BASE_TUNED_H

#include "base/nanoseconds.h"

/* ---- threads that poll (adapter/progress/progress.c) ---- */

enum {
	/*
	 * A thread that has polled so often in vain since the program last armed a CQ polls in a loop: the
	 * progress thread stands aside. More: programs with short loops pay for two threads. Fewer: programs
	 * that poll now and then lose the progress thread, which works while they compute.
	 */
	VB_SPIN_POLLS = 32,
	/* The same for a program that was seen to stop polling without arming; each time 8 times as many. */
	VB_MOST_SPIN_POLLS = 8192,
	/*
	 * Polls in vain before each further one pauses the processor: about a microsecond, in which an
	 * answer from a near processor comes. Earlier: a pause takes as long as such an answer. Later: the
	 * sibling on the same core gets less.
	 */
	VB_PAUSE_AFTER_POLLS = 64,
	/*
	 * Polls in vain, some ten microseconds, before the thread yields its processor, each time after
	 * VB_YIELD_EVERY_POLLS more. Earlier: each message pays for system calls. Later: a peer on the same
	 * processor waits longer for it.
	 */
	VB_YIELD_AFTER_POLLS = 512,
	VB_YIELD_EVERY_POLLS = 32,
	/*
	 * Polls in vain before delayed doorbells ring: the program waits for something, and so may its
	 * peers. Earlier: an ack rings that the program's next message would have carried. Later: the peer
	 * sleeps on.
	 */
	VB_RING_AFTER_POLLS = 4,
	/*
	 * Of so many polls that find news of the expected queue pair, one looks at all the others. More:
	 * these wait. Fewer: each message pays for the look.
	 */
	VB_HOT_POLLS = 16,
	/*
	 * Looks at all doorbells and the network in a microsecond of polls in vain. More: reading a line
	 * slows its writer. Fewer: what comes from others than the expected queue pair is seen later. One
	 * poll of VB_CLOCK_EVERY_POLLS reads the clock for that.
	 */
	VB_ROUNDS_PER_US = 5,
	VB_CLOCK_EVERY_POLLS = 4,
};

/* ---- the progress thread beside threads that poll or lead (adapter/progress/progress.c) ---- */

enum {
	/*
	 * How often it looks whether the poller is still there, in ns. More often: it takes the poller's
	 * processor. Less often: what comes for a program that has stopped polling waits so long.
	 */
	VB_TICK_NS = VB_NS_PER_MS,
	/*
	 * The longest of these times. The time doubles, from VB_TICK_NS on, while the poller wants a
	 * processor and other threads use it for more than half of the time. Longer: a program that stops
	 * polling meanwhile is served later. Shorter: with many more threads than processors, the looks take
	 * processor time from the pollers.
	 */
	VB_MOST_TICK_NS = 16 * VB_NS_PER_MS,
	/*
	 * A poller may lack a processor and so make no polls. It counts as a poller until it has run for
	 * this long without a poll. More: a program that stops polling on a busy machine waits for the next
	 * look. Less: a thread that is preempted between two polls no longer counts, and each message wakes
	 * the progress thread.
	 */
	VB_HARDLY_RUNS_NS = 200 * VB_NS_PER_US,
	/* The first of these if arrivals do not wake it: the poller may spin on its memory instead. */
	VB_UNWOKEN_TICK_NS = 100 * VB_NS_PER_US,
	/*
	 * If such a look finds packets, the progress thread looks again after VB_SECOND_LOOK_NS. A thread
	 * that has neither polled nor received by then no longer counts as a poller. More: the packets wait
	 * longer. Less: a poller that waits for its processor no longer counts either, and each packet then
	 * wakes the progress thread as well.
	 */
	VB_SECOND_LOOK_NS = 20 * VB_NS_PER_US,
	/*
	 * It ticks for leaders after so many of their waits. More: programs that wait by events ring for
	 * longer. Fewer: one that waits now and then pays for ticks.
	 */
	VB_LEADS_TO_TICK = 16,
};

/* ---- how often a poller looks beyond the expected queue pair (adapter/progress/path.c) ---- */

enum {
	/*
	 * For VB_NEWS_US after news from shared memory, once in VB_NETWORK_US: a look is two system calls,
	 * which take longer than a message within the host. More: packets wait so long. Less: UCX, which has
	 * a datagram queue pair beside its connections, pays for them with each message.
	 */
	VB_NEWS_US = 50,
	VB_NETWORK_US = 5,
	/*
	 * After a datagram from this host, each of the next VB_SHM_POLLS polls looks for another one. Later
	 * polls look only when a round is due (VB_ROUNDS_PER_US). More: a program that seldom gets datagrams
	 * pays for many looks in vain. Fewer: an answer waits for the next round.
	 */
	VB_SHM_POLLS = 255,
};

/* ---- doorbells (local/doorbell.c) ---- */

enum {
	/*
	 * Messages in a row that a poll found at a queue pair before peers stop to ring for it. More: they
	 * ring in vain. Fewer: every poll of a program looks at queue pairs that seldom have news.
	 */
	VB_POLLED_AFTER_HITS = 16,
	/* So many queue pairs at most. More: each poll reads a line for each. */
	VB_MOST_POLLED = 8,
};

/* ---- mapped memory (local/mapped.c) ---- */

enum {
	/*
	 * A peer asks for a region's mapping when copies have cost as much as moving it would. What a copy
	 * by process_vm costs, in ns and bytes a ns, and what moving costs. Larger costs of copies: regions
	 * of short connections move for nothing. Smaller ones: long connections go on copying by the kernel.
	 */
	VB_COPY_CALL_NS = 1200,
	VB_COPY_BYTES_PER_NS = 16,
	VB_MOVE_NS = 200 * VB_NS_PER_US,
	VB_MOVED_BYTES_PER_NS = 2,
};

/* ---- threads that poll before they sleep (base/poll_time.h) ---- */

enum {
	/*
	 * A thread whose waits take VB_MOST_POLL_NS at most polls through them: VB_FIRST_POLL_NS at first,
	 * then twice as long each time. An answer from another host takes two wake-ups while both sides
	 * sleep, and a fifth of that once they poll. More: threads burn their processor in waits that
	 * polling does not shorten. Less: two that sleep never get to poll.
	 */
	VB_FIRST_POLL_NS = 10000,
	VB_MOST_POLL_NS = 200 * VB_NS_PER_US,
	/*
	 * If sched_yield(2) takes VB_TURN_NS, another thread has run. With no other thread to run, the call
	 * returns within half of that. Shorter: each yield counts as one to another thread. Longer: the
	 * thread does not notice a peer on its processor that answers at once.
	 */
	VB_TURN_NS = VB_NS_PER_US,
	/*
	 * A yield that took VB_SWITCH_NS has let another thread work for longer than a wake-up takes. Shorter
	 * ones pay: the thread that ran may be the peer, or this process's own progress thread. After a long
	 * one the thread does not poll before it sleeps, for VB_REST_TIMES the yield's time, and
	 * VB_MOST_REST_NS at most: it would only use up its own share of the processor. The rest ends if the
	 * wait itself ends within VB_MOST_POLL_NS: then it was the peer that ran. More: one late yield costs
	 * many wake-ups. Less: on a busy machine a thread gives its share away more often. (64 bytes by
	 * rstream -T b over loopback, two processors: 20 to 45 us with 2 us, 10 to 19 us with 15 us.)
	 */
	VB_SWITCH_NS = 15000,
	VB_REST_TIMES = 32,
	VB_MOST_REST_NS = 100 * VB_NS_PER_MS,
};

/* ---- locks (base/lock.c) ---- */

enum {
	/*
	 * A thread owns a lock after it has taken it so many times in a row. Twice as many for each time
	 * that another thread took the ownership away, VB_MOST_REVOKED times at most. More: a program of one
	 * thread pays for locked instructions for longer. Fewer: threads in turn pay for a fence of all
	 * processors.
	 */
	VB_TIMES_TO_OWN = 256,
	VB_MOST_REVOKED = 16,
};

/* ---- acknowledgements over the wire (roce/rc.c, rc_requests.c, delayed_ack.c) ---- */

enum {
	/*
	 * A post answers an arrival if it comes within VB_SOON_NS, or within this share of a round trip
	 * where that is longer: of slow machines and long ways. After VB_ANSWERS_IN_A_ROW of these an ACK
	 * waits for the next, VB_ACK_DELAY_NS at most while nobody polls. More: a requester that waits for
	 * the ACK alone has it later. Less: each message of a ping-pong takes two packets.
	 */
	VB_SOON_NS = 20000,
	VB_SOON_SHARE = 8,
	VB_ANSWERS_IN_A_ROW = 2,
	VB_ACK_DELAY_NS = 30000,
	/* A timer that meets a busy thread, or packets not yet taken, looks again after so long, in ns. */
	VB_BUSY_RECEIVER_NS = 200 * VB_NS_PER_US,
};

/* ---- a stream of packets (roce/receive.c) ---- */

enum {
	/*
	 * After VB_STREAM_PACKETS since its last sleep, the progress thread stays awake for VB_AWAKE_NS: to
	 * wake up costs both sides more than the next packets take to come. More: it burns a processor for
	 * nothing. Less: a stream pays for a wake-up with each burst.
	 */
	VB_STREAM_PACKETS = 12,
	VB_AWAKE_NS = 50 * VB_NS_PER_US,
};

#endif
