// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: only one at a time may be inside a progress engine, with its contexts and tasks. Several
 * engines run side by side. A thread that enters an engine in use is refused, and nothing is lost
 * or broken by it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "doca_check.h"

#include <doca_buf_pool.h>

#define SIZE ((size_t)1 << 20)

enum { N = 64, OPS = 20000 };

/* ---- one engine for each thread ---- */

struct worker {
	struct rig r;
	struct doca_buf *shared; /* a source buffer that all threads use */
	pthread_t thread;
};

static void *copy_on_and_on(void *arg)
{
	struct worker *w = arg;
	struct doca_buf *dst[N];

	for (int i = 0; i < N; i++)
		dst[i] = target(&w->r, i * 4096, i % 2 ? 64 : 4096);
	for (unsigned done = 0; done < OPS; done += N) {
		w->r.done = 0;
		for (int i = 0; i < N; i++) {
			OK(doca_buf_reset_data_len(dst[i]));
			OK(doca_task_submit(a_task(&w->r, w->shared, dst[i], i)));
		}
		run_until(&w->r, N);
		CHECK_EQ(w->r.failed, 0);
	}
	for (int i = 0; i < N; i++) {
		CHECK_EQ(memcmp(w->r.to + i * 4096, w->r.from, 64), 0);
		drop(dst[i]);
	}
	return NULL;
}

TEST(engines_of_several_threads_share_a_source)
{
	static struct worker w[3];
	struct doca_buf *shared = NULL;

	for (int i = 0; i < 3; i++) {
		rig_open(&w[i].r, SIZE, N);
		if (!shared) {
			fill(w[0].r.from, SIZE, 1);
			shared = source(&w[0].r, 0, 64);
		}
		memcpy(w[i].r.from, w[0].r.from, 64);
		w[i].shared = shared;
	}
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&w[i].thread, NULL, copy_on_and_on, &w[i]), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(w[i].thread, NULL), 0);
	drop(shared); /* no task uses it any more, so the count is exact */
	for (int i = 0; i < 3; i++)
		rig_close(&w[i].r);
}

/* ---- two threads at one engine ---- */

static struct rig rig;
static atomic_bool stop_now;
static atomic_uint turned_away, calls;

static void *interfere(void *arg)
{
	struct doca_task *own = arg;

	while (!atomic_load(&stop_now)) {
		doca_error_t error = doca_task_submit(own);

		CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_USE ||
		      error == DOCA_ERROR_BAD_STATE); /* it is still in flight */
		atomic_fetch_add(&turned_away, error == DOCA_ERROR_IN_USE);
		atomic_fetch_add(&calls, doca_pe_progress(rig.pe));
	}
	return NULL;
}

static void count_only(struct doca_dma_task_memcpy *t, union doca_data task_data,
		       union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	(void)task_data;
	OK(doca_buf_reset_data_len(doca_dma_task_memcpy_get_dst(t)));
	r->done++; /* only by the thread that is inside */
}

TEST(two_threads_at_one_engine_lose_nothing)
{
	struct doca_buf *src, *dst, *other_dst;
	struct doca_task *task, *other;
	pthread_t thread;
	unsigned progressed = 0, submitted = 0;

	rig_make(&rig, SIZE, 4);
	OK(doca_dma_task_memcpy_set_conf(rig.dma, count_only, on_error, 4));
	OK(doca_ctx_start(rig.ctx));
	src = source(&rig, 0, 64);
	dst = target(&rig, 0, 64);
	other_dst = target(&rig, 64, 64);
	task = a_task(&rig, src, dst, 0);
	other = a_task(&rig, src, other_dst, 1);
	CHECK_EQ(pthread_create(&thread, NULL, interfere, other), 0);
	for (double end = now_s() + WAIT_SECONDS; submitted < OPS && now_s() < end;) {
		submitted += doca_task_submit(task) == DOCA_SUCCESS;
		progressed += doca_pe_progress(rig.pe);
	}
	atomic_store(&stop_now, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(submitted, OPS);
	while (in_flight(&rig))
		progressed += doca_pe_progress(rig.pe);
	CHECK_EQ(rig.done, progressed + atomic_load(&calls));
	CHECK(rig.done >= OPS);
	CHECK_EQ(rig.failed, 0);
	doca_task_free(task);
	doca_task_free(other);
	drop(src, dst, other_dst);
	rig_close(&rig);
}

/* While one thread is inside a callback, every function that would enter the engine refuses
 * another. */

static atomic_bool inside, tried;

static void wait_inside(struct doca_dma_task_memcpy *t, union doca_data task_data,
			union doca_data ctx_data)
{
	atomic_store(&inside, true);
	while (!atomic_load(&tried))
		;
	on_done(t, task_data, ctx_data);
}

static void *try_all(void *arg)
{
	struct doca_dma_task_memcpy *t;
	union doca_data none = { .u64 = 0 };

	while (!atomic_load(&inside))
		;
	REFUSED(doca_task_submit(arg), IN_USE);
	REFUSED(doca_task_try_submit(arg), IN_USE);
	CHECK_EQ(doca_pe_progress(rig.pe), 0);
	REFUSED(doca_ctx_stop(rig.ctx), IN_USE);
	REFUSED(doca_ctx_start(rig.ctx), IN_USE);
	REFUSED(doca_dma_destroy(rig.dma), IN_USE);
	REFUSED(doca_pe_destroy(rig.pe), IN_USE);
	REFUSED(doca_pe_connect_ctx(rig.pe, rig.ctx), IN_USE);
	REFUSED(doca_pe_request_notification(rig.pe), IN_USE);
	REFUSED(doca_pe_clear_notification(rig.pe, 0), IN_USE);
	REFUSED(doca_dma_task_memcpy_alloc_init(rig.dma, NULL, NULL, none, &t), IN_USE);
	doca_ctx_flush_tasks(rig.ctx);
	doca_task_free(arg);
	atomic_store(&tried, true);
	return NULL;
}

TEST(another_thread_is_turned_away_while_one_is_inside)
{
	struct doca_buf *src, *dst;
	struct doca_task *other;
	pthread_t thread;

	rig_make(&rig, SIZE, 4);
	OK(doca_dma_task_memcpy_set_conf(rig.dma, wait_inside, on_error, 4));
	OK(doca_ctx_start(rig.ctx));
	src = source(&rig, 0, 64);
	dst = target(&rig, 0, 64);
	other = a_task(&rig, src, dst, 1);
	CHECK_EQ(pthread_create(&thread, NULL, try_all, other), 0);
	OK(doca_task_submit(a_task(&rig, src, dst, 0)));
	CHECK_EQ(doca_pe_progress(rig.pe), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(rig.done, 1);
	CHECK_EQ(in_flight(&rig), 0);
	CHECK(doca_task_get_ctx(other) == rig.ctx); /* it was not freed */
	doca_task_free(other);
	drop(src, dst);
	rig_close(&rig);
}

/* Different threads may use an engine, if the program hands it over. */

static void *copy_once(void *arg)
{
	OK(copied_at(arg, 0, 0, 100));
	OK(copied_at(arg, 0, 4096, 100000));
	return NULL;
}

TEST(an_engine_goes_from_thread_to_thread)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, SIZE, 1);
	for (int i = 0; i < 20; i++) {
		pthread_t thread;

		CHECK_EQ(pthread_create(&thread, NULL, copy_once, &r), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		OK(copied_at(&r, 0, 0, 100));
	}
	CHECK_EQ(r.done, 60);
}

/* ---- freeing memory that another thread's engine used ---- */

/* Run by a thread as soon as the calls succeed: nothing else tells it that the copy is over. This
 * is for a race detector, and for CPUs that move loads after stores. */
static void *destroy_the_map(void *map)
{
	while (doca_mmap_destroy(map))
		sched_yield();
	rig.from[0] = 7;
	return NULL;
}

TEST(a_map_may_end_in_another_thread_once_its_buffers_have)
{
	struct doca_buf *src, *dst;
	struct doca_mmap *map;
	pthread_t thread;

	rig_open(&rig, SIZE, 4);
	map = a_started_map(rig.dev, rig.from, 4096, READ_WRITE);
	OK(doca_buf_inventory_buf_get_by_data(rig.inv, map, rig.from, 4096, &src));
	dst = target(&rig, 0, 4096);
	CHECK_EQ(pthread_create(&thread, NULL, destroy_the_map, map), 0);
	OK(copied(&rig, src, dst));
	drop(src);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	drop(dst);
	rig_close(&rig);
}

static void *give_back(void *src)
{
	while (doca_buf_dec_refcount(src, NULL))
		sched_yield();
	rig.from[0] = 7;
	return NULL;
}

TEST(a_buffer_may_go_back_in_another_thread_once_no_task_uses_it)
{
	struct doca_buf *src, *dst;
	pthread_t thread;

	rig_open(&rig, SIZE, 4);
	src = source(&rig, 0, 4096);
	dst = target(&rig, 0, 4096);
	OK(doca_task_submit(a_task(&rig, src, dst, 0)));
	CHECK_EQ(pthread_create(&thread, NULL, give_back, src), 0);
	run_until(&rig, 1);
	OK(rig.last);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	drop(dst);
	rig_close(&rig);
}

/* ---- one inventory, and one pool, of several threads ---- */

enum { TAKERS = 4, ROUNDS = 20000 };
static struct doca_mmap *shared_map;
static struct doca_buf_pool *shared_pool; /* or NULL: rig.inv */

/* Each holds two buffers at once, and marks their memory as its own. */
static void *take_and_return(void *memory)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct doca_buf *bufs[2];
		uint8_t *const mine = memory;

		for (int k = 0; k < 2; k++) {
			void *at;

			if (shared_pool)
				OK(doca_buf_pool_buf_alloc(shared_pool, &bufs[k]));
			else
				OK(doca_buf_inventory_buf_get_by_addr(rig.inv, shared_map, mine + k, 1, &bufs[k]));
			OK(doca_buf_get_head(bufs[k], &at));
			CHECK(shared_pool ? !__atomic_exchange_n((uint8_t *)at, 1, __ATOMIC_ACQUIRE) : at == mine + k);
		}
		CHECK(bufs[0] != bufs[1]);
		for (int k = 0; k < 2; k++) {
			void *at;

			OK(doca_buf_get_head(bufs[k], &at));
			__atomic_store_n((uint8_t *)at, 0, __ATOMIC_RELEASE);
			drop(bufs[k]);
		}
	}
	return NULL;
}

static void take_at_once(void)
{
	pthread_t threads[TAKERS];
	uint32_t n_free, n = 2 * TAKERS;

	if (!shared_pool)
		OK(doca_buf_inventory_get_num_elements(rig.inv, &n));
	for (int i = 0; i < TAKERS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, take_and_return, rig.from + 2 * i), 0);
	for (int i = 0; i < TAKERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	OK(shared_pool ? doca_buf_pool_get_num_free_elements(shared_pool, &n_free)
		       : doca_buf_inventory_get_num_free_elements(rig.inv, &n_free));
	CHECK_EQ(n_free, n);
}

TEST(threads_share_an_inventory_and_a_pool)
{
	rig_open(&rig, SIZE, 2 * TAKERS);
	shared_map = a_started_map(rig.dev, rig.from, 4096, READ_WRITE);
	take_at_once();
	OK(doca_buf_pool_create(2 * TAKERS, 1, shared_map, &shared_pool));
	OK(doca_buf_pool_start(shared_pool));
	take_at_once();
	OK(doca_buf_pool_stop(shared_pool));
	OK(doca_buf_pool_destroy(shared_pool));
	OK(doca_mmap_destroy(shared_map));
	rig_close(&rig);
}

TEST_MAIN(run_tests)
