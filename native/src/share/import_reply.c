// SPDX-License-Identifier: Apache-2.0
#include "share/import_reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "error.h"

static int malformed_reply(void)
{
	return dg_fail(EBADMSG, "the exporter's reply is malformed");
}

/* Whether this process may copy the exporter's memory with process_vm_readv. This depends on Yama,
 * containers and emulators, so a copy is tried. DGKIT_NO_PROCESS_VM=1 disables it, for tests. */
static bool can_copy_directly(pid_t pid, uint64_t address)
{
	char byte;
	struct iovec local = {&byte, 1}, remote = {(void *)(uintptr_t)address, 1};
	const char *no = getenv("DGKIT_NO_PROCESS_VM");
	return !(no && no[0] == '1') && process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1;
}

/* Imports the exporter's block of GPU memory with the provider. */
static int import_block(struct dg_region *r, const struct dg_share_reply *reply, int fd,
			struct dg_region_entry *entry)
{
	dg_memory m = {.size = reply->size,
		       .fd = fd,
		       .fd_offset = reply->fd_offset,
		       .block = reply->block,
		       .kind = reply->kind};
	if (reply->kind == DG_KIND_HOST || reply->kind >= DG_KIND_CUDA_OWN ||
	    (reply->kind == DG_KIND_CUDA_VMM) != (fd >= 0) || reply->fd_offset > reply->block ||
	    reply->size > reply->block - reply->fd_offset)
		return malformed_reply();
	memcpy(m.uuid, reply->uuid, sizeof m.uuid);
	memcpy(m.handle, reply->handle, sizeof m.handle);
	return dg_region_map(r, &m, entry);
}

/* Registers the mapping of the exporter's memfd with a provider that copies only registered
 * memory. */
static int register_mapping(struct dg_region *r, const struct reply_source *source,
			    struct dg_region_entry *entry)
{
	const dg_memory m = {
		.addr = entry->base,
		.size = entry->size,
		.fd = -1,
		.flags = entry->access & DG_ACCESS_WRITE ? 0 : DG_MEMORY_READONLY,
	};
	int rc = dg_region_map(r, &m, entry);
	if (rc) {
		dg_mapping_drop(source->mappings, r->mapping);
		r->mapping = NULL;
	}
	return rc;
}

static int map_memfd(struct dg_region *r, const struct reply_source *source,
		     const struct dg_share_reply *reply, int fd, struct dg_region_entry *entry)
{
	TRY(dg_mapping_take(source->mappings, fd, reply->access & DG_ACCESS_WRITE,
			    reply->fd_offset + reply->size, &r->mapping));
	entry->base = r->mapping->base + reply->fd_offset;
	entry->method = DG_METHOD_MAP;
	dg_mapping_populate(r->mapping, fd, reply->fd_offset, reply->size, source->deadline_ns);
	return r->dev->registers ? register_mapping(r, source, entry) : 0;
}

/* Opens the provider's own export in r->descriptor. */
static int open_export(struct dg_region *r, const struct dg_share_reply *reply,
		       struct dg_region_entry *entry)
{
	const dg_memory m = {.size = reply->size, .fd = -1};
	return dg_region_map(r, &m, entry);
}

/* Decides by which method (enum dg_method) the import reaches its bytes:
 * - a provider with an export of its own in the descriptor (doca, verbs) opens that;
 * - memory with a memfd is mapped (MAP), GPU memory is imported by the provider cuda (GPU), as the
 *   exporter offers (dg_conn_import() in exports.c);
 * - other memory is read by the exporter's pid if this process may (VM), else the exporter copies
 *   on request (PROXY). */
int dg_import_reply_apply(struct dg_region *r, const struct reply_source *source,
			  const struct dg_share_reply *reply, const int fds[2], int n_fds,
			  struct dg_region_entry *entry)
{
	const char *provider = r->dev->caps.provider;
	int used = reply->has_control ? 1 : 0;
	if (!source->control || reply->slot >= CONTROL_SLOTS || !reply->size ||
	    reply->fd_offset + reply->size < reply->size ||
	    (reply->method == DG_METHOD_MAP && n_fds <= used))
		return malformed_reply();
	entry->gate = (struct dg_gate *)source->control + reply->slot;
	entry->size = reply->size;
	entry->access = (uint8_t)(reply->access & 3);
	entry->method = DG_METHOD_PROXY;
	if (r->descriptor)
		return open_export(r, reply, entry);
	if (reply->method == DG_METHOD_MAP)
		return map_memfd(r, source, reply, fds[used], entry);
	if (reply->method == DG_METHOD_GPU)
		return import_block(r, reply, n_fds > used ? fds[used] : -1, entry);
	if (r->dev->registers)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s cannot reach this memory: register it in its "
			       "process with Device('%s'), or use memory from dgkit.empty()",
			       provider, provider);
	if (source->open && can_copy_directly(source->pid, reply->address)) {
		entry->base = (char *)(uintptr_t)reply->address;
		entry->pid = source->pid;
		entry->method = DG_METHOD_VM;
	}
	return 0;
}
