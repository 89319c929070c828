/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: the one that dgkit has, written again for a CPU. Any module is taken to hold it. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

static const char module[] = "a module", function[] = "dg_gather";

struct gather {
	struct work work;
	const uint64_t (*ops)[4]; /* target, source, size, nothing */
	uint32_t first, mask, count;
};

EXPORT CUresult cuModuleLoadData(const char **loaded, const void *image)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (!image || !strstr(image, ".entry dg_gather("))
		return CUDA_ERROR_INVALID_VALUE;
	*loaded = module;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(const char *loaded)
{
	struct context *context;

	ENTER(gate_context, &context);
	return loaded == module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleGetFunction(const char **found, const char *loaded, const char *name)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (loaded != module || strcmp(name, function))
		return CUDA_ERROR_INVALID_VALUE;
	*found = function;
	return CUDA_SUCCESS;
}

/* Registered memory of the host, or memory of a GPU with the right access. */
static bool usable(uint64_t address, uint64_t size, CUdevice device, bool write)
{
	return host_at((uintptr_t)address, size) ||
	       reachable((uintptr_t)address, size, device, write);
}

/* A kernel that touches what it may not costs the context, as on a GPU. */
static bool perform_gather(struct work *work, struct stream *stream)
{
	struct gather *g = (struct gather *)work;
	CUdevice device = stream_context(stream)->device;
	bool fine = true;

	pthread_rwlock_rdlock(&maps);
	for (uint32_t i = 0; i < g->count && fine; i++) {
		const uint64_t *op = g->ops[(g->first + i) & g->mask];

		fine = usable(op[0], op[2], device, true) && usable(op[1], op[2], device, false);
		if (fine)
			memmove((void *)(uintptr_t)op[0], (void *)(uintptr_t)op[1], op[2]);
	}
	pthread_rwlock_unlock(&maps);
	return fine;
}

EXPORT CUresult cuLaunchKernel(const char *launched, unsigned gx, unsigned gy, unsigned gz,
			       unsigned bx, unsigned by, unsigned bz, unsigned shared,
			       CUstream stream, void **params, void **extra)
{
	struct context *context;
	struct gather *g;
	uint64_t threads = (uint64_t)gx * gy * gz * bx * by * bz;

	ENTER(gate_context, &context);
	(void)extra;
	if (launched != function || shared || !params ||
	    threads < (uint64_t)*(uint32_t *)params[3] << *(uint32_t *)params[4])
		return CUDA_ERROR_INVALID_VALUE;
	g = calloc(1, sizeof *g);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->work.perform = perform_gather;
	g->work.channel = COMPUTE_CHANNEL;
	g->work.on_sms = true;
	memcpy(&g->ops, params[0], sizeof g->ops);
	memcpy(&g->first, params[1], sizeof g->first);
	memcpy(&g->mask, params[2], sizeof g->mask);
	memcpy(&g->count, params[3], sizeof g->count);
	return submit(stream, context, &g->work, false);
}
