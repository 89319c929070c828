// SPDX-License-Identifier: Apache-2.0
/* As gpunetio_put_signal, but a second queue pair raises the word: it waits for the completion of the
 * put, so the word counts right on networks that reorder, too. */
#include "gpunetio.cuh"

#include <doca_gpunetio_dev_verbs_counter.cuh>

static __global__ void put_counter(struct side s)
{
	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x)
		doca_gpu_dev_verbs_put_counter(s.qp, remote(s, receive_slot(s.count, slot)),
					       local(s, send_slot(slot)), SLOT, s.companion,
					       remote(s, signal_word(s.count)),
					       local(s, result_word(s.count, slot)), 1);
	wait_for_signals(s);
	check_slots(s);
	doca_gpu_dev_verbs_wait(s.companion);
}

static doca_error_t run(struct connection *, const struct side *side)
{
	put_counter<<<1, THREADS>>>(*side);
	TRY_CUDA(cudaDeviceSynchronize());
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	return gpunetio_main(argc, argv, "gpunetio_put_counter", 2, run);
}
