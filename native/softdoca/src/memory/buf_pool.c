// SPDX-License-Identifier: Apache-2.0
/* Pools of buffers: an inventory whose buffers have fixed places in a map. Sources: "Buf Pool" is
 * the published reference; "guess" marks an assumption that no published source confirms. */
#include "memory.h"

#include "doca_buf_pool.h"

#define CHECK_POOL(p) CHECK_OBJECT(p, OBJECT_BUF_POOL, "a buffer pool")

struct doca_buf_pool {
	struct object o;
	bool started;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	size_t size, alignment, offset;
	union doca_data user_data;
};

doca_error_t doca_buf_pool_create(size_t num_elements, size_t element_size,
				  const struct doca_mmap *mmap, struct doca_buf_pool **buf_pool)
{
	CHECK_MMAP(mmap);
	CHECK_OUT(buf_pool);
	if (!num_elements || !element_size) /* Buf Pool */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%zu elements of %zu bytes", num_elements,
			      element_size);
	struct doca_buf_pool *p = softdoca_object_new(OBJECT_BUF_POOL, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a buffer pool");
	doca_error_t e = doca_buf_inventory_create(num_elements, &p->inventory);
	if (e) {
		softdoca_object_free(p);
		return e;
	}
	p->inventory->of_pool = true;
	p->map = (struct doca_mmap *)mmap;
	p->size = element_size;
	p->alignment = 1;
	*buf_pool = p;
	return DOCA_SUCCESS;
}

void softdoca_buf_pool_begin_at(struct doca_buf_pool *pool, size_t offset)
{
	pool->offset = offset;
}

static doca_error_t all_returned(const struct doca_buf_pool *p, const char *func)
{
	if (p->inventory->n_free == p->inventory->n)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_IN_USE, "%zu of its %zu buffers were not returned",
			  p->inventory->n - p->inventory->n_free, p->inventory->n); /* Buf Pool */
}

doca_error_t doca_buf_pool_destroy(struct doca_buf_pool *buf_pool)
{
	CHECK_POOL(buf_pool);
	TRY(all_returned(buf_pool, __func__));
	doca_buf_inventory_destroy(buf_pool->inventory);
	softdoca_object_free(buf_pool);
	return DOCA_SUCCESS;
}

static bool map_started(const struct doca_buf_pool *p)
{
	return object_is(p->map, OBJECT_MMAP) && mmap_started(p->map);
}

doca_error_t doca_buf_pool_start(struct doca_buf_pool *buf_pool)
{
	CHECK_POOL(buf_pool);
	struct doca_buf_inventory *inv = buf_pool->inventory;
	const size_t mask = buf_pool->alignment - 1;
	size_t stride, last, total;
	if (!map_started(buf_pool)) /* Buf Pool */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	if (buf_pool->started) /* guess: like an inventory */
		return DOCA_SUCCESS;
	const struct doca_mmap *m = buf_pool->map;
	const size_t skip = buf_pool->offset + (-(uintptr_t)(m->addr + buf_pool->offset) & mask);
	if (__builtin_add_overflow(buf_pool->size, mask, &stride) ||
	    __builtin_mul_overflow(stride & ~mask, inv->n - 1, &last) ||
	    __builtin_add_overflow(last, buf_pool->size, &total) ||
	    __builtin_add_overflow(total, skip, &total) || total > m->len) /* Buf Pool */
		return REFUSE(DOCA_ERROR_INITIALIZATION,
			      "%zu elements of %zu bytes, aligned to %zu, are not within the map: "
			      "%zu bytes at %p",
			      inv->n, buf_pool->size, buf_pool->alignment, m->len, (void *)m->addr);
	for (size_t i = 0; i < inv->n; i++)
		inv->all[i]->head = m->addr + skip + i * (stride & ~mask);
	buf_pool->started = true;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_pool_stop(struct doca_buf_pool *buf_pool)
{
	CHECK_POOL(buf_pool);
	doca_error_t e = all_returned(buf_pool, __func__);
	if (!e)
		buf_pool->started = false;
	return e;
}

doca_error_t doca_buf_pool_buf_alloc(struct doca_buf_pool *buf_pool, struct doca_buf **buf)
{
	CHECK_POOL(buf_pool);
	CHECK_OUT(buf);
	if (!buf_pool->started || !map_started(buf_pool)) /* Buf Pool; guess for the map */
		return REFUSE(DOCA_ERROR_BAD_STATE, "%s is not started",
			      buf_pool->started ? "the map" : "the pool");
	struct doca_buf *b = inventory_take(buf_pool->inventory);
	if (!b) /* Buf Pool */
		return REFUSE(DOCA_ERROR_EMPTY, "all %zu buffers are in use",
			      buf_pool->inventory->n);
	*buf = inventory_fill(b, buf_pool->map, b->head, buf_pool->size, b->head, 0);
	return DOCA_SUCCESS;
}

/* ---- attributes ---- */

static doca_error_t may_set(const struct doca_buf_pool *p, const char *func)
{
	if (!p->started)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the pool is started"); /* Buf Pool */
}

doca_error_t doca_buf_pool_set_user_data(struct doca_buf_pool *buf_pool, union doca_data user_data)
{
	CHECK_POOL(buf_pool);
	doca_error_t e = may_set(buf_pool, __func__);
	if (!e)
		buf_pool->user_data = user_data;
	return e;
}

doca_error_t doca_buf_pool_set_element_alignment(struct doca_buf_pool *buf_pool,
						 size_t element_alignment)
{
	CHECK_POOL(buf_pool);
	if (!element_alignment || element_alignment & (element_alignment - 1)) /* Buf Pool */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "an alignment of %zu, not a power of two",
			      element_alignment);
	doca_error_t e = may_set(buf_pool, __func__);
	if (!e)
		buf_pool->alignment = element_alignment;
	return e;
}

GETTER(doca_buf_pool_get_num_elements, CHECK_POOL, const struct doca_buf_pool, uint32_t,
       (uint32_t)handle->inventory->n)
GETTER(doca_buf_pool_get_num_free_elements, CHECK_POOL, const struct doca_buf_pool, uint32_t,
       (uint32_t)handle->inventory->n_free)
GETTER(doca_buf_pool_get_user_data, CHECK_POOL, const struct doca_buf_pool, union doca_data,
       handle->user_data)
GETTER(doca_buf_pool_get_element_alignment, CHECK_POOL, const struct doca_buf_pool, size_t,
       handle->alignment)
