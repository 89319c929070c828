/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of host code on the emulated GPU: `kernel<<<grid, block>>>(...)` is translated to
 * `dg_emu::configure(kernel, grid, block)(...)`. */
#ifndef DGKIT_EMULATED_HOST_H
#define DGKIT_EMULATED_HOST_H

#include "cuda_runtime_api.h"

namespace dg_emu
{
/* Starts a grid after the end of the one before. */
void start(dim3 grid, dim3 block, size_t shared_size, Invoke *invoke, void *const *arguments);

template <class... T> struct Configured {
	void (*kernel)(T...);
	dim3 grid, block;
	size_t shared_size;

	void operator()(T... arguments) const
	{
		auto call = [&] { kernel(arguments...); };
		auto invoke = [](void *const *c) { (*(decltype(call) *)c)(); };
		start(grid, block, shared_size, invoke, (void *const *)&call);
	}
};

template <class... T>
Configured<T...> configure(void (*kernel)(T...), dim3 grid, dim3 block, size_t shared_size = 0,
			   cudaStream_t = nullptr)
{
	return {kernel, grid, block, shared_size};
}
} // namespace dg_emu

#endif
