// SPDX-License-Identifier: Apache-2.0
/* The API of DOCA 1.3 to 2.2: jobs and events, maps of several ranges, exports, and the documented
 * error of each misuse. Compiled with the headers of 1.3 and of 2.2. */
#define CHECK_DETAIL() ""
#include "check.h"

#include <poll.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_log.h>
#include <doca_mmap.h>

#define GETS(call, want) gets(__FILE__, __LINE__, #call, call, want)
#define OK(call)	 GETS(call, DOCA_SUCCESS)
#define BAD(call)	 GETS(call, DOCA_ERROR_INVALID_VALUE)

#define SIZE  4096
#define DEPTH 8
#define JOBS_LEAST 1024u /* that any queue takes */
#define PAGE  4096

static void gets(const char *file, int line, const char *call, doca_error_t got, doca_error_t want)
{
	if (got != want)
		check_failed(file, line, "%s is %s, not %s", call, doca_get_error_name(got),
			     doca_get_error_name(want));
}

static struct rig {
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_workq *workq;
	struct doca_buf *src, *dst;
	char from[SIZE], to[SIZE];
} r;

static void open_device(void)
{
	struct doca_devinfo **list;
	uint32_t n;

	OK(doca_devinfo_list_create(&list, &n));
	CHECK_EQ(n, 1);
	OK(doca_dma_job_get_supported(list[0], DOCA_DMA_JOB_MEMCPY));
	OK(doca_dev_open(list[0], &r.dev));
	OK(doca_devinfo_list_destroy(list));
}

static void open_rig(void)
{
	open_device();
	OK(doca_mmap_create(NULL, &r.map));
	OK(doca_mmap_set_max_num_chunks(r.map, 2));
	OK(doca_mmap_start(r.map));
	OK(doca_mmap_dev_add(r.map, r.dev));
	OK(doca_mmap_populate(r.map, r.from, SIZE, PAGE, NULL, NULL));
	OK(doca_mmap_populate(r.map, r.to, SIZE, PAGE, NULL, NULL));
	OK(doca_buf_inventory_create(NULL, 4, DOCA_BUF_EXTENSION_LINKED_LIST, &r.inventory));
	OK(doca_buf_inventory_start(r.inventory));
	OK(doca_dma_create(&r.dma));
	r.ctx = doca_dma_as_ctx(r.dma);
	OK(doca_workq_create(DEPTH, &r.workq));
	OK(doca_ctx_dev_add(r.ctx, r.dev));
	OK(doca_ctx_start(r.ctx));
	OK(doca_buf_inventory_buf_by_addr(r.inventory, r.map, r.from, SIZE, &r.src));
	OK(doca_buf_inventory_buf_by_addr(r.inventory, r.map, r.to, SIZE, &r.dst));
}

static void close_rig(void)
{
	OK(doca_buf_refcount_rm(r.src, NULL));
	OK(doca_buf_refcount_rm(r.dst, NULL));
	OK(doca_ctx_workq_rm(r.ctx, r.workq));
	OK(doca_ctx_stop(r.ctx));
	OK(doca_ctx_dev_rm(r.ctx, r.dev));
	OK(doca_workq_destroy(r.workq));
	OK(doca_dma_destroy(r.dma));
	OK(doca_buf_inventory_destroy(r.inventory));
	OK(doca_mmap_dev_rm(r.map, r.dev));
	OK(doca_mmap_destroy(r.map));
	OK(doca_dev_close(r.dev));
}

static doca_error_t submit(struct doca_buf *dst, struct doca_buf *src, size_t size, uint64_t name)
{
	struct doca_dma_job_memcpy job = {
		.base = {.type = DOCA_DMA_JOB_MEMCPY, .ctx = r.ctx, .user_data.u64 = name},
		.dst_buff = dst,
		.src_buff = src,
	};
#if SOFTDOCA_NAMED
	job.num_bytes_to_copy = size;
#else
	void *data;

	OK(doca_buf_get_data(src, &data));
	OK(doca_buf_set_data(src, data, size));
#endif
	return doca_workq_submit(r.workq, &job.base);
}

static doca_error_t retrieve(struct doca_event *event)
{
	doca_error_t result;

	do
		result = doca_workq_progress_retrieve(r.workq, event,
						      DOCA_WORKQ_RETRIEVE_FLAGS_NONE);
	while (result == DOCA_ERROR_AGAIN);
	CHECK_EQ(event->type, DOCA_DMA_JOB_MEMCPY);
	return result;
}

TEST(jobs_complete_in_the_order_of_submission)
{
	struct doca_event event;
	uint64_t next = 0;

	open_rig();
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	GETS(doca_workq_progress_retrieve(r.workq, &event, 0), DOCA_ERROR_AGAIN);
	for (uint64_t i = 0; i < 1000; i++) {
		while (submit(r.dst, r.src, i % SIZE + 1, i) == DOCA_ERROR_NO_MEMORY) {
			OK(retrieve(&event));
			CHECK_EQ(event.user_data.u64, next++);
		}
	}
	for (; next < 1000; next++) {
		OK(retrieve(&event));
		CHECK_EQ(event.user_data.u64, next);
		CHECK_EQ(event.result.u64, DOCA_SUCCESS);
	}
	close_rig();
}

/* Programs submit a job again without emptying the destination. */
TEST(a_job_submitted_again_overwrites_the_destination)
{
	struct doca_event event;
	size_t len;

	open_rig();
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	for (int i = 0; i < 3; i++) {
		memset(r.from, 'a' + i, SIZE);
		OK(submit(r.dst, r.src, SIZE, 0));
		OK(retrieve(&event));
		CHECK(!memcmp(r.from, r.to, SIZE));
		OK(doca_buf_get_data_len(r.dst, &len));
		CHECK_EQ(len, SIZE);
	}
	close_rig();
}

/* The jobs of a context go on after one that failed. */
TEST(a_failed_job_is_an_event_and_ends_nothing)
{
	struct doca_event event;

	setenv("SOFTDOCA_FAULTS", "error skip=1 every=100 status=io_failed", 1);
	open_rig();
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	memset(r.from, 'x', SIZE);
	OK(submit(r.dst, r.src, SIZE, 0));
	OK(retrieve(&event));
	OK(submit(r.dst, r.src, SIZE, 1));
	GETS(retrieve(&event), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(event.user_data.u64, 1);
	CHECK_EQ(event.result.u64, DOCA_ERROR_IO_FAILED);
	OK(submit(r.dst, r.src, SIZE, 2));
	OK(retrieve(&event));
	CHECK_EQ(event.user_data.u64, 2);
	CHECK(!memcmp(r.from, r.to, SIZE));
	close_rig();
}

TEST(a_program_can_sleep_until_an_event)
{
	struct doca_event event;
	struct pollfd fd = {.events = POLLIN};
	uint8_t supported;

	open_rig();
	GETS(doca_workq_get_event_handle(r.workq, &fd.fd), DOCA_ERROR_BAD_STATE);
	GETS(doca_workq_event_handle_arm(r.workq), DOCA_ERROR_BAD_STATE);
	BAD(doca_workq_set_event_driven_enable(r.workq, 2));
	OK(doca_workq_set_event_driven_enable(r.workq, 1));
	OK(doca_ctx_get_event_driven_supported(r.ctx, &supported));
	CHECK_EQ(supported, 1);
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	GETS(doca_workq_set_event_driven_enable(r.workq, 0), DOCA_ERROR_BAD_STATE);
	OK(doca_workq_get_event_handle(r.workq, &fd.fd));
	OK(doca_workq_event_handle_arm(r.workq));
	OK(submit(r.dst, r.src, SIZE, 7));
	CHECK_EQ(poll(&fd, 1, 30000), 1);
	OK(doca_workq_event_handle_clear(r.workq, fd.fd));
	OK(retrieve(&event));
	CHECK_EQ(event.user_data.u64, 7);
	close_rig();
}

/* padsys/DPUIdioBench, published with figures of a BlueField-2, submits so many to a queue of 32. */
TEST(a_small_queue_takes_1024_jobs)
{
	struct doca_event event;

	open_rig();
	OK(doca_workq_set_depth(r.workq, 32));
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	for (unsigned i = 0; i < JOBS_LEAST; i++)
		OK(submit(r.dst, r.src, SIZE, i));
	GETS(submit(r.dst, r.src, SIZE, 0), DOCA_ERROR_NO_MEMORY);
	for (unsigned i = 0; i < JOBS_LEAST; i++) {
		OK(retrieve(&event));
		CHECK_EQ(event.user_data.u64, i);
	}
	close_rig();
}

/* The name that releases 2.0 to 2.2 had, as Stuart0l/doca-harness calls it. */
TEST(the_log_s_backend_has_its_old_name)
{
	OK(doca_log_create_standard_backend());
}

DOCA_LOG_REGISTER(WORKQ_TEST);

TEST(a_file_gets_the_program_s_records)
{
	char text[512] = {0};
	FILE *file = tmpfile();
	struct doca_logger_backend *backend = NULL;

#if SOFTDOCA_DOCA < 105
	CHECK(!doca_log_create_file_backend(NULL));
	backend = doca_log_create_file_backend(file);
#else
	BAD(doca_log_create_file_backend(NULL, &backend));
	OK(doca_log_create_file_backend(file, &backend));
#endif
	CHECK(backend);
	DOCA_LOG_INFO("a record");
	rewind(file);
	CHECK(fgets(text, sizeof(text), file));
	CHECK(strstr(text, "[WORKQ_TEST]"));
	CHECK(strstr(text, "a record"));
}

TEST(each_misuse_of_a_work_queue_has_its_documented_error)
{
	struct doca_dma_job_memcpy job = {.base = {.type = DOCA_DMA_JOB_MEMCPY}};
	struct doca_event event;
	struct doca_workq *other;
	uint32_t depth;

	BAD(doca_workq_create(0, &other));
	BAD(doca_workq_create(1, NULL));
	BAD(doca_workq_destroy(NULL));
	BAD(doca_workq_submit(NULL, &job.base));
	open_rig();
	BAD(doca_workq_destroy((struct doca_workq *)r.dma));
	BAD(doca_workq_progress_retrieve(r.workq, NULL, 0));
	BAD(doca_workq_progress_retrieve(r.workq, &event, 1));
	GETS(submit(r.dst, r.src, SIZE, 0), DOCA_ERROR_NOT_FOUND);
	OK(doca_workq_get_depth(r.workq, &depth));
	CHECK_EQ(depth, DEPTH);
	OK(doca_workq_set_depth(r.workq, JOBS_LEAST + 1));
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	GETS(doca_workq_set_depth(r.workq, 3), DOCA_ERROR_BAD_STATE);
	BAD(doca_workq_submit(r.workq, &job.base)); /* no context */
	job.base.ctx = r.ctx;
	BAD(doca_workq_submit(r.workq, &job.base)); /* no buffers */
	job.src_buff = r.src;
	job.dst_buff = r.dst;
	job.base.type = 1;
	BAD(doca_workq_submit(r.workq, &job.base));
	for (unsigned i = 0; i <= JOBS_LEAST; i++)
		OK(submit(r.dst, r.src, SIZE, i));
	GETS(submit(r.dst, r.src, SIZE, 2), DOCA_ERROR_NO_MEMORY);
	GETS(doca_ctx_workq_rm(r.ctx, r.workq), DOCA_ERROR_NOT_PERMITTED);
	for (unsigned i = 0; i <= JOBS_LEAST; i++)
		OK(retrieve(&event));
	GETS(doca_workq_destroy(r.workq), DOCA_ERROR_IN_USE);
	close_rig();
	BAD(doca_workq_destroy(r.workq));
}

TEST(each_misuse_of_a_context_has_its_documented_error)
{
	open_device();
	BAD(doca_dma_create(NULL));
	OK(doca_dma_create(&r.dma));
	r.ctx = doca_dma_as_ctx(r.dma);
	CHECK(!doca_dma_as_ctx(NULL));
	OK(doca_workq_create(DEPTH, &r.workq));
	BAD(doca_ctx_start(NULL));
	BAD(doca_ctx_start(r.ctx)); /* no device */
	GETS(doca_ctx_workq_add(r.ctx, r.workq), DOCA_ERROR_BAD_STATE);
	GETS(doca_ctx_workq_rm(r.ctx, r.workq), DOCA_ERROR_BAD_STATE);
	GETS(doca_ctx_dev_rm(r.ctx, r.dev), DOCA_ERROR_NOT_FOUND);
	BAD(doca_ctx_dev_add(r.ctx, NULL));
	OK(doca_ctx_dev_add(r.ctx, r.dev));
	GETS(doca_ctx_dev_add(r.ctx, r.dev), DOCA_ERROR_IN_USE);
	GETS(doca_dev_close(r.dev), DOCA_ERROR_IN_USE);
	OK(doca_ctx_start(r.ctx));
	GETS(doca_ctx_start(r.ctx), DOCA_ERROR_BAD_STATE);
	GETS(doca_ctx_dev_rm(r.ctx, r.dev), DOCA_ERROR_BAD_STATE);
	GETS(doca_ctx_workq_rm(r.ctx, r.workq), DOCA_ERROR_NOT_FOUND);
	BAD(doca_ctx_workq_add(r.ctx, NULL));
	OK(doca_ctx_workq_add(r.ctx, r.workq));
	GETS(doca_ctx_workq_add(r.ctx, r.workq), DOCA_ERROR_IN_USE);
	GETS(doca_ctx_stop(r.ctx), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_dma_destroy(r.dma), DOCA_ERROR_IN_USE);
	OK(doca_ctx_workq_rm(r.ctx, r.workq));
	OK(doca_ctx_stop(r.ctx));
	OK(doca_ctx_stop(r.ctx));
	OK(doca_workq_destroy(r.workq));
	OK(doca_dma_destroy(r.dma)); /* with its device, which it releases */
	BAD(doca_ctx_stop(r.ctx));
	OK(doca_dev_close(r.dev));
}

TEST(each_misuse_of_a_map_has_its_documented_error)
{
	struct doca_buf_inventory *inventory;
	struct doca_mmap *map;
	struct doca_buf *buf;
	void *addr;
	size_t len;
	uint32_t n = 2;

	open_device();
	BAD(doca_mmap_create(NULL, NULL));
	OK(doca_mmap_create(NULL, &map));
	BAD(doca_mmap_start((struct doca_mmap *)r.dev));
	GETS(doca_mmap_populate(map, r.from, SIZE, PAGE, NULL, NULL), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_get_memrange(map, &addr, &len), DOCA_ERROR_BAD_STATE);
	BAD(doca_mmap_property_set(map, (enum doca_mmap_property)7, (uint8_t *)&n, sizeof n));
	BAD(doca_mmap_property_set(map, DOCA_MMAP_MAX_NUM_CHUNKS, (uint8_t *)&n, 2));
	OK(doca_mmap_property_set(map, DOCA_MMAP_MAX_NUM_CHUNKS, (uint8_t *)&n, sizeof n));
	BAD(doca_mmap_set_max_num_chunks(map, 0));
	OK(doca_mmap_start(map));
	GETS(doca_mmap_set_max_num_chunks(map, 3), DOCA_ERROR_NOT_PERMITTED);
	BAD(doca_mmap_populate(map, NULL, SIZE, PAGE, NULL, NULL));
	BAD(doca_mmap_populate(map, r.from, 0, PAGE, NULL, NULL));
	BAD(doca_mmap_populate(map, r.from, SIZE, 2048, NULL, NULL));
	BAD(doca_mmap_populate(map, r.from, SIZE, 4097, NULL, NULL));
	GETS(doca_mmap_populate(map, (void *)8, SIZE, PAGE, NULL, NULL), DOCA_ERROR_DRIVER);
	OK(doca_mmap_populate(map, r.from, SIZE, 65536, NULL, NULL));
	GETS(doca_mmap_populate(map, r.from + 8, 8, PAGE, NULL, NULL), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_dev_add(map, r.dev)); /* after its first range */
	GETS(doca_mmap_dev_add(map, r.dev), DOCA_ERROR_IN_USE);
	OK(doca_mmap_populate(map, r.to, SIZE, PAGE, NULL, NULL));
	GETS(doca_mmap_populate(map, &map, 8, PAGE, NULL, NULL), DOCA_ERROR_NO_MEMORY);
	BAD(doca_buf_inventory_create(NULL, 1, 2, &inventory));
	OK(doca_buf_inventory_create(NULL, 1, DOCA_BUF_EXTENSION_NONE, &inventory));
	OK(doca_buf_inventory_start(inventory));
	BAD(doca_buf_inventory_buf_by_addr(inventory, map, r.from, sizeof r.from + 1, &buf));
	OK(doca_buf_inventory_buf_by_addr(inventory, map, r.to + 8, 8, &buf));
	OK(doca_mmap_get_num_bufs(map, &n));
	CHECK_EQ(n, 1);
	GETS(doca_mmap_dev_rm(map, r.dev), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_stop(map), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_destroy(map), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_buf_refcount_rm(buf, NULL));
	OK(doca_buf_inventory_destroy(inventory));
	OK(doca_mmap_dev_rm(map, r.dev));
	BAD(doca_mmap_dev_rm(map, r.dev));
	OK(doca_mmap_destroy(map));
	BAD(doca_mmap_destroy(map));
	OK(doca_dev_close(r.dev));
}

static unsigned freed;
static void count_free(void *addr, size_t len, void *opaque)
{
	CHECK(addr == r.from || addr == r.to);
	CHECK_EQ(len, SIZE);
	CHECK(opaque == &freed);
	freed++;
}

TEST(the_callback_of_each_range_is_called_once)
{
	struct doca_mmap *map;

	OK(doca_mmap_create(NULL, &map));
	OK(doca_mmap_set_max_num_chunks(map, 2));
	OK(doca_mmap_start(map));
	OK(doca_mmap_populate(map, r.from, SIZE, PAGE, count_free, &freed));
	OK(doca_mmap_populate(map, r.to, SIZE, PAGE, count_free, &freed));
	OK(doca_mmap_stop(map));
	OK(doca_mmap_start(map));
	CHECK_EQ(freed, 0);
	OK(doca_mmap_destroy(map));
	CHECK_EQ(freed, 2);
}

#if SOFTDOCA_NAMED
typedef uint8_t descriptor_t;
#else
typedef void descriptor_t;
#endif

/* A text of JSON whose members programs read. */
TEST(an_export_is_a_text_that_names_the_memory)
{
	struct doca_mmap *map, *import;
	descriptor_t *descriptor;
	unsigned long long addr;
	size_t n, len;
	void *at;
	uint8_t is;

	open_device();
	OK(doca_mmap_create(NULL, &map));
	OK(doca_mmap_start(map));
	GETS(doca_mmap_export(map, r.dev, &descriptor, &n), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_dev_add(map, r.dev));
	GETS(doca_mmap_export(map, r.dev, &descriptor, &n), DOCA_ERROR_NOT_SUPPORTED); /* empty */
	OK(doca_mmap_populate(map, r.from, SIZE, PAGE, NULL, NULL));
	OK(doca_mmap_export(map, r.dev, &descriptor, &n));
	CHECK_EQ(n, strlen((char *)descriptor) + 1);
	CHECK(n <= 1024); /* the buffer of programs */
	CHECK_EQ(sscanf((char *)descriptor, "{\"addr\": %llu, \"len\": %zu,", &addr, &len), 2);
	CHECK(addr == (uintptr_t)r.from && len == SIZE);
	OK(doca_mmap_get_exported(map, &is));
	CHECK_EQ(is, 1);
	GETS(doca_mmap_export(map, r.dev, &descriptor, &n), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_dev_rm(map, r.dev), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_populate(map, r.to, SIZE, PAGE, NULL, NULL), DOCA_ERROR_NOT_PERMITTED);

	BAD(doca_mmap_create_from_export(NULL, descriptor, 0, r.dev, &import));
	BAD(doca_mmap_create_from_export(NULL, descriptor, n / 2, r.dev, &import));
	BAD(doca_mmap_create_from_export(NULL, NULL, n, r.dev, &import));
	OK(doca_mmap_create_from_export(NULL, descriptor, n, r.dev, &import));
	OK(doca_mmap_get_from_export(import, &is));
	CHECK_EQ(is, 1);
	OK(doca_mmap_get_memrange(import, &at, &len));
	CHECK(at == r.from && len == SIZE);
	GETS(doca_mmap_dev_add(import, r.dev), DOCA_ERROR_NOT_PERMITTED);
	OK(doca_mmap_destroy(import));
	free(descriptor);
	OK(doca_mmap_destroy(map));
	OK(doca_dev_close(r.dev));
}

/* 2.0 to 2.2: devices, one range and permissions before the start. */
TEST(a_map_can_be_configured_before_its_start)
{
	struct doca_mmap *map;
	const void *descriptor;
	size_t n;

	open_device();
	OK(doca_mmap_create(NULL, &map));
	OK(doca_mmap_dev_add(map, r.dev));
	OK(doca_mmap_set_memrange(map, r.from, SIZE));
	OK(doca_mmap_set_memrange(map, r.from, SIZE));
	GETS(doca_mmap_set_memrange(map, r.to, SIZE), DOCA_ERROR_NOT_PERMITTED);
	BAD(doca_mmap_set_permissions(map, 64));
	OK(doca_mmap_set_free_cb(map, count_free, &freed));
	OK(doca_mmap_start(map));
	GETS(doca_mmap_export_dpu(map, r.dev, &descriptor, &n), DOCA_ERROR_NOT_PERMITTED);
	GETS(doca_mmap_set_permissions(map, DOCA_ACCESS_DPU_READ_ONLY), DOCA_ERROR_BAD_STATE);
	OK(doca_mmap_stop(map));
	OK(doca_mmap_set_permissions(map, DOCA_ACCESS_DPU_READ_ONLY));
	OK(doca_mmap_start(map));
	OK(doca_mmap_export_dpu(map, r.dev, &descriptor, &n));
	OK(doca_mmap_destroy(map)); /* frees the descriptor */
	CHECK_EQ(freed, 1);
	OK(doca_dev_close(r.dev));
}

TEST(a_device_has_its_former_attributes)
{
	struct doca_devinfo **list;
	struct doca_pci_bdf pci, same;
	char name[64];
	uint32_t n, caps;
	uint8_t is;

	OK(doca_devinfo_list_create(&list, &n));
	OK(doca_devinfo_get_pci_addr(list[0], &pci));
	CHECK(pci.bus == 3 && pci.device == 0 && pci.function == 0);
	OK(doca_devinfo_property_get(list[0], DOCA_DEVINFO_PROPERTY_PCI_ADDR, (uint8_t *)&same,
				     sizeof same));
	CHECK_EQ(same.raw, pci.raw);
	OK(doca_devinfo_property_get(list[0], DOCA_DEVINFO_PROPERTY_IBDEV_NAME, (uint8_t *)name,
				     sizeof name));
	CHECK(!strcmp(name, "mlx5_0"));
	BAD(doca_devinfo_property_get(list[0], DOCA_DEVINFO_PROPERTY_IBDEV_NAME, (uint8_t *)name,
				      sizeof name - 1));
	OK(doca_dma_devinfo_caps_get(list[0], &caps));
	CHECK_EQ(caps, DOCA_DMA_CAP_HW_OFFLOAD);
	OK(doca_devinfo_get_is_pci_addr_equal(list[0], "03:00.0", &is));
	CHECK_EQ(is, 1);
	OK(doca_devinfo_get_is_mmap_export_supported(list[0], &is));
	CHECK_EQ(is, 1);
	OK(doca_devinfo_list_destroy(list));
	CHECK(!strcmp(doca_get_error_name(DOCA_ERROR_AGAIN), "DOCA_ERROR_AGAIN"));
}

TEST_MAIN(run_tests)
