// SPDX-License-Identifier: Apache-2.0
/* write(2) on the device: what the kernel's ib_uverbs checks before it runs a command, with its
 * errors. Addresses are the program's, and may be wrong: they are accessed by system calls. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mlx5.h"

/* in, out: bytes that the command has and gives at least, without libmlx5's part. destroys: the kind of the object
 * whose handle comes first in the command; nothing else is done. */
struct command {
	uint32_t in, out;
	int (*run)(struct call *c);
	enum kind destroys;
};

#define COMMAND(name, type, function) \
	[IB_USER_VERBS_CMD_##name] = {sizeof(struct ib_uverbs_##type), sizeof(struct ib_uverbs_##type##_resp), \
				      function}
#define COMMAND_WITHOUT_RESPONSE(name, type, function) \
	[IB_USER_VERBS_CMD_##name] = {sizeof(struct ib_uverbs_##type), 0, function}

#define DESTRUCTION(name, type, kind) \
	[IB_USER_VERBS_CMD_##name] = {sizeof(struct ib_uverbs_##type), 0, destroy, kind}

static int destroy(struct call *c)
{
	uint32_t handle;
	memcpy(&handle, c->in, sizeof handle);
	struct object *o = dg_mlx5_find(c->context, handle, c->destroys);
	return o ? dg_mlx5_destroy(o) : -ENOENT;
}

static const struct command commands[] = {
	COMMAND(GET_CONTEXT, get_context, dg_mlx5_get_context),
	COMMAND(QUERY_DEVICE, query_device, dg_mlx5_query_device),
	COMMAND(QUERY_PORT, query_port, dg_mlx5_query_port),
	COMMAND(ALLOC_PD, alloc_pd, dg_mlx5_alloc_pd),
	DESTRUCTION(DEALLOC_PD, dealloc_pd, KIND_PD),
	COMMAND(CREATE_AH, create_ah, dg_mlx5_create_ah),
	DESTRUCTION(DESTROY_AH, destroy_ah, KIND_AH),
	COMMAND(REG_MR, reg_mr, dg_mlx5_reg_mr),
	COMMAND(REREG_MR, rereg_mr, dg_mlx5_rereg_mr),
	DESTRUCTION(DEREG_MR, dereg_mr, KIND_MR),
	COMMAND(ALLOC_MW, alloc_mw, dg_mlx5_alloc_mw),
	DESTRUCTION(DEALLOC_MW, dealloc_mw, KIND_MW),
	COMMAND(CREATE_COMP_CHANNEL, create_comp_channel, dg_mlx5_create_channel),
	COMMAND(CREATE_CQ, create_cq, dg_mlx5_create_cq),
	COMMAND(RESIZE_CQ, resize_cq, dg_mlx5_resize_cq),
	COMMAND(DESTROY_CQ, destroy_cq, dg_mlx5_destroy_cq),
	COMMAND(OPEN_XRCD, open_xrcd, dg_mlx5_open_xrcd),
	DESTRUCTION(CLOSE_XRCD, close_xrcd, KIND_XRCD),
	COMMAND(CREATE_SRQ, create_srq, dg_mlx5_create_srq),
	[IB_USER_VERBS_CMD_CREATE_XSRQ] = {sizeof(struct ib_uverbs_create_xsrq),
					   sizeof(struct ib_uverbs_create_srq_resp), dg_mlx5_create_xsrq},
	COMMAND_WITHOUT_RESPONSE(MODIFY_SRQ, modify_srq, dg_mlx5_modify_srq),
	COMMAND(QUERY_SRQ, query_srq, dg_mlx5_query_srq),
	COMMAND(DESTROY_SRQ, destroy_srq, dg_mlx5_destroy_srq),
	COMMAND(CREATE_QP, create_qp, dg_mlx5_create_qp),
	COMMAND_WITHOUT_RESPONSE(MODIFY_QP, modify_qp, dg_mlx5_modify_qp),
	COMMAND(QUERY_QP, query_qp, dg_mlx5_query_qp),
	COMMAND(DESTROY_QP, destroy_qp, dg_mlx5_destroy_qp),
};

static const struct command extended[] = {
	COMMAND(QUERY_DEVICE, ex_query_device, dg_mlx5_query_device_ex),
	COMMAND(CREATE_CQ, ex_create_cq, dg_mlx5_create_cq_ex),
	COMMAND(CREATE_QP, ex_create_qp, dg_mlx5_create_qp_ex),
	COMMAND(MODIFY_QP, ex_modify_qp, dg_mlx5_modify_qp_ex),
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

int dg_mlx5_copy_user(void *ours, uint64_t address, size_t size, bool write)
{
	const struct iovec here = {ours, size}, there = {(void *)(uintptr_t)address, size};
	const ssize_t n = write ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
				: process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	if (n == (ssize_t)size)
		return 0;
	if (n >= 0 || errno == EFAULT)
		return -EFAULT;
	memcpy(write ? there.iov_base : ours, write ? ours : there.iov_base, size); /* forbidden here */
	return 0;
}

/* Loads `size` bytes of a structure that has `room`: what is missing is 0, what is more must not matter. */
static int load(void *to, size_t room, uint64_t from, size_t size)
{
	return size ? dg_mlx5_copy_user(to, from, size < room ? size : room, false) : 0;
}

/* core: bytes of the command's own part; driver: of libmlx5's part. */
static int run(struct context *x, const struct command *command, uint64_t address, size_t core, size_t driver,
	       uint64_t response, size_t room)
{
	struct call c = {.context = x, .destroys = command->destroys};
	if (!x->async && command->run != dg_mlx5_get_context)
		return -EINVAL;
	int rc = load(c.in, sizeof c.in, address, core);
	if (!rc)
		rc = load(c.driver, sizeof c.driver, address + core, driver);
	if (!rc && command->out && dg_mlx5_copy_user(c.out, response, command->out, true)) /* before it has an effect */
		rc = -EFAULT;
	if (!rc)
		rc = command->run(&c);
	if (!rc && command->out)
		rc = dg_mlx5_copy_user(c.out, response, c.out_size < room ? c.out_size : room, true);
	return rc;
}

static int run_extended(struct context *x, const struct command *command,
			const struct ib_uverbs_cmd_hdr *h, uint64_t address, size_t size)
{
	struct ib_uverbs_ex_cmd_hdr e;
	if (size < sizeof e)
		return -EINVAL;
	if (dg_mlx5_copy_user(&e, address, sizeof e, false))
		return -EFAULT;
	const size_t core = 8u * h->in_words, driver = 8u * e.provider_in_words;
	const size_t room = 8u * (h->out_words + e.provider_out_words);
	if (core + driver != size - sizeof e || e.cmd_hdr_reserved || !e.response != !room)
		return -EINVAL;
	if (core < command->in || 8u * h->out_words < command->out)
		return -ENOSPC;
	return run(x, command, address + sizeof e, core, driver, e.response, room);
}

int dg_mlx5_write(struct context *x, const void *command, size_t size)
{
	struct ib_uverbs_cmd_hdr h;
	const uint64_t body = (uintptr_t)command + sizeof h;
	uint64_t response = 0;
	if (size < sizeof h)
		return -EINVAL;
	if (dg_mlx5_copy_user(&h, (uintptr_t)command, sizeof h, false))
		return -EFAULT;
	const uint32_t number = h.command & IB_USER_VERBS_CMD_COMMAND_MASK;
	const bool is_extended = h.command & IB_USER_VERBS_CMD_FLAG_EXTENDED;
	if (h.command & ~(IB_USER_VERBS_CMD_COMMAND_MASK | IB_USER_VERBS_CMD_FLAG_EXTENDED))
		return -EINVAL;
	const struct command *found = is_extended ? extended : commands;
	if (number >= (is_extended ? COUNT(extended) : COUNT(commands)) || !found[number].run)
		return -EOPNOTSUPP;
	found += number;
	if (is_extended)
		return run_extended(x, found, &h, body, size - sizeof h);
	if (4u * h.in_words != size)
		return -EINVAL;
	if (size - sizeof h < found->in || 4u * h.out_words < found->out)
		return -ENOSPC;
	if (found->out && dg_mlx5_copy_user(&response, body, sizeof response, false))
		return -EFAULT;
	return run(x, found, body, found->in, size - sizeof h - found->in, response, 4u * h.out_words);
}
