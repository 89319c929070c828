/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The differences between DOCA's releases that softdoca knows of: the only place that says which release has
 * a name. `dgkit softdoca env --api 3.1` has programs compiled with SOFTDOCA_DOCA=301 (2.10 is 210). Without
 * it they get 3.3; with 0, as softdoca itself has it, every name.
 *
 * A declaration of a name that not every release has begins with its row of the table. To use the name in
 * another release is an error of the compiler, which names the releases. The releases are those whose
 * public samples or reference have the name: 2.8, 2.9, 2.10, and 3.0 to 3.3. 2.5 and 2.7 are as 2.8.
 */
#ifndef DOCA_RELEASES_H
#define DOCA_RELEASES_H

#ifndef SOFTDOCA_DOCA
#define SOFTDOCA_DOCA 303
#endif

/* Whether the program is compiled for a release before this one. */
#define SOFTDOCA_BEFORE(release) (SOFTDOCA_DOCA && SOFTDOCA_DOCA < (release))
#define SOFTDOCA_SINCE(release)	 (!SOFTDOCA_DOCA || SOFTDOCA_DOCA >= (release))

#ifdef __has_attribute
#if __has_attribute(unavailable)
#define SOFTDOCA_NOT_IN_RELEASE(text) __attribute__((unavailable(text)))
#endif
#endif
#ifndef SOFTDOCA_NOT_IN_RELEASE /* gcc before 12: a warning */
#define SOFTDOCA_NOT_IN_RELEASE(text) __attribute__((deprecated(text)))
#endif

#if !SOFTDOCA_DOCA || SOFTDOCA_BEFORE(210)
#define SOFTDOCA_TO_2_9
#else
#define SOFTDOCA_TO_2_9 SOFTDOCA_NOT_IN_RELEASE("DOCA 2.9 had it: dgkit softdoca env --api 2.9")
#endif
#if !SOFTDOCA_DOCA || SOFTDOCA_BEFORE(300)
#define SOFTDOCA_TO_2_10
#else
#define SOFTDOCA_TO_2_10 SOFTDOCA_NOT_IN_RELEASE("DOCA 2.9 and 2.10 had it: dgkit softdoca env --api 2.10")
#endif
#if !SOFTDOCA_DOCA || SOFTDOCA_BEFORE(301)
#define SOFTDOCA_TO_3_0
#else
#define SOFTDOCA_TO_3_0 SOFTDOCA_NOT_IN_RELEASE("DOCA 2.9 to 3.0 had it: dgkit softdoca env --api 3.0")
#endif
#if !SOFTDOCA_DOCA || SOFTDOCA_BEFORE(302)
#define SOFTDOCA_TO_3_1
#else
#define SOFTDOCA_TO_3_1 SOFTDOCA_NOT_IN_RELEASE("DOCA 2.9 to 3.1 had it: dgkit softdoca env --api 3.1")
#endif
#if !SOFTDOCA_DOCA || SOFTDOCA_BEFORE(303)
#define SOFTDOCA_TO_3_2
#else
#define SOFTDOCA_TO_3_2 SOFTDOCA_NOT_IN_RELEASE("DOCA 2.9 to 3.2 had it: dgkit softdoca env --api 3.2")
#endif
#if SOFTDOCA_SINCE(301)
#define SOFTDOCA_FROM_3_1
#else
#define SOFTDOCA_FROM_3_1 SOFTDOCA_NOT_IN_RELEASE("DOCA 3.1 and later have it: dgkit softdoca env --api 3.1")
#endif
#if SOFTDOCA_SINCE(303)
#define SOFTDOCA_FROM_3_3
#else
#define SOFTDOCA_FROM_3_3 SOFTDOCA_NOT_IN_RELEASE("DOCA 3.3 has it: dgkit softdoca env --api 3.3")
#endif

/* ---- the table: a name without its prefix doca_ or DOCA_, its releases, and what took its place ---- */

#define DOCA_OF_flow_pipe_cfg_set_enable_strict_matching SOFTDOCA_TO_2_9 /* nothing */
#define DOCA_OF_flow_port_cfg_set_devargs SOFTDOCA_TO_2_10 /* doca_flow_port_cfg_set_dev */
#define DOCA_OF_flow_actions_mark SOFTDOCA_TO_3_0 /* meta.pkt_meta */
#define DOCA_OF_eth_rxq_set_flow_tag SOFTDOCA_TO_3_0 /* doca_eth_rxq_set_metadata_num */
#define DOCA_OF_eth_rxq_get_flow_tag SOFTDOCA_TO_3_0 /* ..._get_metadata_array, of tasks and events */
#define DOCA_OF_eth_rxq_get_flow_queue_id SOFTDOCA_TO_3_0 /* doca_eth_rxq_apply_queue_id */
#define DOCA_OF_eth_rxq_apply_queue_id SOFTDOCA_FROM_3_1
#define DOCA_OF_ETH_WAIT_ON_TIME_TYPE_DPDK SOFTDOCA_TO_3_1 /* nothing */
#define DOCA_OF_gpu_dev_eth_txq_send_enqueue SOFTDOCA_TO_3_1 /* doca_gpu_dev_eth_txq_send */
#define DOCA_OF_gpu_dev_eth_txq_wait_completion SOFTDOCA_TO_3_1 /* ..._poll_completion */
#define DOCA_OF_gpu_dev_eth_rxq_receive SOFTDOCA_TO_3_1 /* doca_gpu_dev_eth_rxq_recv */
#define DOCA_OF_gpu_dev_eth_rxq_get_buf SOFTDOCA_TO_3_1 /* ..._get_pkt_addr */
#define DOCA_OF_gpu_dev_verbs_wait_recv SOFTDOCA_TO_3_1 /* doca_gpu_dev_verbs_recv_wait */
#define DOCA_OF_dpdk_port_probe SOFTDOCA_TO_3_1 /* nothing */
#define DOCA_OF_FLOW_NO_WAIT SOFTDOCA_TO_3_2 /* DOCA_FLOW_ENTRY_FLAGS_NO_WAIT */
#define DOCA_OF_FLOW_WAIT_FOR_BATCH SOFTDOCA_TO_3_2 /* DOCA_FLOW_ENTRY_FLAGS_WAIT_FOR_BATCH */
#define DOCA_OF_FLOW_ENTRY_FLAGS SOFTDOCA_FROM_3_3
#define DOCA_OF_flow_pipe_add_entry SOFTDOCA_TO_3_2 /* doca_flow_pipe_basic_add_entry */
#define DOCA_OF_flow_pipe_basic_add_entry SOFTDOCA_FROM_3_3

/* ---- forms: true for the older one ---- */

/* doca_flow_pipe_control_add_entry(): up to 3.2 the priority, of 8 bits, comes before the pipe. */
#define DOCA_FORM_flow_pipe_control_add_entry SOFTDOCA_BEFORE(303)
/* doca_flow_pipe_add_entry(): up to 3.1 it has no action_idx. */
#define DOCA_FORM_flow_pipe_add_entry SOFTDOCA_BEFORE(302)
/* struct doca_flow_fwd: in 2.9 rss_outer_flags, rss_inner_flags, rss_queues and num_of_queues. */
#define DOCA_FORM_flow_fwd SOFTDOCA_BEFORE(210)
/* doca_eth_rxq_estimate_packet_buf_size(): up to 2.10 without head_size and tail_size. */
#define DOCA_FORM_eth_rxq_estimate_packet_buf_size SOFTDOCA_BEFORE(300)
/* doca_gpu_dev_eth_rxq_recv(): up to 3.2 its last template argument is a truth value, for all attributes or none. */
#define DOCA_FORM_gpu_dev_eth_rxq_recv SOFTDOCA_BEFORE(303)
/* doca_gpu_dev_verbs_recv_wait(): up to 3.2 it may be called without cqe. */
#define DOCA_FORM_gpu_dev_verbs_recv_wait SOFTDOCA_BEFORE(303)
/* doca_rdma: up to 2.8 no connection in export, connect and allocation of tasks, and no data in accept. */
#define DOCA_FORM_rdma_connection SOFTDOCA_BEFORE(209)

#endif
