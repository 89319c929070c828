/* SPDX-License-Identifier: Apache-2.0 */
/* Constants and hardware structures of GPUNetIO Verbs: mlx5 work queue entries (WQEs) and completion
 * queue entries (CQEs). For C, C++ and CUDA. Names with IB_ are those of NVIDIA's open headers; names
 * without are those of DOCA. If NVIDIA's open headers are earlier on the include path, they are used
 * in place of these (same names, layouts and include guards). */
#ifndef DOCA_GPUNETIO_VERBS_DEF_H
#define DOCA_GPUNETIO_VERBS_DEF_H

#ifdef __CUDACC_RTC__ /* NVRTC has no headers of the host */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t, __be16;
typedef unsigned int uint32_t, __be32;
typedef unsigned long uint64_t, uintptr_t;
typedef unsigned long long __be64;
typedef int int32_t;
typedef long int64_t;
#define INT_MAX 0x7fffffff
#define offsetof(type, member) ((unsigned long)&((type *)0)->member)
enum { EIO = 5, EBUSY = 16, EINVAL = 22 };
/* Its __typeof__ of an lvalue is a reference. */
template <class T> struct doca_priv_plain { typedef T type; };
template <class T> struct doca_priv_plain<T &> { typedef T type; };
#define DOCA_PRIV_TYPEOF(x) typename doca_priv_plain<decltype(x)>::type
#else
#define DOCA_PRIV_TYPEOF(x) __typeof__(x)
#include <errno.h>
#include <limits.h>
#include <linux/types.h>
#include <stdint.h>
#include <stdio.h>
#endif

#ifdef __cplusplus
#define DOCA_GPUNETIO_SIZE_IS(type, size) static_assert(sizeof(type) == (size), #type)
extern "C" {
#else
#define DOCA_GPUNETIO_SIZE_IS(type, size) _Static_assert(sizeof(type) == (size), #type)
#endif

#define DOCA_GPUNETIO_VOLATILE(x) (*(volatile DOCA_PRIV_TYPEOF(x) *)&(x))
#ifndef READ_ONCE
#define READ_ONCE(x) DOCA_GPUNETIO_VOLATILE(x)
#define WRITE_ONCE(x, v) (DOCA_GPUNETIO_VOLATILE(x) = (v))
#endif

#ifndef DOCA_GPUNETIO_VERBS_ENABLE_DEBUG
#define DOCA_GPUNETIO_VERBS_ENABLE_DEBUG 0
#endif
#if DOCA_GPUNETIO_VERBS_ENABLE_DEBUG == 1
#include <assert.h>
#define DOCA_GPUNETIO_VERBS_ASSERT(x) assert(x)
#else
#define DOCA_GPUNETIO_VERBS_ASSERT(x) ((void)0)
#endif

#define DOCA_GPUNETIO_VERBS_WARP_SIZE 32
#define DOCA_GPUNETIO_VERBS_WARP_FULL_MASK 0xffffffff
#define DOCA_GPUNETIO_VERBS_PAGE_SIZE 65536
#define DOCA_GPUNETIO_VERBS_CQE_CI_MASK 0xffffff
#define DOCA_GPUNETIO_VERBS_WQE_PI_MASK 0xffff
#define DOCA_GPUNETIO_VERBS_WQE_IDX_SHIFT 8
#define DOCA_GPUNETIO_VERBS_CQE_SIZE 64
#define DOCA_GPUNETIO_VERBS_MLX5_CQE_OPCODE_SHIFT 4
#define DOCA_GPUNETIO_IB_MLX5_WQE_SQ_SHIFT 6
#define DOCA_GPUNETIO_VERBS_MKEY_SWAPPED 1 /* programs pass keys in big-endian */
#define DOCA_GPUNETIO_VERBS_MAX_INLINE_SIZE 28
#define DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE_SHIFT 30
#define DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE (1ULL << DOCA_GPUNETIO_VERBS_MAX_TRANSFER_SIZE_SHIFT)

enum {
	DOCA_GPUNETIO_IB_MLX5_OPCODE_NOP = 0x00,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE = 0x08,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE_IMM = 0x09,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND = 0x0a,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND_IMM = 0x0b,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_WAIT = 0x0f,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ = 0x10,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_CS = 0x11,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_FA = 0x12,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_MASKED_CS = 0x14,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_MASKED_FA = 0x15,
	DOCA_GPUNETIO_IB_MLX5_OPCODE_DUMP = 0x23,

	DOCA_GPUNETIO_MLX5_OPCODE_NOP = 0x00,
	DOCA_GPUNETIO_MLX5_OPCODE_RDMA_WRITE = 0x08,
	DOCA_GPUNETIO_MLX5_OPCODE_RDMA_WRITE_IMM = 0x09,
	DOCA_GPUNETIO_MLX5_OPCODE_SEND = 0x0a,
	DOCA_GPUNETIO_MLX5_OPCODE_SEND_IMM = 0x0b,
	DOCA_GPUNETIO_MLX5_OPCODE_WAIT = 0x0f,
	DOCA_GPUNETIO_MLX5_OPCODE_RDMA_READ = 0x10,
	DOCA_GPUNETIO_MLX5_OPCODE_ATOMIC_CS = 0x11,
	DOCA_GPUNETIO_MLX5_OPCODE_ATOMIC_FA = 0x12,
	DOCA_GPUNETIO_MLX5_OPCODE_DUMP = 0x23,
};

/* Byte fm_ce_se of the control segment: fence mode << 5, completion mode << 2, solicited << 1. */
enum doca_gpu_dev_verbs_wqe_ctrl_flags {
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_ERROR_UPDATE = 0, /* a CQE only for an error */
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_SOLICITED = 1 << 1,
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_FIRST_CQE_ERROR = 1 << 2,
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE = 2 << 2, /* a CQE in any case */
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE = 1 << 5,
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_FENCE = 2 << 5,
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_STRONG_ORDERING = 3 << 5,
	DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE_FENCE = 2 << 2 | 2 << 5,

	DOCA_GPUNETIO_MLX5_WQE_CTRL_CQ_ERROR_UPDATE = 0,
	DOCA_GPUNETIO_MLX5_WQE_CTRL_SOLICITED = 1 << 1,
	DOCA_GPUNETIO_MLX5_WQE_CTRL_CQ_UPDATE = 2 << 2,
	DOCA_GPUNETIO_MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE = 1 << 5,
	DOCA_GPUNETIO_MLX5_WQE_CTRL_FENCE = 2 << 5,
	DOCA_GPUNETIO_MLX5_WQE_CTRL_STRONG_ORDERING = 3 << 5,
};

/* Words of the doorbell record. */
enum { DOCA_GPUNETIO_IB_MLX5_RCV_DBR = 0, DOCA_GPUNETIO_IB_MLX5_SND_DBR = 1 };

#define DOCA_GPUNETIO_IB_MLX5_INLINE_SEG 0x80000000U /* in byte_count: the bytes follow */

/* Numbers of segments, and what masked atomics need: these only for NVIDIA's device headers. */
enum {
	DOCA_GPUNETIO_VERBS_WQE_SEG_CNT_RDMA_WRITE_INL_MIN = 3,
	DOCA_GPUNETIO_VERBS_WQE_SEG_CNT_RDMA_WRITE_INL_MAX = 4,
	DOCA_GPUNETIO_VERBS_WQE_SEG_CNT_ATOMIC_FA_CAS = 4,
	DOCA_GPUNETIO_VERBS_WQE_SEG_CNT_WAIT = 2,
	DOCA_GPUNETIO_4_BYTE_ATOMIC_EXT_OPMOD = 0x08000000,
	DOCA_GPUNETIO_8_BYTE_ATOMIC_EXT_OPMOD = 0x09000000,
};
enum doca_gpu_dev_verbs_atomic_ext_bytes {
	DOCA_GPUNETIO_VERBS_ATOMIC_EXT_BYTES_4 = 4,
	DOCA_GPUNETIO_VERBS_ATOMIC_EXT_BYTES_8 = 8,
};

/* Opcodes of a CQE, in the upper 4 bits of op_own; its bit 0 is the owner bit. Bit 2 says that up to
 * 32 received bytes lie at the CQE's start, bit 3 that up to 64 lie before it. */
enum {
	DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK = 1,
	DOCA_GPUNETIO_IB_MLX5_INLINE_SCATTER_32 = 0x4,
	DOCA_GPUNETIO_IB_MLX5_INLINE_SCATTER_64 = 0x8,
	DOCA_GPUNETIO_IB_MLX5_CQE_REQ = 0,
	DOCA_GPUNETIO_IB_MLX5_CQE_RESP_WR_IMM = 1,
	DOCA_GPUNETIO_IB_MLX5_CQE_RESP_SEND = 2,
	DOCA_GPUNETIO_IB_MLX5_CQE_RESP_SEND_IMM = 3,
	DOCA_GPUNETIO_IB_MLX5_CQE_REQ_ERR = 13,
	DOCA_GPUNETIO_IB_MLX5_CQE_RESP_ERR = 14,
	DOCA_GPUNETIO_IB_MLX5_CQE_INVALID = 15,
};

enum doca_gpu_dev_verbs_mem_type {
	DOCA_GPUNETIO_VERBS_MEM_TYPE_AUTO = 0,
	DOCA_GPUNETIO_VERBS_MEM_TYPE_HOST = 1,
	DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU = 2,
	DOCA_GPUNETIO_VERBS_MEM_TYPE_MAX = INT_MAX,
};

/* How a queue without doorbell record is served: by hardware, or by software that emulates it. */
enum doca_gpu_verbs_send_dbr_mode_ext {
	DOCA_GPUNETIO_VERBS_SEND_DBR_MODE_EXT_VALID_DBR = 0,
	DOCA_GPUNETIO_VERBS_SEND_DBR_MODE_EXT_NO_DBR_HW = 1,
	DOCA_GPUNETIO_VERBS_SEND_DBR_MODE_EXT_NO_DBR_SW_EMULATED = 2,
};

enum doca_gpu_dev_verbs_qp_type {
	DOCA_GPUNETIO_VERBS_QP_SQ = 0,
	DOCA_GPUNETIO_VERBS_QP_RQ = 1,
};

/* Who calls a function: any thread on its own, or all 32 lanes of a warp together. */
enum doca_gpu_dev_verbs_exec_scope {
	DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD = 0,
	DOCA_GPUNETIO_VERBS_EXEC_SCOPE_WARP = 1,
};

enum doca_gpu_dev_verbs_sync_scope {
	DOCA_GPUNETIO_VERBS_SYNC_SCOPE_SYS = 0,
	DOCA_GPUNETIO_VERBS_SYNC_SCOPE_GPU = 1,
	DOCA_GPUNETIO_VERBS_SYNC_SCOPE_CTA = 2,
	DOCA_GPUNETIO_VERBS_SYNC_SCOPE_THREAD = 3,
	DOCA_GPUNETIO_VERBS_SYNC_SCOPE_MAX = INT_MAX,
};

/* Who uses a queue pair at the same time: one thread, the threads of a block, or all threads. */
enum doca_gpu_dev_verbs_resource_sharing_mode {
	DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE = 0,
	DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_CTA = 1,
	DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU = 2,
	DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_MAX = INT_MAX,
};

/* How the NIC learns of WQEs: from a CPU that reads a producer index, or from the GPU's doorbell;
 * BF writes a WQE into the doorbell (BlueFlame), NO_DBR leaves the doorbell record alone. */
enum doca_gpu_dev_verbs_nic_handler {
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO = 0,
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY = 1 << 0,
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB = 1 << 1,
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_BF = 1 << 1 | 1 << 2,
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR = 1 << 1 | 1 << 3,
	DOCA_GPUNETIO_VERBS_NIC_HANDLER_TYPE_MAX,
};

/* Bits of the last parameter (code_opt) of device functions. */
enum doca_gpu_dev_verbs_gpu_code_opt {
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT = 0,
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_ASYNC_STORE_RELEASE = 1 << 0,
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK = 1 << 1,
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_DB_RINGING = 1 << 2,
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_CPU_PROXY_UPDATE_PI = 1 << 3,
	DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_MAX = INT_MAX,
};

enum doca_gpu_dev_verbs_signal_op { DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD = 0 };

enum doca_gpu_dev_verbs_blocking_mode {
	DOCA_GPUNETIO_VERBS_BLOCKING_MODE_DISABLED = 0,
	DOCA_GPUNETIO_VERBS_BLOCKING_MODE_ENABLED = 1,
};

/* ENABLED: a DUMP entry follows a READ or a receive, so that GPUs before compute capability 9.0 see
 * the bytes that it brought. */
enum doca_gpu_dev_verbs_mcst_mode {
	DOCA_GPUNETIO_VERBS_MCST_DISABLED = 0,
	DOCA_GPUNETIO_VERBS_MCST_ENABLED = 1,
};

enum doca_gpu_dev_verbs_qp_ready_mode {
	DOCA_GPUNETIO_VERBS_READY_MODE_DEFAULT = 0,
	DOCA_GPUNETIO_VERBS_READY_MODE_ATOMIC_CAS = 1,
	DOCA_GPUNETIO_VERBS_READY_MODE_LD_ST = 2,
};

/* Segments of a WQE, 16 bytes each. */
struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg {
	__be32 opmod_idx_opcode; /* modifier << 24 | index << 8 | opcode */
	__be32 qpn_ds;           /* queue pair's number << 8 | number of segments */
	union {
		struct __attribute__((__packed__)) {
			uint8_t signature;
			__be16 dci_stream_channel_id;
			uint8_t fm_ce_se;
		};
		__be32 signature_fm_ce_se;
	};
	__be32 imm;
};

struct doca_gpunetio_ib_mlx5_wqe_raddr_seg {
	__be64 raddr;
	__be32 rkey;
	__be32 reserved;
};

struct doca_gpunetio_ib_mlx5_wqe_data_seg {
	__be32 byte_count;
	__be32 lkey;
	__be64 addr;
};

struct doca_gpunetio_ib_mlx5_wqe_atomic_seg {
	__be64 swap_add;
	__be64 compare;
};

struct doca_gpunetio_ib_mlx5_wqe_wait_seg {
	uint32_t resv[2];
	__be32 max_index;
	__be32 qpn_cqn;
};

struct doca_gpunetio_ib_mlx5_wqe_inl_data_seg {
	uint32_t byte_count;
};

struct doca_gpunetio_ib_mlx5_cqe64 {
	uint8_t rsvd0[32]; /* or received data */
	__be32 srqn_uidx;
	__be32 imm_inval_pkey;
	uint8_t app;
	uint8_t app_op;
	__be16 app_info;
	__be32 byte_cnt;
	__be64 timestamp;
	__be32 sop_drop_qpn;
	__be16 wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};

struct doca_gpunetio_ib_mlx5_err_cqe_ex {
	uint8_t rsvd0[32];
	__be32 srqn;
	uint8_t rsvd1[16];
	uint8_t hw_err_synd;
	uint8_t hw_synd_type;
	uint8_t vendor_err_synd;
	uint8_t syndrome;
	__be32 s_wqe_opcode_qpn;
	__be16 wqe_counter;
	uint8_t signature;
	uint8_t op_own;
};

DOCA_GPUNETIO_SIZE_IS(struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg, 16);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpunetio_ib_mlx5_cqe64, 64);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpunetio_ib_mlx5_err_cqe_ex, 64);

#ifdef __cplusplus
}
#endif
#endif
