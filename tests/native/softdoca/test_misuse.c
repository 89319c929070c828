// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of doca_ctx.h, doca_pe.h and doca_dma.h without a place for the result, and tasks whose
 * buffers are none or change. test_object.c calls all of them with invalid handles.
 */
#include "doca_check.h"

#define SIZE 65536

static struct rig rig;
static union doca_data data;

TEST(no_place_for_the_result_is_refused)
{
	const struct doca_devinfo *info;

	rig_open(&rig, SIZE, 4);
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

	rig_open(&rig, SIZE, 4);
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
	drop(src, dst);
	rig_close(&rig);
}

/* DOCA leaves this undefined: in softdoca the copy may be wrong, but it ends and accesses nothing
 * else. */
TEST(buffers_changed_while_a_task_is_in_flight_break_nothing)
{
	struct doca_buf *src, *dst, *second;

	rig_open(&rig, SIZE, 4);
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
	drop(src, dst);
	rig_close(&rig);
}

TEST_MAIN(run_tests)
