// SPDX-License-Identifier: Apache-2.0
/*
 * The table of regions that queues look ids up in. An id is an entry's index and its generation.
 * Entries are reused first in, first out, so that an old id stays unknown for long. Address space for
 * all of them is reserved once; memory is used for those that were needed.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"
#include "region.h"

/* RESTING free entries are not reused yet, so that an id comes back after 67 million closes. */
enum { GENERATIONS = 0xfff, RESTING = 16384 };

struct dg_hot *dg_table;
static struct dg_gate *gates;
static uint32_t used, live, free_head = UINT32_MAX, free_tail = UINT32_MAX;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void reserve(void)
{
	size_t hots = sizeof *dg_table * TABLE_SIZE, all = hots + sizeof *gates * TABLE_SIZE;
	void *at = mmap(NULL, all, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return;
	dg_table = at;
	gates = (struct dg_gate *)((char *)at + hots);
}

int dg_table_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, reserve);
	return dg_table ? 0
			: dg_fail(ENOMEM, "no address space for the table of %u regions",
				  TABLE_SIZE);
}

void dg_table_fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_table_fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct dg_hot *dg_table_find(uint32_t id)
{
	struct dg_hot *hot = hot_at(REGION_INDEX(id));
	return id && atomic_load_explicit(&hot->id, memory_order_seq_cst) == id ? hot : NULL;
}

static int take(uint32_t *index)
{
	if (free_head != UINT32_MAX && used - live > RESTING) {
		*index = free_head;
		free_head = hot_at(*index)->next_free;
		if (free_head == UINT32_MAX)
			free_tail = UINT32_MAX;
		return 0;
	}
	if (used == TABLE_SIZE)
		return dg_fail(EMFILE, "a process holds at most %u regions", TABLE_SIZE);
	*index = used++;
	return 0;
}

static void fill(struct dg_hot *hot, uint32_t index, const struct dg_hot *init, struct dg_region *r)
{
	uint32_t generation = hot->generation % GENERATIONS + 1;
	/* All but id: whoever still has the old one looks at it now. */
	hot->base = init->base;
	hot->size = init->size;
	hot->gate = init->gate;
	hot->region = r;
	hot->access = init->access;
	hot->method = init->method;
	hot->remote = init->remote;
	hot->may_fault = init->may_fault;
	atomic_store(&hot->lost, 0);
	hot->pid = init->pid;
	hot->slot = init->slot;
	hot->generation = generation;
	hot->device = r->dev->number;
	if (!hot->gate) {
		hot->gate = &gates[index];
		atomic_store(&hot->gate->revoked, 0);
	}
	r->hot = hot;
	r->index = index;
	r->id = generation << 20 | index;
}

int dg_table_add(struct dg_region *r, const struct dg_hot *init)
{
	struct dg_device *dev = r->dev;
	uint32_t index = 0;
	pthread_mutex_lock(&lock);
	int rc = take(&index);
	if (!rc) {
		live++;
		fill(hot_at(index), index, init, r);
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
	/* Everything above is in place before the id can be found. */
	atomic_store_explicit(&r->hot->id, r->id, memory_order_seq_cst);
	return 0;
}

void dg_table_remove(struct dg_region *r)
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
	r->hot->next_free = UINT32_MAX;
	if (free_tail == UINT32_MAX)
		free_head = r->index;
	else
		hot_at(free_tail)->next_free = r->index;
	free_tail = r->index;
	live--;
	pthread_mutex_unlock(&lock);
}
