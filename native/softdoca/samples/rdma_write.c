// SPDX-License-Identifier: Apache-2.0
/*
 * RDMA write: the requester writes a text to the responder's memory, with an immediate value that tells
 * the responder that it is there.
 *
 *	rdma_write --role responder [--details-path FILE]
 *	rdma_write --role requester [--details-path FILE] [--text TEXT]
 */
#include <string.h>

#include <doca_log.h>

#include "rdma_pair.h"

DOCA_LOG_REGISTER(RDMA_WRITE);

#define NOTICE 0x600du

static void written(struct doca_rdma_task_write_imm *task, union doca_data task_data,
		    union doca_data ctx_data)
{
	(void)task_data;
	pair_ended(ctx_data.ptr, doca_rdma_task_write_imm_as_task(task));
}

static void receive_completed(struct doca_rdma_task_receive *task, union doca_data task_data,
			      union doca_data ctx_data)
{
	uint32_t *notice = task_data.ptr;

	*notice = doca_rdma_task_receive_get_result_immediate_data(task);
	pair_ended(ctx_data.ptr, doca_rdma_task_receive_as_task(task));
}

static doca_error_t run_requester(struct pair *p, const struct options *o)
{
	const size_t length = strlen(o->text) + 1;
	struct doca_rdma_task_write_imm *task;
	struct doca_buf *from, *to;
	doca_error_t result;

	TRY(pair_meet(p, o));
	memcpy(p->memory, o->text, length);
	TRY_DOCA(doca_buf_inventory_buf_get_by_data(p->inventory, p->map, p->memory, length, &from));
	TRY_DOCA(doca_buf_inventory_buf_get_by_addr(p->inventory, p->far, p->far_memory, length, &to));
	TRY_DOCA(doca_rdma_task_write_imm_allocate_init(p->rdma, p->connection, from, to, NOTICE,
							(union doca_data){0}, &task));
	result = pair_run(p, doca_rdma_task_write_imm_as_task(task));
	if (result == DOCA_SUCCESS)
		print_text("written", p->memory, length);
	doca_buf_dec_refcount(from, NULL);
	doca_buf_dec_refcount(to, NULL);
	return result;
}

static doca_error_t run_responder(struct pair *p, const struct options *o)
{
	struct doca_rdma_task_receive *task;
	uint32_t notice = 0;

	TRY(pair_meet(p, o));
	TRY_DOCA(doca_rdma_task_receive_allocate_init(p->rdma, NULL, (union doca_data){.ptr = &notice},
						      &task));
	TRY(pair_run(p, doca_rdma_task_receive_as_task(task)));
	if (notice != NOTICE)
		return failed("The notice", DOCA_ERROR_UNEXPECTED);
	print_text("the memory holds", p->memory, PAIR_BYTES);
	return DOCA_SUCCESS;
}

static doca_error_t start(struct pair *p, const struct options *o)
{
	TRY(pair_open(p, o));
	TRY_DOCA(doca_rdma_task_write_imm_set_conf(p->rdma, written, written, 1));
	TRY_DOCA(doca_rdma_task_receive_set_conf(p->rdma, receive_completed, receive_completed, 1));
	TRY(pair_start(p));
	return p->requester ? run_requester(p, o) : run_responder(p, o);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text from the requester"};
	struct pair p = {.requester = false};
	doca_error_t result = sample_begin(argc, argv, "rdma_write", WANT_TEXT | WANT_RDMA, &o);

	if (result == DOCA_SUCCESS)
		result = start(&p, &o);
	pair_close(&p);
	return sample_end(result);
}
