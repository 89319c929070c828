// SPDX-License-Identifier: Apache-2.0
/* Handles, and commands about protection domains, memory regions and windows, and CQs. Errors are those of the kernel's
 * drivers/infiniband/core/uverbs_cmd.c: a handle that is used, and is wrong, is EINVAL; one that is
 * destroyed, ENOENT. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "error.h"
#include "mlx5.h"
#include "nic.h"
#include "providers/cuda_pointer.h"

static struct object *objects[MAX_OBJECTS];
static uint32_t last, counts[KIND_QP + 1];

int dg_mlx5_add(struct context *x, struct object *o, enum kind kind)
{
	static const uint32_t most[] = {[KIND_UAR] = MAX_UARS,
					[KIND_UMEM] = MAX_UMEMS,
					[KIND_PD] = MAX_PDS,
					[KIND_XRCD] = MAX_XRCDS,
					[KIND_AH] = MAX_AHS,
					[KIND_MW] = DG_NIC_KEYS,
					[KIND_MR] = DG_NIC_KEYS,
					[KIND_CQ] = MAX_CQS,
					[KIND_SRQ] = MAX_SRQS,
					[KIND_QP] = DG_NIC_QPS};
	static uint64_t serial;
	_Static_assert(MAX_OBJECTS > MAX_UARS + MAX_UMEMS + MAX_PDS + MAX_XRCDS + MAX_AHS + 2 * DG_NIC_KEYS + MAX_CQS + MAX_SRQS + DG_NIC_QPS,
		       "there is a free handle");
	if (counts[kind] == most[kind])
		return -ENOMEM;
	do /* a handle is used again as late as possible */
		last = (last + 1) % MAX_OBJECTS;
	while (objects[last] || !last);
	o->kind = kind;
	o->handle = last;
	o->context = x;
	o->event = ++serial * MAX_OBJECTS + last;
	objects[last] = o;
	counts[kind]++;
	return 0;
}

int dg_mlx5_new(struct context *x, size_t size, enum kind kind, void *out)
{
	struct object *o = calloc(1, size);
	const int rc = o ? dg_mlx5_add(x, o, kind) : -ENOMEM;
	if (rc)
		free(o);
	else
		memcpy(out, &o, sizeof o);
	return rc;
}

struct object *dg_mlx5_find_any(const struct context *x, uint32_t handle, enum kind kind)
{
	struct object *o = handle < MAX_OBJECTS ? objects[handle] : NULL;
	const bool fits = o && (kind == KIND_ANY || (kind == KIND_DEVX ? o->is_devx : o->kind == kind && !o->is_devx));
	return fits && (!x || o->context == x) ? o : NULL;
}

void *dg_mlx5_find(const struct context *x, uint32_t handle, enum kind kind)
{
	return dg_mlx5_find_any(x, handle, kind);
}

void dg_mlx5_use(struct object *o, struct object *used)
{
	uint32_t i = 0;
	while (o->uses[i])
		i++;
	o->uses[i] = used;
	used->users++;
}

void dg_mlx5_remove(struct object *o)
{
	for (uint32_t i = 0; i < sizeof o->uses / sizeof o->uses[0]; i++)
		if (o->uses[i])
			o->uses[i]->users--;
	free(o->ring);
	objects[o->handle] = NULL;
	counts[o->kind]--;
	free(o);
}

static int destroy_ah(struct ah *a)
{
	a->pd->users--;
	return 0;
}

static void put_memory(const struct mr *m)
{
	dg_mlx5_pages_put(m->pages);
	if (m->gpu_fd >= 0)
		dg_mlx5_close(m->gpu_fd);
}

/* Ends what a region had that is deregistered, or has another memory. */
static int close_region(const struct mr *m)
{
	if (dg_region_close(m->region, UINT64_MAX))
		return -EBUSY;
	put_memory(m);
	m->pd->users--;
	return 0;
}

/* Without the handle. */
static int destroy_mr(struct mr *m)
{
	dg_nic_key_close(dg_mlx5_nic(), m->key);
	m->length = 0; /* no longer in the way of dg_mlx5_is_alone() */
	return close_region(m);
}

static int destroy_mw(struct mw *w)
{
	dg_nic_window_close(dg_mlx5_nic(), w->key);
	w->pd->users--;
	return 0;
}

static int destroy_cq(struct cq *q)
{
	const int rc = dg_nic_cq_close(q->nic_cq);
	if (!rc && q->channel) {
		dg_mlx5_channel_drop(q->channel, q->o.event);
		dg_mlx5_channel_put(q->channel);
	}
	return rc;
}

static int destroy_qp(struct qp *q)
{
	TRY(dg_nic_qp_close(q->nic_qp));
	q->pd->users--;
	if (q->send_cq)
		q->send_cq->o.users--;
	if (q->receive_cq)
		q->receive_cq->o.users--;
	if (q->srq)
		q->srq->o.users--;
	return 0;
}

static int destroy_srq(struct srq *s)
{
	TRY(dg_nic_srq_close(s->nic_srq));
	s->pd->users--;
	if (s->xrcd) {
		s->xrcd->o.users--;
		s->cq->o.users--;
	}
	return 0;
}

int dg_mlx5_destroy(struct object *o)
{
	if (o->users)
		return -EBUSY;
	const int rc = o->kind == KIND_AH    ? destroy_ah((struct ah *)o)
		       : o->kind == KIND_MW  ? destroy_mw((struct mw *)o)
		       : o->kind == KIND_MR  ? destroy_mr((struct mr *)o)
		       : o->kind == KIND_CQ  ? destroy_cq((struct cq *)o)
		       : o->kind == KIND_SRQ ? destroy_srq((struct srq *)o)
		       : o->kind == KIND_QP  ? destroy_qp((struct qp *)o)
					     : 0;
	if (rc)
		return rc;
	if (o->kind >= KIND_CQ)
		dg_mlx5_channel_drop(o->context->async, o->event);
	dg_mlx5_remove(o);
	return 0;
}

void dg_mlx5_destroy_all(const struct context *x)
{
	for (enum kind kind = KIND_QP; kind > KIND_NONE; kind--) /* users before what they use */
		for (uint32_t i = 0; i < MAX_OBJECTS; i++)
			if (objects[i] && objects[i]->context == x && objects[i]->kind == kind)
				dg_mlx5_destroy(objects[i]);
}

void dg_mlx5_objects_forked(void)
{
	memset(objects, 0, sizeof objects);
	memset(counts, 0, sizeof counts);
}

int dg_mlx5_alloc_pd(struct call *c)
{
	struct object *o;
	TRY(dg_mlx5_new(c->context, sizeof *o, KIND_PD, &o));
	struct ib_uverbs_alloc_pd_resp *r = (void *)c->out;
	struct mlx5_ib_alloc_pd_resp *driver = (void *)r->driver_data;
	r->pd_handle = driver->pdn = o->handle;
	c->out_size = sizeof *r + sizeof *driver;
	return 0;
}

/* libmlx5 writes the address into its entries; what it asks the kernel for is the MAC address
 * of the GID, which here is always 02:00:00:00:00:00. */
int dg_mlx5_create_ah(struct call *c)
{
	const struct ib_uverbs_create_ah *q = (void *)c->in;
	struct object *pd = dg_mlx5_find(c->context, q->pd_handle, KIND_PD);
	if (!pd || q->attr.port_num != 1 || !q->attr.is_global || q->attr.grh.sgid_index)
		return -EINVAL;
	struct ah *a;
	TRY(dg_mlx5_new(c->context, sizeof *a, KIND_AH, &a));
	a->pd = pd;
	pd->users++;
	struct ib_uverbs_create_ah_resp *r = (void *)c->out;
	struct mlx5_ib_create_ah_resp *driver = (void *)r->driver_data;
	r->ah_handle = a->o.handle;
	*driver = (struct mlx5_ib_create_ah_resp){.response_length = sizeof *driver, .dmac = {2}};
	c->out_size = sizeof *r + sizeof *driver;
	return 0;
}

bool dg_mlx5_is_alone(uint64_t start, uint64_t length)
{
	for (uint32_t i = 0; i < MAX_OBJECTS; i++) {
		const struct mr *m = (struct mr *)objects[i];
		if (m && m->o.kind == KIND_MR && start < m->start + m->length && m->start < start + length)
			return false;
	}
	return true;
}

static int check_access(uint32_t flags)
{
	const uint32_t remote = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
	const uint32_t known = remote | IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ |
			       IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_OPTIONAL_RANGE;
	if (flags & remote && !(flags & IB_UVERBS_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return flags & ~known ? -EOPNOTSUPP : 0;
}

static int refuse_gpu(const struct mr *m, int rc, const char *why)
{
	fprintf(stderr, "dgkit mlx5: %llu bytes of GPU memory at %#llx cannot be registered: %s\n",
		(unsigned long long)m->length, (unsigned long long)m->start, why);
	return rc;
}

/* Fills *out with the memory of *m if it is a GPU's, and stores the device for it. Otherwise *device is NULL. */
static int find_gpu_memory(struct mr *m, dg_memory *out, dg_device **device)
{
	int rc = dg_cuda_pointer_query((void *)(uintptr_t)m->start, m->length, out);
	*device = NULL;
	if (rc == -ERANGE)
		return refuse_gpu(m, -EFAULT, dg_last_error());
	if (rc)
		return m->is_dmabuf ? refuse_gpu(m, -EOPNOTSUPP, dg_last_error()) : 0;
	m->gpu_fd = out->fd;
	if (out->kind == DG_KIND_CUDA_OWN)
		rc = refuse_gpu(m, -EOPNOTSUPP,
				"CUDA cannot share it with another process: it is from a memory pool, or without a handle");
	else if (dg_nic_gpu_device(dg_mlx5_nic(), out->uuid, device))
		rc = refuse_gpu(m, -EOPNOTSUPP, dg_last_error());
	if (rc)
		put_memory(m);
	return rc;
}

int dg_mlx5_is_on_gpu(uint64_t start, uint64_t length)
{
	struct mr m = {.start = start, .length = length};
	dg_memory memory;
	dg_device *gpu;
	TRY(find_gpu_memory(&m, &memory, &gpu));
	if (gpu)
		put_memory(&m);
	return gpu != NULL;
}

/* Registers the memory of *m with the NIC, for its key if it has one. */
static int open_region(struct mr *m)
{
	dg_memory memory;
	const bool writes = m->access & (IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
					 IB_UVERBS_ACCESS_REMOTE_ATOMIC);
	const uint32_t keys =
		(m->access & IB_UVERBS_ACCESS_LOCAL_WRITE ? DG_NIC_LOCAL_WRITE : 0u) |
		(m->access & IB_UVERBS_ACCESS_REMOTE_WRITE ? DG_NIC_REMOTE_WRITE : 0u) |
		(m->access & IB_UVERBS_ACCESS_REMOTE_READ ? DG_NIC_REMOTE_READ : 0u) |
		(m->access & IB_UVERBS_ACCESS_REMOTE_ATOMIC ? DG_NIC_REMOTE_ATOMIC : 0u) |
		(m->access & IB_UVERBS_ACCESS_MW_BIND ? DG_NIC_BIND : 0u);
	dg_device *gpu;
	m->pages = NULL;
	m->gpu_fd = -1;
	int rc = find_gpu_memory(m, &memory, &gpu);
	if (!rc && !gpu)
		rc = dg_mlx5_memory(m->start, m->length, writes, dg_mlx5_is_alone(m->start, m->length), &memory,
				    &m->pages);
	if (rc)
		return rc;
	rc = dg_region_register(gpu ? gpu : dg_mlx5_device(), &memory,
				writes ? DG_ACCESS_READ | DG_ACCESS_WRITE : DG_ACCESS_READ, &m->region);
	if (!rc)
		rc = m->key ? dg_nic_key_change(dg_mlx5_nic(), m->key, m->region, m->address,
						m->pd->handle, keys)
			    : dg_nic_key_open(dg_mlx5_nic(), m->region, m->address, m->pd->handle, keys,
					      &m->key);
	if (!rc)
		return 0;
	if (gpu)
		refuse_gpu(m, 0, dg_last_error());
	if (m->region)
		dg_region_close(m->region, UINT64_MAX);
	put_memory(m);
	return -ENOMEM;
}

/* Whether memory can be registered: its address in entries and that in memory have the same offset
 * in a page. */
static bool is_memory(uint64_t start, uint64_t length, uint64_t hca_va)
{
	return length && !((start ^ hca_va) & 4095);
}

int dg_mlx5_add_mr(struct context *x, uint32_t pd_handle, uint64_t start, uint64_t length, uint64_t address,
		   uint32_t access, bool is_dmabuf, struct mr **out)
{
	struct object *pd = dg_mlx5_find(x, pd_handle, KIND_PD);
	if (!pd || !is_memory(start, length, address))
		return -EINVAL;
	int rc = check_access(access);
	if (rc)
		return rc;
	struct mr *m = calloc(1, sizeof *m);
	if (!m)
		return -ENOMEM;
	m->pd = pd;
	m->start = start;
	m->length = length;
	m->address = address;
	m->access = access;
	m->is_dmabuf = is_dmabuf;
	rc = open_region(m);
	if (rc) {
		free(m);
		return rc;
	}
	pd->users++;
	rc = dg_mlx5_add(x, &m->o, KIND_MR);
	if (rc) {
		destroy_mr(m);
		free(m);
		return rc;
	}
	*out = m;
	return 0;
}

int dg_mlx5_reg_mr(struct call *c)
{
	const struct ib_uverbs_reg_mr *q = (void *)c->in;
	struct mr *m;
	TRY(dg_mlx5_add_mr(c->context, q->pd_handle, q->start, q->length, q->hca_va, q->access_flags, false, &m));
	struct ib_uverbs_reg_mr_resp *r = (void *)c->out;
	r->mr_handle = m->o.handle;
	r->lkey = r->rkey = m->key;
	c->out_size = sizeof *r;
	return 0;
}

/* The keys stay as they are. */
int dg_mlx5_rereg_mr(struct call *c)
{
	enum { MEMORY = 1 << 0, PD = 1 << 1, ACCESS = 1 << 2 };
	const struct ib_uverbs_rereg_mr *q = (void *)c->in;
	struct mr *m = dg_mlx5_find(c->context, q->mr_handle, KIND_MR), before, after;
	if (!q->flags || (q->flags & MEMORY && !is_memory(q->start, q->length, q->hca_va)))
		return -EINVAL;
	if (q->flags & ~(uint32_t)(MEMORY | PD | ACCESS))
		return -EOPNOTSUPP;
	if (!m)
		return -ENOENT;
	before = after = *m;
	after.region = NULL;
	if (q->flags & MEMORY) {
		after.start = q->start;
		after.length = q->length;
		after.address = q->hca_va;
		after.is_dmabuf = false;
	}
	if (q->flags & PD)
		after.pd = dg_mlx5_find(c->context, q->pd_handle, KIND_PD);
	if (q->flags & ACCESS)
		after.access = q->access_flags;
	int rc = after.pd ? check_access(after.access) : -EINVAL;
	if (!rc)
		rc = open_region(&after);
	if (rc)
		return rc;
	after.pd->users++;
	*m = after;
	struct ib_uverbs_rereg_mr_resp *r = (void *)c->out;
	r->lkey = r->rkey = m->key;
	c->out_size = sizeof *r;
	return close_region(&before);
}

int dg_mlx5_alloc_mw(struct call *c)
{
	const struct ib_uverbs_alloc_mw *q = (void *)c->in;
	struct object *pd = dg_mlx5_find(c->context, q->pd_handle, KIND_PD);
	if (!pd || q->mw_type < 1 || q->mw_type > 2)
		return -EINVAL;
	struct mw *w;
	TRY(dg_mlx5_new(c->context, sizeof *w, KIND_MW, &w));
	const int rc = dg_nic_window_open(dg_mlx5_nic(), q->mw_type, pd->handle, &w->key);
	if (rc) {
		dg_mlx5_remove(&w->o);
		return -ENOMEM;
	}
	w->pd = pd;
	pd->users++;
	struct ib_uverbs_alloc_mw_resp *r = (void *)c->out;
	r->mw_handle = w->o.handle;
	r->rkey = w->key;
	c->out_size = sizeof *r;
	return 0;
}

struct object *dg_mlx5_event_object(uint64_t event)
{
	struct object *o = objects[event % MAX_OBJECTS];
	return o && o->event == event ? o : NULL;
}

static uint32_t entries_for(uint32_t cqe)
{
	uint32_t entries = 1;
	while (entries <= cqe && entries < DG_NIC_CQES_MAX)
		entries *= 2;
	return entries;
}

/* Opens the CQ. *driver: libmlx5's part of the command. */
static int open_cq(struct context *x, uint64_t user_handle, uint32_t cqe, uint32_t vector, int32_t channel,
		   bool is_checked, const struct mlx5_ib_create_cq *driver, struct cq **out)
{
	const uint32_t entries = entries_for(cqe);
	struct channel *ch = channel < 0 ? NULL : dg_mlx5_channel(channel);
	if (!cqe || cqe >= DG_NIC_CQES_MAX || vector >= 1 || (channel >= 0 && !ch) ||
	    (driver->cqe_size != 64 && driver->cqe_size != 128) || driver->cqe_comp_en)
		return -EINVAL;
	if (!dg_mlx5_is_writable(driver->buf_addr, (uint64_t)driver->cqe_size * entries) ||
	    !dg_mlx5_is_writable(driver->db_addr, 8))
		return -EFAULT;
	struct cq *q;
	TRY(dg_mlx5_new(x, sizeof *q, KIND_CQ, &q));
	q->o.user_handle = user_handle;
	const dg_nic_cq_config config = {
		.ring = (void *)(uintptr_t)driver->buf_addr,
		.entries = entries,
		.entry_size = driver->cqe_size,
		.record = (uint32_t *)(uintptr_t)driver->db_addr,
		.event = q->o.event,
		.event_fd = ch ? ch->write_fd : -1,
		.async_fd = x->async->write_fd,
		.is_checked = is_checked,
	};
	const int rc = dg_nic_cq_open(dg_mlx5_nic(), &config, &q->nic_cq);
	if (rc) {
		dg_mlx5_remove(&q->o);
		return rc;
	}
	dg_nic_cq_number(q->nic_cq, &q->number);
	q->entry_size = driver->cqe_size;
	q->channel = ch;
	if (ch)
		ch->users++;
	*out = q;
	return (int)entries - 1;
}

static int create_cq(struct call *c, uint64_t user_handle, uint32_t cqe, uint32_t vector, int32_t channel,
		     bool is_checked, struct mlx5_ib_create_cq_resp *driver)
{
	struct ib_uverbs_create_cq_resp *r = (void *)c->out;
	struct cq *q;
	const int most =
		open_cq(c->context, user_handle, cqe, vector, channel, is_checked, (void *)c->driver, &q);
	if (most < 0)
		return most;
	r->cq_handle = q->o.handle;
	r->cqe = (uint32_t)most;
	driver->cqn = q->number;
	c->out_size = (size_t)((uint8_t *)(driver + 1) - c->out);
	return 0;
}

int dg_mlx5_create_cq(struct call *c)
{
	const struct ib_uverbs_create_cq *q = (void *)c->in;
	return create_cq(c, q->user_handle, q->cqe, q->comp_vector, q->comp_channel, true,
			 (void *)(c->out + sizeof(struct ib_uverbs_create_cq_resp)));
}

int dg_mlx5_create_cq_ex(struct call *c)
{
	const struct ib_uverbs_ex_create_cq *q = (void *)c->in;
	struct ib_uverbs_ex_create_cq_resp *r = (void *)c->out;
	if (q->comp_mask || q->reserved)
		return -EINVAL;
	if (q->flags & ~(uint32_t)IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) /* time stamps: there are none */
		return -EOPNOTSUPP;
	r->response_length = sizeof *r;
	return create_cq(c, q->user_handle, q->cqe, q->comp_vector, q->comp_channel,
			 !(q->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN), (void *)(r + 1));
}

int dg_mlx5_resize_cq(struct call *c)
{
	const struct ib_uverbs_resize_cq *r = (void *)c->in;
	const struct mlx5_ib_resize_cq *d = (void *)c->driver;
	struct cq *q = dg_mlx5_find(c->context, r->cq_handle, KIND_CQ);
	const uint32_t entries = entries_for(r->cqe);
	if (!q || !r->cqe || r->cqe >= DG_NIC_CQES_MAX || d->cqe_size != q->entry_size)
		return -EINVAL;
	if (!dg_mlx5_is_writable(d->buf_addr, (uint64_t)d->cqe_size * entries))
		return -EFAULT;
	const int rc = dg_nic_cq_resize(q->nic_cq, (void *)(uintptr_t)d->buf_addr, entries);
	((struct ib_uverbs_resize_cq_resp *)c->out)->cqe = entries - 1;
	c->out_size = sizeof(struct ib_uverbs_resize_cq_resp);
	return rc;
}

int dg_mlx5_destroy_cq(struct call *c)
{
	struct cq *q = dg_mlx5_find(c->context, ((struct ib_uverbs_destroy_cq *)c->in)->cq_handle, KIND_CQ);
	if (!q)
		return -ENOENT;
	struct ib_uverbs_destroy_cq_resp *r = (void *)c->out;
	r->async_events_reported = q->o.async_reported;
	r->comp_events_reported = q->reported; /* libibverbs waits until as many are acknowledged */
	c->out_size = sizeof *r;
	return dg_mlx5_destroy(&q->o);
}
