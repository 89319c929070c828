/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DOCA Verbs: queue pairs and completion queues of the software NIC. Only reliable connections.
 *
 * An object of attributes is created, filled by its setters, passed to the function that uses it,
 * and destroyed. Setters check their value and refuse it with INVALID_VALUE; the log names the
 * limit. Attributes that have no meaning without a network (retries, PSNs, service level and
 * others) are kept and returned by queries.
 */
#ifndef DOCA_VERBS_H
#define DOCA_VERBS_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"
#include "doca_uar.h"
#include "doca_umem.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_verbs_context;
struct doca_verbs_pd;
struct doca_verbs_device_attr;
struct doca_verbs_ah_attr;
struct doca_verbs_cq_attr;
struct doca_verbs_cq;
struct doca_verbs_qp_init_attr;
struct doca_verbs_qp_attr;
struct doca_verbs_qp;
struct doca_verbs_srq;

#define DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE 0
#define DOCA_VERBS_QP_TYPE_RC                0

struct doca_verbs_gid {
	uint8_t raw[DOCA_GID_BYTE_LENGTH];
};

enum doca_verbs_qp_state {
	DOCA_VERBS_QP_STATE_RST = 0,
	DOCA_VERBS_QP_STATE_INIT = 1,
	DOCA_VERBS_QP_STATE_RTR = 2,
	DOCA_VERBS_QP_STATE_RTS = 3,
	DOCA_VERBS_QP_STATE_ERR = 4,
};

enum doca_verbs_addr_type {
	DOCA_VERBS_ADDR_TYPE_IPv4 = 0,
	DOCA_VERBS_ADDR_TYPE_IPv6 = 1,
	DOCA_VERBS_ADDR_TYPE_IB_GRH = 2,
	DOCA_VERBS_ADDR_TYPE_IB_NO_GRH = 3,
};

enum doca_verbs_cq_overrun {
	DOCA_VERBS_CQ_DISABLE_OVERRUN = 0,
	DOCA_VERBS_CQ_ENABLE_OVERRUN = 1,
};

enum doca_verbs_cq_entry_size {
	DOCA_VERBS_CQ_ENTRY_SIZE_64 = 0,
	DOCA_VERBS_CQ_ENTRY_SIZE_128 = 1,
};

enum doca_verbs_qp_atomic_mode {
	DOCA_VERBS_QP_ATOMIC_MODE_NONE = 0,
	DOCA_VERBS_QP_ATOMIC_MODE_IB_SPEC = 1,
	DOCA_VERBS_QP_ATOMIC_MODE_ONLY_8BYTES = 2,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_8BYTES = 3,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_16BYTES = 4,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_32BYTES = 5,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_64BYTES = 6,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_128BYTES = 7,
	DOCA_VERBS_QP_ATOMIC_MODE_UP_TO_256BYTES = 8,
};

/* Whether the NIC reads a doorbell record, or learns of entries by the doorbell alone. */
enum doca_verbs_qp_send_dbr_mode {
	DOCA_VERBS_QP_SEND_DBR_MODE_DBR_VALID = 0,
	DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT = 1,
};

/* Which transfers may overtake others. The software NIC always keeps the order (IBTA). */
enum doca_verbs_qp_ordering_semantic {
	DOCA_VERBS_QP_ORDERING_SEMANTIC_IBTA = 0,
	DOCA_VERBS_QP_ORDERING_SEMANTIC_OOO_RW = 1,
	DOCA_VERBS_QP_ORDERING_SEMANTIC_OOO_ALL = 2,
};

/* Which attributes doca_verbs_qp_modify() applies. */
#define DOCA_VERBS_QP_ATTR_ALLOW_REMOTE_WRITE (1 << 0)
#define DOCA_VERBS_QP_ATTR_ALLOW_REMOTE_READ  (1 << 1)
#define DOCA_VERBS_QP_ATTR_PKEY_INDEX         (1 << 2)
#define DOCA_VERBS_QP_ATTR_MIN_RNR_TIMER      (1 << 3)
#define DOCA_VERBS_QP_ATTR_PORT_NUM           (1 << 4)
#define DOCA_VERBS_QP_ATTR_NEXT_STATE         (1 << 5)
#define DOCA_VERBS_QP_ATTR_CURRENT_STATE      (1 << 6)
#define DOCA_VERBS_QP_ATTR_PATH_MTU           (1 << 7)
#define DOCA_VERBS_QP_ATTR_RQ_PSN             (1 << 8)
#define DOCA_VERBS_QP_ATTR_SQ_PSN             (1 << 9)
#define DOCA_VERBS_QP_ATTR_DEST_QP_NUM        (1 << 10)
#define DOCA_VERBS_QP_ATTR_ACK_TIMEOUT        (1 << 11)
#define DOCA_VERBS_QP_ATTR_RETRY_CNT          (1 << 12)
#define DOCA_VERBS_QP_ATTR_RNR_RETRY          (1 << 13)
#define DOCA_VERBS_QP_ATTR_AH_ATTR            (1 << 14)
#define DOCA_VERBS_QP_ATTR_ATOMIC_MODE        (1 << 15)
#define DOCA_VERBS_QP_ATTR_MAX_QP_RD_ATOMIC   (1 << 16)
#define DOCA_VERBS_QP_ATTR_MAX_DEST_RD_ATOMIC (1 << 17)

/* ---- contexts and protection domains ---- */

/* Opens the device. flags: DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_context_create(struct doca_devinfo *devinfo, uint32_t flags,
				       struct doca_verbs_context **verbs_ctx);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_context_destroy(struct doca_verbs_context *verbs_ctx);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_pd_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_pd **verbs_pd);

/* Errors: IN_USE while memory regions or queue pairs use it. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_pd_destroy(struct doca_verbs_pd *verbs_pd);

/* Opens the device of the protection domain. Close it before the domain is destroyed. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_pd_as_doca_dev(struct doca_verbs_pd *verbs_pd, struct doca_dev **dev);

/* Gets the attributes of the device, which doca_verbs_device_attr_free() frees. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_query_device(struct doca_verbs_context *verbs_ctx,
				     struct doca_verbs_device_attr **dev_attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_device_attr_free(struct doca_verbs_device_attr *dev_attr);

/* Return SUCCESS; NOT_SUPPORTED for an unknown mode. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_device_attr_get_is_cqe_inline_supported(
	const struct doca_verbs_device_attr *dev_attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_device_attr_get_is_send_dbr_mode_supported(
	const struct doca_verbs_device_attr *dev_attr, enum doca_verbs_qp_send_dbr_mode mode);

DOCA_EXPERIMENTAL
uint8_t doca_verbs_device_attr_get_max_qp_rd_atom(const struct doca_verbs_device_attr *dev_attr);

DOCA_EXPERIMENTAL
uint8_t doca_verbs_device_attr_get_max_qp_init_rd_atom(
	const struct doca_verbs_device_attr *dev_attr);

/* ---- address handles: the gid names the peer's NIC ---- */

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_create(struct doca_verbs_context *verbs_ctx,
				       struct doca_verbs_ah_attr **attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_destroy(struct doca_verbs_ah_attr *attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_addr_type(struct doca_verbs_ah_attr *attr,
					      enum doca_verbs_addr_type addr_type);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_gid(struct doca_verbs_ah_attr *attr, struct doca_verbs_gid gid);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_dlid(struct doca_verbs_ah_attr *attr, uint32_t dlid);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_sl(struct doca_verbs_ah_attr *attr, uint8_t sl);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_sgid_index(struct doca_verbs_ah_attr *attr, uint8_t sgid_index);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_static_rate(struct doca_verbs_ah_attr *attr,
						uint8_t static_rate);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_hop_limit(struct doca_verbs_ah_attr *attr, uint8_t hop_limit);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_ah_attr_set_traffic_class(struct doca_verbs_ah_attr *attr,
						  uint8_t traffic_class);

/* ---- completion queues ----
 * external_datapath_en with external_umem: the ring is the program's, followed by 8 bytes of
 * doorbell record; the program writes the ring's initial CQEs. Otherwise it is softdoca's. Size: 1
 * to 4,194,304 entries, rounded up to a power of two. cq_collapsed: all CQEs go to the first
 * entry. cq_overrun is implied. */

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_create(struct doca_verbs_cq_attr **attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_destroy(struct doca_verbs_cq_attr *attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_cq_size(struct doca_verbs_cq_attr *attr, uint32_t cq_size);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_cq_context(struct doca_verbs_cq_attr *attr, void *cq_context);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_external_datapath_en(struct doca_verbs_cq_attr *attr,
							 uint8_t external_datapath_en);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_external_umem(struct doca_verbs_cq_attr *attr,
						  struct doca_umem *external_umem,
						  uint64_t external_umem_offset);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_external_uar(struct doca_verbs_cq_attr *attr,
						 struct doca_uar *external_uar);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_cq_overrun(struct doca_verbs_cq_attr *attr,
					       enum doca_verbs_cq_overrun overrun);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_cq_collapsed(struct doca_verbs_cq_attr *attr, uint8_t cc);

/* Errors: NOT_SUPPORTED for DOCA_VERBS_CQ_ENTRY_SIZE_128. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_attr_set_entry_size(struct doca_verbs_cq_attr *attr,
					       enum doca_verbs_cq_entry_size entry_size);

/* Errors: INVALID_VALUE if the size is missing or exceeds the umem; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_cq_attr *cq_attr,
				  struct doca_verbs_cq **verbs_cq);

/* Errors: IN_USE while a queue pair uses it. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_cq_destroy(struct doca_verbs_cq *verbs_cq);

DOCA_EXPERIMENTAL
uint32_t doca_verbs_cq_get_cqn(const struct doca_verbs_cq *verbs_cq);

DOCA_EXPERIMENTAL
void doca_verbs_cq_get_wq(struct doca_verbs_cq *verbs_cq, void **cq_buf, uint32_t *cq_num_entries,
			  uint8_t *cq_entry_size);

DOCA_EXPERIMENTAL
void doca_verbs_cq_get_dbr_addr(struct doca_verbs_cq *verbs_cq, uint64_t **uar_db_reg,
				uint32_t **ci_dbr, uint32_t **arm_dbr);

/* ---- queue pairs ----
 * external_umem: the receive ring (16 bytes for each scatter element of an entry), then the send
 * ring (64 bytes an entry). external_dbr_umem: two big-endian words, receives and sends. Without
 * them, rings and record are softdoca's. sq_wr: up to 32,768, rounded up to a power of two.
 * cqe_inline: received data of up to 32 bytes lies in the CQE. There are no shared receive queues. */

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_create(struct doca_verbs_qp_init_attr **attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_destroy(struct doca_verbs_qp_init_attr *attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_pd(struct doca_verbs_qp_init_attr *attr,
					    struct doca_verbs_pd *pd);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_send_cq(struct doca_verbs_qp_init_attr *attr,
						 struct doca_verbs_cq *send_cq);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_receive_cq(struct doca_verbs_qp_init_attr *attr,
						    struct doca_verbs_cq *receive_cq);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_sq_sig_all(struct doca_verbs_qp_init_attr *attr,
						    int sq_sig_all);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_sq_wr(struct doca_verbs_qp_init_attr *attr,
					       uint32_t sq_wr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_rq_wr(struct doca_verbs_qp_init_attr *attr,
					       uint32_t rq_wr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_send_max_sges(struct doca_verbs_qp_init_attr *attr,
						       uint32_t send_max_sges);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_receive_max_sges(struct doca_verbs_qp_init_attr *attr,
							  uint32_t receive_max_sges);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_max_inline_data(struct doca_verbs_qp_init_attr *attr,
							 uint32_t max_inline_data);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_user_index(struct doca_verbs_qp_init_attr *attr,
						    uint32_t user_index);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_qp_type(struct doca_verbs_qp_init_attr *attr,
						 uint32_t qp_type);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_external_umem(struct doca_verbs_qp_init_attr *attr,
						       struct doca_umem *external_umem,
						       uint64_t external_umem_offset);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_external_dbr_umem(struct doca_verbs_qp_init_attr *attr,
							   struct doca_umem *external_umem,
							   uint64_t external_umem_offset);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_external_datapath_en(struct doca_verbs_qp_init_attr *attr,
							      uint8_t external_datapath_en);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_external_uar(struct doca_verbs_qp_init_attr *attr,
						      struct doca_uar *external_uar);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_qp_context(struct doca_verbs_qp_init_attr *attr,
						    void *qp_context);

/* Returns NOT_SUPPORTED: there are no shared receive queues. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_srq(struct doca_verbs_qp_init_attr *attr,
					     struct doca_verbs_srq *srq);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_core_direct_master(struct doca_verbs_qp_init_attr *attr,
							    uint8_t core_direct_master);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_cqe_inline(struct doca_verbs_qp_init_attr *attr,
						    uint8_t cqe_inline);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_send_dbr_mode(
	struct doca_verbs_qp_init_attr *attr, enum doca_verbs_qp_send_dbr_mode send_dbr_mode);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_set_ordering_semantic(
	struct doca_verbs_qp_init_attr *attr,
	enum doca_verbs_qp_ordering_semantic ordering_semantic);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_get_external_umem(const struct doca_verbs_qp_init_attr *attr,
						       struct doca_umem **external_umem,
						       uint64_t *external_umem_offset);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_init_attr_get_external_uar(const struct doca_verbs_qp_init_attr *attr,
						      struct doca_uar **external_uar);

DOCA_EXPERIMENTAL
void *doca_verbs_qp_init_attr_get_qp_context(const struct doca_verbs_qp_init_attr *attr);

DOCA_EXPERIMENTAL
enum doca_verbs_qp_send_dbr_mode doca_verbs_qp_init_attr_get_send_dbr_mode(
	const struct doca_verbs_qp_init_attr *attr);

DOCA_EXPERIMENTAL
enum doca_verbs_qp_ordering_semantic doca_verbs_qp_init_attr_get_ordering_semantic(
	const struct doca_verbs_qp_init_attr *attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_create(struct doca_verbs_qp_attr **attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_destroy(struct doca_verbs_qp_attr *attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_next_state(struct doca_verbs_qp_attr *attr,
					       enum doca_verbs_qp_state next_state);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_current_state(struct doca_verbs_qp_attr *attr,
						  enum doca_verbs_qp_state current_state);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_path_mtu(struct doca_verbs_qp_attr *attr,
					     enum doca_mtu_size path_mtu);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_rq_psn(struct doca_verbs_qp_attr *attr, uint32_t rq_psn);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_sq_psn(struct doca_verbs_qp_attr *attr, uint32_t sq_psn);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_dest_qp_num(struct doca_verbs_qp_attr *attr,
						uint32_t dest_qp_num);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_allow_remote_write(struct doca_verbs_qp_attr *attr,
						       int allow_remote_write);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_allow_remote_read(struct doca_verbs_qp_attr *attr,
						      int allow_remote_read);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_atomic_mode(struct doca_verbs_qp_attr *attr,
						enum doca_verbs_qp_atomic_mode atomic_mode);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_ah_attr(struct doca_verbs_qp_attr *attr,
					    struct doca_verbs_ah_attr *ah_attr);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_pkey_index(struct doca_verbs_qp_attr *attr,
					       uint16_t pkey_index);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_port_num(struct doca_verbs_qp_attr *attr, uint16_t port_num);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_ack_timeout(struct doca_verbs_qp_attr *attr,
						uint16_t ack_timeout);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_retry_cnt(struct doca_verbs_qp_attr *attr, uint16_t retry_cnt);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_rnr_retry(struct doca_verbs_qp_attr *attr, uint16_t rnr_retry);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_min_rnr_timer(struct doca_verbs_qp_attr *attr,
						  uint16_t min_rnr_timer);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_max_rd_atomic(struct doca_verbs_qp_attr *attr,
						  uint8_t max_rd_atomic);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_attr_set_max_dest_rd_atomic(struct doca_verbs_qp_attr *attr,
						       uint8_t max_dest_rd_atomic);

DOCA_EXPERIMENTAL
enum doca_verbs_qp_state doca_verbs_qp_attr_get_current_state(
	const struct doca_verbs_qp_attr *attr);

/* Creates a queue pair in the state RST. Errors: INVALID_VALUE without a protection domain or the
 * completion queue of a ring, or if a ring exceeds its umem; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_qp_init_attr *init_attr,
				  struct doca_verbs_qp **verbs_qp);

/* Errors: IN_USE while it is exported to a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_destroy(struct doca_verbs_qp *verbs_qp);

/* Changes the state: RST to INIT (requires PKEY_INDEX, PORT_NUM), to RTR (PATH_MTU, DEST_QP_NUM,
 * RQ_PSN, AH_ATTR, MIN_RNR_TIMER), to RTS (SQ_PSN, ACK_TIMEOUT, RETRY_CNT, RNR_RETRY); any state to
 * RST or ERR. Errors: INVALID_VALUE for a mask that lacks NEXT_STATE or a required attribute, or
 * has unknown bits; BAD_STATE for another change. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_modify(struct doca_verbs_qp *verbs_qp,
				  struct doca_verbs_qp_attr *qp_attr, int attr_mask);

/* Gets the attributes set so far, and the state: of qp_attr, the current state. Each output may be
 * NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_qp_query(struct doca_verbs_qp *verbs_qp, struct doca_verbs_qp_attr *qp_attr,
				 struct doca_verbs_qp_init_attr *init_attr, int *attr_mask);

DOCA_EXPERIMENTAL
uint32_t doca_verbs_qp_get_qpn(const struct doca_verbs_qp *verbs_qp);

DOCA_EXPERIMENTAL
void doca_verbs_qp_get_wq(const struct doca_verbs_qp *verbs_qp, void **sq_buf,
			  uint32_t *sq_num_entries, void **rq_buf, uint32_t *rq_num_entries,
			  uint32_t *rwqe_size_bytes);

DOCA_EXPERIMENTAL
void *doca_verbs_qp_get_dbr_addr(const struct doca_verbs_qp *verbs_qp);

DOCA_EXPERIMENTAL
void *doca_verbs_qp_get_uar_addr(const struct doca_verbs_qp *verbs_qp);

#ifdef __cplusplus
}
#endif

#endif
