// SPDX-License-Identifier: Apache-2.0
/* The states of contexts and tasks, in order and out of order. */
#include "doca_check.h"

#define SIZE 65536
#define BIG  (48 << 10) /* progress does not copy so much itself */

static void check_seen(const struct rig *r, unsigned n, const enum doca_ctx_states *want)
{
	CHECK_EQ(r->n_seen, n);
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(r->seen[i], want[i]);
}

#define CHECK_SEEN(r, ...)                                                       \
	check_seen(r, sizeof((enum doca_ctx_states[]){ __VA_ARGS__ }) / sizeof(int), \
		   (enum doca_ctx_states[]){ __VA_ARGS__ })

TEST(start_and_stop_of_a_quiet_context_are_at_once)
{
	FIXTURE(rig, r, rig_make, SIZE, 4);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	OK(doca_ctx_start(r.ctx));
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_RUNNING);
	OK(doca_ctx_stop(r.ctx));
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	CHECK_SEEN(&r, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_IDLE);
}

TEST(a_stopped_context_starts_again_and_works)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	for (int i = 0; i < 5; i++) {
		OK(copied_at(&r, 0, 0, 100));
		OK(copied_at(&r, 0, 0, BIG));
		OK(doca_ctx_stop(r.ctx));
		OK(doca_ctx_start(r.ctx));
	}
	CHECK_EQ(r.done, 10);
}

TEST(configuration_has_limits)
{
	uint32_t most;

	FIXTURE(rig, r, rig_make, SIZE, 4);
	OK(doca_dma_cap_get_max_num_tasks(r.dma, &most));
	CHECK_DOCA(doca_dma_task_memcpy_set_conf(r.dma, on_done, on_error, most + 1), DOCA_ERROR_INVALID_VALUE);
	OK(doca_dma_set_ordered_completions(r.dma, 0));
	OK(doca_dma_set_ordered_completions(r.dma, 1));
	OK(doca_dma_task_memcpy_set_conf(r.dma, on_done, on_error, most));
	OK(doca_ctx_start(r.ctx));
	OK(copied_at(&r, 0, 0, 100));
}

TEST(tasks_are_allocated_only_while_it_runs)
{
	struct doca_dma_task_memcpy *t = NULL;
	union doca_data data = { .u64 = 1 };

	FIXTURE(rig, r, rig_make, SIZE, 4);
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(r.dma, NULL, NULL, data, &t),
		   DOCA_ERROR_BAD_STATE);
	OK(doca_ctx_start(r.ctx));
	OK(doca_dma_task_memcpy_alloc_init(r.dma, NULL, NULL, data, &t));
	doca_task_free(doca_dma_task_memcpy_as_task(t));
	OK(doca_ctx_stop(r.ctx));
	CHECK_DOCA(doca_dma_task_memcpy_alloc_init(r.dma, NULL, NULL, data, &t),
		   DOCA_ERROR_BAD_STATE);
}

TEST(as_many_tasks_as_configured_and_no_more)
{
	struct doca_dma_task_memcpy *t, *all[8];
	union doca_data data = { .u64 = 1 };

	FIXTURE(rig, r, rig_open, SIZE, 8);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 8; i++)
			OK(doca_dma_task_memcpy_alloc_init(r.dma, NULL, NULL, data, &all[i]));
		CHECK_DOCA(doca_dma_task_memcpy_alloc_init(r.dma, NULL, NULL, data, &t),
			   DOCA_ERROR_NO_MEMORY);
		for (int i = 0; i < 8; i++)
			doca_task_free(doca_dma_task_memcpy_as_task(all[i]));
	}
}

TEST(stop_waits_for_tasks_that_are_not_freed)
{
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	task = a_task(&r, NULL, NULL, 0);
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_STOPPING);
	CHECK_EQ(doca_pe_progress(r.pe), 0);
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_DOCA(doca_ctx_start(r.ctx), DOCA_ERROR_BAD_STATE);
	doca_task_free(task);
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_SEEN(&r, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_CTX_STATE_IDLE);
	CHECK_EQ(doca_pe_progress(r.pe), 0);
}

TEST(a_second_stop_ends_what_nothing_holds_any_more)
{
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	task = a_task(&r, NULL, NULL, 0);
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	doca_task_free(task);
	OK(doca_ctx_stop(r.ctx));
	CHECK_SEEN(&r, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_CTX_STATE_IDLE);
}

TEST(tasks_in_flight_end_by_progress_after_a_stop)
{
	struct doca_buf *big_src, *big_dst;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	big_src = source(&r, 0, BIG);
	big_dst = target(&r, 1000, BIG);
	OK(doca_task_submit(a_task(&r, src, dst, 7)));
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_EQ(r.done + r.failed, 0);
	CHECK_EQ(in_flight(&r), 1);
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_EQ(r.failed, 1); /* it had not started */
	CHECK_DOCA(r.last, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(data_len(dst), 0);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	OK(doca_ctx_start(r.ctx));
	OK(doca_task_submit(a_task(&r, big_src, big_dst, 8)));
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	run_until_idle(&r);
	CHECK_EQ(r.done + r.failed, 2);
	CHECK_EQ(r.order[1], 8);
	CHECK_EQ(data_len(big_dst), r.last == DOCA_SUCCESS ? BIG : 0);
	drop(src, dst, big_src, big_dst);
}

TEST(a_stopped_context_takes_no_task)
{
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	task = a_task(&r, src, dst, 0);
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(in_flight(&r), 0);
	doca_task_free(task);
	run_until_idle(&r);
	drop(src, dst);
}

TEST(a_task_in_flight_is_neither_freed_nor_submitted_nor_changed)
{
	struct doca_buf *other;
	struct doca_dma_task_memcpy *t;
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	other = target(&r, 128, 64);
	t = a_memcpy(&r, src, dst, 0);
	task = doca_dma_task_memcpy_as_task(t);
	OK(doca_task_submit(task));
	CHECK_DOCA(doca_task_get_status(task), DOCA_ERROR_IN_PROGRESS);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_BAD_STATE);
	doca_task_free(task);
	doca_dma_task_memcpy_set_dst(t, other);
	CHECK(doca_dma_task_memcpy_get_dst(t) == dst);
	CHECK_EQ(in_flight(&r), 1);
	run_until(&r, 1);
	OK(r.last);
	CHECK_EQ(data_len(dst), 64);
	CHECK_EQ(data_len(other), 0);
	CHECK_EQ(in_flight(&r), 0);
	drop(src, dst, other);
}

TEST(a_task_is_freed_once)
{
	struct doca_dma_task_memcpy *t;
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 2);
	t = a_memcpy(&r, NULL, NULL, 5);
	task = doca_dma_task_memcpy_as_task(t);
	doca_task_free(task);
	doca_task_free(task);
	CHECK(!doca_dma_task_memcpy_as_task(t));
	CHECK(!doca_task_get_ctx(task));
	CHECK_EQ(doca_task_get_user_data(task).u64, 0);
	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_get_status(task), DOCA_ERROR_INVALID_VALUE);
	OK(doca_ctx_stop(r.ctx)); /* no task is left */
}

TEST(a_failed_task_stops_the_context_and_ends_the_others)
{
	struct doca_buf *none;

	FIXTURE(rig, r, rig_open, SIZE, 8);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	none = target(&r, 2048, 8); /* no room for 64 bytes */
	OK(doca_task_submit(a_task(&r, src, dst, 1)));
	OK(doca_task_submit(a_task(&r, src, none, 2)));
	OK(doca_task_submit(a_task(&r, src, dst, 3)));
	OK(doca_task_submit(a_task(&r, src, dst, 4)));
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_EQ(r.done, 1);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_RUNNING);
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_EQ(r.failed, 1);
	CHECK_DOCA(r.last, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_STOPPING);
	run_until_idle(&r);
	CHECK_EQ(r.done, 1);
	CHECK_EQ(r.failed, 3);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(r.order[i], i + 1);
	CHECK_EQ(data_len(dst), 64);
	CHECK_SEEN(&r, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_CTX_STATE_IDLE);
	drop(src, dst, none);
}

/* The program is notified of the state first, and may free every task except the one whose callback
 * is next. */
static struct doca_task *owned[2];

static void free_all(const union doca_data user_data, struct doca_ctx *ctx,
		     enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct rig *r = user_data.ptr;

	(void)prev;
	if (next != DOCA_CTX_STATE_STOPPING)
		return;
	CHECK_EQ(in_flight(r), 1);
	for (int i = 0; i < 2; i++)
		doca_task_free(owned[i]);
	CHECK_DOCA(doca_ctx_stop(ctx), DOCA_ERROR_IN_PROGRESS);
}

TEST(a_failed_task_lives_until_its_callback)
{
	struct doca_buf *src, *none;

	FIXTURE(rig, r, rig_make, SIZE, 8);
	OK(doca_ctx_set_state_changed_cb(r.ctx, free_all));
	OK(doca_ctx_start(r.ctx));
	src = source(&r, 0, 64);
	none = target(&r, 0, 8); /* no room for 64 bytes */
	for (int i = 0; i < 2; i++)
		owned[i] = a_task(&r, src, none, 7 + i);
	OK(doca_task_submit(owned[0]));
	run_until(&r, 1);
	CHECK_EQ(r.failed, 1);
	CHECK_DOCA(r.last, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(r.order[0], 7);
	drop(src, none);
}

/* ---- a context that is destroyed in the callback that reports it as idle ---- */

static void destroy_when_idle(const union doca_data user_data, struct doca_ctx *ctx,
			      enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct rig *r = user_data.ptr;

	on_state(user_data, ctx, prev, next);
	if (next != DOCA_CTX_STATE_IDLE)
		return;
	OK(doca_dma_destroy(r->dma));
	CHECK_DOCA(doca_dma_destroy(r->dma), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_ctx_start(ctx), DOCA_ERROR_INVALID_VALUE);
}

static void stop_in_callback(struct doca_dma_task_memcpy *t, union doca_data task_data,
			     union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	on_done(t, task_data, ctx_data);
	OK(doca_ctx_stop(r->ctx));
}

static void rig_that_destroys_itself(struct rig *r, doca_dma_task_memcpy_completion_cb_t done)
{
	rig_make(r, SIZE, 4);
	OK(doca_dma_task_memcpy_set_conf(r->dma, done, on_error, 4));
	OK(doca_ctx_set_state_changed_cb(r->ctx, destroy_when_idle));
	OK(doca_ctx_start(r->ctx));
}

static bool is_gone(const struct rig *r)
{
	enum doca_ctx_states state;

	return doca_ctx_get_state(r->ctx, &state) == DOCA_ERROR_INVALID_VALUE;
}

TEST(a_context_is_destroyed_in_the_idle_callback_of_stop)
{
	struct rig r;

	rig_that_destroys_itself(&r, on_done);
	OK(doca_ctx_stop(r.ctx));
	CHECK(is_gone(&r));
	CHECK_EQ(doca_pe_progress(r.pe), 0);
	rig_free(&r);
}

TEST(a_context_is_destroyed_in_the_idle_callback_of_progress)
{
	struct rig r;

	rig_that_destroys_itself(&r, on_done);
	struct doca_buf *src = source(&r, 0, BIG), *dst = target(&r, 0, BIG);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	while (!is_gone(&r))
		doca_pe_progress(r.pe);
	CHECK_SEEN(&r, DOCA_CTX_STATE_RUNNING, DOCA_CTX_STATE_STOPPING, DOCA_CTX_STATE_IDLE);
	drop(src, dst);
	rig_free(&r);
}

TEST(a_context_is_stopped_and_destroyed_in_a_completion)
{
	struct rig r, other;
	struct doca_buf *src, *dst;

	rig_open(&other, SIZE, 4);
	for (int big = 0; big < 2; big++) {
		rig_that_destroys_itself(&r, stop_in_callback);
		src = source(&r, 0, big ? BIG : 64);
		dst = target(&r, 0, big ? BIG : 64);
		OK(doca_task_submit(a_task(&r, src, dst, 0)));
		run_until(&r, 1);
		CHECK(is_gone(&r));
		drop(src, dst);
		OK(copied_at(&other, 0, 0, 64));
		rig_free(&r);
	}
	rig_close(&other);
}

TEST(a_device_outlives_contexts_that_destroyed_themselves)
{
	struct rig r;

	for (int i = 0; i < repeats(200); i++) {
		rig_that_destroys_itself(&r, on_done);
		OK(doca_ctx_stop(r.ctx));
		rig_free(&r);
	}
}

TEST_MAIN(run_tests)
