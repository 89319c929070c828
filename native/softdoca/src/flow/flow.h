/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of libdoca_flow. A port's lock guards its pipes and their entries. */
#ifndef SOFTDOCA_FLOW_H
#define SOFTDOCA_FLOW_H

#include "doca_flow.h"
#include "port/port.h"

enum { CHAIN_MAX = 16, RSS_MAX = 64, NAME_MAX_BYTES = 32 };

#define CHECK_FLOW_PORT(p) CHECK_OBJECT(p, OBJECT_FLOW_PORT, "a flow port")
#define CHECK_PIPE(p)	   CHECK_OBJECT(p, OBJECT_FLOW_PIPE, "a pipe")

/* flow_port.c: INVALID_VALUE unless doca_flow_cfg_set_pipe_queues() made the queue, or was not called. */
doca_error_t flow_check_queue(uint16_t pipe_queue, const char *func);

/* A checked doca_flow_fwd. */
struct forward {
	enum doca_flow_fwd_type type;
	struct doca_flow_pipe *pipe;
	uint16_t n, queues[RSS_MAX];
};

struct counter {
	uint64_t frames, bytes;
};

/* value: of the fields to compare, mask: their bits. */
struct rule {
	struct doca_flow_match value, mask;
};

struct doca_flow_pipe_entry {
	struct object o;
	struct doca_flow_pipe_entry *next; /* in the order in which they are compared */
	struct doca_flow_pipe *pipe;
	uint32_t priority;
	struct rule rule;
	struct forward forward;
	struct counter counter;
	uint32_t meta, mark; /* as the action says; 0: none */
};

struct doca_flow_pipe {
	struct object o;
	struct doca_flow_pipe *next; /* of the port */
	struct doca_flow_port *port;
	enum doca_flow_pipe_type type;
	bool is_root;
	char name[NAME_MAX_BYTES]; /* for captures, perhaps cut */
	uint32_t meta, mark; /* of the action; 0: none, UINT32_MAX: that of the entry */
	struct doca_flow_match match, mask; /* mask: as given, or of the fields that are not 0 */
	struct forward forward, miss;
	struct counter missed;
	struct doca_flow_pipe_entry *entries;
};

struct doca_flow_port {
	struct object o;
	struct doca_flow_port *next;
	struct doca_dev *dev;
	struct port *port;
	struct doca_flow_pipe *pipes, *root;
};

/* match.c */
/* Stores the bits of all fields of `match` that are not 0. */
void match_mask(const struct doca_flow_match *match, struct doca_flow_match *mask);
/* Stores a pipe's rule for an entry, whose values take the place of the pipe's fields of all ones. */
void match_fill(const struct doca_flow_pipe *pipe, const struct doca_flow_match *entry,
		struct rule *rule);
/* A frame's fields, and which of its headers are whole. */
struct parsed {
	struct doca_flow_match fields;
	uint32_t headers;
};
void match_parse(const uint8_t *frame, size_t size, struct parsed *p);
bool match_frame(const struct rule *rule, const struct parsed *p);

/* steer.c */
doca_error_t forward_check(const struct doca_flow_fwd *fwd, const struct doca_flow_port *port,
			   struct forward *out);
int steer_frame(void *port, const uint8_t *frame, size_t size, struct steered *s);

/* pipe.c: destroys all pipes of a port. */
void pipes_destroy(struct doca_flow_port *port);

#endif
