/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static vb_numbers_entry *find(struct vb_numbers *t, int number)
{
	if (number < 0 || number >= VB_NUMBERS_PAGE * VB_NUMBERS_PAGES)
		return NULL;
	vb_numbers_entry *page =
		atomic_load_explicit(&t->pages[number / VB_NUMBERS_PAGE], memory_order_acquire);
	return page ? &page[number % VB_NUMBERS_PAGE] : NULL;
}

static vb_numbers_entry *find_or_make(struct vb_numbers *t, int number)
{
	vb_numbers_entry *page, *none = NULL;

	if (number < 0 || number >= VB_NUMBERS_PAGE * VB_NUMBERS_PAGES)
		return NULL;
	if (!find(t, number)) {
		page = calloc(VB_NUMBERS_PAGE, sizeof(*page));
		if (!page)
			return NULL;
		if (!atomic_compare_exchange_strong(&t->pages[number / VB_NUMBERS_PAGE], &none, page))
			free(page); /* another thread made it */
	}
	return find(t, number);
}

static struct vb_numbered *take_recycled(struct vb_numbers *t)
{
	vb_lock(&t->lock);
	struct vb_numbered *n = t->recycled;
	if (n)
		t->recycled = n->next_free;
	vb_unlock(&t->lock);
	return n;
}

struct vb_numbered *vb_numbers_create(struct vb_numbers *t)
{
	struct vb_numbered *n = take_recycled(t);

	if (n)
		/* not the head: late lookups may be using its count */
		memset(n + 1, 0, t->object_bytes - sizeof(*n));
	else
		n = calloc(1, t->object_bytes);
	if (n)
		atomic_fetch_add(&n->refs, 1);
	return n;
}

int vb_numbers_publish(struct vb_numbers *t, struct vb_numbered *n, int number)
{
	vb_numbers_entry *e = find_or_make(t, number);

	if (!e)
		return -ENOMEM;
	atomic_fetch_add(&n->refs, 1);
	atomic_fetch_add(&n->numbers, 1);
	atomic_store(e, n);
	return 0;
}

struct vb_numbered *vb_numbers_get(struct vb_numbers *t, int number)
{
	vb_numbers_entry *e = find(t, number);
	struct vb_numbered *n = e ? atomic_load_explicit(e, memory_order_acquire) : NULL;

	if (!n)
		return NULL;
	atomic_fetch_add(&n->refs, 1);
	if (atomic_load(e) == n)
		return n;
	vb_numbers_put(t, n);
	return NULL;
}

void vb_numbers_put(struct vb_numbers *t, struct vb_numbered *n)
{
	/* is_closed is exchanged: with late lookups, several references may be the last one */
	if (atomic_fetch_sub(&n->refs, 1) != 1 || !atomic_exchange(&n->is_closed, false))
		return;
	t->finish(n);
	vb_lock(&t->lock);
	n->next_free = t->recycled;
	t->recycled = n;
	vb_unlock(&t->lock);
}

bool vb_numbers_withdraw(struct vb_numbers *t, struct vb_numbered *n, int number)
{
	struct vb_numbered *expected = n;
	vb_numbers_entry *e = find(t, number);

	if (!e || !atomic_compare_exchange_strong(e, &expected, NULL))
		return false;
	if (atomic_fetch_sub(&n->numbers, 1) == 1)
		n->is_closed = true;
	vb_numbers_put(t, n);
	return true;
}

void vb_numbers_discard(struct vb_numbers *t, struct vb_numbered *n)
{
	n->is_closed = true;
	vb_numbers_put(t, n);
}
