/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of libibverbs and librdmacm that dgkit calls. Both libraries are loaded at run time, and
 * their headers are not needed to build. So their binary interface is declared here: symbol
 * versions IBVERBS_1.1 and RDMACM_1.0, and IBVERBS_1.12 where it exists, which rdma-core keeps
 * stable.
 */
#ifndef DG_VERBS_API_H
#define DG_VERBS_API_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct ibv_pd;
struct ibv_srq;

enum {
	IBV_PORT_ACTIVE = 4,
	IBV_QPT_RC = 2,
	IBV_TRANSPORT_IWARP = 1,
	IBV_LINK_LAYER_ETHERNET = 2,
	IBV_MW_TYPE_2 = 2,
};
enum ibv_qp_state { IBV_QPS_INIT = 1, IBV_QPS_RTR = 2, IBV_QPS_RTS = 3, IBV_QPS_ERR = 6 };
enum ibv_qp_attr_mask {
	IBV_QP_STATE = 1 << 0,
	IBV_QP_ACCESS_FLAGS = 1 << 3,
	IBV_QP_PKEY_INDEX = 1 << 4,
	IBV_QP_PORT = 1 << 5,
	IBV_QP_AV = 1 << 7,
	IBV_QP_PATH_MTU = 1 << 8,
	IBV_QP_TIMEOUT = 1 << 9,
	IBV_QP_RETRY_CNT = 1 << 10,
	IBV_QP_RNR_RETRY = 1 << 11,
	IBV_QP_RQ_PSN = 1 << 12,
	IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	IBV_QP_MIN_RNR_TIMER = 1 << 15,
	IBV_QP_SQ_PSN = 1 << 16,
	IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	IBV_QP_DEST_QPN = 1 << 20,
};
enum {
	IBV_ACCESS_LOCAL_WRITE = 1,
	IBV_ACCESS_REMOTE_WRITE = 2,
	IBV_ACCESS_REMOTE_READ = 4,
	IBV_ACCESS_REMOTE_ATOMIC = 8,
	IBV_ACCESS_MW_BIND = 16,
	IBV_ACCESS_ON_DEMAND = 64,
};
enum { IBV_ODP_SUPPORT = 1 };
enum { IBV_ODP_SUPPORT_WRITE = 4, IBV_ODP_SUPPORT_READ = 8 };
enum { IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24 };
enum ibv_atomic_cap { IBV_ATOMIC_NONE = 0, IBV_ATOMIC_HCA = 1, IBV_ATOMIC_GLOB = 2 };
enum {
	IBV_WR_RDMA_WRITE = 0,
	IBV_WR_SEND = 2,
	IBV_WR_RDMA_READ = 4,
	IBV_WR_ATOMIC_CMP_AND_SWP = 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
	IBV_WR_BIND_MW = 8,
};
enum { IBV_SEND_SIGNALED = 2, IBV_SEND_INLINE = 8 };
enum ibv_wc_status {
	IBV_WC_SUCCESS = 0,
	IBV_WC_LOC_LEN_ERR = 1,
	IBV_WC_LOC_QP_OP_ERR = 2,
	IBV_WC_LOC_PROT_ERR = 4,
	IBV_WC_WR_FLUSH_ERR = 5,
	IBV_WC_LOC_ACCESS_ERR = 8,
	IBV_WC_REM_INV_REQ_ERR = 9,
	IBV_WC_REM_ACCESS_ERR = 10,
	IBV_WC_RETRY_EXC_ERR = 12,
	IBV_WC_RNR_RETRY_EXC_ERR = 13,
	IBV_WC_REM_ABORT_ERR = 16,
	IBV_WC_RESP_TIMEOUT_ERR = 20,
};

struct ibv_device { /* further members are not used here */
	void *unused[2];
	int node_type, transport_type;
};

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom;
	int max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp;
	int max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

/* Result of query_device_ex(), up to the last field that is used here. */
struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct {
		uint64_t general_caps;
		uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps;
	} odp_caps;
	/* Later fields: mlx5 of older releases writes some of them whatever size it is given. */
	uint64_t others[64];
};

struct ibv_port_attr {
	int state, max_mtu, active_mtu, gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width;
	uint8_t active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_mw { /* a memory window */
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	int type;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd, refcnt;
};

struct ibv_cq { /* further members are not used here */
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
};

struct ibv_qp { /* further members are not used here */
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
};

struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
};

union ibv_gid {
	uint8_t raw[16];
	uint64_t words[2];
};

struct ibv_ah_attr {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_attr {
	int qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
	uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge, opcode;
	unsigned send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
	};
	uint64_t other; /* other operations */
	struct {
		struct ibv_mw *mw;
		uint32_t rkey; /* of the window, from the bind on */
		struct ibv_mr *mr;
		uint64_t addr, length;
		unsigned access;
	} bind_mw;
};
_Static_assert(sizeof(struct ibv_send_wr) == 128, "as in <infiniband/verbs.h>");

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

/* Calls that are inline functions in libibverbs' header; they use the device's own table. */
struct ibv_context {
	struct ibv_device *device;
	void *before_alloc_mw[7];
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, int type);
	void *before_dealloc_mw;
	int (*dealloc_mw)(struct ibv_mw *);
	void *before_poll_cq;
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int);
	void *before_post_send[12];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	void *after_post_recv[5];
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

/* Precedes an ibv_context whose abi_compat is VERBS_ABI_IS_EXTENDED. The struct grows at its start,
 * so a call exists if `sz` covers it, counted from the end of the context. */
struct verbs_context {
	int (*query_device_ex)(struct ibv_context *, const uint32_t *, struct ibv_device_attr_ex *,
			       size_t);
	void *after_query_device_ex[11];
	size_t sz;
	struct ibv_context context;
};
#define VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)
_Static_assert(offsetof(struct verbs_context, context) == 104 || sizeof(void *) != 8,
	       "the layout is libibverbs' own");

enum rdma_cm_event_type {
	RDMA_CM_EVENT_ADDR_RESOLVED = 0,
	RDMA_CM_EVENT_ADDR_ERROR = 1,
	RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
	RDMA_CM_EVENT_ROUTE_ERROR = 3,
	RDMA_CM_EVENT_CONNECT_REQUEST = 4,
	RDMA_CM_EVENT_CONNECT_ERROR = 6,
	RDMA_CM_EVENT_UNREACHABLE = 7,
	RDMA_CM_EVENT_REJECTED = 8,
	RDMA_CM_EVENT_ESTABLISHED = 9,
	RDMA_CM_EVENT_DISCONNECTED = 10,
	RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
	RDMA_CM_EVENT_ADDR_CHANGE = 14,
	RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
};
enum { RDMA_PS_TCP = 0x0106, RDMA_OPTION_ID = 0, RDMA_OPTION_ID_ACK_TIMEOUT = 3 };
enum { RDMA_REJECTED_BY_PEER = 28 }; /* status of REJECTED: by the program, with private data */

struct rdma_event_channel {
	int fd;
};

struct rdma_cm_id { /* further members are not used here */
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
	struct sockaddr_storage src_addr, dst_addr;
	uint64_t ib_addr[5]; /* two GIDs, a partition key, padding */
	void *path_rec;
	int num_paths, padding;
	int ps;
	uint8_t port_num;
};

struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control;
	uint8_t retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

struct rdma_cm_event { /* further members are not used here */
	struct rdma_cm_id *id, *listen_id;
	int event, status;
	struct rdma_conn_param conn;
};

#define IBVERBS_FUNCTIONS(X)                                                             \
	X(int, ibv_fork_init, (void))                                                    \
	X(struct ibv_device **, ibv_get_device_list, (int *))                            \
	X(void, ibv_free_device_list, (struct ibv_device **))                            \
	X(const char *, ibv_get_device_name, (struct ibv_device *))                      \
	X(int, ibv_query_device, (struct ibv_context *, struct ibv_device_attr *))       \
	X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *))  \
	X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *))     \
	X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))  \
	X(int, ibv_modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))              \
	X(int, ibv_destroy_qp, (struct ibv_qp *))                                        \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *))                         \
	X(int, ibv_dealloc_pd, (struct ibv_pd *))                                        \
	X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int))           \
	X(int, ibv_dereg_mr, (struct ibv_mr *))                                          \
	X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *))    \
	X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *))                    \
	X(struct ibv_cq *, ibv_create_cq,                                                \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))           \
	X(int, ibv_destroy_cq, (struct ibv_cq *))                                        \
	X(int, ibv_get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	X(void, ibv_ack_cq_events, (struct ibv_cq *, unsigned))

/* NULL if the installed rdma-core lacks them: versions before 34 have no ibv_reg_dmabuf_mr. */
#define OPTIONAL_IBVERBS_FUNCTIONS(X)       \
	X(struct ibv_mr *, ibv_reg_dmabuf_mr, \
	  (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

#define RDMACM_FUNCTIONS(X)                                                              \
	X(struct rdma_event_channel *, rdma_create_event_channel, (void))                \
	X(void, rdma_destroy_event_channel, (struct rdma_event_channel *))               \
	X(struct ibv_context **, rdma_get_devices, (int *))                              \
	X(void, rdma_free_devices, (struct ibv_context **))                              \
	X(int, rdma_create_id,                                                           \
	  (struct rdma_event_channel *, struct rdma_cm_id **, void *, int))              \
	X(int, rdma_destroy_id, (struct rdma_cm_id *))                                   \
	X(int, rdma_bind_addr, (struct rdma_cm_id *, struct sockaddr *))                 \
	X(int, rdma_resolve_addr,                                                        \
	  (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int))              \
	X(int, rdma_resolve_route, (struct rdma_cm_id *, int))                           \
	X(int, rdma_create_qp,                                                           \
	  (struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *))             \
	X(void, rdma_destroy_qp, (struct rdma_cm_id *))                                  \
	X(int, rdma_init_qp_attr, (struct rdma_cm_id *, struct ibv_qp_attr *, int *))    \
	X(int, rdma_connect, (struct rdma_cm_id *, struct rdma_conn_param *))            \
	X(int, rdma_listen, (struct rdma_cm_id *, int))                                  \
	X(int, rdma_accept, (struct rdma_cm_id *, struct rdma_conn_param *))             \
	X(int, rdma_reject, (struct rdma_cm_id *, const void *, uint8_t))                \
	X(int, rdma_disconnect, (struct rdma_cm_id *))                                   \
	X(int, rdma_get_cm_event, (struct rdma_event_channel *, struct rdma_cm_event **)) \
	X(int, rdma_ack_cm_event, (struct rdma_cm_event *))                              \
	X(uint16_t, rdma_get_src_port, (struct rdma_cm_id *))                            \
	X(int, rdma_set_option, (struct rdma_cm_id *, int, int, void *, size_t))

struct dg_verbs_api {
#define VERBS_FIELD(type, name, params) type(*name) params;
	IBVERBS_FUNCTIONS(VERBS_FIELD)
	OPTIONAL_IBVERBS_FUNCTIONS(VERBS_FIELD)
	RDMACM_FUNCTIONS(VERBS_FIELD)
#undef VERBS_FIELD
};

/* Valid after dg_verbs_load(). */
extern struct dg_verbs_api dg_verbs;

/* Loads both libraries, once; they are never unloaded. Errors: ENODEV with the reason. */
int dg_verbs_load(void);

#endif
