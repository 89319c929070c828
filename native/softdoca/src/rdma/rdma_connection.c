// SPDX-License-Identifier: Apache-2.0
/* Connections: a queue pair each, and the bytes by which two processes connect theirs. NVIDIA's
 * published reference of DOCA RDMA 3.0 lists the errors, but for a connection that is not there (a guess). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdma.h"

#define BLOB_MAGIC   0x414d445254464f53ull /* "SOFTRDMA" */
#define BLOB_VERSION 2u
#define CHECK_CONNECTION(c) CHECK_OBJECT(c, OBJECT_RDMA_CONNECTION, "an RDMA connection")

_Static_assert(sizeof(struct rdma_blob) == 72, "no padding");

/* ---- blobs ---- */

static uint32_t checksum_of(struct rdma_blob b)
{
	uint8_t bytes[sizeof b];
	uint32_t h = 2166136261u;
	b.checksum = 0;
	memcpy(bytes, &b, sizeof b);
	for (size_t i = 0; i < sizeof bytes; i++)
		h = (h ^ bytes[i]) * 16777619u;
	return h;
}

doca_error_t rdma_blob_parse(const void *bytes, size_t size, struct rdma_blob *out)
{
	if (size < sizeof *out)
		return REFUSE(DOCA_ERROR_CONNECTION_ABORTED,
			      "%zu bytes are too few for the details of a connection: they are %zu",
			      size, sizeof *out);
	memcpy(out, bytes, sizeof *out);
	if (out->magic != BLOB_MAGIC || out->version != BLOB_VERSION)
		return REFUSE(DOCA_ERROR_CONNECTION_ABORTED,
			      "these are not the details of a connection of softdoca, version %u",
			      BLOB_VERSION);
	if (out->checksum != checksum_of(*out))
		return REFUSE(DOCA_ERROR_CONNECTION_ABORTED,
			      "the details of the connection were altered: their checksum does not match");
	return DOCA_SUCCESS;
}

/* ---- creation ---- */

/* Gives a connection its rings and its queue pair. */
static int take_pair(struct doca_rdma_connection *c)
{
	const struct doca_rdma *r = c->rdma;
	c->blob = (struct rdma_blob){.magic = BLOB_MAGIC, .version = BLOB_VERSION};
	c->blob.adapter = dev_is_adapter(r->ctx.dev);
	c->send.n = power_of_two(r->send_size);
	c->receive.n = power_of_two(r->receive_size);
	c->send.tasks = calloc(c->send.n, sizeof *c->send.tasks);
	c->receive.tasks = calloc(c->receive.n, sizeof *c->receive.tasks);
	const int rc = c->send.tasks && c->receive.tasks ? r->net->pair_open(c) : -ENOMEM;
	c->blob.checksum = checksum_of(c->blob);
	return rc;
}

static uint32_t free_id(const struct doca_rdma *r)
{
	const struct doca_rdma_connection *c = r->connections;
	uint32_t id = 0;
	while (c) {
		const bool taken = c->id == id;
		id += taken;
		c = taken ? r->connections : c->next;
	}
	return id;
}

doca_error_t rdma_connection_new(struct doca_rdma *r, const char *func, struct doca_rdma_connection **out)
{
	if (r->ctx.state != DOCA_CTX_STATE_RUNNING)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	if (r->n_connections == r->max_connections || (r->gpu.structure && r->gpu.used == r->max_connections))
		return REFUSE(DOCA_ERROR_FULL, "the context has, or on a GPU has had, %u connections, its maximum",
			      r->max_connections);
	struct doca_rdma_connection *c = softdoca_object_new(OBJECT_RDMA_CONNECTION, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a connection");
	c->rdma = r;
	c->fd = -1;
	c->id = free_id(r);
	c->next = r->connections;
	r->connections = c;
	r->n_connections++;
	const int rc = take_pair(c);
	if (rc) {
		rdma_connection_free(c);
		return softdoca_failed(func, rc);
	}
	*out = c;
	return DOCA_SUCCESS;
}

void rdma_connection_free(struct doca_rdma_connection *c)
{
	struct doca_rdma *r = c->rdma;
	struct doca_rdma_connection **at = &r->connections;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	r->n_connections--;
	r->net->pair_close(c);
	rdma_hang_up(c);
	if (c->addr)
		doca_rdma_addr_destroy(c->addr);
	free(c->send.tasks);
	free(c->receive.tasks);
	softdoca_object_free(c);
}

/* ---- the end ---- */

static void flush_here(struct doca_rdma *r, struct rdma_ring *ring)
{
	while (ring_used(ring))
		rdma_append(&r->flushed, ring->tasks[ring->begin++ & (ring->n - 1)]);
}

void rdma_connection_break(struct doca_rdma_connection *c)
{
	c->state = CONNECTION_BROKEN;
	/* Fails in a forked child, where no NIC flushes the tasks: it is the parent's. */
	if (c->rdma->net->pair_break(c)) {
		flush_here(c->rdma, &c->send);
		flush_here(c->rdma, &c->receive);
	}
}

void rdma_connection_look(struct doca_rdma_connection *c)
{
	if (c->state == CONNECTION_CONNECTED && c->rdma->net->pair_failed(c))
		rdma_connection_break(c);
}

/* ---- public functions ---- */

doca_error_t doca_rdma_export(struct doca_rdma *rdma, const void **local_rdma_conn_details,
			      size_t *local_rdma_conn_details_size,
			      struct doca_rdma_connection **rdma_connection)
{
	CHECK_OBJECT(rdma, OBJECT_RDMA, "an RDMA context");
	CHECK_OUT(local_rdma_conn_details);
	CHECK_OUT(local_rdma_conn_details_size);
	CHECK_OUT(rdma_connection);
	struct doca_pe *pe = rdma->ctx.pe;
	enum pe_entry how = softdoca_pe_enter(pe);
	if (how == PE_BUSY)
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in its progress engine");
	doca_error_t error = rdma_connection_new(rdma, __func__, rdma_connection);
	if (!error) {
		*local_rdma_conn_details = &(*rdma_connection)->blob;
		*local_rdma_conn_details_size = sizeof (*rdma_connection)->blob;
	}
	softdoca_pe_leave(pe, how);
	return error;
}

struct doca_rdma_connection *softdoca_rdma_connection(struct doca_rdma *rdma)
{
	return object_is(rdma, OBJECT_RDMA) ? rdma->connections : NULL;
}

doca_error_t softdoca_rdma_export(struct doca_rdma *rdma, const void **details, size_t *size)
{
	struct doca_rdma_connection *connection;
	return doca_rdma_export(rdma, details, size, &connection);
}

doca_error_t rdma_connection_join(struct doca_rdma_connection *c, const struct rdma_blob *peer)
{
	if (peer->adapter != c->blob.adapter)
		return REFUSE(DOCA_ERROR_CONNECTION_ABORTED, "the peer's device is %s, and %s is not one",
			      peer->adapter ? "an RDMA adapter" : "a function of softdoca",
			      c->rdma->ctx.dev->info.f.ibdev);
	const int rc = c->rdma->net->pair_join(c, peer);
	if (rc) {
		doca_error_t error = softdoca_failed("doca_rdma_connect", rc);
		return rc == -ENOTCONN || rc == -EXDEV ? DOCA_ERROR_CONNECTION_ABORTED : error;
	}
	memcpy(c->peer_gid, peer->address.gid, sizeof c->peer_gid);
	return DOCA_SUCCESS;
}

static doca_error_t connect_to(struct doca_rdma_connection *c, const struct rdma_blob *peer)
{
	if (c->rdma->ctx.state != DOCA_CTX_STATE_RUNNING || c->state != CONNECTION_NEW)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running, or connection %u is not new",
			      c->id);
	TRY(rdma_connection_join(c, peer));
	c->state = CONNECTION_CONNECTED;
	rdma_spread_receives(c->rdma);
	return DOCA_SUCCESS;
}

doca_error_t doca_rdma_connect(struct doca_rdma *rdma, const void *remote_rdma_conn_details,
			       size_t remote_rdma_conn_details_size,
			       struct doca_rdma_connection *rdma_connection)
{
	struct rdma_blob peer;
	CHECK_OBJECT(rdma, OBJECT_RDMA, "an RDMA context");
	CHECK_CONNECTION(rdma_connection);
	CHECK_OUT(remote_rdma_conn_details);
	if (rdma_connection->rdma != rdma)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the connection is of another context");
	TRY(rdma_blob_parse(remote_rdma_conn_details, remote_rdma_conn_details_size, &peer));
	RETURN_INSIDE(rdma->ctx.pe, connect_to(rdma_connection, &peer));
}

static doca_error_t disconnect(struct doca_rdma_connection *c)
{
	if (c->state == CONNECTION_NEW || c->state == CONNECTION_FAILED)
		return REFUSE(DOCA_ERROR_BAD_STATE, "connection %u is not connected", c->id);
	if (c->state == CONNECTION_OVER || c->state < CONNECTION_CONNECTED) {
		rdma_connection_free(c);
		return DOCA_SUCCESS;
	}
	c->ended = true;
	if (c->state == CONNECTION_CONNECTED)
		rdma_connection_break(c);
	softdoca_pe_kick(c->rdma->ctx.pe);
	return DOCA_SUCCESS;
}

doca_error_t doca_rdma_connection_disconnect(struct doca_rdma_connection *rdma_connection)
{
	CHECK_CONNECTION(rdma_connection);
	RETURN_INSIDE(rdma_connection->rdma->ctx.pe, disconnect(rdma_connection));
}

doca_error_t doca_rdma_connection_set_user_data(struct doca_rdma_connection *rdma_connection,
						union doca_data connection_user_data)
{
	CHECK_CONNECTION(rdma_connection);
	rdma_connection->user_data = connection_user_data;
	return DOCA_SUCCESS;
}

GETTER(doca_rdma_connection_get_user_data, CHECK_CONNECTION, const struct doca_rdma_connection,
       union doca_data, handle->user_data)
GETTER(doca_rdma_connection_get_id, CHECK_CONNECTION, const struct doca_rdma_connection, uint32_t,
       handle->id)
