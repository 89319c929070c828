// SPDX-License-Identifier: Apache-2.0
#include "copier.h"

#include <doca_log.h>

DOCA_LOG_REGISTER(COPIER);

struct copy {
	bool done;
	doca_error_t result;
};

static void copy_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			   union doca_data ctx_data)
{
	struct copy *copy = task_data.ptr;

	(void)ctx_data;
	copy->result = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
	copy->done = true;
}

static doca_error_t can_copy(const struct doca_devinfo *info)
{
	return doca_dma_cap_task_memcpy_is_supported(info);
}

doca_error_t copier_open(struct copier *c, const char *pci, size_t bufs)
{
	TRY(open_device(pci, can_copy, &c->dev));
	return copier_open_on(c, bufs);
}

doca_error_t copier_open_on(struct copier *c, size_t bufs)
{
	const struct doca_devinfo *info = doca_dev_as_devinfo(c->dev);

	TRY_DOCA(doca_dma_cap_task_memcpy_get_max_buf_size(info, &c->max_size));
	TRY_DOCA(doca_buf_inventory_create(bufs, &c->inventory));
	TRY_DOCA(doca_buf_inventory_start(c->inventory));
	TRY_DOCA(doca_pe_create(&c->pe));
	TRY_DOCA(doca_dma_create(c->dev, &c->dma));
	c->ctx = doca_dma_as_ctx(c->dma);
	TRY_DOCA(doca_dma_task_memcpy_set_conf(c->dma, copy_completed, copy_completed, 1));
	TRY_DOCA(doca_pe_connect_ctx(c->pe, c->ctx));
	TRY_DOCA(doca_ctx_start(c->ctx));
	DOCA_LOG_INFO("A copy has at most %lu bytes", (unsigned long)c->max_size);
	return DOCA_SUCCESS;
}

void copier_stop(struct copier *c)
{
	enum doca_ctx_states state;

	if (!c->ctx)
		return;
	doca_ctx_stop(c->ctx);
	while (doca_ctx_get_state(c->ctx, &state) == DOCA_SUCCESS &&
	       state == DOCA_CTX_STATE_STOPPING)
		doca_pe_progress(c->pe);
}

void copier_close(struct copier *c)
{
	copier_stop(c);
	if (c->dma)
		doca_dma_destroy(c->dma);
	if (c->pe)
		doca_pe_destroy(c->pe);
	if (c->inventory)
		doca_buf_inventory_destroy(c->inventory);
	if (c->dev)
		doca_dev_close(c->dev);
}

/* Copies the data of src to dst, and waits. */
static doca_error_t run(struct copier *c, const struct doca_buf *src, struct doca_buf *dst)
{
	struct copy copy = {.done = false};
	union doca_data data = {.ptr = &copy};
	struct doca_dma_task_memcpy *memcpy_task;
	struct doca_task *task;
	bool stopping = false;

	TRY_DOCA(doca_dma_task_memcpy_alloc_init(c->dma, src, dst, data, &memcpy_task));
	task = doca_dma_task_memcpy_as_task(memcpy_task);
	copy.result = doca_task_submit(task);
	copy.done = copy.result != DOCA_SUCCESS;
	while (!copy.done) {
		if (doca_pe_progress(c->pe) || stopping || !stopped())
			continue;
		/* After Ctrl-C the task may still copy, and its callback is still called. */
		stopping = true;
		doca_ctx_stop(c->ctx);
	}
	doca_task_free(task);
	return copy.result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("The copy", copy.result);
}

static doca_error_t copy_part(struct copier *c, struct doca_mmap *from, char *src,
			      struct doca_mmap *to, char *dst, size_t size)
{
	struct doca_buf *src_buf, *dst_buf;
	doca_error_t result;

	TRY_DOCA(doca_buf_inventory_buf_get_by_data(c->inventory, from, src, size, &src_buf));
	result = doca_buf_inventory_buf_get_by_addr(c->inventory, to, dst, size, &dst_buf);
	if (result == DOCA_SUCCESS) {
		result = run(c, src_buf, dst_buf);
		doca_buf_dec_refcount(dst_buf, NULL);
	} else {
		failed("doca_buf_inventory_buf_get_by_addr", result);
	}
	doca_buf_dec_refcount(src_buf, NULL);
	return result;
}

doca_error_t copier_copy(struct copier *c, struct doca_mmap *from, void *src, struct doca_mmap *to,
			 void *dst, size_t size)
{
	size_t n;

	for (size_t at = 0; at < size; at += n) {
		n = size - at < c->max_size ? size - at : (size_t)c->max_size;
		doca_error_t result = copy_part(c, from, (char *)src + at, to, (char *)dst + at, n);
		if (result != DOCA_SUCCESS)
			return result;
	}
	return DOCA_SUCCESS;
}

doca_error_t map_memory(struct doca_dev *dev, void *addr, size_t size, uint32_t access,
			struct doca_mmap **map)
{
	TRY_DOCA(doca_mmap_create(map));
	TRY_DOCA(doca_mmap_set_memrange(*map, addr, size));
	TRY_DOCA(doca_mmap_set_permissions(*map, access));
	TRY_DOCA(doca_mmap_add_dev(*map, dev));
	TRY_DOCA(doca_mmap_start(*map));
	return DOCA_SUCCESS;
}
