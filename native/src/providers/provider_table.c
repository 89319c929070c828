// SPDX-License-Identifier: Apache-2.0
#include "provider_table.h"

#include <string.h>

#include "error.h"

static const struct dg_ops *const providers[] = {
	&dg_soft_ops, &dg_cuda_ops, &dg_verbs_ops, &dg_doca_ops, &dg_softdoca_ops, &dg_fault_ops,
};
#define N_PROVIDERS (sizeof providers / sizeof providers[0])

const char *dg_provider_name(uint32_t i)
{
	return i < N_PROVIDERS ? providers[i]->name : NULL;
}

const struct dg_ops *dg_ops_find(const char *name)
{
	for (uint32_t i = 0; i < N_PROVIDERS; i++)
		if (name && !strcmp(providers[i]->name, name))
			return providers[i];
	return NULL;
}

int dg_provider_probe(const char *provider, uint32_t deep)
{
	const struct dg_ops *ops = dg_ops_find(provider);
	if (!ops)
		return dg_fail(DG_REASON_UNKNOWN_PROVIDER,
			       "no provider is called '%s'; the providers are soft, cuda, verbs, "
			       "doca, softdoca and fault",
			       provider ? provider : "");
	return ops->probe ? ops->probe(deep) : 0;
}
