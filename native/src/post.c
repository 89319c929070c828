// SPDX-License-Identifier: Apache-2.0
/* Turns a work request into an operation that a provider may execute: each check is done once. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "copy.h"
#include "providers/cpu_copy.h"
#include "queue.h"
#include "region.h"

static int find_region(const struct dg_device *dev, uint32_t id, bool remote,
		       struct dg_region_entry **out, uint64_t *full)
{
	struct dg_region_entry *entry = dg_region_table_find(id, full);
	const char *side = remote ? "remote" : "local";
	if (!entry)
		return dg_fail(ESTALE, "%s region #%u is closed", side, id);
	if (entry->device != dev->number)
		return dg_fail(EINVAL,
			       "%s region #%u belongs to another device than this queue: register "
			       "or import it with the queue's device",
			       side, id);
	/* Imported GPU memory is mapped on this GPU, so it may also be the local side. */
	if (entry->remote != remote && (remote || entry->method != DG_METHOD_GPU))
		return dg_fail(EINVAL, "region #%u is %s: the %s side of a transfer must be %s", id,
			       entry->remote ? "imported" : "registered", side,
			       remote ? "an imported region" : "a registered region");
	*out = entry;
	return 0;
}

/* Checks the shape of operations that are neither DG_READ nor DG_WRITE. */
static __attribute__((cold, noinline)) int check_atomic_shape(const dg_wr *wr)
{
	if (wr->op > DG_COMPARE_SWAP)
		return dg_fail(EINVAL,
			       "operation %u is unknown; the operations are DG_READ (0), DG_WRITE "
			       "(1), DG_FETCH_ADD (2) and DG_COMPARE_SWAP (3)",
			       wr->op);
	if (wr->size != 8 || wr->rows > 1)
		return dg_fail(EINVAL,
			       "an atomic operation has size %" PRIu64
			       " and rows %u; it works on one word, so size must be 8 and rows 0 "
			       "or 1",
			       wr->size, wr->rows);
	return 0;
}

static int check_shape(const dg_wr *wr)
{
	uint64_t total;
	if (wr->size == 0)
		return dg_fail(ERANGE, "a transfer has 0 bytes; the minimum is 1");
	if (wr->op > DG_WRITE) {
		TRY(check_atomic_shape(wr));
	}
	if (wr->flags & ~(DG_FENCE | DG_CHAIN))
		return dg_fail(EINVAL,
			       "unknown flags %#x in a record; the flags are DG_FENCE (1) and "
			       "DG_CHAIN (2)",
			       wr->flags);
	if (wr->rows <= 1)
		return 0;
	if (__builtin_mul_overflow(wr->size, wr->rows, &total) || total > INT64_MAX)
		return dg_fail(ERANGE, "%u rows of %" PRIu64 " bytes exceed 2^63 - 1 bytes",
			       wr->rows, wr->size);
	uint64_t dst_stride = wr->op == DG_WRITE ? wr->remote_stride : wr->local_stride;
	if (dst_stride < wr->size)
		return dg_fail(EINVAL,
			       "rows of %" PRIu64 " bytes with a destination stride of %" PRIu64
			       " bytes overlap: the stride must be at least the row size",
			       wr->size, dst_stride);
	return 0;
}

/* Writes a number with commas between its thousands, and returns the text. */
static const char *grouped(uint64_t n, char text[27])
{
	char *at = text + 26;
	*at = '\0';
	for (int digits = 0; !digits || n; digits++, n /= 10) {
		if (digits && digits % 3 == 0)
			*--at = ',';
		*--at = (char)('0' + n % 10);
	}
	return at;
}

/* `remote`: the entry is that of the request's remote region. An import may be the local one. */
static __attribute__((cold)) int out_of_bounds(const struct dg_region_entry *entry, const dg_wr *wr,
					       bool remote)
{
	const char *side = remote ? "remote" : "local";
	uint32_t id = remote ? wr->remote : wr->local;
	uint64_t offset = remote ? wr->remote_offset : wr->local_offset;
	uint64_t stride = remote ? wr->remote_stride : wr->local_stride;
	char text[4][27];
	const char *from = grouped(offset, text[0]), *size = grouped(wr->size, text[1]),
		   *all = grouped(entry->size, text[2]);
	if (wr->rows > 1)
		return dg_fail(ERANGE,
			       "%s region #%u: offset %s + %u rows of size %s with stride %s "
			       "exceed its size of %s bytes",
			       side, id, from, wr->rows, size, grouped(stride, text[3]), all);
	return dg_fail(ERANGE, "%s region #%u: offset %s + size %s exceeds its size of %s bytes",
		       side, id, from, size, all);
}

static inline int check_bounds(const struct dg_region_entry *entry, const dg_wr *wr, bool remote)
{
	uint64_t offset = remote ? wr->remote_offset : wr->local_offset;
	uint64_t stride = remote ? wr->remote_stride : wr->local_stride;
	uint64_t span = wr->size;
	if (wr->rows > 1 && (__builtin_mul_overflow((uint64_t)(wr->rows - 1), stride, &span) ||
			     __builtin_add_overflow(span, wr->size, &span)))
		return out_of_bounds(entry, wr, remote);
	if (__builtin_expect(offset > entry->size || span > entry->size - offset, 0))
		return out_of_bounds(entry, wr, remote);
	return 0;
}

static int check_access(const struct dg_region_entry *local, const struct dg_region_entry *remote,
			const dg_wr *wr)
{
	bool write = wr->op == DG_WRITE;
	if (!(local->access & (write ? DG_ACCESS_READ : DG_ACCESS_WRITE)))
		return dg_fail(EACCES,
			       "local region #%u is %s-only: it cannot be the %s of a transfer",
			       wr->local, write ? "write" : "read", write ? "source" : "target");
	if (!(remote->access & (write ? DG_ACCESS_WRITE : DG_ACCESS_READ)))
		return dg_fail(EACCES, "remote region #%u is %s-only: a %s is not allowed",
			       wr->remote, write ? "read" : "write", write ? "write" : "read");
	return 0;
}

/* Checks whether the provider can execute atomic operations on this word. check_access() has
 * already checked what a read needs. */
static int check_atomic(const struct dg_device *dev, const struct dg_region_entry *remote,
			const dg_wr *wr)
{
	uint64_t address = (uintptr_t)remote->base + wr->remote_offset;
	if (!(remote->access & DG_ACCESS_WRITE))
		return dg_fail(EACCES,
			       "remote region #%u is read-only: an atomic operation needs read and "
			       "write access",
			       wr->remote);
	if (!dev->caps.atomics)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s (%s) has no atomic operations: open a device with "
			       "the provider soft, or verbs and an adapter that has them",
			       dev->caps.provider, dev->caps.engine);
	if (remote->region->no_atomics)
		return dg_fail(EOPNOTSUPP,
			       "the adapter of the exporter of remote region #%u has no atomic "
			       "operations (ibv_devinfo -v, atomic_cap)",
			       wr->remote);
	if (remote->may_fault)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s can only copy the memory of remote region #%u, by "
			       "system calls, which are not atomic: export memory from "
			       "dgkit.empty(), which importers map, or use the provider verbs",
			       dev->caps.provider, wr->remote);
	if (address % 8)
		return dg_fail(EINVAL,
			       "remote region #%u: the word at offset %" PRIu64
			       " begins %u bytes after a multiple of 8; an atomic operation needs "
			       "an address that is a multiple of 8",
			       wr->remote, wr->remote_offset, (unsigned)(address % 8));
	return 0;
}

/* Checks whether the provider can execute an operation between the two regions, where one of them
 * is not ordinary memory, or the operation is atomic. */
static __attribute__((noinline)) int check_reach(const struct dg_device *dev,
						 const struct dg_region_entry *local,
						 const struct dg_region_entry *remote,
						 const dg_wr *wr)
{
	bool gpu = remote->method == DG_METHOD_GPU || local->method == DG_METHOD_GPU;
	if (local->method == DG_METHOD_EXPORT_ONLY)
		return dg_fail(
			EOPNOTSUPP,
			"the local region is memory of another GPU than this device's (%s), and "
			"can only be exported here: open Device('cuda', gpu=...) with that GPU",
			dev->caps.engine);
	if (gpu && !dev->gpu)
		return dg_fail(EOPNOTSUPP,
			       "the %s region is GPU memory, which the provider %s cannot copy: "
			       "open a device with the provider cuda",
			       local->method == DG_METHOD_GPU ? "local" : "remote",
			       dev->caps.provider);
	if (local->method == DG_METHOD_GPU && (by_exporter(remote) || remote->may_fault))
		return dg_fail(EOPNOTSUPP,
			       "the GPU cannot access the remote region, which only its exporter "
			       "can copy: export memory from dgkit.empty()");
	return wr->op > DG_WRITE ? check_atomic(dev, remote, wr) : 0;
}

static uint8_t special_flags(const struct dg_region_entry *local,
			     const struct dg_region_entry *remote, const dg_wr *wr)
{
	return (uint8_t)((local->method == DG_METHOD_GPU ? OP_GPU_LOCAL : 0) |
			 (remote->method == DG_METHOD_GPU ? OP_GPU_REMOTE : 0) |
			 (wr->op > DG_WRITE && !by_exporter(remote) ? OP_ATOMIC : 0));
}

int dg_resolve(struct dg_queue *q, const dg_wr *wr, struct dg_op *op, struct op_run *run,
	       bool *fresh)
{
	int rc = 0;
	uint64_t local_id, remote_id;
	*fresh = wr->local != REGION_NAME(run->local_id) ||
		 wr->remote != REGION_NAME(run->remote_id) || !run->local;
	struct dg_region_entry *local = run->local, *remote = run->remote;
	if (*fresh) {
		rc = find_region(q->dev, wr->local, false, &local, &local_id);
		if (!rc)
			rc = find_region(q->dev, wr->remote, true, &remote, &remote_id);
		if (rc)
			return rc;
	}
	rc = check_shape(wr);
	if (!rc)
		rc = check_bounds(local, wr, false);
	if (!rc)
		rc = check_bounds(remote, wr, true);
	if (!rc)
		rc = check_access(local, remote, wr);
	if (rc)
		return rc;
	bool write = wr->op == DG_WRITE,
	     plain = !(remote->method | local->method | remote->may_fault | local->may_fault |
		       (wr->op & ~DG_WRITE));
	rc = plain ? 0 : check_reach(q->dev, local, remote, wr);
	if (!rc && *fresh && remote->method == DG_METHOD_QP)
		rc = dg_qp_check(q, remote->region->qp, local->region);
	if (rc)
		return rc;
	char *local_at = local->base + wr->local_offset;
	/* With METHOD_PROXY, base is 0, so this is the offset itself. */
	char *remote_at = (char *)((uintptr_t)remote->base + wr->remote_offset);
	op->dst = write ? remote_at : local_at;
	op->src = write ? local_at : remote_at;
	op->size = wr->size;
	op->dst_stride = write ? wr->remote_stride : wr->local_stride;
	op->src_stride = write ? wr->local_stride : wr->remote_stride;
	op->rows = wr->rows ? wr->rows : 1;
	op->local = REGION_INDEX(wr->local);
	op->remote = REGION_INDEX(wr->remote);
	op->opcode = wr->op;
	op->flags = (uint8_t)(wr->flags | (plain ? OP_PLAIN : special_flags(local, remote, wr)));
	if (*fresh)
		*run = (struct op_run){local, remote, local_id, remote_id};
	return 0;
}

static int in_record(uint32_t i, uint32_t n, int rc)
{
	return n == 1 ? rc : dg_fail_in(rc, "record %u of %u", i, n);
}

/* Each request is read once, so a caller that modifies it meanwhile cannot bypass the checks. */
int dg_queue_stage(struct dg_queue *q, const dg_wr *wr, uint32_t n, bool *inline_able,
		   uint64_t *total)
{
	struct op_run run = {0};
	bool fresh;
	*inline_able = q->dev->ops->inline_copies;
	*total = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct dg_op *op = &q->scratch[i];
		dg_wr record = wr[i];
		int rc = dg_resolve(q, &record, op, &run, &fresh);
		if (rc)
			return in_record(i, n, rc);
		*inline_able &= !!(op->flags & (OP_PLAIN | OP_ATOMIC));
		*total += op->size * op->rows;
	}
	if (q->scratch[n - 1].flags & DG_CHAIN)
		return dg_fail(EINVAL,
			       "the last record has DG_CHAIN: a chain must end within its batch");
	return 0;
}

int dg_queue_room(struct dg_queue *q, uint32_t n)
{
	if (__builtin_expect(n <= credits(q) && n <= q->n_free, 1))
		return 0;
	dg_queue_process_completions(q, NULL, 0);
	if (n <= credits(q) && n <= q->n_free)
		return 0;
	if (n > q->depth)
		return dg_fail(
			EAGAIN,
			"%u operations at once exceed the queue's depth of %u: open a deeper "
			"queue, or post fewer at a time",
			n, q->depth);
	if (n <= credits(q))
		return dg_fail(
			EAGAIN,
			"operations that timed out still occupy %u of the queue's %u places: "
			"close the queue and open another",
			q->depth - q->n_free, q->depth);
	return dg_fail(
		EAGAIN,
		"the queue is full: %u operations of its depth %u are posted and not reaped, "
		"%u more do not fit; poll, or wait for a transfer",
		q->depth - credits(q), q->depth, n);
}

/* Fills the slots of the operations just posted, while the provider already works on them. */
static void fill_slots(struct dg_queue *q, const struct dg_op *ops, const dg_wr *wr, uint32_t n,
		       const struct dg_slot *like)
{
	uint32_t part = NO_SLOT, run_index = 0;
	uint64_t size = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct dg_slot *s = &q->slots[ops[i].slot];
		bool chained = ops[i].flags & DG_CHAIN;
		size += ops[i].size * ops[i].rows;
		slot_fill(s, like);
		s->user = wr[i].user;
		s->size = size;
		s->part = part;
		s->kind = chained ? KIND_PART : like->kind;
		s->op = ops[i].opcode;
		s->run_index = (uint16_t)run_index;
		q->bytes_in_flight += chained ? 0 : size;
		part = chained ? ops[i].slot : NO_SLOT;
		size = chained ? size : 0;
		run_index += !chained;
	}
}

/* Number of operations published together: the provider works on them while the caller writes the
 * next ones. */
enum { PUT_OPS = 32 };

uint32_t dg_queue_submit(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
			 uint32_t kind, uint64_t submit_ns)
{
	struct dg_gates enterer = {.pass = gate_enter};
	struct dg_slot like = {
		.submit_ns = submit_ns,
		.post_ns = n == 1 && kind != KIND_TRANSFER ? submit_ns : now_ns(),
		.state = SLOT_PENDING,
		.kind = (uint8_t)kind,
		.path = DG_PATH_WORKER,
		.flags = n > 1 ? DG_SHARED_STAMP : 0,
	};
	for (uint32_t i = 0; i < n; i++)
		gates_add(&enterer, &ops[i]);
	gates_flush(&enterer);
	for (uint32_t i = 0; i < n; i++)
		ops[i].slot = q->free[--q->n_free];
	for (uint32_t i = 0, part; i < n; i += part) {
		part = n - i < PUT_OPS ? n - i : PUT_OPS;
		sq_put(&q->pipe, &ops[i], part);
	}
	fill_slots(q, ops, wr, n, &like);
	q->pipe.posted_ns = like.post_ns;
	credits_take(q, n);
	q->in_flight += n;
	q->dev->ops->doorbell(q->dev, &q->pipe);
	return ops[n - 1].slot;
}

/* Records a direct operation that is in flight as if it had been posted. */
static __attribute__((noinline)) int track_direct(struct dg_queue *q, struct dg_op *op,
						  const dg_wr *wr, uint64_t submit_ns)
{
	const struct dg_slot like = {
		.submit_ns = submit_ns,
		.post_ns = submit_ns,
		.state = SLOT_PENDING,
		.kind = KIND_RUN,
		.path = DG_PATH_WORKER,
	};
	/* Until here, the region could not be closed because this call was inside the queue. */
	gate_enter(region_entry_at(op->local)->gate, 1);
	q->n_free--;
	fill_slots(q, op, wr, 1, &like);
	credits_take(q, 1);
	q->in_flight++;
	return 0;
}

int dg_queue_direct(struct dg_queue *q, struct dg_op *op, const dg_wr *wr, dg_wc *wc,
		    uint64_t submit_ns)
{
	struct dg_gate *gate = region_entry_at(op->remote)->gate;
	op->slot = q->free[q->n_free - 1];
	q->pipe.posted_ns = submit_ns;
	/* As for an inline copy, the local region needs no gate: see inline_check(). */
	gate_enter(gate, 1);
	int status = dg_op_allowed(op);
	if (status == DG_OK)
		status = q->dev->ops->direct(q->dev, &q->pipe, op);
	if (status == OP_MORE)
		return track_direct(q, op, wr, submit_ns);
	gate_leave(gate, 1);
	if (status == OP_NOT)
		return OP_NOT;
	*wc = (dg_wc){
		.user = wr->user,
		.size = status ? 0 : op->size,
		.submit_ns = submit_ns,
		.post_ns = submit_ns,
		.complete_ns = now_ns(),
		.status = status,
		.op = op->opcode,
		.path = DG_PATH_WORKER,
	};
	return 1;
}

/* Whether op is a single copy of at most 64 bytes. Atomic operations are excluded by the same
 * comparison: OP_ATOMIC << 4 is 128. */
static inline bool small_copy(const struct dg_op *op)
{
	return op->rows == 1 && (op->size | (uint64_t)(op->flags & OP_ATOMIC) << 4) <= 64;
}

static inline int run_one(const struct dg_op *op)
{
	order_stores();
	if (small_copy(op)) {
		copy_upto64(op->dst, op->src, op->size);
		return DG_OK;
	}
	return dg_op_run(op);
}

/* State of the inline copies of one call. */
struct inline_run {
	struct dg_gate *gate; /* entered gate of the current remote region */
	uint32_t local, remote, since;
	uint64_t bytes, size;
	int status, allowed;
};

/* Checks whether op's regions may still be accessed, once for each pair of regions and each stamp.
 * The local region needs no gate: its closer waits in dg_queues_grace() until this call has
 * ended. */
static inline void inline_check(struct inline_run *r, const struct dg_op *op)
{
	if (__builtin_expect(r->since && op->remote == r->remote && op->local == r->local, 1))
		return;
	if (!r->gate || op->remote != r->remote) {
		if (r->gate)
			gate_leave(r->gate, 1);
		r->gate = region_entry_at(op->remote)->gate;
		gate_enter(r->gate, 1);
	}
	r->local = op->local;
	r->remote = op->remote;
	r->allowed = dg_op_allowed(op);
}

uint32_t dg_queue_run_inline(const struct dg_op *ops, const dg_wr *wr, uint32_t n, dg_wc *wc,
			     uint32_t first, uint32_t mask)
{
	struct inline_run r = {0};
	uint32_t out = first, stamped = first;
	uint64_t submit_ns = now_ns();
	for (uint32_t i = 0; i < n; i++) {
		const struct dg_op *op = &ops[i];
		inline_check(&r, op);
		if (r.status == DG_OK)
			r.status = r.allowed;
		if (r.status == DG_OK)
			r.status = run_one(op);
		r.size += op->size * op->rows;
		r.bytes += op->size * op->rows;
		r.since++;
		if (!(op->flags & DG_CHAIN)) {
			wc[out++ & mask] = (dg_wc){
				.user = wr[i].user,
				.size = r.status ? 0 : r.size,
				.submit_ns = submit_ns,
				.post_ns = submit_ns,
				.status = r.status,
				.op = op->opcode,
				.path = DG_PATH_INLINE,
				.flags = n > 1 ? DG_SHARED_STAMP : 0,
			};
			r.status = DG_OK;
			r.size = 0;
		}
		if (r.since < STAMP_OPS && r.bytes < STAMP_BYTES && i + 1 < n)
			continue;
		for (uint64_t t = now_ns(); stamped != out; stamped++)
			wc[stamped & mask].complete_ns = t;
		r.since = 0;
		r.bytes = 0;
	}
	gate_leave(r.gate, 1);
	return out - first;
}
