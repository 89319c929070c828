// SPDX-License-Identifier: Apache-2.0
/* Comch's fast path with its data path on a GPU: what a kernel would do is done by the CPU. */
#include <doca_buf_array.h>
#include <doca_gpunetio.h>
#include <doca_gpunetio_dev.h>

#include "fast_check.h"

#define SIZE  ((size_t)1 << 20)
#define LARGE 300000u /* more than a packet of the channel has */

static struct side s, c;
static struct doca_gpu *gpu;

/* An end whose data path is on the GPU. */
struct on_gpu {
	struct end e;
	struct doca_buf_arr *array;
	struct doca_priv_comch_gpu_queue *q;
	uint32_t key; /* in big-endian */
};

static void find_key(struct on_gpu *g)
{
	struct doca_gpu_buf_arr *bufs;

	OK(doca_buf_arr_create(1, &g->array));
	OK(doca_buf_arr_set_target_gpu(g->array, gpu));
	OK(doca_buf_arr_set_params(g->array, g->e.map, SIZE, 0));
	OK(doca_buf_arr_start(g->array));
	OK(doca_buf_arr_get_gpu_handle(g->array, &bufs));
	g->key = bufs->bufs[0].key;
}

static void start_consumer(struct on_gpu *g)
{
	REFUSED(doca_ctx_start(g->e.ctx), IN_PROGRESS);
	UNTIL(&g->e, end_state(&g->e) == DOCA_CTX_STATE_RUNNING);
	OK(doca_comch_consumer_get_gpu_handle(g->e.consumer, (void *)&g->q));
}

static void gpu_consumer(struct on_gpu *g, struct side *side)
{
	make_consumer(&g->e, side, SIZE);
	find_key(g);
	OK(doca_ctx_set_datapath_on_gpu(g->e.ctx, gpu));
	start_consumer(g);
}

static void start_producer(struct on_gpu *g)
{
	OK(doca_ctx_start(g->e.ctx));
	OK(doca_comch_producer_get_gpu_handle(g->e.producer, (void *)&g->q));
}

static void gpu_producer(struct on_gpu *g, struct side *side)
{
	make_producer(&g->e, side, SIZE);
	find_key(g);
	OK(doca_ctx_set_datapath_on_gpu(g->e.ctx, gpu));
	start_producer(g);
}

static void close_on_gpu(struct on_gpu *g)
{
	close_end(&g->e);
	OK(doca_buf_arr_destroy(g->array));
}

static void open_all_with(const char *gpus)
{
	setenv("DGKIT_FAKE_CUDA", gpus, 1);
	OK(doca_gpu_create("41:00.0", &gpu));
	a_fast_pair(&s, &c, "gpu");
}

static void open_all(void)
{
	open_all_with("gpus=0");
}

static void close_all(void)
{
	both_stopped(&s, &c);
	OK(doca_gpu_destroy(gpu));
}

/* ---- what a kernel does ---- */

static void request(struct on_gpu *g, struct doca_priv_comch_gpu_entry e)
{
	struct doca_priv_comch_gpu_queue *q = g->q;
	struct doca_priv_comch_gpu_entry *to = &q->requests[q->requested % q->entries];

	CHECK(q->requested - q->answered < q->entries);
	for (size_t i = 0; i < offsetof(struct doca_priv_comch_gpu_entry, turn) / 8; i++)
		__atomic_store_n((uint64_t *)to + i, ((uint64_t *)&e)[i], __ATOMIC_RELAXED);
	q->requested++;
	__atomic_store_n(&to->turn, (uint32_t)q->requested, __ATOMIC_RELEASE);
}

static void post_receive(struct on_gpu *g, size_t offset, uint32_t size)
{
	request(g, (struct doca_priv_comch_gpu_entry){
			   .addr = (uintptr_t)g->e.bytes + offset, .key = g->key, .size = size});
}

static void send_on_gpu(struct on_gpu *g, size_t offset, uint32_t size, uint32_t to, uint64_t user)
{
	request(g, (struct doca_priv_comch_gpu_entry){.addr = (uintptr_t)g->e.bytes + offset,
						      .key = g->key,
						      .size = size,
						      .peer = to,
						      .user = user,
						      .imm_len = 3,
						      .imm = "imm"});
}

static bool has_answer(const struct on_gpu *g)
{
	const struct doca_priv_comch_gpu_queue *q = g->q;
	const struct doca_priv_comch_gpu_entry *e = &q->answers[q->answered % q->entries];

	return __atomic_load_n(&e->turn, __ATOMIC_ACQUIRE) == (uint32_t)(q->answered + 1);
}

static struct doca_priv_comch_gpu_entry *answer(struct on_gpu *g)
{
	UNTIL(&g->e, has_answer(g));
	return &g->q->answers[g->q->answered++ % g->q->entries];
}

/* ---- tests ---- */

TEST(a_kernel_receives_what_the_other_side_sends)
{
	struct on_gpu to = {0};
	struct end from = {0};
	uint32_t id, producer;
	const uint32_t sizes[] = {11, 0, LARGE, 5};

	open_all();
	gpu_consumer(&to, &s);
	OK(doca_comch_consumer_get_id(to.e.consumer, &id));
	UNTIL(&c, of_client.last == id);
	a_producer(&from, &c, SIZE);
	OK(doca_comch_producer_get_id(from.producer, &producer));
	for (uint32_t i = 0; i < SIZE; i++)
		from.bytes[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t i = 0; i < FAST_TASKS + 11; i++) {
		const uint32_t size = sizes[i % 4];
		struct doca_buf *out = data_at(&from, i, size);
		struct doca_priv_comch_gpu_entry *a;

		memset(to.e.bytes + i, 0, LARGE);
		post_receive(&to, i, LARGE);
		OK(submit_soon(a_send(&from, out, "apart", id)));
		a = answer(&to);
		CHECK_EQ(a->status, DOCA_SUCCESS);
		CHECK_EQ(a->size, size);
		CHECK_EQ(a->peer, producer);
		CHECK(a->imm_len == 5 && !memcmp(a->imm, "apart", 5));
		CHECK(a->addr == (uintptr_t)to.e.bytes + i && a->key == to.key);
		CHECK(!memcmp(to.e.bytes + i, from.bytes + i, size));
		UNTIL(&from, from.done == i + 1);
		let_go(out);
	}
	close_end(&from);
	close_on_gpu(&to);
	close_all();
}

TEST(a_kernel_sends_as_soon_as_there_is_a_receive)
{
	struct on_gpu from = {0};
	struct end to = {.keep = true};
	const uint32_t sizes[] = {11, LARGE, 0, 5};

	open_all();
	const uint32_t id = a_consumer(&to, &s, SIZE);
	UNTIL(&c, of_client.last == id);
	gpu_producer(&from, &c);
	for (uint32_t i = 0; i < SIZE; i++)
		from.e.bytes[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t i = 0; i < FAST_TASKS + 11; i++) {
		struct doca_buf *in = room_at(&to, 0, SIZE);
		struct doca_comch_consumer_task_post_recv *task = a_receive(&to, in);
		struct doca_priv_comch_gpu_entry *a;

		send_on_gpu(&from, i, sizes[i % 4], id, 1000 + i);
		if (i < 3) {
			usleep(2000);
			CHECK(!has_answer(&from));
		}
		OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
		a = answer(&from);
		CHECK_EQ(a->status, DOCA_SUCCESS);
		CHECK_EQ(a->user, 1000 + i);
		UNTIL(&to, to.done == i + 1);
		CHECK_EQ(data_len(in), sizes[i % 4]);
		CHECK(!memcmp(to.bytes, from.e.bytes + i, sizes[i % 4]));
		CHECK_EQ(doca_comch_consumer_task_post_recv_get_imm_data_len(task), 3);
		doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
		let_go(in);
	}
	close_on_gpu(&from);
	close_end(&to);
	close_all();
}

/* Of a GPU (a fake one), which the CPU reaches by CUDA only. */
TEST(messages_come_from_and_go_to_gpu_memory)
{
	struct on_gpu to = {0}, from = {0};
	uint32_t id;

	open_all_with("gpus=1");
	OK(doca_gpu_mem_alloc(gpu, SIZE, 4096, DOCA_GPU_MEM_TYPE_GPU, (void *)&to.e.given, NULL));
	OK(doca_gpu_mem_alloc(gpu, SIZE, 4096, DOCA_GPU_MEM_TYPE_GPU, (void *)&from.e.given, NULL));
	gpu_consumer(&to, &s);
	OK(doca_comch_consumer_get_id(to.e.consumer, &id));
	UNTIL(&c, of_client.last == id);
	gpu_producer(&from, &c);
	for (uint32_t i = 0; i < SIZE; i++)
		from.e.bytes[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t size = 0; size < 2 * LARGE; size = 3 * size + 1) {
		post_receive(&to, 77, 2 * LARGE);
		send_on_gpu(&from, size, size, id, size);
		CHECK_EQ(answer(&from)->status, DOCA_SUCCESS);
		CHECK_EQ(answer(&to)->status, DOCA_SUCCESS);
		CHECK(!memcmp(to.e.bytes + 77, from.e.bytes + size, size));
	}
	close_on_gpu(&from);
	close_on_gpu(&to);
	OK(doca_gpu_mem_free(gpu, to.e.given));
	OK(doca_gpu_mem_free(gpu, from.e.given));
	close_all();
}

TEST(wrong_requests_are_answered_with_errors_in_order)
{
	struct on_gpu to = {0}, from = {0};
	uint32_t id;

	open_all();
	gpu_consumer(&to, &s);
	OK(doca_comch_consumer_get_id(to.e.consumer, &id));
	UNTIL(&c, of_client.last == id);
	gpu_producer(&from, &c);
	post_receive(&to, 1, SIZE); /* beyond the map */
	post_receive(&to, 0, 100);
	request(&to, (struct doca_priv_comch_gpu_entry){
			     .addr = (uintptr_t)from.e.bytes, .key = from.key, .size = 1});
	send_on_gpu(&from, 0, 8, id + 77, 1); /* no such consumer */
	send_on_gpu(&from, SIZE, 1, id, 2); /* beyond the map */
	send_on_gpu(&from, 0, 8, id, 3);
	for (uint64_t user = 1; user <= 3; user++) {
		struct doca_priv_comch_gpu_entry *a = answer(&from);

		CHECK_EQ(a->user, user);
		CHECK_EQ(a->status, user < 3 ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS);
	}
	CHECK_EQ(answer(&to)->status, DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(answer(&to)->status, DOCA_SUCCESS);
	CHECK_EQ(answer(&to)->status, DOCA_ERROR_INVALID_VALUE); /* another map than the consumer's */
	close_on_gpu(&from);
	close_on_gpu(&to);
	close_all();
}

/* A kernel can write anything to both rings and to its structure. */
TEST(garbage_does_not_keep_the_thread_from_serving_others)
{
	struct on_gpu bad = {0}, worse = {0}, to = {0}, from = {0};
	uint32_t id;

	open_all();
	gpu_consumer(&bad, &s);
	gpu_producer(&worse, &c);
	gpu_consumer(&to, &s);
	OK(doca_comch_consumer_get_id(to.e.consumer, &id));
	UNTIL(&c, of_client.last == id);
	gpu_producer(&from, &c);
	for (uint32_t i = 0; i < 5000; i++) {
		struct on_gpu *g = i % 2 ? &bad : &worse;
		uint32_t *words = (uint32_t *)g->q->requests;
		size_t n = 2 * FAST_TASKS * sizeof(struct doca_priv_comch_gpu_entry) / 4;

		/* some of them turns */
		__atomic_store_n(&words[(uint32_t)i * 2654435761u % n], i % 3 ? i / 64 : ~i,
				 __ATOMIC_RELAXED);
	}
	for (uint32_t i = 0; i < FAST_TASKS; i++) {
		__atomic_store_n(&bad.q->requests[i].turn, i + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&worse.q->requests[i].turn, i + 1, __ATOMIC_RELEASE);
	}
	bad.q->entries = worse.q->entries = 0xffffffff;
	for (uint32_t i = 0; i < FAST_TASKS + 11; i++) {
		post_receive(&to, 0, 8);
		send_on_gpu(&from, 0, 8, id, i);
		CHECK_EQ(answer(&from)->status, DOCA_SUCCESS);
		CHECK_EQ(answer(&to)->status, DOCA_SUCCESS);
	}
	close_on_gpu(&from);
	close_on_gpu(&to);
	close_on_gpu(&worse);
	close_on_gpu(&bad);
	close_all();
}

TEST(a_context_that_was_stopped_starts_again_with_new_rings)
{
	struct on_gpu to = {0}, from = {0};
	uint32_t id;

	open_all();
	gpu_consumer(&to, &s);
	OK(doca_comch_consumer_get_id(to.e.consumer, &id));
	gpu_producer(&from, &c);
	for (uint32_t round = 1; round <= 3; round++) {
		struct doca_priv_comch_gpu_queue *before = to.q;

		UNTIL(&c, of_client.added == round);
		post_receive(&to, 0, 8);
		post_receive(&to, 0, 8);
		send_on_gpu(&from, 0, 8, id, 0);
		CHECK_EQ(answer(&from)->status, DOCA_SUCCESS);
		CHECK_EQ(answer(&to)->status, DOCA_SUCCESS);
		send_on_gpu(&from, 0, 8, id + 1, 0);
		stop_end(&to.e);
		stop_end(&from.e);
		/* A kernel that still looks sees why there is nothing. */
		CHECK_EQ(__atomic_load_n(before->status, __ATOMIC_ACQUIRE), DOCA_ERROR_NOT_CONNECTED);
		REFUSED(doca_comch_consumer_get_gpu_handle(to.e.consumer, (void *)&to.q), BAD_STATE);
		UNTIL(&c, of_client.expired == round);
		start_consumer(&to);
		start_producer(&from);
	}
	close_on_gpu(&from);
	close_on_gpu(&to);
	close_all();
}

TEST(a_kernel_is_told_when_the_other_side_ends)
{
	struct on_gpu to = {0}, from = {0};
	struct doca_priv_comch_gpu_queue *q;

	open_all();
	gpu_consumer(&to, &c);
	gpu_producer(&from, &c);
	q = to.q;
	post_receive(&to, 0, 8);
	stopped(&s);
	UNTIL(&to.e, __atomic_load_n(q->status, __ATOMIC_ACQUIRE) == DOCA_ERROR_NOT_CONNECTED);
	UNTIL2(&c, &to.e, end_state(&to.e) == DOCA_CTX_STATE_IDLE);
	UNTIL2(&c, &from.e, end_state(&from.e) == DOCA_CTX_STATE_IDLE);
	CHECK_EQ(__atomic_load_n(q->status, __ATOMIC_ACQUIRE), DOCA_ERROR_NOT_CONNECTED);
	REFUSED(doca_ctx_start(to.e.ctx), NOT_CONNECTED);
	close_on_gpu(&from);
	close_on_gpu(&to);
	stopped(&c);
	OK(doca_gpu_destroy(gpu));
}

TEST(misuse_is_refused)
{
	struct on_gpu g = {0}, p = {0};
	struct end e = {0};
	struct doca_comch_consumer *alone;
	struct doca_comch_gpu_consumer *handle;
	struct doca_comch_gpu_producer *producer;
	struct doca_buf *buf;

	open_all();
	a_consumer(&e, &s, SIZE);
	REFUSED(doca_comch_consumer_get_gpu_handle(e.consumer, &handle), BAD_STATE);
	REFUSED(doca_ctx_set_datapath_on_gpu(e.ctx, gpu), BAD_STATE);
	REFUSED(doca_comch_consumer_get_gpu_handle((void *)e.ctx, &handle), INVALID_VALUE);
	gpu_consumer(&g, &s);
	gpu_producer(&p, &c);
	REFUSED(doca_comch_consumer_get_gpu_handle(g.e.consumer, NULL), INVALID_VALUE);
	REFUSED(doca_comch_producer_get_gpu_handle(p.e.producer, NULL), INVALID_VALUE);
	REFUSED(doca_comch_producer_get_gpu_handle(NULL, &producer), INVALID_VALUE);
	buf = room_at(&g.e, 0, 8);
	struct doca_comch_consumer_task_post_recv *task = a_receive(&g.e, buf);
	REFUSED(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)), BAD_STATE);
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
	let_go(buf);
	OK(doca_comch_consumer_create(s.peer, g.e.map, &alone));
	OK(doca_ctx_set_datapath_on_gpu(doca_comch_consumer_as_ctx(alone), gpu));
	REFUSED(doca_ctx_start(doca_comch_consumer_as_ctx(alone)), NOT_CONNECTED); /* no engine */
	OK(doca_comch_consumer_destroy(alone));
	close_on_gpu(&p);
	close_on_gpu(&g);
	close_end(&e);
	close_all();
}

TEST_MAIN(run_tests)
