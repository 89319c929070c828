/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of libdoca_verbs. */
#ifndef SOFTDOCA_VERBS_OBJECTS_H
#define SOFTDOCA_VERBS_OBJECTS_H

#include "doca_verbs.h"
#include "doca_verbs_bridge.h"
#include "memory/umem.h"
#include "nic/soft_nic.h"

#define SEND_SGES_MAX 2u /* of a send entry of 64 bytes */
#define RD_ATOMIC     16u
#define CQE_BYTES     64u
#define WQE_BYTES     64u
#define SGE_BYTES     16u

#define CHECK_CONTEXT(c) CHECK_OBJECT(c, OBJECT_VERBS_CONTEXT, "a Verbs context")
#define CHECK_CQ(c)      CHECK_OBJECT(c, OBJECT_VERBS_CQ, "a completion queue")
#define CHECK_QP(q)      CHECK_OBJECT(q, OBJECT_VERBS_QP, "a queue pair")

struct doca_verbs_context {
	struct object o;
	struct ibv_context *ibv;
	bool owned;
};

struct doca_verbs_pd {
	struct object o;
	struct ibv_pd *ibv;
	bool owned;
};

struct doca_verbs_device_attr {
	struct object o;
};

struct doca_verbs_ah_attr {
	struct object o;
	struct doca_verbs_gid gid;
	enum doca_verbs_addr_type addr_type;
	uint32_t dlid;
	uint8_t sl, sgid_index, static_rate, hop_limit, traffic_class;
};

/* A place in a umem; NULL: none. */
struct placed {
	struct doca_umem *umem;
	uint64_t offset;
};

struct doca_verbs_cq_attr {
	struct object o;
	uint32_t cq_size;
	void *cq_context;
	uint8_t external_datapath_en, cq_collapsed;
	enum doca_verbs_cq_overrun cq_overrun;
	struct placed external;
	struct doca_uar *external_uar;
};

struct doca_verbs_cq {
	struct object o;
	dg_nic_cq *cq;
	char *ring;
	bool owned; /* the ring is softdoca's */
	uint32_t entries, number;
	struct doca_umem *umem;
	struct doca_uar *uar;
	/* Of the CPU's data path (work.c). lock: of what follows, and of the ids of what completed. */
	pthread_mutex_t lock;
	bool collapsed;
	uint32_t polled, n_qps;
	struct doca_verbs_qp **qps; /* those that use it */
};

/* Work requests of one ring that the CPU posted: their ids, by index, and counts since RST. */
struct work {
	pthread_mutex_t lock; /* of posting */
	uint64_t *ids;
	uint32_t posted;
	_Atomic uint32_t done;
};

struct doca_verbs_qp_init_attr {
	struct object o;
	struct doca_verbs_pd *pd;
	struct doca_verbs_cq *send_cq, *receive_cq;
	uint32_t sq_wr, rq_wr, send_max_sges, receive_max_sges, max_inline_data, user_index,
		qp_type;
	struct placed external, external_dbr;
	struct doca_uar *external_uar;
	void *qp_context;
	int sq_sig_all;
	uint8_t external_datapath_en, core_direct_master, cqe_inline;
	enum doca_verbs_qp_send_dbr_mode send_dbr_mode;
	enum doca_verbs_qp_ordering_semantic ordering_semantic;
};

struct doca_verbs_qp_attr {
	struct object o;
	enum doca_verbs_qp_state next_state, current_state;
	enum doca_mtu_size path_mtu;
	enum doca_verbs_qp_atomic_mode atomic_mode;
	uint32_t rq_psn, sq_psn, dest_qp_num;
	int allow_remote_write, allow_remote_read;
	uint16_t pkey_index, port_num, ack_timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	struct doca_verbs_ah_attr *ah_attr;
};

struct doca_verbs_qp {
	struct object o;
	dg_nic_qp *qp;
	uint32_t number;
	enum doca_verbs_qp_state state;
	struct doca_verbs_qp_init_attr init; /* with the sizes in use */
	struct doca_verbs_qp_attr attr;
	struct doca_verbs_gid peer; /* of attr.ah_attr, which the program may destroy */
	struct nic_pd *pd;
	char *own; /* rings and record that are softdoca's, or NULL */
	char *receive_ring, *send_ring;
	uint32_t *record;
	uint64_t *doorbell; /* the UAR's, or its own */
	uint64_t own_doorbell, own_producer;
	/* Of an export: the structure for device code, and its doorbells, which the NIC reads until the
	 * queue pair is destroyed. */
	atomic_bool exported;
	struct gpu_memory *structure, *words;
	struct work sends, receives;
};

/* cq.c: returns the address of `size` bytes in a umem; NULL, logged, if they exceed it. */
char *umem_at(const char *func, const struct placed *p, size_t size, size_t alignment);

/* work.c: prepares and ends the CPU's data path of a queue pair. The first returns NO_MEMORY. */
doca_error_t work_open(struct doca_verbs_qp *qp);
void work_close(struct doca_verbs_qp *qp);
/* The queue pair is in RST: nothing is posted. */
void work_reset(struct doca_verbs_qp *qp);

#endif
