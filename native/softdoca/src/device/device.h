/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and representors, open or in a list (dev.c), and RDMA adapters (adapter.c). */
#ifndef SOFTDOCA_DEVICE_H
#define SOFTDOCA_DEVICE_H

#include "base/devices.h"

#define CHECK_DEV(d) CHECK_OBJECT(d, OBJECT_DEV, "an open device")

struct doca_devinfo {
	struct object o;
	struct function f;
};

struct doca_devinfo_rep {
	struct object o;
	struct function f; /* of the host's function that it represents */
	struct doca_dev *dev;
};

struct doca_dev {
	struct object o;
	uint32_t opened; /* number of times; an open device is opened again as the same object */
	int pid; /* of the opening process: a forked child opens its own device */
	_Alignas(64) struct doca_devinfo info;
	dg_device *engine; /* provider soft, or fault on top of it */
	dg_device *gpu; /* provider cuda, opened when GPU memory is first used; NULL until then */
	atomic_uint users; /* maps and contexts that use it: closing returns IN_USE */
	struct ibv_pd *pd; /* for doca_rdma_bridge_get_dev_pd(), may be freed by the program */
	bool owns_pd;
	struct adapter *adapter; /* opened when first used; NULL until then, and without CAP_ADAPTER */
	struct doca_dev *next;
};

struct doca_dev_rep {
	struct object o;
	struct doca_dev *dev;
	struct function f;
};

/* dev.c: returns dev->gpu, opened if necessary: the GPU with this UUID, or the first GPU if uuid is
 * NULL. Logs and returns NULL if there is no GPU. */
SOFTDOCA_INTERNAL dg_device *softdoca_dev_gpu(struct doca_dev *dev, const uint8_t *uuid);

/* Whether its RDMA is that of an adapter, not of the software NIC. */
static inline bool dev_is_adapter(const struct doca_dev *dev)
{
	return dev->info.f.caps & CAP_ADAPTER;
}
/* Stores the adapter of such a device, opened if necessary. Errors: those of softdoca_failed(). */
SOFTDOCA_INTERNAL doca_error_t softdoca_dev_adapter(struct doca_dev *dev, struct adapter **out);

/* Sets dev->pd unless pd is NULL, and whether the device frees it with its context. Returns dev->pd. */
struct ibv_pd *softdoca_dev_pd(struct doca_dev *dev, struct ibv_pd *pd, bool owned);

/* adapter.c: appends the RDMA adapters whose names no function has. */
void softdoca_list_adapters(struct functions *all);
/* Opens the adapter with this name, and closes it. Errors: those of dg_device_open(). */
int adapter_open(const char *name, struct adapter **out);
int adapter_close(struct adapter *a);

#endif
