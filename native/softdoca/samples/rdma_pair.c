// SPDX-License-Identifier: Apache-2.0
#include "rdma_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <doca_log.h>

DOCA_LOG_REGISTER(RDMA_PAIR);

#define POLL_US 1000

/* The contents of a file. */
struct details {
	uint64_t address, connection_size, descriptor_size;
	char connection[DESCRIPTOR_MAX], descriptor[DESCRIPTOR_MAX];
};

static doca_error_t can_rdma(const struct doca_devinfo *info)
{
	return doca_rdma_cap_task_send_is_supported(info);
}

static doca_error_t export_memory(struct pair *p)
{
	const uint32_t access = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE |
				DOCA_ACCESS_FLAG_RDMA_READ;

	if (!p->memory) {
		p->memory = calloc(1, PAIR_BYTES);
		p->bytes = PAIR_BYTES;
		p->allocated = true;
	}
	if (!p->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	TRY_DOCA(doca_mmap_create(&p->map));
	TRY_DOCA(doca_mmap_set_memrange(p->map, p->memory, p->bytes));
	TRY_DOCA(doca_mmap_set_permissions(p->map, access));
	TRY_DOCA(doca_mmap_add_dev(p->map, p->dev));
	TRY_DOCA(doca_mmap_start(p->map));
	return DOCA_SUCCESS;
}

doca_error_t pair_open(struct pair *p, const struct options *o)
{
	union doca_data data = {.ptr = p};

	p->requester = !strcmp(o->role, "requester");
	if (!p->requester && strcmp(o->role, "responder")) {
		DOCA_LOG_ERR("--role is '%s'; it must be requester or responder", o->role);
		return DOCA_ERROR_INVALID_VALUE;
	}
	TRY(open_device(o->pci, can_rdma, &p->dev));
	TRY(export_memory(p));
	TRY_DOCA(doca_buf_inventory_create(4, &p->inventory));
	TRY_DOCA(doca_buf_inventory_start(p->inventory));
	TRY_DOCA(doca_pe_create(&p->pe));
	TRY_DOCA(doca_rdma_create(p->dev, &p->rdma));
	p->ctx = doca_rdma_as_ctx(p->rdma);
	TRY_DOCA(doca_rdma_set_permissions(p->rdma, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE |
							    DOCA_ACCESS_FLAG_RDMA_WRITE |
							    DOCA_ACCESS_FLAG_RDMA_READ));
	TRY_DOCA(doca_ctx_set_user_data(p->ctx, data));
	TRY_DOCA(doca_pe_connect_ctx(p->pe, p->ctx));
	return DOCA_SUCCESS;
}

doca_error_t pair_start(struct pair *p)
{
	TRY_DOCA(doca_ctx_start(p->ctx));
	return DOCA_SUCCESS;
}

static doca_error_t write_mine(struct pair *p, const struct options *o)
{
	struct details d = {.address = (uintptr_t)p->memory};
	const void *connection, *descriptor;

	TRY_DOCA(doca_rdma_export(p->rdma, &connection, &d.connection_size, &p->connection));
	TRY_DOCA(doca_mmap_export_rdma(p->map, p->dev, &descriptor, &d.descriptor_size));
	if (d.connection_size > DESCRIPTOR_MAX || d.descriptor_size > DESCRIPTOR_MAX)
		return failed("The export", DOCA_ERROR_TOO_BIG);
	memcpy(d.connection, connection, d.connection_size);
	memcpy(d.descriptor, descriptor, d.descriptor_size);
	snprintf(p->mine, sizeof p->mine, "%s%s", o->descriptor, p->requester ? ".requester" : "");
	return write_file(p->mine, &d, sizeof d);
}

static doca_error_t read_theirs(const struct pair *p, const struct options *o, struct details *d)
{
	char path[TEXT_MAX + 16], bytes[sizeof *d + 1];
	size_t n;

	snprintf(path, sizeof path, "%s%s", o->descriptor, p->requester ? "" : ".requester");
	while (access(path, R_OK)) {
		if (stopped())
			return DOCA_ERROR_SHUTDOWN;
		usleep(POLL_US);
	}
	TRY(read_file(path, bytes, sizeof bytes, &n));
	if (n != sizeof *d)
		return failed("Reading the details", DOCA_ERROR_INVALID_VALUE);
	memcpy(d, bytes, n);
	return DOCA_SUCCESS;
}

doca_error_t pair_meet(struct pair *p, const struct options *o)
{
	struct details d;

	TRY(write_mine(p, o));
	if (!p->requester)
		DOCA_LOG_INFO("The responder is ready");
	TRY(read_theirs(p, o, &d));
	if (d.connection_size > DESCRIPTOR_MAX || d.descriptor_size > DESCRIPTOR_MAX)
		return failed("Reading the details", DOCA_ERROR_INVALID_VALUE);
	TRY_DOCA(doca_rdma_connect(p->rdma, d.connection, d.connection_size, p->connection));
	TRY_DOCA(doca_mmap_create_from_export(NULL, d.descriptor, d.descriptor_size, p->dev, &p->far));
	p->far_memory = (void *)(uintptr_t)d.address;
	return DOCA_SUCCESS;
}

void pair_ended(struct pair *p, struct doca_task *task)
{
	p->result = doca_task_get_status(task);
	p->done = true;
	doca_task_free(task);
}

doca_error_t pair_run(struct pair *p, struct doca_task *task)
{
	p->done = false;
	TRY_DOCA(doca_task_submit(task));
	while (!p->done) {
		if (stopped())
			return DOCA_ERROR_SHUTDOWN;
		if (!doca_pe_progress(p->pe))
			usleep(POLL_US);
	}
	return p->result ? failed("The task", p->result) : DOCA_SUCCESS;
}

static void stop(struct pair *p)
{
	enum doca_ctx_states state;

	doca_ctx_stop(p->ctx);
	while (doca_ctx_get_state(p->ctx, &state) == DOCA_SUCCESS && state != DOCA_CTX_STATE_IDLE)
		doca_pe_progress(p->pe);
	doca_rdma_destroy(p->rdma);
}

void pair_close(struct pair *p)
{
	if (p->ctx)
		stop(p);
	if (p->pe)
		doca_pe_destroy(p->pe);
	if (p->inventory)
		doca_buf_inventory_destroy(p->inventory);
	if (p->far)
		doca_mmap_destroy(p->far);
	if (p->map)
		doca_mmap_destroy(p->map);
	if (p->dev)
		doca_dev_close(p->dev);
	if (p->mine[0])
		unlink(p->mine);
	if (p->allocated)
		free(p->memory);
}
