// SPDX-License-Identifier: Apache-2.0
/* Each process posts receives, then sends as many messages. A message does not say where it goes: the
 * oldest receive takes it, so one thread posts, in the order of the slots. */
#include "gpunetio.cuh"

#include <doca_gpunetio_dev_verbs_twosided.cuh>

static __global__ void post_receives(struct side s, uint32_t first, uint32_t n)
{
	doca_gpu_dev_verbs_ticket_t ticket;

	for (uint32_t slot = first; slot < first + n; slot++)
		doca_gpu_dev_verbs_recv(s.qp, local(s, receive_slot(s.count, slot)), SLOT, &ticket);
}

/* Block 0 sends, block 1 waits for what arrives. */
static __global__ void exchange(struct side s, uint32_t first, uint32_t n)
{
	doca_gpu_dev_verbs_ticket_t ticket;
	struct doca_gpunetio_ib_mlx5_cqe64 *cqe;

	for (uint32_t slot = first; slot < first + n; slot++) {
		if (blockIdx.x == 0) {
			doca_gpu_dev_verbs_send(s.qp, local(s, send_slot(slot)), SLOT, &ticket);
			if (!wait_for(s, ticket))
				return;
			continue;
		}
		ticket = slot;
		if (doca_gpu_dev_verbs_recv_wait(s.qp, local(s, receive_slot(s.count, slot)),
						 &ticket, &cqe) ||
		    doca_gpu_dev_verbs_cqe_get_bytes(cqe) != SLOT) {
			atomicAdd(s.failed, 1);
			return;
		}
	}
}

static doca_error_t run(struct connection *c, const struct side *side)
{
	for (uint32_t first = 0; first < side->count; first += DEPTH) {
		const uint32_t left = side->count - first, n = left < DEPTH ? left : DEPTH;

		post_receives<<<1, 1>>>(*side, first, n);
		TRY_CUDA(cudaDeviceSynchronize());
		TRY(gpunetio_barrier(c)); /* a send needs a receive at the other side */
		exchange<<<2, 1>>>(*side, first, n);
		TRY_CUDA(cudaDeviceSynchronize());
	}
	return DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	return gpunetio_main(argc, argv, "gpunetio_send_receive", 1, run);
}
