// SPDX-License-Identifier: Apache-2.0
/* What send and receive queues have in common. */
#include "eth.h"

uint32_t eth_power_of_two(uint32_t n)
{
	uint32_t power = 1;
	while (power < n)
		power *= 2;
	return power;
}

static doca_error_t allocate(struct doca_gpu *gpu, size_t size, enum doca_gpu_mem_type type,
			     struct gpu_memory **out)
{
	doca_error_t error = softdoca_gpu_alloc(gpu, size, ALIGN, type, out);
	if (!error)
		softdoca_gpu_own(*out);
	return error;
}

doca_error_t eth_allocate(struct doca_gpu *gpu, size_t structure, size_t ring, size_t words,
			  struct eth_memory *out)
{
	*out = (struct eth_memory){0};
	doca_error_t error = allocate(gpu, structure, DOCA_GPU_MEM_TYPE_GPU, &out->structure);
	if (!error)
		error = allocate(gpu, ring, DOCA_GPU_MEM_TYPE_CPU_GPU, &out->ring);
	if (!error)
		error = allocate(gpu, words, DOCA_GPU_MEM_TYPE_CPU_GPU, &out->words);
	if (error)
		eth_release(out);
	return error;
}

void eth_release(struct eth_memory *m)
{
	struct gpu_memory *const all[] = {m->structure, m->ring, m->words};
	for (int i = 0; i < 3; i++)
		if (all[i])
			softdoca_gpu_drop(all[i]);
	*m = (struct eth_memory){0};
}

bool eth_quiet(struct doca_ctx *ctx)
{
	(void)ctx;
	return true;
}

int eth_fileno(struct doca_ctx *ctx)
{
	(void)ctx;
	return -1;
}

bool eth_no_event(struct doca_ctx *ctx)
{
	(void)ctx;
	return false;
}

void eth_nothing(struct doca_ctx *ctx)
{
	(void)ctx;
}

doca_error_t eth_no_cpu_path(struct doca_ctx *ctx)
{
	(void)ctx;
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
		      "Ethernet queues have their data path on a GPU: call "
		      "doca_ctx_set_datapath_on_gpu() before doca_ctx_start()");
}
