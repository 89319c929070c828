// SPDX-License-Identifier: Apache-2.0
#include "share/import_reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "error.h"

static int nonsense(void)
{
	return dg_fail(EBADMSG, "the exporter's answer makes no sense");
}

/* Whether this process may copy the exporter's memory itself: Yama, containers and emulators differ,
 * so it is tried. DGKIT_NO_PROCESS_VM=1 leaves it out, for tests. */
static bool can_open(pid_t pid, uint64_t address)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)address, 1};
	const char *no = getenv("DGKIT_NO_PROCESS_VM");
	return !(no && no[0] == '1') && process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

/* GPU memory: the device's provider imports the block. */
static int take_block(struct dg_region *r, const struct door_answer *a, int fd, struct dg_hot *hot)
{
	dg_memory m = {.size = a->size,
		       .fd = fd,
		       .fd_offset = a->fd_offset,
		       .block = a->block,
		       .kind = a->kind};
	if (a->kind == DG_KIND_HOST || a->kind >= DG_KIND_CUDA_OWN ||
	    (a->kind == DG_KIND_CUDA_VMM) != (fd >= 0) || a->fd_offset > a->block ||
	    a->size > a->block - a->fd_offset)
		return nonsense();
	memcpy(m.uuid, a->uuid, sizeof m.uuid);
	memcpy(m.handle, a->handle, sizeof m.handle);
	return dg_region_map(r, &m, hot);
}

/* For a provider that moves only what it was given: the exporter's memfd, as it is mapped here. */
static int register_mapping(struct dg_region *r, const struct exporter *e, struct dg_hot *hot)
{
	const dg_memory m = {
		.addr = hot->base,
		.size = hot->size,
		.fd = -1,
		.flags = hot->access & DG_ACCESS_WRITE ? 0 : DG_MEMORY_READONLY,
	};
	int rc = dg_region_map(r, &m, hot);
	if (rc) {
		dg_mapping_drop(e->mappings, r->mapping);
		r->mapping = NULL;
	}
	return rc;
}

static int take_memfd(struct dg_region *r, const struct exporter *e, const struct door_answer *a,
		      int fd, struct dg_hot *hot)
{
	int rc = dg_mapping_take(e->mappings, fd, a->access & DG_ACCESS_WRITE,
				 a->fd_offset + a->size, &r->mapping);
	if (rc)
		return rc;
	hot->base = r->mapping->base + a->fd_offset;
	hot->method = DG_METHOD_MAP;
	return r->dev->registers ? register_mapping(r, e, hot) : 0;
}

int dg_answer_take(struct dg_region *r, const struct exporter *e, const struct door_answer *a,
		   const int fds[2], int n_fds, struct dg_hot *hot)
{
	const char *provider = r->dev->caps.provider;
	int used = a->has_control ? 1 : 0;
	if (!e->control || a->slot >= CONTROL_SLOTS || !a->size ||
	    a->fd_offset + a->size < a->size || (a->method == DG_METHOD_MAP && n_fds <= used))
		return nonsense();
	hot->gate = (struct dg_gate *)e->control + a->slot;
	hot->size = a->size;
	hot->access = (uint8_t)(a->access & 3);
	hot->method = DG_METHOD_ASK;
	if (r->from)
		return 0;
	if (a->method == DG_METHOD_MAP)
		return take_memfd(r, e, a, fds[used], hot);
	if (a->method == DG_METHOD_GPU)
		return take_block(r, a, n_fds > used ? fds[used] : -1, hot);
	if (r->dev->registers)
		return dg_fail(
			EOPNOTSUPP,
			"the provider %s cannot reach this memory: its owner has to register "
			"it with Device('%s'), or to take dgkit.empty() memory",
			provider, provider);
	if (can_open(e->pid, a->address)) {
		hot->base = (char *)(uintptr_t)a->address;
		hot->pid = e->pid;
		hot->method = DG_METHOD_VM;
	}
	return 0;
}

int dg_answer_open(struct dg_region *r, const struct door_answer *a, struct dg_hot *hot)
{
	const dg_memory m = {.size = a->size, .fd = -1};
	return dg_region_map(r, &m, hot);
}
