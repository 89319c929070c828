// SPDX-License-Identifier: Apache-2.0
/* Regions: registering, exporting, importing, revoking and closing them. */
#include "region.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "control_path.h"
#include "share/bar.h"
#include "share/descriptor.h"
#include "share/polling.h"
#include "share/server.h"
#include "error.h"
#include "share/importer.h"
#include "queue.h"

static const struct dg_memory_ops *const memory_kinds[] = {[DG_KIND_BAR] = &dg_bar_memory};
#define N_KINDS (sizeof memory_kinds / sizeof memory_kinds[0])

int dg_region_enter(struct dg_region *r)
{
	/* As in dg_device_enter(). */
	if (r->dev->fork_generation != atomic_load(&dg_fork_generation))
		return dg_fail(EOWNERDEAD,
			       "this device was opened before fork(): open one in the child");
	return life_enter(&r->life) ? 0 : dg_fail(ESTALE, "the region is closed");
}

/* Returns a region with the references that its open state and its handle hold, and with a
 * reference to its device. */
static struct dg_region *region_new(struct dg_device *dev)
{
	struct dg_region *r = calloc(1, sizeof *r);
	if (!r) {
		dg_fail(ENOMEM, "out of memory for a region");
		return NULL;
	}
	life_init(&r->life, 1 + dev->shared);
	life_ref(&dev->life);
	r->dev = dev;
	return r;
}

/* Frees a region that no other thread has seen. */
static void region_discard(struct dg_region *r)
{
	struct dg_device *dev = r->dev;
	pthread_mutex_destroy(&r->life.lock);
	free(r);
	dg_device_unref(dev);
}

void dg_region_unref(struct dg_region *r)
{
	struct dg_device *dev = r->dev;
	if (!life_unref(&r->life))
		return;
	if (r->qp)
		dg_qp_unref(r->qp);
	free(r);
	dg_device_unref(dev);
}

/* Checks that GPU memory is within the block that importers import. */
static int check_block(const dg_memory *m)
{
	if (m->kind == DG_KIND_CUDA_VMM && m->fd < 0)
		return dg_fail(EINVAL, "CUDA virtual memory cannot be registered without the fd "
				       "of its block");
	if (m->kind != DG_KIND_CUDA_OWN &&
	    (m->fd_offset > m->block || m->size > m->block - m->fd_offset))
		return dg_fail(ERANGE,
			       "%" PRIu64 " bytes at offset %" PRIu64
			       " exceed their GPU memory block of %" PRIu64 " bytes",
			       m->size, m->fd_offset, m->block);
	return 0;
}

static int check_on_demand(const struct dg_device *dev, const dg_memory *m)
{
	if (!(m->flags & DG_MEMORY_ON_DEMAND))
		return 0;
	if (!dev->on_demand)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s cannot register memory on demand: only verbs can, "
			       "with an RDMA adapter that pages memory (ODP)",
			       dev->caps.provider);
	if (m->kind != DG_KIND_HOST)
		return dg_fail(EINVAL, "GPU memory cannot be registered on demand, only host "
				       "memory: leave on_demand out");
	return 0;
}

static int check_memory(const struct dg_device *dev, const dg_memory *m, uint32_t access)
{
	if (!m->size || !m->addr)
		return dg_fail(EINVAL, "a region needs an address and at least 1 byte");
	if ((uintptr_t)m->addr + m->size < (uintptr_t)m->addr)
		return dg_fail(ERANGE,
			       "a region of %" PRIu64 " bytes at %p exceeds the address space",
			       m->size, m->addr);
	if (!access || access > 3)
		return dg_fail(EINVAL, "access %u is not one of read (1), write (2) and both (3)",
			       access);
	if ((access & DG_ACCESS_WRITE) && (m->flags & DG_MEMORY_READONLY))
		return dg_fail(EACCES, "the memory is read-only, so write access cannot be "
				       "granted: register it with access='r'");
	TRY(check_on_demand(dev, m));
	if (m->kind >= N_KINDS)
		return dg_fail(EINVAL, "memory kind %u is unknown; the kinds are 0 to %zu", m->kind,
			       N_KINDS - 1);
	if (memory_kinds[m->kind]) /* its map() checks the rest */
		return dev->mapped_kinds ? 0
					 : dg_fail(EOPNOTSUPP,
						   "%s is for the provider soft, not %s: register it "
						   "with Device('soft')",
						   memory_kinds[m->kind]->text,
						   dev->caps.provider);
	if (m->kind != DG_KIND_HOST)
		return check_block(m);
	if (m->fd >= 0) {
		if (m->fd_offset + m->size < m->size)
			return dg_fail(ERANGE, "offset %" PRIu64 " + size %" PRIu64 " exceeds 2^64",
				       m->fd_offset, m->size);
		return dg_memfd_check(m->fd, m->fd_offset + m->size);
	}
	return 0;
}

static int register_entered(struct dg_device *dev, const dg_memory *mem, uint32_t access,
			    dg_region **out)
{
	struct dg_region_entry entry = {
		.size = mem->size,
		.access = (uint8_t)access,
		.may_fault = !!(mem->flags & DG_MEMORY_MAY_FAULT),
	};
	struct dg_region *r = region_new(dev);
	if (!r)
		return -ENOMEM;
	r->memory = *mem;
	r->access = access;
	r->kind = memory_kinds[mem->kind];
	int rc = dg_region_map(r, mem, &entry);
	if (rc)
		goto discard;
	rc = dg_region_table_add(r, &entry);
	if (rc)
		goto unmap;
	*out = r;
	return 0;
unmap:
	dg_region_unmap(r);
discard:
	region_discard(r);
	return rc;
}

int dg_region_register(dg_device *dev, const dg_memory *mem, uint32_t access, dg_region **out)
{
	*out = NULL;
	TRY(dg_device_enter(dev));
	int rc = check_memory(dev, mem, access);
	if (!rc)
		rc = register_entered(dev, mem, access, out);
	life_leave(&dev->life);
	return rc;
}

static int acquire_share_server(struct dg_device *dev)
{
	pthread_mutex_lock(&dev->lock);
	int rc = dev->uses_share_server ? 0 : dg_share_server_acquire();
	if (!rc)
		dev->uses_share_server = true;
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static const char *access_text(uint32_t access)
{
	static const char *const texts[] = {"none", "r", "w", "rw"};
	return access < 4 ? texts[access] : "invalid";
}

int dg_region_check_access(const struct dg_region *r, uint32_t access, const char *verb)
{
	if (r->remote)
		return dg_fail(EINVAL, "an imported region cannot be %s: only its owner can do that", verb);
	if (!access || (access & ~r->access))
		return dg_fail(EACCES,
			       "the region has access '%s' and cannot be %s with access '%s': this "
			       "can only narrow the region's access",
			       access_text(r->access), verb, access_text(access));
	return 0;
}

static int check_export(struct dg_region *r, uint32_t access)
{
	TRY(dg_region_check_access(r, access, "exported"));
	if (r->memory.kind == DG_KIND_CUDA_OWN && !r->dev->blob_provider)
		return dg_fail(EMEDIUMTYPE,
			       "this GPU memory cannot be imported by another process");
	return 0;
}

static int export_entered(struct dg_region *r, uint32_t access, uint8_t *buf, size_t cap)
{
	struct dg_descriptor d = {.size = r->memory.size, .access = access};
	int rc = check_export(r, access);
	if (!rc && r->dev->blob_provider)
		rc = r->dev->ops->export(r->dev, r->dev->provider, r, access, &d);
	if (!rc && r->kind)
		rc = r->kind->export(r, access, &d);
	if (!rc)
		rc = acquire_share_server(r->dev);
	if (!rc)
		rc = dg_boot_id(d.boot_id);
	if (!rc)
		rc = dg_share_export(r, access, d.key);
	if (rc)
		return rc;
	snprintf(d.path, sizeof d.path, "%s", dg_share_server_path());
	return dg_descriptor_pack(&d, buf, cap);
}

int dg_region_export(dg_region *r, uint32_t access, uint8_t *buf, size_t cap)
{
	TRY(dg_region_enter(r));
	int rc = export_entered(r, access, buf, cap);
	life_leave(&r->life);
	return rc;
}

/* Imports a region whose exporter is this process. */
static int import_self(struct dg_region *r, const struct dg_descriptor *d,
		       struct dg_region_entry *entry)
{
	struct dg_share_reply a;
	dg_memory m;
	TRY(dg_share_import_self(d->key, &a, entry, &m));
	entry->size = a.size;
	entry->access = (uint8_t)a.access;
	r->slot = a.slot;
	/* m.addr is valid in this process, and stays mapped while the exported region is open */
	int rc = dg_region_map(r, &m, entry);
	if (rc)
		dg_share_release_self(r->slot);
	return rc;
}

/* Imports a region of another machine, which has no share server to contact: size and access are
 * taken from the descriptor, and the provider detects wrong values. */
static int import_other_machine(struct dg_region *r, const struct dg_descriptor *d,
				struct dg_region_entry *entry)
{
	const dg_memory m = {.size = d->size, .fd = -1};
	entry->size = d->size;
	entry->access = (uint8_t)d->access;
	return dg_region_map(r, &m, entry);
}

static bool is_named(const struct dg_descriptor *d, const char *provider)
{
	return !strncmp((const char *)d->provider, provider, sizeof d->provider);
}

/* Determines whether the descriptor is from another machine, and whether it contains an export that
 * this provider can open. Only a provider's own export works across machines. */
static int check_machine(const struct dg_descriptor *d, struct dg_region *r)
{
	uint8_t boot_id[16];
	TRY(dg_boot_id(boot_id));
	r->other_machine = memcmp(boot_id, d->boot_id, 16);
	if (r->dev->blob_provider && d->blob_length && is_named(d, r->dev->blob_provider))
		r->descriptor = d;
	for (size_t i = 0; r->other_machine && r->dev->mapped_kinds && i < N_KINDS; i++)
		if (memory_kinds[i] && d->blob_length && is_named(d, memory_kinds[i]->name)) {
			r->kind = memory_kinds[i];
			r->descriptor = d;
		}
	if (!r->other_machine || r->descriptor)
		return 0;
	return dg_fail(EXDEV,
		       "the descriptor is of another machine (or of an earlier boot of this one), "
		       "and the provider %s reaches only memory of this machine: use a provider "
		       "that crosses machines (verbs, doca) on both sides",
		       r->dev->caps.provider);
}

static int import_from(struct dg_region *r, const struct dg_descriptor *d, uint64_t timeout_ns,
		       struct dg_region_entry *entry)
{
	if (r->other_machine)
		return import_other_machine(r, d, entry);
	TRY(acquire_share_server(r->dev));
	if (strcmp(d->path, dg_share_server_path()))
		return dg_importer_import(r, d, timeout_ns, entry);
	if (!r->dev->connects)
		r->descriptor = NULL; /* not needed: the memory is in this process */
	return import_self(r, d, entry);
}

/* Notifies the exporter that r is no longer imported. */
static void release_import(struct dg_region *r)
{
	if (r->exporter)
		dg_importer_release(r);
	else if (!r->other_machine)
		dg_share_release_self(r->slot);
}

static int import_entered(struct dg_device *dev, const struct dg_descriptor *d,
			  uint64_t timeout_ns, dg_region **out)
{
	struct dg_region_entry entry = {.remote = 1};
	struct dg_region *r = region_new(dev);
	if (!r)
		return -ENOMEM;
	r->remote = true;
	int rc = check_machine(d, r);
	if (!rc)
		rc = import_from(r, d, timeout_ns, &entry);
	r->descriptor = NULL;
	if (rc)
		goto discard;
	r->memory.size = entry.size;
	r->access = entry.access;
	entry.slot = r->slot;
	rc = dg_region_table_add(r, &entry);
	if (rc)
		goto release;
	if (r->exporter)
		dg_importer_add_region(r);
	*out = r;
	return 0;
release:
	dg_region_unmap(r);
	release_import(r);
discard:
	region_discard(r);
	return rc;
}

int dg_region_import(dg_device *dev, const uint8_t *desc, size_t len, uint64_t timeout_ns,
		     dg_region **out)
{
	struct dg_descriptor d;
	*out = NULL;
	TRY(dg_device_enter(dev));
	int rc = dg_descriptor_parse(desc, len, &d);
	if (!rc)
		rc = import_entered(dev, &d, timeout_ns, out);
	life_leave(&dev->life);
	return rc;
}

int dg_region_import_by_qp(struct dg_qp *qp, const dg_rdma_memory *m, dg_region **out)
{
	struct dg_device *dev = qp->q->dev;
	struct dg_region_entry entry = {
		.base = (char *)(uintptr_t)m->address,
		.size = m->size,
		.access = (uint8_t)m->access,
		.method = DG_METHOD_QP,
		.remote = 1,
	};
	struct dg_region *r = region_new(dev);
	if (!r)
		return -ENOMEM;
	r->remote = r->other_machine = true; /* no share server knows about it */
	r->memory.size = m->size;
	r->access = m->access;
	int rc = dev->ops->qp->import(dev, r, m->rkey);
	if (rc)
		goto discard;
	r->qp = qp;
	atomic_fetch_add_explicit(&qp->refs, 1, memory_order_relaxed);
	rc = dg_region_table_add(r, &entry);
	if (rc)
		goto unmap;
	*out = r;
	return 0;
unmap:
	dg_qp_unref(qp);
	dg_region_unmap(r);
discard:
	region_discard(r);
	return rc;
}

static int wait_quiet(struct dg_region *r, uint64_t deadline_ns)
{
	uint32_t naps = 0;
	while (!gate_quiet(r->entry->gate)) {
		dg_devices_poll();
		if (now_ns() >= deadline_ns)
			return dg_fail(EBUSY,
				       "%s region #%u still has transfers in flight; new ones are "
				       "refused: keep its memory and close it again",
				       r->remote ? "remote" : "local", r->name);
		usleep(naps++ < 50 ? 20 : 500);
	}
	return 0;
}

/* Refuses new transfers and exports, and waits for those in flight. */
static int revoke_and_wait(struct dg_region *r, uint64_t deadline_ns)
{
	int rc = 0;
	atomic_store(&r->closing, true);
	/* seq_cst: paired with a poster's exchange of in_use and its load of the id: see
	 * queue.h. */
	atomic_store_explicit(&r->entry->id, 0, memory_order_seq_cst);
	if (!r->remote) {
		/* Before the grace period, so that an inline copy sees this at its next chunk and
		 * ends. */
		atomic_store_explicit(&r->entry->gate->revoked, 1, memory_order_seq_cst);
		rc = dg_share_revoke(r, deadline_ns);
		if (!rc && r->dev->ops->revoke)
			rc = r->dev->ops->revoke(r->dev, r->dev->provider, r, deadline_ns);
		if (!rc && r->kind)
			rc = r->kind->revoke(r, deadline_ns);
	}
	if (!rc)
		rc = dg_queues_grace(r->dev, deadline_ns);
	if (!rc)
		rc = wait_quiet(r, deadline_ns);
	if (!rc && life_drain(&r->life, deadline_ns))
		rc = dg_fail(EBUSY, "another thread is still using region #%u: close it again", r->name);
	return rc;
}

int dg_region_close_until(struct dg_region *r, uint64_t deadline_ns)
{
	if (r->dev->fork_generation != atomic_load(&dg_fork_generation)) {
		if (life_close_forked(&r->life))
			dg_region_unref(r);
		return 0;
	}
	int rc = life_close_begin(&r->life, deadline_ns);
	if (rc < 0)
		return dg_fail(EBUSY, "another thread is still closing region #%u: close it again",
			       r->name);
	if (!rc)
		return 0;
	rc = revoke_and_wait(r, deadline_ns);
	if (rc) {
		life_reopen(&r->life);
		return rc;
	}
	dg_region_unmap(r);
	if (r->remote)
		release_import(r);
	dg_region_table_remove(r);
	life_closed(&r->life);
	dg_region_unref(r);
	return 0;
}

int dg_region_close(dg_region *r, uint64_t timeout_ns)
{
	return dg_region_close_until(r, add_sat(now_ns(), timeout_ns));
}

void dg_region_free(dg_region *r)
{
	dg_region_close(r, DROPPED_NS);
	dg_region_unref(r);
}

/* Closes it without a limit of time, and frees the handle, which a close leaves where the device is `shared`. */
void dg_region_end(struct dg_region *r)
{
	const bool shared = r && r->dev->shared;
	if (r)
		dg_region_close(r, UINT64_MAX);
	if (shared)
		dg_region_free(r);
}

static uint32_t count_importers(struct dg_region *r)
{
	const struct dg_ops *ops = r->dev->ops;
	if (r->remote)
		return 0;
	uint32_t n = ops->importers ? ops->importers(r->dev->provider, r) : dg_share_importers(r);
	return n + (r->kind ? r->kind->importers(r) : 0);
}

/* Its gate stays entered until dg_region_let_go(). */
int dg_region_hold(dg_region *r, char **base)
{
	TRY(dg_region_enter(r));
	struct dg_region_entry *entry = r->entry;
	int rc = 0;
	if (!r->remote || entry->method != DG_METHOD_MAP || entry->may_fault) {
		rc = dg_fail(EOPNOTSUPP, "region #%u is not another process's memory that this one maps",
			     r->name);
		goto out;
	}
	gate_enter(entry->gate, 1);
	if (gate_revoked(entry->gate)) {
		gate_leave(entry->gate, 1);
		rc = dg_fail(ESTALE, "region #%u was closed by its owner", r->name);
	}
	*base = entry->base;
out:
	life_leave(&r->life);
	return rc;
}

void dg_region_let_go(dg_region *r)
{
	/* In a forked child the gate may be unmapped. */
	if (r->dev->fork_generation == atomic_load(&dg_fork_generation))
		gate_leave(r->entry->gate, 1);
}

int dg_region_info_get(dg_region *r, dg_region_info *out)
{
	/* In a forked child the gate of an import may be unmapped. */
	TRY(dg_region_enter(r));
	if (r->remote && ((r->dev->ops->lost && r->dev->ops->lost(r)) ||
			  (r->kind && r->kind->lost(r))))
		atomic_store(&r->entry->lost, 1);
	bool lost = atomic_load(&r->entry->lost) || (r->qp && atomic_load(&r->qp->broken));
	*out = (dg_region_info){
		.size = r->memory.size,
		.id = r->name,
		.access = r->access,
		.remote = r->remote,
		.method = r->remote && r->kind ? r->kind->method : r->entry->method,
		.peer_pid = r->remote ? dg_importer_exporter_pid(r) : 0,
		.revoked = gate_revoked(r->entry->gate),
		.lost = lost,
		.importers = count_importers(r),
		.registration = r->registration,
	};
	life_leave(&r->life);
	return 0;
}
