// SPDX-License-Identifier: Apache-2.0
/*
 * Copies started by a kernel, between this process's memory and that of a GPU:
 *
 *	gpunetio_dma [--pci-addr 03:00.0] [--gpu 0] [--count N] [--size BYTES]
 *
 * Each thread copies its slots to the GPU, waits for the bytes, adds 1 to each, and copies them back. The
 * process compares them. DMA has no completions on a GPU, so both wait for the bytes themselves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <doca_buf_array.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_dma.cuh>
#include <doca_log.h>
#include <doca_mmap.h>

#include "gpunetio.h"

DOCA_LOG_REGISTER(GPUNETIO_DMA);

#define PAGE	65536u /* no page of a system is larger */
#define WAIT_NS 30000000000ull

/* Memory with an array of its slots. */
struct memory {
	char *at;
	struct doca_mmap *map;
	struct doca_buf_arr *array;
	struct doca_gpu_buf_arr *slots; /* for kernels */
};

struct copies {
	struct options options;
	size_t size; /* of a memory */
	struct doca_dev *dev;
	struct doca_gpu *gpu;
	struct doca_dma *dma;
	struct memory source, on_gpu, sink;
};

/* Argument of the kernel. */
struct slots {
	struct doca_gpu_dma *dma;
	struct doca_gpu_buf_arr *source, *on_gpu, *sink;
	uint32_t count, size;
};

/* Byte `at` of a slot; never 0, which the memories have before the first copy. */
static uint8_t __host__ __device__ source_byte(uint32_t slot, uint32_t at)
{
	return (uint8_t)(1 + (slot * 7 + at) % 253);
}

static __device__ bool copy(const struct slots &s, struct doca_gpu_buf_arr *from,
			    struct doca_gpu_buf_arr *to, uint32_t slot)
{
	struct doca_gpu_buf *src, *dst;

	return !doca_gpu_dev_buf_get_buf(from, slot, &src) &&
	       !doca_gpu_dev_buf_get_buf(to, slot, &dst) &&
	       !doca_gpu_dev_dma_memcpy(s.dma, src, 0, dst, 0, s.size) &&
	       !doca_gpu_dev_dma_commit(s.dma);
}

/* Waits until the slot has what the process has written, and adds 1 to each byte. */
static __device__ bool change(const struct slots &s, uint32_t slot)
{
	const uint64_t start = doca_gpu_dev_verbs_query_globaltimer();
	struct doca_gpu_buf *buf;
	uintptr_t addr;

	doca_gpu_dev_buf_get_buf(s.on_gpu, slot, &buf);
	doca_gpu_dev_buf_get_addr(buf, &addr);
	volatile uint8_t *bytes = (volatile uint8_t *)addr;
	for (uint32_t at = 0; at < s.size; at++)
		while (bytes[at] != source_byte(slot, at))
			if (doca_gpu_dev_verbs_query_globaltimer() - start > WAIT_NS)
				return false;
	for (uint32_t at = 0; at < s.size; at++)
		bytes[at]++;
	__threadfence_system(); /* the NIC reads them */
	return true;
}

static __global__ void there_and_back(struct slots s)
{
	for (uint32_t slot = threadIdx.x; slot < s.count; slot += blockDim.x)
		if (!copy(s, s.source, s.on_gpu, slot) || !change(s, slot) ||
		    !copy(s, s.on_gpu, s.sink, slot))
			printf("slot %u failed\n", slot);
}

static doca_error_t can_copy(const struct doca_devinfo *info)
{
	return doca_dma_cap_task_memcpy_is_supported(info);
}

/* The GPU comes first: softdoca's NIC moves the memory of the GPU that exists when it starts. */
static doca_error_t open_devices(struct copies *c)
{
	char pci[32];

	TRY_CUDA(cudaSetDevice(c->options.gpu));
	TRY_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, c->options.gpu));
	TRY_DOCA(doca_gpu_create(pci, &c->gpu));
	return open_device(c->options.pci, can_copy, &c->dev);
}

static doca_error_t open_array(struct copies *c, struct memory *m)
{
	TRY_DOCA(doca_mmap_create(&m->map));
	TRY_DOCA(doca_mmap_add_dev(m->map, c->dev));
	TRY_DOCA(doca_mmap_set_memrange(m->map, m->at, c->size));
	TRY_DOCA(doca_mmap_start(m->map));
	TRY_DOCA(doca_buf_arr_create((size_t)c->options.count, &m->array));
	TRY_DOCA(doca_buf_arr_set_target_gpu(m->array, c->gpu));
	TRY_DOCA(doca_buf_arr_set_params(m->array, m->map, (size_t)c->options.size, 0));
	TRY_DOCA(doca_buf_arr_start(m->array));
	TRY_DOCA(doca_buf_arr_get_gpu_handle(m->array, &m->slots));
	return DOCA_SUCCESS;
}

static doca_error_t open_memory(struct copies *c)
{
	const uint32_t count = (uint32_t)c->options.count, size = (uint32_t)c->options.size;

	if (!count || !size || (uint64_t)count * size > 1u << 30) {
		DOCA_LOG_ERR("--count is %u, --size %u; their product must be 1 to %u", count, size,
			     1u << 30);
		return DOCA_ERROR_INVALID_VALUE;
	}
	c->size = ((size_t)count * size + PAGE - 1) / PAGE * PAGE;
	c->source.at = (char *)aligned_alloc(PAGE, c->size);
	c->sink.at = (char *)aligned_alloc(PAGE, c->size);
	TRY_DOCA(doca_gpu_mem_alloc(c->gpu, c->size, PAGE, DOCA_GPU_MEM_TYPE_GPU,
				    (void **)&c->on_gpu.at, NULL));
	for (uint32_t i = 0; i < count * size; i++)
		c->source.at[i] = (char)source_byte(i / size, i % size);
	memset(c->sink.at, 0, c->size);
	TRY(open_array(c, &c->source));
	TRY(open_array(c, &c->on_gpu));
	return open_array(c, &c->sink);
}

static doca_error_t open_dma(struct copies *c, struct doca_gpu_dma **dma)
{
	TRY_DOCA(doca_dma_create(c->dev, &c->dma));
	TRY_DOCA(doca_ctx_set_datapath_on_gpu(doca_dma_as_ctx(c->dma), c->gpu));
	TRY_DOCA(doca_ctx_start(doca_dma_as_ctx(c->dma)));
	TRY_DOCA(doca_dma_get_gpu_handle(c->dma, dma));
	return DOCA_SUCCESS;
}

/* Returns how many slots are right, once all are, or when the time is over. */
static uint32_t wait_for_slots(const struct copies *c)
{
	const uint32_t count = (uint32_t)c->options.count, size = (uint32_t)c->options.size;
	const volatile char *sink = c->sink.at;
	const time_t end = time(NULL) + 30;
	uint32_t right = 0, at = 0;

	while (right < count && time(NULL) < end && !stopped()) {
		while (at < size && sink[(size_t)right * size + at] ==
					    (char)(source_byte(right, at) + 1))
			at++;
		if (at == size) {
			right++;
			at = 0;
		}
	}
	return right;
}

static doca_error_t run(struct copies *c)
{
	struct doca_gpu_dma *dma;
	uint32_t right;

	TRY(open_devices(c));
	TRY(open_memory(c));
	TRY(open_dma(c, &dma));
	there_and_back<<<1, THREADS>>>({dma, c->source.slots, c->on_gpu.slots, c->sink.slots,
					(uint32_t)c->options.count, (uint32_t)c->options.size});
	TRY_CUDA(cudaDeviceSynchronize());
	right = wait_for_slots(c);
	printf("gpunetio_dma: %u of %d right\n", right, c->options.count);
	return (int)right == c->options.count ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

static void close_array(struct memory *m)
{
	if (m->array)
		doca_buf_arr_destroy(m->array);
	if (m->map)
		doca_mmap_destroy(m->map);
}

static void close_copies(struct copies *c)
{
	if (c->dma) {
		doca_ctx_stop(doca_dma_as_ctx(c->dma));
		doca_dma_destroy(c->dma);
	}
	close_array(&c->source);
	close_array(&c->on_gpu);
	close_array(&c->sink);
	free(c->source.at);
	free(c->sink.at);
	if (c->dev)
		doca_dev_close(c->dev);
	if (c->gpu)
		doca_gpu_destroy(c->gpu); /* frees its memory, too */
}

int main(int argc, char **argv)
{
	static struct copies c;
	doca_error_t result;

	c.options.count = 1000;
	c.options.size = 64;
	result = sample_begin(argc, argv, "gpunetio_dma", WANT_COUNT | WANT_SIZE | WANT_GPU,
			      &c.options);
	if (result == DOCA_SUCCESS)
		result = run(&c);
	close_copies(&c);
	return sample_end(result);
}
