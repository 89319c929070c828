// SPDX-License-Identifier: Apache-2.0
/*
 * Makes calls in random order, from the program and from callbacks, on two contexts of one engine:
 * each submitted task has one completion, whatever happens in between, and in the end everything
 * can be freed.
 */
#include "doca_check.h"

#define AREA ((size_t)210000) /* of the destination, for each slot */
#define SIZE (CONTEXTS * SLOTS * AREA)

enum { CONTEXTS = 2, TASKS = 12, SLOTS = 32, STEPS = 5000 };

struct slot {
	struct doca_task *task; /* NULL: none */
	struct doca_buf *src, *dst;
	bool in_flight;
};

struct side {
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct slot slots[SLOTS];
	unsigned submitted, ended;
};

static struct rig rig;
static struct side sides[CONTEXTS];
static unsigned seed;
static bool closing; /* callbacks make no more calls */

static unsigned draw(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static enum doca_ctx_states state_of_side(const struct side *s)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(s->ctx, &state));
	return state;
}

static void drop_task(struct slot *slot)
{
	CHECK(!slot->in_flight);
	doca_task_free(slot->task);
	drop(slot->src, slot->dst);
	slot->task = NULL;
}

static void submit_one(struct side *s, struct slot *slot)
{
	doca_error_t error;

	OK(doca_buf_reset_data_len(slot->dst));
	switch (draw(4)) {
	case 0:
		error = doca_task_submit_ex(slot->task, DOCA_TASK_SUBMIT_FLAG_NONE);
		break;
	case 1:
		error = doca_task_try_submit(slot->task);
		break;
	default:
		error = doca_task_submit(slot->task);
	}
	if (error == DOCA_SUCCESS) {
		CHECK_EQ(state_of_side(s), DOCA_CTX_STATE_RUNNING);
		slot->in_flight = true;
		s->submitted++;
	} else if (error != DOCA_ERROR_INVALID_VALUE) { /* hopeless, said try_submit */
		CHECK_DOCA(error, DOCA_ERROR_BAD_STATE);
		CHECK(state_of_side(s) != DOCA_CTX_STATE_RUNNING);
	}
}

static void one_call(bool in_callback);

static void ended(struct doca_dma_task_memcpy *t, union doca_data task_data, union doca_data ctx_data,
		  bool well)
{
	struct side *s = ctx_data.ptr;
	struct slot *slot = task_data.ptr;

	CHECK(slot->in_flight);
	CHECK(doca_dma_task_memcpy_as_task(t) == slot->task);
	CHECK_EQ(doca_task_get_status(slot->task) == DOCA_SUCCESS, well);
	slot->in_flight = false;
	s->ended++;
	for (unsigned n = closing ? 0 : draw(3); n; n--)
		one_call(true);
}

static void ended_well(struct doca_dma_task_memcpy *t, union doca_data task_data,
		       union doca_data ctx_data)
{
	ended(t, task_data, ctx_data, true);
}

static void ended_badly(struct doca_dma_task_memcpy *t, union doca_data task_data,
			union doca_data ctx_data)
{
	ended(t, task_data, ctx_data, false);
}

static void make_task(struct side *s, struct slot *slot)
{
	const size_t sizes[] = { 1, 64, 4000, 16384, 16385, 200000 };
	size_t n = sizes[draw(6)], room = draw(200) ? n : n - 1; /* rarely a copy that must fail */
	union doca_data data = { .ptr = slot };
	struct doca_dma_task_memcpy *t;
	size_t at = ((size_t)(s - sides) * SLOTS + (size_t)(slot - s->slots)) * AREA;
	doca_error_t error;

	slot->src = source(&rig, draw(1000), n);
	if (draw(3) == 0)
		OK(doca_buf_chain_list(slot->src, source(&rig, 500000, 1 + draw(300))));
	slot->dst = target(&rig, at + draw(1000), room);
	OK(doca_buf_chain_list(slot->dst, target(&rig, at + 205000, 300)));
	error = doca_dma_task_memcpy_alloc_init(s->dma, slot->src, slot->dst, data, &t);
	if (error == DOCA_SUCCESS) {
		slot->task = doca_dma_task_memcpy_as_task(t);
		return;
	}
	if (state_of_side(s) == DOCA_CTX_STATE_RUNNING)
		CHECK_DOCA(error, DOCA_ERROR_NO_MEMORY);
	else
		CHECK_DOCA(error, DOCA_ERROR_BAD_STATE);
	drop(slot->src, slot->dst);
}

static void with_slot(struct side *s)
{
	struct slot *slot = &s->slots[draw(SLOTS)];

	if (!slot->task)
		make_task(s, slot);
	else if (slot->in_flight)
		doca_task_free(slot->task); /* has no effect */
	else if (draw(4))
		submit_one(s, slot);
	else
		drop_task(slot);
}

static void with_state(struct side *s)
{
	enum doca_ctx_states state = state_of_side(s);
	doca_error_t error;

	if (state == DOCA_CTX_STATE_IDLE) {
		OK(doca_ctx_start(s->ctx));
	} else if (draw(8) == 0) {
		error = doca_ctx_stop(s->ctx);
		CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
	} else if (state == DOCA_CTX_STATE_STOPPING) {
		for (unsigned i = 0; i < SLOTS; i++) /* otherwise it never becomes idle */
			if (s->slots[i].task && !s->slots[i].in_flight)
				drop_task(&s->slots[i]);
	} else {
		CHECK_DOCA(doca_dma_destroy(s->dma), DOCA_ERROR_IN_USE);
	}
}

static void one_call(bool in_callback)
{
	struct side *s = &sides[draw(CONTEXTS)];

	switch (draw(12)) {
	case 0:
		with_state(s);
		break;
	case 1:
		doca_ctx_flush_tasks(s->ctx);
		break;
	case 2:
		OK(draw(2) ? doca_pe_request_notification(rig.pe) :
			     doca_pe_clear_notification(rig.pe, 0));
		break;
	case 3:
	case 4:
	case 5:
	case 6: {
		uint8_t did = doca_pe_progress(rig.pe);

		CHECK(!in_callback || !did);
		break;
	}
	default:
		with_slot(s);
	}
}

static void open_side(struct side *s)
{
	union doca_data data = { .ptr = s };

	OK(doca_dma_create(rig.dev, &s->dma));
	s->ctx = doca_dma_as_ctx(s->dma);
	OK(doca_dma_task_memcpy_set_conf(s->dma, ended_well, ended_badly, TASKS));
	OK(doca_ctx_set_user_data(s->ctx, data));
	OK(doca_pe_connect_ctx(rig.pe, s->ctx));
}

static void close_side(struct side *s)
{
	double end = now_s() + WAIT_SECONDS;

	doca_ctx_stop(s->ctx);
	while (s->ended != s->submitted) {
		doca_pe_progress(rig.pe);
		CHECK(now_s() < end);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (s->slots[i].task)
			drop_task(&s->slots[i]);
	while (state_of_side(s) != DOCA_CTX_STATE_IDLE) {
		doca_ctx_stop(s->ctx);
		doca_pe_progress(rig.pe);
		CHECK(now_s() < end);
	}
}

static void call_in_random_order(unsigned first_seed, const char *faults)
{
	unsigned submitted = 0;

	setenv("SOFTDOCA_FAULTS", faults, 1);
	memset(sides, 0, sizeof(sides));
	rig_make(&rig, SIZE, 1);
	fill(rig.from, SIZE, 1);
	for (int i = 0; i < CONTEXTS; i++)
		open_side(&sides[i]);
	seed = first_seed;
	closing = false;
	for (unsigned i = 0; i < STEPS; i++)
		one_call(false);
	closing = true;
	for (int i = 0; i < CONTEXTS; i++) {
		close_side(&sides[i]);
		CHECK_EQ(sides[i].ended, sides[i].submitted);
		OK(doca_dma_destroy(sides[i].dma));
		submitted += sides[i].submitted;
	}
	CHECK(submitted > STEPS / 50);
	rig_close(&rig);
}

TEST(every_task_ends_once_whatever_is_called_in_between)
{
	for (unsigned i = 1; i <= 10; i++)
		call_in_random_order(i, "");
}

TEST(every_task_ends_once_with_faults_too)
{
	for (unsigned i = 1; i <= 5; i++)
		call_in_random_order(i, "error ppm=1000 status=io_failed; delay us=30 ppm=50000; "
					"reorder ppm=50000; lose ppm=500");
}

TEST_MAIN(run_tests)
