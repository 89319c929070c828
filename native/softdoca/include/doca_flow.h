/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steering of received frames to Ethernet queues: ports, and pipes of rules that match a frame and
 * forward it to queues, to another pipe, to the machine's stack, or nowhere. There is a rule for each
 * frame from the root pipe on; without one, or behind a chain of 16 pipes, a frame is dropped.
 *
 * A match has the fields of softdoca alone, so that a program that sets another one does not compile.
 * Values are in network byte order; a field that is 0 is not compared, unless a mask says so. A
 * condition on a header that a frame does not have, or not as a whole, is not met.
 *
 * The library is not thread-safe, apart from the port's own thread. Functions return INVALID_VALUE for
 * an invalid handle or output pointer, and NOT_SUPPORTED for what they do not know.
 */
#ifndef DOCA_FLOW_H
#define DOCA_FLOW_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_flow_cfg;
struct doca_flow_port_cfg;
struct doca_flow_port;
struct doca_flow_pipe_cfg;
struct doca_flow_pipe;
struct doca_flow_pipe_entry;
struct doca_flow_target;
struct doca_flow_match_condition;
struct doca_flow_action_descs;

#define DOCA_FLOW_ETHER_TYPE_IPV4 0x0800
#define DOCA_FLOW_ETHER_TYPE_IPV6 0x86dd

/* What the parser found in a frame. */
enum doca_flow_l3_meta {
	DOCA_FLOW_L3_META_NONE = 0,
	DOCA_FLOW_L3_META_IPV4 = 1,
	DOCA_FLOW_L3_META_IPV6 = 2,
};
enum doca_flow_l4_meta {
	DOCA_FLOW_L4_META_NONE = 0,
	DOCA_FLOW_L4_META_TCP = 1,
	DOCA_FLOW_L4_META_UDP = 2,
	DOCA_FLOW_L4_META_ICMP = 3,
	DOCA_FLOW_L4_META_ESP = 4,
};
enum doca_flow_l3_type {
	DOCA_FLOW_L3_TYPE_NONE = 0,
	DOCA_FLOW_L3_TYPE_IP4 = 1,
	DOCA_FLOW_L3_TYPE_IP6 = 2,
};
enum doca_flow_l4_type_ext {
	DOCA_FLOW_L4_TYPE_EXT_NONE = 0,
	DOCA_FLOW_L4_TYPE_EXT_TCP = 1,
	DOCA_FLOW_L4_TYPE_EXT_UDP = 2,
	DOCA_FLOW_L4_TYPE_EXT_ICMP = 3,
	DOCA_FLOW_L4_TYPE_EXT_ICMP6 = 4,
};

enum doca_flow_match_tcp_flags {
	DOCA_FLOW_MATCH_TCP_FLAG_FIN = 1 << 0,
	DOCA_FLOW_MATCH_TCP_FLAG_SYN = 1 << 1,
	DOCA_FLOW_MATCH_TCP_FLAG_RST = 1 << 2,
	DOCA_FLOW_MATCH_TCP_FLAG_PSH = 1 << 3,
	DOCA_FLOW_MATCH_TCP_FLAG_ACK = 1 << 4,
	DOCA_FLOW_MATCH_TCP_FLAG_URG = 1 << 5,
};

struct doca_flow_l4_port {
	uint16_t src_port, dst_port;
};

struct doca_flow_match {
	struct {
		enum doca_flow_l3_meta outer_l3_type;
		enum doca_flow_l4_meta outer_l4_type;
	} parser_meta;
	struct {
		struct {
			uint8_t src_mac[6], dst_mac[6];
			uint16_t type;
		} eth;
		enum doca_flow_l3_type l3_type;
		struct {
			uint32_t src_ip, dst_ip;
			uint8_t next_proto;
		} ip4;
		struct {
			uint32_t src_ip[4], dst_ip[4];
			uint8_t next_proto;
		} ip6;
		enum doca_flow_l4_type_ext l4_type_ext;
		struct {
			struct doca_flow_l4_port l4_port;
			uint8_t flags;
		} tcp;
		struct {
			struct doca_flow_l4_port l4_port;
		} udp;
		struct {
			uint8_t type, code;
		} icmp;
	} outer;
};

/* What a pipe does to the frames that match it: sets the numbers that a receive queue of the CPU passes
 * on, in network byte order: pkt_meta (doca_eth_rxq_set_metadata_num), and mark, the flow tag
 * (doca_eth_rxq_set_flow_tag). */
struct doca_flow_actions {
	struct {
		uint32_t pkt_meta;
		DOCA_OF_flow_actions_mark uint32_t mark;
	} meta;
};

enum doca_flow_fwd_type {
	DOCA_FLOW_FWD_NONE = 0,
	DOCA_FLOW_FWD_RSS = 1,
	DOCA_FLOW_FWD_PORT = 2,
	DOCA_FLOW_FWD_PIPE = 3,
	DOCA_FLOW_FWD_DROP = 4,
	DOCA_FLOW_FWD_TARGET = 5,
};

enum doca_flow_resource_type {
	DOCA_FLOW_RESOURCE_TYPE_NONE = 0,
	DOCA_FLOW_RESOURCE_TYPE_SHARED = 1,
	DOCA_FLOW_RESOURCE_TYPE_NON_SHARED = 2,
};

/* What of a frame selects one of several queues; softdoca always uses addresses and ports. */
enum doca_flow_rss_type {
	DOCA_FLOW_RSS_IPV4 = 1 << 0,
	DOCA_FLOW_RSS_IPV6 = 1 << 1,
	DOCA_FLOW_RSS_UDP = 1 << 2,
	DOCA_FLOW_RSS_TCP = 1 << 3,
};

enum doca_flow_target_type { DOCA_FLOW_TARGET_KERNEL = 0 };

/* Where a frame goes. rss: to the receive queues with these numbers. */
struct doca_flow_fwd {
	enum doca_flow_fwd_type type;
	enum doca_flow_resource_type rss_type;
#if DOCA_FORM_flow_fwd
	uint32_t rss_outer_flags, rss_inner_flags;
	uint16_t *rss_queues;
	int num_of_queues;
#else
	struct {
		uint32_t outer_flags, inner_flags;
		uint16_t *queues_array;
		int nr_queues;
	} rss;
#endif
	uint16_t port_id;
	struct doca_flow_pipe *next_pipe;
	struct doca_flow_target *target;
};

struct doca_flow_monitor {
	enum doca_flow_resource_type counter_type;
};

enum doca_flow_pipe_type {
	DOCA_FLOW_PIPE_BASIC = 0,
	DOCA_FLOW_PIPE_CONTROL = 1,
};

enum doca_flow_entry_flags {
	DOCA_FLOW_ENTRY_FLAGS_NO_WAIT DOCA_OF_FLOW_ENTRY_FLAGS = 0,
	DOCA_FLOW_ENTRY_FLAGS_WAIT_FOR_BATCH DOCA_OF_FLOW_ENTRY_FLAGS = 1,
	DOCA_FLOW_NO_WAIT DOCA_OF_FLOW_NO_WAIT = 0,
	DOCA_FLOW_WAIT_FOR_BATCH DOCA_OF_FLOW_WAIT_FOR_BATCH = 1,
};

struct doca_flow_resource_query {
	struct {
		uint64_t total_bytes, total_pkts;
	} counter;
};

/* ---- the library ---- */

DOCA_EXPERIMENTAL
doca_error_t doca_flow_cfg_create(struct doca_flow_cfg **cfg);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_cfg_destroy(struct doca_flow_cfg *cfg);

/* Sets the number of threads that add entries. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_cfg_set_pipe_queues(struct doca_flow_cfg *cfg, uint16_t pipe_queues);

/* Sets the mode, "vnf" with further words behind commas. Errors: NOT_SUPPORTED for "switch" and
 * others. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_cfg_set_mode_args(struct doca_flow_cfg *cfg, const char *mode_args);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_cfg_set_nr_counters(struct doca_flow_cfg *cfg, uint32_t nr_counters);

/* Errors: ALREADY_EXIST for a second call. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_init(struct doca_flow_cfg *cfg);

/* Stops all ports. */
DOCA_EXPERIMENTAL
void doca_flow_destroy(void);

/* ---- ports ---- */

DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_cfg_create(struct doca_flow_port_cfg **cfg);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_cfg_destroy(struct doca_flow_port_cfg *cfg);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_cfg_set_port_id(struct doca_flow_port_cfg *cfg, uint16_t port_id);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_cfg_set_dev(struct doca_flow_port_cfg *cfg, void *dev);

/* Without effect: the number of a DPDK port. doca_flow_port_cfg_set_dev() names the device. */
DOCA_EXPERIMENTAL
DOCA_OF_flow_port_cfg_set_devargs
doca_error_t doca_flow_port_cfg_set_devargs(struct doca_flow_port_cfg *cfg, const char *devargs);

/* Starts the port of a device. Errors: BAD_STATE before doca_flow_init() or without a device;
 * ALREADY_EXIST if the device has one; and as doca_eth_txq_as_doca_ctx() says. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_start(const struct doca_flow_port_cfg *cfg, struct doca_flow_port **port);

/* Destroys the port with its pipes. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_port_stop(struct doca_flow_port *port);

/* ---- pipes ---- */

DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_create(struct doca_flow_pipe_cfg **cfg, struct doca_flow_port *port);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_destroy(struct doca_flow_pipe_cfg *cfg);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_name(struct doca_flow_pipe_cfg *cfg, const char *name);

/* Errors: NOT_SUPPORTED for other types than BASIC and CONTROL. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_type(struct doca_flow_pipe_cfg *cfg,
					 enum doca_flow_pipe_type type);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_is_root(struct doca_flow_pipe_cfg *cfg, bool is_root);

/* Without effect: matches are always strict. */
DOCA_EXPERIMENTAL
DOCA_OF_flow_pipe_cfg_set_enable_strict_matching
doca_error_t doca_flow_pipe_cfg_set_enable_strict_matching(struct doca_flow_pipe_cfg *cfg,
							   bool enable_strict_matching);

/* Sets what a BASIC pipe compares. A field whose bits are all set is compared with the entry's value.
 * match_mask: NULL, or the bits to compare. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_match(struct doca_flow_pipe_cfg *cfg,
					  const struct doca_flow_match *match,
					  const struct doca_flow_match *match_mask);

/* Entries are always counted. Errors: NOT_SUPPORTED for shared counters. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_monitor(struct doca_flow_pipe_cfg *cfg,
					    const struct doca_flow_monitor *monitor);

/* Sets the actions of a BASIC pipe, of which there is one. A number whose bits are all set is taken from
 * the entry. The masks and descs must be NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_cfg_set_actions(struct doca_flow_pipe_cfg *cfg,
					    struct doca_flow_actions *const *actions,
					    struct doca_flow_actions *const *actions_masks,
					    struct doca_flow_action_descs *const *action_descs,
					    size_t nr_actions);

/* Creates a pipe. fwd: for entries of a BASIC pipe without one of their own; NULL: none. fwd_miss: for
 * frames that match no entry; NULL drops them. Errors: NOT_SUPPORTED for PORT and for shared RSS;
 * ALREADY_EXIST for a second root. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_create(const struct doca_flow_pipe_cfg *cfg,
				   const struct doca_flow_fwd *fwd,
				   const struct doca_flow_fwd *fwd_miss,
				   struct doca_flow_pipe **pipe);

/* Destroys a pipe with its entries. What others forward to it is dropped from then on. */
DOCA_EXPERIMENTAL
void doca_flow_pipe_destroy(struct doca_flow_pipe *pipe);

/* Adds an entry to a BASIC pipe, at once. actions: NULL, or where the pipe's ask for its value. */
DOCA_EXPERIMENTAL
DOCA_OF_flow_pipe_basic_add_entry
doca_error_t doca_flow_pipe_basic_add_entry(uint16_t pipe_queue, struct doca_flow_pipe *pipe,
					    const struct doca_flow_match *match, uint8_t action_idx,
					    const struct doca_flow_actions *actions,
					    const struct doca_flow_monitor *monitor,
					    const struct doca_flow_fwd *fwd, uint32_t flags,
					    void *usr_ctx, struct doca_flow_pipe_entry **entry);

/* The same, by its older name. */
DOCA_EXPERIMENTAL
DOCA_OF_flow_pipe_add_entry
doca_error_t doca_flow_pipe_add_entry(uint16_t pipe_queue, struct doca_flow_pipe *pipe,
				      const struct doca_flow_match *match, uint8_t action_idx,
				      const struct doca_flow_actions *actions,
				      const struct doca_flow_monitor *monitor,
				      const struct doca_flow_fwd *fwd, uint32_t flags, void *usr_ctx,
				      struct doca_flow_pipe_entry **entry);

#if DOCA_FORM_flow_pipe_add_entry
static inline doca_error_t
softdoca_flow_pipe_add_entry(uint16_t pipe_queue, struct doca_flow_pipe *pipe,
			     const struct doca_flow_match *match,
			     const struct doca_flow_actions *actions,
			     const struct doca_flow_monitor *monitor, const struct doca_flow_fwd *fwd,
			     uint32_t flags, void *usr_ctx, struct doca_flow_pipe_entry **entry)
{
	return doca_flow_pipe_add_entry(pipe_queue, pipe, match, 0, actions, monitor, fwd, flags,
					usr_ctx, entry);
}
#define doca_flow_pipe_add_entry softdoca_flow_pipe_add_entry
#endif

/* Adds an entry to a CONTROL pipe. Entries of a lower priority value come first, and among equals those
 * that were added first. condition and all about actions must be NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_control_add_entry(
	uint16_t pipe_queue, struct doca_flow_pipe *pipe, const struct doca_flow_match *match,
	const struct doca_flow_match *match_mask, const struct doca_flow_match_condition *condition,
	const struct doca_flow_actions *actions, const struct doca_flow_actions *actions_mask,
	const struct doca_flow_action_descs *action_descs, const struct doca_flow_monitor *monitor,
	uint32_t priority, const struct doca_flow_fwd *fwd, void *usr_ctx,
	struct doca_flow_pipe_entry **entry);

#if DOCA_FORM_flow_pipe_control_add_entry
static inline doca_error_t softdoca_flow_pipe_control_add_entry(
	uint16_t pipe_queue, uint8_t priority, struct doca_flow_pipe *pipe,
	const struct doca_flow_match *match, const struct doca_flow_match *match_mask,
	const struct doca_flow_match_condition *condition, const struct doca_flow_actions *actions,
	const struct doca_flow_actions *actions_mask,
	const struct doca_flow_action_descs *action_descs, const struct doca_flow_monitor *monitor,
	const struct doca_flow_fwd *fwd, void *usr_ctx, struct doca_flow_pipe_entry **entry)
{
	return doca_flow_pipe_control_add_entry(pipe_queue, pipe, match, match_mask, condition, actions,
						actions_mask, action_descs, monitor, priority, fwd,
						usr_ctx, entry);
}
#define doca_flow_pipe_control_add_entry softdoca_flow_pipe_control_add_entry
#endif

DOCA_EXPERIMENTAL
doca_error_t doca_flow_pipe_remove_entry(uint16_t pipe_queue, uint32_t flags,
					 struct doca_flow_pipe_entry *entry);

/* Does nothing: entries are in effect when the call that adds them returns. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_entries_process(struct doca_flow_port *port, uint16_t pipe_queue,
				       uint64_t timeout, uint32_t max_processed_entries);

/* Get the frames that an entry has matched, and those that no entry of a pipe has. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_resource_query_entry(struct doca_flow_pipe_entry *entry,
					    struct doca_flow_resource_query *query_stats);
DOCA_EXPERIMENTAL
doca_error_t doca_flow_resource_query_pipe_miss(struct doca_flow_pipe *pipe,
						struct doca_flow_resource_query *query_stats);

/* Gets the target of DOCA_FLOW_FWD_TARGET: the machine's stack. It receives all frames of an existing
 * interface whatever the rules say; behind a TAP device there is none on this end, and the frame is
 * dropped. */
DOCA_EXPERIMENTAL
doca_error_t doca_flow_get_target(enum doca_flow_target_type type, struct doca_flow_target **target);

#ifdef __cplusplus
}
#endif

#endif
