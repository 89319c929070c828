// SPDX-License-Identifier: Apache-2.0
/*
 * RDMA messages: the requester sends a text, the responder sends it back.
 *
 *	rdma_send_receive --role responder [--details-path FILE]
 *	rdma_send_receive --role requester [--details-path FILE] [--text TEXT]
 *
 * The receive for the answer is submitted before the text is sent.
 */
#include <string.h>

#include <doca_log.h>

#include "rdma_pair.h"

DOCA_LOG_REGISTER(RDMA_SEND_RECEIVE);

#define HALF ((size_t)PAIR_BYTES / 2)

static void sent(struct doca_rdma_task_send *task, union doca_data task_data, union doca_data ctx_data)
{
	(void)task_data;
	pair_ended(ctx_data.ptr, doca_rdma_task_send_as_task(task));
}

static void received(struct doca_rdma_task_receive *task, union doca_data task_data,
		     union doca_data ctx_data)
{
	size_t *length = task_data.ptr;

	*length = doca_rdma_task_receive_get_result_len(task);
	pair_ended(ctx_data.ptr, doca_rdma_task_receive_as_task(task));
}

/* Sends the first `length` bytes of the memory. */
static doca_error_t send_text(struct pair *p, size_t length)
{
	struct doca_rdma_task_send *task;
	struct doca_buf *from;
	doca_error_t result;

	TRY_DOCA(doca_buf_inventory_buf_get_by_data(p->inventory, p->map, p->memory, length, &from));
	TRY_DOCA(doca_rdma_task_send_allocate_init(p->rdma, p->connection, from, (union doca_data){0},
						   &task));
	result = pair_run(p, doca_rdma_task_send_as_task(task));
	doca_buf_dec_refcount(from, NULL);
	return result;
}

/* Makes a receive into the second half of the memory. */
static doca_error_t new_receive(struct pair *p, size_t *length, struct doca_buf **to,
				struct doca_rdma_task_receive **task)
{
	TRY_DOCA(doca_buf_inventory_buf_get_by_addr(p->inventory, p->map, p->memory + HALF, HALF, to));
	TRY_DOCA(doca_rdma_task_receive_allocate_init(p->rdma, *to, (union doca_data){.ptr = length},
						      task));
	return DOCA_SUCCESS;
}

static doca_error_t request(struct pair *p, const struct options *o)
{
	const size_t size = strlen(o->text) + 1;
	struct doca_rdma_task_receive *task;
	struct doca_buf *to;
	size_t length = 0;

	if (size > HALF)
		return failed("The text", DOCA_ERROR_TOO_BIG);
	TRY(new_receive(p, &length, &to, &task));
	TRY_DOCA(doca_task_submit(doca_rdma_task_receive_as_task(task)));
	TRY(pair_meet(p, o));
	memcpy(p->memory, o->text, size);
	TRY(send_text(p, size));
	while (!length && !stopped())
		doca_pe_progress(p->pe);
	print_text("it came back", p->memory + HALF, length);
	doca_buf_dec_refcount(to, NULL);
	return DOCA_SUCCESS;
}

static doca_error_t respond(struct pair *p, const struct options *o)
{
	struct doca_rdma_task_receive *task;
	struct doca_buf *to;
	size_t length = 0;

	TRY(pair_meet(p, o));
	TRY(new_receive(p, &length, &to, &task));
	TRY(pair_run(p, doca_rdma_task_receive_as_task(task)));
	print_text("received", p->memory + HALF, length);
	doca_buf_dec_refcount(to, NULL);
	memcpy(p->memory, p->memory + HALF, length);
	return send_text(p, length);
}

static doca_error_t start(struct pair *p, const struct options *o)
{
	TRY(pair_open(p, o));
	TRY_DOCA(doca_rdma_task_send_set_conf(p->rdma, sent, sent, 1));
	TRY_DOCA(doca_rdma_task_receive_set_conf(p->rdma, received, received, 1));
	TRY(pair_start(p));
	return p->requester ? request(p, o) : respond(p, o);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text from the requester"};
	struct pair p = {.requester = false};
	doca_error_t result = sample_begin(argc, argv, "rdma_send_receive", WANT_TEXT | WANT_RDMA, &o);

	if (result == DOCA_SUCCESS)
		result = start(&p, &o);
	pair_close(&p);
	return sample_end(result);
}
