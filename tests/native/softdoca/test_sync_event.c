// SPDX-License-Identifier: Apache-2.0
/* Sync events in one process: operations, waits, tasks, states and invalid input. */
#include "sync_check.h"

#include <pthread.h>
#include <sys/mman.h>

/* ---- started alone ---- */

TEST(an_event_is_set_added_to_and_read)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = an_event(dev);
	uint64_t value = 9;

	OK(doca_sync_event_start(event));
	OK(doca_sync_event_get(event, &value));
	CHECK_EQ(value, 0);
	OK(doca_sync_event_update_set(event, 1ull << 60));
	OK(doca_sync_event_update_add(event, 5, &value));
	CHECK_EQ(value, 1ull << 60);
	OK(doca_sync_event_get(event, &value));
	CHECK_EQ(value, (1ull << 60) + 5);
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_start(event)); /* keeps the value */
	OK(doca_sync_event_get(event, &value));
	CHECK_EQ(value, (1ull << 60) + 5);
	REFUSED(doca_dev_close(dev), IN_USE);
	OK(doca_sync_event_destroy(event)); /* also stops it */
	OK(doca_dev_close(dev));
}

TEST(an_event_keeps_each_device_of_its_locations_open)
{
	struct doca_devinfo **list;
	struct doca_sync_event *event;
	struct doca_dev *devs[2];
	uint32_t n;
	char path[] = "/tmp/softdoca-devices-XXXXXX";
	static const char *two = "side=both pci=0000:03:00.0\nside=both pci=0000:04:00.0\n";
	int fd = mkstemp(path);

	CHECK_EQ(write(fd, two, strlen(two)), (ssize_t)strlen(two));
	close(fd);
	setenv("SOFTDOCA_DEVICES", path, 1);
	OK(doca_devinfo_create_list(&list, &n));
	unlink(path);
	CHECK_EQ(n, 2);
	for (int i = 0; i < 2; i++)
		OK(doca_dev_open(list[i], &devs[i]));
	OK(doca_devinfo_destroy_list(list));
	OK(doca_sync_event_create(&event));
	for (int i = 0; i < 4; i++)
		OK(doca_sync_event_add_publisher_location_cpu(event, devs[i % 2]));
	OK(doca_sync_event_add_subscriber_location_cpu(event, devs[1]));
	OK(doca_sync_event_start(event));
	REFUSED(doca_dev_close(devs[0]), IN_USE);
	REFUSED(doca_dev_close(devs[1]), IN_USE);
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(devs[0]));
	OK(doca_dev_close(devs[1]));
}

TEST(waits_that_are_over_return_at_once)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = an_event(dev);

	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 0x1234));
	OK(doca_sync_event_wait_gt(event, 0x1233, ALL));
	OK(doca_sync_event_wait_gt_yield(event, 0, ALL));
	OK(doca_sync_event_wait_eq(event, 0x34, 0xff)); /* the mask is applied to the event's value */
	OK(doca_sync_event_wait_eq_yield(event, 0x1200, 0xff00));
	OK(doca_sync_event_wait_neq(event, 0x35, 0xff));
	OK(doca_sync_event_wait_neq_yield(event, 0x34, ALL));
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

static struct doca_sync_event *shared;
static uint64_t written[2000];

static void *publish(void *arg)
{
	uint64_t before;

	(void)arg;
	for (uint64_t i = 0; i < 2000; i++) {
		OK(doca_sync_event_wait_eq(shared, 2 * i, ALL));
		written[i] = ~i; /* must be replaced by what the update publishes */
		OK(doca_sync_event_update_add(shared, 1, &before));
		CHECK_EQ(before, 2 * i);
	}
	return NULL;
}

TEST(threads_take_turns_and_see_what_was_written_before)
{
	struct doca_dev *dev = a_dev();
	pthread_t thread;

	shared = an_event(dev);
	OK(doca_sync_event_start(shared));
	CHECK(!pthread_create(&thread, NULL, publish, NULL));
	for (uint64_t i = 0; i < 2000; i++) {
		OK(doca_sync_event_wait_gt_yield(shared, 2 * i, ALL));
		CHECK_EQ(written[i], ~i);
		OK(doca_sync_event_update_set(shared, 2 * i + 2));
	}
	pthread_join(thread, NULL);
	OK(doca_sync_event_destroy(shared));
	OK(doca_dev_close(dev));
}

static void *add_many(void *arg)
{
	uint64_t before;

	(void)arg;
	for (int i = 0; i < 20000; i++)
		OK(doca_sync_event_update_add(shared, 3, &before));
	return NULL;
}

TEST(additions_of_threads_are_all_counted)
{
	struct doca_dev *dev = a_dev();
	pthread_t thread[3];

	shared = an_event(dev);
	OK(doca_sync_event_start(shared));
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread[i], NULL, add_many, NULL));
	OK(doca_sync_event_wait_eq_yield(shared, 3 * 3 * 20000, ALL));
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	OK(doca_sync_event_destroy(shared));
	OK(doca_dev_close(dev));
}

TEST(the_value_can_be_the_program_s)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = an_event(dev);
	struct doca_buf_inventory *inv = an_inventory(2);
	_Alignas(8) uint64_t memory[4] = {11, 22, 33, 44};
	struct doca_mmap *m = a_started_map(dev, memory, sizeof(memory), READ_WRITE);
	uint64_t value;

	OK(doca_sync_event_set_addr(event, &memory[1]));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_get(event, &value));
	CHECK_EQ(value, 22);
	OK(doca_sync_event_destroy(event));

	struct doca_buf *four = a_buf(inv, m, memory, 4), *eight = a_buf(inv, m, &memory[2], 8);
	event = an_event(dev);
	OK(doca_buf_set_data_len(four, 4));
	REFUSED(doca_sync_event_set_doca_buf(event, four), NOT_PERMITTED);
	REFUSED(doca_sync_event_set_doca_buf(event, eight), NOT_PERMITTED); /* no data */
	OK(doca_buf_set_data_len(eight, 8));
	OK(doca_sync_event_set_doca_buf(event, eight));
	OK(doca_buf_dec_refcount(eight, NULL)); /* the event holds a reference */
	CHECK_EQ(free_bufs(inv), 0);
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_add(event, 1, &value));
	CHECK(value == 33 && memory[2] == 34);
	OK(doca_sync_event_destroy(event));
	OK(doca_buf_dec_refcount(four, NULL));
	CHECK_EQ(free_bufs(inv), 2);
	OK(doca_buf_inventory_destroy(inv));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

/* ---- as a context ---- */

TEST(tasks_do_what_the_operations_do)
{
	struct doca_dev *dev = a_dev();
	struct events e = {0};
	struct doca_sync_event_task_get *get;
	struct doca_sync_event_task_notify_set *set;
	struct doca_sync_event_task_notify_add *add;
	struct doca_sync_event_task_wait_eq *eq;
	struct doca_sync_event_task_wait_neq *neq;
	union doca_data data = {.u64 = 5};
	uint64_t value = 77, before = 78;

	as_context(&e, an_event(dev));
	OK(doca_sync_event_task_wait_eq_alloc_init(e.event, 0x0a00, 0xff00, data, &eq));
	OK(doca_sync_event_task_wait_neq_alloc_init(e.event, 0, ALL, data, &neq));
	OK(doca_task_submit(doca_sync_event_task_wait_eq_as_doca_task(eq)));
	CHECK_EQ(doca_pe_progress(e.pe), 0);
	OK(doca_sync_event_task_notify_set_alloc_init(e.event, 0x0a00 - 2, data, &set));
	OK(doca_task_submit(doca_sync_event_task_notify_set_as_doca_task(set)));
	CHECK_EQ(doca_pe_progress(e.pe), 1);
	CHECK_EQ(doca_pe_progress(e.pe), 0);
	OK(doca_task_submit(doca_sync_event_task_wait_neq_as_doca_task(neq)));
	CHECK_EQ(doca_pe_progress(e.pe), 1);
	OK(doca_sync_event_task_notify_add_alloc_init(e.event, 3, &before, data, &add));
	OK(doca_task_submit(doca_sync_event_task_notify_add_as_doca_task(add)));
	OK(doca_sync_event_task_get_alloc_init(e.event, &value, data, &get));
	OK(doca_task_submit(doca_sync_event_task_get_as_doca_task(get)));
	while (doca_pe_progress(e.pe))
		;
	CHECK_EQ(e.done, 5);
	CHECK_EQ(e.last, 5);
	CHECK(before == 0x0a00 - 2 && value == 0x0a01);
	end_context(&e);
	OK(doca_dev_close(dev));
}

TEST(fields_of_tasks_are_set_and_read)
{
	struct doca_dev *dev = a_dev();
	struct events e = {0};
	struct doca_sync_event_task_get *get;
	struct doca_sync_event_task_notify_set *set;
	struct doca_sync_event_task_notify_add *add;
	struct doca_sync_event_task_wait_gt *gt;
	union doca_data data = {.u64 = 0};
	uint64_t a, b;

	as_context(&e, an_event(dev));
	OK(doca_sync_event_task_get_alloc_init(e.event, &a, data, &get));
	CHECK(doca_sync_event_task_get_get_ret_val_ptr(get) == &a);
	doca_sync_event_task_get_set_ret_val_ptr(get, &b);
	CHECK(doca_sync_event_task_get_get_ret_val_ptr(get) == &b);
	OK(doca_sync_event_task_notify_set_alloc_init(e.event, 1, data, &set));
	doca_sync_event_task_notify_set_set_set_val(set, 2);
	CHECK_EQ(doca_sync_event_task_notify_set_get_set_val(set), 2);
	OK(doca_sync_event_task_notify_add_alloc_init(e.event, 1, &a, data, &add));
	doca_sync_event_task_notify_add_set_inc_val(add, 3);
	doca_sync_event_task_notify_add_set_fetched_val_ptr(add, &b);
	CHECK_EQ(doca_sync_event_task_notify_add_get_inc_val(add), 3);
	CHECK(doca_sync_event_task_notify_add_get_fetched_val_ptr(add) == &b);
	OK(doca_sync_event_task_wait_gt_alloc_init(e.event, 1, 0xff, data, &gt));
	doca_sync_event_task_wait_gt_set_wait_val(gt, 4);
	doca_sync_event_task_wait_gt_set_mask(gt, ALL);
	CHECK_EQ(doca_sync_event_task_wait_gt_get_wait_val(gt), 4);
	CHECK(doca_sync_event_task_wait_gt_get_mask(gt) == ALL);
	/* Not in flight. */
	OK(doca_task_submit(doca_sync_event_task_wait_gt_as_doca_task(gt)));
	doca_sync_event_task_wait_gt_set_wait_val(gt, 0);
	CHECK_EQ(doca_sync_event_task_wait_gt_get_wait_val(gt), 4);
	doca_task_free(doca_sync_event_task_get_as_doca_task(get));
	doca_task_free(doca_sync_event_task_notify_set_as_doca_task(set));
	doca_task_free(doca_sync_event_task_notify_add_as_doca_task(add));
	/* A task of another kind is not a valid handle. */
	CHECK(!doca_sync_event_task_get_as_doca_task((void *)gt));
	doca_task_free(doca_sync_event_task_wait_gt_as_doca_task(gt)); /* taken back */
	size_t n;
	OK(doca_ctx_get_num_inflight_tasks(e.ctx, &n));
	CHECK_EQ(n, 0);
	end_context(&e);
	CHECK_EQ(e.done + e.failed, 0);
	OK(doca_dev_close(dev));
}

static void *update_later(void *arg)
{
	uint64_t before;

	for (int i = 0; i < 20; i++) {
		usleep(2000);
		OK(doca_sync_event_update_add(arg, 1, &before));
	}
	return NULL;
}

TEST(a_program_may_sleep_until_an_update)
{
	struct doca_dev *dev = a_dev();
	struct events e = {0};
	pthread_t thread;

	as_context(&e, an_event(dev));
	CHECK(!pthread_create(&thread, NULL, update_later, e.event));
	for (uint64_t i = 0; i < 20; i++) {
		submit_wait_gt(&e, i, i);
		while (e.done <= i)
			sleep_once(&e);
		CHECK_EQ(e.last, i);
	}
	pthread_join(thread, NULL);
	end_context(&e);
	OK(doca_dev_close(dev));
}

TEST(waits_of_a_stopped_context_fail)
{
	struct doca_dev *dev = a_dev();
	struct events e = {0};

	as_context(&e, an_event(dev));
	submit_wait_gt(&e, 5, 1);
	submit_wait_gt(&e, 6, 2);
	REFUSED(doca_ctx_stop(e.ctx), IN_PROGRESS);
	REFUSED(doca_sync_event_destroy(e.event), BAD_STATE);
	end_context(&e);
	CHECK_EQ(e.failed, 2);
	CHECK_EQ(e.last_error, DOCA_ERROR_IO_FAILED);
	OK(doca_dev_close(dev));
}

/* ---- states and bad input ---- */

TEST(an_event_starts_in_one_way_with_both_locations)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event;
	struct doca_pe *pe;
	uint64_t value;

	OK(doca_sync_event_create(&event));
	REFUSED(doca_sync_event_start(event), BAD_STATE);
	OK(doca_sync_event_add_publisher_location_cpu(event, dev));
	REFUSED(doca_sync_event_start(event), BAD_STATE);
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	REFUSED(doca_sync_event_get(event, &value), BAD_STATE);
	OK(doca_sync_event_stop(event));
	OK(doca_sync_event_start(event));
	REFUSED(doca_sync_event_start(event), BAD_STATE);
	REFUSED(doca_sync_event_add_publisher_location_remote_pci(event), BAD_STATE);
	CHECK(!doca_sync_event_as_ctx(event));
	OK(doca_sync_event_stop(event));
	REFUSED(doca_sync_event_wait_gt(event, 0, ALL), BAD_STATE);
	struct doca_ctx *ctx = doca_sync_event_as_ctx(event);
	CHECK(ctx);
	REFUSED(doca_sync_event_start(event), BAD_STATE);
	OK(doca_pe_create(&pe));
	OK(doca_pe_connect_ctx(pe, ctx));
	REFUSED(doca_ctx_start(ctx), BAD_STATE); /* no tasks */
	with_get(event);
	OK(doca_ctx_start(ctx));
	REFUSED(doca_sync_event_task_get_set_conf(event, get_cb, get_cb, 1), NOT_PERMITTED);
	OK(doca_sync_event_get(event, &value));
	OK(doca_ctx_stop(ctx));
	OK(doca_sync_event_destroy(event));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(dev));
}

TEST(what_needs_a_dpa_or_a_gpu_is_not_supported)
{
	struct doca_dev *dev = a_dev();
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	struct doca_sync_event *event = an_event(dev);
	void *engine = &event;
	uint64_t handle, *gpu_handle;

	REFUSED(doca_sync_event_add_publisher_location_dpa(event, engine), NOT_SUPPORTED);
	REFUSED(doca_sync_event_add_publisher_location_gpu(event, engine), NOT_SUPPORTED);
	REFUSED(doca_sync_event_add_subscriber_location_dpa(event, engine), NOT_SUPPORTED);
	REFUSED(doca_sync_event_add_subscriber_location_gpu(event, engine), NOT_SUPPORTED);
	REFUSED(doca_sync_event_get_dpa_handle(event, engine, &handle), NOT_SUPPORTED);
	REFUSED(doca_sync_event_get_gpu_handle(event, engine, &gpu_handle), NOT_SUPPORTED);
	REFUSED(doca_sync_event_cap_is_export_to_dpa_supported(info), NOT_SUPPORTED);
	REFUSED(doca_sync_event_cap_is_export_to_gpu_supported(info), NOT_SUPPORTED);
	REFUSED(doca_sync_event_cap_remote_net_is_export_to_dpa_supported(info), NOT_SUPPORTED);
	REFUSED(doca_sync_event_cap_remote_net_is_export_to_gpu_supported(info), NOT_SUPPORTED);
	OK(doca_sync_event_cap_is_export_to_remote_pci_supported(info));
	OK(doca_sync_event_cap_is_create_from_export_supported(info));
	OK(doca_sync_event_cap_is_export_to_remote_net_supported(info));
	OK(doca_sync_event_cap_remote_net_is_create_from_export_supported(info));
	OK(doca_sync_event_cap_task_get_is_supported(info));
	OK(doca_sync_event_cap_task_notify_set_is_supported(info));
	OK(doca_sync_event_cap_task_notify_add_is_supported(info));
	OK(doca_sync_event_cap_task_wait_eq_is_supported(info));
	OK(doca_sync_event_cap_task_wait_neq_is_supported(info));
	OK(doca_sync_event_cap_task_wait_gt_is_supported(info));
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

TEST(masks_and_numbers_of_tasks_are_checked)
{
	static const uint64_t good[] = {0,      0xff,     0xffff,          0xff00,
					0xffffffff, 0xffff00, 0xff00000000000000, ALL};
	static const uint64_t bad[] = {1, 0xfe, 0xfff, 0xffffff, 0xff00ff, 0xffffffffffff, ALL - 1};
	struct doca_dev *dev = a_dev();
	struct events e = {0};
	struct doca_sync_event_task_wait_eq *tasks[SYNC_TASKS], *more;
	union doca_data none = {.u64 = 0};

	as_context(&e, an_event(dev));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		OK(doca_sync_event_task_wait_eq_alloc_init(e.event, 0, good[i], none, &more));
		doca_task_free(doca_sync_event_task_wait_eq_as_doca_task(more));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		REFUSED(doca_sync_event_task_wait_eq_alloc_init(e.event, 0, bad[i], none, &more),
			INVALID_VALUE);
	for (uint32_t i = 0; i < SYNC_TASKS; i++)
		OK(doca_sync_event_task_wait_eq_alloc_init(e.event, 0, ALL, none, &tasks[i]));
	REFUSED(doca_sync_event_task_wait_eq_alloc_init(e.event, 0, ALL, none, &more), NO_MEMORY);
	for (uint32_t i = 0; i < SYNC_TASKS; i++)
		doca_task_free(doca_sync_event_task_wait_eq_as_doca_task(tasks[i]));
	end_context(&e);
	struct doca_sync_event *event = an_event(dev);
	REFUSED(doca_sync_event_task_get_set_conf(event, get_cb, get_cb, 0), INVALID_VALUE);
	REFUSED(doca_sync_event_task_get_set_conf(event, NULL, get_cb, 1), INVALID_VALUE);
	REFUSED(doca_sync_event_task_get_set_conf(event, get_cb, NULL, 1), INVALID_VALUE);
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

/* ---- handles ---- */

static struct doca_dev *any;
static struct doca_sync_event *event_out;
static struct doca_sync_event_remote_net *remote_out;
static const uint8_t *data_out;
static size_t size_out;
static uint64_t number, *pointer;
static struct doca_sync_event_task_get *get_out;
static struct doca_sync_event_task_notify_set *set_out;
static struct doca_sync_event_task_notify_add *add_out;
static struct doca_sync_event_task_wait_eq *eq_out;
static struct doca_sync_event_task_wait_neq *neq_out;
static struct doca_sync_event_task_wait_gt *gt_out;
static const union doca_data nothing;

CALL(destroy, doca_sync_event_destroy(h))
CALL(remote_destroy, doca_sync_event_remote_net_destroy(h))
CALL(p_cpu, doca_sync_event_add_publisher_location_cpu(h, any))
CALL(s_cpu, doca_sync_event_add_subscriber_location_cpu(h, any))
CALL(p_cpu_dev, doca_sync_event_add_publisher_location_cpu(event_out, h))
CALL(s_cpu_dev, doca_sync_event_add_subscriber_location_cpu(event_out, h))
CALL(p_pci, doca_sync_event_add_publisher_location_remote_pci(h))
CALL(s_pci, doca_sync_event_add_subscriber_location_remote_pci(h))
CALL(p_net, doca_sync_event_add_publisher_location_remote_net(h))
CALL(p_dpa, doca_sync_event_add_publisher_location_dpa(h, (void *)&number))
CALL(p_gpu, doca_sync_event_add_publisher_location_gpu(h, (void *)&number))
CALL(s_dpa, doca_sync_event_add_subscriber_location_dpa(h, (void *)&number))
CALL(s_gpu, doca_sync_event_add_subscriber_location_gpu(h, (void *)&number))
CALL(set_addr, doca_sync_event_set_addr(h, &number))
CALL(set_buf, doca_sync_event_set_doca_buf(event_out, h))
CALL(start, doca_sync_event_start(h))
CALL(stop, doca_sync_event_stop(h))
CALL(get, doca_sync_event_get(h, &number))
CALL(add, doca_sync_event_update_add(h, 1, &number))
CALL(set, doca_sync_event_update_set(h, 1))
CALL(gt, doca_sync_event_wait_gt(h, 1, ALL))
CALL(gt_yield, doca_sync_event_wait_gt_yield(h, 1, ALL))
CALL(eq, doca_sync_event_wait_eq(h, 1, ALL))
CALL(eq_yield, doca_sync_event_wait_eq_yield(h, 1, ALL))
CALL(neq, doca_sync_event_wait_neq(h, 1, ALL))
CALL(neq_yield, doca_sync_event_wait_neq_yield(h, 1, ALL))
CALL(export_pci, doca_sync_event_export_to_remote_pci(h, any, &data_out, &size_out))
CALL(export_dev, doca_sync_event_export_to_remote_pci(event_out, h, &data_out, &size_out))
CALL(export_net, doca_sync_event_export_to_remote_net(h, &data_out, &size_out))
CALL(from_dev, doca_sync_event_create_from_export(h, (uint8_t *)"x", 1, &event_out))
CALL(from_net, doca_sync_event_remote_net_create_from_export(h, (uint8_t *)"x", 1, &remote_out))
CALL(dpa, doca_sync_event_get_dpa_handle(h, (void *)&number, &number))
CALL(gpu, doca_sync_event_get_gpu_handle(h, (void *)&number, &pointer))
CALL(net_dpa, doca_sync_event_remote_net_get_dpa_handle(h, (void *)&number, &number))
CALL(net_gpu, doca_sync_event_remote_net_get_gpu_handle(h, (void *)&number, &number))
CALL(cap_1, doca_sync_event_cap_is_export_to_remote_pci_supported(h))
CALL(cap_2, doca_sync_event_cap_is_create_from_export_supported(h))
CALL(cap_3, doca_sync_event_cap_task_wait_gt_is_supported(h))
CALL(conf, doca_sync_event_task_get_set_conf(h, get_cb, get_cb, 1))
CALL(t_get, doca_sync_event_task_get_alloc_init(h, &number, nothing, &get_out))
CALL(t_set, doca_sync_event_task_notify_set_alloc_init(h, 1, nothing, &set_out))
CALL(t_add, doca_sync_event_task_notify_add_alloc_init(h, 1, &number, nothing, &add_out))
CALL(t_eq, doca_sync_event_task_wait_eq_alloc_init(h, 1, ALL, nothing, &eq_out))
CALL(t_neq, doca_sync_event_task_wait_neq_alloc_init(h, 1, ALL, nothing, &neq_out))
CALL(t_gt, doca_sync_event_task_wait_gt_alloc_init(h, 1, ALL, nothing, &gt_out))

TEST(every_function_refuses_what_is_no_handle_of_its_kind)
{
	struct doca_pe *pe;

	any = a_dev();
	event_out = an_event(any);
	OK(doca_pe_create(&pe));
	void *handles[] = NO_HANDLES(pe);
	all_refuse(handles, sizeof(handles) / sizeof(handles[0]));
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		CHECK(!doca_sync_event_as_ctx(handles[i]));
		CHECK(!doca_sync_event_task_get_as_doca_task(handles[i]));
		CHECK(!doca_sync_event_task_wait_eq_get_mask(handles[i]));
		doca_sync_event_task_wait_neq_set_mask(handles[i], 0);
	}
	OK(doca_sync_event_destroy(event_out));
	REFUSED(doca_sync_event_start(event_out), INVALID_VALUE); /* it was freed */
	REFUSED(doca_sync_event_create(NULL), INVALID_VALUE);
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(any));
}

TEST_MAIN(run_tests)
