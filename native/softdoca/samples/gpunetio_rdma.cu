// SPDX-License-Identifier: Apache-2.0
/*
 * RDMA from kernels of two processes, over one connection:
 *
 *	gpunetio_rdma --role responder [--pci-addr 03:00.0] [--gpu 0] [--count N] [--size BYTES]
 *	gpunetio_rdma --role requester ...
 *
 * The requester's kernel writes its slots to the responder's memory (weak mode: each thread knows its
 * position) and reads them back behind its own (strong mode: any thread posts). Then it writes an immediate
 * value, for which the responder's kernel waits, and waits for the message that this one sends. Both
 * processes compare what arrived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_buf_array.h>
#include <doca_ctx.h>
#include <doca_gpunetio_dev_rdma.cuh>
#include <doca_log.h>

#include "gpunetio.h"
#include "rdma_pair.h"

DOCA_LOG_REGISTER(GPUNETIO_RDMA);

#define NOTICE 0x600du

/* The slots of a map, for kernels. */
struct slots {
	struct doca_buf_arr *array;
	struct doca_gpu_buf_arr *handle;
};

struct exchange {
	struct options options;
	struct pair pair;
	struct doca_gpu *gpu;
	char *bytes; /* the memory, for the CPU */
	struct slots near, far;
	uint32_t *failed; /* number of errors that the kernels saw */
};

/* Argument of the kernels. */
struct work {
	struct doca_gpu_dev_rdma *rdma;
	struct doca_gpu_buf_arr *near, *far;
	uint32_t count, size;
	uint32_t *failed;
};

static __device__ struct doca_gpu_buf *slot_of(struct doca_gpu_buf_arr *array, uint32_t slot)
{
	struct doca_gpu_buf *buf = NULL;

	doca_gpu_dev_buf_get_buf(array, slot, &buf);
	return buf;
}

static __device__ void note(const struct work &w, doca_error_t result)
{
	if (result)
		atomicAdd_system(w.failed, 1);
}

/* The threads write one slot each, at positions one behind the other; then one thread commits them. */
static __device__ void write_slots(const struct work &w)
{
	uint32_t position, mask;

	for (uint32_t first = 0; first < w.count; first += blockDim.x) {
		const uint32_t slot = first + threadIdx.x, left = w.count - first;

		note(w, doca_gpu_dev_rdma_get_info(w.rdma, 0, &position, &mask));
		if (slot < w.count)
			note(w, doca_gpu_dev_rdma_write_weak(w.rdma, 0, slot_of(w.far, slot), 0,
							     slot_of(w.near, slot), 0, w.size, 0,
							     DOCA_GPU_RDMA_WRITE_FLAG_NONE,
							     (position + threadIdx.x) & mask));
		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0)
			note(w, doca_gpu_dev_rdma_commit_weak(w.rdma, 0,
							      left < blockDim.x ? left : blockDim.x));
		__syncthreads();
	}
}

static __device__ void read_slots(const struct work &w)
{
	for (uint32_t slot = threadIdx.x; slot < w.count; slot += blockDim.x)
		note(w, doca_gpu_dev_rdma_read_strong(w.rdma, 0, slot_of(w.far, slot), 0,
						      slot_of(w.near, w.count + slot), 0, w.size, 0));
	__syncthreads();
	if (threadIdx.x == 0)
		note(w, doca_gpu_dev_rdma_commit_strong(w.rdma, 0));
}

/* Waits until all operations have completed, and as many as expected. */
static __device__ void wait_for_all(const struct work &w, uint32_t expected)
{
	uint32_t done = 0;

	note(w, doca_gpu_dev_rdma_wait_all(w.rdma, &done));
	note(w, done == expected ? DOCA_SUCCESS : DOCA_ERROR_UNEXPECTED);
}

static __device__ void receive_one(const struct work &w, struct doca_gpu_dev_rdma_r *receives,
				   uint32_t expected)
{
	uint32_t n = 0, value = 0, connection = 1;

	note(w, doca_gpu_dev_rdma_recv_wait_all(receives, DOCA_GPU_RDMA_RECV_WAIT_FLAG_B, &n, &value,
						&connection));
	note(w, n == 1 && value == expected && connection == 0 ? DOCA_SUCCESS : DOCA_ERROR_UNEXPECTED);
}

static __global__ void request(struct work w)
{
	struct doca_gpu_dev_rdma_r *receives;
	uint8_t notice[4] = {};

	write_slots(w);
	read_slots(w);
	if (threadIdx.x != 0)
		return;
	wait_for_all(w, 2 * w.count);
	doca_gpu_dev_rdma_get_recv(w.rdma, &receives);
	note(w, doca_gpu_dev_rdma_recv_strong(receives, slot_of(w.near, 2 * w.count), w.size, 0, 0));
	note(w, doca_gpu_dev_rdma_recv_commit_strong(receives));
	note(w, doca_gpu_dev_rdma_write_inline_strong(w.rdma, 0, slot_of(w.far, 2 * w.count), 0, notice, 0,
						      NOTICE, DOCA_GPU_RDMA_WRITE_FLAG_IMM));
	note(w, doca_gpu_dev_rdma_commit_strong(w.rdma, 0));
	wait_for_all(w, 1);
	receive_one(w, receives, NOTICE + 1);
}

static __global__ void respond(struct work w)
{
	struct doca_gpu_dev_rdma_r *receives;

	doca_gpu_dev_rdma_get_recv(w.rdma, &receives);
	note(w, doca_gpu_dev_rdma_recv_strong(receives, NULL, 0, 0, 0));
	note(w, doca_gpu_dev_rdma_recv_commit_strong(receives));
	receive_one(w, receives, NOTICE);
	note(w, doca_gpu_dev_rdma_send_strong(w.rdma, 0, slot_of(w.near, 0), 0, w.size, NOTICE + 1,
					      DOCA_GPU_RDMA_SEND_FLAG_IMM));
	note(w, doca_gpu_dev_rdma_commit_strong(w.rdma, 0));
	wait_for_all(w, 1);
}

static char byte_of(uint32_t slot, uint32_t at)
{
	return (char)(1 + (slot * 7 + at) % 253);
}

/* The memory has the slots, those that are read back, and one for the message. */
static doca_error_t open_memory(struct exchange *e)
{
	const struct options *o = &e->options;
	char pci[32];

	if (o->count < 1 || o->size < 1 || (int64_t)o->count * o->size > 1 << 28) {
		DOCA_LOG_ERR("--count is %d, --size %d; their product must be 1 to %d", o->count, o->size,
			     1 << 28);
		return DOCA_ERROR_INVALID_VALUE;
	}
	TRY_CUDA(cudaSetDevice(o->gpu));
	TRY_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, o->gpu));
	TRY_DOCA(doca_gpu_create(pci, &e->gpu));
	e->pair.bytes = (2 * (size_t)o->count + 1) * (size_t)o->size;
	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, e->pair.bytes, 65536, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&e->pair.memory, (void **)&e->bytes));
	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, sizeof *e->failed, 65536, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&e->failed, (void **)&e->failed));
	*e->failed = 0;
	memset(e->bytes, 0, e->pair.bytes);
	return DOCA_SUCCESS;
}

static doca_error_t open_slots(const struct exchange *e, struct doca_mmap *map, struct slots *s)
{
	TRY_DOCA(doca_buf_arr_create(2 * (size_t)e->options.count + 1, &s->array));
	TRY_DOCA(doca_buf_arr_set_target_gpu(s->array, e->gpu));
	TRY_DOCA(doca_buf_arr_set_params(s->array, map, (size_t)e->options.size, 0));
	TRY_DOCA(doca_buf_arr_start(s->array));
	TRY_DOCA(doca_buf_arr_get_gpu_handle(s->array, &s->handle));
	return DOCA_SUCCESS;
}

static doca_error_t meet(struct exchange *e, struct work *w)
{
	struct pair *p = &e->pair;

	TRY(pair_open(p, &e->options));
	TRY_DOCA(doca_ctx_set_datapath_on_gpu(p->ctx, e->gpu));
	TRY(pair_start(p));
	TRY_DOCA(doca_rdma_get_gpu_handle(p->rdma, &w->rdma));
	TRY(pair_meet(p, &e->options));
	TRY(open_slots(e, p->map, &e->near));
	return open_slots(e, p->far, &e->far);
}

/* Returns how many slots, from `first` on, have the requester's bytes. */
static uint32_t right(const struct exchange *e, uint32_t first, uint32_t count)
{
	const uint32_t size = (uint32_t)e->options.size;
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < count; slot++) {
		const volatile char *at = e->bytes + (size_t)(first + slot) * size;
		uint32_t i = 0;

		while (i < size && at[i] == byte_of(slot, i))
			i++;
		n += i == size;
	}
	return n;
}

static doca_error_t run(struct exchange *e)
{
	const uint32_t count = (uint32_t)e->options.count, size = (uint32_t)e->options.size;
	struct work w = {};
	uint32_t n;

	TRY(open_memory(e));
	TRY(meet(e, &w));
	w.near = e->near.handle;
	w.far = e->far.handle;
	w.count = count;
	w.size = size;
	w.failed = e->failed;
	for (uint32_t i = 0; e->pair.requester && i < count * size; i++)
		e->bytes[i] = byte_of(i / size, i % size);
	if (e->pair.requester)
		request<<<1, THREADS>>>(w);
	else
		respond<<<1, 1>>>(w);
	TRY_CUDA(cudaDeviceSynchronize());
	n = e->pair.requester ? right(e, count, count) + right(e, 2 * count, 1) : right(e, 0, count);
	printf("gpunetio_rdma, %s: %u of %u right, %u errors in kernels\n", e->options.role, n,
	       count + e->pair.requester, *e->failed);
	return n == count + e->pair.requester && !*e->failed ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

static void close_exchange(struct exchange *e)
{
	if (e->near.array)
		doca_buf_arr_destroy(e->near.array);
	if (e->far.array)
		doca_buf_arr_destroy(e->far.array);
	pair_close(&e->pair);
	if (e->gpu)
		doca_gpu_destroy(e->gpu); /* frees its memory, too */
}

int main(int argc, char **argv)
{
	static struct exchange e;
	doca_error_t result;

	e.options.count = 1000;
	e.options.size = 64;
	result = sample_begin(argc, argv, "gpunetio_rdma", WANT_COUNT | WANT_SIZE | WANT_GPU | WANT_RDMA,
			      &e.options);
	if (result == DOCA_SUCCESS)
		result = run(&e);
	close_exchange(&e);
	return sample_end(result);
}
