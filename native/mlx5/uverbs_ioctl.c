// SPDX-License-Identifier: Apache-2.0
/* ioctl(2) on the device: what the kernel's uverbs_ioctl.c checks before it runs a method, with its errors. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "error.h"
#include "ioctl.h"

/* Attributes of mlx5_ib's own, and methods, are counted from here. */
#define OWN (1u << UVERBS_ID_NS_SHIFT)

/* IN, OUT: `least` bytes or more, up to `most`. HANDLE: an object of `kind`. NEW: gets a handle. */
enum type { NONE, IN, OUT, HANDLE, NEW, DESCRIPTOR };
struct attribute {
	uint8_t type;
	bool is_optional;
	uint16_t least, most;
	enum kind kind;
};

struct method {
	uint32_t object, number, first; /* first: the number of its first attribute */
	int (*run)(struct request *r);
	struct attribute attributes[REQUEST_ATTRIBUTES];
};

uint64_t dg_mlx5_value(const struct request *r, uint32_t i)
{
	return r->is_given[i] ? r->attributes[i].data : 0;
}

uint32_t dg_mlx5_length(const struct request *r, uint32_t i)
{
	return r->is_given[i] ? r->attributes[i].len : 0;
}

int dg_mlx5_get(const struct request *r, uint32_t i, void *to, size_t size)
{
	const struct ib_uverbs_attr *a = &r->attributes[i];
	if (a->len > 8)
		return dg_mlx5_copy_user(to, a->data, size, false);
	memcpy(to, &a->data, size);
	return 0;
}

int dg_mlx5_put(const struct request *r, uint32_t i, const void *from, size_t size)
{
	const struct ib_uverbs_attr *a = &r->attributes[i];
	return r->is_given[i] ? dg_mlx5_copy_user((void *)(uintptr_t)from, a->data, size < a->len ? size : a->len, true)
			      : 0;
}

/* Into the program's attribute itself, where the kernel returns a handle, too. */
int dg_mlx5_put_handle(const struct request *r, uint32_t i, uint32_t handle)
{
	return dg_mlx5_copy_user(&(uint64_t){handle}, r->at[i] + offsetof(struct ib_uverbs_attr, data), 8, true);
}

/* A doorbell page: libmlx5 maps it from the device, whose descriptor is /dev/zero, and writes doorbells
 * there that the NIC does not need. Its offset is 0, as only there /dev/zero is memory. */
static int allocate_uar(struct request *r)
{
	enum { UAR, TYPE, MMAP_OFFSET, MMAP_LENGTH, PAGE_ID };
	struct object *o;
	if (dg_mlx5_value(r, TYPE) > 1)
		return -EOPNOTSUPP;
	TRY(dg_mlx5_new(r->context, sizeof *o, KIND_UAR, &o));
	const uint64_t offset = 0, length = 4096;
	int rc = dg_mlx5_put(r, MMAP_OFFSET, &offset, sizeof offset);
	if (!rc)
		rc = dg_mlx5_put(r, MMAP_LENGTH, &length, sizeof length);
	if (!rc)
		rc = dg_mlx5_put(r, PAGE_ID, &o->handle, sizeof o->handle);
	if (!rc)
		rc = dg_mlx5_put_handle(r, UAR, o->handle);
	if (rc)
		dg_mlx5_remove(o);
	return rc;
}

/* ibv_reg_dmabuf_mr(). A dma-buf of GPU memory cannot be mapped by a CPU, nor asked for its address, so it has to be
 * registered at the address that CUDA has for it, as programs do. */
static int reg_dmabuf(struct request *r)
{
	/* enum uverbs_attrs_reg_dmabuf_mr_cmd_attr_ids of Linux 5.12. */
	enum { REGION, PD, OFFSET, LENGTH, IOVA, FD, ACCESS_FLAGS, LKEY, RKEY };
	const uint64_t offset = dg_mlx5_value(r, OFFSET), length = dg_mlx5_value(r, LENGTH),
		       iova = dg_mlx5_value(r, IOVA);
	const off_t size = lseek((int)dg_mlx5_value(r, FD), 0, SEEK_END);
	if ((offset ^ iova) & 4095)
		return -EINVAL;
	if (size < 0)
		return errno == EBADF ? -EBADF : -EINVAL;
	if (offset > (uint64_t)size || length > (uint64_t)size - offset)
		return -EINVAL;
	if (!iova) /* of a program that then registers the address (NCCL) */
		return -EOPNOTSUPP;
	struct mr *m;
	TRY(dg_mlx5_add_mr(r->context, (uint32_t)dg_mlx5_value(r, PD), iova, length, iova,
			   (uint32_t)dg_mlx5_value(r, ACCESS_FLAGS), true, &m));
	int rc = dg_mlx5_put(r, LKEY, &m->key, sizeof m->key);
	if (!rc)
		rc = dg_mlx5_put(r, RKEY, &m->key, sizeof m->key);
	if (!rc)
		rc = dg_mlx5_put_handle(r, REGION, m->o.handle);
	if (rc)
		dg_mlx5_destroy(&m->o);
	return rc;
}

/* Destroys the object that the first attribute names. */
static int destroy(struct request *r)
{
	return dg_mlx5_destroy(r->object);
}

static int get_eqn(struct request *r)
{
	enum { VECTOR, EQN };
	const uint32_t eqn = 1;
	return dg_mlx5_value(r, VECTOR) ? -EINVAL : dg_mlx5_put(r, EQN, &eqn, sizeof eqn);
}

/* Of doorbell registers that were there from the start: here there are none (uverbs_context.c). */
static int get_uar(struct request *r)
{
	(void)r;
	return -EINVAL;
}

#define INPUT(bytes) {IN, false, bytes, bytes, 0}
#define FLAGS {IN, false, 4, 8, 0}
#define OPTIONAL_INPUT(bytes) {IN, true, bytes, bytes, 0}
#define OUTPUT(bytes) {OUT, false, bytes, bytes, 0}
#define OUTPUT_4_OR_8 {OUT, false, 4, 8, 0}
/* Commands to the adapter: of a header at least. */
#define COMMAND_IN {IN, false, DEVX_HEADER, UINT16_MAX, 0}
#define COMMAND_OUT {OUT, false, DEVX_HEADER, UINT16_MAX, 0}
#define NEW_HANDLE {NEW, false, 0, 0, 0}
#define OBJECT(kind) {HANDLE, false, 0, 0, kind}

static const struct method methods[] = {
	{UVERBS_OBJECT_MR, 4, 0, reg_dmabuf, /* UVERBS_METHOD_REG_DMABUF_MR */
	 {NEW_HANDLE, OBJECT(KIND_PD), INPUT(8), INPUT(8), INPUT(8), INPUT(4), FLAGS,
	   OUTPUT(4), OUTPUT(4)}},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, OWN, allocate_uar,
	 {NEW_HANDLE, INPUT(8), OUTPUT(8), OUTPUT_4_OR_8, OUTPUT(4)}},
	{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, OWN, destroy, {OBJECT(KIND_UAR)}},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, OWN, dg_mlx5_devx_other, {COMMAND_IN, COMMAND_OUT}},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, OWN, get_eqn, {INPUT(4), OUTPUT(4)}},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, OWN, get_uar, {INPUT(4), OUTPUT(4)}},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, OWN, dg_mlx5_umem_reg,
	 {NEW_HANDLE, INPUT(8), INPUT(8), FLAGS, OUTPUT(4), OPTIONAL_INPUT(8), {DESCRIPTOR, true, 0, 0, 0}}},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, OWN, destroy, {OBJECT(KIND_UMEM)}},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, OWN, dg_mlx5_devx_create,
	 {NEW_HANDLE, COMMAND_IN, COMMAND_OUT}},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, OWN, destroy, {OBJECT(KIND_DEVX)}},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, OWN, dg_mlx5_devx_modify,
	 {OBJECT(KIND_ANY), COMMAND_IN, COMMAND_OUT}},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, OWN, dg_mlx5_devx_query,
	 {OBJECT(KIND_ANY), COMMAND_IN, COMMAND_OUT}},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, OWN, dg_mlx5_async_query,
	 {OBJECT(KIND_ANY), COMMAND_IN, {DESCRIPTOR, false, 0, 0, 0}, INPUT(8), {IN, false, 2, 8, 0}}},
	{MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, OWN, dg_mlx5_command_channel,
	 {NEW_HANDLE}},
	{MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, OWN, dg_mlx5_event_channel,
	 {NEW_HANDLE, FLAGS}},
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, OWN, dg_mlx5_subscribe,
	 {{DESCRIPTOR, false, 0, 0, 0}, {HANDLE, true, 0, 0, KIND_DEVX}, {IN, false, 2, UINT16_MAX, 0}, OPTIONAL_INPUT(4),
	  OPTIONAL_INPUT(8)}},
};

static const struct method *find(uint32_t object, uint32_t number)
{
	for (uint32_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (methods[i].object == object && methods[i].number == number)
			return &methods[i];
	return NULL;
}

static int check(struct request *r, const struct attribute *spec, const struct ib_uverbs_attr *a)
{
	if (spec->type == IN || spec->type == OUT)
		return a->len < spec->least ? -EINVAL : a->len > spec->most ? -EOPNOTSUPP : 0;
	if (a->len)
		return -EINVAL;
	if (spec->type != HANDLE)
		return 0;
	r->object = dg_mlx5_find_any(r->context, (uint32_t)a->data, spec->kind);
	return r->object && a->data <= UINT32_MAX ? 0 : -ENOENT;
}

static int load(struct request *r, const struct method *m, const struct ib_uverbs_ioctl_hdr *h, uint64_t at)
{
	struct ib_uverbs_attr a;
	for (uint32_t n = 0; n < h->num_attrs; n++, at += sizeof a) {
		if (dg_mlx5_copy_user(&a, at, sizeof a, false))
			return -EFAULT;
		const uint32_t i = a.attr_id - m->first;
		if (i >= REQUEST_ATTRIBUTES || !m->attributes[i].type) {
			if (a.flags & UVERBS_ATTR_F_MANDATORY)
				return -EPROTONOSUPPORT;
			continue;
		}
		if (r->is_given[i] || a.attr_data.reserved)
			return -EINVAL;
		TRY(check(r, &m->attributes[i], &a));
		r->attributes[i] = a;
		r->at[i] = at;
		r->is_given[i] = true;
	}
	for (uint32_t i = 0; i < REQUEST_ATTRIBUTES; i++)
		if (m->attributes[i].type && !m->attributes[i].is_optional && !r->is_given[i])
			return -EINVAL;
	return 0;
}

int dg_mlx5_ioctl(struct context *x, const void *request)
{
	struct ib_uverbs_ioctl_hdr h;
	struct request r = {.context = x};
	if (dg_mlx5_copy_user(&h, (uintptr_t)request, sizeof h, false))
		return -EFAULT;
	if (h.length != sizeof h + h.num_attrs * sizeof h.attrs[0] || h.reserved1 || h.reserved2)
		return -EINVAL;
	const struct method *m = find(h.object_id, h.method_id);
	if (!m)
		return -EPROTONOSUPPORT; /* libibverbs then writes the command */
	if (!x->async)
		return -EINVAL;
	const int rc = load(&r, m, &h, (uintptr_t)request + sizeof h);
	return rc ? rc : m->run(&r);
}
