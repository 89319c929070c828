/* SPDX-License-Identifier: Apache-2.0 */
/* Common code of the samples' kernels. */
#ifndef SAMPLES_GPUNETIO_CUH
#define SAMPLES_GPUNETIO_CUH

#include <doca_gpunetio_dev_verbs_onesided.cuh>

#include "gpunetio.h"

#define WAIT_NS 30000000000ull /* how long a kernel waits for the other process */

static __device__ struct doca_gpu_dev_verbs_addr local(const struct side &s, uint64_t offset)
{
	return {s.local + offset, s.local_key};
}

static __device__ struct doca_gpu_dev_verbs_addr remote(const struct side &s, uint64_t offset)
{
	return {s.remote + offset, s.remote_key};
}

/* Waits for the completion of an entry. Counts an error and returns false; all later entries of the
 * queue pair then fail, too. */
static __device__ bool wait_for(const struct side &s, doca_gpu_dev_verbs_ticket_t ticket)
{
	if (!doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(s.qp), ticket))
		return true;
	atomicAdd(s.failed, 1);
	return false;
}

/* Waits until the other process has raised this one's signal word to `count`. The bytes that it wrote
 * before are then in memory. */
static __device__ void wait_for_signals(const struct side &s)
{
	volatile uint64_t *word = (volatile uint64_t *)(s.local + signal_word(s.count));
	const uint64_t start = doca_gpu_dev_verbs_query_globaltimer();
	while (*word < s.count)
		if (doca_gpu_dev_verbs_query_globaltimer() - start > WAIT_NS) {
			atomicAdd(s.failed, 1);
			break;
		}
	doca_gpu_dev_verbs_fence_acquire<DOCA_GPUNETIO_VERBS_SYNC_SCOPE_SYS>();
}

/* Counts the bytes that differ from what the other process has sent. */
static __device__ void check_slots(const struct side &s)
{
	const volatile uint8_t *memory = (const volatile uint8_t *)s.local;
	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x)
		for (uint32_t at = 0; at < SLOT; at++)
			if (memory[receive_slot(s.count, slot) + at] != pattern(!s.client, slot, at))
				atomicAdd(s.failed, 1);
}

#endif
