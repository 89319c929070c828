// SPDX-License-Identifier: Apache-2.0
/* Each thread writes its slots into the other process's memory, and waits for the last completion. */
#include "gpunetio.cuh"

static __global__ void put(struct side s)
{
	doca_gpu_dev_verbs_ticket_t ticket;

	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x) {
		doca_gpu_dev_verbs_put(s.qp, remote(s, receive_slot(s.count, slot)),
				       local(s, send_slot(slot)), SLOT, &ticket);
		if (slot + blockDim.x >= s.count)
			wait_for(s, ticket);
	}
}

static doca_error_t run(struct connection *, const struct side *side)
{
	put<<<1, THREADS>>>(*side);
	TRY_CUDA(cudaDeviceSynchronize());
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	return gpunetio_main(argc, argv, "gpunetio_put", 1, run);
}
