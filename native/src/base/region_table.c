// SPDX-License-Identifier: Apache-2.0
/*
 * The table in which queues look up regions. An id consists of an entry's index and its generation,
 * which has 44 bits and never wraps. Entries are reused first in, first out, so that a stale name,
 * with 12 bits of the generation, stays invalid for a long time. Address space for all entries is
 * reserved once; memory is used only for entries that were needed.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "region.h"

/* At least MIN_FREE entries stay free, so that a name is reused only after 67 million closes. */
enum { INDEX_BITS = 20, MIN_FREE = 16384 };
_Static_assert(REGION_TABLE_SIZE == 1u << INDEX_BITS, "an index has INDEX_BITS bits");

struct dg_region_entry *dg_region_table;
atomic_uint dg_fork_generation;
static struct dg_gate *gates;
/* What only this file uses of an entry. */
static struct cold {
	uint64_t generation; /* of the latest region */
	uint32_t next_free;
} *colds;
static uint32_t used, live, free_head = UINT32_MAX, free_tail = UINT32_MAX;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void reserve_addresses(void)
{
	size_t hots = sizeof *dg_region_table * REGION_TABLE_SIZE,
	       gated = hots + sizeof *gates * REGION_TABLE_SIZE,
	       all = gated + sizeof *colds * REGION_TABLE_SIZE;
	void *at = mmap(NULL, all, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return;
	dg_region_table = at;
	gates = (struct dg_gate *)((char *)at + hots);
	colds = (struct cold *)((char *)at + gated);
}

int dg_region_table_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, reserve_addresses);
	return dg_region_table ? 0
			       : dg_fail(ENOMEM, "out of address space for the table of %u regions",
					 REGION_TABLE_SIZE);
}

void dg_region_table_fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_region_table_fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct dg_region_entry *dg_region_table_find(uint32_t name, uint64_t *id)
{
	struct dg_region_entry *entry = region_entry_at(REGION_INDEX(name));
	*id = atomic_load_explicit(&entry->id, memory_order_seq_cst);
	return *id && REGION_NAME(*id) == name ? entry : NULL;
}

void dg_region_table_set_generation(uint32_t index, uint64_t generation)
{
	pthread_mutex_lock(&lock);
	colds[index].generation = generation;
	pthread_mutex_unlock(&lock);
}

static int take_index(uint32_t *index)
{
	if (free_head != UINT32_MAX && used - live > MIN_FREE) {
		*index = free_head;
		free_head = colds[*index].next_free;
		if (free_head == UINT32_MAX)
			free_tail = UINT32_MAX;
		return 0;
	}
	if (used == REGION_TABLE_SIZE)
		return dg_fail(EMFILE,
			       "this process has %u regions open, which is the maximum: close some",
			       REGION_TABLE_SIZE);
	*index = used++;
	return 0;
}

/* Returns the id of the latest region at an index. */
static uint64_t id_at(uint32_t index)
{
	return colds[index].generation << INDEX_BITS | index;
}

static void fill_entry(struct dg_region_entry *entry, uint32_t index,
		       const struct dg_region_entry *init, struct dg_region *r)
{
	/* All fields except id, which holders of a stale id may load at any time. */
	entry->base = init->base;
	entry->size = init->size;
	entry->gate = init->gate;
	entry->region = r;
	entry->access = init->access;
	entry->method = init->method;
	entry->remote = init->remote;
	entry->may_fault = init->may_fault;
	atomic_store(&entry->lost, 0);
	entry->pid = init->pid;
	entry->slot = init->slot;
	entry->device = r->dev->number;
	if (!entry->gate) {
		entry->gate = &gates[index];
		atomic_store(&entry->gate->revoked, 0);
	}
	r->entry = entry;
	/* The name is not 0: a generation whose low bits are 0 is skipped. */
	uint64_t *generation = &colds[index].generation;
	*generation += (*generation + 1) << INDEX_BITS & UINT32_MAX ? 1 : 2;
	r->index = index;
	r->name = REGION_NAME(id_at(index));
}

int dg_region_table_add(struct dg_region *r, const struct dg_region_entry *init)
{
	struct dg_device *dev = r->dev;
	uint32_t index = 0;
	pthread_mutex_lock(&lock);
	int rc = take_index(&index);
	if (!rc) {
		live++;
		fill_entry(region_entry_at(index), index, init, r);
	}
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	pthread_mutex_lock(&dev->lock);
	r->next = dev->regions;
	if (r->next)
		r->next->prev = r;
	dev->regions = r;
	pthread_mutex_unlock(&dev->lock);
	/* Everything above is visible before the id can be found. */
	atomic_store_explicit(&r->entry->id, id_at(r->index), memory_order_seq_cst);
	return 0;
}

void dg_region_table_remove(struct dg_region *r)
{
	struct dg_device *dev = r->dev;
	pthread_mutex_lock(&dev->lock);
	if (r->prev)
		r->prev->next = r->next;
	else
		dev->regions = r->next;
	if (r->next)
		r->next->prev = r->prev;
	pthread_mutex_unlock(&dev->lock);
	pthread_mutex_lock(&lock);
	colds[r->index].next_free = UINT32_MAX;
	if (free_tail == UINT32_MAX)
		free_head = r->index;
	else
		colds[free_tail].next_free = r->index;
	free_tail = r->index;
	live--;
	pthread_mutex_unlock(&lock);
}
