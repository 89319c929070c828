/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: tasks and functions of the program that run in the order of their dependencies.
 *
 *   graph      create, create nodes, add dependencies, set_conf, start
 *   instance   create, set the data of each node, submit; again once it is complete
 *
 * doca_pe_progress() runs the functions of user nodes, and at the end calls the callback for
 * completion or, if a node failed, that for errors: nodes that have not begun by then do not run.
 * The callbacks of tasks that a graph submits are not called. Only one thread at a time may use a
 * graph, its engine and its contexts. Every function returns INVALID_VALUE for an invalid graph,
 * node, instance, context, task or output pointer, and IN_USE if another thread is in the engine.
 */
#ifndef DOCA_GRAPH_H
#define DOCA_GRAPH_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_error.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_graph;
struct doca_graph_instance;
struct doca_graph_node;

typedef void (*doca_graph_completion_cb_t)(struct doca_graph_instance *instance,
					   union doca_data instance_user_data,
					   union doca_data graph_user_data);

/* A user node's function. An error fails the instance. */
typedef doca_error_t (*doca_graph_user_node_cb_t)(void *cookie);

/* ---- graphs ---- */

/* Creates a graph. Errors: NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_create(struct doca_pe *pe, struct doca_graph **graph);

/* Frees the graph and its nodes. Errors: BAD_STATE if it is started; IN_USE if it has instances. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_destroy(struct doca_graph *graph);

/* Sets the callbacks, and the number of instances at a time. Errors: INVALID_VALUE for NULL or 0;
 * BAD_STATE if the graph is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_set_conf(struct doca_graph *graph,
		doca_graph_completion_cb_t graph_completion_cb,
		doca_graph_completion_cb_t graph_error_cb, uint32_t num_instances);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_set_user_data(struct doca_graph *graph, union doca_data user_data);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_get_user_data(const struct doca_graph *graph, union doca_data *user_data);

/* Add a node: a task of a context, also that of a sync event; a function; an instance of another
 * graph. Errors: BAD_STATE if the graph is started; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_node_create_from_ctx(struct doca_graph *graph, const struct doca_ctx *ctx,
		struct doca_graph_node **node);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_node_create_from_user(struct doca_graph *graph,
		doca_graph_user_node_cb_t cb, struct doca_graph_node **node);

/* Errors besides: BAD_STATE if the sub-graph is not started. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_node_create_from_graph(struct doca_graph *graph,
		struct doca_graph *sub_graph, struct doca_graph_node **node);

/* Lets `to` run after `from`. Errors: INVALID_VALUE for nodes of another graph; ALREADY_EXIST; NOT_PERMITTED for a
 * circle; BAD_STATE if the graph is started; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_add_dependency(struct doca_graph *graph, struct doca_graph_node *from,
		struct doca_graph_node *to);

/* Starts the graph. Errors: BAD_STATE if it is started, has no nodes or no configuration, or if a
 * context or graph of a node is not of its engine. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_start(struct doca_graph *graph);

/* Stops the graph. Errors: IN_USE if an instance is in flight. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_stop(struct doca_graph *graph);

/* ---- instances ---- */

/* Creates an instance. Errors: BAD_STATE unless the graph is started; NO_MEMORY, also if there are
 * as many as set_conf() allows. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_create(struct doca_graph *graph,
		struct doca_graph_instance **graph_instance);

/* Frees the instance, but not its tasks. Errors: IN_USE if it is in flight. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_destroy(struct doca_graph_instance *graph_instance);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_set_user_data(struct doca_graph_instance *graph_instance,
		union doca_data user_data);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_get_user_data(const struct doca_graph_instance *graph_instance,
		union doca_data *user_data);

/* Set the data of a node: a task of its context, the argument of its function (initially NULL), an
 * instance of its graph. Errors: NOT_PERMITTED for another kind of node, or a task or instance of
 * another context or graph; BAD_STATE if the instance is in flight. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_set_ctx_node_data(struct doca_graph_instance *graph_instance,
		const struct doca_graph_node *node, struct doca_task *task);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_set_user_node_data(struct doca_graph_instance *graph_instance,
		const struct doca_graph_node *node, void *cookie);

DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_set_sub_graph_node_data(
		struct doca_graph_instance *graph_instance, const struct doca_graph_node *node,
		struct doca_graph_instance *sub_graph_instance);

/* Starts the nodes without dependencies. Errors: IN_USE if the instance is in flight; BAD_STATE if the graph
 * is not started, or a node lacks its task or instance. */
DOCA_EXPERIMENTAL
doca_error_t doca_graph_instance_submit(struct doca_graph_instance *graph_instance);

#ifdef __cplusplus
}
#endif

#endif
