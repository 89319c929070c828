/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of an RDMA connection: a context, and memory for the peer. The sides find each other by two
 * files: the responder, which is started first, writes its connection details to one and waits for the
 * requester's. On two machines, copy each to the other.
 */
#ifndef SAMPLES_RDMA_PAIR_H
#define SAMPLES_RDMA_PAIR_H

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_rdma.h>

#include "sample.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PAIR_BYTES TEXT_MAX

struct pair {
	bool requester;
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_rdma *rdma;
	struct doca_ctx *ctx;
	struct doca_rdma_connection *connection;
	struct doca_buf_inventory *inventory;
	struct doca_mmap *map, *far; /* far: the peer's memory */
	char *memory; /* set by the program, with its size, or allocated: PAIR_BYTES */
	size_t bytes;
	bool allocated;
	void *far_memory; /* its address there */
	bool done; /* set by the callbacks of a task */
	doca_error_t result;
	char mine[TEXT_MAX + 16]; /* the file that this side wrote; "" before */
};

/* Opens a device and creates the context, for the program to configure tasks whose callbacks get the pair
 * as the context's data; then starts it. */
doca_error_t pair_open(struct pair *p, const struct options *o);
doca_error_t pair_start(struct pair *p);
/* Connects the two sides; returns when both files are read. */
doca_error_t pair_meet(struct pair *p, const struct options *o);
/* Submits the task, and waits for its callback. */
doca_error_t pair_run(struct pair *p, struct doca_task *task);
/* Records the result of a task, and frees it. */
void pair_ended(struct pair *p, struct doca_task *task);
void pair_close(struct pair *p);

#ifdef __cplusplus
}
#endif

#endif
