// SPDX-License-Identifier: Apache-2.0
/* What send and receive queues have in common. */
#include "eth.h"

doca_error_t eth_allocate(struct doca_gpu *gpu, size_t structure, size_t ring, size_t words,
			  struct eth_memory *out)
{
	*out = (struct eth_memory){0};
	doca_error_t error = softdoca_gpu_alloc_own(gpu, structure, ALIGN, DOCA_GPU_MEM_TYPE_GPU,
						    &out->structure);
	if (!error)
		error = softdoca_gpu_alloc_own(gpu, ring, ALIGN, DOCA_GPU_MEM_TYPE_CPU_GPU,
					       &out->ring);
	if (!error)
		error = softdoca_gpu_alloc_own(gpu, words, ALIGN, DOCA_GPU_MEM_TYPE_CPU_GPU,
					       &out->words);
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
