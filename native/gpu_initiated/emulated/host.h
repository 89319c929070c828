/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of host code on the emulated GPU: `kernel<<<grid, block>>>(...)` is translated to
 * `dg_emu::configure(kernel, grid, block)(...)`. */
#ifndef DGKIT_EMULATED_HOST_H
#define DGKIT_EMULATED_HOST_H

#include "cuda_runtime_api.h"

namespace dg_emu
{
/* Starts a grid after the end of the stream's previous one; without a stream, after that of all. */
void start(dim3 grid, dim3 block, size_t shared_size, cudaStream_t stream, Invoke *invoke,
	   void *const *arguments);

template <class... T> struct Configured {
	void (*kernel)(T...);
	dim3 grid, block;
	size_t shared_size;
	cudaStream_t stream;

	void operator()(T... arguments) const
	{
		auto call = [&] { kernel(arguments...); };
		auto invoke = [](void *const *c) { (*(decltype(call) *)c)(); };
		start(grid, block, shared_size, stream, invoke, (void *const *)&call);
	}
};

template <class... T>
Configured<T...> configure(void (*kernel)(T...), dim3 grid, dim3 block, size_t shared_size = 0,
			   cudaStream_t stream = nullptr)
{
	return {kernel, grid, block, shared_size, stream};
}
} // namespace dg_emu

#endif
