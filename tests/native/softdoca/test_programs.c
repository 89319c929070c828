// SPDX-License-Identifier: Apache-2.0
/* What published programs do, beyond DOCA's own samples: each test is modeled on one of them. */

/* Such programs include only DOCA's headers, and rely on what those include. */
#include <doca_buf_inventory.h>
#include <doca_dma.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>

static doca_event_handle_t no_handle = doca_event_invalid_handle;
static const char *const format_of_a_size = "%" PRIu64;

DOCA_LOG_REGISTER(PROGRAMS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void wipe(struct doca_gather_list *list)
{
	memset(list, 0, sizeof(*list));
}

static void *zeroed(size_t size)
{
	pthread_mutex_lock(&lock);

	void *at = calloc(1, size);

	pthread_mutex_unlock(&lock);
	return at;
}

#include "doca_check.h"

#define SIZE   (4 << 20)
#define BLOCK  (1 << 20)
#define BLOCKS 4u

TEST(the_headers_of_doca_are_enough_for_sizes_bytes_memory_and_locks)
{
	struct doca_gather_list list = {.len = 1};
	char text[32];

	free(zeroed(16));
	wipe(&list);
	CHECK_EQ(list.len, 0);
	CHECK_EQ(no_handle, -1);
	snprintf(text, sizeof(text), format_of_a_size, (uint64_t)1 << 40);
	CHECK(!strcmp(text, "1099511627776"));
}

/* Returns the size of what the program prints by DOCA_LOG_INFO, with this log level. */
static size_t printed_with(uint32_t limit)
{
	char path[] = "/tmp/softdoca-XXXXXX";
	int fd = mkstemp(path), out = dup(STDOUT_FILENO);
	off_t size;

	CHECK(fd >= 0 && out >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
	OK(doca_log_level_set_global_lower_limit(limit));
	DOCA_LOG_INFO("a record");
	fflush(stdout);
	CHECK(dup2(out, STDOUT_FILENO) >= 0);
	size = lseek(fd, 0, SEEK_END);
	close(fd);
	close(out);
	unlink(path);
	return (size_t)size;
}

TEST(a_program_sets_the_limit_of_its_records)
{
	OK(doca_log_backend_create_standard());
	CHECK(printed_with(DOCA_LOG_LEVEL_INFO) > 0);
	CHECK_EQ(printed_with(DOCA_LOG_LEVEL_WARNING), 0);
	CHECK(printed_with(DOCA_LOG_LEVEL_TRACE) > 0);
	OK(doca_log_level_set_global_sdk_limit(DOCA_LOG_LEVEL_ERROR));
	REFUSED(doca_log_level_set_global_lower_limit(0), INVALID_VALUE);
	REFUSED(doca_log_level_set_global_sdk_limit(71), INVALID_VALUE);
	OK(doca_log_unregister_source(log_source));
	CHECK(printed_with(DOCA_LOG_LEVEL_INFO) > 0);
}

TEST(a_buffer_is_used_for_another_place)
{
	FIXTURE(rig, r, rig_open, SIZE, 1);
	fill(r.from, r.size, 5);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64), *other;
	for (size_t at = 0; at < BLOCK; at += BLOCK / 8) {
		OK(doca_buf_inventory_buf_reuse_by_data(src, r.from + at, BLOCK / 8));
		OK(doca_buf_inventory_buf_reuse_by_addr(dst, r.to + at, BLOCK / 8));
		CHECK_DOCA(copied(&r, src, dst), DOCA_SUCCESS);
	}
	CHECK_EQ(memcmp(r.from, r.to, BLOCK), 0);
	CHECK_EQ(free_bufs(r.inv), 4096 - 2);
	REFUSED(doca_buf_inventory_buf_reuse_by_data(src, r.from + r.size, 1), INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_reuse_by_args(src, r.from, 8, r.from + 8, 1), INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_reuse_by_addr(NULL, r.from, 8), INVALID_VALUE);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	REFUSED(doca_buf_inventory_buf_reuse_by_addr(dst, r.to, 8), NOT_PERMITTED);
	run_until(&r, r.done + r.failed + 1);
	other = source(&r, 0, 64);
	OK(doca_buf_chain_list(src, other));
	REFUSED(doca_buf_inventory_buf_reuse_by_data(src, r.from, 8), NOT_PERMITTED);
	REFUSED(doca_buf_inventory_buf_reuse_by_data(other, r.from, 8), NOT_PERMITTED);
	drop(src);
	OK(doca_buf_inc_refcount(dst, NULL));
	REFUSED(doca_buf_inventory_buf_reuse_by_addr(dst, r.to, 8), NOT_PERMITTED);
	drop(dst, dst);
}

/* Makes one copy into a map that has only these permissions. */
static doca_error_t copied_into(uint32_t permissions, size_t n)
{
	struct rig r;

	rig_open(&r, SIZE, 1);
	struct doca_mmap *map = a_started_map(r.dev, r.to, r.size, permissions);
	struct doca_buf *src = source(&r, 0, n), *dst = a_buf(r.inv, map, r.to, n);
	fill(r.from, n, 7);
	doca_error_t status = copied(&r, src, dst);
	CHECK_EQ(memcmp(r.from, r.to, n) == 0, status == DOCA_SUCCESS);
	drop(src, dst);
	OK(doca_mmap_destroy(map));
	rig_close(&r);
	return status;
}

TEST(what_a_device_on_the_bus_may_write_the_own_one_may_too)
{
	const size_t sizes[] = {100, BLOCK};

	for (unsigned i = 0; i < 2; i++) {
		CHECK_DOCA(copied_into(PCI_RW, sizes[i]), DOCA_SUCCESS);
		CHECK_DOCA(copied_into(PCI_RO, sizes[i]), DOCA_ERROR_IO_FAILED);
		CHECK_DOCA(copied_into(DOCA_ACCESS_FLAG_LOCAL_READ_ONLY, sizes[i]),
			   DOCA_ERROR_IO_FAILED);
	}
}

/*
 * A program that does all its work in callbacks: a task of the first context
 * makes a second one, whose start submits, whose completions submit the next,
 * and whose end gives everything back and stops the first.
 */
struct inner {
	struct rig *outer;
	struct doca_dma *dma;
	struct doca_mmap *from, *to;
	struct doca_buf_inventory *inv;
	unsigned submitted, completed;
};

static struct inner inner;

static void submit_block(void)
{
	size_t at = (size_t)inner.submitted++ * BLOCK;
	union doca_data none = {0};
	struct doca_dma_task_memcpy *t;
	struct doca_buf *src;

	OK(doca_buf_inventory_buf_get_by_data(inner.inv, inner.from, inner.outer->from + at, BLOCK,
					      &src));
	OK(doca_dma_task_memcpy_alloc_init(
		inner.dma, src, a_buf(inner.inv, inner.to, inner.outer->to + at, BLOCK), none, &t));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(t)));
}

static void block_arrived(struct doca_dma_task_memcpy *t, union doca_data task_data,
			  union doca_data ctx_data)
{
	(void)task_data;
	CHECK(ctx_data.ptr == &inner);
	drop((struct doca_buf *)doca_dma_task_memcpy_get_src(t));
	drop(doca_dma_task_memcpy_get_dst(t));
	doca_task_free(doca_dma_task_memcpy_as_task(t));
	if (++inner.completed == BLOCKS)
		OK(doca_ctx_stop(doca_dma_as_ctx(inner.dma)));
	else if (inner.submitted < BLOCKS)
		submit_block();
}

static void inner_moved(const union doca_data user_data, struct doca_ctx *ctx,
			enum doca_ctx_states prev, enum doca_ctx_states next)
{
	(void)user_data;
	(void)ctx;
	(void)prev;
	if (next == DOCA_CTX_STATE_RUNNING) {
		submit_block();
		submit_block();
	} else if (next == DOCA_CTX_STATE_IDLE) {
		OK(doca_buf_inventory_destroy(inner.inv));
		OK(doca_mmap_destroy(inner.from));
		OK(doca_mmap_destroy(inner.to));
		OK(doca_ctx_stop(inner.outer->ctx));
	}
}

static void begin_inner(struct doca_dma_task_memcpy *t, union doca_data task_data,
			union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;
	union doca_data data = {.ptr = &inner};

	on_done(t, task_data, ctx_data);
	inner = (struct inner){.outer = r, .inv = an_inventory(4)};
	inner.from = a_started_map(r->dev, r->from, r->size, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY);
	inner.to = a_started_map(r->dev, r->to, r->size, PCI_RW);
	OK(doca_dma_create(r->dev, &inner.dma));
	struct doca_ctx *ctx = doca_dma_as_ctx(inner.dma);
	OK(doca_ctx_set_state_changed_cb(ctx, inner_moved));
	OK(doca_dma_task_memcpy_set_conf(inner.dma, block_arrived, block_arrived, 2));
	OK(doca_pe_connect_ctx(r->pe, ctx));
	OK(doca_ctx_set_user_data(ctx, data));
	OK(doca_ctx_start(ctx));
}

/* Sleeps for each event without a time limit, as such programs do: a lost event makes the test
 * hang. */
static void run_by_events(struct rig *r)
{
	struct pollfd fd = {.events = POLLIN};

	OK(doca_pe_get_notification_handle(r->pe, &fd.fd));
	while (state_of(r) != DOCA_CTX_STATE_IDLE) {
		OK(doca_pe_request_notification(r->pe));
		CHECK_EQ(poll(&fd, 1, WAIT_SECONDS * 1000), 1);
		OK(doca_pe_clear_notification(r->pe, 0));
		while (doca_pe_progress(r->pe))
			;
	}
}

TEST(a_program_may_live_in_its_callbacks)
{
	FIXTURE(rig, r, rig_make, SIZE, 1);
	OK(doca_dma_task_memcpy_set_conf(r.dma, begin_inner, on_error, 1));
	OK(doca_ctx_start(r.ctx));
	fill(r.from, r.size, 3);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	run_by_events(&r);
	CHECK_EQ(inner.completed, BLOCKS);
	CHECK_EQ(memcmp(r.from, r.to, r.size), 0);
	drop(src, dst);
	OK(doca_dma_destroy(inner.dma));
}

TEST_MAIN(run_tests)
