// SPDX-License-Identifier: Apache-2.0
/* Steering: called by a port's thread for each frame, to find where the rules forward it. */
#include <stdio.h>
#include <string.h>

#include "flow.h"

static struct doca_flow_target *kernel_target(void)
{
	static struct object target;
	return (struct doca_flow_target *)&target;
}

doca_error_t doca_flow_get_target(enum doca_flow_target_type type, struct doca_flow_target **target)
{
	if (type != DOCA_FLOW_TARGET_KERNEL)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "target %d: the known one is KERNEL, %d",
			      (int)type, DOCA_FLOW_TARGET_KERNEL);
	return SET_OUT(target, kernel_target());
}

static doca_error_t check_rss(const struct doca_flow_fwd *fwd, struct forward *out)
{
	if (fwd->rss_type == DOCA_FLOW_RESOURCE_TYPE_SHARED)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there is no shared RSS");
	if (!fwd->rss.queues_array || fwd->rss.nr_queues < 1 || fwd->rss.nr_queues > RSS_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%d queues at %p: the number must be 1 to %d",
			      fwd->rss.nr_queues, (void *)fwd->rss.queues_array, RSS_MAX);
	out->n = (uint16_t)fwd->rss.nr_queues;
	for (uint16_t i = 0; i < out->n; i++) {
		if (fwd->rss.queues_array[i] >= PORT_QUEUES)
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "queue number %u exceeds %d",
				      fwd->rss.queues_array[i], PORT_QUEUES - 1);
		out->queues[i] = fwd->rss.queues_array[i];
	}
	return DOCA_SUCCESS;
}

doca_error_t forward_check(const struct doca_flow_fwd *fwd, const struct doca_flow_port *port,
			   struct forward *out)
{
	*out = (struct forward){.type = fwd ? fwd->type : DOCA_FLOW_FWD_NONE};
	switch (out->type) {
	case DOCA_FLOW_FWD_NONE:
	case DOCA_FLOW_FWD_DROP:
		return DOCA_SUCCESS;
	case DOCA_FLOW_FWD_RSS:
		return check_rss(fwd, out);
	case DOCA_FLOW_FWD_PIPE:
		CHECK_PIPE(fwd->next_pipe);
		if (fwd->next_pipe->port != port)
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is a pipe of another port",
				      (void *)fwd->next_pipe);
		out->pipe = fwd->next_pipe;
		return DOCA_SUCCESS;
	case DOCA_FLOW_FWD_TARGET:
		if (fwd->target == kernel_target())
			return DOCA_SUCCESS;
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is no target of doca_flow_get_target()", (void *)fwd->target);
	default:
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "forward type %d: the known ones are NONE, RSS, PIPE, DROP and TARGET",
			      (int)out->type);
	}
}

static void count(struct counter *c, size_t size)
{
	c->frames++;
	c->bytes += size;
}

/* Appends a pipe's name and the number of its entry (0: none) to `rule`, the text that lists what a
 * frame matched. */
static void append_match(char *rule, const struct doca_flow_pipe *pipe, uint32_t entry)
{
	const size_t used = rule ? strlen(rule) : 0;
	const char *name = pipe->name[0] ? pipe->name : "pipe";
	if (!rule)
		return;
	rule += used;
	if (entry)
		snprintf(rule, RULE_MAX - used, "%s%s entry %u", used ? " > " : "", name, entry);
	else
		snprintf(rule, RULE_MAX - used, "%s%s no entry", used ? " > " : "", name);
}

/* Returns where a pipe forwards a frame. */
static const struct forward *find(struct doca_flow_pipe *pipe, const struct parsed *p, size_t size,
				  struct steered *s)
{
	uint32_t number = 1;
	for (struct doca_flow_pipe_entry *e = pipe->entries; e; e = e->next, number++)
		if (match_frame(&e->rule, p)) {
			count(&e->counter, size);
			append_match(s->rule, pipe, number);
			s->meta = e->meta ? e->meta : s->meta;
			s->mark = e->mark ? e->mark : s->mark;
			return e->forward.type == DOCA_FLOW_FWD_NONE ? &pipe->forward : &e->forward;
		}
	count(&pipe->missed, size);
	append_match(s->rule, pipe, 0);
	return &pipe->miss;
}

/* FNV-1a; not an adapter's Toeplitz hash, so that another queue may get a connection. */
static uint32_t fnv1a(uint32_t h, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)bytes)[i]) * 16777619u;
	return h;
}

/* Returns a number that is the same for all frames of a connection: of its addresses and ports. */
static uint32_t rss_hash(const struct parsed *p)
{
	const struct doca_flow_match *m = &p->fields;
	uint32_t h = fnv1a(2166136261u, &m->outer.ip4, 8);
	h = fnv1a(h, m->outer.ip6.src_ip, 32);
	h = fnv1a(h, &m->outer.tcp.l4_port, 4);
	h = fnv1a(h, &m->outer.udp.l4_port, 4);
	return h ^ h >> 16;
}

int steer_frame(void *port, const uint8_t *frame, size_t size, struct steered *s)
{
	struct doca_flow_pipe *pipe = ((struct doca_flow_port *)port)->root;
	struct parsed p;
	match_parse(frame, size, &p);
	for (int i = 0; i < CHAIN_MAX && object_is(pipe, OBJECT_FLOW_PIPE); i++) {
		const struct forward *f = find(pipe, &p, size, s);
		if (f->type == DOCA_FLOW_FWD_RSS) {
			if (f->n > 1 || s->wants_hash)
				s->hash = rss_hash(&p);
			return f->queues[f->n > 1 ? s->hash % f->n : 0];
		}
		if (f->type != DOCA_FLOW_FWD_PIPE)
			return PORT_DROP;
		pipe = f->pipe;
	}
	return PORT_DROP;
}
