// SPDX-License-Identifier: Apache-2.0
/* Makes memory accessible to the GPU: pinned memory of this process, and blocks exported by other
 * processes. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_provider.h"
#include "error.h"
#include "region.h"

enum { PINS_VERSION = 1 };

/* Host memory registered with CUDA, shared by all devices of this process, because CUDA registers a
 * range only once. */
struct pin {
	struct pin *next;
	char *lo, *hi;
	uint32_t refs;
	/* The context that registered it, retained because a registration ends with its context. */
	CUdevice dev;
	CUcontext ctx;
};

/* All registrations. softdoca contains a second copy of this file; both copies must use one list,
 * otherwise the first of them to end a registration would end it for the other's kernels as
 * well. */
struct pins {
	uint32_t version; /* of this struct and struct pin */
	pthread_mutex_t lock;
	struct pin *first;
};

static struct pins own_pins = {PINS_VERSION, PTHREAD_MUTEX_INITIALIZER, NULL};
static _Atomic(struct pins *) shared_pins = &own_pins;

static struct pins *pins_lock(void)
{
	for (;;) {
		struct pins *pins = atomic_load(&shared_pins);
		pthread_mutex_lock(&pins->lock);
		if (pins == atomic_load(&shared_pins))
			return pins;
		pthread_mutex_unlock(&pins->lock); /* the other list was adopted meanwhile */
	}
}

void *dg_cuda_share_pins(void *theirs)
{
	struct pins *pins = pins_lock(), *other = theirs, *now = pins;
	if (other && other->version == PINS_VERSION && !pins->first)
		now = other;
	atomic_store(&shared_pins, now);
	pthread_mutex_unlock(&pins->lock);
	return now;
}

static struct pin *pin_find(const struct pins *pins, const char *lo, const char *hi)
{
	struct pin *p = pins->first;
	while (p && (lo < p->lo || hi > p->hi))
		p = p->next;
	return p;
}

/* Whether all these bytes lie in one allocation or registration known to CUDA. */
static bool is_registered(CUdeviceptr at, uint64_t reach)
{
	CUdeviceptr start = 0;
	size_t size = 0;
	return !cuda.cuPointerGetAttribute(&start, CU_POINTER_RANGE_START, at) &&
	       !cuda.cuPointerGetAttribute(&size, CU_POINTER_RANGE_SIZE, at) && start <= at &&
	       reach <= size && at - start <= size - reach;
}

static CUresult host_register(const dg_memory *m)
{
	unsigned flags = CU_MEMHOST_PORTABLE | CU_MEMHOST_DEVICEMAP;
	CUresult code = cuda.cuMemHostRegister(m->addr, m->size, flags);
	if (!code || !(m->flags & DG_MEMORY_READONLY) || code == CUDA_ERROR_OUT_OF_MEMORY ||
	    code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return code;
	/* Pages that are mapped read-only. A read-only view of writable pages is not pinned
	 * read-only, because the memory that contains it may be registered later. */
	CUresult readonly =
		cuda.cuMemHostRegister(m->addr, m->size, flags | CU_MEMHOSTREGISTER_READ_ONLY);
	return readonly == CUDA_ERROR_NOT_SUPPORTED ? code : readonly;
}

static int pin_error(const dg_memory *m, CUresult code)
{
	if (code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return dg_fail(EINVAL,
			       "part of these %" PRIu64
			       " bytes is already pinned, by a region or by the program: register "
			       "the whole memory first, then its parts",
			       m->size);
	if (code == CUDA_ERROR_OUT_OF_MEMORY)
		return dg_fail(ENOMEM,
			       "%" PRIu64 " bytes of host memory could not be pinned (%s): check "
			       "the limit of locked memory (ulimit -l)",
			       m->size, cuda_name(code));
	if (code == CUDA_ERROR_INVALID_VALUE)
		return dg_fail(EOPNOTSUPP,
			       "CUDA cannot pin this memory (cuMemHostRegister: %s): copy it into "
			       "memory from dgkit.empty()",
			       cuda_name(code));
	return cuda_fail("cuMemHostRegister", code);
}

static int pin_take(struct cuda *c, struct pins *pins, const dg_memory *m, struct pin **out)
{
	CUcontext ctx = NULL;
	char *lo = m->addr, *hi = lo + m->size;
	struct pin *p = pin_find(pins, lo, hi);
	*out = p;
	if (p) {
		p->refs++;
		return 0;
	}
	CUresult code = host_register(m);
	if (code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
	    is_registered((CUdeviceptr)(uintptr_t)lo, m->size))
		return 0; /* registered by the program itself, or allocated by CUDA */
	if (code)
		return pin_error(m, code);
	code = cuda.cuDevicePrimaryCtxRetain(&ctx, c->dev);
	p = code ? NULL : malloc(sizeof *p);
	if (!p) {
		if (!code)
			cuda.cuDevicePrimaryCtxRelease(c->dev);
		cuda.cuMemHostUnregister(lo);
		return code ? cuda_fail("cuDevicePrimaryCtxRetain", code)
			    : dg_fail(ENOMEM, "out of memory for a registration");
	}
	*p = (struct pin){
		.next = pins->first, .lo = lo, .hi = hi, .refs = 1, .dev = c->dev, .ctx = ctx};
	pins->first = *out = p;
	return 0;
}

static void pin_drop(struct pins *pins, struct pin *p)
{
	struct pin **at = &pins->first;
	if (!p || --p->refs)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	const bool entered = cuda_enter_context(p->ctx);
	cuda.cuMemHostUnregister(p->lo);
	cuda_leave(entered);
	cuda.cuDevicePrimaryCtxRelease(p->dev);
	free(p);
}

static int map_host(struct cuda *c, struct cuda_mapping *t, const dg_memory *m)
{
	if (m->flags & DG_MEMORY_MAY_FAULT)
		return dg_fail(EOPNOTSUPP, "the memory is a mapped file, which a GPU cannot access "
					   "safely: copy it into memory from dgkit.empty()");
	t->kind = MAPPED_PIN;
	struct pins *pins = pins_lock();
	int rc = pin_take(c, pins, m, &t->pin);
	pthread_mutex_unlock(&pins->lock);
	return rc;
}

CUresult cuda_set_access(const struct cuda *c, CUdeviceptr at, uint64_t size, bool write)
{
	CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, c->ordinal},
		.flags = write ? CU_MEM_ACCESS_READWRITE : CU_MEM_ACCESS_READ,
	};
	return cuda.cuMemSetAccess(at, size, &access, 1);
}

static int block_error(const struct cuda *c, const dg_memory *m, const char *what, CUresult code)
{
	if (memcmp(m->uuid, c->uuid, sizeof c->uuid))
		return dg_fail(
			EOPNOTSUPP,
			"the memory is on another GPU than this device's (GPU %d), which has no "
			"peer access to it (%s: %s): open Device('cuda', gpu=...) with that GPU",
			c->ordinal, what, cuda_name(code));
	return cuda_fail(what, code);
}

/* Maps the imported block and, directly behind it, the scratch granule. */
static int map_block(struct cuda *c, struct cuda_mapping *t, const dg_memory *m, bool write)
{
	const char *what = "cuMemImportFromShareableHandle";
	CUresult code = cuda.cuMemImportFromShareableHandle(&t->handle, (void *)(intptr_t)m->fd,
							    CU_MEM_HANDLE_POSIX_FD);
	if (code)
		return block_error(c, m, what, code);
	t->kind = MAPPED_BLOCK;
	t->size = m->block;
	what = "cuMemAddressReserve";
	code = cuda.cuMemAddressReserve(&t->base, m->block + c->granularity, 0, 0, 0);
	if (code)
		goto release;
	what = "cuMemMap";
	code = cuda.cuMemMap(t->base, m->block, 0, t->handle, 0);
	if (code)
		goto free_address;
	code = cuda.cuMemMap(t->base + m->block, c->granularity, 0, c->scratch, 0);
	if (code)
		goto unmap;
	what = "cuMemSetAccess";
	code = cuda_set_access(c, t->base, m->block + (write ? c->granularity : 0), write);
	if (!code && !write)
		code = cuda_set_access(c, t->base + m->block, c->granularity, true);
	if (code)
		goto unmap_all;
	t->tail = t->base + m->block;
	t->writable = write;
	return 0;
unmap_all:
	cuda.cuMemUnmap(t->base + m->block, c->granularity);
unmap:
	cuda.cuMemUnmap(t->base, m->block);
free_address:
	cuda.cuMemAddressFree(t->base, m->block + c->granularity);
release:
	cuda.cuMemRelease(t->handle);
	return block_error(c, m, what, code);
}

static int map_ipc(struct cuda *c, struct cuda_mapping *t, const dg_memory *m)
{
	CUipcMemHandle handle;
	memcpy(&handle, m->handle, sizeof handle);
	CUresult code = cuda.cuIpcOpenMemHandle(&t->base, handle, CU_IPC_LAZY_PEER_ACCESS);
	if (code)
		return block_error(c, m, "cuIpcOpenMemHandle", code);
	if (!is_registered(t->base, m->block)) {
		cuda.cuIpcCloseMemHandle(t->base);
		return dg_fail(EBADMSG,
			       "the exporter's GPU memory block is smaller than the %" PRIu64
			       " bytes it claims",
			       m->block);
	}
	t->kind = MAPPED_IPC;
	t->writable = true;
	t->size = m->block;
	return 0;
}

static int map_import(struct cuda *c, struct cuda_mapping *t, const dg_memory *m,
		      struct dg_region_entry *entry)
{
	int rc;
	if (m->kind == DG_KIND_CUDA_VMM) {
		if (!m->block || m->block % c->granularity)
			return dg_fail(
				EBADMSG,
				"the exporter's reply is malformed: a GPU memory block of %" PRIu64
				" bytes is not a positive multiple of %" PRIu64,
				m->block, c->granularity);
		rc = map_block(c, t, m, entry->access & DG_ACCESS_WRITE);
	} else {
		rc = map_ipc(c, t, m);
	}
	if (!rc)
		entry->base = (char *)(uintptr_t)(t->base + m->fd_offset);
	return rc;
}

/* Whether GPU memory of this process is mapped again when it is imported: for this GPU, if it is another
 * GPU's; and with the scratch granule behind it, without which a small write takes 9 us more. */
static bool maps_again(const dg_memory *m, const struct dg_region_entry *entry)
{
	return entry->remote && m->kind == DG_KIND_CUDA_VMM;
}

/* GPU memory of this process where it is. It must be this GPU's: a kernel that accessed another GPU's
 * memory would lose the context. */
static int own_memory(const struct cuda *c, const dg_memory *m, struct dg_region_entry *entry)
{
	if (!memcmp(m->uuid, c->uuid, sizeof c->uuid))
		return 0;
	entry->method = DG_METHOD_EXPORT_ONLY;
	return entry->remote ? dg_fail(EOPNOTSUPP,
				       "the region is memory of another GPU than this device's "
				       "(GPU %d): open Device('cuda', gpu=...) with that GPU",
				       c->ordinal)
			     : 0;
}

int cuda_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
	     struct dg_region_entry *entry)
{
	struct cuda *c = state;
	int lost = atomic_load(&c->lost), rc = 0;
	(void)dev;
	entry->base = m->addr;
	if (m->kind != DG_KIND_HOST)
		entry->method = DG_METHOD_GPU;
	else if (entry->remote)
		return 0; /* memory of this process, pinned by the exported region */
	if (lost)
		return dg_fail(ENODEV, "the GPU's context is lost (%s): restart this process",
			       cuda_name(lost));
	if (m->kind != DG_KIND_HOST && m->addr && !maps_again(m, entry))
		return own_memory(c, m, entry);
	struct cuda_mapping *t = calloc(1, sizeof *t);
	if (!t)
		return dg_fail(ENOMEM, "out of memory for a mapping");
	bool entered = cuda_enter(c);
	rc = m->kind == DG_KIND_HOST ? map_host(c, t, m) : map_import(c, t, m, entry);
	cuda_leave(entered);
	if (rc)
		free(t);
	else
		r->provider_state = t;
	return rc;
}

void cuda_unmap(struct dg_device *dev, void *state, struct dg_region *r)
{
	struct cuda *c = state;
	struct cuda_mapping *t = r->provider_state;
	(void)dev;
	bool entered = cuda_enter(c);
	if (t->kind == MAPPED_PIN) {
		struct pins *pins = pins_lock();
		pin_drop(pins, t->pin);
		pthread_mutex_unlock(&pins->lock);
	} else if (t->kind == MAPPED_IPC) {
		cuda.cuIpcCloseMemHandle(t->base);
	} else {
		cuda.cuMemUnmap(t->base, t->size);
		cuda.cuMemUnmap(t->tail, c->granularity);
		cuda.cuMemAddressFree(t->base, t->size + c->granularity);
		cuda.cuMemRelease(t->handle);
	}
	cuda_leave(entered);
	free(t);
}
