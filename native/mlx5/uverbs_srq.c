// SPDX-License-Identifier: Apache-2.0
/* Commands about shared receive queues. */
#include <errno.h>
#include <stdlib.h>

#include "mlx5.h"

/* Rounds the entries, and the segments of one, as libmlx5 has. */
static int open_srq(struct srq *s, const struct ib_uverbs_create_srq *q, const struct mlx5_ib_create_srq *d)
{
	uint32_t entries = 1, size = 32;
	while (entries <= q->max_wr && entries < DG_NIC_ENTRIES_MAX)
		entries *= 2;
	while (size < 16 * (1 + q->max_sge))
		size *= 2;
	if (!dg_mlx5_is_writable(d->buf_addr, (uint64_t)entries * size) || !dg_mlx5_is_writable(d->db_addr, 4))
		return -EFAULT;
	const dg_nic_srq_config config = {
		.ring = (void *)(uintptr_t)d->buf_addr,
		.entries = entries,
		.sges = size / 16 - 1,
		.record = (uint32_t *)(uintptr_t)d->db_addr,
		.pd = s->pd->handle,
		.async_fd = s->o.context->async->write_fd,
		.event = s->o.event,
	};
	s->max_wr = entries - 1;
	s->max_sge = config.sges;
	return dg_nic_srq_open(dg_mlx5_nic(), &config, &s->nic_srq);
}

int dg_mlx5_create_srq(struct call *c)
{
	const struct ib_uverbs_create_srq *q = (void *)c->in;
	struct object *pd = dg_mlx5_find(c->context, q->pd_handle, KIND_PD);
	if (!pd || q->max_wr >= DG_NIC_ENTRIES_MAX || q->max_sge > MAX_SRQ_SGES)
		return -EINVAL;
	struct srq *s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->pd = pd;
	int rc = dg_mlx5_add(c->context, &s->o, KIND_SRQ);
	if (rc) {
		free(s);
		return rc;
	}
	s->o.user_handle = q->user_handle;
	rc = open_srq(s, q, (void *)c->driver);
	if (rc) {
		dg_mlx5_remove(&s->o);
		return rc;
	}
	pd->users++;
	struct ib_uverbs_create_srq_resp *r = (void *)c->out;
	struct mlx5_ib_create_srq_resp *driver = (void *)(r + 1);
	*r = (struct ib_uverbs_create_srq_resp){
		.srq_handle = s->o.handle, .max_wr = s->max_wr, .max_sge = s->max_sge};
	driver->srqn = s->o.handle;
	c->out_size = sizeof *r + sizeof *driver;
	return 0;
}

int dg_mlx5_modify_srq(struct call *c)
{
	enum { LIMIT = 1 << 1 };
	const struct ib_uverbs_modify_srq *q = (void *)c->in;
	struct srq *s = dg_mlx5_find(c->context, q->srq_handle, KIND_SRQ);
	if (!s || q->attr_mask & ~(uint32_t)LIMIT) /* mlx5's queues keep their size */
		return -EINVAL;
	return q->attr_mask & LIMIT ? dg_nic_srq_set_limit(s->nic_srq, q->srq_limit) : 0;
}

int dg_mlx5_query_srq(struct call *c)
{
	const struct srq *s =
		dg_mlx5_find(c->context, ((struct ib_uverbs_query_srq *)c->in)->srq_handle, KIND_SRQ);
	struct ib_uverbs_query_srq_resp *r = (void *)c->out;
	if (!s)
		return -EINVAL;
	*r = (struct ib_uverbs_query_srq_resp){.max_wr = s->max_wr,
						 .max_sge = s->max_sge,
						 .srq_limit = dg_nic_srq_limit(s->nic_srq)};
	c->out_size = sizeof *r;
	return 0;
}

int dg_mlx5_destroy_srq(struct call *c)
{
	struct srq *s =
		dg_mlx5_find(c->context, ((struct ib_uverbs_destroy_srq *)c->in)->srq_handle, KIND_SRQ);
	if (!s)
		return -ENOENT;
	struct ib_uverbs_destroy_srq_resp *r = (void *)c->out;
	r->events_reported = s->o.async_reported;
	c->out_size = sizeof *r;
	return dg_mlx5_destroy(&s->o);
}
