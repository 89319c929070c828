// SPDX-License-Identifier: Apache-2.0
/*
 * Copy with Comch: the host sends the export descriptor to the DPU in a message, not in a file.
 *
 *	comch_copy --role server [--rep-pci 3b:00.0]     on the DPU: waits for one client, reads its memory
 *	comch_copy --role client [--text TEXT]           on the host: sends the descriptor of a text
 *
 * The server replies when it has read the bytes; then the client exits, and after that the server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <doca_comch.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_types.h>

#include "sample.h"
#include "copier.h"

DOCA_LOG_REGISTER(COMCH_COPY);

#define CHANNEL       "comch_copy"
#define SIZE_MAX_HERE ((uint64_t)1 << 30) /* limit for an untrusted client */

/* The client's message; both sides are little-endian. */
struct offer {
	uint64_t addr, size, descriptor_size;
	uint8_t descriptor[DESCRIPTOR_MAX];
};
static const char answer[] = "copied";

struct comch_copy {
	/* used by the server */
	struct copier copier;
	struct doca_dev_rep *rep;
	struct doca_comch_server *server;
	/* used by the client */
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct doca_comch_client *client;
	char *memory;
	/* used by both sides */
	struct doca_pe *pe;
	struct doca_ctx *ctx;
	enum doca_ctx_states state;
	struct doca_comch_connection *connection;
	struct offer offer;
	bool received, sent, done;
	doca_error_t result; /* the first error in a callback */
};

/* ---- callbacks for both sides; the context's user data is the sample ---- */

static void state_changed(const union doca_data data, struct doca_ctx *ctx,
			  enum doca_ctx_states before, enum doca_ctx_states now)
{
	(void)ctx;
	(void)before;
	((struct comch_copy *)data.ptr)->state = now;
}

static void send_completed(struct doca_comch_task_send *task, union doca_data task_data,
			   union doca_data ctx_data)
{
	struct comch_copy *c = ctx_data.ptr;
	struct doca_task *base = doca_comch_task_send_as_task(task);
	doca_error_t result = doca_task_get_status(base);

	(void)task_data;
	if (result != DOCA_SUCCESS)
		c->result = failed("Sending", result);
	c->sent = true;
	doca_task_free(base);
}

static doca_error_t submit(struct doca_comch_task_send *task)
{
	struct doca_task *base = doca_comch_task_send_as_task(task);
	doca_error_t result = doca_task_submit(base);

	if (result == DOCA_SUCCESS)
		return DOCA_SUCCESS;
	doca_task_free(base);
	return failed("doca_task_submit", result);
}

/* Progresses until *flag is set, an error, Ctrl-C, or the end of the context (the server died). */
static doca_error_t progress_until(struct comch_copy *c, const bool *flag)
{
	const struct timespec nap = {.tv_nsec = 100000};

	while (!*flag && c->result == DOCA_SUCCESS) {
		if (doca_pe_progress(c->pe))
			continue;
		if (stopped())
			return failed("Waiting", DOCA_ERROR_SHUTDOWN);
		if (c->state != DOCA_CTX_STATE_RUNNING)
			return failed("Waiting for the other side", DOCA_ERROR_CONNECTION_RESET);
		nanosleep(&nap, NULL);
	}
	return c->result;
}

static void stop_context(struct comch_copy *c)
{
	const struct timespec nap = {.tv_nsec = 100000};

	if (!c->ctx)
		return;
	doca_ctx_stop(c->ctx);
	while (doca_ctx_get_state(c->ctx, &c->state) == DOCA_SUCCESS &&
	       c->state == DOCA_CTX_STATE_STOPPING)
		if (!doca_pe_progress(c->pe))
			nanosleep(&nap, NULL);
}

/* ---- the client ---- */

static doca_error_t can_be_client(const struct doca_devinfo *info)
{
	uint8_t can = 0;

	if (doca_mmap_cap_is_export_pci_supported(info, &can) != DOCA_SUCCESS || !can)
		return DOCA_ERROR_NOT_SUPPORTED;
	return doca_comch_cap_client_is_supported(info);
}

static void client_heard(struct doca_comch_event_msg_recv *event, uint8_t *message, uint32_t size,
			 struct doca_comch_connection *connection)
{
	struct comch_copy *c = doca_comch_connection_get_user_data(connection).ptr;

	(void)event;
	if (size == sizeof answer && !memcmp(message, answer, size)) {
		c->done = true;
		return;
	}
	DOCA_LOG_ERR("The server's answer has %u bytes and is not the expected one", size);
	c->result = DOCA_ERROR_UNEXPECTED;
}

static doca_error_t client_offer(struct comch_copy *c, const char *text)
{
	const void *descriptor;
	size_t n;

	c->offer.size = strlen(text) + 1;
	c->memory = strdup(text);
	if (!c->memory)
		return failed("strdup", DOCA_ERROR_NO_MEMORY);
	c->offer.addr = (uintptr_t)c->memory;
	TRY(map_memory(c->dev, c->memory, c->offer.size,
		       DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_ONLY,
		       &c->map));
	TRY_DOCA(doca_mmap_export_pci(c->map, c->dev, &descriptor, &n));
	if (n > DESCRIPTOR_MAX)
		return failed("The descriptor's size", DOCA_ERROR_TOO_BIG);
	c->offer.descriptor_size = n;
	memcpy(c->offer.descriptor, descriptor, n);
	return DOCA_SUCCESS;
}

static doca_error_t client_open(struct comch_copy *c)
{
	union doca_data data = {.ptr = c};

	TRY_DOCA(doca_pe_create(&c->pe));
	TRY_DOCA(doca_comch_client_create(c->dev, CHANNEL, &c->client));
	c->ctx = doca_comch_client_as_ctx(c->client);
	TRY_DOCA(doca_ctx_set_user_data(c->ctx, data));
	TRY_DOCA(doca_ctx_set_state_changed_cb(c->ctx, state_changed));
	TRY_DOCA(
		doca_comch_client_task_send_set_conf(c->client, send_completed, send_completed, 1));
	TRY_DOCA(doca_comch_client_event_msg_recv_register(c->client, client_heard));
	TRY_DOCA(doca_pe_connect_ctx(c->pe, c->ctx));
	return DOCA_SUCCESS;
}

/* A client is RUNNING once it is connected. */
static doca_error_t client_connect(struct comch_copy *c)
{
	union doca_data data = {.ptr = c};
	const struct timespec nap = {.tv_nsec = 100000};
	doca_error_t result = doca_ctx_start(c->ctx);

	if (result != DOCA_SUCCESS && result != DOCA_ERROR_IN_PROGRESS)
		return failed("doca_ctx_start", result);
	TRY_DOCA(doca_ctx_get_state(c->ctx, &c->state));
	while (c->state == DOCA_CTX_STATE_STARTING) {
		if (doca_pe_progress(c->pe))
			continue;
		if (stopped())
			return failed("Connecting", DOCA_ERROR_SHUTDOWN);
		nanosleep(&nap, NULL);
	}
	if (c->state != DOCA_CTX_STATE_RUNNING)
		return failed("Connecting (does the server run?)", DOCA_ERROR_NOT_CONNECTED);
	TRY_DOCA(doca_comch_client_get_connection(c->client, &c->connection));
	TRY_DOCA(doca_comch_connection_set_user_data(c->connection, data));
	return DOCA_SUCCESS;
}

static doca_error_t run_client(struct comch_copy *c, const struct options *o)
{
	struct doca_comch_task_send *task;
	size_t n;

	TRY(open_device(o->pci, can_be_client, &c->dev));
	TRY(client_offer(c, o->text));
	TRY(client_open(c));
	TRY(client_connect(c));
	n = offsetof(struct offer, descriptor) + c->offer.descriptor_size;
	TRY_DOCA(doca_comch_client_task_send_alloc_init(c->client, c->connection, &c->offer,
							(uint32_t)n, &task));
	TRY(submit(task));
	print_text("offered", c->memory, c->offer.size);
	TRY(progress_until(c, &c->done));
	printf("The server has it\n");
	fflush(stdout);
	return DOCA_SUCCESS;
}

/* ---- the server ---- */

static struct comch_copy *of_server(struct doca_comch_connection *connection)
{
	union doca_data data = {.ptr = NULL};
	struct doca_comch_server *server = doca_comch_server_get_server_ctx(connection);

	doca_ctx_get_user_data(doca_comch_server_as_ctx(server), &data);
	return data.ptr;
}

static void connected(struct doca_comch_event_connection_status_changed *event,
		      struct doca_comch_connection *connection, uint8_t well)
{
	struct comch_copy *c = of_server(connection);

	(void)event;
	if (c->connection)
		return;
	if (well)
		c->connection = connection;
	else
		c->result = failed("A client's connection", DOCA_ERROR_CONNECTION_ABORTED);
}

static void disconnected(struct doca_comch_event_connection_status_changed *event,
			 struct doca_comch_connection *connection, uint8_t well)
{
	struct comch_copy *c = of_server(connection);

	(void)event;
	(void)well;
	if (c->connection != connection)
		return;
	if (!c->received)
		c->result = failed("Waiting for the client's offer", DOCA_ERROR_CONNECTION_RESET);
	c->connection = NULL;
	c->done = true;
}

/* A message is untrusted: its fields are checked before use. */
static void server_heard(struct doca_comch_event_msg_recv *event, uint8_t *message, uint32_t size,
			 struct doca_comch_connection *connection)
{
	struct comch_copy *c = of_server(connection);
	const size_t head = offsetof(struct offer, descriptor);

	(void)event;
	if (c->received || connection != c->connection)
		return;
	if (size > head && size <= sizeof c->offer) {
		memcpy(&c->offer, message, size);
		c->received = c->offer.descriptor_size == size - head && c->offer.size &&
			      c->offer.size <= SIZE_MAX_HERE;
	}
	if (c->received)
		return;
	DOCA_LOG_ERR("A message of %u bytes is not an offer", size);
	c->result = DOCA_ERROR_INVALID_VALUE;
}

static doca_error_t can_be_server(const struct doca_devinfo *info)
{
	return doca_comch_cap_server_is_supported(info);
}

/* Opens the representor of the host's function. */
static doca_error_t open_rep(struct comch_copy *c, const char *pci)
{
	struct doca_devinfo_rep **list;
	doca_error_t result = DOCA_ERROR_NOT_FOUND;
	uint32_t n, i;

	TRY_DOCA(doca_devinfo_rep_create_list(c->copier.dev, DOCA_DEVINFO_REP_FILTER_NET, &list,
					      &n));
	for (i = 0; i < n; i++) {
		uint8_t same = !pci[0];

		if (pci[0])
			doca_devinfo_rep_is_equal_pci_addr(list[i], pci, &same);
		if (same)
			break;
	}
	if (i < n)
		result = doca_dev_rep_open(list[i], &c->rep);
	doca_devinfo_rep_destroy_list(list);
	return result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("Opening the representor", result);
}

static doca_error_t server_open(struct comch_copy *c)
{
	union doca_data data = {.ptr = c};

	TRY_DOCA(doca_pe_create(&c->pe));
	TRY_DOCA(doca_comch_server_create(c->copier.dev, c->rep, CHANNEL, &c->server));
	c->ctx = doca_comch_server_as_ctx(c->server);
	TRY_DOCA(doca_ctx_set_user_data(c->ctx, data));
	TRY_DOCA(doca_ctx_set_state_changed_cb(c->ctx, state_changed));
	TRY_DOCA(
		doca_comch_server_task_send_set_conf(c->server, send_completed, send_completed, 1));
	TRY_DOCA(doca_comch_server_event_msg_recv_register(c->server, server_heard));
	TRY_DOCA(doca_comch_server_event_connection_status_changed_register(c->server, connected,
									    disconnected));
	TRY_DOCA(doca_pe_connect_ctx(c->pe, c->ctx));
	TRY_DOCA(doca_ctx_start(c->ctx));
	return DOCA_SUCCESS;
}

/* Reads the offered memory by DMA. */
static doca_error_t take(struct comch_copy *c)
{
	struct doca_mmap *remote = NULL, *local = NULL;
	size_t size = (size_t)c->offer.size;
	char *memory = calloc(1, size);
	doca_error_t result = memory ? doca_mmap_create_from_export(NULL, c->offer.descriptor,
								    c->offer.descriptor_size,
								    c->copier.dev, &remote)
				     : DOCA_ERROR_NO_MEMORY;

	if (result == DOCA_SUCCESS)
		result = map_memory(c->copier.dev, memory, size, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
				    &local);
	if (result == DOCA_SUCCESS)
		result = copier_copy(&c->copier, remote, (void *)(uintptr_t)c->offer.addr, local,
				     memory, size);
	if (result == DOCA_SUCCESS)
		print_text("received", memory, size);
	if (local)
		doca_mmap_destroy(local);
	if (remote)
		doca_mmap_destroy(remote);
	free(memory);
	return result == DOCA_SUCCESS ? DOCA_SUCCESS : failed("Taking the offer", result);
}

static doca_error_t run_server(struct comch_copy *c, const struct options *o)
{
	struct doca_comch_task_send *task;

	TRY(open_device(o->pci, can_be_server, &c->copier.dev));
	TRY(copier_open_on(&c->copier, 2));
	TRY(open_rep(c, o->rep_pci));
	TRY(server_open(c));
	printf("The server is ready\n");
	fflush(stdout);
	TRY(progress_until(c, &c->received));
	TRY(take(c));
	TRY_DOCA(doca_comch_server_task_send_alloc_init(c->server, c->connection, answer,
							sizeof answer, &task));
	TRY(submit(task));
	TRY(progress_until(c, &c->sent));
	return progress_until(c, &c->done); /* the client disconnects first, after the reply */
}

/* ---- both ---- */

static void give_back(struct comch_copy *c)
{
	stop_context(c);
	copier_stop(&c->copier);
	if (c->client)
		doca_comch_client_destroy(c->client);
	if (c->server)
		doca_comch_server_destroy(c->server);
	if (c->pe)
		doca_pe_destroy(c->pe);
	if (c->map)
		doca_mmap_destroy(c->map);
	if (c->rep)
		doca_dev_rep_close(c->rep);
	if (c->dev)
		doca_dev_close(c->dev);
	copier_close(&c->copier);
	free(c->memory);
}

static doca_error_t no_role(const char *given)
{
	DOCA_LOG_ERR("--role is '%s'; it must be client (on the host) or server (on the DPU)",
		     given);
	return DOCA_ERROR_INVALID_VALUE;
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text whose descriptor went by Comch"};
	struct comch_copy c = {.state = DOCA_CTX_STATE_IDLE};
	doca_error_t result = sample_begin(argc, argv, "comch_copy", WANT_TEXT | WANT_COMCH, &o);

	if (result == DOCA_SUCCESS && !strcmp(o.role, "client"))
		result = run_client(&c, &o);
	else if (result == DOCA_SUCCESS && !strcmp(o.role, "server"))
		result = run_server(&c, &o);
	else if (result == DOCA_SUCCESS)
		result = no_role(o.role);
	give_back(&c);
	return sample_end(result);
}
