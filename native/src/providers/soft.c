// SPDX-License-Identifier: Apache-2.0
/*
 * Provider soft: one engine thread for each device copies with the CPU those operations that are
 * not copied inline. It serves the submission rings of the device's queues in turn, spins for a
 * while when all are empty, and then sleeps on a doorbell.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "copy.h"
#include "cpu_copy.h"
#include "error.h"
#include "provider.h"
#include "provider_table.h"
#include "share/server.h"
#include "strided_copy.h"
#include "thread.h"

enum {
	MAX_PIPES = 1024,
	GROUP_OPS = 16, /* completions that may share a stamp */
	GROUP_BYTES = 8192, /* bytes that these may copy, so that the stamp is not stale */
	POLLS = 256, /* between two readings of the clock */
	POLLS_PER_PAUSE = 16,
};
#define CHUNK_BYTES (1u << 20) /* copied for one queue before the next one is served */

#define MOVE_EVERY_NS 1000000u /* between two moves of the engine to another CPU */
/* A yield that took longer than this gave the CPU to a thread that needs it. */
#define CROWDED_NS 50000u

struct engine {
	pthread_t thread;
	uint64_t spin_ns;
	int doorbell;
	atomic_uint stop, high;
	atomic_int tid, cpu; /* the thread's id; the CPU that it was last seen on, or -1 */
	atomic_uint_least64_t sleeps, moves, moved_ns;
	/* The sleeper's flag of the protocol in ring.h; the engine is the sleeper. */
	_Alignas(64) atomic_uint armed;
	_Alignas(64) _Atomic(struct dg_pipe *) pipes[MAX_PIPES];
	pthread_mutex_t lock; /* held while searching for a free place in pipes */
};

static void add_one(atomic_uint_least64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Copies one operation or a chunk of it. Returns a dg_status, or OP_MORE. */
static int step(struct dg_pipe *p, const struct dg_op *op)
{
	if (p->chain_status)
		return (int)p->chain_status;
	if (op->flags & OP_GROUP) {
		int status = dg_op_allowed(op);
		if (status == DG_OK)
			dg_copy_pairs((const struct dg_pair *)op->dst, op->rows, op->size);
		return status;
	}
	order_stores();
	if ((op->flags & OP_PLAIN) && op->rows == 1 && op->size <= 64) {
		int status = dg_op_allowed(op);
		if (status == DG_OK)
			copy_upto64(op->dst, op->src, op->size);
		return status;
	}
	return dg_op_step(op, &p->progress, CHUNK_BYTES);
}

/* Completed operations that are not yet published. */
struct group {
	struct dg_gates gates;
	uint32_t n, done[GROUP_OPS];
};

/* Removes the operation at sq_head from the ring and adds its completion, unless its chain
 * continues. */
static inline void finish(struct dg_pipe *p, const struct dg_op *op, int status, struct group *g)
{
	gates_add(&g->gates, op);
	p->progress = 0;
	if (op->flags & DG_CHAIN) {
		p->chain_status = (uint32_t)status;
	} else {
		g->done[g->n++] = slot_status(op->slot, status);
		p->chain_status = DG_OK;
	}
	p->sq_head++;
}

static void publish_group(struct dg_pipe *p, struct group *g)
{
	/* Leave the gates first: a caller that has seen the completion may close the region without
	 * waiting. */
	gates_flush(&g->gates);
	if (!g->n)
		return;
	cq_publish(p, g->done, g->n, now_ns());
	g->n = 0;
	dg_pipe_wake(p);
}

static void flush_and_detach(struct engine *e, struct dg_pipe *p)
{
	struct group g = {.gates.pass = gate_leave};
	for (struct dg_op *op; (op = sq_peek(p));) {
		finish(p, op, DG_FLUSHED, &g);
		publish_group(p, &g);
	}
	for (uint32_t i = 0; i < MAX_PIPES; i++)
		if (atomic_load(&e->pipes[i]) == p)
			atomic_store(&e->pipes[i], NULL);
	/* Release: the caller frees the pipe once it sees this. */
	atomic_store_explicit(&p->detached, 1, memory_order_release);
}

/* Whether another process may make the copy. */
static bool waits(const struct dg_op *op)
{
	const struct dg_region_entry *local = region_entry_at(op->local);
	const struct dg_region_entry *remote = region_entry_at(op->remote);
	return !(op->flags & (OP_PLAIN | OP_ATOMIC)) && !(is_plain(local) && is_plain(remote));
}

static bool serve_pipe(struct engine *e, struct dg_pipe *p)
{
	struct group g = {.gates.pass = gate_leave};
	uint64_t bytes = 0;
	struct dg_op *op = sq_peek(p);
	if (__builtin_expect(atomic_load_explicit(&p->detach, memory_order_acquire), 0)) {
		flush_and_detach(e, p);
		return true;
	}
	if (!op)
		return false;
	for (uint32_t n = 0; n < GROUP_OPS && bytes < GROUP_BYTES && op; n++) {
		/* A copy by another process may wait for that process, so check for a detach after
		 * each one. */
		uint64_t size = waits(op) ? GROUP_BYTES + 1 : op->size * op->rows;
		/* A long copy must not delay the stamps of the operations before it. */
		if (g.n && (size > GROUP_BYTES - bytes || (op->flags & OP_GROUP)))
			break;
		int status = step(p, op);
		bytes += size;
		if (status == OP_MORE)
			break;
		finish(p, op, status, &g);
		if (op->flags & OP_GROUP)
			break; /* the requests of a chain share a stamp already */
		op = sq_has(p, p->sq_head) ? sq_entry(p, p->sq_head) : NULL;
	}
	publish_group(p, &g);
	return true;
}

static bool serve_all(struct engine *e)
{
	bool busy = false;
	uint32_t high = atomic_load_explicit(&e->high, memory_order_acquire);
	for (uint32_t i = 0; i < high; i++) {
		struct dg_pipe *p = atomic_load_explicit(&e->pipes[i], memory_order_acquire);
		if (p)
			busy |= serve_pipe(e, p);
	}
	return busy;
}

/* The sleeper's load of the rings, after it stored armed. */
static bool has_work(struct engine *e)
{
	uint32_t high = atomic_load(&e->high);
	if (atomic_load(&e->stop))
		return true;
	for (uint32_t i = 0; i < high; i++) {
		struct dg_pipe *p = atomic_load(&e->pipes[i]);
		if (p && (sq_peek(p) || atomic_load(&p->detach)))
			return true;
	}
	return false;
}

static void sleep_until_doorbell(struct engine *e)
{
	struct pollfd fd = {e->doorbell, POLLIN, 0};
	eventfd_t n;
	eventfd_read(e->doorbell, &n);
	atomic_store_explicit(&e->armed, 1, memory_order_seq_cst);
	dg_sleeper_barrier();
	if (!has_work(e)) {
		add_one(&e->sleeps);
		poll(&fd, 1, -1);
	}
	atomic_store_explicit(&e->armed, 0, memory_order_relaxed);
}

/* Yields to a caller that waits for this CPU. Returns whether other threads used it for long. If
 * so, the engine sleeps when it is idle, because a woken thread gets the CPU before those threads,
 * while a thread that only yielded gets it after their time slice. */
static bool yield(uint64_t now)
{
	sched_yield();
	return now_ns() - now > CROWDED_NS;
}

static void *engine_thread(void *arg)
{
	struct engine *e = arg;
	uint64_t idle_since = 0;
	bool crowded = false;
	atomic_store_explicit(&e->tid, (int)syscall(SYS_gettid), memory_order_release);
	for (uint32_t polls = 1; !atomic_load_explicit(&e->stop, memory_order_acquire); polls++) {
		if (serve_all(e)) {
			idle_since = 0;
			polls = 0;
			continue;
		}
		if (e->spin_ns && polls % POLLS) {
			if (polls % POLLS_PER_PAUSE == 0)
				cpu_relax();
			continue;
		}
		uint64_t now = now_ns();
		atomic_store_explicit(&e->cpu, sched_getcpu(), memory_order_relaxed);
		if (!idle_since)
			idle_since = now;
		if (crowded || now - idle_since >= e->spin_ns) {
			sleep_until_doorbell(e);
			idle_since = 0;
			crowded = false;
		} else if (now - idle_since > YIELD_AFTER_NS) {
			crowded = yield(now);
		}
	}
	return NULL;
}

/*
 * The kernel wakes a thread on the CPU of its waker, and leaves two threads on one CPU as long as
 * every other CPU is equally loaded. There, however, the caller and the engine cannot run in
 * parallel: each transfer waits for two context switches and the spinning between them, about 17
 * us. So a caller that has waited for long and finds the engine on its CPU moves the engine away,
 * once, and then restores the engine's affinity, which is the same before and after.
 */
static bool soft_separate(struct dg_device *dev, struct dg_pipe *p)
{
	struct engine *e = p->provider;
	cpu_set_t allowed, others;
	int cpu = sched_getcpu(), tid = atomic_load_explicit(&e->tid, memory_order_acquire);
	uint64_t now = now_ns();
	(void)dev;
	if (cpu != atomic_load_explicit(&e->cpu, memory_order_relaxed))
		return true;
	/* With callers on several CPUs, do not move the engine back and forth between them. */
	if (now - atomic_load_explicit(&e->moved_ns, memory_order_relaxed) < MOVE_EVERY_NS)
		return false;
	atomic_store_explicit(&e->moved_ns, now, memory_order_relaxed);
	if (cpu < 0 || !tid || sched_getaffinity(tid, sizeof allowed, &allowed))
		return false;
	others = allowed;
	CPU_CLR((size_t)cpu, &others);
	if (!CPU_COUNT(&others) || sched_setaffinity(tid, sizeof others, &others))
		return false;
	sched_setaffinity(tid, sizeof allowed, &allowed);
	atomic_store_explicit(&e->cpu, -1, memory_order_relaxed);
	add_one(&e->moves);
	return true;
}

static void soft_stats(void *state, dg_stats *out)
{
	struct engine *e = state;
	out->engine_sleeps += atomic_load_explicit(&e->sleeps, memory_order_relaxed);
	out->engine_moves += atomic_load_explicit(&e->moves, memory_order_relaxed);
}

static void ring_doorbell(struct engine *e)
{
	/* The producer's half of the sleeping protocol: the entry's seq is stored, now load the
	 * flag. */
	if (!atomic_load_explicit(&e->armed, memory_order_seq_cst))
		return;
	if (atomic_exchange_explicit(&e->armed, 0, memory_order_acq_rel))
		eventfd_write(e->doorbell, 1);
}

static void soft_doorbell(struct dg_device *dev, struct dg_pipe *p)
{
	(void)dev;
	ring_doorbell(p->provider);
}

static int soft_open(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	struct engine *e = aligned_alloc(64, sizeof *e);
	if (!e)
		return dg_fail(ENOMEM, "out of memory for a device's engine");
	memset(e, 0, sizeof *e);
	atomic_init(&e->cpu, -1);
	e->spin_ns = dg_cpus() > 1 ? cfg->spin_ns : 0;
	e->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (e->doorbell < 0) {
		int rc = dg_fail_errno("cannot create the engine's doorbell");
		free(e);
		return rc;
	}
	pthread_mutex_init(&e->lock, NULL);
	int rc = dg_thread_start(&e->thread, "dgkit-engine", engine_thread, e);
	if (rc) {
		close(e->doorbell);
		free(e);
		return rc;
	}
	dev->caps.max_size = INT64_MAX;
	dev->caps.inline_max = 16384;
	dev->caps.spin_ns = e->spin_ns;
	dev->caps.ordered = 1;
	dev->caps.atomics = 2;
	dev->caps.max_queues = MAX_PIPES;
	dev->mapped_kinds = true;
	*state = e;
	return 0;
}

static void soft_close(struct dg_device *dev, void *state)
{
	struct engine *e = state;
	(void)dev;
	atomic_store(&e->stop, 1);
	ring_doorbell(e);
	pthread_join(e->thread, NULL);
	close(e->doorbell);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

static int soft_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct engine *e = state;
	uint32_t i = 0;
	(void)dev;
	p->provider = e;
	pthread_mutex_lock(&e->lock);
	while (i < MAX_PIPES && atomic_load(&e->pipes[i]))
		i++;
	if (i < MAX_PIPES) {
		atomic_store_explicit(&e->pipes[i], p, memory_order_release);
		if (i >= atomic_load(&e->high))
			atomic_store_explicit(&e->high, i + 1, memory_order_release);
	}
	pthread_mutex_unlock(&e->lock);
	return i < MAX_PIPES ? 0
			     : dg_fail(EMFILE,
				       "this soft device has %u queues open, which is the maximum: "
				       "close one, or open another device",
				       MAX_PIPES);
}

static void soft_detach(struct dg_device *dev, struct dg_pipe *p)
{
	(void)dev;
	atomic_store_explicit(&p->detach, 1, memory_order_seq_cst);
	ring_doorbell(p->provider);
	/* The engine notices within one chunk. */
	while (!atomic_load_explicit(&p->detached, memory_order_acquire))
		usleep(5);
}

const struct dg_ops dg_soft_ops = {
	.name = "soft",
	.open = soft_open,
	.close = soft_close,
	.attach = soft_attach,
	.detach = soft_detach,
	.doorbell = soft_doorbell,
	.separate = soft_separate,
	.stats = soft_stats,
	.inline_copies = true,
	.groups = true,
};
