/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of sim_rdmacm, which says what is simulated: its network (sim_rdmacm_network.c), the programs'
 * calls and what happens to the host (sim_rdmacm_calls.c), the events that come (sim_rdmacm_events.c), and a
 * run of it all (sim_rdmacm.c). One thread; all of them work on `world`.
 */
#ifndef VB_SIM_RDMACM_H
#define VB_SIM_RDMACM_H

#include <errno.h>

#include "../fuzz/fake_host.h"
#include "../fuzz/fake_verbs.h"
#include "../fuzz/fuzz.h"
#include "adapter/object.h"
#include "rdmacm/agent/agent.h"

enum { MAX_IDS = 24, MAX_FLYING = 512, CHANNELS = 2, PORT = 7471, MAX_DEAD = 64, MS = 1000000, GROUPS = 3 };
enum { EVENT_TYPES = RDMA_CM_EVENT_USER + 1, MANY_TAGS = 4096 };

enum kind { NOBODY, LISTENER, ACTIVE, PASSIVE };

struct group {
	uint32_t number;        /* of the membership; 0: none */
	bool is_told;
};

/* What is yet to be told. */
struct news {
	unsigned removals, changes, lost_groups;
	uint64_t user_written, user_seen;
};

struct id {
	struct rdma_cm_id *cm;
	enum kind kind;
	bool datagram, dead, wants_qp;
	struct group groups[GROUPS];
	struct news news;
	bool connected, answered, accepted, rejected, established, disconnected; /* calls that succeeded */
	unsigned seen;          /* bits of events */
	uint32_t tag;           /* both ends of a connection have the same */
};

struct flying {
	uint64_t due_ns;
	struct vb_mad mad;
	bool is_used;
};

struct step {
	uint8_t what, who, how, more;
};

struct world {
	struct rdma_event_channel *channels[CHANNELS];
	struct id ids[MAX_IDS];
	struct flying flying[MAX_FLYING];
	uint32_t dead_comm_ids[MAX_DEAD];
	unsigned num_dead, next_tag, next_random, last_group;
	struct vb_context watcher;     /* of the interfaces, as each context is */
	uint32_t tags_gone[MANY_TAGS / 32]; /* one end was destroyed or is dead: the other is alone */
	uint64_t cut_until_ns;
	unsigned loss, doubling, refusals; /* percent; of queue pairs */
	bool healed, verbose;
};

extern struct world world;

#define MAX_SHOWN_NS UINT64_C(1000000000000)
#define BIT(event) (1u << RDMA_CM_EVENT_##event)
enum { ENDS = BIT(DISCONNECTED) | BIT(REJECTED) | BIT(UNREACHABLE) | BIT(CONNECT_ERROR) };

#define tell(...)                                                                             \
	do {                                                                                  \
		if (world.verbose) {                                                          \
			printf("# %8.3f ms  ", (double)(fake.now_ns % MAX_SHOWN_NS) / MS);    \
			printf(__VA_ARGS__);                                                  \
			putchar('\n');                                                        \
		}                                                                             \
	} while (0)

static inline uint32_t chance(void)
{
	world.next_random = world.next_random * 1664525u + 1013904223u;
	return world.next_random >> 8;
}

static inline bool percent(unsigned p) { return chance() % 100 < p; }

/*
 * Both ends of a connection have its tag. One of them was destroyed, is dead, or may never hear of the
 * other's end.
 */
static inline bool tag_is_alone(uint32_t tag)
{
	return world.tags_gone[tag % MANY_TAGS / 32] >> tag % 32 & 1;
}
static inline void tag_leave(uint32_t tag) { world.tags_gone[tag % MANY_TAGS / 32] |= 1u << tag % 32; }

static inline unsigned id_number(const struct id *id) { return (unsigned)(id - world.ids); }

/* ---- the network ---- */

/* What fake.left is to be. */
void network_left(const void *bytes, size_t len);
/* Lets time pass, in which messages arrive. */
void network_pass_time(uint64_t ns);

/* ---- calls ---- */

/* NULL: a place for a new one. */
struct id *id_find(const struct rdma_cm_id *cm);
void id_create(const struct step *s);
void id_destroy(struct id *id);
void id_begin_to_resolve(const struct id *id);
/* Do queue pairs refuse the next changes of their state? */
void dice_for_qps(void);
/* If it is refused, the id goes without. */
void id_give_qp(struct id *id);
void id_accept(struct id *id);
void id_establish(struct id *id);
void id_disconnect(struct id *id);
/* Some call, most often what a program would do next. */
void id_call(struct id *id, const struct step *s);
void host_change(const struct step *s);

/* ---- events ---- */

/* For all processes that run seeds. */
void events_begin_tally(void);
/* False: there is none. Both programs see to their duties at once, if dutiful. */
bool events_take(unsigned channel, bool dutiful);
/*
 * Have all types come, but those that resolving by subnet administration, or with a thread, would bring?
 * Prints how often.
 */
bool events_have_all_come(void);

#endif
