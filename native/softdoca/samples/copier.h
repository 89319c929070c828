/* SPDX-License-Identifier: Apache-2.0 */
/* A DMA context with everything that it needs, for copies one after the other. local_copy.c shows
 * each step. */
#ifndef SAMPLES_COPIER_H
#define SAMPLES_COPIER_H

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "sample.h"

struct copier {
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_buf_inventory *inventory;
	uint64_t max_size; /* of one copy */
};

/* Opens a copier; *c must be zero. Even after a failure, call copier_stop(), destroy the maps, then
 * call copier_close(). */
doca_error_t copier_open(struct copier *c, const char *pci, size_t bufs);
/* The same with c->dev already open. */
doca_error_t copier_open_on(struct copier *c, size_t bufs);
void copier_stop(struct copier *c);
void copier_close(struct copier *c);
/* Copies `size` bytes at src to dst, in as many tasks as the device's limit requires. */
doca_error_t copier_copy(struct copier *c, struct doca_mmap *from, void *src, struct doca_mmap *to,
			 void *dst, size_t size);
/* Creates a started map of this process's memory for that device. Even after a failure *map may be
 * set; the caller destroys it. */
doca_error_t map_memory(struct doca_dev *dev, void *addr, size_t size, uint32_t access,
			struct doca_mmap **map);

#endif
