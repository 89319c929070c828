/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every two calls of dgkit.h that may run concurrently, in two threads: on one device with
 * `shared`, its regions, its queue, a ticket of the queue and an operation prepared on it. A call
 * returns what dgkit.h specifies, or an error for a closed, closing or used object; the sanitizers
 * detect everything else.
 *
 * Calls that dgkit.h forbids are not paired: a use of a handle during or after its free
 * (dg_device_free, dg_region_free, dg_queue_free, dg_prep_close). Calls without a handle have
 * nothing to race for. Two calls of dg_prep_close() and dg_queue_free() are paired with all calls
 * on other handles.
 *
 * DG_ROUNDS=N: rounds of each pair. DG_PAIR=text: only pairs with a call of that name.
 */
#include <pthread.h>
#include <sched.h>

#include "fixture.h"

#define BYTES 4096u /* of each queue: one half of a region */
#define REGION (2 * BYTES)

struct shared {
	dg_device *dev;
	uint8_t *local_bytes, *remote_bytes;
	dg_region *local, *source, *remote;
	uint32_t l, r;
	uint8_t token[DG_DESCRIPTOR_MAX];
	int token_len;
	dg_queue *q, *inline_q, *freed_q; /* only the call queue_free uses freed_q */
	int64_t ticket;
	dg_prep *prep, *freed_prep;
	dg_wr wr, inline_wr;
	pthread_barrier_t start;
};

/* Checks a result: any call may return these errors while another thread closes an object it
 * uses. */
static void check_result(const char *name, int64_t rc)
{
	static const int allowed[] = { ESTALE, EALREADY, EBUSY, EAGAIN, ENOKEY, EINVAL, ENOSPC };

	if (rc >= 0)
		return;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (rc == -allowed[i])
			return;
	check_failed(__FILE__, __LINE__, "%s: %s", name, strerror((int)-rc));
}

/* The calls, in no order. once: uses a handle that only one of the two threads may use. */
static struct call {
	const char *name;
	int64_t (*run)(struct shared *s);
	bool once;
} calls[64];
static size_t n_calls;

/* Defines a call and adds it to the table. */
#define CALL_OF(name, once)                                                                    \
	static int64_t name(struct shared *s);                                                 \
	__attribute__((constructor)) static void add_##name(void)                              \
	{                                                                                      \
		calls[n_calls++] = (struct call){ #name, name, once };                         \
	}                                                                                      \
	static int64_t name(struct shared *s)
#define CALL(name) CALL_OF(name, false)
#define CALL_RETURNS(name, result)                                                             \
	CALL(name)                                                                             \
	{                                                                                      \
		return result;                                                                 \
	}

CALL_RETURNS(device_close, dg_device_close(s->dev, PATIENCE))

CALL(device_caps)
{
	dg_caps caps;

	return dg_device_caps(s->dev, &caps);
}

CALL(region_register)
{
	dg_memory m = plain_memory(s->local_bytes, 64);
	dg_region *r;
	int rc = dg_region_register(s->dev, &m, RW, &r);

	if (rc)
		return rc;
	rc = dg_region_close(r, PATIENCE);
	dg_region_free(r);
	return rc;
}

/* Leaves closing the region to the close of the device. */
CALL(register_and_free)
{
	dg_memory m = plain_memory(s->local_bytes, 64);
	dg_region *r;
	int rc = dg_region_register(s->dev, &m, RW, &r);

	if (!rc)
		dg_region_free(r);
	return rc;
}

CALL(region_import)
{
	dg_region *r;
	int rc = dg_region_import(s->dev, s->token, (size_t)s->token_len, PATIENCE, &r);

	if (rc)
		return rc;
	rc = dg_region_close(r, PATIENCE);
	dg_region_free(r);
	return rc;
}

CALL(region_export)
{
	uint8_t token[DG_DESCRIPTOR_MAX];

	return dg_region_export(s->source, DG_ACCESS_READ, token, sizeof(token));
}

static int64_t info(dg_region *r, uint64_t size)
{
	dg_region_info i;
	int rc = dg_region_info_get(r, &i);

	if (!rc)
		CHECK_EQ(i.size, size);
	return rc;
}

CALL_RETURNS(local_info, info(s->local, REGION))
CALL_RETURNS(source_info, info(s->source, REGION))
CALL_RETURNS(remote_info, info(s->remote, REGION))
CALL_RETURNS(local_close, dg_region_close(s->local, PATIENCE))
CALL_RETURNS(source_close, dg_region_close(s->source, PATIENCE))
CALL_RETURNS(remote_close, dg_region_close(s->remote, PATIENCE))

CALL(queue_open)
{
	dg_queue *q;
	int rc = dg_queue_open(s->dev, 4, DG_PATH_AUTO, 0, PATIENCE, &q);

	if (rc)
		return rc;
	rc = dg_queue_close(q);
	dg_queue_free(q);
	return rc;
}

CALL_RETURNS(queue_close, dg_queue_close(s->q))
CALL_RETURNS(inline_queue_close, dg_queue_close(s->inline_q))

CALL_OF(queue_free, true)
{
	dg_queue *q = s->freed_q;

	s->freed_q = NULL;
	if (q)
		dg_queue_free(q);
	return 0;
}

CALL_RETURNS(queue_fileno, dg_queue_fileno(s->q))
CALL_RETURNS(queue_arm, dg_queue_arm(s->q))

CALL(queue_pending)
{
	int n = dg_queue_pending(s->q);

	CHECK(n >= 0 && n <= 16);
	return 0;
}

CALL_RETURNS(queue_post, dg_queue_post(s->q, &s->wr, 1))
CALL_RETURNS(inline_queue_post, dg_queue_post(s->inline_q, &s->inline_wr, 1))

CALL(queue_poll)
{
	dg_wc wc[4];

	return dg_queue_poll(s->q, wc, 4, 20 * MS);
}

CALL(queue_run)
{
	dg_wc wc;

	return dg_queue_run(s->q, &s->wr, 1, &wc, PATIENCE);
}

static int64_t waited(int64_t ticket, dg_wc *wc)
{
	return ticket < DG_TICKET ? ticket : dg_transfer_wait(ticket, PATIENCE, wc);
}

CALL(transfer_write)
{
	dg_wc wc;

	return waited(dg_transfer_post(s->q, DG_WRITE, s->l, s->r, BYTES, 0, 0, 0, &wc), &wc);
}

CALL(transfer_read)
{
	dg_wc wc;

	return waited(dg_transfer_post(s->inline_q, DG_READ, s->l, s->r, 64, BYTES, BYTES, 0, &wc), &wc);
}

CALL(transfer_post_and_drop)
{
	dg_wc wc;
	int64_t ticket = dg_transfer_post_wr(s->q, &s->wr, 1, &wc);

	return ticket < DG_TICKET ? ticket : dg_transfer_drop(ticket);
}

CALL(transfer_wait)
{
	dg_wc wc;

	return dg_transfer_wait(s->ticket, PATIENCE, &wc);
}

CALL_RETURNS(transfer_drop, dg_transfer_drop(s->ticket))

CALL(prep_open)
{
	dg_prep *p;
	int rc = dg_prep_open(s->q, &s->wr, 1, &p);

	if (rc)
		return rc;
	rc = dg_prep_run(p);
	dg_prep_close(p);
	return rc;
}

CALL_RETURNS(prep_run, dg_prep_run(s->prep))
CALL_RETURNS(prep_post, dg_prep_post(s->prep))

CALL_OF(prep_close, true)
{
	dg_prep *p = s->freed_prep;

	s->freed_prep = NULL;
	return p ? dg_prep_close(p) : 0;
}

CALL(measure_latency)
{
	uint64_t samples[8];
	int32_t status;

	return dg_measure_latency(s->prep, 8, samples, &status);
}

CALL(measure_rate)
{
	dg_rate rate;

	return dg_measure_rate(s->q, &s->wr, 1, 4, MS / 10, &rate);
}

static dg_queue *opened(struct shared *s, uint32_t path)
{
	dg_queue *q;

	CHECK_EQ(dg_queue_open(s->dev, 16, path, 0, 10 * SECOND, &q), 0);
	return q;
}

static void shared_open(struct shared *s)
{
	dg_device_config config = { .spin_ns = 0, .shared = 1 };
	dg_wc wc;

	CHECK_EQ(dg_device_open("soft", &config, &s->dev), 0);
	s->local = registered(s->dev, s->local_bytes, REGION, RW);
	s->source = registered(s->dev, s->remote_bytes, REGION, RW);
	s->token_len = dg_region_export(s->source, RW, s->token, sizeof(s->token));
	CHECK(s->token_len > 0);
	CHECK_EQ(dg_region_import(s->dev, s->token, (size_t)s->token_len, PATIENCE, &s->remote), 0);
	s->l = id_of(s->local);
	s->r = id_of(s->remote);
	s->wr = (dg_wr){ .op = DG_WRITE, .local = s->l, .remote = s->r, .size = 64 };
	s->inline_wr = s->wr;
	s->inline_wr.local_offset = s->inline_wr.remote_offset = BYTES;
	s->q = opened(s, DG_PATH_WORKER);
	s->inline_q = opened(s, DG_PATH_AUTO);
	s->freed_q = opened(s, DG_PATH_AUTO);
	CHECK_EQ(dg_prep_open(s->q, &s->wr, 1, &s->prep), 0);
	CHECK_EQ(dg_prep_open(s->q, &s->wr, 1, &s->freed_prep), 0);
	s->ticket = dg_transfer_post(s->q, DG_WRITE, s->l, s->r, BYTES, 0, 0, 0, &wc);
	CHECK(s->ticket >= DG_TICKET);
}

static void shared_close(struct shared *s)
{
	dg_region *regions[] = { s->local, s->source, s->remote };

	CHECK_EQ(dg_device_close(s->dev, 10 * SECOND), 0);
	CHECK_EQ(dg_device_close(s->dev, 0), 0);
	CHECK_EQ(region_register(s), -ESTALE);
	for (size_t i = 0; i < 3; i++) {
		CHECK_EQ(dg_region_close(regions[i], 0), 0);
		CHECK_EQ(info(regions[i], 0), -ESTALE);
		dg_region_free(regions[i]);
	}
	dg_prep_close(s->prep);
	prep_close(s);
	queue_free(s);
	CHECK_EQ(dg_queue_post(s->q, &s->wr, 1), -ESTALE);
	dg_device_free(s->dev); /* before the queues, which hold what they need of it */
	dg_queue_free(s->q);
	dg_queue_free(s->inline_q);
}

struct half {
	struct shared *s;
	const struct call *call;
	uint32_t late; /* how often it first yields to the other thread */
};

static void *run_half(void *arg)
{
	struct half *h = arg;

	pthread_barrier_wait(&h->s->start);
	for (uint32_t i = 0; i < h->late; i++)
		sched_yield();
	check_result(h->call->name, h->call->run(h->s));
	return NULL;
}

static void run_pair(struct shared *s, const struct call *a, const struct call *b, uint32_t round)
{
	struct half first = { s, a, round % 3 ? 0 : round };
	struct half second = { s, b, round % 3 == 1 ? round : 0 };
	pthread_t thread;

	shared_open(s);
	CHECK_EQ(pthread_create(&thread, NULL, run_half, &first), 0);
	run_half(&second);
	pthread_join(thread, NULL);
	shared_close(s);
}

static bool selected(const struct call *a, const struct call *b)
{
	const char *only = getenv("DG_PAIR");

	if (a == b && a->once)
		return false;
	return !only || strstr(a->name, only) || strstr(b->name, only);
}

TEST(any_two_calls_may_run_at_once)
{
	const char *rounds = getenv("DG_ROUNDS");
	static struct shared s;
	uint32_t pairs = 0, n = rounds ? (uint32_t)atoi(rounds) : 2;

	s.local_bytes = pages(REGION);
	s.remote_bytes = pages(REGION);
	CHECK_EQ(pthread_barrier_init(&s.start, NULL, 2), 0);
	for (size_t i = 0; i < n_calls; i++)
		for (size_t j = i; j < n_calls; j++) {
			if (!selected(&calls[i], &calls[j]))
				continue;
			pairs++;
			for (uint32_t k = 0; k < n; k++)
				run_pair(&s, &calls[i], &calls[j], k);
		}
	printf("%u pairs, %u rounds each\n", pairs, n);
	pthread_barrier_destroy(&s.start);
}

/* A second thread closes and frees an object that the first one is closing. */
struct closer {
	dg_region *r;
	int rc;
};

static void *close_region(void *arg)
{
	struct closer *c = arg;

	c->rc = dg_region_close(c->r, 10 * SECOND);
	return NULL;
}

TEST(a_second_close_returns_when_the_memory_is_free)
{
	dg_device_config config = { .shared = 1 };
	uint8_t *bytes = pages(BYTES);
	dg_device *dev;

	CHECK_EQ(dg_device_open("soft", &config, &dev), 0);
	for (int i = 0; i < 200; i++) {
		struct closer c = { .r = registered(dev, bytes, BYTES, RW) };
		pthread_t thread;

		CHECK_EQ(pthread_create(&thread, NULL, close_region, &c), 0);
		CHECK_EQ(dg_region_close(c.r, 10 * SECOND), 0);
		CHECK_EQ(info(c.r, 0), -ESTALE);
		pthread_join(thread, NULL);
		CHECK_EQ(c.rc, 0);
		dg_region_free(c.r);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	dg_device_free(dev);
}

TEST(handles_may_be_freed_in_any_order)
{
	dg_device_config config = { .shared = 1 };
	uint8_t *bytes = pages(BYTES);
	dg_device *dev;
	dg_queue *q;
	dg_region *r;

	CHECK_EQ(dg_device_open("soft", &config, &dev), 0);
	r = registered(dev, bytes, BYTES, RW);
	CHECK_EQ(dg_queue_open(dev, 4, DG_PATH_AUTO, 0, PATIENCE, &q), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	dg_device_free(dev);
	CHECK_EQ(dg_region_close(r, 0), 0);
	CHECK_EQ(dg_queue_close(q), 0);
	dg_region_free(r);
	dg_queue_free(q);
}

/* A ticket that another thread took does not take the next operation of its slot. */
TEST(a_ticket_is_good_for_one_operation)
{
	FIXTURE(fix, f, fix_open, BYTES, 1);
	for (int i = 0; i < 40; i++) {
		dg_wr wr = record(&f, DG_WRITE, 8, 0, 0);
		int64_t ticket, next;
		dg_wc wc;

		ticket = dg_transfer_post_wr(f.q, &wr, 1, &wc);
		CHECK(ticket >= DG_TICKET);
		CHECK_EQ(dg_transfer_wait(ticket, PATIENCE, &wc), 0);
		next = dg_transfer_post_wr(f.q, &wr, 1, &wc);
		CHECK(next >= DG_TICKET);
		CHECK_EQ(dg_transfer_wait(ticket, 0, &wc), -EINVAL);
		CHECK_EQ(dg_transfer_drop(ticket), -EINVAL);
		CHECK_EQ(dg_transfer_wait(next, PATIENCE, &wc), 0);
	}
}

TEST_MAIN(run_tests)
