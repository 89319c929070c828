// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs. A graph is also a context of its progress engine, unknown to the program, whose progress
 * runs user nodes and completes instances:
 *
 *   submit        begins the nodes without dependencies
 *   begin         of a context's node submits its task, of a user node adds it to `ready`
 *   end           of a node, which its task or its function tells, begins those that waited for it
 *   last end      adds the instance to `ended`
 *
 * After a failure no node begins, and the instance ends with those that have begun.
 *
 * Source: NVIDIA's published reference of DOCA Graph 3.0, for errors too; "guess" marks those that it does not list.
 */
#include <stdlib.h>

#include "pe.h"

#include "doca_graph.h"

#define CHECK_GRAPH(g)	  CHECK_OBJECT(g, OBJECT_GRAPH, "a graph")
#define CHECK_INSTANCE(i) CHECK_OBJECT(i, OBJECT_GRAPH_INSTANCE, "an instance of a graph")

enum node_kind { NODE_CTX, NODE_USER, NODE_GRAPH };

struct doca_graph_node {
	struct object o;
	struct doca_graph *graph;
	enum node_kind kind;
	uint32_t index, n_before, n_after;
	union {
		const struct doca_ctx *ctx;
		doca_graph_user_node_cb_t call;
		struct doca_graph *sub;
	};
	struct doca_graph_node **after; /* those that wait for it */
};

/* A node of an instance. */
struct run {
	struct task_watch watch;
	struct doca_graph_instance *instance;
	const struct doca_graph_node *node;
	uint32_t waits_for; /* nodes that have not ended */
	union {
		void *data; /* NULL: not set */
		struct doca_task *task;
		struct doca_graph_instance *sub;
	};
	struct run *next; /* in `ready` */
};

struct doca_graph_instance {
	struct object o;
	struct doca_graph *graph;
	union doca_data user_data;
	bool in_flight, failed;
	uint32_t begun; /* nodes that have not ended */
	uint32_t holders; /* instances of which it is a node's data */
	struct task_watch *watch; /* of a node of another graph; NULL: the program is told */
	struct doca_graph_instance *next; /* in `ended` */
	struct run runs[];
};

struct doca_graph {
	struct object o;
	struct doca_pe *pe;
	union doca_data user_data;
	doca_graph_completion_cb_t done_cb, error_cb;
	uint32_t max_instances, n_instances, n_nodes;
	struct doca_graph_node **nodes;
	struct run *ready, *last_ready;
	struct doca_graph_instance *ended, *last_ended;
	_Alignas(64) struct doca_ctx ctx;
};

OWNER(graph_of, struct doca_graph, struct doca_ctx, ctx)

static bool is_started(const struct doca_graph *g)
{
	return g->ctx.state == DOCA_CTX_STATE_RUNNING;
}

static doca_error_t refuse_if_started(const struct doca_graph *g, const char *func)
{
	return is_started(g) ? REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the graph is started")
			     : DOCA_SUCCESS;
}

/* ---- instances in flight ---- */

static void begin_node(struct run *r);

static void note_end(struct doca_graph_instance *i)
{
	struct doca_graph *g = i->graph;
	if (i->begun)
		return;
	i->next = NULL;
	*(g->ended ? &g->last_ended->next : &g->ended) = i;
	g->last_ended = i;
	softdoca_pe_kick(g->pe);
}

/* Ends a node that has begun. */
static void end(struct run *r, doca_error_t status)
{
	struct doca_graph_instance *i = r->instance;
	i->failed |= status != DOCA_SUCCESS;
	for (uint32_t k = 0; k < r->node->n_after && !i->failed; k++) {
		struct run *after = &i->runs[r->node->after[k]->index];
		if (!--after->waits_for)
			begin_node(after);
	}
	i->begun--;
	note_end(i);
}

static void landed(struct task_watch *watch, doca_error_t status)
{
	end((struct run *)watch, status);
}

static void begin_task(struct run *r)
{
	struct doca_task *t = r->task;
	doca_error_t error = DOCA_ERROR_BAD_STATE;
	if (object_is(t, OBJECT_TASK) && !t->in_flight) {
		t->watch = &r->watch;
		error = doca_task_submit(t);
		if (error)
			t->watch = NULL;
	}
	if (error)
		end(r, error);
}

static void launch_instance(struct doca_graph_instance *i, struct task_watch *watch)
{
	const struct doca_graph *g = i->graph;
	i->in_flight = true;
	i->failed = false;
	i->watch = watch;
	for (uint32_t k = 0; k < g->n_nodes; k++)
		i->runs[k].waits_for = g->nodes[k]->n_before;
	i->begun = 1; /* until all of the first nodes have begun */
	for (uint32_t k = 0; k < g->n_nodes && !i->failed; k++)
		if (!g->nodes[k]->n_before)
			begin_node(&i->runs[k]);
	i->begun--;
	note_end(i);
}

/* A graph with instances is started. */
static doca_error_t may_launch(const struct doca_graph_instance *i, const char *func)
{
	const struct doca_graph *g = i->graph;
	if (i->in_flight)
		return REFUSE_FOR(func, DOCA_ERROR_IN_USE, "the instance is in flight");
	if (pe_forked(g->pe)) /* guess, as is the node without data */
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, FORKED);
	for (uint32_t k = 0; k < g->n_nodes; k++)
		if (g->nodes[k]->kind != NODE_USER && !i->runs[k].data)
			return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "a node has no data");
	return DOCA_SUCCESS;
}

static void begin_sub(struct run *r)
{
	doca_error_t error = may_launch(r->sub, __func__);
	if (error)
		end(r, error);
	else
		launch_instance(r->sub, &r->watch);
}

static void begin_node(struct run *r)
{
	struct doca_graph *g = r->instance->graph;
	r->instance->begun++;
	if (r->node->kind == NODE_CTX) {
		begin_task(r);
	} else if (r->node->kind == NODE_GRAPH) {
		begin_sub(r);
	} else {
		r->next = NULL;
		*(g->ready ? &g->last_ready->next : &g->ready) = r;
		g->last_ready = r;
		softdoca_pe_kick(g->pe);
	}
}

/* ---- the context ---- */

static void complete_instance(struct doca_graph *g, struct doca_graph_instance *i)
{
	struct task_watch *watch = i->watch;
	doca_error_t status = i->failed ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
	i->in_flight = false;
	if (watch)
		watch->landed(watch, status);
	else
		(status ? g->error_cb : g->done_cb)(i, i->user_data, g->user_data);
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_graph *g = graph_of(ctx);
	struct doca_graph_instance *i = g->ended;
	struct run *r = g->ready;
	if (i) {
		g->ended = i->next;
		complete_instance(g, i);
	} else if (r) {
		g->ready = r->next;
		end(r, r->instance->failed ? DOCA_SUCCESS : r->node->call(r->data));
	}
	return i || r;
}

static bool arm(struct doca_ctx *ctx)
{
	const struct doca_graph *g = graph_of(ctx);
	return g->ended || g->ready;
}

/* Its nodes' contexts have the fds. */
static const struct ctx_ops ops = {.progress = progress, .arm = arm};

/* ---- creation and destruction ---- */

static doca_error_t create(struct doca_pe *pe, struct doca_graph **graph)
{
	struct doca_graph *g = softdoca_object_new(OBJECT_GRAPH, sizeof *g);
	if (!g)
		return REFUSE_FOR("doca_graph_create", DOCA_ERROR_NO_MEMORY,
				  "no memory for a graph");
	softdoca_ctx_init(&g->ctx, NULL, &ops);
	object_become(&g->ctx, OBJECT_FREE); /* the program has no handle of it */
	pe_add(pe, &g->ctx);
	g->pe = pe;
	*graph = g;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_create(struct doca_pe *pe, struct doca_graph **graph)
{
	CHECK_OBJECT(pe, OBJECT_PE, "a progress engine");
	CHECK_OUT(graph);
	RETURN_INSIDE(pe, create(pe, graph));
}

static void free_graph(void *object)
{
	struct doca_graph *g = object;
	for (uint32_t k = 0; k < g->n_nodes; k++) {
		free(g->nodes[k]->after);
		softdoca_object_free(g->nodes[k]);
	}
	free(g->nodes);
	softdoca_object_free(g);
}

doca_error_t doca_graph_destroy(struct doca_graph *graph)
{
	CHECK_GRAPH(graph);
	return softdoca_ctx_destroy(&graph->ctx, DOCA_ERROR_BAD_STATE, free_graph, graph);
}

static doca_error_t set_conf(struct doca_graph *g, doca_graph_completion_cb_t done,
			     doca_graph_completion_cb_t failed, uint32_t n)
{
	TRY(refuse_if_started(g, "doca_graph_set_conf"));
	g->done_cb = done;
	g->error_cb = failed;
	g->max_instances = n;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_set_conf(struct doca_graph *graph,
				 doca_graph_completion_cb_t graph_completion_cb,
				 doca_graph_completion_cb_t graph_error_cb, uint32_t num_instances)
{
	CHECK_GRAPH(graph);
	if (!graph_completion_cb || !graph_error_cb || !num_instances)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL, or no instances");
	RETURN_INSIDE(graph->pe,
		      set_conf(graph, graph_completion_cb, graph_error_cb, num_instances));
}

doca_error_t doca_graph_set_user_data(struct doca_graph *graph, union doca_data user_data)
{
	CHECK_GRAPH(graph);
	TRY(refuse_if_started(graph, __func__));
	graph->user_data = user_data;
	return DOCA_SUCCESS;
}

GETTER(doca_graph_get_user_data, CHECK_GRAPH, const struct doca_graph, union doca_data,
       handle->user_data)

/* ---- nodes ---- */

/* Makes room for one more pointer in an array. */
static bool grown(void *array, uint32_t n)
{
	void **at = array, *more = realloc(*at, (n + 1) * sizeof(void *));
	if (more)
		*at = more;
	return more;
}

static doca_error_t add_node(struct doca_graph *g, struct doca_graph_node from, const char *func,
			     struct doca_graph_node **out)
{
	TRY(refuse_if_started(g, func));
	struct doca_graph_node *n = softdoca_object_new(OBJECT_GRAPH_NODE, sizeof *n);
	if (!n || !grown(&g->nodes, g->n_nodes)) {
		if (n)
			softdoca_object_free(n);
		return REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "no memory for a node");
	}
	from.o = n->o;
	from.graph = g;
	from.index = g->n_nodes;
	*n = from;
	g->nodes[g->n_nodes++] = *out = n;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_node_create_from_ctx(struct doca_graph *graph, const struct doca_ctx *ctx,
					     struct doca_graph_node **node)
{
	CHECK_GRAPH(graph);
	CHECK_OBJECT(ctx, OBJECT_CTX, "a context");
	CHECK_OUT(node);
	const struct doca_graph_node n = {.kind = NODE_CTX, .ctx = ctx};
	RETURN_INSIDE(graph->pe, add_node(graph, n, __func__, node));
}

doca_error_t doca_graph_node_create_from_user(struct doca_graph *graph,
					      doca_graph_user_node_cb_t cb,
					      struct doca_graph_node **node)
{
	CHECK_GRAPH(graph);
	CHECK_OUT(node);
	if (!cb)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the function is NULL");
	const struct doca_graph_node n = {.kind = NODE_USER, .call = cb};
	RETURN_INSIDE(graph->pe, add_node(graph, n, __func__, node));
}

/* Returns whether a graph is another or has it among its nodes' graphs. A graph of a node may have been
 * destroyed, and another one be in its place, so there may be circles: more graphs than any program nests
 * count as one. */
static bool contains(const struct doca_graph *g, const struct doca_graph *other, unsigned *visits_left)
{
	bool found = g == other || !*visits_left || !--*visits_left;
	for (uint32_t k = 0; k < g->n_nodes && !found; k++)
		found = g->nodes[k]->kind == NODE_GRAPH && object_is(g->nodes[k]->sub, OBJECT_GRAPH) &&
			contains(g->nodes[k]->sub, other, visits_left);
	return found;
}

static doca_error_t add_graph(struct doca_graph *g, struct doca_graph *sub, const char *func, struct doca_graph_node **out)
{
	unsigned visits = 4096;
	if (contains(sub, g, &visits))
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the graph would be a node of itself");
	const struct doca_graph_node n = {.kind = NODE_GRAPH, .sub = sub};
	return add_node(g, n, func, out);
}

doca_error_t doca_graph_node_create_from_graph(struct doca_graph *graph,
					       struct doca_graph *sub_graph,
					       struct doca_graph_node **node)
{
	CHECK_GRAPH(graph);
	CHECK_GRAPH(sub_graph);
	CHECK_OUT(node);
	if (!is_started(sub_graph))
		return REFUSE(DOCA_ERROR_BAD_STATE, "the graph of the node is not started");
	RETURN_INSIDE(graph->pe, add_graph(graph, sub_graph, __func__, node));
}

/* Returns whether all nodes can end: Kahn's algorithm. `order` has room for all nodes, `left` for a
 * count of each. */
static bool is_acyclic(const struct doca_graph *g, uint32_t *order, uint32_t *left)
{
	uint32_t found = 0;
	for (uint32_t k = 0; k < g->n_nodes; k++) {
		left[k] = g->nodes[k]->n_before;
		if (!left[k])
			order[found++] = k;
	}
	for (uint32_t k = 0; k < found; k++) {
		const struct doca_graph_node *n = g->nodes[order[k]];
		for (uint32_t a = 0; a < n->n_after; a++)
			if (!--left[n->after[a]->index])
				order[found++] = n->after[a]->index;
	}
	return found == g->n_nodes;
}

static doca_error_t check_order(const struct doca_graph *g, const char *func)
{
	uint32_t *space = calloc(g->n_nodes, 2 * sizeof *space);
	if (!space)
		return REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "no memory to check the graph");
	bool ok = is_acyclic(g, space, space + g->n_nodes);
	free(space);
	return ok ? DOCA_SUCCESS
		  : REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the dependencies form a circle");
}

static doca_error_t add_dependency(struct doca_graph *g, struct doca_graph_node *from,
				   struct doca_graph_node *to)
{
	const char *func = "doca_graph_add_dependency";
	doca_error_t error = refuse_if_started(g, func);
	for (uint32_t k = 0; k < from->n_after && !error; k++)
		if (from->after[k] == to) /* guess */
			error = REFUSE_FOR(func, DOCA_ERROR_ALREADY_EXIST, "the dependency exists");
	if (!error && !grown(&from->after, from->n_after))
		error = REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "no memory for a dependency");
	if (error)
		return error;
	from->after[from->n_after++] = to;
	to->n_before++;
	error = check_order(g, func);
	if (error) {
		from->n_after--;
		to->n_before--;
	}
	return error;
}

static bool is_node_of(const struct doca_graph_node *node, const struct doca_graph *g)
{
	return object_is(node, OBJECT_GRAPH_NODE) && node->graph == g;
}

doca_error_t doca_graph_add_dependency(struct doca_graph *graph, struct doca_graph_node *from,
				       struct doca_graph_node *to)
{
	CHECK_GRAPH(graph);
	if (!is_node_of(from, graph) || !is_node_of(to, graph))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p or %p is not a node of the graph",
			      (void *)from, (void *)to);
	RETURN_INSIDE(graph->pe, add_dependency(graph, from, to));
}

/* ---- start and stop ---- */

static const char *why_not_start(const struct doca_graph_node *n, const struct doca_pe *pe)
{
	if (n->kind == NODE_CTX && !object_is(n->ctx, OBJECT_CTX))
		return "a node's context was destroyed";
	if (n->kind == NODE_CTX && n->ctx->state != DOCA_CTX_STATE_RUNNING)
		return "a node's context is not started";
	const struct doca_pe *of_node = n->kind == NODE_CTX		      ? n->ctx->pe
					: n->kind == NODE_USER		      ? pe
					: object_is(n->sub, OBJECT_GRAPH) ? n->sub->pe
									      : NULL;
	return of_node == pe ? NULL : "a node's context or graph is not of the graph's engine"; /* guess */
}

static doca_error_t start(struct doca_graph *g)
{
	const char *func = "doca_graph_start";
	bool has_tasks = false;
	TRY(refuse_if_started(g, func));
	for (uint32_t k = 0; k < g->n_nodes; k++) {
		const char *why = why_not_start(g->nodes[k], g->pe);
		if (why)
			return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "%s", why);
		has_tasks |= g->nodes[k]->kind != NODE_USER; /* a started graph has some */
	}
	if (!has_tasks || !g->max_instances)
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "no node of a context, or no configuration");
	g->ctx.state = DOCA_CTX_STATE_RUNNING;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_start(struct doca_graph *graph)
{
	CHECK_GRAPH(graph);
	RETURN_INSIDE(graph->pe, start(graph));
}

static doca_error_t stop(struct doca_graph *g)
{
	if (g->n_instances)
		return REFUSE_FOR("doca_graph_stop", DOCA_ERROR_IN_USE, "the graph has %u instances",
				  g->n_instances);
	g->ctx.state = DOCA_CTX_STATE_IDLE;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_stop(struct doca_graph *graph)
{
	CHECK_GRAPH(graph);
	RETURN_INSIDE(graph->pe, stop(graph));
}

/* ---- instances ---- */

static doca_error_t create_instance(struct doca_graph *g, struct doca_graph_instance **out)
{
	const char *func = "doca_graph_instance_create";
	struct doca_graph_instance *i;
	if (!is_started(g))
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the graph is not started");
	if (g->n_instances == g->max_instances)
		return REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "the graph has its %u instances",
				  g->max_instances);
	i = softdoca_object_new(OBJECT_GRAPH_INSTANCE, sizeof *i + g->n_nodes * sizeof i->runs[0]);
	if (!i)
		return REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "no memory for an instance");
	i->graph = g;
	for (uint32_t k = 0; k < g->n_nodes; k++)
		i->runs[k] = (struct run){.watch = {landed}, .instance = i, .node = g->nodes[k]};
	g->n_instances++;
	*out = i;
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_instance_create(struct doca_graph *graph,
					struct doca_graph_instance **graph_instance)
{
	CHECK_GRAPH(graph);
	CHECK_OUT(graph_instance);
	RETURN_INSIDE(graph->pe, create_instance(graph, graph_instance));
}

/* Sets the data of a graph's node, or none. */
static void hold(struct run *r, struct doca_graph_instance *sub)
{
	if (r->sub)
		r->sub->holders--;
	if (sub)
		sub->holders++;
	r->sub = sub;
}

static doca_error_t destroy_instance(struct doca_graph_instance *i)
{
	if (i->in_flight || i->holders)
		return REFUSE_FOR("doca_graph_instance_destroy", DOCA_ERROR_IN_USE,
				  "the instance is %s", i->in_flight ? "in flight" : "the data of a node");
	for (uint32_t k = 0; k < i->graph->n_nodes; k++)
		if (i->runs[k].node->kind == NODE_GRAPH)
			hold(&i->runs[k], NULL);
	i->graph->n_instances--;
	softdoca_object_free(i);
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_instance_destroy(struct doca_graph_instance *graph_instance)
{
	CHECK_INSTANCE(graph_instance);
	RETURN_INSIDE(graph_instance->graph->pe, destroy_instance(graph_instance));
}

doca_error_t doca_graph_instance_set_user_data(struct doca_graph_instance *graph_instance,
					       union doca_data user_data)
{
	CHECK_INSTANCE(graph_instance);
	if (graph_instance->in_flight)
		return REFUSE(DOCA_ERROR_IN_USE, "the instance is in flight");
	graph_instance->user_data = user_data;
	return DOCA_SUCCESS;
}

GETTER(doca_graph_instance_get_user_data, CHECK_INSTANCE, const struct doca_graph_instance,
       union doca_data, handle->user_data)

static doca_error_t set_data(struct doca_graph_instance *i, const struct doca_graph_node *node,
			     void *data, const char *func)
{
	if (i->in_flight)
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the instance is in flight");
	if (node->kind == NODE_GRAPH)
		hold(&i->runs[node->index], data);
	else
		i->runs[node->index].data = data;
	return DOCA_SUCCESS;
}

static doca_error_t check_node(const struct doca_graph_node *node, const struct doca_graph_instance *i,
			       enum node_kind kind, const char *func)
{
	if (!object_is(node, OBJECT_GRAPH_NODE))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not a node", (const void *)node);
	if (!is_node_of(node, i->graph) || node->kind != kind)
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
				  "%p is not such a node of the instance's graph", (const void *)node);
	return DOCA_SUCCESS;
}

doca_error_t doca_graph_instance_set_ctx_node_data(struct doca_graph_instance *graph_instance,
						   const struct doca_graph_node *node,
						   struct doca_task *task)
{
	CHECK_INSTANCE(graph_instance);
	TRY(check_node(node, graph_instance, NODE_CTX, __func__));
	CHECK_OBJECT(task, OBJECT_TASK, "a task");
	if (task->ctx != node->ctx)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "%p is a task of another context", (void *)task);
	RETURN_INSIDE(graph_instance->graph->pe, set_data(graph_instance, node, task, __func__));
}

doca_error_t doca_graph_instance_set_user_node_data(struct doca_graph_instance *graph_instance,
						    const struct doca_graph_node *node,
						    void *cookie)
{
	CHECK_INSTANCE(graph_instance);
	TRY(check_node(node, graph_instance, NODE_USER, __func__));
	RETURN_INSIDE(graph_instance->graph->pe, set_data(graph_instance, node, cookie, __func__));
}

doca_error_t doca_graph_instance_set_sub_graph_node_data(
	struct doca_graph_instance *graph_instance, const struct doca_graph_node *node,
	struct doca_graph_instance *sub_graph_instance)
{
	CHECK_INSTANCE(graph_instance);
	CHECK_INSTANCE(sub_graph_instance);
	TRY(check_node(node, graph_instance, NODE_GRAPH, __func__));
	if (sub_graph_instance->graph != node->sub)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "an instance of another graph than the node's");
	if (sub_graph_instance->in_flight)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the node's instance is in flight");
	RETURN_INSIDE(graph_instance->graph->pe,
		      set_data(graph_instance, node, sub_graph_instance, __func__));
}

static doca_error_t submit(struct doca_graph_instance *i)
{
	doca_error_t error = may_launch(i, "doca_graph_instance_submit");
	if (!error)
		launch_instance(i, NULL);
	return error;
}

doca_error_t doca_graph_instance_submit(struct doca_graph_instance *graph_instance)
{
	CHECK_INSTANCE(graph_instance);
	RETURN_INSIDE(graph_instance->graph->pe, submit(graph_instance));
}
