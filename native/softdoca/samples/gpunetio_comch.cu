// SPDX-License-Identifier: Apache-2.0
/*
 * The DPU feeds a running kernel over Comch's fast path, and the kernel answers:
 *
 *	gpunetio_comch --role server [--rep-pci 3b:00.0] [--count N]   on the DPU: sends, checks the answers
 *	gpunetio_comch --role client [--gpu 0] [--count N]             on the host: starts the kernel
 *
 * The kernel adds 1 to each byte of a message and sends it back. Both sides are given the same count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf.h>
#include <doca_buf_array.h>
#include <doca_buf_inventory.h>
#include <doca_comch.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>
#include <doca_ctx.h>
#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_comch.cuh>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include "gpunetio.h"

DOCA_LOG_REGISTER(GPUNETIO_COMCH);

#define CHANNEL "gpunetio_comch"
#define SLOTS	32u /* messages of a side in flight */
#define PAGE	65536u /* no page of a system is larger */

struct side_of_channel {
	struct options options;
	struct doca_gpu *gpu;
	struct doca_dev *dev;
	struct doca_dev_rep *rep;
	struct doca_pe *pe;
	struct doca_comch_server *server;
	struct doca_comch_client *client;
	struct doca_ctx *ctx; /* of the server or the client */
	struct doca_comch_connection *connection;
	uint32_t remote; /* id of the other side's consumer */
	char *memory; /* slots to receive in; then, of the server, slots to send from */
	struct doca_mmap *map;
	struct doca_buf_arr *array;
	struct doca_buf_inventory *inventory;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	bool connected, left;
	uint32_t sent, received, right;
	doca_error_t result; /* the first error in a callback */
};
static struct side_of_channel self;

/* ---- the kernel ---- */

/* Argument of the kernel. */
struct echo {
	struct doca_comch_gpu_consumer *consumer;
	struct doca_comch_gpu_producer *producer;
	struct doca_gpu_buf_arr *slots;
	uint32_t remote, count;
	uint32_t *answered;
};

static __device__ doca_error_t post(const struct echo &e, uint32_t slot)
{
	struct doca_gpu_buf *buf;
	uint32_t key;
	uintptr_t addr;

	doca_gpu_dev_buf_get_buf(e.slots, slot, &buf);
	doca_gpu_dev_buf_get_mkey(buf, &key);
	doca_gpu_dev_buf_get_addr(buf, &addr);
	return doca_dev_gpu_comch_consumer_post_recv(e.consumer, key, addr, SLOT);
}

/* Answers one message: its slot is posted again when the answer was sent. */
static __device__ doca_error_t answer(const struct echo &e)
{
	uint8_t imm[32];
	uint32_t key, size, imm_size;
	uintptr_t addr;
	uint64_t id;
	doca_error_t result;

	result = doca_dev_gpu_comch_consumer_recv_wait(e.consumer, &key, &addr, &size, imm,
						       &imm_size, DOCA_GPU_COMCH_WAIT_FLAG_B);
	for (uint32_t i = 0; !result && i < size; i++)
		((uint8_t *)addr)[i]++;
	if (!result)
		result = doca_dev_gpu_comch_producer_send(e.producer, key, addr, size, imm, imm_size,
							  e.remote, 0);
	if (!result)
		result = doca_dev_gpu_comch_producer_poll(e.producer, &id,
							  DOCA_GPU_COMCH_WAIT_FLAG_B);
	return result ? result
		      : doca_dev_gpu_comch_consumer_post_recv(e.consumer, key, addr, SLOT);
}

static __global__ void answer_all(struct echo e)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		if (post(e, slot))
			return;
	while (*e.answered < e.count && !answer(e))
		++*e.answered;
}

/* ---- both sides ---- */

static doca_error_t any_device(const struct doca_devinfo *info)
{
	return self.options.role[0] == 's' ? doca_comch_cap_server_is_supported(info) :
					    doca_comch_cap_client_is_supported(info);
}

static void control_sent(struct doca_comch_task_send *task, union doca_data, union doca_data)
{
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void control_heard(struct doca_comch_event_msg_recv *, uint8_t *, uint32_t,
			  struct doca_comch_connection *)
{
}

static void consumer_added(struct doca_comch_event_consumer *, struct doca_comch_connection *,
			   uint32_t id)
{
	self.remote = id;
}

static void consumer_expired(struct doca_comch_event_consumer *, struct doca_comch_connection *,
			     uint32_t)
{
	self.left = true;
}

static enum doca_ctx_states state_of(struct doca_ctx *ctx)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;

	doca_ctx_get_state(ctx, &state);
	return state;
}

/* Progresses until `done` returns true, an error, or Ctrl-C. */
template <class Done> static doca_error_t progress_until(Done done)
{
	while (!done() && !self.result) {
		doca_pe_progress(self.pe);
		if (stopped())
			return failed("Waiting", DOCA_ERROR_SHUTDOWN);
		if (state_of(self.ctx) == DOCA_CTX_STATE_IDLE)
			return failed("Waiting for the other side", DOCA_ERROR_CONNECTION_RESET);
	}
	return self.result;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	doca_error_t result;

	TRY_DOCA(doca_pe_connect_ctx(self.pe, ctx));
	result = doca_ctx_start(ctx);
	if (result != DOCA_SUCCESS && result != DOCA_ERROR_IN_PROGRESS)
		return failed("doca_ctx_start", result);
	return DOCA_SUCCESS;
}

static void stop(struct doca_ctx *ctx)
{
	doca_ctx_stop(ctx);
	while (state_of(ctx) != DOCA_CTX_STATE_IDLE)
		doca_pe_progress(self.pe);
}

static doca_error_t map_memory(size_t size)
{
	TRY_DOCA(doca_mmap_create(&self.map));
	TRY_DOCA(doca_mmap_add_dev(self.map, self.dev));
	TRY_DOCA(doca_mmap_set_memrange(self.map, self.memory, size));
	TRY_DOCA(doca_mmap_set_permissions(self.map, DOCA_ACCESS_FLAG_PCI_READ_WRITE));
	TRY_DOCA(doca_mmap_start(self.map));
	return DOCA_SUCCESS;
}

/* The callbacks, of the DPU's tasks. */
static void received(struct doca_comch_consumer_task_post_recv *task, union doca_data,
		     union doca_data)
{
	struct doca_buf *buf = doca_comch_consumer_task_post_recv_get_buf(task);
	uint32_t number = 0, at = 0;
	void *data = NULL;

	doca_buf_get_data(buf, &data);
	if (doca_comch_consumer_task_post_recv_get_imm_data_len(task) == sizeof number)
		memcpy(&number, doca_comch_consumer_task_post_recv_get_imm_data(task),
		       sizeof number);
	while (at < SLOT && ((uint8_t *)data)[at] == (uint8_t)(pattern(false, number, at) + 1))
		at++;
	self.right += number == self.received && at == SLOT;
	self.received++;
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
	doca_buf_dec_refcount(buf, NULL);
}

static void sent(struct doca_comch_producer_task_send *task, union doca_data, union doca_data)
{
	struct doca_buf *buf = (struct doca_buf *)doca_comch_producer_task_send_get_buf(task);

	self.sent++;
	doca_task_free(doca_comch_producer_task_send_as_task(task));
	doca_buf_dec_refcount(buf, NULL);
}

static void not_received(struct doca_comch_consumer_task_post_recv *task, union doca_data data,
			 union doca_data ctx_data)
{
	if (!self.left) /* otherwise the receives are only cancelled */
		self.result = failed("Receiving", DOCA_ERROR_IO_FAILED);
	received(task, data, ctx_data);
}

static void not_sent(struct doca_comch_producer_task_send *task, union doca_data data,
		     union doca_data ctx_data)
{
	self.result = failed("Sending", DOCA_ERROR_IO_FAILED);
	sent(task, data, ctx_data);
}

/* A consumer and a producer, on the GPU if there is one. */
static doca_error_t open_fast_path(void)
{
	struct doca_ctx *in, *out;

	TRY_DOCA(doca_comch_consumer_create(self.connection, self.map, &self.consumer));
	TRY_DOCA(doca_comch_consumer_task_post_recv_set_conf(self.consumer, received, not_received,
							     SLOTS));
	TRY_DOCA(doca_comch_producer_create(self.connection, &self.producer));
	TRY_DOCA(doca_comch_producer_task_send_set_conf(self.producer, sent, not_sent, SLOTS));
	in = doca_comch_consumer_as_ctx(self.consumer);
	out = doca_comch_producer_as_ctx(self.producer);
	if (self.gpu) {
		TRY_DOCA(doca_ctx_set_datapath_on_gpu(in, self.gpu));
		TRY_DOCA(doca_ctx_set_datapath_on_gpu(out, self.gpu));
	}
	TRY(start(in));
	TRY(start(out));
	return progress_until([=] {
		return self.remote && state_of(in) == DOCA_CTX_STATE_RUNNING &&
		       state_of(out) == DOCA_CTX_STATE_RUNNING;
	});
}

static void close_all(void)
{
	if (self.consumer) {
		stop(doca_comch_consumer_as_ctx(self.consumer));
		doca_comch_consumer_destroy(self.consumer);
	}
	if (self.producer) {
		stop(doca_comch_producer_as_ctx(self.producer));
		doca_comch_producer_destroy(self.producer);
	}
	if (self.server && self.connection) /* the client leaves first */
		(void)progress_until([] { return !self.connected; });
	if (self.ctx)
		stop(self.ctx);
	if (self.server)
		doca_comch_server_destroy(self.server);
	if (self.client)
		doca_comch_client_destroy(self.client);
	if (self.pe)
		doca_pe_destroy(self.pe);
	if (self.array)
		doca_buf_arr_destroy(self.array);
	if (self.inventory)
		doca_buf_inventory_destroy(self.inventory);
	if (self.map)
		doca_mmap_destroy(self.map);
	if (self.rep)
		doca_dev_rep_close(self.rep);
	if (self.dev)
		doca_dev_close(self.dev);
	if (self.gpu)
		doca_gpu_destroy(self.gpu); /* frees its memory, too */
	else
		free(self.memory);
}

/* ---- the client, on the host ---- */

static doca_error_t connect_to_server(void)
{
	TRY_DOCA(doca_comch_client_create(self.dev, CHANNEL, &self.client));
	self.ctx = doca_comch_client_as_ctx(self.client);
	TRY_DOCA(doca_comch_client_task_send_set_conf(self.client, control_sent, control_sent, 1));
	TRY_DOCA(doca_comch_client_event_msg_recv_register(self.client, control_heard));
	TRY_DOCA(doca_comch_client_event_consumer_register(self.client, consumer_added,
							   consumer_expired));
	TRY(start(self.ctx));
	TRY(progress_until([] { return state_of(self.ctx) == DOCA_CTX_STATE_RUNNING; }));
	TRY_DOCA(doca_comch_client_get_connection(self.client, &self.connection));
	return DOCA_SUCCESS;
}

static doca_error_t open_slots(struct doca_gpu_buf_arr **slots)
{
	TRY_DOCA(doca_gpu_mem_alloc(self.gpu, PAGE, PAGE, DOCA_GPU_MEM_TYPE_GPU,
				    (void **)&self.memory, NULL));
	TRY(map_memory(SLOTS * SLOT));
	TRY_DOCA(doca_buf_arr_create(SLOTS, &self.array));
	TRY_DOCA(doca_buf_arr_set_target_gpu(self.array, self.gpu));
	TRY_DOCA(doca_buf_arr_set_params(self.array, self.map, SLOT, 0));
	TRY_DOCA(doca_buf_arr_start(self.array));
	TRY_DOCA(doca_buf_arr_get_gpu_handle(self.array, slots));
	return DOCA_SUCCESS;
}

static doca_error_t run_client(void)
{
	struct echo e = {};
	uint32_t *answered;
	char pci[32];

	TRY_CUDA(cudaSetDevice(self.options.gpu));
	TRY_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, self.options.gpu));
	TRY_DOCA(doca_gpu_create(pci, &self.gpu));
	TRY(open_device(self.options.pci, any_device, &self.dev));
	TRY(connect_to_server());
	TRY(open_slots(&e.slots));
	TRY(open_fast_path());
	TRY_DOCA(doca_comch_consumer_get_gpu_handle(self.consumer, &e.consumer));
	TRY_DOCA(doca_comch_producer_get_gpu_handle(self.producer, &e.producer));
	TRY_DOCA(doca_gpu_mem_alloc(self.gpu, PAGE, PAGE, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&e.answered, (void **)&answered));
	e.remote = self.remote;
	e.count = (uint32_t)self.options.count;
	answer_all<<<1, 1>>>(e);
	TRY_CUDA(cudaDeviceSynchronize());
	printf("gpunetio_comch, client: %u of %u answered\n", *(volatile uint32_t *)answered,
	       e.count);
	return *(volatile uint32_t *)answered == e.count ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

/* ---- the server, on the DPU ---- */

static void client_connected(struct doca_comch_event_connection_status_changed *,
			     struct doca_comch_connection *connection, uint8_t well)
{
	if (self.connection || !well)
		return;
	self.connection = connection;
	self.connected = true;
}

static void client_left(struct doca_comch_event_connection_status_changed *,
			struct doca_comch_connection *connection, uint8_t)
{
	if (connection == self.connection)
		self.connected = false;
}

static doca_error_t open_rep(void)
{
	struct doca_devinfo_rep **list;
	doca_error_t result = DOCA_ERROR_NOT_FOUND;
	uint32_t n;
	uint8_t same = 0;

	TRY_DOCA(doca_devinfo_rep_create_list(self.dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &n));
	for (uint32_t i = 0; i < n && !same; i++) {
		same = !self.options.rep_pci[0];
		if (!same)
			doca_devinfo_rep_is_equal_pci_addr(list[i], self.options.rep_pci, &same);
		if (same)
			result = doca_dev_rep_open(list[i], &self.rep);
	}
	doca_devinfo_rep_destroy_list(list);
	return result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("Opening the representor", result);
}

static doca_error_t wait_for_client(void)
{
	TRY(open_rep());
	TRY_DOCA(doca_comch_server_create(self.dev, self.rep, CHANNEL, &self.server));
	self.ctx = doca_comch_server_as_ctx(self.server);
	TRY_DOCA(doca_comch_server_task_send_set_conf(self.server, control_sent, control_sent, 1));
	TRY_DOCA(doca_comch_server_event_msg_recv_register(self.server, control_heard));
	TRY_DOCA(doca_comch_server_event_connection_status_changed_register(
		self.server, client_connected, client_left));
	TRY_DOCA(doca_comch_server_event_consumer_register(self.server, consumer_added,
							   consumer_expired));
	TRY(start(self.ctx));
	printf("The server is ready\n");
	fflush(stdout);
	return progress_until([] { return self.connected; });
}

/* Posts a receive for the answer, then sends message `number`, as soon as the kernel has a receive. */
static doca_error_t ask(uint32_t number)
{
	char *in = self.memory + number % SLOTS * SLOT, *out = in + SLOTS * SLOT;
	struct doca_comch_consumer_task_post_recv *receive;
	struct doca_comch_producer_task_send *send;
	struct doca_buf *from, *to;
	doca_error_t result = DOCA_ERROR_AGAIN;

	for (uint32_t at = 0; at < SLOT; at++)
		out[at] = (char)pattern(false, number, at);
	TRY_DOCA(doca_buf_inventory_buf_get_by_addr(self.inventory, self.map, in, SLOT, &to));
	TRY_DOCA(doca_buf_inventory_buf_get_by_data(self.inventory, self.map, out, SLOT, &from));
	TRY_DOCA(doca_comch_consumer_task_post_recv_alloc_init(self.consumer, to, &receive));
	TRY_DOCA(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)));
	TRY_DOCA(doca_comch_producer_task_send_alloc_init(
		self.producer, from, (uint8_t *)&number, sizeof number, self.remote, &send));
	TRY(progress_until([&] {
		result = doca_task_submit(doca_comch_producer_task_send_as_task(send));
		return result != DOCA_ERROR_AGAIN;
	}));
	return result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("Sending", result);
}

static doca_error_t run_server(void)
{
	const uint32_t count = (uint32_t)self.options.count;

	TRY(open_device(self.options.pci, any_device, &self.dev));
	TRY(wait_for_client());
	self.memory = (char *)calloc(2 * SLOTS, SLOT);
	TRY(map_memory(2 * SLOTS * SLOT));
	TRY_DOCA(doca_buf_inventory_create(2 * SLOTS, &self.inventory));
	TRY_DOCA(doca_buf_inventory_start(self.inventory));
	TRY(open_fast_path());
	for (uint32_t number = 0; number < count; number++) {
		TRY(progress_until([=] { return number - self.received < SLOTS &&
						number - self.sent < SLOTS; }));
		TRY(ask(number));
	}
	TRY(progress_until([=] { return self.received == count && self.sent == count; }));
	printf("gpunetio_comch, server: %u of %u right\n", self.right, count);
	fflush(stdout);
	return self.right == count ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

int main(int argc, char **argv)
{
	doca_error_t result;

	self.options.count = 1000;
	result = sample_begin(argc, argv, "gpunetio_comch", WANT_COMCH | WANT_COUNT | WANT_GPU,
			      &self.options);
	if (result == DOCA_SUCCESS && strcmp(self.options.role, "client") &&
	    strcmp(self.options.role, "server"))
		result = failed("--role must be client or server", DOCA_ERROR_INVALID_VALUE);
	if (result == DOCA_SUCCESS && (result = doca_pe_create(&self.pe)) == DOCA_SUCCESS)
		result = self.options.role[0] == 's' ? run_server() : run_client();
	close_all();
	return sample_end(result);
}
