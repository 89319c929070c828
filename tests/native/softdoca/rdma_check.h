/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of RDMA: a side is a context with all types of tasks, and memory that it lends to its peer. */
#ifndef SOFTDOCA_RDMA_CHECK_H
#define SOFTDOCA_RDMA_CHECK_H

#include "doca_check.h"

#include <doca_rdma.h>
#include <doca_sync_event.h>

#define SIDE_BYTES  ((size_t)1 << 20)
#define SIDE_TASKS  64u
#define LENT                                                                             \
	(READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ | DOCA_ACCESS_FLAG_RDMA_WRITE |          \
	 DOCA_ACCESS_FLAG_RDMA_ATOMIC)

struct side {
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_rdma *rdma;
	struct doca_ctx *ctx;
	struct doca_rdma_connection *connection;
	struct doca_buf_inventory *inv;
	struct doca_mmap *map, *far; /* far: the peer's memory */
	uint8_t *bytes;
	/* what the callbacks have recorded */
	unsigned done, failed, disconnected;
	doca_error_t last;
	uint64_t order[256];
};

/* What a side tells its peer. */
struct side_offer {
	uint64_t addr, blob_len, desc_len;
	uint8_t blob[256], desc[512];
};

UNUSED static void side_note(struct side *s, struct doca_task *task, union doca_data data,
			     unsigned *count)
{
	s->last = doca_task_get_status(task);
	s->order[(s->done + s->failed) % 256] = data.u64;
	++*count;
	doca_task_free(task);
}

#define SIDE_CALLBACKS(name)                                                                     \
	UNUSED static void on_##name(struct doca_rdma_task_##name *t, union doca_data task_data, \
				     union doca_data ctx_data)                                   \
	{                                                                                        \
		struct side *s = ctx_data.ptr;                                                   \
		side_note(s, doca_rdma_task_##name##_as_task(t), task_data, &s->done);           \
	}                                                                                        \
	UNUSED static void on_##name##_error(struct doca_rdma_task_##name *t,                    \
					     union doca_data task_data, union doca_data ctx_data) \
	{                                                                                        \
		struct side *s = ctx_data.ptr;                                                   \
		side_note(s, doca_rdma_task_##name##_as_task(t), task_data, &s->failed);         \
	}
SIDE_CALLBACKS(receive)
SIDE_CALLBACKS(send)
SIDE_CALLBACKS(send_imm)
SIDE_CALLBACKS(read)
SIDE_CALLBACKS(write)
SIDE_CALLBACKS(write_imm)
SIDE_CALLBACKS(atomic_cmp_swp)
SIDE_CALLBACKS(atomic_fetch_add)
SIDE_CALLBACKS(remote_net_sync_event_get)
SIDE_CALLBACKS(remote_net_sync_event_notify_set)
SIDE_CALLBACKS(remote_net_sync_event_notify_add)

UNUSED static void on_disconnect(struct doca_rdma_connection *c, union doca_data connection_data,
				 union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	CHECK(c == s->connection);
	CHECK_EQ(connection_data.u64, 7);
	s->disconnected++;
}

UNUSED static void side_make_on(struct side *s, struct doca_dev *dev, uint32_t permissions,
				uint16_t connections)
{
	union doca_data data = {.ptr = s};

	memset(s, 0, sizeof *s);
	s->dev = dev;
	s->bytes = pages(SIDE_BYTES);
	s->map = a_started_map(s->dev, s->bytes, SIDE_BYTES, permissions);
	s->inv = an_inventory(256);
	OK(doca_pe_create(&s->pe));
	OK(doca_rdma_create(s->dev, &s->rdma));
	s->ctx = doca_rdma_as_ctx(s->rdma);
	OK(doca_rdma_set_permissions(s->rdma, permissions));
	OK(doca_rdma_set_max_num_connections(s->rdma, connections));
	OK(doca_rdma_set_connection_state_callbacks(s->rdma, NULL, NULL, NULL, on_disconnect));
	OK(doca_rdma_task_receive_set_conf(s->rdma, on_receive, on_receive_error, SIDE_TASKS));
	OK(doca_rdma_task_send_set_conf(s->rdma, on_send, on_send_error, SIDE_TASKS));
	OK(doca_rdma_task_send_imm_set_conf(s->rdma, on_send_imm, on_send_imm_error, SIDE_TASKS));
	OK(doca_rdma_task_read_set_conf(s->rdma, on_read, on_read_error, SIDE_TASKS));
	OK(doca_rdma_task_write_set_conf(s->rdma, on_write, on_write_error, SIDE_TASKS));
	OK(doca_rdma_task_write_imm_set_conf(s->rdma, on_write_imm, on_write_imm_error, SIDE_TASKS));
	OK(doca_rdma_task_atomic_cmp_swp_set_conf(s->rdma, on_atomic_cmp_swp,
						  on_atomic_cmp_swp_error, SIDE_TASKS));
	OK(doca_rdma_task_atomic_fetch_add_set_conf(s->rdma, on_atomic_fetch_add,
						    on_atomic_fetch_add_error, SIDE_TASKS));
	OK(doca_rdma_task_remote_net_sync_event_get_set_conf(
		s->rdma, on_remote_net_sync_event_get, on_remote_net_sync_event_get_error, SIDE_TASKS));
	OK(doca_rdma_task_remote_net_sync_event_notify_set_set_conf(
		s->rdma, on_remote_net_sync_event_notify_set, on_remote_net_sync_event_notify_set_error, SIDE_TASKS));
	OK(doca_rdma_task_remote_net_sync_event_notify_add_set_conf(
		s->rdma, on_remote_net_sync_event_notify_add, on_remote_net_sync_event_notify_add_error, SIDE_TASKS));
	OK(doca_ctx_set_user_data(s->ctx, data));
	OK(doca_pe_connect_ctx(s->pe, s->ctx));
}

UNUSED static void side_make(struct side *s, uint32_t permissions, uint16_t connections)
{
	side_make_on(s, a_dev(), permissions, connections);
}

UNUSED static struct doca_rdma_connection *offer_connection(struct side *s, struct side_offer *o)
{
	struct doca_rdma_connection *c;
	const void *bytes;
	size_t len;

	OK(doca_rdma_export(s->rdma, &bytes, &len, &c));
	OK(doca_rdma_connection_set_user_data(c, (union doca_data){.u64 = 7}));
	CHECK(len <= sizeof o->blob);
	o->blob_len = len;
	memcpy(o->blob, bytes, len);
	return c;
}

/* Starts the context, and says what the peer needs. */
UNUSED static void side_offers(struct side *s, struct side_offer *o)
{
	const void *bytes;
	size_t len;

	OK(doca_ctx_start(s->ctx));
	s->connection = offer_connection(s, o);
	OK(doca_mmap_export_rdma(s->map, s->dev, &bytes, &len));
	CHECK(len <= sizeof o->desc);
	o->addr = (uintptr_t)s->bytes;
	o->desc_len = len;
	memcpy(o->desc, bytes, len);
}

UNUSED static void side_takes(struct side *s, const struct side_offer *o)
{
	OK(doca_mmap_create_from_export(NULL, o->desc, o->desc_len, s->dev, &s->far));
	OK(doca_rdma_connect(s->rdma, o->blob, o->blob_len, s->connection));
}

/* Buffers over the side's own memory, and over its peer's: n bytes of data, or n bytes of room. */
UNUSED static struct doca_buf *near_buf(struct side *s, size_t offset, size_t n, bool full)
{
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_args(s->inv, s->map, s->bytes + offset, n, s->bytes + offset,
					      full ? n : 0, &b));
	return b;
}

UNUSED static struct doca_buf *peer_buf(struct side *s, const struct side_offer *o, size_t offset,
					size_t n, bool full)
{
	void *at = (void *)(uintptr_t)(o->addr + offset);
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_args(s->inv, s->far, at, n, at, full ? n : 0, &b));
	return b;
}

UNUSED static union doca_data number(uint64_t n)
{
	return (union doca_data){.u64 = n};
}

UNUSED static void side_until(struct side *s, unsigned ended)
{
	double end = now_s() + WAIT_SECONDS;

	while (s->done + s->failed < ended)
		if (!doca_pe_progress(s->pe) && now_s() > end)
			check_failed(__FILE__, __LINE__, "%u of %u tasks ended", s->done + s->failed,
				     ended);
}

UNUSED static void side_stop(struct side *s)
{
	double end = now_s() + WAIT_SECONDS;
	enum doca_ctx_states state = DOCA_CTX_STATE_RUNNING;

	doca_ctx_stop(s->ctx);
	while (state != DOCA_CTX_STATE_IDLE) {
		doca_pe_progress(s->pe);
		OK(doca_ctx_get_state(s->ctx, &state));
		CHECK(now_s() < end);
	}
}

/* Each call must succeed, so nothing may be left in use. */
UNUSED static void side_close(struct side *s)
{
	side_stop(s);
	OK(doca_rdma_destroy(s->rdma));
	OK(doca_pe_destroy(s->pe));
	CHECK_EQ(free_bufs(s->inv), 256);
	OK(doca_buf_inventory_destroy(s->inv));
	if (s->far)
		OK(doca_mmap_destroy(s->far));
	OK(doca_mmap_destroy(s->map));
	OK(doca_dev_close(s->dev));
	munmap(s->bytes, SIDE_BYTES);
}

#define SUBMIT(s, name, ...)                                                                  \
	do {                                                                                  \
		struct doca_rdma_task_##name *submit_task;                                    \
		OK(doca_rdma_task_##name##_allocate_init((s)->rdma, __VA_ARGS__, &submit_task)); \
		OK(doca_task_submit(doca_rdma_task_##name##_as_task(submit_task)));           \
	} while (0)

#endif
