// SPDX-License-Identifier: Apache-2.0
/* What tasks read and write. */
#include <string.h>

#include "rdma.h"
#include "sync/sync_event.h"

/* ---- checking ---- */

/* Where a task reads or writes: `n` bytes at `at`. */
struct place {
	const struct doca_buf *buf;
	uint64_t at, n;
};

static uint64_t room_behind(const struct doca_buf *b)
{
	return (uint64_t)(b->head + b->len - (b->data + b->data_len));
}

static struct place data_of(const struct doca_buf *b)
{
	return b ? (struct place){b, (uintptr_t)b->data, b->data_len} : (struct place){0};
}

static struct place behind(const struct doca_buf *b, uint64_t n)
{
	return b ? (struct place){b, (uintptr_t)b->data + b->data_len, n} : (struct place){0};
}

/* Whether bytes arrive at the local buffers. */
static bool fills(const struct rdma_task *t)
{
	return is_receive(t) || t->type == RDMA_READ || is_atomic(t) ||
	       (is_event(t) && t->type != RDMA_EVENT_SET);
}

const struct doca_buf *rdma_local_buf(const struct rdma_task *t)
{
	if (is_receive(t) || t->type == RDMA_READ || t->type == RDMA_EVENT_GET)
		return t->dst;
	return is_atomic(t) || t->type == RDMA_EVENT_ADD ? t->result : t->src;
}

/* The part of a local buffer that the task uses, if it has `left` bytes left. */
static struct place part_of(const struct rdma_task *t, const struct doca_buf *b, uint64_t left)
{
	struct place p = fills(t) ? behind(b, room_behind(b)) : data_of(b);
	p.n = p.n < left ? p.n : left;
	return p;
}

static uint64_t bytes_in(const struct rdma_task *t, const struct doca_buf *b)
{
	uint64_t n = 0;
	for (; b; b = b->next)
		n += part_of(t, b, UINT64_MAX).n;
	return n;
}

static struct place remote_of(const struct rdma_task *t)
{
	if (t->type == RDMA_READ)
		return data_of(t->src);
	if (!is_atomic(t))
		return behind(t->dst, t->bytes);
	return (struct place){t->dst, t->dst ? (uintptr_t)t->dst->data : 0, t->bytes};
}

static doca_error_t check_list(const struct doca_buf *b, uint32_t most, const char *what, const char *func)
{
	const char *wrong = !object_is(b, OBJECT_BUF) ? "is not a buffer"
			    : b->first != b	      ? "is in a list, and not its first"
			    : b->list_len > most      ? "is a list that is too long"
						      : NULL;
	if (!wrong)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "the %s buffer, %p, %s: at most %u", what,
			  (const void *)b, wrong, most);
}

static doca_error_t check_buf(const struct place *p, const char *what, const char *func)
{
	const struct doca_buf *b = p->buf;
	TRY(check_list(b, 1, what, func));
	if (p->at - (uintptr_t)b->head <= b->len && p->n <= (uintptr_t)b->head + b->len - p->at)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
			  "the %s buffer has no room for %llu bytes", what,
			  (unsigned long long)p->n);
}

static doca_error_t check_remote(const struct rdma_task *t, const char *func)
{
	const struct place p = remote_of(t);
	TRY(check_buf(&p, "peer's", func));
	const struct doca_mmap *m = p.buf->mmap;
	if (m->from_export && m->key && !memcmp(m->gid, t->connection->peer_gid, sizeof m->gid))
		return DOCA_SUCCESS;
	return REFUSE_FOR(
		func, DOCA_ERROR_INVALID_VALUE,
		"the peer's buffer is not in a map from an export for RDMA of the process that "
		"connection %u leads to",
		t->connection->id);
}

static bool is_usable(const struct doca_mmap *m, const struct doca_dev *dev)
{
	return !m->from_export && m->n_attached && m->attached[0].dev == dev &&
	       softdoca_mmap_attachment(m, dev);
}

static doca_error_t check_local(const struct rdma_task *t, const struct doca_rdma *r,
				const char *func)
{
	const struct doca_buf *first = rdma_local_buf(t);
	const uint32_t most = is_atomic(t) || is_event(t) ? 1 : RDMA_LIST_MAX;
	TRY(check_list(first, most, "local", func));
	const uint64_t n = bytes_in(t, first);
	if (n < t->bytes)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
				  "the local buffer has %llu bytes, not %llu",
				  (unsigned long long)n, (unsigned long long)t->bytes);
	for (const struct doca_buf *b = first; b; b = b->next)
		if (!is_usable(b->mmap, r->ctx.dev))
			return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
					  "a local buffer is in a map that is from an export, is "
					  "not started, "
					  "or whose first device is not %s",
					  r->ctx.dev->info.f.pci);
	return DOCA_SUCCESS;
}

static uint64_t bytes_of(const struct rdma_task *t)
{
	if (is_receive(t))
		return object_is(t->dst, OBJECT_BUF) ? bytes_in(t, t->dst) : 0;
	if (is_atomic(t) || is_event(t))
		return sizeof(uint64_t);
	if (!object_is(t->src, OBJECT_BUF))
		return 0;
	return t->type == RDMA_READ ? t->src->data_len : bytes_in(t, t->src);
}

/* The CPU accesses the word of a task on a sync event. */
static char *word_of(const struct rdma_task *t)
{
	const struct place p = part_of(t, rdma_local_buf(t), t->bytes);
	const struct doca_mmap *m = p.buf->mmap;
	return m->base ? m->base + (p.at - (uintptr_t)m->addr) : NULL;
}

static doca_error_t check_event(const struct rdma_task *t, const char *func)
{
	const bool is_known = object_is(t->event, OBJECT_SYNC_EVENT_REMOTE_NET);
	const bool is_word = t->type != RDMA_EVENT_SET || t->src->data_len == sizeof(uint64_t);
	if (is_known && is_word && word_of(t))
		return DOCA_SUCCESS;
	return REFUSE_FOR(
		func, DOCA_ERROR_INVALID_VALUE,
		!is_known ? "%p is not a remote sync event"
			  : "the buffer for the sync event %p is not 8 bytes of host memory",
		(const void *)t->event);
}

doca_error_t rdma_execute_event(struct rdma_task *t)
{
	static const enum remote_event_op ops[] = {REMOTE_EVENT_GET, REMOTE_EVENT_SET, REMOTE_EVENT_ADD};
	uint64_t value = t->operand;
	if (!object_is(t->event, OBJECT_SYNC_EVENT_REMOTE_NET)) /* destroyed meanwhile */
		return DOCA_ERROR_INVALID_VALUE;
	if (t->type == RDMA_EVENT_SET)
		memcpy(&value, word_of(t), sizeof value);
	doca_error_t error = softdoca_remote_event(t->event, ops[t->type - RDMA_EVENT_GET], &value);
	if (!error && t->type != RDMA_EVENT_SET)
		memcpy(word_of(t), &value, sizeof value);
	return error;
}

doca_error_t rdma_check(struct rdma_task *t, const struct doca_rdma *r, const char *func)
{
	const bool may_lack = is_receive(t) ? !t->dst : !t->src && (!has_remote(t) || !t->dst);
	doca_error_t error = DOCA_SUCCESS;
	t->bytes = bytes_of(t);
	if (is_receive(t) && t->bytes > r->max_bytes)
		t->bytes = r->max_bytes;
	if (t->bytes > r->max_bytes)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%llu bytes: a task has at most %llu",
			      (unsigned long long)t->bytes, (unsigned long long)r->max_bytes);
	if (is_event(t) && dev_is_adapter(r->ctx.dev))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "a peer's sync event cannot be used over %s",
			      r->ctx.dev->info.f.ibdev);
	/* Without bytes, a message or a write needs no buffers. */
	if (may_lack && !is_atomic(t) && !is_event(t) && t->type != RDMA_READ)
		return DOCA_SUCCESS;
	error = check_local(t, r, func);
	if (!error && is_event(t))
		error = check_event(t, func);
	return error || !has_remote(t) ? error : check_remote(t, func);
}

/* ---- entries ---- */

uint64_t rdma_remote(const struct rdma_task *t, uint32_t *key)
{
	const struct place p = remote_of(t);
	*key = p.buf ? p.buf->mmap->key : 0;
	return p.buf ? p.at : 0;
}

/* Errors: those of softdoca_mmap_key(). */
static doca_error_t find_segments(const struct rdma_task *t, struct rdma_segments *s)
{
	uint64_t left = t->bytes;
	doca_error_t error = DOCA_SUCCESS;
	s->n = 0;
	for (const struct doca_buf *b = rdma_local_buf(t); left && !error; b = b->next) {
		const struct place p = part_of(t, b, left);
		left -= p.n;
		if (p.n) {
			s->part[s->n].at = p.at;
			s->part[s->n].n = p.n;
			error = softdoca_mmap_key(b->mmap, &s->part[s->n++].key);
		}
	}
	return error;
}

doca_error_t rdma_post(struct doca_rdma_connection *c, struct rdma_task *t)
{
	struct rdma_ring *ring = is_receive(t) ? &c->receive : &c->send;
	struct rdma_segments s;
	TRY(find_segments(t, &s));
	TRY(c->rdma->net->post(c, t, &s));
	ring->tasks[ring->end++ & (ring->n - 1)] = t;
	return DOCA_SUCCESS;
}

void rdma_arrived(struct rdma_task *t)
{
	uint64_t left = fills(t) && t->opcode != DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM ? t->bytes : 0;
	if ((t->type == RDMA_WRITE || t->type == RDMA_WRITE_IMM) && t->dst)
		t->dst->data_len += t->bytes;
	for (const struct doca_buf *b = rdma_local_buf(t); b && left; b = b->next) {
		const uint64_t n = part_of(t, b, left).n;
		((struct doca_buf *)(uintptr_t)b)->data_len += n;
		left -= n;
	}
}
