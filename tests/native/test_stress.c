/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations by several threads, each with its own queue, regions and model: memory,
 * completions and the number of free places must match the model. The seed is printed; DG_SEED=N
 * repeats that run.
 */
#include <pthread.h>

#include "fixture.h"
#include "queue.h"
#include "region.h"

#define THREADS 3
#define SECONDS 2
#define BYTES 8192u
#define DEPTH 32u
#define OUT 24u /* maximum of transfers not yet taken */

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static uint32_t below(uint64_t *s, uint32_t n)
{
	return (uint32_t)(next(s) >> 20) % n;
}

/* State of one thread. Operations of a queue run in posting order, so the model applies each one
 * when it is posted. */
struct world {
	dg_device *dev;
	uint64_t seed, posted;
	uint8_t *local_bytes, *remote_bytes, local_model[BYTES], remote_model[BYTES];
	dg_region *local, *source, *remote;
	uint32_t l, r;
	struct test_queue tq;
	struct transfer out[OUT];
	uint32_t n_out, polled; /* posted records whose completion was not polled */
	uint64_t next_user, poll_user;
};

static void world_open(struct world *w)
{
	static const uint32_t paths[] = { DG_PATH_AUTO, DG_PATH_WORKER };

	w->local_bytes = pages(BYTES);
	w->remote_bytes = pages(BYTES);
	memset(w->local_model, 0, BYTES);
	memset(w->remote_model, 0, BYTES);
	w->local = registered(w->dev, w->local_bytes, BYTES, RW);
	w->source = registered(w->dev, w->remote_bytes, BYTES, RW);
	w->remote = imported(w->dev, w->source, RW);
	w->l = id_of(w->local);
	w->r = id_of(w->remote);
	w->n_out = w->polled = 0;
	w->poll_user = w->next_user;
	CHECK_EQ(test_queue_open(&w->tq, w->dev, DEPTH, paths[below(&w->seed, 2)],
			   below(&w->seed, 2) * 50000, 60 * SECOND), 0);
}

static dg_wr random_record(struct world *w)
{
	uint32_t size = below(&w->seed, 8) ? 1 + below(&w->seed, 128) : 1 + below(&w->seed, BYTES / 2);

	return (dg_wr){ .op = below(&w->seed, 2), .local = w->l, .remote = w->r, .size = size,
			.local_offset = below(&w->seed, BYTES - size + 1),
			.remote_offset = below(&w->seed, BYTES - size + 1),
			.flags = below(&w->seed, 10) ? 0 : DG_FENCE };
}

static void model(struct world *w, const dg_wr *wr)
{
	uint8_t *local_bytes = w->local_model + wr->local_offset, *remote_bytes = w->remote_model + wr->remote_offset;

	memcpy(wr->op == DG_WRITE ? remote_bytes : local_bytes, wr->op == DG_WRITE ? local_bytes : remote_bytes, wr->size);
	w->posted++;
}

static uint32_t room(struct world *w)
{
	return DEPTH - dg_queue_pending(w->tq.q);
}

static void post_batch(struct world *w)
{
	uint32_t n = 1 + below(&w->seed, 6);
	dg_wr wr[6];
	bool fits;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		wr[i] = random_record(w);
		wr[i].user = w->next_user + i;
	}
	fits = n <= room(w);
	rc = dg_queue_post(w->tq.q, wr, n);
	if (!fits && rc == -EAGAIN)
		return; /* otherwise places of dropped or chained operations were freed meanwhile */
	CHECK_EQ(rc, 0);
	for (uint32_t i = 0; i < n; i++)
		model(w, &wr[i]);
	w->next_user += n;
	w->polled += n;
}

static void poll_some(struct world *w)
{
	uint32_t n = 1 + below(&w->seed, 8);
	dg_wc wc[8];
	int got = dg_queue_poll(w->tq.q, wc, n, below(&w->seed, 2) * MS);

	CHECK(got >= 0 && (uint32_t)got <= w->polled);
	for (int i = 0; i < got; i++) {
		CHECK_EQ(wc[i].user, w->poll_user++);
		CHECK_EQ(wc[i].status, DG_OK);
	}
	w->polled -= got;
}

/* A transfer of one record, or a chain of up to three. */
static void post_transfer(struct world *w)
{
	uint32_t n = 1 + below(&w->seed, 3);
	struct transfer t;
	dg_wr wr[3];

	if (w->n_out == OUT || n > room(w))
		return;
	for (uint32_t i = 0; i < n; i++) {
		wr[i] = random_record(w);
		wr[i].flags |= i + 1 < n ? DG_CHAIN : 0;
	}
	t = n == 1 && below(&w->seed, 2) ? begin(&w->tq, wr) : begin_wr(&w->tq, wr, n);
	CHECK(t.ticket >= 0);
	for (uint32_t i = 0; i < n; i++)
		model(w, &wr[i]);
	if (t.ticket)
		w->out[w->n_out++] = t;
	else
		CHECK_EQ(t.wc.status, DG_OK);
}

/* Takes one of the transfers, not necessarily the oldest; or drops it. */
static void take_one(struct world *w)
{
	uint32_t i = w->n_out ? below(&w->seed, w->n_out) : 0;

	if (!w->n_out)
		return;
	if (below(&w->seed, 5)) {
		CHECK_EQ(take(&w->out[i], 30 * SECOND), 0);
		CHECK_EQ(w->out[i].wc.status, DG_OK);
	} else {
		CHECK_EQ(dg_transfer_drop(w->out[i].ticket), 0);
	}
	w->out[i] = w->out[--w->n_out];
}

static void run_batch(struct world *w)
{
	uint32_t n = 1 + below(&w->seed, 6);
	dg_prep *p;
	dg_wr wr[6];
	dg_wc wc[6];

	if (n > room(w))
		return;
	for (uint32_t i = 0; i < n; i++) {
		wr[i] = random_record(w);
		model(w, &wr[i]);
	}
	if (below(&w->seed, 2)) {
		CHECK_EQ(dg_queue_run(w->tq.q, wr, n, wc, 30 * SECOND), n);
		return;
	}
	CHECK_EQ(dg_prep_open(w->tq.q, wr, n, &p), 0);
	CHECK_EQ(dg_prep_run(p), 0);
	CHECK_EQ(dg_prep_close(p), 0);
}

/* Waits until nothing is in flight; then memory must match the model. */
static void settle(struct world *w)
{
	while (w->n_out)
		take_one(w);
	while (w->polled)
		poll_some(w);
	run_batch(w); /* also waits for the dropped ones, by order */
	CHECK(!memcmp(w->local_bytes, w->local_model, BYTES));
	CHECK(!memcmp(w->remote_bytes, w->remote_model, BYTES));
}

/* Closes everything in random order, with operations in flight or after settling; then reopens
 * it. */
static void reopen(struct world *w)
{
	dg_region *r[3] = { w->local, w->source, w->remote };
	uint32_t stale = w->l;
	int64_t rc;
	dg_wc wc;
	int first = below(&w->seed, 3);

	if (below(&w->seed, 2))
		settle(w);
	if (below(&w->seed, 2))
		CHECK_EQ(dg_queue_close(w->tq.q), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(dg_region_close(r[(first + i) % 3], 30 * SECOND), 0);
	CHECK_EQ(munmap(w->local_bytes, BYTES), 0);
	CHECK_EQ(munmap(w->remote_bytes, BYTES), 0);
	rc = dg_transfer_post(w->tq.q, DG_WRITE, stale, w->r, 8, 0, 0, 0, &wc);
	CHECK(rc == -ESTALE || rc == -EAGAIN);
	CHECK_EQ(dg_queue_close(w->tq.q), 0);
	for (uint32_t i = 0; i < w->n_out; i++)
		CHECK_EQ(take(&w->out[i], 0), 0);
	dg_queue_free(w->tq.q);
	world_open(w);
}

static void *live(void *arg)
{
	static void (*const acts[])(struct world *) = {
		post_batch, post_batch, post_batch, poll_some, poll_some, poll_some,
		post_transfer, post_transfer, take_one, take_one, run_batch,
	};
	struct world *w = arg;
	uint64_t end = dg_now_ns() + SECONDS * SECOND;

	world_open(w);
	while (dg_now_ns() < end) {
		if (!below(&w->seed, 300))
			reopen(w);
		else if (!below(&w->seed, 60))
			settle(w);
		else
			acts[below(&w->seed, sizeof(acts) / sizeof(acts[0]))](w);
	}
	settle(w);
	CHECK_EQ(dg_queue_close(w->tq.q), 0);
	dg_queue_free(w->tq.q);
	return NULL;
}

static uint64_t seed_of_run(void)
{
	const char *wanted = getenv("DG_SEED");
	uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : dg_now_ns();

	printf("DG_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed | 1;
}

TEST(random_work_of_several_queues_keeps_to_the_model)
{
	static struct world w[THREADS];
	dg_device *dev = device_spinning(20000);
	uint64_t seed = seed_of_run(), posted = 0;
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++) {
		w[i].dev = dev;
		w[i].seed = seed + 0x9e3779b97f4a7c15u * i;
		CHECK_EQ(pthread_create(&thread[i], NULL, live, &w[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
		posted += w[i].posted;
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(!munmap(w[i].local_bytes, BYTES) && !munmap(w[i].remote_bytes, BYTES));
	printf("%llu operations\n", (unsigned long long)posted);
}

/* Sets all counters of the queue's rings to `at`, as if that many operations had been posted. */
static void preset(dg_queue *q, uint32_t at)
{
	struct dg_pipe *p = &q->pipe;
	uint32_t cap = p->mask + 1;

	q->dev->ops->detach(q->dev, p);
	p->sq_tail = p->sq_head = p->cq_tail = p->cq_head = at;
	for (uint32_t i = 0; i < cap; i++) {
		uint32_t before = at - 1 - (at - 1 - i) % cap; /* the last number below `at` with index i */

		atomic_store(&p->sq[before & p->mask].seq, before + 1);
		atomic_store(&p->cq[before & p->mask].seq, before + 1);
	}
	p->cq_armed = p->detach = p->detached = 0;
	q->ready_head = q->ready_tail = at;
	CHECK_EQ(q->dev->ops->attach(q->dev, q->dev->provider, p), 0);
}

static void counters_wrap(struct fix *f, uint32_t path)
{
	dg_wc wc[7];

	(void)path;
	preset(f->q, UINT32_MAX - 200);
	for (uint32_t n = 0; n < 600;) {
		dg_wr wr[7];
		uint32_t batch = 1 + n % 7;
		struct transfer t;

		for (uint32_t i = 0; i < batch; i++) {
			wr[i] = record(f, DG_WRITE, 20, 20 * (n % 100), 20 * (n % 100));
			wr[i].user = n++;
		}
		fill(f->local_bytes, 4096, n);
		CHECK_EQ(dg_queue_post(f->q, wr, batch), 0);
		t = begin(&f->tq, wr);
		for (uint32_t got = 0; got < batch;) {
			int rc = dg_queue_poll(f->q, wc + got, batch - got, 20 * SECOND);

			CHECK(rc > 0);
			got += rc;
		}
		for (uint32_t i = 0; i < batch; i++)
			CHECK_EQ(wc[i].user, n - batch + i);
		CHECK_EQ(take(&t, 20 * SECOND), 0);
		check_pattern(f->remote_bytes + wr[batch - 1].remote_offset, wr[batch - 1].local_offset, 20, n);
	}
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(ring_counters_may_wrap)
{
	provider = "soft";
	each_path(4096, 8, counters_wrap);
	provider = "fault";
	each_path(4096, 8, counters_wrap);
}

/* One thread posts with stale ids while another opens and closes regions. */
static atomic_bool over;

static void *churn(void *arg)
{
	dg_device *dev = arg;
	uint8_t byte;

	while (!atomic_load(&over))
		CHECK_EQ(dg_region_close(registered(dev, &byte, 1, RW), PATIENCE), 0);
	return NULL;
}

TEST(a_stale_id_is_refused_while_its_place_is_taken_again)
{
	uint64_t end = dg_now_ns() + SECONDS * SECOND / 2;
	uint32_t stale[300];
	pthread_t thread;
	dg_wc wc;

	FIXTURE(fix, f, fix_open, 4096, 4);
	for (int i = 0; i < 300; i++) {
		dg_region *r = registered(f.dev, f.local_bytes, 64, RW);

		stale[i] = id_of(r);
		CHECK_EQ(dg_region_close(r, 0), 0);
	}
	CHECK_EQ(pthread_create(&thread, NULL, churn, f.dev), 0);
	while (dg_now_ns() < end)
		for (int i = 0; i < 300; i++) {
			int64_t rc = dg_transfer_post(f.q, DG_WRITE, stale[i], f.r, 8, 0, 0, 0, &wc);

			CHECK(rc == -ESTALE);
		}
	atomic_store(&over, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST_MAIN(run_tests)
