/* SPDX-License-Identifier: Apache-2.0 */
/* A queue pair as device code sees it. The library fills it in, device code counts in it. Offsets and
 * sizes are those of NVIDIA's open headers; the receive queue lies where these have reserved bytes. */
#ifndef DOCA_GPUNETIO_VERBS_DEV_H
#define DOCA_GPUNETIO_VERBS_DEV_H

#include <doca_gpunetio_verbs_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Index of a WQE since the queue's creation. */
typedef uint64_t doca_gpu_dev_verbs_ticket_t;

/* Memory with its key in big-endian. */
struct doca_gpu_dev_verbs_addr {
	uint64_t addr;
	__be32 key;
};

/* Segments of masked atomics. */
typedef struct {
	uint32_t add_data, field_boundary;
	uint64_t reserved;
} doca_gpu_dev_verbs_atomic_32_masked_fa_seg_t;
typedef struct {
	uint64_t add_data, field_boundary;
} doca_gpu_dev_verbs_atomic_64_masked_fa_seg_t;
typedef struct {
	uint32_t swap_data, compare_data, swap_mask, compare_mask;
} doca_gpu_dev_verbs_atomic_32_masked_cs_seg_t;
typedef struct {
	uint64_t swap, compare;
} doca_gpu_dev_verbs_atomic_64_masked_cs_seg_t;

struct __attribute__((__aligned__(8))) doca_gpu_dev_verbs_wqe {
	union {
		uint8_t inl_data[64];
		struct {
			struct doca_gpunetio_ib_mlx5_wqe_data_seg dseg0, dseg1, dseg2, dseg3;
		};
		struct {
			struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg rw_cseg;
			struct doca_gpunetio_ib_mlx5_wqe_raddr_seg rw_rseg;
			struct doca_gpunetio_ib_mlx5_wqe_data_seg rw_dseg0, rw_dseg1;
		};
		struct {
			struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg at_cseg;
			struct doca_gpunetio_ib_mlx5_wqe_raddr_seg at_rseg;
			struct doca_gpunetio_ib_mlx5_wqe_atomic_seg at_seg;
			struct doca_gpunetio_ib_mlx5_wqe_data_seg at_dseg;
		};
		struct {
			struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg snd_cseg;
			struct doca_gpunetio_ib_mlx5_wqe_data_seg snd_dseg0, snd_dseg1, snd_dseg2;
		};
		struct {
			struct doca_gpunetio_ib_mlx5_wqe_ctrl_seg wait_cseg;
			struct doca_gpunetio_ib_mlx5_wqe_wait_seg wait_dseg;
		};
	};
};

struct __attribute__((__aligned__(8))) doca_gpu_dev_verbs_cq {
	uint8_t *cqe_daddr; /* ring */
	uint32_t cq_num, cqe_num;
	__be32 *dbrec;
	uint64_t cqe_ci; /* CQEs before this index were consumed */
	uint32_t cqe_mask; /* cqe_num - 1 */
	uint8_t cqe_size;
	uint8_t reserved1[3];
	uint64_t cqe_rsvd; /* CQEs that came before index 0 */
	enum doca_gpu_dev_verbs_mem_type mem_type;
	uint8_t reserved2[12];
};

struct __attribute__((__aligned__(8))) doca_gpu_dev_verbs_qp {
	/* Slots before these indices are reserved, written, known to the NIC. */
	uint64_t sq_rsvd_index, sq_ready_index, sq_wqe_pi;
	uint32_t sq_num;
	/* sq_num << 8, then the same in big-endian, alone and with a number of segments. */
	uint32_t sq_num_shift8, sq_num_shift8_be, sq_num_shift8_be_1ds, sq_num_shift8_be_2ds,
		sq_num_shift8_be_3ds, sq_num_shift8_be_4ds, sq_num_shift8_be_5ds;
	int sq_lock; /* 1: a thread rings the doorbell */
	uint16_t sq_wqe_num, sq_wqe_mask;
	uint8_t *sq_wqe_daddr; /* ring of WQEs of 64 bytes */
	__be32 *sq_dbrec;
	uint64_t *sq_db; /* doorbell; with CPU_PROXY the producer index that the CPU reads */
	uint8_t reserved1[8];

	/* Receive queue: 64 bytes that are reserved in the open headers. */
	uint64_t rq_rsvd_index, rq_ready_index, rq_wqe_pi;
	uint8_t *rq_wqe_daddr; /* ring of entries of 1 << rq_wqe_shift bytes: data segments */
	__be32 *rq_dbrec;
	uint32_t rq_wqe_num, rq_wqe_mask, rq_wqe_shift;
	int rq_lock;
	uint8_t reserved2[8];

	struct doca_gpu_dev_verbs_cq cq_sq;
	struct doca_gpu_dev_verbs_cq cq_rq; /* also reserved in the open headers */
	enum doca_gpu_dev_verbs_nic_handler nic_handler;
	enum doca_gpu_dev_verbs_mem_type mem_type;
};

DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_verbs_wqe, 64);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_verbs_cq, 64);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_verbs_qp, 296);

#ifdef __cplusplus
}
#endif
#endif
