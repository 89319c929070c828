// SPDX-License-Identifier: Apache-2.0
/* Memory that all ranks register together: the n-th registration of each rank is one memory, of
 * which a transfer names a rank. Each rank imports the descriptors of all ranks, its own as well,
 * because a rank may put to itself. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm.h"
#include "error.h"
#include "providers/cuda_pointer.h"
#include "queue.h"

#define IMPORT_NS 10000000000u
#define CLOSE_NS 5000000000u
#define MOVE_NS 60000000000u

static const uint32_t access_all = DG_ACCESS_READ | DG_ACCESS_WRITE;

/* Opens the engine unless it is open. `at`: memory on the GPU, for CUDA. */
static int engine_open(struct comm *c, uint32_t kind, const dg_memory *at)
{
	struct engine *e = &c->engines[kind];
	dg_device_config config = {0};
	if (e->queue)
		return 0;
	int ordinal = kind == CUDA ? dg_cuda_ordinal(at->uuid) : 0;
	if (ordinal < 0)
		return ordinal;
	config.gpu = (uint32_t)ordinal;
	config.serves = c->serves;
	int rc = e->dev ? 0 : dg_device_open(kind == CUDA ? "cuda" : "soft", &config, &e->dev);
	if (!rc && kind == CUDA)
		rc = batch_open(c);
	if (rc)
		return rc;
	return kind == CUDA ? dg_queue_open_for_kernels(e->dev, QUEUE_DEPTH, c, &e->queue)
			    : dg_queue_open(e->dev, QUEUE_DEPTH, DG_PATH_AUTO, 0, MOVE_NS, &e->queue);
}

/* Opens the device that exports memory to the agent, unless one of this process's engines does. */
static int agent_device_open(struct comm *c)
{
	struct engine *e = &c->engines[AGENT];
	const dg_device_config config = {0};
	if (!e->agent || e->dev || !strcmp(agent_provider(e->agent), "soft"))
		return 0;
	return dg_device_open(agent_provider(e->agent), &config, &e->dev);
}

int memory_local_id(struct comm *c, struct memory *m, uint32_t engine, uint32_t *id)
{
	dg_region_info info;
	int rc = 0;
	if (!m->local[engine]) {
		rc = dg_region_register(c->engines[engine].dev, &m->at, access_all, &m->local[engine]);
		if (!rc)
			rc = dg_region_info_get(m->local[engine], &info);
		if (!rc)
			m->local_id[engine] = info.id;
	}
	*id = m->local_id[engine];
	return rc;
}

struct memory *memory_find(const struct comm *c, const void *handle)
{
	const uintptr_t index = (uintptr_t)handle - 1;
	return index < c->n_memories ? c->memories[index] : NULL;
}

/* Checks that all pages of host memory are mapped: copying from a page that is not would kill the
 * process. */
static int check_mapped(void *addr, uint64_t size)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)addr, start = at & ~(page - 1);
	if (size > UINTPTR_MAX - at || msync((void *)start, at + size - start, MS_ASYNC))
		return dg_fail(EFAULT, "%" PRIu64 " bytes of memory at %p, not all of which is mapped", size,
			       addr);
	return 0;
}

/* Registers this rank's part. */
static int register_own(struct comm *c, struct memory *m, void *addr, uint64_t size, int type)
{
	uint32_t id;
	m->at = (dg_memory){.addr = addr, .size = size, .fd = -1};
	m->engine = type == NCCL_CUDA ? CUDA : SOFT;
	if (type != NCCL_CUDA && type != NCCL_HOST)
		return dg_fail(EINVAL, "memory of type %d: it must be 1 (host) or 2 (GPU)", type);
	if (!addr || !size)
		return dg_fail(EINVAL, "%" PRIu64 " bytes of memory at %p", size, addr);
	int rc = m->engine == CUDA ? dg_cuda_pointer_query(addr, size, &m->at) : check_mapped(addr, size);
	if (rc)
		m->at.fd = -1;
	else if (m->engine == CUDA)
		rc = engine_open(c, CUDA, &m->at);
	if (!rc)
		rc = engine_open(c, SOFT, NULL); /* for host memory of other ranks */
	if (!rc)
		rc = agent_device_open(c);
	if (!rc)
		rc = memory_local_id(c, m, m->engine, &id);
	const bool exports = c->engines[AGENT].dev && m->engine == SOFT;
	return rc || !exports ? rc : memory_local_id(c, m, AGENT, &id);
}

static int import_part(struct comm *c, const struct message *from, struct remote_memory *to)
{
	dg_region_info info;
	to->engine = from->on_gpu ? CUDA : SOFT;
	to->size = from->size;
	if (!c->engines[to->engine].dev)
		return dg_fail(EINVAL, "it is on a GPU, and this rank has registered host memory only");
	if (!from->length)
		return 0;
	int rc = dg_region_import(c->engines[to->engine].dev, from->descriptor, from->length,
				  IMPORT_NS, &to->region);
	if (!rc)
		rc = dg_region_info_get(to->region, &info);
	if (!rc)
		to->id = info.id;
	if (!rc && c->engines[AGENT].agent)
		rc = agent_import(c->engines[AGENT].agent,
				  from->agent_length ? from->agent_descriptor : from->descriptor,
				  from->agent_length ? from->agent_length : from->length, from->on_gpu,
				  &to->agent_id);
	return rc;
}

static int import_all(struct comm *c, struct memory *m, const struct message *all)
{
	int rc = 0;
	for (uint32_t i = 0; i < c->ranks && !rc; i++) {
		rc = import_part(c, &all[i], &m->remote[i]);
		if (rc)
			dg_fail_in(rc, "memory of rank %" PRIu32, i);
	}
	return rc;
}

/* Whether all ranks have succeeded; otherwise all of them fail. */
static int all_succeeded(const struct comm *c, int own, const struct message *all)
{
	for (uint32_t i = 0; i < c->ranks && !own; i++)
		if (all[i].status)
			return dg_fail(EPROTO, "rank %" PRIu32 " could not register its memory: %s", i,
				       strerror(-all[i].status));
	return own;
}

static int export_region(dg_region *r, uint8_t *descriptor, uint32_t *length)
{
	const int n = dg_region_export(r, access_all, descriptor, DG_DESCRIPTOR_MAX);
	*length = n < 0 ? 0 : (uint32_t)n;
	return n < 0 ? n : 0;
}

static int exchange_descriptors(struct comm *c, struct memory *m, int rc, struct message *all)
{
	struct message own = {.kind = MESSAGE_MEMORY, .size = m->at.size, .on_gpu = m->engine == CUDA};
	if (!rc && m->at.kind != DG_KIND_CUDA_OWN)
		rc = export_region(m->local[m->engine], own.descriptor, &own.length);
	if (!rc && m->local[AGENT])
		rc = export_region(m->local[AGENT], own.agent_descriptor, &own.agent_length);
	own.status = rc;
	int told = comm_exchange(c, &own, all);
	if (told)
		return told;
	TRY(all_succeeded(c, rc, all)); /* of all ranks */
	own = (struct message){.kind = MESSAGE_IMPORTED, .status = import_all(c, m, all)};
	told = comm_exchange(c, &own, all);
	return told ? told : all_succeeded(c, own.status, all);
}

static int add_entry(struct comm *c, struct memory *m)
{
	struct memory **table = realloc(c->memories, (c->n_memories + 1) * sizeof(struct memory *));
	if (!table)
		return dg_fail(ENOMEM, "out of memory for registrations");
	c->memories = table;
	c->memories[c->n_memories++] = m;
	return 0;
}

/* Allocates the tables of a memory: its registrations by rank and, for signal words in GPU memory that are never
 * reset, their values and whether these have been read (comm.h). */
static int make_tables(struct comm *c, struct memory *m, uint64_t size, int type, uint64_t flags)
{
	const bool shadow = type == NCCL_CUDA && (flags & NCCL_SIGNAL_NEVER_RESET);
	m->at.fd = -1;
	m->remote = calloc(c->ranks, sizeof *m->remote);
	m->shadow = shadow ? calloc(size / 8 + 1, sizeof *m->shadow) : NULL;
	m->known = shadow ? calloc(size / 8 + 1, sizeof *m->known) : NULL;
	if (!m->remote || (shadow && (!m->shadow || !m->known)))
		return dg_fail(ENOMEM, "out of memory for a registration");
	return 0;
}

static int region_close(dg_region **r)
{
	const int rc = *r ? dg_region_close(*r, CLOSE_NS) : 0;
	if (!rc)
		*r = NULL;
	return rc;
}

static int memory_free(struct comm *c, struct memory *m)
{
	int rc = 0;
	for (uint32_t i = 0; i < c->ranks && m->remote && !rc; i++) {
		if (m->remote[i].region && c->engines[AGENT].agent)
			agent_release(c->engines[AGENT].agent, m->remote[i].agent_id);
		rc = region_close(&m->remote[i].region);
	}
	for (uint32_t i = 0; i < ENGINES && !rc; i++)
		rc = region_close(&m->local[i]);
	if (rc)
		return rc;
	if (m->at.fd >= 0)
		close(m->at.fd);
	free(m->remote);
	free(m->shadow);
	free(m->known);
	free(m);
	return 0;
}

int memory_open(struct comm *c, void *addr, uint64_t size, int type, uint64_t flags, void **out)
{
	struct message *all = calloc(c->ranks, sizeof *all);
	struct memory *m = calloc(1, sizeof *m);
	if (!m || !all) {
		free(all);
		free(m);
		return dg_fail(ENOMEM, "out of memory for a registration");
	}
	pthread_mutex_lock(&c->collective);
	pthread_mutex_lock(&c->lock);
	const uint32_t index = c->n_memories;
	int rc = make_tables(c, m, size, type, flags);
	if (!rc)
		rc = register_own(c, m, addr, size, type);
	/* Before the others learn of it, so that their signals find it. */
	int added = add_entry(c, m);
	if (!rc)
		rc = added;
	pthread_mutex_unlock(&c->lock);
	rc = exchange_descriptors(c, m, rc, all);
	pthread_mutex_lock(&c->lock);
	if (rc && !added)
		c->memories[index] = NULL;
	if (rc)
		memory_free(c, m);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->collective);
	free(all);
	*out = rc ? NULL : (void *)(uintptr_t)(index + 1);
	return rc;
}

int memory_close(struct comm *c, struct memory *m)
{
	int rc = batch_wait(c);
	for (uint32_t i = 0; i < c->n_memories && !rc; i++)
		if (c->memories[i] == m)
			c->memories[i] = NULL;
	return rc ? rc : memory_free(c, m);
}
