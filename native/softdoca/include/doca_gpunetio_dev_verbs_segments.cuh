/* SPDX-License-Identifier: Apache-2.0 */
/* Own part of these headers: segments of entries, 16 bytes each, as two words in memory's order. Uses
 * of NVIDIA's open headers nothing but names that are in both. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_SEGMENTS_CUH
#define DOCA_GPUNETIO_DEV_VERBS_SEGMENTS_CUH

#include <doca_gpunetio_dev_verbs_common.cuh>
#include <doca_gpunetio_dev_verbs_words.cuh>

struct __align__(16) doca_priv_gpu_dev_verbs_segment {
	uint64_t first, second;
};

DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_store(void *entry, unsigned int number,
							struct doca_priv_gpu_dev_verbs_segment s)
{
	((struct doca_priv_gpu_dev_verbs_segment *)entry)[number] = s;
}

/* segments: how many the entry has, this one included. */
DOCA_GPUNETIO_DEVICE struct doca_priv_gpu_dev_verbs_segment
doca_priv_gpu_dev_verbs_control(struct doca_gpu_dev_verbs_qp *qp, uint16_t index, uint32_t opcode,
				uint32_t segments, uint32_t flags, uint32_t immediate = 0)
{
	const uint32_t number = __ldg(&qp->sq_num_shift8) | segments;
	const uint32_t what = (uint32_t)index << DOCA_GPUNETIO_VERBS_WQE_IDX_SHIFT | opcode;
	return {doca_gpu_dev_verbs_bswap64((uint64_t)what << 32 | number),
		(uint64_t)immediate << 32 | flags << 24};
}

DOCA_GPUNETIO_DEVICE struct doca_priv_gpu_dev_verbs_segment
doca_priv_gpu_dev_verbs_remote(uint64_t address, uint32_t key)
{
	return {doca_gpu_dev_verbs_bswap64(address), key};
}

DOCA_GPUNETIO_DEVICE struct doca_priv_gpu_dev_verbs_segment
doca_priv_gpu_dev_verbs_data(uint64_t address, uint32_t key, uint32_t bytes)
{
	return {doca_gpu_dev_verbs_bswap32(bytes & 0x7fffffff) | (uint64_t)key << 32,
		doca_gpu_dev_verbs_bswap64(address)};
}

#endif
