/* SPDX-License-Identifier: Apache-2.0 */
/* A libibverbs.so.1 with one device, mlx5_0, that can be opened and that registers memory: for tests of
 * `dgkit doctor --try`. DGKIT_FAKE_VERBS names a fault, NAME=ERRNO: NAME fails with ERRNO; ERRNO 0 crashes,
 * and -1 never returns. none=1: there is no device. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *devices[2];
static int object;

/* Whether a fault was ordered for this function. */
static int fails(const char *name)
{
	const char *order = getenv("DGKIT_FAKE_VERBS");
	size_t length = strlen(name);

	if (!order || strncmp(order, name, length) || order[length] != '=')
		return 0;
	errno = atoi(order + length + 1);
	if (errno == 0)
		raise(SIGSEGV);
	while (errno < 0)
		pause();
	return 1;
}

void **ibv_get_device_list(int *count)
{
	devices[0] = fails("none") ? NULL : &object;
	*count = devices[0] != NULL;
	return devices;
}

const char *ibv_get_device_name(void *device)
{
	(void)device;
	return "mlx5_0";
}

void ibv_free_device_list(void **list)
{
	(void)list;
}

void *ibv_open_device(void *device)
{
	return fails("ibv_open_device") ? NULL : device;
}

int ibv_close_device(void *context)
{
	(void)context;
	return 0;
}

void *ibv_alloc_pd(void *context)
{
	return fails("ibv_alloc_pd") ? NULL : context;
}

int ibv_dealloc_pd(void *pd)
{
	(void)pd;
	return 0;
}

void *ibv_reg_mr(void *pd, void *address, size_t size, int access)
{
	(void)address, (void)access;
	return fails("ibv_reg_mr") || size != 1 << 20 ? NULL : pd;
}

#ifndef OLD
void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t size, uint64_t iova, int fd, int access)
{
	(void)iova, (void)access;
	return fails("ibv_reg_dmabuf_mr") || offset || size != 1 << 20 || fd < 0 ? NULL : pd;
}
#endif

int ibv_dereg_mr(void *mr)
{
	(void)mr;
	return 0;
}
