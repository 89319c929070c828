// SPDX-License-Identifier: Apache-2.0
/* Each thread writes its slots and adds 1 to the other process's signal word behind each. Once a kernel
 * has seen all signals, it reads what it received, while the CPU does nothing. */
#include "gpunetio.cuh"

static __global__ void put_signal(struct side s)
{
	doca_gpu_dev_verbs_ticket_t ticket;

	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x) {
		doca_gpu_dev_verbs_put_signal<DOCA_GPUNETIO_VERBS_SIGNAL_OP_ADD>(
			s.qp, remote(s, receive_slot(s.count, slot)), local(s, send_slot(slot)),
			SLOT, remote(s, signal_word(s.count)), local(s, result_word(s.count, slot)),
			1, &ticket);
		if (slot + blockDim.x >= s.count)
			wait_for(s, ticket);
	}
	wait_for_signals(s);
	check_slots(s);
}

static doca_error_t run(struct connection *, const struct side *side)
{
	put_signal<<<1, THREADS>>>(*side);
	TRY_CUDA(cudaDeviceSynchronize());
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	return gpunetio_main(argc, argv, "gpunetio_put_signal", 1, run);
}
