/* SPDX-License-Identifier: Apache-2.0 */
/* Common part of the samples for DOCA 1.3: one DMA context with one work queue, and its map. */
#ifndef SAMPLES_WORKQ_SAMPLE_H
#define SAMPLES_WORKQ_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_mmap.h>

#define PAGE	 4096 /* the smallest that doca_mmap_populate() takes; the memory need not be aligned */
#define TEXT_MAX 4096

/* Calls a DOCA function; prints an error and returns it from the calling function. */
#define TRY(call)                                         \
	do {                                              \
		doca_error_t try_result = (call);         \
		if (try_result != DOCA_SUCCESS)           \
			return failed(#call, try_result); \
	} while (0)

/* All objects, in the order of their creation. */
struct state {
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_workq *workq;
	bool has_device, started, has_workq; /* of ctx */
};

/* Prints that `what` failed, and returns the error. */
doca_error_t failed(const char *what, doca_error_t error);
/* Opens the first device that can copy, and creates a started map of at most `ranges` ranges. */
doca_error_t open_map(struct state *s, uint32_t ranges);
/* Creates an inventory of two buffers, a DMA context and a work queue. */
doca_error_t open_dma(struct state *s);
/* Copies `size` bytes and waits until they have arrived. */
doca_error_t copy(struct state *s, struct doca_buf *dst, struct doca_buf *src, size_t size);
/* Destroys everything in reverse order. */
void close_all(struct state *s);

/* The Unix socket that sender and receiver meet at: wait for a connection, or connect. Return the
 * connection, or -1. Between machines it would be TCP. */
int accept_one(const char *path);
int connect_to(const char *path);

#endif
