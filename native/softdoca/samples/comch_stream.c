// SPDX-License-Identifier: Apache-2.0
/*
 * Streams messages from the host to the DPU over Comch's fast path. One file, public DOCA only.
 *
 *	comch_stream server                 on the DPU: receives the stream of one client
 *	comch_stream client [-n N] [-s S]   on the host: sends N messages of S bytes
 *
 * The control channel stays in the main thread. The consumer (or the producer) has its own thread
 * and progress engine, because the main thread must keep progressing the channel, which announces
 * consumers.
 */
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_comch.h>
#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_mmap.h>
#include <doca_pe.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME  "comch_stream"
#define DEPTH 32 /* messages in flight */

#define DIE(...)                              \
	do {                                  \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr);          \
		exit(1);                      \
	} while (0)
#define MUST(call)                                                                            \
	do {                                                                                  \
		doca_error_t must_ = (call);                                                  \
		if (must_ != DOCA_SUCCESS)                                                    \
			DIE("%s:%d: %s: %s", __FILE__, __LINE__, #call,                       \
			    doca_error_get_name(must_));                                      \
	} while (0)

/* Immediate data of each message. */
struct label {
	uint32_t number, total, size, check;
};

struct memory {
	char *bytes;
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_pe *pe;
};

static struct doca_dev *device;
static struct doca_comch_connection *channel; /* set by the main thread, before the worker starts */
static atomic_uint remote_consumer;
static atomic_int worker_result = -1; /* -1: the worker is running */
static atomic_bool said_done, closed;
static uint32_t n_messages = 1000, size_of_each = 4096;

/* Used by the worker thread only. */
static uint32_t n_done, n_failed, n_bytes_checked;

static uint32_t checksum(const char *at, size_t n)
{
	uint32_t sum = 1;
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + (unsigned char)at[i];
	return sum;
}

static struct doca_dev *open_first(doca_error_t (*fits)(const struct doca_devinfo *))
{
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t n;
	MUST(doca_devinfo_create_list(&list, &n));
	for (uint32_t i = 0; i < n && dev == NULL; i++)
		if (fits(list[i]) == DOCA_SUCCESS)
			MUST(doca_dev_open(list[i], &dev));
	doca_devinfo_destroy_list(list);
	if (dev == NULL)
		DIE("no device fits");
	return dev;
}

static void memory_make(struct memory *m, size_t size, uint32_t access)
{
	m->bytes = calloc(DEPTH, size);
	if (m->bytes == NULL)
		DIE("no memory");
	MUST(doca_mmap_create(&m->mmap));
	MUST(doca_mmap_set_memrange(m->mmap, m->bytes, DEPTH * size));
	MUST(doca_mmap_set_permissions(m->mmap, access));
	MUST(doca_mmap_add_dev(m->mmap, device));
	MUST(doca_mmap_start(m->mmap));
	MUST(doca_buf_inventory_create(DEPTH, &m->inventory));
	MUST(doca_buf_inventory_start(m->inventory));
	MUST(doca_pe_create(&m->pe));
}

static void memory_drop(struct memory *m)
{
	MUST(doca_pe_destroy(m->pe));
	MUST(doca_buf_inventory_destroy(m->inventory));
	MUST(doca_mmap_destroy(m->mmap));
	free(m->bytes);
}

static enum doca_ctx_states state_of(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;
	MUST(doca_ctx_get_state(ctx, &state));
	return state;
}

static void stop_ctx(struct doca_ctx *ctx, struct doca_pe *pe)
{
	doca_error_t result = doca_ctx_stop(ctx);
	if (result != DOCA_SUCCESS && result != DOCA_ERROR_IN_PROGRESS)
		DIE("doca_ctx_stop: %s", doca_error_get_name(result));
	while (state_of(ctx) != DOCA_CTX_STATE_IDLE)
		(void)doca_pe_progress(pe);
}

/* ---- the consumer's thread ---- */

static void on_message(struct doca_comch_consumer_task_post_recv *task, union doca_data task_data,
		       union doca_data ctx_data)
{
	struct doca_buf *buf = doca_comch_consumer_task_post_recv_get_buf(task);
	const void *imm = doca_comch_consumer_task_post_recv_get_imm_data(task);
	struct label label;
	void *at;
	size_t len;
	(void)task_data;
	(void)ctx_data;
	if (doca_comch_consumer_task_post_recv_get_imm_data_len(task) != sizeof label)
		DIE("a message without its label");
	memcpy(&label, imm, sizeof label);
	MUST(doca_buf_get_data(buf, &at));
	MUST(doca_buf_get_data_len(buf, &len));
	if (label.number != n_done || label.size != len || label.check != checksum(at, len))
		DIE("message %u is not what was sent", n_done);
	n_messages = label.total;
	n_done++;
	n_bytes_checked += (uint32_t)len;
	MUST(doca_buf_reset_data_len(buf));
	MUST(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
}

static void on_no_message(struct doca_comch_consumer_task_post_recv *task,
			  union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	n_failed++;
	(void)doca_buf_dec_refcount(doca_comch_consumer_task_post_recv_get_buf(task), NULL);
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
}

/* Submits a receive for each buffer. */
static void post_receives(struct memory *m, struct doca_comch_consumer *consumer, size_t room)
{
	struct doca_ctx *ctx = doca_comch_consumer_as_ctx(consumer);
	for (size_t i = 0; i < DEPTH && state_of(ctx) == DOCA_CTX_STATE_RUNNING; i++) {
		struct doca_comch_consumer_task_post_recv *task;
		struct doca_buf *buf;
		MUST(doca_buf_inventory_buf_get_by_addr(m->inventory, m->mmap, m->bytes + i * room,
							room, &buf));
		MUST(doca_comch_consumer_task_post_recv_alloc_init(consumer, buf, &task));
		MUST(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
	}
}

static void run_consumer(struct memory *m, struct doca_comch_consumer *consumer, size_t room)
{
	struct doca_ctx *ctx = doca_comch_consumer_as_ctx(consumer);
	MUST(doca_comch_consumer_set_imm_data_len(consumer, sizeof(struct label)));
	MUST(doca_comch_consumer_task_post_recv_set_conf(consumer, on_message, on_no_message, DEPTH));
	MUST(doca_pe_connect_ctx(m->pe, ctx));
	doca_error_t result = doca_ctx_start(ctx);
	if (result != DOCA_ERROR_IN_PROGRESS)
		fprintf(stderr, "starting a consumer: %s\n", doca_error_get_name(result));
	while (state_of(ctx) == DOCA_CTX_STATE_STARTING)
		(void)doca_pe_progress(m->pe);
	post_receives(m, consumer, room);
	while (state_of(ctx) == DOCA_CTX_STATE_RUNNING && n_done < n_messages)
		if (!doca_pe_progress(m->pe))
			usleep(20);
	stop_ctx(ctx, m->pe);
}

/* The client may leave at any time; there is then no connection to create a consumer on. */
static void *consume(void *arg)
{
	const size_t room = 1 << 20;
	struct memory m;
	struct doca_comch_consumer *consumer;
	(void)arg;
	memory_make(&m, room, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	doca_error_t result = doca_comch_consumer_create(channel, m.mmap, &consumer);
	if (result == DOCA_SUCCESS) {
		run_consumer(&m, consumer, room);
		MUST(doca_comch_consumer_destroy(consumer));
	} else {
		fprintf(stderr, "creating a consumer: %s\n", doca_error_get_name(result));
	}
	memory_drop(&m);
	atomic_store(&worker_result, n_done > 0 && n_done == n_messages ? 0 : 1);
	return NULL;
}

/* ---- the producer's thread ---- */

static void on_sent(struct doca_comch_producer_task_send *task, union doca_data task_data,
		    union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	n_done++;
	doca_buf_dec_refcount((struct doca_buf *)doca_comch_producer_task_send_get_buf(task), NULL);
	doca_task_free(doca_comch_producer_task_send_as_task(task));
}

static void on_not_sent(struct doca_comch_producer_task_send *task, union doca_data task_data,
			union doca_data ctx_data)
{
	n_failed++;
	on_sent(task, task_data, ctx_data);
}

/* Sends one message. The buffers are used in turn. */
static doca_error_t send_one(struct memory *m, struct doca_comch_producer *producer, uint32_t number)
{
	char *at = m->bytes + (size_t)(number % DEPTH) * size_of_each;
	struct doca_comch_producer_task_send *task;
	struct doca_buf *buf;
	for (uint32_t i = 0; i < size_of_each; i++)
		at[i] = (char)(number + i * 7);
	struct label label = {number, n_messages, size_of_each, checksum(at, size_of_each)};
	MUST(doca_buf_inventory_buf_get_by_data(m->inventory, m->mmap, at, size_of_each, &buf));
	MUST(doca_comch_producer_task_send_alloc_init(producer, buf, (uint8_t *)&label, sizeof label,
						      atomic_load(&remote_consumer), &task));
	doca_error_t result;
	do
		result = doca_task_submit(doca_comch_producer_task_send_as_task(task));
	while (result == DOCA_ERROR_AGAIN);
	if (result != DOCA_SUCCESS) {
		doca_buf_dec_refcount(buf, NULL);
		doca_task_free(doca_comch_producer_task_send_as_task(task));
	}
	return result;
}

/* Returns whether all messages were sent. */
static bool run_producer(struct memory *m, struct doca_comch_producer *producer)
{
	struct doca_ctx *ctx = doca_comch_producer_as_ctx(producer);
	MUST(doca_comch_producer_task_send_set_conf(producer, on_sent, on_not_sent, DEPTH));
	MUST(doca_pe_connect_ctx(m->pe, ctx));
	doca_error_t result = doca_ctx_start(ctx);
	for (uint32_t i = 0; i < n_messages && result == DOCA_SUCCESS && n_failed == 0; i++) {
		while (i - n_done >= DEPTH)
			(void)doca_pe_progress(m->pe);
		if (state_of(ctx) == DOCA_CTX_STATE_RUNNING)
			result = send_one(m, producer, i);
		else
			result = DOCA_ERROR_NOT_CONNECTED;
	}
	if (result != DOCA_SUCCESS)
		fprintf(stderr, "sending: %s\n", doca_error_get_name(result));
	while (result == DOCA_SUCCESS && n_done < n_messages &&
	       state_of(ctx) == DOCA_CTX_STATE_RUNNING)
		(void)doca_pe_progress(m->pe);
	stop_ctx(ctx, m->pe);
	return result == DOCA_SUCCESS && n_failed == 0;
}

static void *produce(void *arg)
{
	struct memory m;
	struct doca_comch_producer *producer;
	bool well = false;
	(void)arg;
	memory_make(&m, size_of_each, DOCA_ACCESS_FLAG_PCI_READ_ONLY);
	doca_error_t result = doca_comch_producer_create(channel, &producer);
	if (result == DOCA_SUCCESS) {
		well = run_producer(&m, producer);
		MUST(doca_comch_producer_destroy(producer));
	} else {
		fprintf(stderr, "creating a producer: %s\n", doca_error_get_name(result));
	}
	memory_drop(&m);
	atomic_store(&worker_result, well ? 0 : 1);
	return NULL;
}

/* ---- the control channel ---- */

static void on_control_sent(struct doca_comch_task_send *task, union doca_data task_data,
			    union doca_data ctx_data)
{
	(void)task_data;
	(void)ctx_data;
	doca_task_free(doca_comch_task_send_as_task(task));
}

static void on_control(struct doca_comch_event_msg_recv *event, uint8_t *bytes, uint32_t len,
		       struct doca_comch_connection *from)
{
	(void)event;
	(void)from;
	if (len == 4 && memcmp(bytes, "done", 4) == 0)
		atomic_store(&said_done, true);
}

static void on_consumer(struct doca_comch_event_consumer *event, struct doca_comch_connection *from,
			uint32_t id)
{
	(void)event;
	(void)from;
	atomic_store(&remote_consumer, id);
}

static void on_consumer_gone(struct doca_comch_event_consumer *event,
			     struct doca_comch_connection *from, uint32_t id)
{
	(void)event;
	(void)from;
	(void)id;
}

static void on_connect(struct doca_comch_event_connection_status_changed *event,
		       struct doca_comch_connection *with, uint8_t well)
{
	(void)event;
	if (well)
		channel = with;
}

static void on_disconnect(struct doca_comch_event_connection_status_changed *event,
			  struct doca_comch_connection *with, uint8_t well)
{
	(void)event;
	(void)with;
	(void)well;
	atomic_store(&closed, true);
}

static void run_worker(void *(*work)(void *), struct doca_pe *pe)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, work, NULL) != 0)
		DIE("no thread");
	while (atomic_load(&worker_result) < 0)
		if (!doca_pe_progress(pe))
			usleep(50);
	pthread_join(thread, NULL);
}

static doca_error_t is_server(const struct doca_devinfo *info)
{
	doca_error_t result = doca_comch_cap_server_is_supported(info);
	return result == DOCA_SUCCESS ? doca_comch_consumer_cap_is_supported(info) : result;
}

static doca_error_t is_client(const struct doca_devinfo *info)
{
	doca_error_t result = doca_comch_cap_client_is_supported(info);
	return result == DOCA_SUCCESS ? doca_comch_producer_cap_is_supported(info) : result;
}

static int server(void)
{
	struct doca_devinfo_rep **reps;
	struct doca_dev_rep *rep;
	struct doca_comch_server *server;
	struct doca_comch_task_send *task;
	struct doca_pe *pe;
	uint32_t n;
	device = open_first(is_server);
	MUST(doca_devinfo_rep_create_list(device, DOCA_DEVINFO_REP_FILTER_NET, &reps, &n));
	if (n == 0)
		DIE("no representor");
	MUST(doca_dev_rep_open(reps[0], &rep));
	MUST(doca_devinfo_rep_destroy_list(reps));
	MUST(doca_comch_server_create(device, rep, NAME, &server));
	MUST(doca_comch_server_task_send_set_conf(server, on_control_sent, on_control_sent, 4));
	MUST(doca_comch_server_event_msg_recv_register(server, on_control));
	MUST(doca_comch_server_event_consumer_register(server, on_consumer, on_consumer_gone));
	MUST(doca_comch_server_event_connection_status_changed_register(server, on_connect,
									on_disconnect));
	MUST(doca_pe_create(&pe));
	MUST(doca_pe_connect_ctx(pe, doca_comch_server_as_ctx(server)));
	MUST(doca_ctx_start(doca_comch_server_as_ctx(server)));
	puts("server: ready");
	fflush(stdout);
	while (channel == NULL)
		if (!doca_pe_progress(pe))
			usleep(50);
	run_worker(consume, pe);
	if (worker_result == 0) {
		printf("server: %u messages, %u bytes\n", n_done, n_bytes_checked);
		if (!atomic_load(&closed)) {
			MUST(doca_comch_server_task_send_alloc_init(server, channel, "done", 4, &task));
			MUST(doca_task_submit(doca_comch_task_send_as_task(task)));
		}
	} else {
		printf("server: the stream ended after %u messages\n", n_done);
	}
	while (!atomic_load(&closed))
		if (!doca_pe_progress(pe))
			usleep(50);
	stop_ctx(doca_comch_server_as_ctx(server), pe);
	MUST(doca_comch_server_destroy(server));
	MUST(doca_pe_destroy(pe));
	MUST(doca_dev_rep_close(rep));
	MUST(doca_dev_close(device));
	return worker_result;
}

static int client(void)
{
	struct doca_comch_client *client;
	struct doca_ctx *ctx;
	struct doca_pe *pe;
	device = open_first(is_client);
	MUST(doca_comch_client_create(device, NAME, &client));
	MUST(doca_comch_client_task_send_set_conf(client, on_control_sent, on_control_sent, 4));
	MUST(doca_comch_client_event_msg_recv_register(client, on_control));
	MUST(doca_comch_client_event_consumer_register(client, on_consumer, on_consumer_gone));
	MUST(doca_pe_create(&pe));
	ctx = doca_comch_client_as_ctx(client);
	MUST(doca_pe_connect_ctx(pe, ctx));
	doca_error_t result = doca_ctx_start(ctx);
	if (result != DOCA_SUCCESS && result != DOCA_ERROR_IN_PROGRESS)
		DIE("connecting: %s", doca_error_get_name(result));
	while (state_of(ctx) == DOCA_CTX_STATE_STARTING)
		(void)doca_pe_progress(pe);
	while (atomic_load(&remote_consumer) == 0 && state_of(ctx) == DOCA_CTX_STATE_RUNNING)
		(void)doca_pe_progress(pe);
	if (state_of(ctx) != DOCA_CTX_STATE_RUNNING)
		DIE("the server is gone");
	MUST(doca_comch_client_get_connection(client, &channel));
	run_worker(produce, pe);
	while (worker_result == 0 && !atomic_load(&said_done) &&
	       state_of(ctx) == DOCA_CTX_STATE_RUNNING)
		(void)doca_pe_progress(pe);
	int well = worker_result == 0 && atomic_load(&said_done);
	if (well)
		printf("client: %u messages of %u bytes\n", n_messages, size_of_each);
	else
		puts("client: the server did not get all of it");
	stop_ctx(ctx, pe);
	MUST(doca_comch_client_destroy(client));
	MUST(doca_pe_destroy(pe));
	MUST(doca_dev_close(device));
	return well ? 0 : 1;
}

int main(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "n:s:")) != -1;) {
		if (c == 'n')
			n_messages = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 's')
			size_of_each = (uint32_t)strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	if (n_messages == 0 || size_of_each == 0 || size_of_each > 1 << 20)
		DIE("-n is at least 1, -s 1 to 1048576");
	if (optind < argc && strcmp(argv[optind], "server") == 0)
		return server();
	if (optind < argc && strcmp(argv[optind], "client") == 0)
		return client();
	DIE("usage: comch_stream [-n N] [-s SIZE] server|client");
}
