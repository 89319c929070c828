// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of a task's bytes: from the data of the source list, buffer after buffer, to the free
 * space after the data of the destination list, buffer after buffer. A piece is a contiguous part
 * that lies within one buffer on each side.
 *
 * Gates (provider.h) keep memory from being released during a copy. The gate of an imported region
 * is entered for each copy: its exporter may revoke it at any time. A region of this process, in
 * contrast, can only be closed by its map (mmap.c). The map refuses while a buffer points into it,
 * and a buffer cannot be returned while a task uses it (engine.c, buf_count). So a copy by progress
 * between maps of this process needs no gate; a copy in a pipe enters both gates, because the
 * provider leaves both.
 *
 * Copies append to the destination's data. Public programs show this: they reset its length before
 * they reuse the buffer. "guess" marks an assumption that no published source confirms.
 */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "copy.h"
#include "provider.h"
#include "providers/cpu_copy.h"
#include "region.h"

#define BOUNCE_BYTES ((size_t)256 << 10)

struct piece {
	char *to;
	const char *from;
	size_t n;
	struct dg_region_entry *to_entry, *from_entry;
};

/* State of a walk over both lists. */
struct walk {
	const struct doca_buf *src, *dst;
	size_t src_done, dst_done; /* of the current buffer */
	struct doca_dev *dev;
	bool gpu;
};

static inline size_t room_of(const struct doca_buf *b)
{
	return (size_t)(b->head + b->len - b->data) - b->data_len;
}

/* Returns the map's region on the device's engine, or its GPU; NULL if it cannot be accessed. */
static inline struct attachment *attachment_of(const struct doca_mmap *m,
					       const struct doca_dev *dev)
{
	struct attachment *a = (struct attachment *)m->attached;
	for (uint32_t i = 0; i < m->n_attached; i++, a++)
		if (a->dev == dev)
			return a;
	return NULL;
}

static inline struct dg_region_entry *find_region(struct doca_mmap *m, const struct doca_dev *dev,
					    bool gpu)
{
	struct attachment *a = attachment_of(m, dev);
	if (__builtin_expect(!a || m->state != MMAP_STARTED, 0))
		return NULL;
	const dg_region *r = gpu ? softdoca_mmap_for_gpu(m, a) : a->host;
	return r ? r->entry : NULL;
}

static inline char *place(const struct dg_region_entry *entry, const struct doca_mmap *m,
			  const char *at)
{
	/* if the bytes are not mapped here, base is an address in the exporter or an offset */
	return (char *)((uintptr_t)entry->base + (uintptr_t)(at - m->addr));
}

/* Gets the next piece. Returns false at the end, or if it cannot be accessed. */
static bool next_piece(struct walk *w, struct piece *p)
{
	while (w->src && w->src_done == w->src->data_len) {
		w->src = w->src->next;
		w->src_done = 0;
	}
	while (w->dst && w->dst_done == room_of(w->dst)) {
		w->dst = w->dst->next;
		w->dst_done = 0;
	}
	if (!w->src || !w->dst)
		return false;
	size_t src_left = w->src->data_len - w->src_done, dst_left = room_of(w->dst) - w->dst_done;
	p->n = src_left < dst_left ? src_left : dst_left;
	p->from_entry = find_region(w->src->mmap, w->dev, w->gpu);
	p->to_entry = find_region(w->dst->mmap, w->dev, w->gpu);
	if (!p->from_entry || !p->to_entry)
		return false;
	p->from = place(p->from_entry, w->src->mmap, w->src->data + w->src_done);
	p->to = place(p->to_entry, w->dst->mmap, w->dst->data + w->dst->data_len + w->dst_done);
	w->src_done += p->n;
	w->dst_done += p->n;
	return true;
}

/* ---- planning a task, at submit ---- */

static __attribute__((cold, noinline, format(printf, 1, 2))) bool cannot(const char *format, ...)
{
	char text[256];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_task_submit", "%s", text);
	return false;
}

/* guess: the permissions apply to this process's own tasks, too, and violations are reported at
 * completion. An import has the permissions that its exporter gave. */
static inline bool may_write(const struct doca_mmap *m, const struct dg_region_entry *entry)
{
	return m->from_export ? entry->access & DG_ACCESS_WRITE : m->writable;
}

/* Returns whether both sides are host memory mapped in this process. */
static inline bool is_mapped(const struct dg_region_entry *a, const struct dg_region_entry *b)
{
	return !(a->method | b->method);
}

/* Returns whether a copy needs system calls: see register_host(). */
static inline bool is_guarded(const struct dg_region_entry *a, const struct dg_region_entry *b)
{
	return a->may_fault | b->may_fault;
}

static inline bool is_in_other_process(const struct dg_region_entry *entry)
{
	return entry->method == DG_METHOD_VM || entry->method == DG_METHOD_PROXY;
}

static inline bool gpu_reaches(const struct dg_region_entry *entry)
{
	return entry->method == DG_METHOD_GPU ||
	       (entry->method == DG_METHOD_MAP && !entry->may_fault);
}

/* Returns whether neither side is mapped here. dgkit copies only between another process and this
 * one, so the bytes need a bounce buffer. One buffer is enough, because a pipe executes one
 * operation after the other. */
static inline bool needs_bounce(const struct piece *p)
{
	const struct dg_region_entry *from = p->from_entry, *to = p->to_entry;
	return from->remote && to->remote && is_in_other_process(from) && is_in_other_process(to);
}

/* Returns the number of dgkit's operations for a piece. */
static inline uint32_t ops_for(const struct piece *p)
{
	return needs_bounce(p) ? 2 * (uint32_t)((p->n + BOUNCE_BYTES - 1) / BOUNCE_BYTES) : 1;
}

static bool have_bounce(struct engine *e, struct doca_dev *dev)
{
	if (e->bounce)
		return true;
	void *at = malloc(BOUNCE_BYTES);
	dg_memory m = {.addr = at, .size = BOUNCE_BYTES, .fd = -1};
	if (!at ||
	    dg_region_register(dev->engine, &m, DG_ACCESS_READ | DG_ACCESS_WRITE, &e->bounce)) {
		free(at);
		return cannot("no memory for copies between two other processes");
	}
	return true;
}

void pieces_end(struct engine *e)
{
	if (!e->bounce)
		return;
	void *at = e->bounce->memory.addr;
	/* The pipe is closed, so the bounce buffer is not in use. */
	if (!dg_region_close(e->bounce, 0))
		free(at);
	e->bounce = NULL;
}

/* Checks one piece and updates the plan. */
static bool look_at(const struct piece *p, const struct walk *w, struct doca_dma_task_memcpy *t)
{
	const struct dg_region_entry *from = p->from_entry, *to = p->to_entry;
	if (!may_write(w->dst->mmap, to))
		return cannot("the map of the destination is not writable");
	if (!(from->access & DG_ACCESS_READ))
		return cannot("the map of the source is not readable");
	if (w->gpu && (!gpu_reaches(from) || !gpu_reaches(to)))
		return cannot("the GPU cannot access the other side, which another process copies");
	if (!is_mapped(from, to) || w->gpu)
		t->path = w->gpu ? PATH_GPU : PATH_CPU;
	t->gated |= from->remote || to->remote;
	t->guarded |= is_guarded(from, to);
	t->pieces = (uint16_t)(t->pieces + ops_for(p));
	return !needs_bounce(p) || have_bounce(&dma_of(t->task.ctx)->e, w->dev);
}

static bool uses_gpu(const struct doca_buf *b)
{
	while (b && b->mmap->backing != BACKING_GPU)
		b = b->next;
	return b;
}

static size_t list_size(const struct doca_buf *b, bool room, uint32_t *n)
{
	size_t total = 0;
	for (*n = 0; b && *n <= LIST_MAX; b = b->next, ++*n)
		total += room ? room_of(b) : b->data_len;
	return total;
}

/* Plans the general case: lists, and tasks that fail. */
static __attribute__((noinline)) bool plan(struct doca_dma_task_memcpy *t, struct doca_dev *dev)
{
	uint32_t n_src, n_dst;
	size_t size = list_size(t->src, false, &n_src), room = list_size(t->dst, true, &n_dst);
	struct walk w = {.src = t->src, .dst = t->dst, .dev = dev};
	struct piece p;
	if (n_src > LIST_MAX || n_dst > LIST_MAX)
		return cannot("a list has more than %u buffers", LIST_MAX);
	if (!size) /* NVIDIA's sample pe_task_error relies on it */
		return cannot("the source has no data");
	if (size > MEMCPY_MAX) /* as on a BlueField */
		return cannot("a task of %zu bytes exceeds the limit of %zu", size,
			      (size_t)MEMCPY_MAX);
	if (room < size)
		return cannot("%zu bytes do not fit into the free space of the destination: %zu",
			      size, room);
	w.gpu = uses_gpu(t->src) || uses_gpu(t->dst);
	t->size = size;
	t->path = size <= dma_of(t->task.ctx)->e.inline_max ? PATH_INLINE : PATH_CPU;
	for (size_t done = 0; done < size; done += p.n)
		if (!next_piece(&w, &p))
			return cannot("a map is not started or does not have the context's device");
		else if (!look_at(&p, &w, t))
			return false;
	t->to = p.to;
	t->from = p.from;
	t->to_region = (uint32_t)(p.to_entry - dg_region_table);
	t->from_region = (uint32_t)(p.from_entry - dg_region_table);
	return true;
}

bool pieces_plan(struct doca_dma_task_memcpy *t, struct doca_dma *dma)
{
	const struct doca_buf *src = t->src, *dst = t->dst;
	struct doca_dev *dev = dma->ctx.dev;
	t->pieces = 0;
	t->gated = t->guarded = false;
	/* The common case: one small buffer to one buffer, in memory of this process. */
	if (src->next || dst->next || src->data_len - 1 >= dma->e.inline_max ||
	    src->data_len > room_of(dst) || !dst->mmap->writable)
		return plan(t, dev);
	struct dg_region_entry *from = find_region(src->mmap, dev, false),
			       *to = find_region(dst->mmap, dev, false);
	if (!from || !to || !is_mapped(from, to) || from->remote || to->remote ||
	    !(from->access & DG_ACCESS_READ))
		return plan(t, dev);
	t->from = place(from, src->mmap, src->data);
	t->to = place(to, dst->mmap, dst->data + dst->data_len);
	t->from_region = (uint32_t)(from - dg_region_table);
	t->to_region = (uint32_t)(to - dg_region_table);
	t->size = src->data_len;
	t->path = PATH_INLINE;
	t->guarded = is_guarded(from, to);
	t->pieces = 1;
	return true;
}

/* ---- copying ---- */

/* Fills in an operation of dgkit. The imported side is the remote side; if both are imported, the
 * side that is not mapped here. */
static void make_op(struct dg_op *op, const struct piece *p, const struct doca_dma_task_memcpy *t,
		    bool last)
{
	const struct dg_region_entry *from = p->from_entry, *to = p->to_entry;
	bool read = from->remote && (!to->remote || from->method != DG_METHOD_MAP);
	const struct dg_region_entry *local = read ? to : from, *remote = read ? from : to;
	*op = (struct dg_op){
		.dst = p->to,
		.src = p->from,
		.size = p->n,
		.rows = 1,
		.slot = t->index,
		.local = (uint32_t)(local - dg_region_table),
		.remote = (uint32_t)(remote - dg_region_table),
		.opcode = read ? DG_READ : DG_WRITE,
		.flags = (uint8_t)((last ? 0 : DG_CHAIN) |
				   (is_mapped(from, to) && !is_guarded(from, to) ? OP_PLAIN : 0) |
				   (local->method == DG_METHOD_GPU ? OP_GPU_LOCAL : 0) |
				   (remote->method == DG_METHOD_GPU ? OP_GPU_REMOTE : 0)),
	};
}

static void begin_walk(struct walk *w, const struct doca_dma_task_memcpy *t)
{
	*w = (struct walk){
		.src = t->src, .dst = t->dst, .dev = t->task.ctx->dev, .gpu = t->path == PATH_GPU};
}

/* Copies for a task with PATH_INLINE. */
static inline int copy(const struct doca_dma_task_memcpy *t, char *to, const char *from, size_t n)
{
	if (t->guarded)
		return guarded_status(dg_copy_guarded(to, from, n), DG_LOCAL_ERROR);
	dg_copy(to, from, n);
	return DG_OK;
}

/* Copies a task of several pieces, or of imported memory. */
static __attribute__((noinline)) int copy_pieces(struct doca_dma_task_memcpy *t)
{
	struct walk w;
	struct piece p;
	struct dg_op op;
	int status = DG_OK;
	begin_walk(&w, t);
	for (size_t done = 0; done < t->size && !status; done += p.n) {
		/* The program may have changed a buffer meanwhile, which is undefined in DOCA. */
		if (!next_piece(&w, &p))
			return DG_LOCAL_ERROR;
		if (p.n > t->size - done)
			p.n = t->size - done;
		make_op(&op, &p, t, true);
		gate_enter(region_entry_at(op.local)->gate, 1);
		gate_enter(region_entry_at(op.remote)->gate, 1);
		status = dg_op_allowed(&op);
		if (!status)
			status = copy(t, p.to, p.from, p.n);
		dg_op_leave(&op);
	}
	return status;
}

int pieces_copy(struct doca_dma_task_memcpy *t)
{
	/* Copies of one context become visible in the order of their execution. */
	order_stores();
	if (__builtin_expect(t->pieces > 1 || t->gated, 0))
		return copy_pieces(t);
	if (t->guarded || t->size > 64)
		return copy(t, t->to, t->from, t->size);
	copy_upto64(t->to, t->from, t->size);
	return DG_OK;
}

static inline struct piece only_piece(const struct doca_dma_task_memcpy *t)
{
	return (struct piece){.to = t->to,
			      .from = t->from,
			      .n = t->size,
			      .to_entry = region_entry_at(t->to_region),
			      .from_entry = region_entry_at(t->from_region)};
}

/* Returns whether the pieces are unchanged since submit. Checked because a chain must not end
 * early. */
static bool as_planned(const struct doca_dma_task_memcpy *t)
{
	struct walk w;
	struct piece p;
	size_t size = 0;
	uint32_t ops = 0;
	begin_walk(&w, t);
	for (; size < t->size; size += p.n, ops += ops_for(&p))
		if (!next_piece(&w, &p))
			return false;
	return size == t->size && ops == t->pieces;
}

static void put_piece(const struct piece *p, const struct doca_dma_task_memcpy *t, struct channel *l,
		bool last)
{
	struct dg_op op;
	make_op(&op, p, t, last);
	gate_enter(region_entry_at(op.local)->gate, 1);
	gate_enter(region_entry_at(op.remote)->gate, 1);
	sq_put(&l->pipe, &op, 1);
}

/* Posts two operations for each part: to the bounce buffer, and from it. */
static void put_bounced(struct piece p, const struct doca_dma_task_memcpy *t, struct channel *l,
			bool last)
{
	struct dg_region_entry *bounce = dma_of(t->task.ctx)->e.bounce->entry;
	for (size_t left = p.n; left; left -= p.n, p.from += p.n, p.to += p.n) {
		p.n = left < BOUNCE_BYTES ? left : BOUNCE_BYTES;
		struct piece in = p, out = p;
		in.to = bounce->base;
		in.to_entry = bounce;
		out.from = bounce->base;
		out.from_entry = bounce;
		put_piece(&in, t, l, false);
		put_piece(&out, t, l, last && left == p.n);
	}
}

bool pieces_post(struct doca_dma_task_memcpy *t, struct channel *l)
{
	struct piece p = only_piece(t);
	struct walk w;
	if (t->pieces > 1 && !as_planned(t))
		return cannot("a buffer of a submitted task was changed");
	begin_walk(&w, t);
	for (size_t done = 0; done < t->size; done += p.n) {
		if (t->pieces > 1)
			next_piece(&w, &p);
		bool last = done + p.n == t->size;
		if (needs_bounce(&p))
			put_bounced(p, t, l, last);
		else
			put_piece(&p, t, l, last);
	}
	l->used += t->pieces;
	l->tasks++;
	l->dev->ops->doorbell(l->dev, &l->pipe);
	return true;
}

void pieces_arrived(struct doca_dma_task_memcpy *t)
{
	struct doca_buf *b = t->dst;
	for (size_t left = t->size; b && left; b = b->next) {
		size_t n = left < room_of(b) ? left : room_of(b);
		b->data_len += n;
		left -= n;
	}
}
