// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays of buffers for a GPU. softdoca has no data path on a GPU: parameters are checked and
 * stored, and starting returns NOT_SUPPORTED. Sources: "DOCA Buf Array" is the published reference
 * of that library; "guess" marks an assumption that no published source confirms.
 */
#include "memory.h"

struct doca_buf_arr {
	struct object o;
	size_t n;
	bool params;
};

#define CHECK_ARR(a) CHECK_OBJECT(a, OBJECT_BUF_ARR, "an array of buffers")

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
	CHECK_OUT(gpu_handler);
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "softdoca has no data path on a GPU");
}

doca_error_t doca_buf_arr_set_params(struct doca_buf_arr *buf_arr, struct doca_mmap *mmap,
				     size_t elem_size, uint64_t start_offset)
{
	CHECK_ARR(buf_arr);
	CHECK_MMAP(mmap);
	size_t bytes;
	if (!elem_size || __builtin_mul_overflow(elem_size, buf_arr->n, &bytes) ||
	    start_offset > mmap->len || bytes > mmap->len - start_offset) /* guess */
		return REFUSE(
			DOCA_ERROR_INVALID_VALUE,
			"%zu elements of %zu bytes from offset %llu on exceed the map of %zu bytes",
			buf_arr->n, elem_size, (unsigned long long)start_offset, mmap->len);
	buf_arr->params = true;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_start(struct doca_buf_arr *buf_arr)
{
	CHECK_ARR(buf_arr);
	if (!buf_arr->params) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the array has no parameters: call doca_buf_arr_set_params first");
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "softdoca has no data path on a GPU");
}

doca_error_t doca_buf_arr_stop(struct doca_buf_arr *buf_arr)
{
	CHECK_ARR(buf_arr);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_destroy(struct doca_buf_arr *buf_arr)
{
	CHECK_ARR(buf_arr);
	softdoca_object_free(buf_arr);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_arr_get_gpu_handle(const struct doca_buf_arr *buf_arr,
					 struct doca_gpu_buf_arr **gpu_buf_arr)
{
	CHECK_ARR(buf_arr);
	CHECK_OUT(gpu_buf_arr);
	/* DOCA Buf Array, doca_buf_arr_get_gpu_handle: not started */
	return REFUSE(DOCA_ERROR_BAD_STATE, "the array is not started");
}
