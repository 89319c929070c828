/* SPDX-License-Identifier: Apache-2.0 */
/* A method of ioctl(2), with its attributes in the order of their numbers. */
#ifndef DG_MLX5_IOCTL_H
#define DG_MLX5_IOCTL_H

#include <string.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "mlx5.h"

enum { REQUEST_ATTRIBUTES = 9, DEVX_HEADER = 16 };

/* object: of the attribute that names one. */
struct request {
	struct context *context;
	struct object *object;
	struct ib_uverbs_attr attributes[REQUEST_ATTRIBUTES];
	uint64_t at[REQUEST_ATTRIBUTES]; /* their addresses */
	bool is_given[REQUEST_ATTRIBUTES];
};

/* uverbs_ioctl.c */
/* Returns an input of up to 8 bytes, or a descriptor; 0 if it is not given. */
uint64_t dg_mlx5_value(const struct request *r, uint32_t i);
/* Returns the bytes of an attribute; 0 if it is not given. */
uint32_t dg_mlx5_length(const struct request *r, uint32_t i);
/* Copies an input of at least `size` bytes, as do the functions below an output. They return 0 or -EFAULT. */
int dg_mlx5_get(const struct request *r, uint32_t i, void *to, size_t size);
/* Nothing is stored beyond the attribute's length, or where it is not given. */
int dg_mlx5_put(const struct request *r, uint32_t i, const void *from, size_t size);
int dg_mlx5_put_handle(const struct request *r, uint32_t i, uint32_t handle);

/* devx.c: methods */
int dg_mlx5_devx_other(struct request *r);
int dg_mlx5_devx_create(struct request *r);
int dg_mlx5_devx_modify(struct request *r);
int dg_mlx5_devx_query(struct request *r);
int dg_mlx5_umem_reg(struct request *r);
/* Queries an object by the command in attribute `input`, and stores what the adapter answers, which may be an error.
 * Returns 0 or a negative errno. */
int dg_mlx5_devx_answer(struct request *r, uint32_t input, uint8_t *out, uint32_t size);

/* devx_event.c: methods */
int dg_mlx5_event_channel(struct request *r);
int dg_mlx5_command_channel(struct request *r);
int dg_mlx5_async_query(struct request *r);
int dg_mlx5_subscribe(struct request *r);
/* Returns where the NIC writes events of DEVX objects, or -1. */
int dg_mlx5_event_fd(void);

#endif
