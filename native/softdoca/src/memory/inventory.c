// SPDX-License-Identifier: Apache-2.0
/*
 * Inventories of buffers. All buffers are allocated by create() and expand(): taking or returning a
 * buffer needs no allocation. Threads may share an inventory. Sources:
 * "DOCA Buf Inventory" is the published reference of that library; "guess" marks an assumption that
 * no published source confirms.
 */
#include "memory.h"

#include <stdlib.h>
#include <unistd.h>

/* Returns whether n buffers fit in half of the machine's memory; more is considered a mistake. */
static bool room_for(size_t n)
{
	size_t half = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
	return softdoca_object_room(sizeof(struct doca_buf), n) &&
	       n <= half / sizeof(struct doca_buf);
}

static void end_bufs(struct doca_buf_inventory *inv, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		softdoca_object_free(inv->all[i]);
}

/* Adds n buffers: all of them or none. */
static bool grow(struct doca_buf_inventory *inv, size_t n)
{
	size_t total;
	if (__builtin_add_overflow(inv->n, n, &total) || !room_for(n))
		return false;
	struct doca_buf **all = realloc(inv->all, total * sizeof(struct doca_buf *));
	if (!all)
		return false;
	inv->all = all;
	for (size_t i = inv->n; i < total; i++) {
		all[i] = softdoca_object_new(OBJECT_BUF_IDLE, sizeof(struct doca_buf));
		if (!all[i]) {
			end_bufs(inv, inv->n, i);
			return false;
		}
		all[i]->inventory = inv;
	}
	/* Order the free list so that the lowest address is taken first. */
	for (size_t i = total; i-- > inv->n;) {
		all[i]->next_free = inv->free;
		inv->free = all[i];
	}
	inv->n = total;
	inv->n_free += n;
	return true;
}

doca_error_t doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory)
{
	CHECK_OUT(inventory);
	if (!num_elements) /* DOCA Buf Inventory: invalid input */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "an inventory needs at least 1 buffer");
	struct doca_buf_inventory *inv = softdoca_object_new(OBJECT_INVENTORY, sizeof *inv);
	if (inv && grow(inv, num_elements)) {
		*inventory = inv;
		return DOCA_SUCCESS;
	}
	if (inv) {
		free(inv->all);
		softdoca_object_free(inv);
	}
	return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu buffers", num_elements);
}

doca_error_t doca_buf_inventory_expand(struct doca_buf_inventory *inventory, uint32_t num_elements)
{
	CHECK_INVENTORY(inventory);
	if (!num_elements) /* DOCA Buf Inventory: invalid input */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the number of buffers to add is 0");
	if (!inventory->started) /* DOCA Buf Inventory, doca_buf_inventory_expand */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the inventory is not started");
	inventory_lock(inventory);
	const bool grown = grow(inventory, num_elements);
	inventory_unlock(inventory);
	if (!grown)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u more buffers", num_elements);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory)
{
	CHECK_INVENTORY(inventory);
	struct doca_buf_inventory *inv = inventory;
	if (inv->n_free != inv->n) /* DOCA Buf Inventory, doca_buf_inventory_destroy */
		return REFUSE(DOCA_ERROR_IN_USE, "%zu of its %zu buffers were not returned",
			      inv->n - inv->n_free, inv->n);
	end_bufs(inv, 0, inv->n);
	free(inv->all);
	softdoca_object_free(inv);
	return DOCA_SUCCESS;
}

/* DOCA Buf Inventory lists no error for a second start, or a stop without start. SUCCESS: guess. */
doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory)
{
	CHECK_INVENTORY(inventory);
	inventory->started = true;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory)
{
	CHECK_INVENTORY(inventory);
	inventory->started = false;
	return DOCA_SUCCESS;
}

GETTER(doca_buf_inventory_get_num_elements, CHECK_INVENTORY, const struct doca_buf_inventory,
       uint32_t, (uint32_t)handle->n)
GETTER(doca_buf_inventory_get_num_free_elements, CHECK_INVENTORY, const struct doca_buf_inventory,
       uint32_t, (uint32_t)handle->n_free)

/* DOCA Buf Inventory lists BAD_STATE for the start state ambiguously. Published programs set user
 * data before the start, so a started inventory is refused: guess. */
doca_error_t doca_buf_inventory_set_user_data(struct doca_buf_inventory *inventory,
					      union doca_data user_data)
{
	CHECK_INVENTORY(inventory);
	if (inventory->started)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the inventory is started");
	inventory->user_data = user_data;
	return DOCA_SUCCESS;
}

GETTER(doca_buf_inventory_get_user_data, CHECK_INVENTORY, const struct doca_buf_inventory,
       union doca_data, handle->user_data)

static struct doca_buf *take_locked(struct doca_buf_inventory *inv)
{
	struct doca_buf *b = inv->free;
	if (!b)
		return NULL;
	inv->free = b->next_free;
	inv->n_free--;
	b->refcount = 1;
	b->next = NULL;
	b->first = b->last = b;
	b->list_len = 1;
	atomic_store_explicit(&b->owner, NULL, memory_order_relaxed); /* engine.c */
	return b;
}

struct doca_buf *inventory_take(struct doca_buf_inventory *inv)
{
	inventory_lock(inv);
	struct doca_buf *b = take_locked(inv);
	inventory_unlock(inv);
	return b;
}

/* Takes a list of n buffers: all or none. Returns the first. */
static struct doca_buf *take_list(struct doca_buf_inventory *inv, uint32_t n)
{
	struct doca_buf *list = NULL;
	inventory_lock(inv);
	for (uint32_t i = 0; i < n && inv->n_free >= n - i; i++) {
		struct doca_buf *b = take_locked(inv);
		b->next = list;
		list = b;
	}
	inventory_unlock(inv);
	return list;
}

struct doca_buf *inventory_fill(struct doca_buf *b, struct doca_mmap *m, char *head, size_t len,
				char *data, size_t data_len)
{
	b->mmap = m;
	b->head = head;
	b->len = len;
	b->data = data;
	b->data_len = data_len;
	/* relaxed: a statistic without ordering */
	atomic_fetch_add_explicit(&m->bufs, 1, memory_order_relaxed);
	object_become(b, OBJECT_BUF);
	return b;
}

static __attribute__((cold, noinline)) doca_error_t refuse_get(const struct doca_buf_inventory *inv,
							       const struct doca_mmap *m,
							       const void *addr, size_t len,
							       const void *data, size_t data_len)
{
	const char *func = "doca_buf_inventory_buf_get_by_args";
	doca_error_t e = DOCA_ERROR_INVALID_VALUE; /* DOCA Buf Inventory: invalid memory range */
	if (!inv->started || !mmap_started(m)) {
		/* guess: the error documented for doca_buf_inventory_buf_dup */
		e = REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "%s is not started",
			       inv->started ? "the map" : "the inventory");
	} else if (!range_within(addr, len, m->addr, m->len)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func,
			     "%zu bytes at %p are not within the map: %zu bytes at %p", len, addr,
			     m->len, (void *)m->addr);
	} else if (!range_within(data, data_len, addr, len)) { /* DOCA: undefined */
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func,
			     "data of %zu bytes at %p is not within the buffer: %zu bytes at %p",
			     data_len, data, len, addr);
	} else {
		e = REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "all %zu buffers are in use",
			       inv->n); /* DOCA Buf Inventory: empty */
	}
	return e;
}

doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory,
						struct doca_mmap *mmap, void *addr, size_t len,
						void *data, size_t data_len, struct doca_buf **buf)
{
	CHECK_INVENTORY(inventory);
	CHECK_MMAP(mmap);
	CHECK_OUT(buf);
	struct doca_buf *b = NULL;
	if (inventory->started && mmap_started(mmap) &&
	    range_within(addr, len, mmap->addr, mmap->len) &&
	    range_within(data, data_len, addr, len))
		b = inventory_take(inventory);
	if (!b)
		return refuse_get(inventory, mmap, addr, len, data, data_len);
	*buf = inventory_fill(b, mmap, addr, len, data, data_len);
	return DOCA_SUCCESS;
}

/* The refusals are guesses. Public programs call this only for buffers used by one task each. */
doca_error_t doca_buf_inventory_buf_reuse_by_args(struct doca_buf *buf, void *addr, size_t len,
						  void *data, size_t data_len)
{
	CHECK_BUF(buf);
	const struct doca_mmap *m = buf->mmap;
	if (buf->list_len != 1 || buf->first != buf || buf->refcount != 1 || buf_in_tasks(buf) ||
	    buf->inventory->of_pool)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the buffer is in a list or a task, has "
							"several users, or is of a pool");
	if (!mmap_started(m))
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	if (!range_within(addr, len, m->addr, m->len) || !range_within(data, data_len, addr, len))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at %p with %zu at %p: not within the map, %zu at %p", len,
			      addr, data_len, data, m->len, (void *)m->addr);
	buf->head = addr;
	buf->len = len;
	buf->data = data;
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory,
					const struct doca_buf *src_buf, struct doca_buf **dst_buf)
{
	CHECK_INVENTORY(inventory);
	CHECK_BUF(src_buf);
	CHECK_OUT(dst_buf);
	/* DOCA Buf Inventory, doca_buf_inventory_buf_dup. That the head represents its list is a
	 * guess.
 */
	if (!inventory->started || !mmap_started(src_buf->mmap))
		return REFUSE(DOCA_ERROR_BAD_STATE, "%s is not started",
			      inventory->started ? "the map" : "the inventory");
	if (src_buf->first != src_buf)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the buffer is not the first of its list");
	struct doca_buf *const first = take_list(inventory, src_buf->list_len), *b = first, *last = first;
	if (!first)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "%u buffers are needed, %zu are free",
			      src_buf->list_len, inventory->n_free);
	for (const struct doca_buf *s = src_buf; s; s = s->next, b = b->next) {
		inventory_fill(b, s->mmap, s->head, s->len, s->data, s->data_len);
		b->first = first;
		last = b;
	}
	first->last = last;
	first->list_len = src_buf->list_len;
	*dst_buf = first;
	return DOCA_SUCCESS;
}
