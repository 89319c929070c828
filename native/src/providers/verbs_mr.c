// SPDX-License-Identifier: Apache-2.0
/*
 * Registration of memory with an RDMA adapter: host memory, pinned or with on-demand paging, and
 * GPU memory, as a dma-buf or by its address. All registrations use the addresses of this process.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cuda_pointer.h"
#include "error.h"
#include "verbs_provider.h"

const char *dg_verbs_modules = "/sys/module";

/* Returns how many bytes this process has pinned. */
static uint64_t pinned(void)
{
	unsigned long kib = 0;
	char line[256];
	FILE *status = fopen("/proc/self/status", "re");
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "VmPin: %lu", &kib) == 1)
			break;
	if (status)
		fclose(status);
	return (uint64_t)kib << 10;
}

static int cannot_pin(const struct verbs *d, uint64_t size)
{
	struct rlimit limit;
	uint64_t already = pinned();
	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur >= already + size)
		return dg_fail(ENOMEM,
			       "%s cannot pin %" PRIu64 " bytes: there is not enough free memory",
			       d->name, size);
	return dg_fail(ENOMEM,
		       "%s cannot pin %" PRIu64 " bytes: the limit of locked memory is %" PRIu64
		       " KiB, and %" PRIu64 " KiB are needed with the %" PRIu64
		       " KiB that are pinned already: raise it (ulimit -l; memlock in "
		       "/etc/security/limits.conf)",
		       d->name, size, (uint64_t)limit.rlim_cur >> 10,
		       (already + size + 1023) >> 10, already >> 10);
}

struct ibv_mr *dg_verbs_mr(struct ibv_pd *pd, const dg_memory *m, const struct verbs_source *s,
			   int flags)
{
	struct ibv_mr *mr;
	errno = 0;
	if (s->way == DG_REGISTRATION_ON_DEMAND)
		flags |= IBV_ACCESS_ON_DEMAND;
	if (s->way == DG_REGISTRATION_DMABUF)
		mr = dg_verbs.ibv_reg_dmabuf_mr(pd, s->offset, m->size, (uintptr_t)m->addr, s->fd,
						flags);
	else
		mr = dg_verbs.ibv_reg_mr(pd, m->addr, m->size, flags);
	if (!mr && !errno)
		errno = EIO; /* a driver that gives no reason */
	return mr;
}

void dg_verbs_source_close(struct verbs_source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* Queries the adapter's on-demand paging capabilities. Returns whether libibverbs can report
 * them. */
static bool query_paging(struct ibv_context *context, struct ibv_device_attr_ex *out)
{
	const struct verbs_context *all;
	const size_t upto_end = sizeof *all - offsetof(struct verbs_context, query_device_ex);
	if (context->abi_compat != VERBS_ABI_IS_EXTENDED)
		return false;
	all = (const void *)((char *)context - offsetof(struct verbs_context, context));
	if (all->sz < upto_end || !all->query_device_ex)
		return false;
	memset(out, 0, sizeof *out);
	return !all->query_device_ex(context, NULL, out, sizeof *out);
}

static int no_paging(const struct verbs *d, const char *why)
{
	return dg_fail(EOPNOTSUPP,
		       "%s cannot register memory on demand: %s: leave on_demand out, so that "
		       "the memory is pinned",
		       d->name, why);
}

/* Checks on-demand paging. Errors: EOPNOTSUPP if the adapter reports that it cannot page memory
 * that READ and WRITE access. */
static int check_paging(const struct verbs *d)
{
	const uint32_t needed = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
	struct ibv_device_attr_ex a;
	/* Soft-RoCE of Linux 7.2 and 7.3 reports paging, but accesses each page at its start,
	 * whatever the offset, and overwrites the data there. */
	if (d->software)
		return no_paging(d, "a device in software is not trusted with it: Soft-RoCE "
				    "accesses wrong bytes of each page (seen with Linux 7.2 "
				    "and 7.3)");
	if (!query_paging(d->context, &a))
		return 0; /* the registration will show it */
	if (!(a.odp_caps.general_caps & IBV_ODP_SUPPORT))
		return no_paging(d, "it has no on-demand paging (ODP)");
	if ((a.odp_caps.rc_odp_caps & needed) != needed)
		return no_paging(d, "its on-demand paging (ODP) covers no RDMA reads and writes");
	return 0;
}

int dg_verbs_mr_refused(const struct verbs *d, const dg_memory *m, enum dg_registration way)
{
	/* Errors of the kernel for a driver without on-demand paging, depending on the version. */
	if (way == DG_REGISTRATION_ON_DEMAND && (errno == EOPNOTSUPP || errno == EINVAL))
		return no_paging(d, "its driver has no on-demand paging (ODP)");
	if (errno == ENOMEM && way == DG_REGISTRATION_PINNED)
		return cannot_pin(d, m->size);
	return dg_fail_errno("%s cannot register %" PRIu64 " bytes at %p", d->name, m->size, m->addr);
}

static int register_host(const struct verbs *d, const dg_memory *m, int flags,
			 struct verbs_source *s, struct ibv_mr **out)
{
	int rc = 0;
	if (m->flags & DG_MEMORY_ON_DEMAND) {
		s->way = DG_REGISTRATION_ON_DEMAND;
		rc = check_paging(d);
	}
	if (rc)
		return rc;
	/* The kernel does not bind a window to a dma-buf, so windows are used over pinned host
	 * memory only. */
	if (dg_verbs_has_windows(d) && s->way == DG_REGISTRATION_PINNED)
		flags |= IBV_ACCESS_MW_BIND;
	*out = dg_verbs_mr(d->pd, m, s, flags);
	return *out ? 0 : dg_verbs_mr_refused(d, m, s->way);
}

static int dmabuf_refused(void)
{
	switch (errno) {
	case EOPNOTSUPP:
	case ENOSYS:
		return dg_fail(DG_REASON_DMABUF_ADAPTER,
			       "the adapter's driver, or this kernel, does not support it");
	case ENOMEM:
		return dg_fail(errno,
			       "the GPU's BAR1 has no room for it (`dgkit doctor bar1-size`)");
	default:
		return dg_fail_errno("ibv_reg_dmabuf_mr");
	}
}

static int by_dmabuf(const struct verbs *d, const dg_memory *m, int flags, struct verbs_source *s,
		     struct ibv_mr **out)
{
	s->way = DG_REGISTRATION_DMABUF;
	if (!dg_verbs.ibv_reg_dmabuf_mr)
		return dg_fail(DG_REASON_DMABUF_RDMA_CORE,
			       "the installed rdma-core is older than 34, the first "
			       "with ibv_reg_dmabuf_mr");
	TRY(dg_cuda_dmabuf(m, &s->fd, &s->offset));
	*out = dg_verbs_mr(d->pd, m, s, flags);
	if (*out)
		return 0;
	int rc = dmabuf_refused();
	dg_verbs_source_close(s);
	return rc;
}

/* Whether a kernel module is loaded that resolves addresses of GPU memory. */
static bool has_peermem(void)
{
	static const char *const names[] = {"nvidia_peermem", "nv_peer_mem"};
	char path[256];
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", dg_verbs_modules, names[i]);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

static int by_peermem(const struct verbs *d, const dg_memory *m, int flags, struct verbs_source *s,
		      struct ibv_mr **out)
{
	s->way = DG_REGISTRATION_PEERMEM;
	if (!has_peermem())
		return dg_fail(EOPNOTSUPP,
			       "the module is not loaded (`dgkit doctor peermem`)");
	*out = dg_verbs_mr(d->pd, m, s, flags);
	return *out ? 0 : dg_fail_errno("ibv_reg_mr");
}

static int register_gpu(const struct verbs *d, const dg_memory *m, int flags,
			struct verbs_source *s, struct ibv_mr **out)
{
	char first[160], second[160];
	int rc = by_dmabuf(d, m, flags, s, out);
	if (!rc)
		return 0;
	int reason = dg_dmabuf_reason(rc);
	snprintf(first, sizeof first, "%s", dg_last_error());
	if (!by_peermem(d, m, flags, s, out))
		return 0;
	snprintf(second, sizeof second, "%s", dg_last_error());
	s->way = DG_REGISTRATION_NONE;
	return dg_fail(reason,
		       "%s cannot access this GPU memory: as a dma-buf: %s; by its address, with "
		       "nvidia-peermem: %s",
		       d->name, first, second);
}

int dg_verbs_register(const struct verbs *d, const dg_memory *m, int flags, struct verbs_source *s,
		      struct ibv_mr **out)
{
	*s = (struct verbs_source){.way = DG_REGISTRATION_PINNED, .fd = -1};
	*out = NULL;
	return m->kind == DG_KIND_HOST ? register_host(d, m, flags, s, out)
				       : register_gpu(d, m, flags, s, out);
}
