// SPDX-License-Identifier: Apache-2.0
/* Pipes and their entries. The errors are guesses where doca_flow.h names no others. */
#include <stdio.h>
#include <string.h>

#include "flow.h"

struct doca_flow_pipe_cfg {
	struct object o;
	struct doca_flow_port *port;
	enum doca_flow_pipe_type type;
	bool is_root, has_match;
	uint32_t meta, mark;
	char name[NAME_MAX_BYTES];
	struct doca_flow_match match, mask;
};

#define CHECK_PIPE_CFG(c) CHECK_OBJECT(c, OBJECT_FLOW_PIPE_CFG, "a pipe configuration")
#define CHECK_ENTRY(e)	  CHECK_OBJECT(e, OBJECT_FLOW_ENTRY, "an entry of a pipe")

doca_error_t doca_flow_pipe_cfg_create(struct doca_flow_pipe_cfg **cfg, struct doca_flow_port *port)
{
	CHECK_OUT(cfg);
	CHECK_FLOW_PORT(port);
	struct doca_flow_pipe_cfg *c = softdoca_object_new(OBJECT_FLOW_PIPE_CFG, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a configuration");
	c->port = port;
	*cfg = c;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_cfg_destroy(struct doca_flow_pipe_cfg *cfg)
{
	CHECK_PIPE_CFG(cfg);
	softdoca_object_free(cfg);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_cfg_set_name(struct doca_flow_pipe_cfg *cfg, const char *name)
{
	CHECK_PIPE_CFG(cfg);
	CHECK_OUT(name);
	snprintf(cfg->name, sizeof cfg->name, "%s", name);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_cfg_set_type(struct doca_flow_pipe_cfg *cfg,
					 enum doca_flow_pipe_type type)
{
	CHECK_PIPE_CFG(cfg);
	if (type != DOCA_FLOW_PIPE_BASIC && type != DOCA_FLOW_PIPE_CONTROL)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "type %d: the known ones are BASIC, 0, and CONTROL, 1", (int)type);
	cfg->type = type;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_cfg_set_enable_strict_matching(struct doca_flow_pipe_cfg *cfg,
							   bool enable_strict_matching)
{
	CHECK_PIPE_CFG(cfg);
	(void)enable_strict_matching;
	return DOCA_SUCCESS;
}

SETTER(doca_flow_pipe_cfg_set_is_root, CHECK_PIPE_CFG, struct doca_flow_pipe_cfg, bool, is_root)

/* match_mask() for a mask that a program may leave out. */
static void mask_of(const struct doca_flow_match *match, const struct doca_flow_match *given,
		    struct doca_flow_match *mask)
{
	if (given)
		*mask = *given;
	else
		match_mask(match, mask);
}

doca_error_t doca_flow_pipe_cfg_set_match(struct doca_flow_pipe_cfg *cfg,
					  const struct doca_flow_match *match,
					  const struct doca_flow_match *match_mask)
{
	CHECK_PIPE_CFG(cfg);
	CHECK_OUT(match);
	cfg->match = *match;
	mask_of(match, match_mask, &cfg->mask);
	return DOCA_SUCCESS;
}

static doca_error_t check_monitor(const struct doca_flow_monitor *monitor)
{
	if (monitor && monitor->counter_type == DOCA_FLOW_RESOURCE_TYPE_SHARED)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there are no shared counters");
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_cfg_set_monitor(struct doca_flow_pipe_cfg *cfg,
					    const struct doca_flow_monitor *monitor)
{
	CHECK_PIPE_CFG(cfg);
	CHECK_OUT(monitor);
	return check_monitor(monitor);
}

doca_error_t doca_flow_pipe_cfg_set_actions(struct doca_flow_pipe_cfg *cfg,
					    struct doca_flow_actions *const *actions,
					    struct doca_flow_actions *const *actions_masks,
					    struct doca_flow_action_descs *const *action_descs,
					    size_t nr_actions)
{
	CHECK_PIPE_CFG(cfg);
	CHECK_OUT(actions);
	if (nr_actions != 1 || !actions[0] || actions_masks || action_descs)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%zu actions, masks at %p, descriptions at %p: there may be one action, and "
			      "the others must be NULL",
			      nr_actions, (void *)actions_masks, (void *)action_descs);
	cfg->meta = actions[0]->meta.pkt_meta;
	cfg->mark = actions[0]->meta.mark;
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_pipe_create(const struct doca_flow_pipe_cfg *cfg,
				   const struct doca_flow_fwd *fwd,
				   const struct doca_flow_fwd *fwd_miss,
				   struct doca_flow_pipe **pipe)
{
	struct forward forward, miss;
	CHECK_PIPE_CFG(cfg);
	CHECK_OUT(pipe);
	CHECK_FLOW_PORT(cfg->port);
	doca_error_t error = forward_check(fwd, cfg->port, &forward);
	if (!error)
		error = forward_check(fwd_miss, cfg->port, &miss);
	if (error)
		return error;
	if (cfg->is_root && cfg->port->root)
		return REFUSE(DOCA_ERROR_ALREADY_EXIST, "the port has a root pipe");
	struct doca_flow_pipe *p = softdoca_object_new(OBJECT_FLOW_PIPE, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a pipe");
	p->port = cfg->port;
	p->type = cfg->type;
	p->is_root = cfg->is_root;
	p->meta = cfg->meta;
	p->mark = cfg->mark;
	memcpy(p->name, cfg->name, sizeof p->name);
	p->match = cfg->match;
	p->mask = cfg->mask;
	p->forward = forward;
	p->miss = miss;
	softdoca_port_lock(p->port->port);
	p->next = p->port->pipes;
	p->port->pipes = p;
	if (p->is_root)
		p->port->root = p;
	softdoca_port_unlock(p->port->port);
	*pipe = p;
	return DOCA_SUCCESS;
}

/* Call with the lock held. */
static void destroy(struct doca_flow_pipe *p)
{
	struct doca_flow_pipe **at = &p->port->pipes;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->port->root == p)
		p->port->root = NULL;
	while (p->entries) {
		struct doca_flow_pipe_entry *e = p->entries;
		p->entries = e->next;
		softdoca_object_free(e);
	}
	softdoca_object_free(p);
}

void doca_flow_pipe_destroy(struct doca_flow_pipe *pipe)
{
	if (!object_is(pipe, OBJECT_FLOW_PIPE)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a pipe", (void *)pipe);
		return;
	}
	struct port *port = pipe->port->port;
	softdoca_port_lock(port);
	destroy(pipe);
	softdoca_port_unlock(port);
}

void pipes_destroy(struct doca_flow_port *port)
{
	softdoca_port_lock(port->port);
	while (port->pipes)
		destroy(port->pipes);
	softdoca_port_unlock(port->port);
}

/* ---- entries ---- */

/* Returns a number of a pipe's action for an entry. */
static uint32_t number_of(uint32_t of_pipe, uint32_t of_entry)
{
	return of_pipe == UINT32_MAX ? of_entry : of_pipe;
}

static doca_error_t add(struct doca_flow_pipe *pipe, const struct rule *rule, uint32_t priority,
			const struct doca_flow_actions *actions,
			const struct doca_flow_fwd *fwd, struct doca_flow_pipe_entry **entry)
{
	struct forward forward;
	TRY(forward_check(fwd, pipe->port, &forward));
	struct doca_flow_pipe_entry *e = softdoca_object_new(OBJECT_FLOW_ENTRY, sizeof *e);
	if (!e)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an entry");
	e->pipe = pipe;
	e->priority = priority;
	e->rule = *rule;
	e->forward = forward;
	e->meta = number_of(pipe->meta, actions ? actions->meta.pkt_meta : 0);
	e->mark = number_of(pipe->mark, actions ? actions->meta.mark : 0);
	softdoca_port_lock(pipe->port->port);
	struct doca_flow_pipe_entry **at = &pipe->entries;
	while (*at && (*at)->priority <= priority)
		at = &(*at)->next;
	e->next = *at;
	*at = e;
	softdoca_port_unlock(pipe->port->port);
	*entry = e;
	return DOCA_SUCCESS;
}

static doca_error_t check_type(const struct doca_flow_pipe *pipe, enum doca_flow_pipe_type type)
{
	if (pipe->type == type)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_INVALID_VALUE, "the pipe's type is %s",
		      pipe->type == DOCA_FLOW_PIPE_BASIC ? "BASIC" : "CONTROL");
}

static doca_error_t add_basic(struct doca_flow_pipe *pipe, const struct doca_flow_match *match,
			      uint8_t action_idx, const struct doca_flow_actions *actions,
			      const struct doca_flow_monitor *monitor,
			      const struct doca_flow_fwd *fwd, struct doca_flow_pipe_entry **entry)
{
	struct rule rule;
	CHECK_PIPE(pipe);
	CHECK_OUT(entry);
	doca_error_t error = check_type(pipe, DOCA_FLOW_PIPE_BASIC);
	if (!error)
		error = check_monitor(monitor);
	if (error)
		return error;
	if (action_idx)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "action %u: a pipe has one, 0", action_idx);
	match_fill(pipe, match, &rule);
	return add(pipe, &rule, 0, actions, fwd, entry);
}

doca_error_t doca_flow_pipe_basic_add_entry(uint16_t pipe_queue, struct doca_flow_pipe *pipe,
					    const struct doca_flow_match *match, uint8_t action_idx,
					    const struct doca_flow_actions *actions,
					    const struct doca_flow_monitor *monitor,
					    const struct doca_flow_fwd *fwd, uint32_t flags,
					    void *usr_ctx, struct doca_flow_pipe_entry **entry)
{
	TRY(flow_check_queue(pipe_queue, __func__));
	(void)flags;
	(void)usr_ctx;
	return add_basic(pipe, match, action_idx, actions, monitor, fwd, entry);
}

doca_error_t doca_flow_pipe_add_entry(uint16_t pipe_queue, struct doca_flow_pipe *pipe,
				      const struct doca_flow_match *match, uint8_t action_idx,
				      const struct doca_flow_actions *actions,
				      const struct doca_flow_monitor *monitor,
				      const struct doca_flow_fwd *fwd, uint32_t flags, void *usr_ctx,
				      struct doca_flow_pipe_entry **entry)
{
	TRY(flow_check_queue(pipe_queue, __func__));
	(void)flags;
	(void)usr_ctx;
	return add_basic(pipe, match, action_idx, actions, monitor, fwd, entry);
}

doca_error_t doca_flow_pipe_control_add_entry(
	uint16_t pipe_queue, struct doca_flow_pipe *pipe, const struct doca_flow_match *match,
	const struct doca_flow_match *match_mask, const struct doca_flow_match_condition *condition,
	const struct doca_flow_actions *actions, const struct doca_flow_actions *actions_mask,
	const struct doca_flow_action_descs *action_descs, const struct doca_flow_monitor *monitor,
	uint32_t priority, const struct doca_flow_fwd *fwd, void *usr_ctx,
	struct doca_flow_pipe_entry **entry)
{
	struct rule rule = {0};
	CHECK_PIPE(pipe);
	CHECK_OUT(entry);
	TRY(flow_check_queue(pipe_queue, __func__));
	(void)usr_ctx;
	doca_error_t error = check_type(pipe, DOCA_FLOW_PIPE_CONTROL);
	if (!error)
		error = check_monitor(monitor);
	if (error)
		return error;
	if (condition || actions || actions_mask || action_descs)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "entries have no conditions and no actions");
	if (match) {
		rule.value = *match;
		mask_of(match, match_mask, &rule.mask);
	}
	return add(pipe, &rule, priority, NULL, fwd, entry);
}

doca_error_t doca_flow_pipe_remove_entry(uint16_t pipe_queue, uint32_t flags,
					 struct doca_flow_pipe_entry *entry)
{
	CHECK_ENTRY(entry);
	TRY(flow_check_queue(pipe_queue, __func__));
	(void)flags;
	struct port *port = entry->pipe->port->port;
	softdoca_port_lock(port);
	struct doca_flow_pipe_entry **at = &entry->pipe->entries;
	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	softdoca_object_free(entry);
	softdoca_port_unlock(port);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_entries_process(struct doca_flow_port *port, uint16_t pipe_queue,
				       uint64_t timeout, uint32_t max_processed_entries)
{
	CHECK_FLOW_PORT(port);
	TRY(flow_check_queue(pipe_queue, __func__));
	(void)timeout;
	(void)max_processed_entries;
	return DOCA_SUCCESS;
}

static doca_error_t query(struct port *port, const struct counter *counter,
			  struct doca_flow_resource_query *out)
{
	CHECK_OUT(out);
	softdoca_port_lock(port);
	out->counter.total_pkts = counter->frames;
	out->counter.total_bytes = counter->bytes;
	softdoca_port_unlock(port);
	return DOCA_SUCCESS;
}

doca_error_t doca_flow_resource_query_entry(struct doca_flow_pipe_entry *entry,
					    struct doca_flow_resource_query *query_stats)
{
	CHECK_ENTRY(entry);
	return query(entry->pipe->port->port, &entry->counter, query_stats);
}

doca_error_t doca_flow_resource_query_pipe_miss(struct doca_flow_pipe *pipe,
						struct doca_flow_resource_query *query_stats)
{
	CHECK_PIPE(pipe);
	return query(pipe->port->port, &pipe->missed, query_stats);
}
