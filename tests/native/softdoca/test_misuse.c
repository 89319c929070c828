// SPDX-License-Identifier: Apache-2.0
/*
 * Programs that misbehave: the list of cases. Each CASE(stand, name, error, call) is one: on a stand of
 * its own, in a process of its own, the call returns the error (or the status of a task is it), what was
 * there before is still whole and closes, and another context copies. Invalid handles are in
 * test_object.c, all ways to lose memory in test_unmapped.c, graphs in test_graph.c.
 */
#include "rdma_check.h"
#include "verbs_check.h"

#include <doca_buf_array.h>
#include <doca_flow.h>
#include <doca_sync_event.h>
#include <pthread.h>
#include <sys/socket.h>

#define SIZE 65536
#define ALL  UINT64_MAX

static char bytes[8192];
static const char constant[16] = "read-only";
static union doca_data data;
static void *out;
static size_t len;
static struct rig r;
static struct doca_dev *dev;
static struct doca_mmap *map;
static struct doca_buf_inventory *inv;
static struct doca_buf *b, *src, *dst, *got;
static struct doca_dma_task_memcpy *t, *other;
static struct doca_task *task;
static struct doca_sync_event *event;
static struct doca_gpu *gpu;
static uint64_t word;

/* ---- stands ---- */

static void none_up(void)
{
}

static void none_down(void)
{
}

/* A map without memory, and a device that it does not have. */
static void new_map_up(void)
{
	dev = a_dev();
	OK(doca_mmap_create(&map));
}

/* A map that could be started, and one that is. */
static void map_up(void)
{
	dev = a_dev();
	map = a_map(dev, bytes, sizeof bytes, READ_WRITE | PCI_RW);
}

static void started_map_up(void)
{
	map_up();
	OK(doca_mmap_start(map));
}

static void map_down(void)
{
	OK(doca_mmap_destroy(map));
	OK(doca_dev_close(dev));
}

#define new_map_down	 map_down
#define started_map_down map_down

/* A buffer of 64 bytes, the only one of its inventory. */
static void buf_up(void)
{
	started_map_up();
	inv = an_inventory(1);
	b = a_buf(inv, map, bytes, 64);
}

static void buf_down(void)
{
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_inventory_destroy(inv));
	map_down();
}

/* A context that is not started; one that is, with a task; the task in flight. */
static void idle_up(void)
{
	rig_make(&r, SIZE, 2);
}

static void running_up(void)
{
	idle_up();
	OK(doca_ctx_start(r.ctx));
	src = source(&r, 0, 64);
	dst = target(&r, 0, 64);
	t = a_memcpy(&r, src, dst, 0);
	task = doca_dma_task_memcpy_as_task(t);
}

static void in_flight_up(void)
{
	running_up();
	OK(doca_task_submit(task));
}

static void idle_down(void)
{
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	rig_close(&r);
}

static void running_down(void)
{
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_RUNNING);
	CHECK_EQ(in_flight(&r), 0);
	doca_task_free(task);
	rig_close(&r, src, dst);
}

static void in_flight_down(void)
{
	run_until(&r, 1);
	OK(r.last);
	CHECK_EQ(data_len(dst), 64);
	rig_close(&r, src, dst);
}

/* An event, and one that is started. */
static void event_up(void)
{
	dev = a_dev();
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
}

static void started_event_up(void)
{
	event_up();
	OK(doca_sync_event_start(event));
}

static void event_down(void)
{
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

#define started_event_down event_down

static void gpu_up(void)
{
	no_gpu();
	OK(doca_gpu_create("41:00.0", &gpu));
	out = gpu_alloc(gpu, 4096, DOCA_GPU_MEM_TYPE_GPU);
}

static void gpu_down(void)
{
	OK(doca_gpu_mem_free(gpu, out));
	OK(doca_gpu_destroy(gpu));
}

static void a_context_copies(void)
{
	struct rig own;

	rig_open(&own, SIZE, 1);
	OK(copied_at(&own, 0, 64, 4096));
	rig_close(&own);
}

#define CASE(stand, name, error, call)                       \
	TEST(name)                                           \
	{                                                    \
		stand##_up();                                \
		CHECK_DOCA(call, DOCA_ERROR_##error);        \
		stand##_down();                              \
		a_context_copies();                          \
	}

/* ---- devices and maps ---- */

static doca_error_t open_of_a_list_that_is_gone(void)
{
	struct doca_devinfo **list;
	uint32_t n;

	OK(doca_devinfo_create_list(&list, &n));
	struct doca_devinfo *first = list[0];
	OK(doca_devinfo_destroy_list(list));
	CHECK_EQ(doca_devinfo_destroy_list(list), DOCA_ERROR_INVALID_VALUE);
	return doca_dev_open(first, &dev);
}

static doca_error_t start_of_a_map(void *at, size_t size, uint32_t permissions)
{
	struct doca_mmap *m = a_map(dev, at, size, permissions);
	doca_error_t error = doca_mmap_start(m);

	OK(doca_mmap_destroy(m));
	return error;
}

static void free_nothing(void *addr, size_t n, void *opaque)
{
	(void)addr, (void)n, (void)opaque;
}

#define DESC (const void **)&out
CASE(none, a_device_of_a_list_that_was_destroyed, INVALID_VALUE, open_of_a_list_that_is_gone())
CASE(none, a_map_without_a_place_for_it, INVALID_VALUE, doca_mmap_create(NULL))
CASE(new_map, a_range_at_no_address, INVALID_VALUE, doca_mmap_set_memrange(map, NULL, 100))
CASE(new_map, a_range_of_no_bytes, INVALID_VALUE, doca_mmap_set_memrange(map, bytes, 0))
CASE(new_map, a_range_beyond_all_addresses, INVALID_VALUE, doca_mmap_set_memrange(map, bytes, SIZE_MAX))
CASE(new_map, the_range_of_a_map_that_has_none, BAD_STATE, doca_mmap_get_memrange(map, &out, &len))
CASE(new_map, a_start_without_a_range, INVALID_VALUE, doca_mmap_start(map))
CASE(new_map, a_device_that_the_map_does_not_have, NOT_FOUND, doca_mmap_rm_dev(map, dev))
CASE(new_map, a_map_for_no_devices, INVALID_VALUE, doca_mmap_set_max_num_devices(map, 0))
CASE(new_map, a_map_for_too_many_devices, INVALID_VALUE, doca_mmap_set_max_num_devices(map, UINT32_MAX))
CASE(new_map, unknown_permissions, INVALID_VALUE, doca_mmap_set_permissions(map, 0x80))
CASE(new_map, memory_that_is_not_there, DRIVER, start_of_a_map((void *)65536, (size_t)1 << 46, READ_WRITE))
CASE(new_map, memory_that_is_read_only, DRIVER, start_of_a_map((void *)(uintptr_t)constant, 16, READ_WRITE))
CASE(map, another_range, NOT_PERMITTED, doca_mmap_set_memrange(map, bytes + 1, 100))
CASE(map, a_dma_buf_for_a_map_with_a_range, NOT_PERMITTED, doca_mmap_set_dmabuf_memrange(map, 0, bytes, 0, 100))
CASE(map, a_device_twice, ALREADY_EXIST, doca_mmap_add_dev(map, dev))
CASE(map, a_device_that_a_map_has_is_closed, IN_USE, doca_dev_close(dev))
CASE(map, an_export_before_the_start, NOT_PERMITTED, doca_mmap_export_pci(map, dev, DESC, &len))
CASE(map, an_export_for_rdma_before_the_start, NOT_PERMITTED, doca_mmap_export_rdma(map, dev, DESC, &len))
CASE(started_map, a_second_start_of_a_map, BAD_STATE, doca_mmap_start(map))
CASE(started_map, a_range_after_the_start, BAD_STATE, doca_mmap_set_memrange(map, bytes, 1))
CASE(started_map, a_dma_buf_after_the_start, BAD_STATE, doca_mmap_set_dmabuf_memrange(map, 0, bytes, 0, 1))
CASE(started_map, permissions_after_the_start, BAD_STATE, doca_mmap_set_permissions(map, 0))
CASE(started_map, a_free_callback_after_the_start, BAD_STATE, doca_mmap_set_free_cb(map, free_nothing, NULL))
CASE(started_map, user_data_after_the_start, BAD_STATE, doca_mmap_set_user_data(map, data))
CASE(started_map, thread_safety_after_the_start, NOT_PERMITTED, doca_mmap_enable_thread_safety(map))
CASE(started_map, a_device_after_the_start, NOT_PERMITTED, doca_mmap_add_dev(map, dev))
CASE(started_map, a_device_removed_after_the_start, NOT_PERMITTED, doca_mmap_rm_dev(map, dev))
CASE(started_map, more_devices_after_the_start, NOT_PERMITTED, doca_mmap_set_max_num_devices(map, 2))
CASE(started_map, an_export_that_nothing_permits, NOT_PERMITTED, doca_mmap_export_rdma(map, dev, DESC, &len))
CASE(started_map, an_export_without_a_place, INVALID_VALUE, doca_mmap_export_pci(map, dev, NULL, &len))
CASE(started_map, an_export_without_a_place_for_its_length, INVALID_VALUE, doca_mmap_export_pci(map, dev, DESC, NULL))
CASE(started_map, a_range_without_a_place, INVALID_VALUE, doca_mmap_get_memrange(map, NULL, &len))
CASE(started_map, a_length_without_a_place, INVALID_VALUE, doca_mmap_get_memrange(map, &out, NULL))
CASE(started_map, user_data_without_a_place, INVALID_VALUE, doca_mmap_get_user_data(map, NULL))
CASE(started_map, a_number_of_buffers_without_a_place, INVALID_VALUE, doca_mmap_get_num_bufs(map, NULL))
CASE(started_map, whether_exported_without_a_place, INVALID_VALUE, doca_mmap_get_exported(map, NULL))
CASE(started_map, whether_from_an_export_without_a_place, INVALID_VALUE, doca_mmap_get_from_export(map, NULL))
CASE(started_map, a_number_of_devices_without_a_place, INVALID_VALUE, doca_mmap_get_max_num_devices(map, NULL))
CASE(started_map, bytes_that_are_no_descriptor, INVALID_VALUE,
     doca_mmap_create_from_export(NULL, bytes, sizeof bytes, dev, &map))

/* ---- buffers ---- */

static doca_error_t a_buffer_twice_returned(void)
{
	struct doca_buf_inventory *own = an_inventory(1);
	struct doca_buf *gone = a_buf(own, map, bytes, 64);

	OK(doca_buf_dec_refcount(gone, NULL));
	doca_error_t error = doca_buf_dec_refcount(gone, NULL);
	OK(doca_buf_inventory_destroy(own));
	return error;
}

/* Returns the error of one of the calls that a started inventory allows. */
static doca_error_t of_a_stopped_inventory(bool expand)
{
	struct doca_buf_inventory *own;

	OK(doca_buf_inventory_create(1, &own));
	doca_error_t error = expand ? doca_buf_inventory_expand(own, 1)
				    : doca_buf_inventory_buf_get_by_addr(own, map, bytes, 8, &got);
	OK(doca_buf_inventory_destroy(own));
	return error;
}

static doca_error_t a_buffer_of(void *at, size_t n)
{
	return doca_buf_inventory_buf_get_by_addr(inv, map, at, n, &got);
}

CASE(none, an_inventory_of_no_buffers, INVALID_VALUE, doca_buf_inventory_create(0, &inv))
CASE(none, an_inventory_of_all_memory, NO_MEMORY, doca_buf_inventory_create((size_t)1 << 40, &inv))
CASE(map, a_buffer_of_a_map_that_is_not_started, BAD_STATE, (inv = an_inventory(1), a_buffer_of(bytes, 8)))
CASE(started_map, a_buffer_of_a_stopped_inventory, BAD_STATE, of_a_stopped_inventory(false))
CASE(started_map, a_stopped_inventory_grows, BAD_STATE, of_a_stopped_inventory(true))
CASE(started_map, a_buffer_is_returned_twice, BAD_STATE, a_buffer_twice_returned())
CASE(buf, more_buffers_than_there_are, NO_MEMORY, a_buffer_of(bytes, 8))
CASE(buf, a_copy_of_a_buffer_where_there_is_none, NO_MEMORY, doca_buf_inventory_buf_dup(inv, b, &got))
CASE(buf, an_inventory_grows_by_nothing, INVALID_VALUE, doca_buf_inventory_expand(inv, 0))
CASE(buf, an_inventory_grows_beyond_all_memory, NO_MEMORY, doca_buf_inventory_expand(inv, UINT32_MAX))
CASE(buf, user_data_of_a_started_inventory, BAD_STATE, doca_buf_inventory_set_user_data(inv, data))
CASE(buf, an_inventory_whose_buffer_is_out_is_destroyed, IN_USE, doca_buf_inventory_destroy(inv))
CASE(buf, a_map_with_a_buffer_is_stopped, NOT_PERMITTED, doca_mmap_stop(map))
CASE(buf, a_map_with_a_buffer_is_destroyed, NOT_PERMITTED, doca_mmap_destroy(map))
CASE(buf, data_before_the_buffer, INVALID_VALUE, doca_buf_set_data(b, bytes - 1, 8))
CASE(buf, data_beyond_the_buffer, INVALID_VALUE, doca_buf_set_data(b, bytes, 65))
CASE(buf, a_list_of_a_buffer_and_itself, INVALID_VALUE, doca_buf_chain_list(b, b))

/* ---- contexts and tasks ---- */

/* Starts a context that lacks tasks or an engine. */
static doca_error_t start_without(bool has_engine)
{
	struct doca_dev *own = a_dev();
	struct doca_dma *dma;
	struct doca_pe *pe;

	OK(doca_dma_create(own, &dma));
	OK(doca_pe_create(&pe));
	if (has_engine)
		OK(doca_pe_connect_ctx(pe, doca_dma_as_ctx(dma)));
	else
		OK(doca_dma_task_memcpy_set_conf(dma, on_done, on_error, 1));
	doca_error_t error = doca_ctx_start(doca_dma_as_ctx(dma));
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
	OK(doca_dev_close(own));
	return error;
}

static doca_error_t configured(uint32_t tasks)
{
	return doca_dma_task_memcpy_set_conf(r.dma, on_done, on_error, tasks);
}

static doca_error_t connected_again(void)
{
	struct doca_pe *pe;

	OK(doca_pe_create(&pe));
	doca_error_t error = doca_pe_connect_ctx(pe, r.ctx);
	OK(doca_pe_destroy(pe));
	return error;
}

static doca_error_t allocated(const struct doca_buf *from, struct doca_buf *to)
{
	return doca_dma_task_memcpy_alloc_init(r.dma, from, to, data, &other);
}

static doca_error_t allocated_beyond_the_number(void)
{
	OK(allocated(NULL, NULL));
	struct doca_dma_task_memcpy *second = other;
	doca_error_t error = allocated(NULL, NULL);
	doca_task_free(doca_dma_task_memcpy_as_task(second));
	return error;
}

/* Submits the task with another source, or another target. */
static doca_error_t submitted_with(struct doca_buf *from, struct doca_buf *to)
{
	doca_dma_task_memcpy_set_src(t, from);
	doca_dma_task_memcpy_set_dst(t, to);
	doca_error_t error = doca_task_submit(task);
	CHECK_EQ(doca_task_try_submit(task), error);
	return error;
}

static doca_error_t submitted_with_a_returned_buffer(void)
{
	struct doca_buf *gone = target(&r, 0, 8);

	drop(gone);
	return submitted_with(src, gone);
}

static doca_error_t submitted_with_the_second_of_a_list(void)
{
	struct doca_buf *second = source(&r, 64, 8);

	OK(doca_buf_chain_list(src, second));
	return submitted_with(second, dst);
}

static doca_error_t of_a_freed_task(void)
{
	OK(allocated(src, dst));
	struct doca_task *gone = doca_dma_task_memcpy_as_task(other);
	doca_task_free(gone);
	doca_task_free(gone);
	return doca_task_submit(gone);
}

/* How a copy fails, whose task is right. */
enum wrong { NO_DATA, NO_ROOM, READ_ONLY, LOST_SOURCE, LOST_TARGET };

/* Returns the status of a copy. What the task's memory loses it loses before or after the submit. */
static doca_error_t copy_with(enum wrong wrong, bool is_submitted)
{
	rig_open(&r, SIZE, 1);
	if (wrong == READ_ONLY) {
		OK(doca_mmap_stop(r.to_map));
		OK(doca_mmap_set_permissions(r.to_map, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY));
		OK(doca_mmap_start(r.to_map));
	}
	struct doca_buf *from = source(&r, 0, wrong == NO_DATA ? 0 : SIZE / 2);
	struct doca_buf *to = target(&r, 0, wrong == NO_ROOM ? 64 : SIZE / 2);
	struct doca_task *own = a_task(&r, from, to, 0);
	uint8_t *lost = wrong == LOST_SOURCE ? r.from : r.to;

	if (is_submitted) /* and held until the flush */
		OK(doca_task_submit_ex(own, DOCA_TASK_SUBMIT_FLAG_NONE));
	if (wrong >= LOST_SOURCE)
		CHECK_EQ(mprotect(lost, SIZE / 2, PROT_NONE), 0);
	if (is_submitted)
		doca_ctx_flush_tasks(r.ctx);
	else
		OK(doca_task_submit(own));
	run_until(&r, 1);
	run_until_idle(&r);
	doca_error_t status = r.last;
	CHECK_EQ(mprotect(lost, SIZE / 2, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(data_len(to), 0);
	rig_close(&r, from, to);
	return status;
}

/* Calls a function in a second thread while the first one is in a callback of the engine. */
static doca_error_t (*second_call)(void);
static doca_error_t of_second;

static void *second_thread(void *arg)
{
	of_second = second_call();
	return arg;
}

static void done_beside_a_thread(struct doca_dma_task_memcpy *memcpy_task, union doca_data user, union doca_data of_ctx)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, second_thread, NULL));
	CHECK(!pthread_join(thread, NULL));
	on_done(memcpy_task, user, of_ctx);
}

static doca_error_t beside_a_callback(doca_error_t (*call)(void))
{
	second_call = call;
	rig_make(&r, SIZE, 1);
	OK(doca_dma_task_memcpy_set_conf(r.dma, done_beside_a_thread, on_error, 1));
	OK(doca_ctx_start(r.ctx));
	OK(copied_at(&r, 0, 0, 64));
	rig_close(&r);
	return of_second;
}

static doca_error_t stop_it(void)
{
	return doca_ctx_stop(r.ctx);
}

static doca_error_t destroy_it(void)
{
	return doca_dma_destroy(r.dma);
}

static doca_error_t destroy_engine(void)
{
	return doca_pe_destroy(r.pe);
}

static doca_error_t allocate_one(void)
{
	return allocated(NULL, NULL);
}

CASE(none, a_context_without_tasks, BAD_STATE, start_without(true))
CASE(none, a_context_without_an_engine, NOT_CONNECTED, start_without(false))
CASE(none, an_engine_without_a_place_for_it, INVALID_VALUE, doca_pe_create(NULL))
CASE(idle, a_context_without_a_place_for_it, INVALID_VALUE, doca_dma_create(r.dev, NULL))
CASE(idle, no_tasks, INVALID_VALUE, configured(0))
CASE(idle, too_many_tasks, INVALID_VALUE, configured(UINT32_MAX))
CASE(idle, no_callback_for_errors, INVALID_VALUE, doca_dma_task_memcpy_set_conf(r.dma, on_done, NULL, 1))
CASE(idle, an_order_that_is_neither, INVALID_VALUE, doca_dma_set_ordered_completions(r.dma, 2))
CASE(idle, an_event_mode_that_is_none, INVALID_VALUE, doca_pe_set_event_mode(r.pe, 2))
CASE(idle, a_second_engine, NOT_PERMITTED, connected_again())
CASE(idle, a_task_before_the_start, BAD_STATE, allocated(NULL, NULL))
CASE(idle, an_engine_with_a_context_is_destroyed, IN_USE, doca_pe_destroy(r.pe))
CASE(idle, a_state_without_a_place, INVALID_VALUE, doca_ctx_get_state(r.ctx, NULL))
CASE(idle, a_number_of_tasks_without_a_place, INVALID_VALUE, doca_ctx_get_num_inflight_tasks(r.ctx, NULL))
CASE(idle, a_notification_handle_without_a_place, INVALID_VALUE, doca_pe_get_notification_handle(r.pe, NULL))
CASE(running, a_second_start, BAD_STATE, doca_ctx_start(r.ctx))
CASE(running, tasks_after_the_start, BAD_STATE, configured(8))
CASE(running, a_state_callback_after_the_start, BAD_STATE, doca_ctx_set_state_changed_cb(r.ctx, on_state))
CASE(running, an_order_after_the_start, BAD_STATE, doca_dma_set_ordered_completions(r.dma, 1))
CASE(running, an_engine_after_the_start, BAD_STATE, connected_again())
CASE(running, a_running_context_is_destroyed, IN_USE, doca_dma_destroy(r.dma))
CASE(running, a_device_with_a_context_is_closed, IN_USE, doca_dev_close(r.dev))
CASE(running, a_task_too_many, NO_MEMORY, allocated_beyond_the_number())
CASE(running, a_task_without_a_place, INVALID_VALUE, doca_dma_task_memcpy_alloc_init(r.dma, src, dst, data, NULL))
CASE(running, a_task_with_what_is_no_buffer, INVALID_VALUE, allocated((void *)bytes, dst))
CASE(running, a_submit_with_what_is_no_buffer, INVALID_VALUE, submitted_with((void *)bytes, dst))
CASE(running, a_submit_without_a_target, INVALID_VALUE, submitted_with(src, NULL))
CASE(running, a_submit_with_a_buffer_that_was_returned, INVALID_VALUE, submitted_with_a_returned_buffer())
CASE(running, a_submit_with_the_second_of_a_list, INVALID_VALUE, submitted_with_the_second_of_a_list())
CASE(running, unknown_flags_of_a_submit, INVALID_VALUE, doca_task_submit_ex(task, 1u << 30))
CASE(running, a_task_that_was_freed, INVALID_VALUE, of_a_freed_task())
CASE(in_flight, a_task_in_flight_is_submitted, BAD_STATE, doca_task_submit(task))
CASE(in_flight, the_source_of_a_task_in_flight_is_returned, IN_USE, doca_buf_dec_refcount(src, NULL))
CASE(in_flight, the_target_of_a_task_in_flight_is_returned, IN_USE, doca_buf_dec_refcount(dst, NULL))
CASE(in_flight, the_map_of_a_task_in_flight_is_destroyed, NOT_PERMITTED, doca_mmap_destroy(r.from_map))
CASE(in_flight, the_context_of_a_task_in_flight_is_destroyed, IN_USE, doca_dma_destroy(r.dma))
CASE(none, a_copy_without_data, IO_FAILED, copy_with(NO_DATA, false))
CASE(none, a_copy_without_room, IO_FAILED, copy_with(NO_ROOM, false))
CASE(none, a_copy_to_a_map_that_permits_no_write, IO_FAILED, copy_with(READ_ONLY, false))
CASE(none, a_source_lost_before_the_copy, IO_FAILED, copy_with(LOST_SOURCE, false))
CASE(none, a_source_lost_in_flight, IO_FAILED, copy_with(LOST_SOURCE, true))
CASE(none, a_target_lost_before_the_copy, IO_FAILED, copy_with(LOST_TARGET, false))
CASE(none, a_target_lost_in_flight, IO_FAILED, copy_with(LOST_TARGET, true))
CASE(none, a_thread_stops_a_context_beside_its_callback, IN_USE, beside_a_callback(stop_it))
CASE(none, a_thread_destroys_a_context_beside_its_callback, IN_USE, beside_a_callback(destroy_it))
CASE(none, a_thread_destroys_an_engine_beside_its_callback, IN_USE, beside_a_callback(destroy_engine))
CASE(none, a_thread_allocates_beside_a_callback, IN_USE, beside_a_callback(allocate_one))

/* ---- RDMA ---- */

static struct side near, peer;
static struct side_offer of_near, of_peer;

static void sides_up(void)
{
	side_make(&near, LENT, 1);
	side_make(&peer, LENT, 1);
	side_offers(&near, &of_near);
	side_offers(&peer, &of_peer);
	side_takes(&near, &of_peer);
	side_takes(&peer, &of_near);
}

static void sides_down(void)
{
	side_close(&near);
	side_close(&peer);
}

/* Returns the status of a write whose source or target is lost. */
static doca_error_t write_of_lost_memory(struct side *loser)
{
	struct doca_buf *from = near_buf(&near, 0, SIZE, true), *to = peer_buf(&near, &of_peer, 0, SIZE, false);

	CHECK_EQ(mprotect(loser->bytes, SIZE, PROT_NONE), 0);
	SUBMIT(&near, write, near.connection, from, to, number(1));
	side_until(&near, 1);
	CHECK_EQ(mprotect(loser->bytes, SIZE, PROT_READ | PROT_WRITE), 0);
	drop(from, to);
	return near.last;
}

/* Returns the status of a receive whose peer is gone, at the end of its own context. */
static doca_error_t receive_of_nobody(void)
{
	struct doca_buf *to = near_buf(&near, 0, 64, false);

	SUBMIT(&near, receive, to, number(1));
	side_stop(&peer);
	for (int i = 0; i < 1000; i++)
		doca_pe_progress(near.pe);
	CHECK_EQ(near.done + near.failed, 0); /* another connection could still use it */
	side_stop(&near);
	CHECK_EQ(near.failed, 1);
	drop(to);
	return near.last;
}

CASE(sides, a_write_from_memory_that_was_lost, IO_FAILED, write_of_lost_memory(&near))
CASE(sides, a_write_to_memory_that_its_peer_lost, IO_FAILED, write_of_lost_memory(&peer))
CASE(sides, a_receive_whose_peer_is_gone, IO_FAILED, receive_of_nobody())

/* ---- events ---- */

static void *at_nothing(void)
{
	void *gone = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK_EQ(munmap(gone, 65536), 0);
	return gone;
}

static atomic_bool waits;

static void *wait_for_ever(void *arg)
{
	atomic_store(&waits, true);
	*(doca_error_t *)arg = doca_sync_event_wait_gt(event, 5, ALL);
	return NULL;
}

/* Returns what a waiting thread gets at the event's stop. */
static doca_error_t waiter_of_a_stopped_event(void)
{
	doca_error_t waited = DOCA_SUCCESS;
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, wait_for_ever, &waited));
	while (!atomic_load(&waits))
		;
	OK(doca_sync_event_stop(event));
	CHECK(!pthread_join(thread, NULL));
	return waited;
}

CASE(none, an_event_without_a_place_for_it, INVALID_VALUE, doca_sync_event_create(NULL))
CASE(event, an_event_at_no_address, INVALID_VALUE, doca_sync_event_set_addr(event, NULL))
CASE(event, an_event_at_an_odd_address, INVALID_VALUE, doca_sync_event_set_addr(event, (uint64_t *)(bytes + 1)))
CASE(event, an_event_in_memory_that_is_not_there, INVALID_VALUE, doca_sync_event_set_addr(event, at_nothing()))
CASE(event, the_value_of_an_event_before_its_start, BAD_STATE, doca_sync_event_get(event, &word))
CASE(started_event, a_second_start_of_an_event, BAD_STATE, doca_sync_event_start(event))
CASE(started_event, an_address_after_the_start, BAD_STATE, doca_sync_event_set_addr(event, &word))
CASE(started_event, a_value_without_a_place, INVALID_VALUE, doca_sync_event_get(event, NULL))
CASE(started_event, a_wait_when_the_event_stops, BAD_STATE, waiter_of_a_stopped_event())

/* ---- GPU, queue pairs and flows ---- */

static doca_error_t gpu_alloc_of(size_t size, size_t alignment)
{
	void *at;

	return doca_gpu_mem_alloc(gpu, size, alignment, DOCA_GPU_MEM_TYPE_GPU, &at, NULL);
}

static doca_error_t destroyed_gpu_of_an_exported_queue_pair(void)
{
	struct end e = {0};

	no_gpu();
	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
	doca_error_t error = doca_gpu_destroy(e.gpu);
	close_end(&e);
	return error;
}

/* Destroys the map of a started array. Returns the error of its next start. */
static doca_error_t array_of_a_destroyed_map(void)
{
	struct doca_mmap *own = a_started_map(dev, bytes, 4096, READ_WRITE);
	struct doca_gpu_buf_arr *handle;
	struct doca_buf_arr *array;

	OK(doca_buf_arr_create(1, &array));
	OK(doca_buf_arr_set_target_gpu(array, gpu));
	OK(doca_buf_arr_set_params(array, own, 4096, 0));
	OK(doca_buf_arr_start(array));
	OK(doca_mmap_destroy(own));
	OK(doca_buf_arr_get_gpu_handle(array, &handle));
	OK(doca_buf_arr_stop(array));
	doca_error_t error = doca_buf_arr_start(array);
	OK(doca_buf_arr_destroy(array));
	return error;
}

static void gpu_and_dev_up(void)
{
	gpu_up();
	dev = a_dev();
}

static void gpu_and_dev_down(void)
{
	OK(doca_dev_close(dev));
	gpu_down();
}

static doca_error_t entry_on_queue(uint16_t queue)
{
	const struct doca_flow_match match = {0};
	const struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_DROP};
	struct doca_flow_cfg *cfg;
	struct doca_flow_port_cfg *port_cfg;
	struct doca_flow_pipe_cfg *pipe_cfg;
	struct doca_flow_pipe_entry *entry;
	struct doca_flow_port *port;
	struct doca_flow_pipe *pipe;
	char net[16];
	int ends[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	snprintf(net, sizeof net, "fd:%d", ends[0]);
	setenv("SOFTDOCA_NET", net, 1);
	dev = a_dev();
	OK(doca_flow_cfg_create(&cfg));
	OK(doca_flow_cfg_set_pipe_queues(cfg, 1));
	OK(doca_flow_init(cfg));
	OK(doca_flow_cfg_destroy(cfg));
	OK(doca_flow_port_cfg_create(&port_cfg));
	OK(doca_flow_port_cfg_set_dev(port_cfg, dev));
	OK(doca_flow_port_start(port_cfg, &port));
	OK(doca_flow_port_cfg_destroy(port_cfg));
	OK(doca_flow_pipe_cfg_create(&pipe_cfg, port));
	OK(doca_flow_pipe_cfg_set_type(pipe_cfg, DOCA_FLOW_PIPE_CONTROL));
	OK(doca_flow_pipe_cfg_set_is_root(pipe_cfg, true));
	OK(doca_flow_pipe_create(pipe_cfg, NULL, NULL, &pipe));
	OK(doca_flow_pipe_cfg_destroy(pipe_cfg));
	doca_error_t error = doca_flow_pipe_control_add_entry(queue, pipe, &match, NULL, NULL, NULL, NULL, NULL,
							      NULL, 0, &fwd, NULL, &entry);
	OK(doca_flow_port_stop(port));
	doca_flow_destroy();
	OK(doca_dev_close(dev));
	return error;
}

CASE(gpu, memory_of_1_tib, NO_MEMORY, gpu_alloc_of((size_t)1 << 40, 0))
CASE(gpu, memory_of_no_bytes, INVALID_VALUE, gpu_alloc_of(0, 0))
CASE(gpu, memory_aligned_to_3_bytes, INVALID_VALUE, gpu_alloc_of(8, 3))
CASE(gpu, memory_of_an_unknown_type, INVALID_VALUE,
     doca_gpu_mem_alloc(gpu, 8, 8, (enum doca_gpu_mem_type)3, &(void *){NULL}, NULL))
CASE(gpu, memory_without_a_place_for_it, INVALID_VALUE,
     doca_gpu_mem_alloc(gpu, 8, 8, DOCA_GPU_MEM_TYPE_GPU, NULL, NULL))
CASE(gpu, memory_freed_in_its_middle, INVALID_VALUE, doca_gpu_mem_free(gpu, (char *)out + 8))
CASE(gpu, a_dma_buf_of_more_than_there_is, INVALID_VALUE, doca_gpu_dmabuf_fd(gpu, out, 4097, &(int){0}))
CASE(gpu_and_dev, a_map_destroyed_under_an_array, BAD_STATE, array_of_a_destroyed_map())
CASE(none, a_gpu_destroyed_under_an_exported_queue_pair, IN_USE, destroyed_gpu_of_an_exported_queue_pair())
CASE(none, an_entry_on_pipe_queue_9_of_1, INVALID_VALUE, entry_on_queue(9))

TEST_MAIN(run_tests)
