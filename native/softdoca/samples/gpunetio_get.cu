// SPDX-License-Identifier: Apache-2.0
/* Each thread reads the other process's slots. GPUs before compute capability 9.0 see what a read
 * brought only after a DUMP entry; MCST_ENABLED appends it. */
#include "gpunetio.cuh"

static __global__ void get(struct side s)
{
	doca_gpu_dev_verbs_ticket_t ticket;

	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x) {
		const uint64_t to = receive_slot(s.count, slot);

		doca_gpu_dev_verbs_get<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
				       DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
				       DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD,
				       DOCA_GPUNETIO_VERBS_MCST_ENABLED>(
			s.qp, remote(s, send_slot(slot)), local(s, to), SLOT, local(s, to),
			&ticket);
		if (!wait_for(s, ticket))
			return;
	}
}

static doca_error_t run(struct connection *, const struct side *side)
{
	get<<<1, THREADS>>>(*side);
	TRY_CUDA(cudaDeviceSynchronize());
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	return gpunetio_main(argc, argv, "gpunetio_get", 1, run);
}
