// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays of buffers for kernels: a started array is a doca_gpu_buf_arr with its elements in GPU
 * memory. Sources: "DOCA Buf Array" is the published reference of that library; "guess" marks an
 * assumption that no published source confirms.
 */
#include <endian.h>
#include <stdlib.h>

#include "doca_buf_array.h"
#include "doca_gpunetio_dev.h"
#include "gpu/gpu.h"
#include "memory.h"

struct doca_buf_arr {
	struct object o;
	size_t n, elem_size;
	uint64_t start_offset;
	struct doca_mmap *mmap; /* NULL: no parameters yet */
	struct doca_gpu *gpu;
	struct gpu_memory *device; /* of a started array */
};

#define CHECK_ARR(a) CHECK_OBJECT(a, OBJECT_BUF_ARR, "an array of buffers")
/* DOCA Buf Array, doca_buf_arr_set_* */
#define CHECK_STOPPED(a)         \
	do {                     \
		if ((a)->device) \
			return REFUSE(DOCA_ERROR_BAD_STATE, "the array is started"); \
	} while (0)

doca_error_t doca_buf_arr_create(size_t num_elem, struct doca_buf_arr **buf_arr)
{
	CHECK_OUT(buf_arr);
	if (!num_elem) /* DOCA Buf Array, doca_buf_arr_create */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "an array needs at least 1 element");
	struct doca_buf_arr *a = softdoca_object_new(OBJECT_BUF_ARR, sizeof *a);
	if (!a)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an array of buffers");
	a->n = num_elem;
	*buf_arr = a;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_set_target_gpu(struct doca_buf_arr *buf_arr, struct doca_gpu *gpu_handler)
{
	CHECK_ARR(buf_arr);
	CHECK_GPU(gpu_handler);
	CHECK_STOPPED(buf_arr);
	buf_arr->gpu = gpu_handler;
	return DOCA_SUCCESS;
}

/* Returns whether the elements are within the map. */
static bool fits(const struct doca_buf_arr *a, const struct doca_mmap *m)
{
	size_t bytes;
	return a->elem_size && !__builtin_mul_overflow(a->elem_size, a->n, &bytes) &&
	       a->start_offset <= m->len && bytes <= m->len - a->start_offset;
}

static doca_error_t refuse_range(const struct doca_buf_arr *a, const struct doca_mmap *m)
{
	return REFUSE(DOCA_ERROR_INVALID_VALUE,
		      "%zu elements of %zu bytes from offset %llu on exceed the map of %zu bytes",
		      a->n, a->elem_size, (unsigned long long)a->start_offset, m->len);
}

doca_error_t doca_buf_arr_set_params(struct doca_buf_arr *buf_arr, struct doca_mmap *mmap,
				     size_t elem_size, uint64_t start_offset)
{
	CHECK_ARR(buf_arr);
	CHECK_MMAP(mmap);
	CHECK_STOPPED(buf_arr);
	struct doca_buf_arr next = *buf_arr;
	next.elem_size = elem_size;
	next.start_offset = start_offset;
	next.mmap = mmap;
	if (!fits(&next, mmap)) /* DOCA Buf Array: invalid input */
		return refuse_range(&next, mmap);
	*buf_arr = next;
	return DOCA_SUCCESS;
}

/* Returns the structure for kernels, with its elements, in host memory. `at`: where it is going to
 * be. */
static struct doca_gpu_buf_arr *lay_out(const struct doca_buf_arr *a, size_t bytes, char *at,
					uint32_t key)
{
	struct doca_gpu_buf_arr *s = calloc(1, bytes);
	if (!s)
		return NULL;
	struct doca_gpu_buf *bufs = (struct doca_gpu_buf *)(s + 1);
	s->count = a->n;
	s->bufs = (struct doca_gpu_buf *)(at + sizeof *s);
	for (size_t i = 0; i < a->n; i++)
		bufs[i] = (struct doca_gpu_buf){
			.addr = (uintptr_t)a->mmap->addr + a->start_offset + i * a->elem_size,
			.size = a->elem_size,
			.key = htobe32(key),
		};
	return s;
}

static doca_error_t start(struct doca_buf_arr *a, uint32_t key)
{
	size_t bytes;
	struct gpu_memory *device;
	if (__builtin_mul_overflow(a->n, sizeof(struct doca_gpu_buf), &bytes) ||
	    __builtin_add_overflow(bytes, sizeof(struct doca_gpu_buf_arr), &bytes))
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu elements", a->n);
	doca_error_t error =
		softdoca_gpu_alloc_own(a->gpu, bytes, 64, DOCA_GPU_MEM_TYPE_GPU, &device);
	if (error)
		return error;
	struct doca_gpu_buf_arr *s = lay_out(a, bytes, device->addr, key);
	error = s ? softdoca_gpu_fill(device, s, bytes)
		  : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu elements", a->n);
	free(s);
	if (error)
		softdoca_gpu_drop(device);
	else
		a->device = device;
	return error;
}

/* A kernel may send its buffers as frames, which the CPU reads. */
static doca_error_t reach_for_frames(const struct doca_mmap *m)
{
	struct gpu_memory *memory =
		getenv("SOFTDOCA_NET") ? softdoca_gpu_take(m->addr, m->len) : NULL;
	doca_error_t error = memory ? softdoca_gpu_reach(memory) : DOCA_SUCCESS;
	if (memory)
		softdoca_gpu_drop(memory);
	return error;
}

doca_error_t doca_buf_arr_start(struct doca_buf_arr *buf_arr)
{
	uint32_t key;
	CHECK_ARR(buf_arr);
	CHECK_STOPPED(buf_arr);
	if (!object_is(buf_arr->mmap, OBJECT_MMAP) || !object_is(buf_arr->gpu, OBJECT_GPU))
		return REFUSE(DOCA_ERROR_BAD_STATE, /* DOCA Buf Array for the GPU and a stopped map */
			      "the array has no map or no GPU: call doca_buf_arr_set_params and "
			      "doca_buf_arr_set_target_gpu first");
	if (!fits(buf_arr, buf_arr->mmap)) /* another map at the address of a destroyed one */
		return refuse_range(buf_arr, buf_arr->mmap);
	doca_error_t error = softdoca_mmap_key(buf_arr->mmap, &key);
	if (!error)
		error = reach_for_frames(buf_arr->mmap);
	return error ? error : start(buf_arr, key);
}

static void stop(struct doca_buf_arr *a)
{
	if (a->device)
		softdoca_gpu_drop(a->device);
	a->device = NULL;
}

doca_error_t doca_buf_arr_stop(struct doca_buf_arr *buf_arr)
{
	CHECK_ARR(buf_arr);
	stop(buf_arr);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_destroy(struct doca_buf_arr *buf_arr)
{
	CHECK_ARR(buf_arr);
	stop(buf_arr);
	softdoca_object_free(buf_arr);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_get_gpu_handle(const struct doca_buf_arr *buf_arr,
					 struct doca_gpu_buf_arr **gpu_buf_arr)
{
	CHECK_ARR(buf_arr);
	CHECK_OUT(gpu_buf_arr);
	if (!buf_arr->device) /* DOCA Buf Array, doca_buf_arr_get_gpu_handle: not started */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the array is not started");
	*gpu_buf_arr = (struct doca_gpu_buf_arr *)buf_arr->device->addr;
	return DOCA_SUCCESS;
}
