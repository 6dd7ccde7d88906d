/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which slots are this process's, and the names of abstract sockets that go with a slot. Slots are only added
 * (slot_take.c); anybody reads which are there.
 */
#include "host/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Atomic uint64_t mine[VB_SLOT_COUNT / 64];
static atomic_int inboxes[VB_SLOT_COUNT]; /* of slots that are this process's, descriptors and 1; else 0 */
static _Atomic uint32_t first_slot;

/* ---- names ---- */

int vb_name_of_text(const char *text, struct vb_name *name)
{
	size_t bytes = strlen(text);
	if (!bytes || bytes >= sizeof name->un.sun_path)
		return -EINVAL;
	*name = (struct vb_name){ .un.sun_family = AF_UNIX };
	memcpy(name->un.sun_path + 1, text, bytes);
	name->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
	return 0;
}

static struct vb_name slot_name(const char *kind, uint32_t slot)
{
	struct vb_name n = { .un.sun_family = AF_UNIX };
	int len = snprintf(n.un.sun_path + 1, sizeof n.un.sun_path - 1, "verbatim/%s/%u", kind, slot);
	n.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
	return n;
}

struct vb_name vb_name_of_inbox(uint32_t slot) { return slot_name("slot", slot); }

struct vb_name vb_name_of_link(uint32_t slot)
{
	char kind[16];
	snprintf(kind, sizeof kind, "link/%u", (unsigned)VB_LINK_VERSION);
	return slot_name(kind, slot);
}

struct vb_name vb_name_of_inspection(uint32_t slot) { return slot_name("visit", slot); }

uint32_t vb_name_parse_inbox(const struct sockaddr_un *un, socklen_t bytes)
{
	static const char prefix[] = "\0verbatim/slot/";
	const size_t head = offsetof(struct sockaddr_un, sun_path) + sizeof prefix - 1;
	if (bytes <= head || bytes > head + 4 || un->sun_family != AF_UNIX ||
	    memcmp(un->sun_path, prefix, sizeof prefix - 1) != 0)
		return 0;
	uint32_t slot = 0;
	for (const char *p = un->sun_path + sizeof prefix - 1; p < (const char *)un + bytes; p++) {
		if (*p < '0' || *p > '9' || (*p == '0' && slot == 0))
			return 0;
		slot = slot * 10 + (uint32_t)(*p - '0');
	}
	return slot < VB_SLOT_COUNT ? slot : 0;
}

/* ---- slots ---- */

void vb_slot_add(uint32_t slot, int inbox)
{
	uint32_t none = 0;
	atomic_store(&inboxes[slot], inbox + 1);
	atomic_fetch_or(&mine[slot / 64], 1ull << slot % 64);
	atomic_compare_exchange_strong(&first_slot, &none, slot);
}

uint32_t vb_slot_first(void) { return atomic_load_explicit(&first_slot, memory_order_relaxed); }

int vb_slot_inbox(uint32_t slot)
{
	return slot < VB_SLOT_COUNT ? atomic_load_explicit(&inboxes[slot], memory_order_relaxed) - 1 : -1;
}

bool vb_slot_is_mine(uint32_t slot)
{
	return slot < VB_SLOT_COUNT &&
	       (atomic_load_explicit(&mine[slot / 64], memory_order_relaxed) >> slot % 64 & 1);
}

uint32_t vb_slot_list(uint16_t *list)
{
	uint32_t n = 0, first = vb_slot_first();
	if (first)
		list[n++] = (uint16_t)first;
	for (size_t word = 0; word < VB_ARRAY_LEN(mine); word++)
		for (uint64_t bits = atomic_load(&mine[word]); bits; bits &= bits - 1) {
			uint16_t slot = (uint16_t)(word * 64 + (size_t)__builtin_ctzll(bits));
			if (slot != first)
				list[n++] = slot;
		}
	return n;
}

void vb_slot_forget(void)
{
	for (size_t word = 0; word < VB_ARRAY_LEN(mine); word++)
		for (uint64_t bits = atomic_exchange(&mine[word], 0); bits; bits &= bits - 1)
			atomic_store(&inboxes[word * 64 + (size_t)__builtin_ctzll(bits)], 0);
	atomic_store(&first_slot, 0);
}
