// SPDX-License-Identifier: Apache-2.0
/*
 * Calls every function of doca_ctx.h, doca_pe.h and doca_dma.h with invalid handles, and without a
 * place for the result: each returns an error, and none crashes.
 */
#include "doca_check.h"

#define SIZE 65536

static struct rig rig;
static struct doca_dma_task_memcpy *task;
static enum doca_ctx_states state;
static size_t number;
static uint32_t count;
static uint64_t size;
static union doca_data data;
static doca_notification_handle_t handle;
static struct doca_gpu_dma *gpu_dma;

#define CALL(function, ...)                                  \
	static doca_error_t with_##function(void *h)         \
	{                                                    \
		return doca_##function(h, ##__VA_ARGS__);    \
	}
/* Where the handle is the second argument. */
#define CALL_2(function, first)                              \
	static doca_error_t second_of_##function(void *h)    \
	{                                                    \
		return doca_##function(first, h);            \
	}
#define NAMED(function)        { #function, with_##function }
#define NAMED_SECOND(function) { #function ", second", second_of_##function }

CALL(ctx_get_state, &state)
CALL(ctx_set_state_changed_cb, on_state)
CALL(ctx_set_user_data, data)
CALL(ctx_get_user_data, &data)
CALL(ctx_start)
CALL(ctx_stop)
CALL(ctx_get_num_inflight_tasks, &number)
CALL(ctx_set_datapath_on_gpu, (struct doca_gpu *)8)

CALL(pe_connect_ctx, rig.ctx)
CALL_2(pe_connect_ctx, rig.pe)
CALL(pe_destroy)
CALL(pe_get_notification_handle, &handle)
CALL(pe_request_notification)
CALL(pe_clear_notification, 0)
CALL(pe_get_num_inflight_tasks, &number)
CALL(pe_set_event_mode, DOCA_PE_EVENT_MODE_PROGRESS_ALL)

CALL(task_submit)
CALL(task_submit_ex, DOCA_TASK_SUBMIT_FLAG_FLUSH)
CALL(task_try_submit)
CALL(task_get_status)

CALL(dma_create, &rig.dma)
CALL(dma_destroy)
CALL(dma_cap_get_max_num_tasks, &count)
CALL(dma_get_gpu_handle, &gpu_dma)
CALL(dma_set_ordered_completions, 1)
CALL(dma_task_memcpy_set_conf, on_done, on_error, 1)
CALL(dma_task_memcpy_alloc_init, NULL, NULL, data, &task)
CALL(dma_cap_task_memcpy_is_supported)
CALL(dma_cap_task_memcpy_get_max_buf_size, &size)
CALL(dma_cap_task_memcpy_get_max_buf_list_len, &count)

static void *freed_ctx, *freed_pe, *freed_dma, *freed_task;

/* Creates a running rig, and handles whose objects were freed. */
static void prepare(void)
{
	struct doca_dma *dma;
	struct doca_pe *pe;

	rig_open(&rig, SIZE, 4);
	OK(doca_pe_create(&pe));
	OK(doca_dma_create(rig.dev, &dma));
	freed_ctx = doca_dma_as_ctx(dma);
	freed_dma = dma;
	freed_pe = pe;
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	freed_task = a_task(&rig, NULL, NULL, 0);
	doca_task_free(freed_task);
}

/* Checks that each call refuses objects of another kind, freed objects, and invalid pointers. */
static void refuse_all(const struct named_call *calls, size_t n, void *living, void *freed)
{
	void *none[] = NO_HANDLES(living);

	all_refuse(calls, n, none, sizeof(none) / sizeof(none[0]));
	all_refuse(calls, n, &freed, 1);
}
#define REFUSE_ALL(calls, living, freed) \
	refuse_all(calls, sizeof(calls) / sizeof((calls)[0]), living, freed)

TEST(functions_of_contexts_refuse_what_is_none)
{
	static const struct named_call calls[] = {
		NAMED(ctx_get_state),
		NAMED(ctx_set_state_changed_cb),
		NAMED(ctx_set_user_data),
		NAMED(ctx_get_user_data),
		NAMED(ctx_start),
		NAMED(ctx_stop),
		NAMED(ctx_get_num_inflight_tasks),
		NAMED(ctx_set_datapath_on_gpu),
		NAMED_SECOND(pe_connect_ctx),
	};

	prepare();
	REFUSE_ALL(calls, rig.dev, freed_ctx);
	rig_close(&rig);
}

TEST(functions_of_engines_refuse_what_is_none)
{
	static const struct named_call calls[] = {
		NAMED(pe_connect_ctx),
		NAMED(pe_destroy),
		NAMED(pe_get_notification_handle),
		NAMED(pe_request_notification),
		NAMED(pe_clear_notification),
		NAMED(pe_get_num_inflight_tasks),
		NAMED(pe_set_event_mode),
	};

	prepare();
	REFUSE_ALL(calls, rig.ctx, freed_pe);
	rig_close(&rig);
}

TEST(functions_of_tasks_refuse_what_is_none)
{
	static const struct named_call calls[] = {
		NAMED(task_submit),
		NAMED(task_submit_ex),
		NAMED(task_try_submit),
		NAMED(task_get_status),
	};

	prepare();
	REFUSE_ALL(calls, rig.pe, freed_task);
	rig_close(&rig);
}

TEST(functions_of_dma_refuse_what_is_none)
{
	static const struct named_call calls[] = {
		NAMED(dma_destroy),
		NAMED(dma_cap_get_max_num_tasks),
		NAMED(dma_get_gpu_handle),
		NAMED(dma_set_ordered_completions),
		NAMED(dma_task_memcpy_set_conf),
		NAMED(dma_task_memcpy_alloc_init),
	};

	prepare();
	REFUSE_ALL(calls, rig.ctx, freed_dma);
	rig_close(&rig);
}

TEST(capabilities_and_create_refuse_what_is_no_device)
{
	static const struct named_call calls[] = {
		NAMED(dma_create),
		NAMED(dma_cap_task_memcpy_is_supported),
		NAMED(dma_cap_task_memcpy_get_max_buf_size),
		NAMED(dma_cap_task_memcpy_get_max_buf_list_len),
	};
	struct doca_dma *dma;

	prepare();
	dma = rig.dma;
	REFUSE_ALL(calls, rig.pe, freed_pe);
	CHECK(rig.dma == dma);
	rig_close(&rig);
}

/* Functions that cannot return an error do nothing, and return nothing. */
TEST(functions_without_an_error_do_nothing_with_what_is_none)
{
	struct doca_buf *src, *dst;
	struct doca_dma_task_memcpy *good;

	prepare();
	src = source(&rig, 0, 8);
	dst = target(&rig, 0, 8);
	good = a_memcpy(&rig, src, dst, 0); /* which is what freed_task was */
	freed_task = a_task(&rig, NULL, NULL, 0);
	doca_task_free(freed_task);

	void *none[] = NO_HANDLES(rig.pe), *more[] = { freed_ctx, freed_pe, freed_dma, freed_task };
	void *all[sizeof(none) / sizeof(none[0]) + sizeof(more) / sizeof(more[0])];

	memcpy(all, none, sizeof(none));
	memcpy((char *)all + sizeof(none), more, sizeof(more));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		doca_ctx_flush_tasks(all[i]);
		CHECK_EQ(doca_pe_progress(all[i]), 0);
		doca_task_free(all[i]);
		doca_task_set_user_data(all[i], data);
		CHECK_EQ(doca_task_get_user_data(all[i]).u64, 0);
		CHECK(!doca_task_get_ctx(all[i]));
		CHECK(!doca_dma_task_memcpy_as_task(all[i]));
		CHECK(!doca_dma_task_memcpy_get_src(all[i]));
		CHECK(!doca_dma_task_memcpy_get_dst(all[i]));
		doca_dma_task_memcpy_set_src(all[i], src);
		doca_dma_task_memcpy_set_dst(all[i], dst);
	}
	CHECK(!doca_dma_as_ctx(NULL));
	CHECK(!doca_dma_as_ctx((struct doca_dma *)rig.ctx));
	CHECK(!doca_dma_as_ctx(freed_dma));
	CHECK(doca_dma_task_memcpy_get_src(good) == src);
	doca_task_free(doca_dma_task_memcpy_as_task(good));
	drop(src);
	drop(dst);
	rig_close(&rig);
}

TEST(no_place_for_the_result_is_refused)
{
	const struct doca_devinfo *info;

	prepare();
	info = doca_dev_as_devinfo(rig.dev);
	REFUSED(doca_ctx_get_state(rig.ctx, NULL), INVALID_VALUE);
	REFUSED(doca_ctx_get_user_data(rig.ctx, NULL), INVALID_VALUE);
	REFUSED(doca_ctx_get_num_inflight_tasks(rig.ctx, NULL), INVALID_VALUE);
	REFUSED(doca_ctx_set_datapath_on_gpu(rig.ctx, NULL), INVALID_VALUE);
	REFUSED(doca_pe_create(NULL), INVALID_VALUE);
	REFUSED(doca_pe_get_notification_handle(rig.pe, NULL), INVALID_VALUE);
	REFUSED(doca_pe_get_num_inflight_tasks(rig.pe, NULL), INVALID_VALUE);
	REFUSED(doca_pe_set_event_mode(rig.pe, 2), INVALID_VALUE);
	REFUSED(doca_dma_create(rig.dev, NULL), INVALID_VALUE);
	REFUSED(doca_dma_cap_get_max_num_tasks(rig.dma, NULL), INVALID_VALUE);
	REFUSED(doca_dma_get_gpu_handle(rig.dma, NULL), INVALID_VALUE);
	REFUSED(doca_dma_cap_task_memcpy_get_max_buf_size(info, NULL), INVALID_VALUE);
	REFUSED(doca_dma_cap_task_memcpy_get_max_buf_list_len(info, NULL), INVALID_VALUE);
	REFUSED(doca_dma_task_memcpy_alloc_init(rig.dma, NULL, NULL, data, NULL), INVALID_VALUE);
	rig_close(&rig);
}

/* Buffers are checked when the task is submitted, because they may have been freed by then. */
TEST(a_task_with_what_is_no_buffer_is_refused)
{
	struct doca_buf *src, *dst, *gone, *second;
	struct doca_dma_task_memcpy *t;
	struct doca_task *submitted;

	prepare();
	src = source(&rig, 0, 8);
	dst = target(&rig, 0, 8);
	gone = target(&rig, 0, 8);
	drop(gone);

	void *none[] = NO_HANDLES(rig.pe), *bad[sizeof(none) / sizeof(none[0]) + 1];

	memcpy(bad, none, sizeof(none));
	bad[sizeof(none) / sizeof(none[0])] = gone;
	t = a_memcpy(&rig, src, dst, 0);
	submitted = doca_dma_task_memcpy_as_task(t);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct doca_dma_task_memcpy *other;

		if (bad[i])
			REFUSED(doca_dma_task_memcpy_alloc_init(rig.dma, bad[i], dst, data, &other),
				INVALID_VALUE);
		if (bad[i])
			REFUSED(doca_dma_task_memcpy_alloc_init(rig.dma, src, bad[i], data, &other),
				INVALID_VALUE);
		doca_dma_task_memcpy_set_src(t, bad[i]);
		REFUSED(doca_task_submit(submitted), INVALID_VALUE);
		REFUSED(doca_task_try_submit(submitted), INVALID_VALUE);
		doca_dma_task_memcpy_set_src(t, src);
		doca_dma_task_memcpy_set_dst(t, bad[i]);
		REFUSED(doca_task_submit(submitted), INVALID_VALUE);
		doca_dma_task_memcpy_set_dst(t, dst);
	}
	/* Not the first of its list. */
	second = source(&rig, 8, 8);
	OK(doca_buf_chain_list(src, second));
	doca_dma_task_memcpy_set_src(t, second);
	REFUSED(doca_task_submit(submitted), INVALID_VALUE);
	CHECK_EQ(in_flight(&rig), 0);
	CHECK_EQ(state_of(&rig), DOCA_CTX_STATE_RUNNING);
	doca_task_free(submitted);
	drop(src);
	drop(dst);
	rig_close(&rig);
}

/* DOCA leaves this undefined: in softdoca the copy may be wrong, but it ends and accesses nothing
 * else. */
TEST(buffers_changed_while_a_task_is_in_flight_break_nothing)
{
	struct doca_buf *src, *dst, *second;

	prepare();
	src = source(&rig, 0, 1000);
	OK(doca_buf_chain_list(src, source(&rig, 1000, 1000)));
	dst = target(&rig, 100, 1500);
	second = target(&rig, 1600, 1000);
	OK(doca_buf_chain_list(dst, second));
	for (int i = 0; i < 3; i++) {
		OK(doca_buf_reset_data_len(dst));
		OK(doca_buf_reset_data_len(second));
		OK(doca_task_submit(a_task(&rig, src, dst, 0)));
		if (i == 0)
			OK(doca_buf_set_data(src, rig.from, 3));
		if (i == 1)
			OK(doca_buf_set_data(second, rig.to + 2600, 0));
		if (i == 2)
			OK(doca_buf_set_data(dst, rig.to + 100, 1500));
		run_until(&rig, i + 1u);
		if (state_of(&rig) != DOCA_CTX_STATE_RUNNING) {
			run_until_idle(&rig);
			OK(doca_ctx_start(rig.ctx));
			rig.n_seen = 1;
			rig.seen[0] = DOCA_CTX_STATE_RUNNING;
		}
		OK(doca_buf_set_data(src, rig.from, 1000));
		OK(doca_buf_set_data(dst, rig.to + 100, 0));
		OK(doca_buf_set_data(second, rig.to + 1600, 0));
	}
	for (int i = 0; i < 100; i++)
		CHECK_EQ(rig.to[i], 0);
	for (int i = 2600; i < 4096; i++)
		CHECK_EQ(rig.to[i], 0);
	drop(src);
	drop(dst);
	rig_close(&rig);
}

TEST_MAIN(run_tests)
