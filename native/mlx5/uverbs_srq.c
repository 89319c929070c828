// SPDX-License-Identifier: Apache-2.0
/* Commands about shared receive queues and XRC domains. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "error.h"
#include "mlx5.h"

int dg_mlx5_open_xrcd(struct call *c)
{
	const struct ib_uverbs_open_xrcd *q = (void *)c->in;
	const int fd = (int)q->fd;
	const struct xrcd *same = NULL;
	struct stat file = {0};
	if (fd != -1 && fstat(fd, &file))
		return -EBADF;
	for (uint32_t i = 0; fd != -1 && i < MAX_OBJECTS && !same; i++) {
		const struct xrcd *other = dg_mlx5_find(NULL, i, KIND_XRCD);
		if (other && other->ino == file.st_ino && other->dev == file.st_dev &&
		    other->o.context->adapter == c->context->adapter)
			same = other;
	}
	if (same ? q->oflags & O_EXCL : fd != -1 && !(q->oflags & O_CREAT))
		return same ? -EINVAL : -EAGAIN;
	struct xrcd *d;
	TRY(dg_mlx5_new(c->context, sizeof *d, KIND_XRCD, &d));
	static uint32_t last;
	d->number = same ? same->number : ++last;
	d->dev = file.st_dev;
	d->ino = file.st_ino;
	((struct ib_uverbs_open_xrcd_resp *)c->out)->xrcd_handle = d->o.handle;
	c->out_size = sizeof(struct ib_uverbs_open_xrcd_resp);
	return 0;
}

/* Rounds the entries, and the segments of one, as libmlx5 has. */
static int open_srq(struct srq *s, const struct ib_uverbs_create_xsrq *q, const struct mlx5_ib_create_srq *d)
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
		.number = s->o.handle,
		.domain = s->xrcd ? s->xrcd->number : 0,
		.user_index = d->uidx & 0xffffff,
		.cq = s->cq ? s->cq->nic_cq : NULL,
		.async_fd = s->o.context->async->write_fd,
		.event = s->o.event,
	};
	s->max_wr = entries - 1;
	s->max_sge = config.sges;
	return dg_nic_srq_open(dg_mlx5_nic(), &config, &s->nic_srq);
}

static int create(struct call *c, const struct ib_uverbs_create_xsrq *q)
{
	const bool is_xrc = q->srq_type == IB_UVERBS_SRQT_XRC;
	struct object *pd = dg_mlx5_find(c->context, q->pd_handle, KIND_PD);
	struct xrcd *xrcd = is_xrc ? dg_mlx5_find(c->context, q->xrcd_handle, KIND_XRCD) : NULL;
	struct cq *cq = is_xrc ? dg_mlx5_find(c->context, q->cq_handle, KIND_CQ) : NULL;
	if (!pd || (is_xrc && (!xrcd || !cq)) || q->max_wr >= DG_NIC_ENTRIES_MAX || q->max_sge > MAX_SRQ_SGES)
		return -EINVAL;
	if (!is_xrc && q->srq_type != IB_UVERBS_SRQT_BASIC)
		return -EOPNOTSUPP;
	struct srq *s;
	TRY(dg_mlx5_new(c->context, sizeof *s, KIND_SRQ, &s));
	s->pd = pd;
	s->xrcd = xrcd;
	s->cq = cq;
	s->o.user_handle = q->user_handle;
	const int rc = open_srq(s, q, (void *)c->driver);
	if (rc) {
		dg_mlx5_remove(&s->o);
		return rc;
	}
	pd->users++;
	if (is_xrc) {
		xrcd->o.users++;
		cq->o.users++;
	}
	struct ib_uverbs_create_srq_resp *r = (void *)c->out;
	struct mlx5_ib_create_srq_resp *driver = (void *)(r + 1);
	*r = (struct ib_uverbs_create_srq_resp){
		.srq_handle = s->o.handle, .max_wr = s->max_wr, .max_sge = s->max_sge, .srqn = s->o.handle};
	driver->srqn = s->o.handle;
	c->out_size = sizeof *r + sizeof *driver;
	return 0;
}

int dg_mlx5_create_srq(struct call *c)
{
	const struct ib_uverbs_create_srq *q = (void *)c->in;
	return create(c, &(struct ib_uverbs_create_xsrq){.user_handle = q->user_handle,
							 .srq_type = IB_UVERBS_SRQT_BASIC,
							 .pd_handle = q->pd_handle,
							 .max_wr = q->max_wr,
							 .max_sge = q->max_sge});
}

int dg_mlx5_create_xsrq(struct call *c)
{
	return create(c, (void *)c->in);
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
