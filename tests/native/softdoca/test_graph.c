// SPDX-License-Identifier: Apache-2.0
/* Graphs: nodes run in the order of their dependencies, each once, and failures end an instance. */
#include "doca_check.h"

#include <doca_graph.h>
#include <doca_sync_event.h>

#define SIZE  ((size_t)1 << 20)
#define NODES 12

/* What the callbacks have recorded. */
struct ends {
	unsigned done, failed;
	struct doca_graph_instance *last;
	uint64_t last_data;
};

static void on_graph_done(struct doca_graph_instance *i, union doca_data data, union doca_data graph_data)
{
	struct ends *e = graph_data.ptr;

	e->done++;
	e->last = i;
	e->last_data = data.u64;
}

static void on_graph_error(struct doca_graph_instance *i, union doca_data data, union doca_data graph_data)
{
	struct ends *e = graph_data.ptr;

	e->failed++;
	e->last = i;
	e->last_data = data.u64;
}

static struct doca_graph *a_graph(struct doca_pe *pe, struct ends *e, uint32_t instances)
{
	union doca_data data = { .ptr = e };
	struct doca_graph *g;

	memset(e, 0, sizeof(*e));
	OK(doca_graph_create(pe, &g));
	OK(doca_graph_set_conf(g, on_graph_done, on_graph_error, instances));
	OK(doca_graph_set_user_data(g, data));
	return g;
}

static struct doca_graph_node *ctx_node(struct doca_graph *g, struct doca_ctx *ctx)
{
	struct doca_graph_node *n;

	OK(doca_graph_node_create_from_ctx(g, ctx, &n));
	return n;
}

static struct doca_graph_node *user_node(struct doca_graph *g, doca_graph_user_node_cb_t call)
{
	struct doca_graph_node *n;

	OK(doca_graph_node_create_from_user(g, call, &n));
	return n;
}

static struct doca_graph_instance *an_instance(struct doca_graph *g)
{
	struct doca_graph_instance *i;

	OK(doca_graph_instance_create(g, &i));
	return i;
}

/* A rig with a task that copies a byte, for the node of a context that each graph needs. */
struct idle {
	struct rig r;
	struct doca_buf *src, *dst;
	struct doca_task *task;
};

static void idle_open(struct idle *idle)
{
	rig_open(&idle->r, 4096, 1);
	idle->src = source(&idle->r, 0, 1);
	idle->dst = target(&idle->r, 0, 4096);
	idle->task = a_task(&idle->r, idle->src, idle->dst, 0);
}

static void idle_close(struct idle *idle)
{
	doca_task_free(idle->task);
	rig_close(&idle->r, idle->src, idle->dst);
}

static struct doca_graph_instance *idle_instance(struct doca_graph *g, const struct idle *idle,
						 const struct doca_graph_node *n)
{
	struct doca_graph_instance *i = an_instance(g);

	OK(doca_buf_reset_data_len(idle->dst));
	OK(doca_graph_instance_set_ctx_node_data(i, n, idle->task));
	return i;
}

static void run_graphs(struct doca_pe *pe, const struct ends *e, unsigned ended)
{
	double end = now_s() + WAIT_SECONDS;

	while (e->done + e->failed < ended)
		if (!doca_pe_progress(pe) && now_s() > end)
			check_failed(__FILE__, __LINE__, "%u instances ended", e->done + e->failed);
}

static void close_graph(struct doca_graph *g)
{
	OK(doca_graph_stop(g));
	OK(doca_graph_destroy(g));
}

/* ---- copies, and a function that sees their results ---- */

struct copies {
	struct rig *r;
	size_t size;
	unsigned seen;
};

static doca_error_t both_have_arrived(void *cookie)
{
	struct copies *c = cookie;

	CHECK_EQ(memcmp(c->r->to, c->r->from, c->size), 0);
	CHECK_EQ(memcmp(c->r->to + c->size, c->r->from, c->size), 0);
	c->seen++;
	return DOCA_SUCCESS;
}

TEST(a_function_runs_after_the_copies_it_depends_on)
{
	static const size_t sizes[] = { 64, SIZE / 2 }; /* by progress, and by the engine's thread */

	for (unsigned k = 0; k < 2; k++) {
		struct rig r;
		struct copies c = { &r, sizes[k], 0 };
		struct doca_graph_instance *i;
		struct doca_graph_node *n[3];
		struct doca_buf *src, *dst[2];
		struct doca_task *t[2];
		struct doca_graph *g;
		struct ends e;

		rig_open(&r, SIZE, 2);
		g = a_graph(r.pe, &e, 1);
		n[2] = user_node(g, both_have_arrived);
		src = source(&r, 0, sizes[k]);
		for (int j = 0; j < 2; j++) {
			n[j] = ctx_node(g, r.ctx);
			OK(doca_graph_add_dependency(g, n[j], n[2]));
			dst[j] = target(&r, j * sizes[k], sizes[k]);
			t[j] = a_task(&r, src, dst[j], 0);
		}
		OK(doca_graph_start(g));
		i = an_instance(g);
		OK(doca_graph_instance_set_user_data(i, (union doca_data){ .u64 = 7 }));
		OK(doca_graph_instance_set_user_node_data(i, n[2], &c));
		for (int j = 0; j < 2; j++)
			OK(doca_graph_instance_set_ctx_node_data(i, n[j], t[j]));
		for (unsigned turn = 1; turn <= 20; turn++) {
			fill(r.from, SIZE, turn);
			for (int j = 0; j < 2; j++)
				OK(doca_buf_reset_data_len(dst[j]));
			OK(doca_graph_instance_submit(i));
			run_graphs(r.pe, &e, turn);
			CHECK_EQ(c.seen, turn);
		}
		CHECK(e.done == 20 && e.last == i && e.last_data == 7);
		CHECK_EQ(r.done + r.failed, 0); /* the tasks' callbacks */
		OK(doca_graph_instance_destroy(i));
		close_graph(g);
		OK(doca_task_submit(t[0])); /* a task like others again */
		run_until(&r, 1);
		doca_task_free(t[1]);
		drop(src);
		drop(dst[0]);
		drop(dst[1]);
		rig_close(&r);
	}
}

/* ---- order ---- */

struct turns {
	unsigned order[NODES], n;
};
struct step {
	struct turns *turns;
	unsigned number;
};

static doca_error_t take_turn(void *cookie)
{
	struct step *s = cookie;

	s->turns->order[s->turns->n++] = s->number;
	return DOCA_SUCCESS;
}

TEST(random_graphs_run_each_node_once_and_after_those_before_it)
{
	FIXTURE(idle, idle, idle_open);
	struct doca_pe *pe = idle.r.pe;

	srand(31);
	for (int round = 0; round < 300; round++) {
		bool before[NODES][NODES] = { 0 };
		struct turns turns = { .n = 0 };
		unsigned place[NODES], many = 1 + (unsigned)rand() % NODES;
		struct step steps[NODES];
		struct doca_graph_node *n[NODES];
		struct doca_graph_instance *i;
		struct ends e;
		struct doca_graph *g = a_graph(pe, &e, 1);
		struct doca_graph_node *copy = ctx_node(g, idle.r.ctx);

		for (unsigned k = 0; k < many; k++)
			n[k] = user_node(g, take_turn);
		for (unsigned k = 0; k < many; k++)
			for (unsigned j = 0; j < k; j++)
				if ((before[j][k] = rand() % 3 == 0)) /* ends at other numbers, too */
					OK(doca_graph_add_dependency(g, n[many - 1 - j], n[many - 1 - k]));
		OK(doca_graph_start(g));
		i = idle_instance(g, &idle, copy);
		for (unsigned k = 0; k < many; k++) {
			steps[k] = (struct step){ &turns, many - 1 - k };
			OK(doca_graph_instance_set_user_node_data(i, n[k], &steps[k]));
		}
		OK(doca_graph_instance_submit(i));
		run_graphs(pe, &e, 1);
		CHECK(e.done == 1 && turns.n == many);
		for (unsigned k = 0; k < many; k++)
			place[turns.order[k]] = k;
		for (unsigned k = 0; k < many; k++)
			for (unsigned j = 0; j < k; j++)
				CHECK(!before[j][k] || place[j] < place[k]);
		OK(doca_graph_instance_destroy(i));
		close_graph(g);
	}
}

/* ---- failures ---- */

static doca_error_t refuse_it(void *cookie)
{
	(void)cookie;
	return DOCA_ERROR_EMPTY;
}

static doca_error_t never(void *cookie)
{
	CHECK(!cookie);
	check_failed(__FILE__, __LINE__, "a node behind one that failed ran");
	return DOCA_SUCCESS;
}

TEST(a_function_that_fails_ends_the_instance_as_failed)
{
	struct doca_graph_node *first, *second, *copy;
	struct doca_graph_instance *i;
	struct doca_graph *g;
	struct ends e;

	FIXTURE(idle, idle, idle_open);
	g = a_graph(idle.r.pe, &e, 1);
	copy = ctx_node(g, idle.r.ctx);
	first = user_node(g, refuse_it);
	second = user_node(g, never);
	OK(doca_graph_add_dependency(g, first, second));
	OK(doca_graph_start(g));
	i = idle_instance(g, &idle, copy);
	for (unsigned turn = 1; turn <= 2; turn++) {
		OK(doca_graph_instance_submit(i));
		run_graphs(idle.r.pe, &e, turn);
		CHECK(e.failed == turn && !e.done);
	}
	OK(doca_graph_instance_destroy(i));
	close_graph(g);
}

/* Also if it fails when it is submitted, because its context has stopped by then. */
TEST(a_task_that_fails_ends_the_instance_as_failed)
{
	struct doca_graph_node *first, *second;
	struct doca_graph_instance *i;
	struct doca_graph *g;
	struct doca_task *t;
	struct ends e;

	setenv("SOFTDOCA_FAULTS", "error status=io_failed", 1);
	FIXTURE(rig, r, rig_open, SIZE, 1);
	g = a_graph(r.pe, &e, 1);
	first = ctx_node(g, r.ctx);
	second = user_node(g, never);
	OK(doca_graph_add_dependency(g, first, second));
	OK(doca_graph_start(g));
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	t = a_task(&r, src, dst, 0);
	i = an_instance(g);
	OK(doca_graph_instance_set_ctx_node_data(i, first, t));
	for (unsigned turn = 1; turn <= 2; turn++) {
		OK(doca_graph_instance_submit(i));
		run_graphs(r.pe, &e, turn);
		CHECK(e.failed == turn && !e.done);
		CHECK_EQ(state_of(&r), DOCA_CTX_STATE_STOPPING);
	}
	CHECK_EQ(r.failed, 0);
	OK(doca_graph_instance_destroy(i));
	close_graph(g);
	doca_task_free(t);
	drop(src, dst);
}

/* ---- graphs in graphs, and sync events ---- */

TEST(a_graph_is_a_node_of_another)
{
	struct doca_graph_node *inner_node, *outer_node[2], *copy;
	struct doca_graph_instance *inner, *outer, *other;
	struct turns turns = { .n = 0 };
	struct step steps[2] = { { &turns, 0 }, { &turns, 1 } };
	struct doca_graph *g, *sub;
	struct ends e, of_sub;
	FIXTURE(idle, idle, idle_open);
	struct doca_pe *pe = idle.r.pe;

	sub = a_graph(pe, &of_sub, 2);
	copy = ctx_node(sub, idle.r.ctx);
	inner_node = user_node(sub, take_turn);
	OK(doca_graph_start(sub));
	inner = idle_instance(sub, &idle, copy);
	OK(doca_graph_instance_set_user_node_data(inner, inner_node, &steps[0]));
	g = a_graph(pe, &e, 2);
	OK(doca_graph_node_create_from_graph(g, sub, &outer_node[0]));
	outer_node[1] = user_node(g, take_turn);
	OK(doca_graph_add_dependency(g, outer_node[0], outer_node[1]));
	OK(doca_graph_start(g));
	outer = an_instance(g);
	OK(doca_graph_instance_set_sub_graph_node_data(outer, outer_node[0], inner));
	OK(doca_graph_instance_set_user_node_data(outer, outer_node[1], &steps[1]));
	REFUSED(doca_graph_instance_destroy(inner), IN_USE);
	for (unsigned turn = 1; turn <= 3; turn++) {
		turns.n = 0;
		OK(doca_graph_instance_submit(outer));
		REFUSED(doca_graph_instance_submit(inner), IN_USE);
		other = an_instance(g);
		REFUSED(doca_graph_instance_set_sub_graph_node_data(other, outer_node[0], inner), NOT_PERMITTED);
		OK(doca_graph_instance_destroy(other));
		REFUSED(doca_graph_stop(sub), IN_USE);
		run_graphs(pe, &e, turn);
		CHECK(e.done == turn && !of_sub.done && !of_sub.failed);
		CHECK(turns.n == 2 && !turns.order[0] && turns.order[1] == 1);
	}
	OK(doca_graph_instance_submit(inner)); /* ends later than its node begins */
	OK(doca_graph_instance_submit(outer));
	run_graphs(pe, &e, 4);
	run_graphs(pe, &of_sub, 1);
	CHECK_EQ(e.failed, 1);
	OK(doca_graph_instance_destroy(outer));
	OK(doca_graph_instance_destroy(inner));
	OK(doca_graph_stop(sub));
	REFUSED(doca_graph_node_create_from_graph(sub, g, &inner_node), NOT_PERMITTED); /* a circle */
	OK(doca_graph_destroy(sub));
	close_graph(g);
}

static void no_wait(struct doca_sync_event_task_wait_eq *task, union doca_data data, union doca_data ctx_data)
{
	(void)task;
	(void)data;
	(void)ctx_data;
	check_failed(__FILE__, __LINE__, "the callback of a task in a graph was called");
}

static struct doca_sync_event *an_event_for_tasks(struct rig *r, struct doca_ctx **ctx)
{
	struct doca_sync_event *event;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, r->dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, r->dev));
	OK(doca_sync_event_task_wait_eq_set_conf(event, no_wait, no_wait, 1));
	*ctx = doca_sync_event_as_ctx(event);
	OK(doca_pe_connect_ctx(r->pe, *ctx));
	OK(doca_ctx_start(*ctx));
	return event;
}

/* A task that is freed in flight fails its instance. */
TEST(a_node_waits_for_a_sync_event)
{
	struct doca_sync_event_task_wait_eq *wait;
	struct doca_sync_event *event;
	struct turns turns = { .n = 0 };
	struct step step = { &turns, 0 };
	struct doca_graph_node *first, *second;
	struct doca_graph_instance *i;
	struct doca_graph *g;
	struct doca_ctx *ctx;
	struct ends e;

	FIXTURE(rig, r, rig_open, 4096, 1);
	event = an_event_for_tasks(&r, &ctx);
	g = a_graph(r.pe, &e, 1);
	first = ctx_node(g, ctx);
	second = user_node(g, take_turn);
	OK(doca_graph_add_dependency(g, first, second));
	OK(doca_graph_start(g));
	i = an_instance(g);
	OK(doca_sync_event_task_wait_eq_alloc_init(event, 5, (uint64_t)-1, (union doca_data){ 0 }, &wait));
	OK(doca_graph_instance_set_ctx_node_data(i, first, doca_sync_event_task_wait_eq_as_doca_task(wait)));
	OK(doca_graph_instance_set_user_node_data(i, second, &step));
	OK(doca_graph_instance_submit(i));
	for (int k = 0; k < 100; k++)
		doca_pe_progress(r.pe);
	CHECK(!turns.n && !e.done);
	OK(doca_sync_event_update_set(event, 5));
	run_graphs(r.pe, &e, 1);
	CHECK(turns.n == 1 && e.done == 1);
	OK(doca_sync_event_update_set(event, 0));
	OK(doca_graph_instance_submit(i));
	doca_task_free(doca_sync_event_task_wait_eq_as_doca_task(wait));
	run_graphs(r.pe, &e, 2);
	CHECK_EQ(e.failed, 1);
	OK(doca_graph_instance_destroy(i));
	close_graph(g);
	OK(doca_ctx_stop(ctx));
	OK(doca_sync_event_destroy(event));
}

/* ---- notifications, and the end in a callback ---- */

static void end_it_all(struct doca_graph_instance *i, union doca_data data, union doca_data graph_data)
{
	struct ends *e = graph_data.ptr;

	(void)data;
	OK(doca_graph_instance_destroy(i));
	close_graph((struct doca_graph *)e->last); /* the graph, here */
	e->done++;
}

TEST(a_sleeping_program_is_woken_and_may_free_all_in_the_callback)
{
	struct pollfd fd = { .events = POLLIN };
	struct turns turns = { .n = 0 };
	struct step step = { &turns, 0 };
	struct doca_graph_instance *i;
	struct doca_graph_node *n, *copy;
	struct doca_graph *g;
	struct ends e;

	FIXTURE(idle, idle, idle_open);
	struct doca_pe *pe = idle.r.pe;

	OK(doca_pe_get_notification_handle(pe, &fd.fd));
	g = a_graph(pe, &e, 1);
	OK(doca_graph_set_conf(g, end_it_all, end_it_all, 1));
	e.last = (struct doca_graph_instance *)g;
	n = user_node(g, take_turn);
	copy = ctx_node(g, idle.r.ctx);
	OK(doca_graph_start(g));
	i = idle_instance(g, &idle, copy);
	OK(doca_graph_instance_set_user_node_data(i, n, &step));
	OK(doca_pe_request_notification(pe));
	CHECK_EQ(poll(&fd, 1, 0), 0);
	OK(doca_graph_instance_submit(i));
	while (!e.done) {
		CHECK_EQ(poll(&fd, 1, WAIT_SECONDS * 1000), 1);
		OK(doca_pe_clear_notification(pe, 0));
		doca_pe_progress(pe);
		OK(doca_pe_request_notification(pe));
	}
	CHECK_EQ(turns.n, 1);
}

/* ---- misuse ---- */

TEST(each_misuse_is_refused)
{
	union doca_data data = { .u64 = 3 };
	struct doca_graph_node *n[3], *strange, *of_ctx;
	struct doca_graph_instance *i, *second;
	struct doca_graph *g, *other;
	struct doca_task *t;
	struct ends e;

	FIXTURE(rig, r, rig_open, 4096, 2);
	REFUSED(doca_graph_create(NULL, &g), INVALID_VALUE);
	REFUSED(doca_graph_create(r.pe, NULL), INVALID_VALUE);
	REFUSED(doca_graph_start((struct doca_graph *)r.pe), INVALID_VALUE);
	OK(doca_graph_create(r.pe, &other));
	strange = user_node(other, never);
	REFUSED(doca_pe_destroy(r.pe), IN_USE);
	REFUSED(doca_graph_start(other), BAD_STATE); /* not configured */
	g = a_graph(r.pe, &e, 1);
	user_node(g, refuse_it);
	REFUSED(doca_graph_start(g), BAD_STATE); /* no node of a context */
	OK(doca_graph_stop(g));
	REFUSED(doca_graph_set_conf(g, on_graph_done, NULL, 1), INVALID_VALUE);
	REFUSED(doca_graph_set_conf(g, on_graph_done, on_graph_error, 0), INVALID_VALUE);
	REFUSED(doca_graph_node_create_from_user(g, NULL, &n[0]), INVALID_VALUE);
	REFUSED(doca_graph_node_create_from_ctx(g, NULL, &n[0]), INVALID_VALUE);
	REFUSED(doca_graph_node_create_from_graph(g, NULL, &n[0]), INVALID_VALUE);
	REFUSED(doca_graph_node_create_from_graph(g, other, &n[0]), BAD_STATE);
	for (int k = 0; k < 3; k++)
		n[k] = user_node(g, refuse_it);
	of_ctx = ctx_node(g, r.ctx);
	REFUSED(doca_graph_add_dependency(g, n[0], strange), INVALID_VALUE);
	OK(doca_graph_add_dependency(g, n[0], n[1]));
	REFUSED(doca_graph_add_dependency(g, n[0], n[1]), ALREADY_EXIST);
	REFUSED(doca_graph_instance_create(g, &i), BAD_STATE);
	OK(doca_graph_start(g));
	REFUSED(doca_graph_start(g), BAD_STATE);
	REFUSED(doca_graph_destroy(g), BAD_STATE);
	REFUSED(doca_graph_set_user_data(g, data), BAD_STATE);
	REFUSED(doca_graph_add_dependency(g, n[1], n[2]), BAD_STATE);
	REFUSED(doca_graph_node_create_from_user(g, never, &n[0]), BAD_STATE);
	REFUSED(doca_graph_set_conf(g, on_graph_done, on_graph_error, 1), BAD_STATE);
	i = an_instance(g);
	REFUSED(doca_graph_instance_create(g, &second), NO_MEMORY);
	REFUSED(doca_graph_instance_submit(i), BAD_STATE); /* a node without a task */
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	t = a_task(&r, src, dst, 0);
	REFUSED(doca_graph_instance_set_ctx_node_data(i, of_ctx, NULL), INVALID_VALUE);
	REFUSED(doca_graph_instance_set_ctx_node_data(i, n[0], t), NOT_PERMITTED);
	REFUSED(doca_graph_instance_set_user_node_data(i, of_ctx, NULL), NOT_PERMITTED);
	REFUSED(doca_graph_instance_set_user_node_data(i, strange, NULL), NOT_PERMITTED);
	REFUSED(doca_graph_instance_set_sub_graph_node_data(i, of_ctx, i), NOT_PERMITTED);
	OK(doca_graph_instance_set_ctx_node_data(i, of_ctx, t));
	OK(doca_graph_instance_set_user_data(i, data));
	OK(doca_graph_instance_get_user_data(i, &data));
	CHECK_EQ(data.u64, 3);
	REFUSED(doca_graph_instance_get_user_data(i, NULL), INVALID_VALUE);
	OK(doca_graph_instance_submit(i));
	REFUSED(doca_graph_instance_submit(i), IN_USE);
	REFUSED(doca_graph_instance_destroy(i), IN_USE);
	REFUSED(doca_graph_instance_set_user_data(i, data), IN_USE);
	REFUSED(doca_graph_instance_set_ctx_node_data(i, of_ctx, t), BAD_STATE);
	REFUSED(doca_graph_stop(g), IN_USE);
	REFUSED(doca_task_submit(t), BAD_STATE);
	run_graphs(r.pe, &e, 1);
	CHECK_EQ(e.failed, 1);
	REFUSED(doca_graph_stop(g), IN_USE); /* an instance */
	OK(doca_graph_instance_destroy(i));
	OK(doca_graph_stop(g));
	REFUSED(doca_graph_instance_submit(i), INVALID_VALUE);
	OK(doca_graph_add_dependency(g, n[1], n[2]));
	REFUSED(doca_graph_add_dependency(g, n[2], n[0]), NOT_PERMITTED); /* a circle */
	REFUSED(doca_graph_add_dependency(g, n[2], n[2]), NOT_PERMITTED);
	OK(doca_graph_start(g)); /* as before */
	OK(doca_graph_stop(g));
	OK(doca_graph_destroy(g));
	REFUSED(doca_graph_destroy(g), INVALID_VALUE);
	OK(doca_graph_destroy(other));
	doca_task_free(t);
	drop(src, dst);
}

TEST(a_context_that_is_stopped_or_of_another_engine_is_refused_at_the_start)
{
	struct doca_graph *g;
	struct doca_pe *pe;
	struct ends e;

	FIXTURE(rig, r, rig_open, 4096, 1);
	OK(doca_pe_create(&pe));
	g = a_graph(pe, &e, 1);
	ctx_node(g, r.ctx);
	REFUSED(doca_graph_start(g), BAD_STATE);
	OK(doca_graph_destroy(g));
	OK(doca_pe_destroy(pe));
	g = a_graph(r.pe, &e, 1);
	ctx_node(g, r.ctx);
	OK(doca_ctx_stop(r.ctx));
	REFUSED(doca_graph_start(g), BAD_STATE);
	OK(doca_ctx_start(r.ctx));
	OK(doca_graph_start(g));
	close_graph(g);
}

TEST_MAIN(run_tests)
