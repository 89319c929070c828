// SPDX-License-Identifier: Apache-2.0
/* Measuring loops. All samples are taken in C, never in Python. */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "gpu_ring_words.h"
#include "providers/cpu_copy.h"
#include "queue.h"
#include "thread.h"

int dg_measure_latency(dg_prep *p, uint32_t count, uint64_t *samples_ns, int32_t *status)
{
	struct dg_queue *q = p->q;
	uint32_t taken = 0;
	*status = 0;
	int rc = queue_enter(q);
	if (rc)
		return rc;
	uint64_t before = now_ns();
	for (; taken < count; taken++) {
		rc = dg_prep_run_entered(p, before);
		if (rc)
			break;
		uint64_t after = now_ns();
		samples_ns[taken] = after - before;
		before = after;
	}
	queue_leave(q);
	if (rc < 0 && rc != -EINTR)
		return rc;
	*status = rc > 0 ? rc : 0;
	return (int)taken;
}

int dg_measure_bare(dg_prep *p, uint32_t count, uint32_t window, uint64_t *samples_ns)
{
	struct dg_queue *q = p->q;
	struct dg_gates gates = {.pass = gate_enter};
	const struct dg_ops *ops = q->dev->ops;
	if (!ops->bare || (p->ops[0].flags & OP_ATOMIC))
		return dg_fail(EOPNOTSUPP,
			       "the provider %s has no bare copy loop for this operation",
			       ops->name);
	if (p->n != 1 || !count || !window)
		return dg_fail(EINVAL,
			       "cannot measure %u copies of %u records with %u in flight: 1 "
			       "record, at least 1 copy and at least 1 in flight are needed",
			       count, p->n, window);
	TRY(queue_enter(q));
	int rc = dg_prep_still_open(p);
	if (!rc && q->in_flight)
		rc = dg_fail(
			EBUSY,
			"%u operations are in flight on this queue; wait for them before measuring",
			q->in_flight);
	if (!rc) {
		gates_add(&gates, &p->ops[0]);
		gates_flush(&gates);
		rc = dg_op_allowed(&p->ops[0])
			     ? dg_fail(ESTALE, "a region of the operation was revoked, or its "
					       "exporter is gone")
			     : ops->bare(q->dev, &q->pipe, &p->ops[0], count, window, samples_ns);
		dg_op_leave(&p->ops[0]);
	}
	queue_leave(q);
	return rc;
}

/* Reaps up to n completions, waiting for the first. All of them were posted by this loop. */
static int reap(struct dg_queue *q, dg_wc *wc, uint32_t n, dg_rate *out)
{
	int got = dg_queue_poll(q, wc, n, 1000000000u);
	for (int i = 0; i < got; i++) {
		out->ops++;
		out->bytes += wc[i].size;
		out->failed += wc[i].status != DG_OK;
		out->inlined += wc[i].path == DG_PATH_INLINE;
	}
	return got;
}

/* Posts up to `room` requests from *next on, those that are contiguous with one call. */
static int refill(struct dg_queue *q, const dg_wr *wr, uint32_t n, uint32_t *next, uint32_t room)
{
	uint32_t posted = 0;
	while (posted < room) {
		uint32_t part = n - *next < room - posted ? n - *next : room - posted;
		int rc = dg_queue_post(q, wr + *next, part);
		if (rc) /* requests already posted count; the next call reports the error */
			return posted ? (int)posted : rc;
		posted += part;
		*next = (*next + part) % n;
	}
	return (int)posted;
}

static int run_window(struct dg_queue *q, const dg_wr *wr, uint32_t n, uint32_t window,
		      uint64_t end_ns, dg_wc *wc, dg_rate *out)
{
	uint32_t next = 0, in_flight = 0, batch = window > 1 ? window / 2 : 1;
	int rc = 0;
	while (rc >= 0 && now_ns() < end_ns) {
		/* Post half a window at a time: a batch costs one doorbell, and the other half is
		 * in flight meanwhile. */
		while (rc >= 0 && window - in_flight >= batch) {
			rc = refill(q, wr, n, &next, batch);
			if (rc > 0)
				in_flight += (uint32_t)rc;
		}
		if (rc >= 0)
			rc = reap(q, wc, window, out);
		if (rc > 0)
			in_flight -= (uint32_t)rc;
	}
	while (in_flight) {
		int got = reap(q, wc, window, out);
		if (got <= 0)
			return got < 0 ? got
				       : dg_fail(ETIMEDOUT,
						 "%u operations did not complete within 1 s",
						 in_flight);
		in_flight -= (uint32_t)got;
	}
	return rc < 0 ? rc : 0;
}

int dg_measure_rate(dg_queue *q, const dg_wr *wr, uint32_t n, uint32_t window, uint64_t duration_ns,
		    dg_rate *out)
{
	memset(out, 0, sizeof *out);
	if (n == 0 || window == 0 || window > q->depth)
		return dg_fail(EINVAL,
			       "a window of %u over %u records is invalid: a window is 1 to %u "
			       "(the queue's depth), over at least 1 record",
			       window, n, q->depth);
	if (dg_queue_pending(q))
		return dg_fail(EBUSY,
			       "%d operations are posted to this queue; take their completions "
			       "before measuring",
			       dg_queue_pending(q));
	dg_wc *wc = malloc(sizeof *wc * window);
	if (!wc)
		return dg_fail(ENOMEM, "out of memory for a window of %u", window);
	uint64_t start = now_ns();
	int rc = run_window(q, wr, n, window, add_sat(start, duration_ns), wc, out);
	out->elapsed_ns = now_ns() - start;
	free(wc);
	return rc;
}

/* The hand-off between two threads that dg_measure_floor() measures. */
struct floor {
	_Alignas(64) atomic_uint doorbell;
	_Alignas(64) atomic_uint flag;
	_Alignas(64) char *dst;
	const char *src;
	uint64_t size;
	uint32_t count;
};

/* The other thread: copies at each doorbell, then sets the flag. */
static void *floor_responder(void *arg)
{
	struct floor *f = arg;
	for (uint32_t i = 1; i <= f->count; i++) {
		while (atomic_load_explicit(&f->doorbell, memory_order_acquire) != i)
			;
		dg_copy(f->dst, f->src, f->size);
		atomic_store_explicit(&f->flag, i, memory_order_release);
	}
	return NULL;
}

static int floor_handoff(struct floor *f, uint64_t *samples_ns)
{
	pthread_t t;
	int rc = dg_thread_start(&t, "dgkit-floor", floor_responder, f);
	if (rc)
		return rc;
	for (uint32_t i = 1; i <= f->count; i++) {
		uint64_t before = now_ns();
		atomic_store_explicit(&f->doorbell, i, memory_order_release);
		while (atomic_load_explicit(&f->flag, memory_order_acquire) != i)
			;
		samples_ns[i - 1] = now_ns() - before;
	}
	pthread_join(t, NULL);
	return (int)f->count;
}

static int floor_memcpy(struct floor *f, uint64_t *samples_ns)
{
	for (uint32_t i = 0; i < f->count; i++) {
		uint64_t before = now_ns();
		dg_copy(f->dst, f->src, f->size);
		samples_ns[i] = now_ns() - before;
	}
	return (int)f->count;
}

int dg_measure_floor(uint32_t handoff, uint64_t size, uint32_t count, uint64_t *samples_ns)
{
	struct floor f = {.size = size, .count = count};
	if (!size || !count)
		return dg_fail(EINVAL,
			       "cannot measure %u copies of %llu bytes: both must be at least 1",
			       count, (unsigned long long)size);
	if (handoff && dg_cpus() < 2)
		return dg_fail(EOPNOTSUPP,
			       "the hand-off measurement needs 2 CPUs; this process may use 1");
	uint64_t room = (size + 63) / 64 * 64;
	f.dst = room < size ? NULL : aligned_alloc(64, room);
	char *src = room < size ? NULL : aligned_alloc(64, room);
	int rc = -ENOMEM;
	if (f.dst && src) {
		memset(src, 1, room);
		memset(f.dst, 2, room);
		f.src = src;
		rc = handoff ? floor_handoff(&f, samples_ns) : floor_memcpy(&f, samples_ns);
	} else {
		dg_fail(ENOMEM, "out of memory for measuring copies of %llu bytes",
			(unsigned long long)size);
	}
	free(f.dst);
	free(src);
	return rc;
}

/* Number of polls between two readings of the clock. */
#define ANSWER_POLLS 1024

/* The answer is the doorbell's own value, so there is no other data to order either of them
 * against. The memory orders are those of a record and its completion, at the same cost. */
int dg_measure_answer(uint64_t *words, uint64_t timeout_ns)
{
	dg_u64 *doorbell = (dg_u64 *)words, *answer = (dg_u64 *)words + 8;
	dg_u64 latest = 0;
	uint64_t since = now_ns();
	bool active = false;
	for (uint32_t polls = 1;; polls++) {
		const dg_u64 rung = ring_load(doorbell, memory_order_acquire);
		if (rung == UINT64_MAX)
			return 0;
		if (rung != latest) {
			ring_store(answer, rung, memory_order_release);
			latest = rung;
			active = true;
		}
		if (polls % ANSWER_POLLS)
			continue;
		const uint64_t now = now_ns();
		if (!active && now - since > timeout_ns)
			return dg_fail(ETIMEDOUT, "no doorbell was rung for %.3f s",
				       (double)timeout_ns / 1e9);
		since = active ? now : since;
		active = false;
	}
}
