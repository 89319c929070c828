// SPDX-License-Identifier: Apache-2.0
/* Contexts that invalidate caches. */
#include "doca_check.h"

#include <doca_mmap_advise.h>

#define SIZE  4096
#define TASKS 3

static struct rig rig;
static struct doca_mmap_advise *advise;
static struct doca_ctx *ctx;
static struct doca_buf *buf;
static uint64_t order[TASKS];
static unsigned n_done;

static void on_invalidated(struct doca_mmap_advise_task_invalidate_cache *task,
			   union doca_data task_data, union doca_data ctx_data)
{
	struct doca_task *t = doca_mmap_advise_task_invalidate_cache_as_doca_task(task);

	CHECK(ctx_data.ptr == &rig);
	CHECK_DOCA(doca_task_get_status(t), DOCA_SUCCESS);
	order[n_done++] = task_data.u64;
	doca_task_free(t);
}

static void open_advise(void)
{
	union doca_data data = {.ptr = &rig};

	rig_open(&rig, SIZE, 4);
	OK(doca_mmap_advise_create(rig.dev, &advise));
	ctx = doca_mmap_advise_as_ctx(advise);
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_buf_inventory_buf_get_by_data(rig.inv, rig.to_map, rig.to, SIZE, &buf));
	OK(doca_pe_connect_ctx(rig.pe, ctx));
}

static void close_advise(void)
{
	OK(doca_ctx_stop(ctx));
	OK(doca_buf_dec_refcount(buf, NULL));
	OK(doca_mmap_advise_destroy(advise));
	CHECK(!doca_mmap_advise_as_ctx(advise));
	rig_close(&rig);
}

TEST(tasks_complete_by_progress_in_order)
{
	struct doca_mmap_advise_task_invalidate_cache *task;

	open_advise();
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated, on_invalidated,
							   TASKS));
	OK(doca_ctx_start(ctx));
	for (uint64_t i = 0; i < TASKS; i++) {
		union doca_data data = {.u64 = i};

		OK(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, buf, data, &task));
		CHECK(doca_mmap_advise_task_invalidate_cache_get_buf(task) == buf);
		OK(doca_task_submit(doca_mmap_advise_task_invalidate_cache_as_doca_task(task)));
	}
	CHECK_EQ(n_done, 0);
	CHECK_DOCA(doca_mmap_advise_destroy(advise), DOCA_ERROR_BAD_STATE);
	while (n_done < TASKS)
		CHECK_EQ(doca_pe_progress(rig.pe), 1);
	for (uint64_t i = 0; i < TASKS; i++)
		CHECK_EQ(order[i], i);
	close_advise();
}

TEST(each_misuse_has_its_documented_error)
{
	struct doca_mmap_advise_task_invalidate_cache *task;
	union doca_data data = {.u64 = 0};
	uint64_t size;

	CHECK_DOCA(doca_mmap_advise_create(NULL, &advise), DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_advise_destroy(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK(!doca_mmap_advise_as_ctx(NULL));
	CHECK(!doca_mmap_advise_task_invalidate_cache_as_doca_task(NULL));
	CHECK_DOCA(doca_mmap_advise_cap_task_cache_invalidate_is_supported(NULL),
		   DOCA_ERROR_INVALID_VALUE);
	open_advise();
	OK(doca_mmap_advise_cap_task_cache_invalidate_is_supported(doca_dev_as_devinfo(rig.dev)));
	OK(doca_mmap_advise_task_cache_invalidate_get_max_buf_size(doca_dev_as_devinfo(rig.dev),
								   &size));
	CHECK(size >= SIZE);
	CHECK_DOCA(doca_ctx_start(ctx), DOCA_ERROR_BAD_STATE);
	CHECK_DOCA(doca_mmap_advise_task_invalidate_cache_set_conf(advise, NULL, on_invalidated, 1),
		   DOCA_ERROR_INVALID_VALUE);
	CHECK_DOCA(doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated,
								   on_invalidated, 0),
		   DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated, on_invalidated,
							   1));
	CHECK_DOCA(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, buf, data, &task),
		   DOCA_ERROR_BAD_STATE);
	OK(doca_ctx_start(ctx));
	CHECK_DOCA(doca_mmap_advise_task_invalidate_cache_set_conf(advise, on_invalidated,
								   on_invalidated, 1),
		   DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, NULL, data, &task));
	CHECK_DOCA(doca_task_submit(doca_mmap_advise_task_invalidate_cache_as_doca_task(task)),
		   DOCA_ERROR_INVALID_VALUE);
	doca_mmap_advise_task_invalidate_cache_set_buf(task, buf);
	struct doca_mmap_advise_task_invalidate_cache *second;
	CHECK_DOCA(doca_mmap_advise_task_invalidate_cache_alloc_init(advise, buf, data, &second),
		   DOCA_ERROR_NO_MEMORY);
	OK(doca_task_submit(doca_mmap_advise_task_invalidate_cache_as_doca_task(task)));
	CHECK_DOCA(doca_ctx_stop(ctx), DOCA_ERROR_IN_PROGRESS);
	while (!n_done)
		doca_pe_progress(rig.pe);
	close_advise();
}

TEST_MAIN(run_tests)
