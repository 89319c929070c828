// SPDX-License-Identifier: Apache-2.0
/*
 * Local copy: one DMA task copies a text from one buffer of this process to another.
 *
 *	local_copy [--pci-addr 03:00.0] [--text TEXT]
 *
 * This file shows all steps in order; the other samples use copier.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "sample.h"

DOCA_LOG_REGISTER(LOCAL_COPY);

/* All resources, in the order of their creation. */
struct local_copy {
	char *memory; /* the source, then the destination */
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_buf *src, *dst;
	struct doca_task *task;
	bool done, stopping;
	doca_error_t result;
};

static doca_error_t can_copy(const struct doca_devinfo *info)
{
	return doca_dma_cap_task_memcpy_is_supported(info);
}

/* Called from doca_pe_progress(), never from doca_task_submit(). */
static void copied(struct doca_dma_task_memcpy *task, union doca_data task_data,
		   union doca_data ctx_data)
{
	struct local_copy *l = ctx_data.ptr;

	(void)task_data;
	l->result = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
	l->done = true;
}

static void state_changed(const union doca_data data, struct doca_ctx *ctx,
			  enum doca_ctx_states before, enum doca_ctx_states now)
{
	static const char *const names[] = {"idle", "starting", "running", "stopping"};

	(void)data;
	(void)ctx;
	DOCA_LOG_INFO("The DMA context was %s and is %s", names[before], names[now]);
}

/* Steps 1 to 3: a device that can copy, maps of memory, an inventory of buffers. */
static doca_error_t open_memory(struct local_copy *l, const struct options *o, size_t size)
{
	TRY(open_device(o->pci, can_copy, &l->dev));

	TRY_DOCA(doca_mmap_create(&l->map));
	TRY_DOCA(doca_mmap_set_memrange(l->map, l->memory, 2 * size));
	TRY_DOCA(doca_mmap_add_dev(l->map, l->dev));
	TRY_DOCA(doca_mmap_start(l->map));

	TRY_DOCA(doca_buf_inventory_create(2, &l->inventory));
	TRY_DOCA(doca_buf_inventory_start(l->inventory));
	return DOCA_SUCCESS;
}

/* Steps 4 and 5: a progress engine and a DMA context, configured before its start. */
static doca_error_t open_context(struct local_copy *l)
{
	union doca_data data = {.ptr = l};

	TRY_DOCA(doca_pe_create(&l->pe));
	TRY_DOCA(doca_dma_create(l->dev, &l->dma));
	l->ctx = doca_dma_as_ctx(l->dma);
	TRY_DOCA(doca_ctx_set_user_data(l->ctx, data));
	TRY_DOCA(doca_ctx_set_state_changed_cb(l->ctx, state_changed));
	TRY_DOCA(doca_dma_task_memcpy_set_conf(l->dma, copied, copied, 1));
	TRY_DOCA(doca_pe_connect_ctx(l->pe, l->ctx));
	TRY_DOCA(doca_ctx_start(l->ctx));
	return DOCA_SUCCESS;
}

/* Steps 6 to 8: two buffers, a task, and progress until it is complete. */
static doca_error_t copy(struct local_copy *l, size_t size)
{
	struct doca_dma_task_memcpy *task;
	union doca_data data = {.u64 = 0};

	TRY_DOCA(
		doca_buf_inventory_buf_get_by_data(l->inventory, l->map, l->memory, size, &l->src));
	TRY_DOCA(doca_buf_inventory_buf_get_by_addr(l->inventory, l->map, l->memory + size, size,
						    &l->dst));
	TRY_DOCA(doca_dma_task_memcpy_alloc_init(l->dma, l->src, l->dst, data, &task));
	l->task = doca_dma_task_memcpy_as_task(task);
	TRY_DOCA(doca_task_submit(l->task));
	DOCA_LOG_INFO("Submitted a copy of %zu bytes", size);
	while (!l->done) {
		if (doca_pe_progress(l->pe) || l->stopping || !stopped())
			continue;
		l->stopping = true; /* After Ctrl-C the callback is still called. */
		doca_ctx_stop(l->ctx);
	}
	return l->result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("The copy", l->result);
}

/* Step 9: releases everything in reverse order. */
static void give_back(struct local_copy *l)
{
	enum doca_ctx_states state;

	if (l->task)
		doca_task_free(l->task);
	if (l->ctx)
		doca_ctx_stop(l->ctx);
	while (l->ctx && doca_ctx_get_state(l->ctx, &state) == DOCA_SUCCESS &&
	       state == DOCA_CTX_STATE_STOPPING)
		doca_pe_progress(l->pe);
	if (l->dst)
		doca_buf_dec_refcount(l->dst, NULL);
	if (l->src)
		doca_buf_dec_refcount(l->src, NULL);
	if (l->dma)
		doca_dma_destroy(l->dma);
	if (l->pe)
		doca_pe_destroy(l->pe);
	if (l->inventory)
		doca_buf_inventory_destroy(l->inventory);
	if (l->map)
		doca_mmap_destroy(l->map);
	if (l->dev)
		doca_dev_close(l->dev);
	free(l->memory);
}

static doca_error_t local_copy(struct local_copy *l, const struct options *o)
{
	size_t size = strlen(o->text) + 1;

	l->memory = calloc(2, size);
	if (!l->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	memcpy(l->memory, o->text, size);
	TRY(open_memory(l, o, size));
	TRY(open_context(l));
	TRY(copy(l, size));
	if (memcmp(l->memory, l->memory + size, size)) {
		DOCA_LOG_ERR("The destination differs from the source");
		return DOCA_ERROR_UNEXPECTED;
	}
	print_text("copied", l->memory + size, size);
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text, copied by DMA"};
	struct local_copy l = {.done = false};
	doca_error_t result = sample_begin(argc, argv, "local_copy", WANT_TEXT, &o);

	if (result == DOCA_SUCCESS)
		result = local_copy(&l, &o);
	give_back(&l);
	return sample_end(result);
}
