// SPDX-License-Identifier: Apache-2.0
/* Atomic operations: by this thread where the CPU reaches the word, by the word's exporter where only
 * that does, otherwise by the provider in two parts. */
#include "executor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* The files that engines lock; 0: free. A lock ends with the process, unless a child has the file open, too. */
static _Atomic int locks_plus_1[16];

static void close_in_child(void)
{
	for (size_t i = 0; i < sizeof locks_plus_1 / sizeof *locks_plus_1; i++) {
		const int fd = atomic_exchange(&locks_plus_1[i], 0) - 1;
		if (fd >= 0)
			close(fd);
	}
}

static void register_child(void)
{
	pthread_atfork(NULL, NULL, close_in_child);
}

/* Replaces one in the table. Returns false if it is not there: the table is full, or this is a child. */
static bool note_lock(int from_plus_1, int to_plus_1)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, register_child);
	for (size_t i = 0; i < sizeof locks_plus_1 / sizeof *locks_plus_1; i++) {
		int expected = from_plus_1;
		if (atomic_compare_exchange_strong(&locks_plus_1[i], &expected, to_plus_1))
			return true;
	}
	return false;
}

void dg_exec_atomic_close(struct exec_engine *e)
{
	if (e->atomic_lock_plus_1 && note_lock(e->atomic_lock_plus_1, 0))
		close(e->atomic_lock_plus_1 - 1);
}

/* Returns whether no other process of the user has an atomic operation between its two parts. One that is stopped there
 * stops those of all. */
static bool lock_others(struct exec_engine *e)
{
	static const char name[] = "/gpu-atomics";
	char path[108];
	if (!e->atomic_lock_plus_1 && !dg_runtime_dir(path, sizeof path - sizeof name)) {
		strcat(path, name);
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0 && note_lock(0, fd + 1))
			e->atomic_lock_plus_1 = fd + 1;
		else if (fd >= 0)
			close(fd);
	}
	return !e->atomic_lock_plus_1 || !flock(e->atomic_lock_plus_1 - 1, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK;
}

void dg_exec_atomic_end(struct exec_engine *e)
{
	e->atomic_owner = NULL;
	if (e->atomic_lock_plus_1)
		flock(e->atomic_lock_plus_1 - 1, LOCK_UN);
}

/* Posts the first part of an atomic operation on GPU memory: reading the word. Between this and
 * writing it, no other operation of this engine changes it, nor one of another process's engine. */
static int post_first(struct executor *x, const struct exec_op *op)
{
	const struct exec_piece *p = op->pieces;
	struct exec_engine *e = x->engine;
	if (p->remote->entry->method != DG_METHOD_GPU && !is_plain(p->remote->entry))
		return DG_UNSUPPORTED;
	if (!op->result->entry)
		return DG_ACCESS_DENIED;
	struct exec_flight *f = flight_at(x, x->tail);
	*f = (struct exec_flight){.left = 1, .last = true, .kind = FLIGHT_ATOMIC_READ};
	if (e->atomic_owner || !exec_has_room(x, 2) || !dg_exec_staging_take(e, f, EXEC_SLOT))
		return EXEC_WAITS;
	if (!lock_others(e)) {
		dg_exec_staging_put(e, f);
		return EXEC_WAITS;
	}
	const dg_wr wr = {
		.user = x->tail,
		.local = e->staging.by[0].name,
		.local_offset = f->staging->offset,
		.remote = REGION_NAME(p->remote->id),
		.remote_offset = p->remote_offset,
		.size = op->atomic->size,
		.op = DG_READ,
	};
	const int rc = dg_exec_stage(x, &wr);
	if (rc != DG_OK) {
		dg_exec_atomic_end(e);
		dg_exec_staging_put(e, f);
		return rc;
	}
	e->atomic_owner = x;
	x->atomic = *op->atomic;
	x->atomic_word = wr.remote;
	x->atomic_word_offset = wr.remote_offset;
	x->atomic_result = REGION_NAME(op->result->id);
	x->atomic_result_offset = p->local_offset;
	x->tail++;
	return EXEC_POSTED;
}

int dg_exec_atomic_result(struct executor *x, struct exec_flight *f)
{
	char *bytes = x->engine->staging.bytes;
	const uint64_t at = f->staging->offset;
	uint64_t word = 0;
	memcpy(&word, bytes + at, x->atomic.size); /* 4 bytes: of a little-endian host */
	word = dg_atomic_value(&x->atomic, word);
	memcpy(bytes + at + 8, &word, x->atomic.size);
	dg_wr wr = {
		.user = x->tail - 1,
		.local = x->engine->staging.by[0].name,
		.local_offset = at + 8,
		.remote = x->atomic_word,
		.remote_offset = x->atomic_word_offset,
		.size = x->atomic.size,
		.op = DG_WRITE,
	};
	int rc = dg_exec_stage(x, &wr);
	if (rc != DG_OK)
		return rc;
	wr.local_offset = at;
	wr.remote = x->atomic_result;
	wr.remote_offset = x->atomic_result_offset;
	rc = dg_exec_stage(x, &wr);
	if (rc != DG_OK) {
		dg_exec_unstage(x, 1);
		return rc;
	}
	f->kind = FLIGHT_ATOMIC_WRITE;
	f->left = 2;
	return EXEC_POSTED;
}

int dg_exec_atomic(struct executor *x, const struct exec_op *op)
{
	const struct exec_piece *p = op->pieces;
	if (by_exporter(p->remote->entry))
		return dg_exec_bounce(x, op, FLIGHT_FAR_ATOMIC);
	if (exec_flies(x))
		return EXEC_WAITS;
	if (!is_plain(p->local->entry) || !is_plain(p->remote->entry))
		return post_first(x, op);
	const int status = exec_enter(x, p->local, p->remote);
	if (status != DG_OK)
		return status;
	if (!(p->local->entry->access & DG_ACCESS_WRITE))
		return DG_ACCESS_DENIED;
	if ((uintptr_t)exec_remote(p) % op->atomic->size)
		return DG_BAD_RECORD;
	order_stores();
	const uint64_t old = dg_atomic_run(op->atomic, exec_remote(p));
	if (op->atomic->size == 4)
		copy_upto64(exec_local(p), (char *)&(uint32_t){(uint32_t)old}, 4);
	else
		copy_upto64(exec_local(p), (const char *)&old, 8);
	return DG_OK;
}
