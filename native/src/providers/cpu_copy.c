// SPDX-License-Identifier: Apache-2.0
/* Executing one operation with the CPU: rows, chunks, the three ways to reach remote bytes, and
 * atomic operations. */
#include "cpu_copy.h"

#include "copy.h"
#include "memory_fault.h"
#include "share/importer.h"
#include "strided_copy.h"

int dg_regions_allowed(struct dg_region_entry *local, struct dg_region_entry *remote)
{
	if (gate_revoked(remote->gate))
		return DG_REMOTE_ACCESS_ERROR;
	if (atomic_load_explicit(&remote->lost, memory_order_relaxed))
		return DG_PEER_LOST;
	if (!local)
		return DG_OK;
	if (gate_revoked(local->gate)) /* an imported region's exporter revokes its gate */
		return local->remote ? DG_REMOTE_ACCESS_ERROR : DG_LOCAL_ERROR;
	if (atomic_load_explicit(&local->lost, memory_order_relaxed))
		return DG_PEER_LOST;
	return DG_OK;
}

int dg_op_allowed(const struct dg_op *op)
{
	return dg_regions_allowed(region_entry_at(op->local), region_entry_at(op->remote));
}

void dg_op_leave(const struct dg_op *op)
{
	gate_leave(region_entry_at(op->local)->gate, 1);
	gate_leave(region_entry_at(op->remote)->gate, 1);
}

/* Copies n bytes. Accesses to some of them may fault. */
static int copy_guarded(const struct dg_op *op, char *d, const char *s, uint64_t n)
{
	bool local = region_entry_at(op->local)->may_fault;
	if (!local && !region_entry_at(op->remote)->may_fault) { /* of the software NIC */
		const void *at = dg_copy_caught(d, s, n, op->size);
		const char *mine = op->opcode == DG_WRITE ? s : d;
		if (!at)
			return DG_OK;
		return (uintptr_t)at - (uintptr_t)mine < n ? DG_LOCAL_ERROR : DG_REMOTE_ACCESS_ERROR;
	}
	return guarded_status(dg_copy_guarded(d, s, n),
			      local ? DG_LOCAL_ERROR : DG_REMOTE_ACCESS_ERROR);
}

/* Has the exporter execute an atomic operation on memory that is not mapped into this process. */
static int atomic_by_exporter(const struct dg_op *op, uint64_t *old)
{
	struct dg_region_entry *remote = region_entry_at(op->remote);
	const bool adds = op->opcode == DG_FETCH_ADD;
	struct dg_atomic a = {
		.operand = adds ? op->dst_stride : op->src_stride,
		.compare = op->dst_stride,
		.mask = adds ? 0 : UINT64_MAX,
		.compare_mask = UINT64_MAX,
		.size = sizeof *old,
		.adds = adds,
	};
	if (op->opcode == OP_MASKED)
		memcpy(&a, op->dst, sizeof a);
	return dg_importer_atomic(remote, (uintptr_t)op->src - (uintptr_t)remote->base, &a, old);
}

/* Executes an atomic operation on a word that is mapped into this process. It is sequentially
 * consistent: all atomic operations of all processes have one total order, which includes those of
 * CPUs that use such atomics.
 *
 * On Arm both builtins are acquire and release, and use exclusives (ldaxr and stlxr), which every
 * Armv8 core has; Cortex-A72 has nothing else. The compiler's helpers detect LSE when the program
 * starts, and use ldaddal and casal if the core has it. Stores that follow in the queue are issued
 * after order_stores(), because after an exclusive pair they could become visible before its
 * store. */
static int run_atomic(const struct dg_op *op)
{
	uint64_t *word = (uint64_t *)(uintptr_t)op->src, old = op->dst_stride;
	if (!(op->flags & OP_ATOMIC)) {
		const int status = atomic_by_exporter(op, &old);
		if (status)
			return status;
	} else if (op->opcode == DG_FETCH_ADD) {
		old = __atomic_fetch_add(word, op->dst_stride, __ATOMIC_SEQ_CST);
	} else {
		__atomic_compare_exchange_n(word, &old, op->src_stride, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	if (region_entry_at(op->local)->may_fault)
		return copy_guarded(op, op->dst, (const char *)&old, sizeof old);
	dg_copy(op->dst, &old, sizeof old);
	return DG_OK;
}

static int copy_run(const struct dg_op *op, char *d, const char *s, uint64_t n)
{
	if (op->flags & OP_PLAIN) {
		if (op->size >= DG_LARGE)
			dg_copy_large(d, s, n);
		else
			dg_copy(d, s, n);
		return DG_OK;
	}
	if (op->opcode > DG_WRITE)
		return run_atomic(op);
	struct dg_region_entry *remote = region_entry_at(op->remote);
	bool write = op->opcode == DG_WRITE, may_fault = region_entry_at(op->local)->may_fault;
	char *local = write ? (char *)(uintptr_t)s : d;
	uint64_t at = (uint64_t)(uintptr_t)(write ? d : s);
	if (remote->method == DG_METHOD_PROXY)
		return dg_importer_proxy_copy(remote, local, at, n, write, may_fault);
	if (remote->method == DG_METHOD_VM)
		return dg_importer_vm_copy(remote, local, at, n, write, may_fault);
	return copy_guarded(op, d, s, n);
}

static int step_rows(const struct dg_op *op, uint64_t *progress, uint64_t budget)
{
	uint64_t row = *progress / op->size, within = *progress % op->size,
		 left = op->size - within;
	char *d = op->dst + row * op->dst_stride + within;
	const char *s = op->src + row * op->src_stride + within;

	if (within == 0 && op->size <= budget && (op->flags & OP_PLAIN)) {
		uint64_t rows = budget / op->size;
		if (rows > op->rows - row)
			rows = op->rows - row;
		dg_copy_rows(d, s, op->size, op->dst_stride, op->src_stride, rows);
		*progress += rows * op->size;
		return DG_OK;
	}
	uint64_t n = left < budget ? left : budget;
	*progress += n;
	return copy_run(op, d, s, n);
}

int dg_op_step(const struct dg_op *op, uint64_t *progress, uint64_t budget)
{
	uint64_t total = op->size * op->rows;
	int status = dg_op_allowed(op);
	if (status)
		return status;
	if (op->rows == 1) {
		uint64_t n = total - *progress < budget ? total - *progress : budget;
		status = copy_run(op, op->dst + *progress, op->src + *progress, n);
		*progress += n;
	} else {
		status = step_rows(op, progress, budget);
	}
	if (status == DG_OK && *progress < total)
		return OP_MORE;
	return status;
}

int dg_op_run(const struct dg_op *op)
{
	uint64_t progress = 0;
	int status;
	do
		status = dg_op_step(op, &progress, 1 << 20);
	while (status == OP_MORE);
	return status;
}
