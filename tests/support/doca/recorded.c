/* A program with calls of every kind for the recorder: devices, maps, buffers, three copies in
 * flight, calls in callbacks, errors, sync events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_dma.h>
#include <doca_graph.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_sync_event.h>

#define COPIES 3
#define SIZE   4096
#define DO(call) check(call, #call)

static char memory[2 * COPIES * SIZE];
static int done;

static void check(doca_error_t result, const char *what)
{
	if (result == DOCA_SUCCESS)
		return;
	fprintf(stderr, "%s: %s\n", what, doca_error_get_name(result));
	exit(1);
}

static void copied(struct doca_dma_task_memcpy *task, union doca_data task_data,
		   union doca_data ctx_data)
{
	struct doca_task *base = doca_dma_task_memcpy_as_task(task);
	size_t length;

	(void)task_data;
	(void)ctx_data;
	doca_task_get_status(base);
	doca_task_get_ctx(base);
	doca_buf_get_data_len(doca_dma_task_memcpy_get_dst(task), &length);
	doca_task_free(base);
	done++;
}

static void changed(const union doca_data data, struct doca_ctx *ctx, enum doca_ctx_states before,
		    enum doca_ctx_states now)
{
	(void)data;
	(void)ctx;
	(void)before;
	(void)now;
}

static struct doca_dev *device(void)
{
	struct doca_devinfo **list;
	struct doca_dev *dev;
	char name[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	uint64_t size;
	uint32_t n;
	uint8_t equal;

	DO(doca_devinfo_create_list(&list, &n));
	DO(doca_devinfo_get_ibdev_name(list[0], name, sizeof(name)));
	DO(doca_devinfo_is_equal_pci_addr(list[0], "03:00.0", &equal));
	DO(doca_dma_cap_task_memcpy_is_supported(list[0]));
	DO(doca_dma_cap_task_memcpy_get_max_buf_size(list[0], &size));
	DO(doca_mmap_cap_is_export_pci_supported(list[0], &equal));
	DO(doca_dev_open(list[0], &dev));
	DO(doca_devinfo_destroy_list(list));
	return dev;
}

static struct doca_mmap *map(struct doca_dev *dev)
{
	union doca_data data = {.u64 = 987654321};
	struct doca_mmap *map;
	uint32_t devices;

	DO(doca_mmap_create(&map));
	doca_mmap_start(map); /* INVALID_VALUE: no range */
	DO(doca_mmap_set_memrange(map, memory, sizeof(memory)));
	DO(doca_mmap_set_permissions(map, DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	DO(doca_mmap_set_user_data(map, data));
	DO(doca_mmap_get_user_data(map, &data));
	DO(doca_mmap_add_dev(map, dev));
	doca_mmap_add_dev(map, dev); /* ALREADY_EXIST */
	DO(doca_mmap_get_max_num_devices(map, &devices));
	DO(doca_mmap_start(map));
	return map;
}

static void copy(struct doca_pe *pe, struct doca_dma *dma, struct doca_mmap *map)
{
	struct doca_dma_task_memcpy *tasks[COPIES];
	struct doca_buf_inventory *inventory;
	struct doca_buf *bufs[2 * COPIES];
	uint32_t count;
	size_t inflight;
	uint16_t references;
	void *head;

	DO(doca_buf_inventory_create(2 * COPIES, &inventory));
	DO(doca_buf_inventory_start(inventory));
	for (int i = 0; i < 2 * COPIES; i++)
		DO(doca_buf_inventory_buf_get_by_args(inventory, map, memory + i * SIZE, SIZE,
						      memory + i * SIZE, i < COPIES ? SIZE : 0,
						      &bufs[i]));
	DO(doca_buf_inventory_get_num_free_elements(inventory, &count));
	DO(doca_buf_get_head(bufs[1], &head));
	DO(doca_mmap_get_num_bufs(map, &count));
	for (int i = 0; i < COPIES; i++) {
		union doca_data data = {.ptr = &tasks[i]};

		DO(doca_dma_task_memcpy_alloc_init(dma, bufs[i], bufs[COPIES + i], data,
						   &tasks[i]));
	}
	for (int i = 0; i < COPIES; i++)
		DO(doca_task_submit(doca_dma_task_memcpy_as_task(tasks[i])));
	DO(doca_pe_get_num_inflight_tasks(pe, &inflight));
	doca_task_submit(doca_dma_task_memcpy_as_task(tasks[0])); /* BAD_STATE */
	while (done < COPIES)
		doca_pe_progress(pe);
	DO(doca_buf_inc_refcount(bufs[0], &references));
	DO(doca_buf_dec_refcount(bufs[0], &references));
	doca_buf_inventory_destroy(inventory); /* IN_USE */
	for (int i = 0; i < 2 * COPIES; i++)
		DO(doca_buf_dec_refcount(bufs[i], NULL));
	DO(doca_buf_inventory_destroy(inventory));
}

static void turn(struct doca_dev *dev)
{
	struct doca_sync_event *event;
	uint64_t value;

	DO(doca_sync_event_create(&event));
	DO(doca_sync_event_add_publisher_location_cpu(event, dev));
	DO(doca_sync_event_add_subscriber_location_cpu(event, dev));
	DO(doca_sync_event_start(event));
	DO(doca_sync_event_update_set(event, 41));
	DO(doca_sync_event_update_add(event, 1, &value));
	DO(doca_sync_event_wait_gt(event, 41, ~0ull));
	DO(doca_sync_event_get(event, &value));
	DO(doca_sync_event_stop(event));
	DO(doca_sync_event_destroy(event));
}

static doca_error_t fail(void *cookie)
{
	(void)cookie;
	return DOCA_ERROR_EMPTY;
}

static void ended(struct doca_graph_instance *instance, union doca_data data,
		  union doca_data graph_data)
{
	(void)instance;
	(void)data;
	(void)graph_data;
	done = -1;
}

/* A graph whose first function fails, so that the second one is not called, and no copy made. */
static void fail_in_a_graph(struct doca_pe *pe, struct doca_dma *dma, struct doca_mmap *map)
{
	union doca_data data = {0};
	struct doca_graph_instance *instance;
	struct doca_buf_inventory *inventory;
	struct doca_dma_task_memcpy *task;
	struct doca_graph_node *nodes[3];
	struct doca_graph *graph;
	struct doca_buf *bufs[2];

	DO(doca_buf_inventory_create(2, &inventory));
	DO(doca_buf_inventory_start(inventory));
	for (int i = 0; i < 2; i++)
		DO(doca_buf_inventory_buf_get_by_args(inventory, map, memory + i * SIZE, SIZE,
						      memory + i * SIZE, i ? 0 : SIZE, &bufs[i]));
	DO(doca_dma_task_memcpy_alloc_init(dma, bufs[0], bufs[1], data, &task));
	DO(doca_graph_create(pe, &graph));
	for (int i = 0; i < 2; i++)
		DO(doca_graph_node_create_from_user(graph, fail, &nodes[i]));
	DO(doca_graph_node_create_from_ctx(graph, doca_dma_as_ctx(dma), &nodes[2]));
	for (int i = 0; i < 2; i++)
		DO(doca_graph_add_dependency(graph, nodes[i], nodes[i + 1]));
	DO(doca_graph_set_conf(graph, ended, ended, 1));
	DO(doca_graph_start(graph));
	DO(doca_graph_instance_create(graph, &instance));
	DO(doca_graph_instance_set_ctx_node_data(instance, nodes[2],
						 doca_dma_task_memcpy_as_task(task)));
	DO(doca_graph_instance_submit(instance));
	while (done >= 0)
		doca_pe_progress(pe);
	DO(doca_graph_instance_destroy(instance));
	DO(doca_graph_stop(graph));
	DO(doca_graph_destroy(graph));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
	for (int i = 0; i < 2; i++)
		DO(doca_buf_dec_refcount(bufs[i], NULL));
	DO(doca_buf_inventory_destroy(inventory));
}

#ifdef __cplusplus
extern "C"
#endif
int main(int argc, char **argv)
{
	pid_t child = argc > 1 && !strcmp(argv[1], "--fork") ? fork() : -1;
	struct doca_dev *dev = device();
	struct doca_mmap *mmap = map(dev);
	enum doca_ctx_states state;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_pe *pe;
	uint32_t most;

	DO(doca_pe_create(&pe));
	DO(doca_dma_create(dev, &dma));
	ctx = doca_dma_as_ctx(dma);
	DO(doca_ctx_set_state_changed_cb(ctx, changed));
	DO(doca_dma_cap_get_max_num_tasks(dma, &most));
	DO(doca_dma_task_memcpy_set_conf(dma, copied, copied, COPIES));
	DO(doca_pe_connect_ctx(pe, ctx));
	DO(doca_ctx_start(ctx));
	DO(doca_ctx_get_state(ctx, &state));
	copy(pe, dma, mmap);
	if (argc > 1 && !strcmp(argv[1], "--wait")) /* for the end by a signal */
		for (;;)
			doca_pe_progress(pe);
	turn(dev);
	if (argc > 1 && !strcmp(argv[1], "--graph"))
		fail_in_a_graph(pe, dma, mmap);
	DO(doca_ctx_stop(ctx));
	DO(doca_ctx_get_state(ctx, &state));
	DO(doca_dma_destroy(dma));
	DO(doca_pe_destroy(pe));
	DO(doca_mmap_destroy(mmap));
	DO(doca_dev_close(dev));
	puts("done");
	return child > 0 && wait(NULL) != child;
}
