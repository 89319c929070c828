// SPDX-License-Identifier: Apache-2.0
/* Callbacks, contexts that share an engine, flushing. */
#include "doca_check.h"

#define SIZE 65536
#define BIG  (48 << 10) /* progress does not copy so much itself */

/* ---- within callbacks ---- */

static struct rig *inside;
static uint8_t progressed;
static doca_error_t destroyed, pe_destroyed, resubmitted;
static unsigned again;

static void try_what_must_not_be(struct doca_dma_task_memcpy *t, union doca_data task_data,
				 union doca_data ctx_data)
{
	progressed = doca_pe_progress(inside->pe);
	destroyed = doca_dma_destroy(inside->dma);
	pe_destroyed = doca_pe_destroy(inside->pe);
	on_done(t, task_data, ctx_data);
}

TEST(a_callback_neither_progresses_nor_destroys)
{
	struct rig r;

	inside = &r;
	rig_make(&r, SIZE, 2);
	OK(doca_dma_task_memcpy_set_conf(r.dma, try_what_must_not_be, on_error, 2));
	OK(doca_ctx_start(r.ctx));
	OK(copied_at(&r, 0, 0, 100));
	CHECK_EQ(progressed, 0);
	CHECK_DOCA(destroyed, DOCA_ERROR_IN_USE);
	CHECK_DOCA(pe_destroyed, DOCA_ERROR_IN_USE);
	rig_close(&r);
}

static void submit_again(struct doca_dma_task_memcpy *t, union doca_data task_data,
			 union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	if (!again--) {
		on_done(t, task_data, ctx_data);
		return;
	}
	r->done++;
	OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(t)));
	resubmitted = doca_task_submit(doca_dma_task_memcpy_as_task(t));
}

TEST(a_callback_may_submit_the_task_again)
{
	size_t sizes[] = { 64, 4096, BIG };

	for (unsigned i = 0; i < 3; i++) {
		struct rig r;

		rig_make(&r, SIZE, 1);
		OK(doca_dma_task_memcpy_set_conf(r.dma, submit_again, on_error, 1));
		OK(doca_ctx_start(r.ctx));
		again = 50;
		struct doca_buf *src = source(&r, 0, sizes[i]), *dst = target(&r, 0, sizes[i]);

		fill(r.from, SIZE, i);
		OK(doca_task_submit(a_task(&r, src, dst, 0)));
		run_until(&r, 51);
		OK(resubmitted);
		CHECK_EQ(memcmp(r.from, r.to, sizes[i]), 0);
		drop(src, dst);
		rig_close(&r);
	}
}

static void stop_then_start(const union doca_data user_data, struct doca_ctx *ctx,
			    enum doca_ctx_states prev, enum doca_ctx_states next)
{
	on_state(user_data, ctx, prev, next);
	if (next == DOCA_CTX_STATE_IDLE && again) {
		again--;
		resubmitted = doca_ctx_start(ctx);
	}
}

TEST(a_state_callback_may_start_the_context_again)
{
	FIXTURE(rig, r, rig_make, SIZE, 1);
	OK(doca_ctx_set_state_changed_cb(r.ctx, stop_then_start));
	OK(doca_ctx_start(r.ctx));
	again = 1;
	OK(doca_ctx_stop(r.ctx));
	OK(resubmitted);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_RUNNING);
	OK(copied_at(&r, 0, 0, 64));
}

/* ---- several contexts, events, flushing ---- */

TEST(two_contexts_of_one_engine_get_their_turn)
{
	struct doca_dma *second;
	struct rig other;
	union doca_data data = { .ptr = &other };

	FIXTURE(rig, r, rig_open, SIZE, 64);
	other = r;
	other.n_seen = 0;
	OK(doca_dma_create(r.dev, &second));
	other.dma = second;
	other.ctx = doca_dma_as_ctx(second);
	OK(doca_dma_task_memcpy_set_conf(second, on_done, on_error, 64));
	OK(doca_ctx_set_user_data(other.ctx, data));
	OK(doca_pe_connect_ctx(r.pe, other.ctx));
	OK(doca_ctx_start(other.ctx));

	struct doca_buf *src = source(&r, 0, 16), *dst = target(&r, 0, SIZE);
	size_t total;

	for (int i = 0; i < 32; i++) {
		OK(doca_task_submit(a_task(&r, src, dst, i)));
		OK(doca_task_submit(a_task(&other, src, dst, i)));
	}
	OK(doca_pe_get_num_inflight_tasks(r.pe, &total));
	CHECK_EQ(total, 64);
	for (unsigned i = 1; i <= 32; i++) {
		CHECK_EQ(doca_pe_progress(r.pe), 1);
		CHECK_EQ(doca_pe_progress(r.pe), 1);
		CHECK_EQ(r.done, i);
		CHECK_EQ(other.done, i);
	}
	OK(doca_pe_set_event_mode(r.pe, DOCA_PE_EVENT_MODE_PROGRESS_ALL));
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	OK(doca_task_submit(a_task(&other, src, dst, 0)));
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_EQ(r.done, 33);
	CHECK_EQ(other.done, 33);
	OK(doca_ctx_stop(other.ctx));
	OK(doca_dma_destroy(second));
	OK(copied_at(&r, 0, 0, 100)); /* the first context continues */
	drop(src, dst);
}

TEST(tasks_wait_for_a_flush)
{
	struct doca_buf *big_src, *big_dst;

	FIXTURE(rig, r, rig_open, SIZE, 8);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	big_src = source(&r, 0, BIG);
	big_dst = target(&r, 2048, BIG);
	OK(doca_task_submit_ex(a_task(&r, src, dst, 1), DOCA_TASK_SUBMIT_FLAG_NONE));
	OK(doca_task_submit_ex(a_task(&r, big_src, big_dst, 2), DOCA_TASK_SUBMIT_FLAG_NONE));
	CHECK_EQ(in_flight(&r), 2);
	CHECK_EQ(doca_pe_progress(r.pe), 0);
	doca_ctx_flush_tasks(r.ctx);
	run_until(&r, 2);
	OK(doca_task_submit_ex(a_task(&r, src, dst, 3), DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS));
	CHECK_EQ(doca_pe_progress(r.pe), 0);
	OK(doca_task_submit_ex(a_task(&r, src, dst, 4), DOCA_TASK_SUBMIT_FLAG_FLUSH));
	run_until(&r, 4);
	OK(doca_task_submit_ex(a_task(&r, src, dst, 5), DOCA_TASK_SUBMIT_FLAG_NONE));
	OK(doca_task_submit(a_task(&r, src, dst, 6)));
	run_until(&r, 6);
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(r.order[i], i + 1);
	/* A task that is never flushed ends with the context. */
	OK(doca_task_submit_ex(a_task(&r, src, dst, 7), DOCA_TASK_SUBMIT_FLAG_NONE));
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	run_until_idle(&r);
	CHECK_EQ(r.failed, 1);
	drop(src, dst, big_src, big_dst);
}

TEST(a_large_one_that_was_held_moves_with_a_small_one)
{
	struct doca_buf *big_src, *big_dst;

	FIXTURE(rig, r, rig_open, SIZE, 8);
	fill(r.from, SIZE, 9);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	big_src = source(&r, 0, BIG);
	big_dst = target(&r, 2048, BIG);
	OK(doca_task_submit_ex(a_task(&r, big_src, big_dst, 1), DOCA_TASK_SUBMIT_FLAG_NONE));
	OK(doca_task_submit(a_task(&r, src, dst, 2)));
	run_until(&r, 2);
	CHECK_EQ(r.done, 2);
	CHECK_EQ(r.order[0], 1);
	CHECK_EQ(memcmp(r.from, r.to + 2048, BIG), 0);
	CHECK_EQ(memcmp(r.from, r.to, 64), 0);
	drop(src, dst, big_src, big_dst);
}

TEST(unknown_submit_flags_are_refused)
{
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 1);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	task = a_task(&r, src, dst, 1);
	CHECK_DOCA(doca_task_submit_ex(task, 4), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_task_submit_ex(task, 0x80000001u), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(in_flight(&r), 0);
	doca_task_free(task);
	drop(src, dst);
}

TEST(user_data_is_given_back_as_it_was)
{
	union doca_data data = { .u64 = 0x1234567890abcdef }, got;
	struct doca_task *task;

	FIXTURE(rig, r, rig_open, SIZE, 1);
	task = a_task(&r, NULL, NULL, 77);
	CHECK_EQ(doca_task_get_user_data(task).u64, 77);
	doca_task_set_user_data(task, data);
	CHECK_EQ(doca_task_get_user_data(task).u64, data.u64);
	CHECK(doca_task_get_ctx(task) == r.ctx);
	doca_task_free(task);
	OK(doca_ctx_get_user_data(r.ctx, &got));
	CHECK(got.ptr == &r);
}

/* ---- fork ---- */

/* In the child every call that ends something succeeds, nothing new can start, and the parent is
 * not affected. */
static void end_in_child(struct rig *r, struct doca_task *task)
{
	enum doca_ctx_states before = state_of(r);

	CHECK_DOCA(doca_task_submit(task), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_request_notification(r->pe), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_pe_clear_notification(r->pe, 0), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(before, DOCA_CTX_STATE_RUNNING);
	doca_task_free(task);
	CHECK_DOCA(doca_ctx_stop(r->ctx), DOCA_ERROR_IN_PROGRESS);
	run_until_idle(r);
	CHECK_EQ(r->failed, 1); /* the request in the parent's pipe */
	CHECK_DOCA(doca_ctx_start(r->ctx), DOCA_ERROR_BAD_STATE);
	OK(doca_dma_destroy(r->dma));
	OK(doca_pe_destroy(r->pe));
}

TEST(a_forked_child_ends_what_it_has_and_the_parent_goes_on)
{
	struct doca_buf *big_src, *big_dst;
	struct doca_task *task;
	doca_notification_handle_t handle;
	int status;
	pid_t pid;

	setenv("SOFTDOCA_FAULTS", "delay ms=100 min_size=1000", 1);
	FIXTURE(rig, r, rig_open, SIZE, 8);
	OK(doca_pe_get_notification_handle(r.pe, &handle));
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	big_src = source(&r, 0, BIG);
	big_dst = target(&r, 2048, BIG);
	task = a_task(&r, src, dst, 1);
	OK(doca_task_submit(a_task(&r, big_src, big_dst, 2)));
	OK(doca_pe_request_notification(r.pe));
	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(CHECK_SECONDS);
		end_in_child(&r, task);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	while (!r.done) {
		struct pollfd p = { .fd = handle, .events = POLLIN };

		CHECK_EQ(poll(&p, 1, WAIT_SECONDS * 1000), 1);
		OK(doca_pe_clear_notification(r.pe, handle));
		while (doca_pe_progress(r.pe))
			;
		OK(doca_pe_request_notification(r.pe));
	}
	OK(r.last);
	OK(doca_task_submit(task));
	run_until(&r, 2);
	OK(r.last);
	drop(src, dst, big_src, big_dst);
}

TEST_MAIN(run_tests)
