/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of rings and doorbell records (umem), and doorbell pages (UAR). */
#ifndef SOFTDOCA_UMEM_H
#define SOFTDOCA_UMEM_H

#include "device/device.h"
#include "doca_uar.h"
#include "doca_umem.h"
#include "gpu/gpu.h"

#define CHECK_UMEM(u) CHECK_OBJECT(u, OBJECT_UMEM, "a umem")
#define CHECK_UAR(u)  CHECK_OBJECT(u, OBJECT_UAR, "a UAR")

struct doca_umem {
	struct object o;
	struct doca_dev *dev;
	char *addr;
	size_t size;
	uint32_t access, id;
	struct gpu_memory *memory; /* NULL: other host memory */
	atomic_uint users; /* queue pairs and completion queues */
};

struct doca_uar {
	struct object o;
	struct doca_dev *dev;
	enum doca_uar_allocation_type type;
	uint32_t id;
	void *page;
	atomic_uint users;
};

#endif
