/* A library in front of softdoca that differs from it: preloaded behind the recorder, it takes the
 * place of a real DOCA that differs. PLANTED is a letter for each group of differences. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_sync_event.h>

#define NEXT(f) ((__typeof__(f) *)dlsym(RTLD_NEXT, #f))

static int planted(char group)
{
	const char *groups = getenv("PLANTED");

	return groups && strchr(groups, group);
}

/* ---- v: values and results ---- */

#define ADDS(f, declared, passed, out) \
	doca_error_t f declared \
	{ \
		doca_error_t result = NEXT(f) passed; \
		*out += planted('v'); \
		return result; \
	}

ADDS(doca_dma_cap_task_memcpy_get_max_buf_size, (const struct doca_devinfo *info, uint64_t *out), (info, out), out)
ADDS(doca_mmap_get_max_num_devices, (const struct doca_mmap *map, uint32_t *out), (map, out), out)
ADDS(doca_mmap_get_num_bufs, (const struct doca_mmap *map, uint32_t *out), (map, out), out)
ADDS(doca_buf_get_data_len, (const struct doca_buf *buf, size_t *out), (buf, out), out)
ADDS(doca_buf_inc_refcount, (struct doca_buf *buf, uint16_t *out), (buf, out), out)
ADDS(doca_sync_event_get, (struct doca_sync_event *event, uint64_t *out), (event, out), out)
ADDS(doca_pe_get_num_inflight_tasks, (const struct doca_pe *pe, size_t *out), (pe, out), out)

doca_error_t doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state)
{
	doca_error_t result = NEXT(doca_ctx_get_state)(ctx, state);

	*state = planted('v') ? DOCA_CTX_STATE_STARTING : *state;
	return result;
}

doca_error_t doca_task_get_status(const struct doca_task *task)
{
	doca_error_t result = NEXT(doca_task_get_status)(task);

	return planted('v') ? DOCA_ERROR_IO_FAILED : result;
}

doca_error_t doca_mmap_add_dev(struct doca_mmap *map, struct doca_dev *dev)
{
	doca_error_t result = NEXT(doca_mmap_add_dev)(map, dev);

	return planted('v') && result ? DOCA_ERROR_IN_USE : result;
}

struct doca_ctx *doca_task_get_ctx(const struct doca_task *task)
{
	return planted('v') ? NULL : NEXT(doca_task_get_ctx)(task);
}

/* ---- o: completions in another order; t: the third twice; d: with other data ---- */

static doca_dma_task_memcpy_completion_cb_t completed;
static struct doca_dma_task_memcpy *held;
static union doca_data held_data;
static int count;

static void complete(struct doca_dma_task_memcpy *task, union doca_data data,
		     union doca_data ctx_data)
{
	if (planted('o') && !held) {
		held = task;
		held_data = data;
		return;
	}
	data.u64 += 8 * planted('d');
	completed(task, data, ctx_data);
	if (planted('t') && ++count == 3)
		completed(task, data, ctx_data);
	if (held && planted('o') && held != task)
		completed(held, held_data, ctx_data);
	if (planted('o'))
		held = task; /* only once */
}

doca_error_t doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
					   doca_dma_task_memcpy_completion_cb_t done,
					   doca_dma_task_memcpy_completion_cb_t failed, uint32_t n)
{
	completed = done;
	(void)failed;
	return NEXT(doca_dma_task_memcpy_set_conf)(dma, complete, complete, n);
}

/* ---- s: a state that softdoca does not have; m: a change of state is not reported ---- */

static doca_ctx_state_changed_callback_t changed;

static void change(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states before,
		   enum doca_ctx_states now)
{
	if (planted('s') && now == DOCA_CTX_STATE_IDLE) {
		changed(data, ctx, before, DOCA_CTX_STATE_STOPPING);
		before = DOCA_CTX_STATE_STOPPING;
	}
	if (!planted('m'))
		changed(data, ctx, before, now);
}

doca_error_t doca_ctx_set_state_changed_cb(struct doca_ctx *ctx, doca_ctx_state_changed_callback_t cb)
{
	changed = cb;
	return NEXT(doca_ctx_set_state_changed_cb)(ctx, change);
}
