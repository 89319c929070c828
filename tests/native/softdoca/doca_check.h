/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of tasks: a rig is a device, a progress engine, a DMA context and two maps, and records
 * the arguments of the callbacks. Every wait has a time limit.
 */
#ifndef SOFTDOCA_DOCA_CHECK_H
#define SOFTDOCA_DOCA_CHECK_H

#include "memory_check.h"

#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_pe.h>
#include <poll.h>
#include <sys/mman.h>
#include <time.h>

#define CHECK_DOCA(call, want) check_doca(__FILE__, __LINE__, #call, call, want)
#define WAIT_SECONDS 30
#define MEMCPY_LIMIT ((size_t)2 << 20)

struct rig {
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_buf_inventory *inv;
	struct doca_mmap *from_map, *to_map;
	uint8_t *from, *to;
	size_t size;
	uint32_t tasks;
	bool free_in_callback;
	/* what the callbacks have recorded */
	unsigned done, failed;
	doca_error_t last;
	uint64_t order[4096]; /* user data of the tasks, in the order of their completion */
	enum doca_ctx_states seen[16];
	unsigned n_seen;
};

UNUSED static void check_doca(const char *file, int line, const char *call, doca_error_t got,
			      doca_error_t want)
{
	if (got != want)
		check_failed(file, line, "%s is %s, not %s", call, doca_error_get_name(got),
			     doca_error_get_name(want));
}

UNUSED static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Fills bytes with a pattern that is the same for the same seed, and differs between positions. */
UNUSED static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed + 1);
}

UNUSED static uint8_t *pages(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

/* ---- the callbacks: they record the task, and free it on request ---- */

UNUSED static void note(struct rig *r, struct doca_dma_task_memcpy *t, union doca_data task_data,
			unsigned *count)
{
	struct doca_task *task = doca_dma_task_memcpy_as_task(t);

	r->last = doca_task_get_status(task);
	r->order[(r->done + r->failed) % (sizeof(r->order) / sizeof(r->order[0]))] = task_data.u64;
	++*count;
	if (r->free_in_callback)
		doca_task_free(task);
}

UNUSED static void on_done(struct doca_dma_task_memcpy *t, union doca_data task_data,
			   union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	note(r, t, task_data, &r->done);
}

UNUSED static void on_error(struct doca_dma_task_memcpy *t, union doca_data task_data,
			    union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	note(r, t, task_data, &r->failed);
}

UNUSED static void on_state(const union doca_data user_data, struct doca_ctx *ctx,
			    enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct rig *r = user_data.ptr;

	CHECK(ctx == r->ctx);
	CHECK_EQ(prev, r->n_seen ? r->seen[r->n_seen - 1] : DOCA_CTX_STATE_IDLE);
	CHECK(r->n_seen < sizeof(r->seen) / sizeof(r->seen[0]));
	r->seen[r->n_seen++] = next;
}

/* ---- a rig ---- */

/* Does everything except the start. */
UNUSED static void rig_make(struct rig *r, size_t size, uint32_t tasks)
{
	union doca_data data = { .ptr = r };

	memset(r, 0, sizeof(*r));
	r->free_in_callback = true;
	r->size = size;
	r->tasks = tasks;
	r->dev = a_dev();
	r->from = pages(size);
	r->to = pages(size);
	r->from_map = a_started_map(r->dev, r->from, size, READ_WRITE);
	r->to_map = a_started_map(r->dev, r->to, size, READ_WRITE);
	r->inv = an_inventory(4096);
	OK(doca_pe_create(&r->pe));
	OK(doca_dma_create(r->dev, &r->dma));
	r->ctx = doca_dma_as_ctx(r->dma);
	CHECK(r->ctx);
	OK(doca_dma_task_memcpy_set_conf(r->dma, on_done, on_error, tasks));
	OK(doca_ctx_set_user_data(r->ctx, data));
	OK(doca_ctx_set_state_changed_cb(r->ctx, on_state));
	OK(doca_pe_connect_ctx(r->pe, r->ctx));
}

UNUSED static void rig_open(struct rig *r, size_t size, uint32_t tasks)
{
	rig_make(r, size, tasks);
	OK(doca_ctx_start(r->ctx));
}

UNUSED static enum doca_ctx_states state_of(const struct rig *r)
{
	enum doca_ctx_states s;

	OK(doca_ctx_get_state(r->ctx, &s));
	return s;
}

UNUSED static size_t in_flight(const struct rig *r)
{
	size_t of_ctx, of_pe;

	OK(doca_ctx_get_num_inflight_tasks(r->ctx, &of_ctx));
	OK(doca_pe_get_num_inflight_tasks(r->pe, &of_pe));
	CHECK(of_pe >= of_ctx);
	return of_ctx;
}

/* Progresses until this many tasks have ended, successfully or not. */
UNUSED static void run_until(struct rig *r, unsigned ended)
{
	double end = now_s() + WAIT_SECONDS;

	while (r->done + r->failed < ended) {
		if (!doca_pe_progress(r->pe) && now_s() > end)
			check_failed(__FILE__, __LINE__, "%u of %u tasks ended",
				     r->done + r->failed, ended);
	}
}

UNUSED static void run_until_idle(struct rig *r)
{
	double end = now_s() + WAIT_SECONDS;

	while (state_of(r) != DOCA_CTX_STATE_IDLE)
		if (!doca_pe_progress(r->pe) && now_s() > end)
			check_failed(__FILE__, __LINE__, "the context is in state %d",
				     state_of(r));
}

/* Frees everything but the context. Each call must succeed, so nothing may be left in use. */
UNUSED static void rig_free(struct rig *r)
{
	OK(doca_pe_destroy(r->pe));
	CHECK_EQ(free_bufs(r->inv), 4096);
	OK(doca_buf_inventory_destroy(r->inv));
	OK(doca_mmap_destroy(r->from_map));
	OK(doca_mmap_destroy(r->to_map));
	OK(doca_dev_close(r->dev));
	munmap(r->from, r->size);
	munmap(r->to, r->size);
}

/* Drops buffers. */
#define drop(...) drop_each((struct doca_buf *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
UNUSED static void drop_each(struct doca_buf **bufs)
{
	for (; *bufs; bufs++)
		OK(doca_buf_dec_refcount(*bufs, NULL));
}

/* Stops and destroys the context, and frees the rest. */
UNUSED static void rig_close(struct rig *r)
{
	doca_error_t error = doca_ctx_stop(r->ctx);

	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
	run_until_idle(r);
	OK(doca_dma_destroy(r->dma));
	rig_free(r);
}

/* The same after dropping the buffers that are given. */
#define rig_close(rig, ...) (drop(__VA_ARGS__), (rig_close)(rig))

/* ---- tasks ---- */

/* A source buffer with n bytes of data at an offset; a destination buffer with room for n bytes. */
UNUSED static struct doca_buf *source(struct rig *r, size_t offset, size_t n)
{
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_data(r->inv, r->from_map, r->from + offset, n, &b));
	return b;
}

UNUSED static struct doca_buf *target(struct rig *r, size_t offset, size_t n)
{
	return a_buf(r->inv, r->to_map, r->to + offset, n);
}

UNUSED static struct doca_dma_task_memcpy *a_memcpy(struct rig *r, const struct doca_buf *src,
						    struct doca_buf *dst, uint64_t user)
{
	union doca_data data = { .u64 = user };
	struct doca_dma_task_memcpy *t;

	OK(doca_dma_task_memcpy_alloc_init(r->dma, src, dst, data, &t));
	return t;
}

UNUSED static struct doca_task *a_task(struct rig *r, const struct doca_buf *src,
				       struct doca_buf *dst, uint64_t user)
{
	return doca_dma_task_memcpy_as_task(a_memcpy(r, src, dst, user));
}

UNUSED static size_t data_len(const struct doca_buf *b)
{
	size_t n;

	OK(doca_buf_get_data_len(b, &n));
	return n;
}

/* Executes one memcpy and returns its status. The caller keeps the buffers. */
UNUSED static doca_error_t copied(struct rig *r, const struct doca_buf *src, struct doca_buf *dst)
{
	unsigned before = r->done + r->failed;

	OK(doca_task_submit(a_task(r, src, dst, 0)));
	run_until(r, before + 1);
	return r->last;
}

/* Does the same between offsets. */
UNUSED static doca_error_t copied_at(struct rig *r, size_t from, size_t to, size_t n)
{
	struct doca_buf *src = source(r, from, n), *dst = target(r, to, n);
	doca_error_t status = copied(r, src, dst);

	CHECK_EQ(data_len(dst), status == DOCA_SUCCESS ? n : 0);
	drop(src);
	drop(dst);
	return status;
}

#endif
