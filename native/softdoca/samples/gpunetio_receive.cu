// SPDX-License-Identifier: Apache-2.0
/*
 * Two kernels: one receives UDP datagrams of IPv4, and hands them by a semaphore to the other one, which
 * adds up their bytes. Both run until --count datagrams were added, or until Ctrl-C.
 *
 *	receive: waits until an item is FREE, puts packets into it, sets it READY
 *	add:     waits until it is READY, reads the packets, sets it FREE
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <doca_gpunetio_dev_eth_rxq.cuh>
#include <doca_gpunetio_dev_sem.cuh>

#include "ethernet.h"

#define THREADS	   32
#define ITEMS	   16u /* ITEMS * THREADS packets are fewer than the queue's places: none is overwritten */
#define TIMEOUT_NS 500000u
#define HEADERS	   42u /* bytes of the headers of Ethernet, IPv4 and UDP */

/* Memory of GPU and CPU. */
struct state {
	uint32_t stop, failed;
	uint64_t datagrams, sum;
};

/* Waits until an item has a status; returns false if the kernels are to end. */
static __device__ bool wait_for(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
				enum doca_gpu_semaphore_status wanted, const struct state *state)
{
	enum doca_gpu_semaphore_status status;

	while (!DOCA_GPUNETIO_VOLATILE(state->stop)) {
		doca_gpu_dev_semaphore_get_status(semaphore, item, &status);
		if (status == wanted)
			return true;
	}
	return false;
}

static __global__ void receive(struct doca_gpu_eth_rxq *rxq, struct doca_gpu_semaphore_gpu *semaphore,
			       struct state *state)
{
	uint64_t first;
	uint32_t count, item = 0;

	while (wait_for(semaphore, item, DOCA_GPU_SEMAPHORE_STATUS_FREE, state)) {
		if (doca_gpu_dev_eth_rxq_recv(rxq, THREADS, TIMEOUT_NS, &first, &count, NULL) !=
		    DOCA_SUCCESS) {
			DOCA_GPUNETIO_VOLATILE(state->failed) = 1;
			DOCA_GPUNETIO_VOLATILE(state->stop) = 1;
		} else if (count) {
			doca_gpu_dev_semaphore_set_packet_info(
				semaphore, item, DOCA_GPU_SEMAPHORE_STATUS_READY, count, first);
			item = (item + 1) % ITEMS;
		}
	}
}

/* Sum of a datagram's bytes; the rules let only whole UDP headers pass. */
static __device__ uint64_t add_datagram(const uint8_t *frame)
{
	const uint32_t all = (uint32_t)frame[16] << 8 | frame[17]; /* length of the IPv4 packet */
	uint64_t sum = 0;

	for (uint32_t at = HEADERS; at < 14 + all; at++)
		sum += frame[at];
	return sum;
}

/* One block: each thread reads one packet of an item. */
static __global__ void add(struct doca_gpu_eth_rxq *rxq, struct doca_gpu_semaphore_gpu *semaphore,
			   uint64_t most, struct state *state)
{
	__shared__ uint64_t first;
	__shared__ uint32_t count;
	__shared__ bool goes_on;

	for (uint32_t item = 0;; item = (item + 1) % ITEMS) {
		if (threadIdx.x == 0) {
			goes_on = (!most || state->datagrams < most) &&
				  wait_for(semaphore, item, DOCA_GPU_SEMAPHORE_STATUS_READY, state);
			if (goes_on)
				doca_gpu_dev_semaphore_get_packet_info_status(
					semaphore, item, DOCA_GPU_SEMAPHORE_STATUS_READY, &count,
					&first);
		}
		__syncthreads();
		if (!goes_on)
			break;
		if (threadIdx.x < count) {
			const uint8_t *frame = (const uint8_t *)doca_gpu_dev_eth_rxq_get_pkt_addr(
				rxq, first + threadIdx.x);
			atomicAdd((unsigned long long *)&state->sum, add_datagram(frame));
		}
		__syncthreads();
		if (threadIdx.x == 0) {
			state->datagrams += count;
			doca_gpu_dev_semaphore_set_status(semaphore, item,
							  DOCA_GPU_SEMAPHORE_STATUS_FREE);
		}
	}
	if (threadIdx.x == 0)
		DOCA_GPUNETIO_VOLATILE(state->stop) = 1;
}

static doca_error_t open_semaphore(struct ethernet *e, struct doca_gpu_semaphore **semaphore,
				   struct doca_gpu_semaphore_gpu **device)
{
	TRY_DOCA(doca_gpu_semaphore_create(e->gpu, semaphore));
	TRY_DOCA(doca_gpu_semaphore_set_memory_type(*semaphore, DOCA_GPU_MEM_TYPE_GPU));
	TRY_DOCA(doca_gpu_semaphore_set_items_num(*semaphore, ITEMS));
	TRY_DOCA(doca_gpu_semaphore_start(*semaphore));
	TRY_DOCA(doca_gpu_semaphore_get_gpu_handle(*semaphore, device));
	return DOCA_SUCCESS;
}

static doca_error_t run(struct ethernet *e)
{
	struct doca_gpu_semaphore *semaphore;
	struct doca_gpu_semaphore_gpu *device;
	struct state *state, *seen;
	cudaStream_t streams[2];

	TRY(open_semaphore(e, &semaphore, &device));
	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, sizeof *state, 4096, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&state, (void **)&seen));
	for (int i = 0; i < 2; i++)
		TRY_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
	receive<<<1, 1, 0, streams[0]>>>(e->gpu_rxq, device, state);
	add<<<1, THREADS, 0, streams[1]>>>(e->gpu_rxq, device, (uint64_t)e->options.count, state);
	TRY_CUDA(cudaGetLastError());
	printf("gpunetio_receive: ready\n");
	fflush(stdout);
	while (!stopped() && !DOCA_GPUNETIO_VOLATILE(seen->stop))
		usleep(1000);
	DOCA_GPUNETIO_VOLATILE(seen->stop) = 1;
	TRY_CUDA(cudaDeviceSynchronize());
	printf("gpunetio_receive: %lu datagrams, the sum of their bytes is %lu\n",
	       (unsigned long)seen->datagrams, (unsigned long)seen->sum);
	TRY_DOCA(doca_gpu_semaphore_stop(semaphore));
	TRY_DOCA(doca_gpu_semaphore_destroy(semaphore));
	return seen->failed ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

int main(int argc, char **argv)
{
	static struct ethernet e;

	/* CUDA loads a kernel at its first launch, which may wait for the kernels that run: but each
	 * of these two waits for the other. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	doca_error_t result =
		sample_begin(argc, argv, "gpunetio_receive", WANT_GPU | WANT_COUNT, &e.options);

	if (result == DOCA_SUCCESS)
		result = ethernet_open(&e);
	if (result == DOCA_SUCCESS)
		result = ethernet_receive(&e, DOCA_FLOW_ETHER_TYPE_IPV4, IPPROTO_UDP);
	if (result == DOCA_SUCCESS)
		result = run(&e);
	ethernet_close(&e);
	return sample_end(result);
}
