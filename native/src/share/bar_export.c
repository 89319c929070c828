// SPDX-License-Identifier: Apache-2.0
/* The table of a BAR, on the machine that owns the memory. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "error.h"
#include "share/bar.h"

static bool claimed(struct bar_slot *s)
{
	return atomic_load_explicit(&s->claimed, memory_order_seq_cst);
}

static void revoke_all(struct bar_page *p)
{
	for (uint32_t i = 0; i < BAR_SLOTS; i++)
		atomic_store_explicit(&p->slots[i].gate.revoked, 1, memory_order_seq_cst);
}

/* Returns a slot whose import has transfers in flight, or -1. */
static int busy_slot(struct bar_page *p)
{
	for (uint32_t i = 0; i < BAR_SLOTS; i++)
		if (claimed(&p->slots[i]) && !gate_quiet(&p->slots[i].gate))
			return (int)i;
	return -1;
}

uint32_t dg_bar_imports(const struct dg_bar *b, uint32_t page)
{
	struct bar_page *p = bar_page_at(b, page);
	uint32_t n = 0;
	for (uint32_t i = 0; i < BAR_SLOTS; i++)
		n += claimed(&p->slots[i]);
	return n;
}

/* Revokes a page that this process has locked, and frees it if no importer uses it any more.
 * Returns whether it is free. */
static bool settle(struct dg_bar *b, uint32_t page)
{
	struct bar_page *p = bar_page_at(b, page);
	uint32_t state = atomic_load_explicit(&p->export.state, memory_order_seq_cst);
	if (state == BAR_OPEN) /* it was not locked: its process has ended */
		atomic_store_explicit(&p->export.state, BAR_LOST, memory_order_seq_cst);
	if (state != BAR_FREE)
		revoke_all(p);
	if (busy_slot(p) >= 0)
		return false;
	/* No importer moves a byte any more, so the memory may be allocated again. */
	atomic_store_explicit(&p->export.size, 0, memory_order_release);
	if (dg_bar_imports(b, page))
		return false;
	atomic_store_explicit(&p->export.state, BAR_FREE, memory_order_release);
	return true;
}

/* Locks a free page. */
static int take_page(struct dg_bar *b, uint32_t *page)
{
	for (*page = 0; *page < BAR_PAGES; ++*page) {
		if (!dg_bar_hold(b, *page, BAR_SLOTS))
			continue;
		if (settle(b, *page))
			return 0;
		dg_bar_let_go(b, *page, BAR_SLOTS);
	}
	return dg_fail(EMFILE,
		       "the BAR's table has room for %u exports, and each place is in use or has "
		       "importers left: close some regions on either side",
		       BAR_PAGES);
}

static void fill_page(struct bar_page *p, const struct bar_blob *blob)
{
	for (uint32_t i = 0; i < BAR_SLOTS; i++) {
		atomic_store_explicit(&p->slots[i].gate.posted, 0, memory_order_relaxed);
		atomic_store_explicit(&p->slots[i].gate.done, 0, memory_order_relaxed);
		atomic_store_explicit(&p->slots[i].gate.revoked, 0, memory_order_relaxed);
	}
	atomic_store_explicit(&p->export.access, blob->access, memory_order_relaxed);
	atomic_store_explicit(&p->export.offset, blob->offset, memory_order_relaxed);
	atomic_store_explicit(&p->export.size, blob->size, memory_order_relaxed);
	atomic_store_explicit(&p->export.key[0], blob->key[0], memory_order_seq_cst);
	atomic_store_explicit(&p->export.key[1], blob->key[1], memory_order_seq_cst);
	/* Release: an importer that sees OPEN also sees all stores above. */
	atomic_store_explicit(&p->export.state, BAR_OPEN, memory_order_seq_cst);
}

int dg_bar_open(struct dg_bar *b, struct bar_blob *blob)
{
	if (getrandom(blob->key, sizeof blob->key, 0) != sizeof blob->key)
		return dg_fail_errno("cannot get a random key");
	memcpy(blob->id, b->id, sizeof blob->id);
	dg_bar_lock();
	int rc = take_page(b, &blob->page);
	if (!rc)
		fill_page(bar_page_at(b, blob->page), blob);
	dg_bar_unlock();
	return rc;
}

int dg_bar_revoke(struct dg_bar *b, uint32_t page)
{
	struct bar_page *p = bar_page_at(b, page);
	atomic_store_explicit(&p->export.state, BAR_CLOSED, memory_order_seq_cst);
	revoke_all(p);
	return busy_slot(p);
}

void dg_bar_close(struct dg_bar *b, uint32_t page)
{
	dg_bar_lock();
	settle(b, page);
	dg_bar_let_go(b, page, BAR_SLOTS);
	dg_bar_unlock();
}
