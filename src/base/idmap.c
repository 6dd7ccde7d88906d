/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/idmap.h"

#include <errno.h>
#include <stdlib.h>

enum { WORD_BITS = 64 };

static uint32_t word_count(const struct vb_idmap *m)
{
	return m->count / WORD_BITS + (m->count % WORD_BITS != 0);
}

int vb_idmap_init(struct vb_idmap *m, uint32_t count)
{
	if (!count)
		return -EINVAL;
	*m = (struct vb_idmap){ .count = count };
	m->words = calloc(word_count(m), sizeof *m->words);
	if (!m->words)
		return -ENOMEM;
	if (count % WORD_BITS)
		m->words[word_count(m) - 1] = ~0ull << count % WORD_BITS;
	return 0;
}

void vb_idmap_destroy(struct vb_idmap *m)
{
	free(m->words);
	*m = (struct vb_idmap){ 0 };
}

static void mark(struct vb_idmap *m, uint32_t id)
{
	m->words[id / WORD_BITS] |= 1ull << id % WORD_BITS;
	m->taken++;
	m->next = id + 1 < m->count ? id + 1 : 0;
}

int vb_idmap_take_lowest(struct vb_idmap *m, uint32_t *id)
{
	if (m->taken == m->count)
		return -ENOSPC;
	while (m->words[m->low_word] == ~0ull)
		m->low_word++;
	*id = m->low_word * WORD_BITS + (uint32_t)__builtin_ctzll(~m->words[m->low_word]);
	mark(m, *id);
	return 0;
}

int vb_idmap_take_rotating(struct vb_idmap *m, uint32_t *id)
{
	if (m->taken == m->count)
		return -ENOSPC;
	uint32_t w = m->next / WORD_BITS;
	uint64_t free_bits = ~m->words[w] & (~0ull << m->next % WORD_BITS);
	while (!free_bits) {
		w = w + 1 < word_count(m) ? w + 1 : 0;
		free_bits = ~m->words[w];
	}
	*id = w * WORD_BITS + (uint32_t)__builtin_ctzll(free_bits);
	mark(m, *id);
	return 0;
}

int vb_idmap_take(struct vb_idmap *m, uint32_t id)
{
	if (id >= m->count)
		return -EINVAL;
	if (vb_idmap_is_taken(m, id))
		return -EBUSY;
	mark(m, id);
	return 0;
}

void vb_idmap_put(struct vb_idmap *m, uint32_t id)
{
	m->words[id / WORD_BITS] &= ~(1ull << id % WORD_BITS);
	m->taken--;
	if (id / WORD_BITS < m->low_word)
		m->low_word = id / WORD_BITS;
}

bool vb_idmap_is_taken(const struct vb_idmap *m, uint32_t id)
{
	return id < m->count && (m->words[id / WORD_BITS] >> id % WORD_BITS & 1);
}
