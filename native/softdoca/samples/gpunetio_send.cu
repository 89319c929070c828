// SPDX-License-Identifier: Apache-2.0
/*
 * The threads of a kernel send --count frames of --size bytes, each at its own time, 100 us after the
 * frame before. The frames have the type 0x88b5, which IEEE 802 reserves for experiments, and a number.
 */
#include <stdio.h>
#include <time.h>

#include <doca_gpunetio_dev_eth_txq.cuh>

#include "ethernet.h"

#define THREADS	 32
#define GAP_NS	 100000u
#define START_NS 200000000u /* from now until the first frame */
#define BIGGEST	 1514 /* bytes of a frame on an interface with the usual MTU */

static __device__ void write_frame(uint8_t *frame, uint32_t size, uint32_t number)
{
	const uint8_t head[14] = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 2, 0x88, 0xb5};

	for (uint32_t at = 0; at < size; at++)
		frame[at] = at < 14 ? head[at] : (uint8_t)(number >> 8 * ((at - 14) % 4));
}

/* One block, whose threads have a frame each in every round, in the order of their numbers. The last one
 * asks for a completion. Frames are in the memory of the receive queue, which receives nothing. */
static __global__ void send(struct doca_gpu_eth_txq *txq, char *frames, uint32_t key, uint32_t size,
			    uint32_t count, uint64_t start, uint32_t *failed)
{
	uint8_t *frame = (uint8_t *)frames + threadIdx.x * FRAME_BYTES;
	const enum doca_gpu_eth_send_flags flags = threadIdx.x == THREADS - 1
							   ? DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY
							   : DOCA_GPUNETIO_ETH_SEND_FLAG_NONE;
	doca_gpu_dev_eth_ticket_t ticket;
	uint32_t completed;

	for (uint32_t number = threadIdx.x; number < count; number += THREADS) {
		write_frame(frame, size, number);
		doca_gpu_dev_eth_txq_wait_send<DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_CTA,
					       DOCA_GPUNETIO_ETH_SYNC_SCOPE_CTA,
					       DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
					       DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK>(
			txq, start + (uint64_t)number * GAP_NS, (uint64_t)frame, key, size, flags,
			&ticket);
		if (threadIdx.x == 0 &&
		    doca_gpu_dev_eth_txq_poll_completion(txq, 1, DOCA_GPUNETIO_ETH_WAIT_FLAG_B,
							 &completed) != DOCA_SUCCESS)
			*failed = 1;
		__syncthreads();
	}
}

static doca_error_t check(const struct options *o)
{
	if (o->count > 0 && o->count % THREADS == 0 && o->size >= 60 && o->size <= BIGGEST)
		return DOCA_SUCCESS;
	fprintf(stderr, "--count is %d and --size %d; they must be a multiple of %d, and 60 to %d\n",
		o->count, o->size, THREADS, BIGGEST);
	return DOCA_ERROR_INVALID_VALUE;
}

static doca_error_t run(struct ethernet *e)
{
	struct timespec now;
	uint32_t *errors, *seen;
	uint64_t start;

	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, sizeof *errors, 4096, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&errors, (void **)&seen));
	printf("gpunetio_send: ready\n");
	fflush(stdout);
	wait_for_enter();
	clock_gettime(CLOCK_REALTIME, &now);
	TRY_DOCA(doca_eth_txq_calculate_timestamp(
		e->txq, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + START_NS,
		&start));
	send<<<1, THREADS>>>(e->gpu_txq, e->frames, e->key, (uint32_t)e->options.size,
			     (uint32_t)e->options.count, start, errors);
	TRY_CUDA(cudaDeviceSynchronize());
	printf("gpunetio_send: %d frames of %d bytes\n", e->options.count, e->options.size);
	return *seen ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	static struct ethernet e;

	e.options.count = 1024;
	e.options.size = 64;
	doca_error_t result = sample_begin(argc, argv, "gpunetio_send",
					   WANT_GPU | WANT_COUNT | WANT_SIZE, &e.options);
	if (result == DOCA_SUCCESS)
		result = check(&e.options);
	if (result == DOCA_SUCCESS)
		result = ethernet_open(&e);
	if (result == DOCA_SUCCESS)
		result = run(&e);
	ethernet_close(&e);
	return sample_end(result);
}
