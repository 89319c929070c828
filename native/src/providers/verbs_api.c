// SPDX-License-Identifier: Apache-2.0
/* Loading libibverbs and librdmacm. */
#include "verbs_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "error.h"

struct dg_verbs_api dg_verbs;
static char load_error[320]; /* "" once both libraries are loaded */
static int load_reason = DG_REASON_RDMA_CORE;

#define INSTALL                                                                             \
	"install rdma-core (Debian, Ubuntu: apt install libibverbs1 librdmacm1 ibverbs-pro" \
	"viders; RHEL, Fedora: dnf install libibverbs librdmacm)"

static void *open_library(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!lib && !load_error[0])
		snprintf(load_error, sizeof load_error, "%s cannot be loaded (%s): " INSTALL, file,
			 dlerror());
	return lib;
}

static void *find_symbol(void *lib, const char *name)
{
	void *found = lib ? dlsym(lib, name) : NULL;
	if (lib && !found && !load_error[0])
		snprintf(load_error, sizeof load_error,
			 "the installed rdma-core is too old: it has no %s: install a newer one",
			 name);
	return found;
}

static void load(void)
{
	void *ibverbs = open_library("libibverbs.so.1"), *rdmacm = open_library("librdmacm.so.1");
#define FROM_IBVERBS(type, name, params) \
	dg_verbs.name = (type(*) params)(uintptr_t)find_symbol(ibverbs, #name);
#define FROM_RDMACM(type, name, params) \
	dg_verbs.name = (type(*) params)(uintptr_t)find_symbol(rdmacm, #name);
#define OPTIONAL_FROM_IBVERBS(type, name, params) \
	dg_verbs.name = (type(*) params)(uintptr_t)(ibverbs ? dlsym(ibverbs, #name) : NULL);
	IBVERBS_FUNCTIONS(FROM_IBVERBS)
	OPTIONAL_IBVERBS_FUNCTIONS(OPTIONAL_FROM_IBVERBS)
	RDMACM_FUNCTIONS(FROM_RDMACM)
	/* Kernels before 5.12 share pinned pages with a forked child until one side writes. This
	 * call excludes registered memory from the child. Later kernels copy such pages at the
	 * fork; there the call does nothing. */
	if (!load_error[0] && dg_verbs.ibv_fork_init()) {
		load_reason = ENODEV;
		snprintf(load_error, sizeof load_error,
			 "ibv_fork_init() failed: a program that registered memory before dgkit "
			 "must call it first");
	}
}

int dg_verbs_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return load_error[0] ? dg_fail(load_reason, "RDMA cannot be used: %s", load_error) : 0;
}
