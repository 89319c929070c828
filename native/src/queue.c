// SPDX-License-Identifier: Apache-2.0
/* Opening and closing queues; posting to them and polling them. */
#include "queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control_path.h"

static int fail_forked(void)
{
	return dg_fail(EOWNERDEAD, "this queue was opened before fork(): open a device and a queue in "
				   "the child");
}

int dg_queue_refuse(struct dg_queue *q, uint32_t found, uint32_t state)
{
	if (dg_queue_forked(q)) { /* the thread belongs to the parent and will never leave */
		if (state != QUEUE_CLOSING)
			return fail_forked();
		atomic_store(&q->in_use, state);
		return 0;
	}
	while (found == QUEUE_POLLED || found == QUEUE_CLOSING) {
		if (found == QUEUE_CLOSING)
			usleep(20);
		cpu_relax();
		found = QUEUE_FREE;
		if (atomic_compare_exchange_strong(&q->in_use, &found, state))
			return 0;
	}
	return dg_fail(EALREADY,
		       "another thread is %s in this queue: open one queue for each thread",
		       found == QUEUE_WAITING ? "waiting" : "posting");
}

void dg_queues_poll(struct dg_device *dev)
{
	if (pthread_mutex_trylock(&dev->lock))
		return;
	for (struct dg_queue *q = dev->queues; q; q = q->next) {
		uint32_t found = QUEUE_FREE;
		/* A queue for kernels has a thread of its own, which must not wait for this one: its kernel waits. */
		if (q->pipe.beside_kernels || !atomic_compare_exchange_strong(&q->in_use, &found, QUEUE_POLLED))
			continue;
		if (!queue_closed(q)) {
			dev->ops->poll(dev, &q->pipe);
			/* The caller may be asleep on the fd, and the provider may have failed to
			 * have it woken. */
			if (cq_peek(&q->pipe))
				dg_pipe_wake(&q->pipe);
		}
		atomic_store_explicit(&q->in_use, QUEUE_FREE, memory_order_release);
	}
	pthread_mutex_unlock(&dev->lock);
}

int dg_queues_grace(struct dg_device *dev, uint64_t deadline_ns)
{
	int rc = 0;
	pthread_mutex_lock(&dev->lock);
	for (struct dg_queue *q = dev->queues; q && !rc; q = q->next) {
		/* QUEUE_POSTING lasts as long as a post or an inline copy; a thread that waits for
		 * completions need not be waited for. leave_count is loaded after in_use, so a
		 * change means that the entry that was seen has ended. */
		if (atomic_load_explicit(&q->in_use, memory_order_seq_cst) != QUEUE_POSTING)
			continue;
		uint32_t leave_count = atomic_load(&q->leave_count);
		for (uint32_t polls = 0; atomic_load(&q->in_use) == QUEUE_POSTING &&
					 atomic_load(&q->leave_count) == leave_count;
		     polls++) {
			if (polls < 1000)
				cpu_relax();
			else if (now_ns() < deadline_ns)
				usleep(20);
			else if (!rc)
				rc = dg_fail(EBUSY, "a thread is still posting or copying inline: "
						    "close the region again");
			if (rc)
				break;
		}
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

int dg_queue_postable(struct dg_queue *q)
{
	if (queue_closed(q))
		return dg_fail(ESTALE, "the queue is closed");
	return dg_queue_forked(q) ? fail_forked() : 0;
}

static int alloc_tables(struct dg_queue *q)
{
	uint32_t cap = 1;
	while (cap < q->depth)
		cap *= 2;
	q->ready_mask = cap - 1;
	q->slots = aligned_alloc(64, sizeof *q->slots * q->depth);
	q->free = malloc(sizeof *q->free * q->depth);
	q->ready = malloc(sizeof *q->ready * cap);
	q->scratch = aligned_alloc(64, sizeof *q->scratch * q->depth);
	if (!q->slots || !q->free || !q->ready || !q->scratch)
		return dg_fail(ENOMEM, "out of memory for a queue of depth %u", q->depth);
	memset(q->slots, 0, sizeof *q->slots * q->depth);
	memset(q->scratch, 0, sizeof *q->scratch * q->depth);
	for (uint32_t i = 0; i < q->depth; i++)
		q->free[i] = q->depth - 1 - i;
	for (uint32_t i = 0; i < q->depth; i++)
		q->slots[i].q = q;
	q->n_free = q->depth;
	atomic_init(&q->credits, q->depth);
	if (!q->dev->ops->groups)
		return 0;
	q->pair_mask = cap - 1;
	q->pairs = aligned_alloc(64, (sizeof *q->pairs * cap + 63) / 64 * 64);
	q->pair_users = malloc(sizeof *q->pair_users * cap);
	if (!q->pairs || !q->pair_users)
		return dg_fail(ENOMEM, "out of memory for a queue of depth %u", q->depth);
	return 0;
}

static void free_tables(struct dg_queue *q)
{
	free(q->slots);
	free(q->free);
	free(q->ready);
	free(q->scratch);
	free(q->pairs);
	free(q->pair_users);
}

static int check_open(struct dg_device *dev, uint32_t depth, uint32_t path)
{
	if (depth < 1 || depth > DG_DEPTH_MAX)
		return dg_fail(EINVAL, "depth is %u; a queue holds 1 to %u operations", depth,
			       DG_DEPTH_MAX);
	if (path > DG_PATH_WORKER)
		return dg_fail(EINVAL, "path %u is not one of auto (0), inline (1) and worker (2)",
			       path);
	if (path == DG_PATH_INLINE && !dev->ops->inline_copies)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s does not copy inline: use path auto or worker",
			       dev->ops->name);
	return 0;
}

static int open_entered(struct dg_device *dev, uint32_t depth, uint32_t path, uint64_t spin_ns,
			uint64_t op_timeout_ns, const void *proxy, dg_queue **out)
{
	TRY(check_open(dev, depth, path));
	struct dg_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
	if (!q)
		return dg_fail(ENOMEM, "out of memory for a queue");
	memset(q, 0, sizeof *q);
	q->dev = dev;
	q->prompt = !dev->ops->poll;
	atomic_store(&q->refs, 1);
	q->depth = depth;
	q->path = path;
	/* On a single CPU, spinning would only keep the engine from running. */
	q->spin_ns = dg_cpus() > 1 ? spin_ns : 0;
	q->op_timeout_ns = op_timeout_ns;
	q->fork_generation = dev->fork_generation;
	int rc = alloc_tables(q);
	if (rc)
		goto free_tables;
	rc = dg_pipe_open(&q->pipe, depth);
	if (rc)
		goto free_tables;
	q->pipe.beside_kernels = proxy;
	rc = dev->ops->attach(dev, dev->provider, &q->pipe);
	if (rc)
		goto close_pipe;
	q->fd = q->pipe.wait_fd;
	life_ref(&dev->life);
	pthread_mutex_lock(&dev->lock);
	q->next = dev->queues;
	dev->queues = q;
	pthread_mutex_unlock(&dev->lock);
	*out = q;
	return 0;
close_pipe:
	dg_pipe_close(&q->pipe);
free_tables:
	free_tables(q);
	free(q);
	return rc;
}

int dg_queue_open(dg_device *dev, uint32_t depth, uint32_t path, uint64_t spin_ns,
		  uint64_t op_timeout_ns, dg_queue **out)
{
	*out = NULL;
	TRY(dg_device_enter(dev));
	int rc = open_entered(dev, depth, path, spin_ns, op_timeout_ns, NULL, out);
	life_leave(&dev->life);
	return rc;
}

int dg_queue_open_for_kernels(struct dg_device *dev, uint32_t depth, const void *proxy,
			      dg_queue **out)
{
	*out = NULL;
	TRY(dg_device_enter(dev));
	int rc = open_entered(dev, depth, DG_PATH_AUTO, 0, UINT64_MAX, proxy, out);
	life_leave(&dev->life);
	return rc;
}

static void remove_from_device(struct dg_queue *q)
{
	pthread_mutex_lock(&q->dev->lock);
	struct dg_queue **at = &q->dev->queues;
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	pthread_mutex_unlock(&q->dev->lock);
}

/* Completes as FLUSHED the operations that the provider has not returned because it lost their
 * completion. */
static void flush_rest(struct dg_queue *q)
{
	uint64_t now = now_ns();
	for (uint32_t i = 0; i < q->depth; i++) {
		struct dg_slot *s = &q->slots[i];
		if (s->state != SLOT_PENDING || s->kind == KIND_PART)
			continue;
		s->complete_ns = now;
		s->status = DG_FLUSHED;
		s->state = SLOT_DONE;
		if (s->kind == KIND_DROPPED)
			credits_add(q, s->pairs ? s->pairs : 1);
		if (s->kind == KIND_POLL && s->pairs) {
			dg_uniform_deliver(q, s, q->ready, q->ready_tail, q->ready_mask);
			q->ready_tail += s->pairs;
		} else if (s->kind == KIND_POLL)
			dg_slot_to_wc(s, &q->ready[q->ready_tail++ & q->ready_mask]);
	}
}

int dg_queue_close(dg_queue *q)
{
	uint32_t found = QUEUE_FREE;
	int rc = 0;
	if (!atomic_compare_exchange_strong(&q->in_use, &found, QUEUE_CLOSING))
		rc = dg_queue_refuse(q, found, QUEUE_CLOSING);
	if (rc)
		return rc;
	bool closed = queue_closed(q);
	bool listed = !closed && !dg_queue_forked(q);
	if (listed) {
		dg_queue_close_qps(q);
		q->dev->ops->detach(q->dev, &q->pipe);
		dg_queue_process_completions(q, NULL, 0);
		flush_rest(q);
	}
	atomic_store(&q->closed, true);
	if (!closed)
		dg_pipe_close(&q->pipe);
	queue_leave(q);
	/* Only after queue_leave(): dg_queues_grace() holds the list's lock while it waits for
	 * threads inside. */
	if (listed)
		remove_from_device(q);
	return 0;
}

void dg_queue_unref(struct dg_queue *q)
{
	struct dg_device *dev = q->dev;
	/* acq_rel: everything that each holder did with the queue happens before the last one frees
	 * it. */
	if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) != 1)
		return;
	free_tables(q);
	free(q);
	dg_device_unref(dev);
}

void dg_queue_free(dg_queue *q)
{
	/* The caller guarantees that no other thread uses the queue, so a thread that died inside
	 * must not block the close. Only dg_queues_poll() and dg_device_close() may be inside, at
	 * any time: dg_queue_close() waits for them. */
	uint32_t found = atomic_load(&q->in_use);
	if (found == QUEUE_POSTING || found == QUEUE_WAITING)
		atomic_compare_exchange_strong(&q->in_use, &found, QUEUE_FREE);
	dg_queue_close(q);
	dg_queue_unref(q);
}

int dg_queue_fileno(dg_queue *q)
{
	return atomic_load(&q->closed) ? dg_fail(ESTALE, "the queue is closed") : q->fd;
}

int dg_queue_arm(dg_queue *q)
{
	TRY(queue_enter(q));
	int rc = dg_queue_postable(q);
	/* A completion that just became TIMED_OUT is already available and will not signal the
	 * fd. */
	if (!rc && !dg_queue_expire(q, now_ns())) {
		rc = q->dev->ops->arm ? q->dev->ops->arm(q->dev, &q->pipe) : dg_pipe_arm(&q->pipe);
	}
	queue_leave(q);
	return rc;
}

int dg_queue_pending(dg_queue *q)
{
	return (int)(q->depth - credits(q));
}

/* Executes staged operations, inline in this thread or by the provider. */
static void post_staged(struct dg_queue *q, const dg_wr *wr, uint32_t n, bool able, uint64_t total,
			uint64_t submit_ns)
{
	if (!queue_inline(q, able, total)) {
		dg_queue_submit(q, q->scratch, wr, n, KIND_POLL, submit_ns);
		return;
	}
	uint32_t wcs =
		dg_queue_run_inline(q->scratch, wr, n, q->ready, q->ready_tail, q->ready_mask);
	q->ready_tail += wcs;
	credits_take(q, wcs);
}

static void post_uniform(struct dg_queue *q, const struct dg_uniform *u, uint64_t submit_ns)
{
	if (!queue_inline(q, true, u->op.size * u->n)) {
		dg_uniform_submit(q, u, KIND_POLL, submit_ns);
		return;
	}
	dg_uniform_run_inline(q, u, q->ready, q->ready_tail, q->ready_mask, submit_ns);
	q->ready_tail += u->n;
	credits_take(q, u->n);
}

int dg_queue_post(dg_queue *q, const dg_wr *wr, uint32_t n)
{
	struct dg_uniform u;
	bool able;
	uint64_t total, submit_ns;
	TRY(queue_enter(q));
	int rc = dg_queue_postable(q);
	if (!rc && n == 0)
		goto leave;
	if (!rc)
		rc = dg_queue_room(q, n);
	submit_ns = now_ns();
	if (!rc && dg_uniform_stage(q, wr, n, &u)) {
		post_uniform(q, &u, submit_ns);
		goto leave;
	}
	if (!rc)
		rc = dg_queue_stage(q, wr, n, &able, &total);
	if (!rc)
		post_staged(q, wr, n, able, total, submit_ns);
leave:
	queue_leave(q);
	return rc;
}

static uint32_t take_ready(struct dg_queue *q, dg_wc *wc, uint32_t n)
{
	uint32_t got = 0;
	while (got < n && q->ready_head != q->ready_tail)
		wc[got++] = q->ready[q->ready_head++ & q->ready_mask];
	return got;
}

int dg_queue_poll(dg_queue *q, dg_wc *wc, uint32_t n, uint64_t timeout_ns)
{
	int rc = queue_enter(q);
	if (rc)
		return rc;
	uint64_t start = 0;
	uint32_t got;
	for (;;) {
		got = take_ready(q, wc, n);
		if (got < n)
			got += dg_queue_process_completions(q, wc + got, n - got);
		got += take_ready(q, wc + got, n - got);
		if (got || queue_closed(q) || !n)
			break;
		uint64_t now = now_ns();
		dg_queue_expire(q, now);
		if (q->ready_head != q->ready_tail)
			continue;
		if (!start)
			start = now;
		if (!q->in_flight || now - start >= timeout_ns)
			break;
		rc = dg_queue_wait(q, spin_until(q, start, q->bytes_in_flight),
				   add_sat(start, timeout_ns));
		if (rc)
			break;
	}
	credits_add(q, got);
	queue_leave(q);
	return rc ? rc : (int)got;
}

/* Waits until all completions of kind KIND_RUN of the last submit are in run_wc. */
static int wait_run(struct dg_queue *q, uint64_t size, uint64_t timeout_ns)
{
	uint64_t start = 0, spin_end = 0;
	while (q->run_left) {
		dg_queue_process_completions(q, NULL, 0);
		if (!q->run_left)
			break;
		uint64_t now = now_ns();
		dg_queue_expire(q, now);
		if (!start) {
			start = now;
			spin_end = spin_until(q, start, size);
		}
		if (now - start >= timeout_ns)
			return dg_fail(ETIMEDOUT, "%u operations are not complete after %.3f s",
				       q->run_left, (double)(now - start) / 1e9);
		TRY(dg_queue_wait(q, spin_end, add_sat(start, timeout_ns)));
	}
	return 0;
}

void dg_queue_abandon_run(struct dg_queue *q)
{
	for (uint32_t i = 0; i < q->depth; i++)
		if (q->slots[i].kind == KIND_RUN && q->slots[i].state == SLOT_PENDING)
			q->slots[i].kind = KIND_DROPPED;
	q->run_left = 0;
}

void dg_queue_start_run(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
			uint32_t n_wc, dg_wc *wc, uint64_t submit_ns)
{
	q->run_wc = wc;
	q->run_left = n_wc;
	dg_queue_submit(q, ops, wr, n, KIND_RUN, submit_ns);
}

void dg_uniform_start_run(struct dg_queue *q, const struct dg_uniform *u, dg_wc *wc,
			  uint64_t submit_ns)
{
	q->run_wc = wc;
	q->run_left = u->n;
	dg_uniform_submit(q, u, KIND_RUN, submit_ns);
}

int dg_queue_spin_run(struct dg_queue *q, uint64_t start_ns, uint64_t spin_ns)
{
	for (;;) {
		dg_queue_process_completions(q, NULL, 0);
		if (!q->run_left)
			return 0;
		/* If this thread must not spin, as on a single CPU, the engine needs its CPU. */
		if (!q->spin_ns || (!dg_queue_spin(q) && now_ns() - start_ns >= spin_ns))
			return -EINPROGRESS;
	}
}

int dg_queue_finish_run(struct dg_queue *q, uint64_t size, uint64_t timeout_ns)
{
	int rc = wait_run(q, size, timeout_ns);
	if (rc && rc != -EINTR)
		dg_queue_abandon_run(q);
	return rc;
}

int dg_queue_run_ops(struct dg_queue *q, struct dg_op *ops, const dg_wr *wr, uint32_t n,
		     uint32_t n_wc, dg_wc *wc, uint64_t submit_ns, uint64_t timeout_ns)
{
	uint64_t size = 0;
	int rc = OP_NOT;
	if (n == 1 && !q->in_flight && q->dev->ops->direct) {
		q->run_wc = wc;
		q->run_left = n_wc;
		rc = dg_queue_direct(q, ops, wr, wc, submit_ns);
	}
	if (rc == 1)
		return 0;
	if (rc == OP_NOT)
		dg_queue_start_run(q, ops, wr, n, n_wc, wc, submit_ns);
	for (uint32_t i = 0; i < n; i++)
		size += ops[i].size * ops[i].rows;
	return dg_queue_finish_run(q, size, timeout_ns);
}

/* Leaves the queue, unless a signal interrupted the run. Returns the number of completions, or
 * rc. */
static int leave_run(struct dg_queue *q, int rc)
{
	int n = (int)q->run_n;
	if (rc == -EINTR)
		return rc;
	queue_leave(q); /* from here on run_n may be used by another thread */
	return rc ? rc : n;
}

/* Executes what was staged, inline in this thread or by the provider. */
static int run_uniform(struct dg_queue *q, const struct dg_uniform *u, dg_wc *wc,
		       uint64_t submit_ns, uint64_t timeout_ns)
{
	if (queue_inline(q, true, u->op.size * u->n)) {
		dg_uniform_run_inline(q, u, wc, 0, UINT32_MAX, submit_ns);
		return 0;
	}
	dg_uniform_start_run(q, u, wc, submit_ns);
	return dg_queue_finish_run(q, u->op.size * u->n, timeout_ns);
}

int dg_queue_run_start(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc, uint64_t timeout_ns)
{
	struct dg_uniform u;
	bool able;
	uint64_t total, submit_ns;
	uint32_t n_wc = 0;
	TRY(queue_enter(q));
	int rc = dg_queue_postable(q);
	if (!rc && n)
		rc = dg_queue_room(q, n);
	submit_ns = now_ns();
	if (!rc && n && dg_uniform_stage(q, wr, n, &u)) {
		rc = run_uniform(q, &u, wc, submit_ns, timeout_ns);
		n_wc = n;
		goto leave;
	}
	if (!rc && n)
		rc = dg_queue_stage(q, wr, n, &able, &total);
	if (rc || !n)
		goto leave;
	if (queue_inline(q, able, total)) {
		n_wc = dg_queue_run_inline(q->scratch, wr, n, wc, 0, UINT32_MAX);
		goto leave;
	}
	for (uint32_t i = 0; i < n; i++)
		n_wc += !(q->scratch[i].flags & DG_CHAIN);
	rc = dg_queue_run_ops(q, q->scratch, wr, n, n_wc, wc, submit_ns, timeout_ns);
leave:
	q->run_n = n_wc;
	return leave_run(q, rc);
}

int dg_queue_run_resume(dg_queue *q, uint64_t timeout_ns)
{
	return leave_run(q, dg_queue_finish_run(q, q->bytes_in_flight, timeout_ns));
}

void dg_queue_run_cancel(dg_queue *q)
{
	dg_queue_abandon_run(q);
	queue_leave(q);
}

int dg_queue_run(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc, uint64_t timeout_ns)
{
	int rc = dg_queue_run_start(q, wr, n, wc, timeout_ns);
	if (rc == -EINTR)
		dg_queue_run_cancel(q);
	return rc;
}
