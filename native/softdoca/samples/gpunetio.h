/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common part of the samples of GPUNetIO Verbs: two processes, each with a GPU, queue pairs and memory,
 * connected to one another. Both run the same kernels.
 *
 * The memory of each process has `count` slots that it sends from, `count` slots that it receives in,
 * a word that the other process adds to, and `count` words for the results of atomic operations.
 */
#ifndef SAMPLES_GPUNETIO_H
#define SAMPLES_GPUNETIO_H

#include <cuda_runtime.h>

#include <doca_gpunetio.h>

#include "sample.h"

#define SLOT	64u /* bytes */
#define DEPTH	256u /* entries of each queue */
#define THREADS 64

/* Calls a function of the CUDA runtime; logs an error and returns from the calling function. */
#define TRY_CUDA(call)                                     \
	do {                                               \
		cudaError_t try_result = (call);           \
		if (try_result != cudaSuccess)             \
			return failed_cuda(#call, try_result); \
	} while (0)

/* Argument of the kernels. Keys are in big-endian. */
struct side {
	struct doca_gpu_dev_verbs_qp *qp, *companion;
	uint64_t local, remote;
	uint32_t local_key, remote_key, count;
	bool client; /* whether this process is the client */
	uint32_t *failed; /* number of errors that the kernels saw */
};

struct connection;
/* Launches the kernels of a sample, and waits for their ends. */
typedef doca_error_t (*sample_run)(struct connection *c, const struct side *side);

/* Runs a sample with 1 or 2 queue pairs (the second is the companion). Returns the exit code: 0 if
 * all slots were received right, and no completion had an error. */
int gpunetio_main(int argc, char **argv, const char *name, int queue_pairs, sample_run run);
/* Waits until the other process has called it as often. */
doca_error_t gpunetio_barrier(struct connection *c);
doca_error_t failed_cuda(const char *what, cudaError_t error);

/* Byte `at` of a slot that the client, or the server, sends. */
static inline uint8_t __host__ __device__ pattern(bool client, uint32_t slot, uint32_t at)
{
	return (uint8_t)(slot * 7 + at + (client ? 101 : 3));
}

/* Offsets in the memory of either process. */
static inline uint64_t __host__ __device__ send_slot(uint32_t slot)
{
	return (uint64_t)slot * SLOT;
}

static inline uint64_t __host__ __device__ receive_slot(uint32_t count, uint32_t slot)
{
	return ((uint64_t)count + slot) * SLOT;
}

static inline uint64_t __host__ __device__ signal_word(uint32_t count)
{
	return 2ull * count * SLOT;
}

static inline uint64_t __host__ __device__ result_word(uint32_t count, uint32_t slot)
{
	return signal_word(count) + 8 + 8ull * slot;
}

#endif
