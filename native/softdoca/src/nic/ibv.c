// SPDX-License-Identifier: Apache-2.0
/* Devices, contexts, protection domains and memory regions of libibverbs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/devices.h"
#include "gpu/gpu.h"
#include "soft_nic.h"
#include "providers/cuda_pointer.h"

#define ACCESS_KNOWN                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |   \
	 IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING)
#define ACCESS_WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
/* Access flags with the same values in libibverbs and in the software NIC. */
#define ACCESS_NIC \
	(DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_READ | DG_NIC_REMOTE_ATOMIC)

struct nic_mr {
	struct object o;
	_Alignas(64) struct ibv_mr v;
	dg_nic *nic;
	dg_region *region;
	struct gpu_memory *memory; /* of doca_gpu_mem_alloc(), or NULL */
	int fd; /* of CUDA memory, or -1 */
	bool has_key;
};

_Static_assert(offsetof(struct nic_device, v) == 64 && offsetof(struct nic_mr, v) == 64,
	       "as nic_object() assumes");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nic_device *devices; /* for ever: programs use them after freeing the list */
static atomic_uint next_handle = 1;

/* Logs a refused call and evaluates to the errno. */
#define IBV_REFUSE(number, func, ...) \
	(softdoca_log(DOCA_LOG_LEVEL_WARNING, func, __VA_ARGS__), (number))

static void *fail_with(int number)
{
	errno = number;
	return NULL;
}

/* ---- devices and contexts ---- */

static struct nic_device *device_of(const struct function *f)
{
	struct nic_device *d = devices;
	while (d && strcmp(d->v.name, f->ibdev))
		d = d->next;
	if (d || !(d = softdoca_object_new(OBJECT_IBV_DEVICE, sizeof *d)))
		return d;
	d->v.node_type = IBV_NODE_CA;
	memcpy(d->v.name, f->ibdev, sizeof f->ibdev);
	memcpy(d->v.dev_name, f->ibdev, sizeof f->ibdev);
	d->next = devices;
	devices = d;
	return d;
}

_Static_assert(DOCA_DEVINFO_IBDEV_NAME_SIZE <= IBV_SYSFS_NAME_MAX, "a name fits");

static bool is_listed(struct ibv_device **list, int n, const struct nic_device *d)
{
	while (n--)
		if (list[n] == &d->v)
			return true;
	return false;
}

struct ibv_device **softdoca_ibv_list(int *n)
{
	struct functions all;
	struct ibv_device **list = calloc(FUNCTIONS_MAX + 1, sizeof(struct ibv_device *));
	int found = 0;
	if (!list || softdoca_functions(&all)) {
		free(list);
		return fail_with(list ? EINVAL : ENOMEM);
	}
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < all.n; i++) {
		bool ours = all.f[i].side & all.side && all.f[i].ibdev[0];
		struct nic_device *d = ours ? device_of(&all.f[i]) : NULL;
		if (d && !is_listed(list, found, d))
			list[found++] = &d->v;
	}
	pthread_mutex_unlock(&lock);
	if (n)
		*n = found;
	return list;
}

struct ibv_context *softdoca_ibv_open(struct ibv_device *device)
{
	dg_nic *nic;
	if (!nic_object(device, OBJECT_IBV_DEVICE))
		return fail_with(IBV_REFUSE(EINVAL, "ibv_open_device", "%p is not a device of softdoca",
				     (void *)device));
	if (softdoca_nic_take(&nic))
		return fail_with(EIO);
	struct nic_context *c = softdoca_object_new(OBJECT_IBV_CONTEXT, sizeof *c);
	if (!c) {
		softdoca_nic_drop();
		return fail_with(IBV_REFUSE(ENOMEM, "ibv_open_device", "no memory for a context"));
	}
	c->v.device = device;
	c->v.cmd_fd = c->v.async_fd = -1;
	c->v.num_comp_vectors = 1;
	pthread_mutex_init(&c->v.mutex, NULL);
	c->nic = nic;
	return &c->v;
}

int softdoca_ibv_close(struct ibv_context *context)
{
	struct nic_context *c = nic_context(context);
	uint32_t users = c ? atomic_load(&c->users) : 0;
	if (!c)
		return IBV_REFUSE(EINVAL, "ibv_close_device",
				  "%p is not an open context of softdoca", (void *)context);
	if (users)
		return IBV_REFUSE(EBUSY, "ibv_close_device",
				  "the context has %u protection domains: free them first", users);
	softdoca_object_free(c);
	softdoca_nic_drop();
	return 0;
}

int softdoca_ibv_gid(struct ibv_context *context, union ibv_gid *gid)
{
	struct nic_context *c = nic_context(context);
	if (!c || !gid)
		return IBV_REFUSE(EINVAL, "ibv_query_gid",
				  "%p is not an open context of softdoca, or gid is NULL",
				  (void *)context);
	return -dg_nic_gid_get(c->nic, gid->raw);
}

/* ---- protection domains ---- */

struct ibv_pd *softdoca_ibv_alloc_pd(struct ibv_context *context)
{
	struct nic_context *c = nic_context(context);
	if (!c)
		return fail_with(IBV_REFUSE(EINVAL, "ibv_alloc_pd",
				     "%p is not an open context of softdoca", (void *)context));
	struct nic_pd *pd = softdoca_object_new(OBJECT_IBV_PD, sizeof *pd);
	if (!pd)
		return fail_with(IBV_REFUSE(ENOMEM, "ibv_alloc_pd", "no memory for a protection domain"));
	atomic_fetch_add(&c->users, 1);
	pd->v.context = context;
	pd->v.handle = atomic_fetch_add(&next_handle, 1);
	return &pd->v;
}

int softdoca_ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct nic_pd *p = nic_pd(pd);
	uint32_t users = p ? atomic_load(&p->users) : 0;
	if (!p)
		return IBV_REFUSE(EINVAL, "ibv_dealloc_pd",
				  "%p is not a protection domain of softdoca", (void *)pd);
	if (users)
		return IBV_REFUSE(
			EBUSY, "ibv_dealloc_pd",
			"the protection domain has %u memory regions and queue pairs: destroy "
			"them first",
			users);
	atomic_fetch_sub(&nic_context(pd->context)->users, 1);
	softdoca_object_free(p);
	return 0;
}

/* ---- memory regions ---- */

static void mr_free(struct nic_mr *mr)
{
	if (mr->has_key)
		dg_nic_key_close(mr->nic, mr->v.lkey);
	if (mr->region) {
		dg_region_close(mr->region, MMAP_CLOSE_NS);
		dg_region_free(mr->region);
	}
	if (mr->fd >= 0)
		close(mr->fd);
	if (mr->memory)
		softdoca_gpu_drop(mr->memory);
	softdoca_object_free(mr);
}

/* Describes the memory for dg_region_register(): host memory, with its memfd if it has one, or GPU
 * memory. */
static int describe(struct nic_mr *mr, dg_memory *mem)
{
	char *addr = mr->v.addr;
	mr->memory = softdoca_gpu_take(addr, mr->v.length);
	*mem = (dg_memory){.addr = addr, .size = mr->v.length, .fd = -1};
	if (mr->memory && mr->memory->by_cpu) {
		mem->fd = mr->memory->fd;
		mem->fd_offset = (uint64_t)(addr - mr->memory->base);
		return 0;
	}
	dg_memory on_gpu;
	int rc = dg_cuda_pointer_query(addr, mr->v.length, &on_gpu);
	if (!rc) {
		*mem = on_gpu;
		mr->fd = on_gpu.fd;
	}
	/* Not GPU memory: host memory, whatever CUDA knows about it. */
	return mr->memory || rc == -ERANGE ? rc : 0;
}

static int mr_open(struct nic_mr *mr, uint64_t iova, unsigned access)
{
	dg_memory mem;
	uint32_t rights = DG_ACCESS_READ | (access & ACCESS_WRITES ? DG_ACCESS_WRITE : 0);
	int rc = describe(mr, &mem);
	if (!rc)
		rc = dg_region_register(nic_device(), &mem, rights, &mr->region);
	if (!rc)
		rc = dg_nic_key_open(mr->nic, mr->region, access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
				     mr->v.pd->handle, access & ACCESS_NIC, &mr->v.lkey);
	return rc;
}

static struct nic_mr *mr_new(struct ibv_pd *pd, void *addr, size_t length, const char *func)
{
	struct nic_mr *mr = softdoca_object_new(OBJECT_IBV_MR, sizeof *mr);
	if (!mr)
		return fail_with(IBV_REFUSE(ENOMEM, func, "no memory for a memory region"));
	mr->v = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	mr->v.handle = atomic_fetch_add(&next_handle, 1);
	mr->nic = nic_context(pd->context)->nic;
	mr->fd = -1;
	return mr;
}

/* rc: 0, or why it has no key. */
static struct ibv_mr *mr_result(struct nic_mr *mr, int rc, const char *func)
{
	mr->has_key = !rc;
	mr->v.rkey = mr->v.lkey;
	if (rc) {
		softdoca_failed(func, rc);
		mr_free(mr);
		return fail_with(-rc);
	}
	atomic_fetch_add(&nic_pd(mr->v.pd)->users, 1);
	return &mr->v;
}

struct ibv_mr *softdoca_ibv_reg_import(struct ibv_pd *pd, const uint8_t *descriptor, size_t bytes,
				       void *addr, size_t length, unsigned access)
{
	const char *func = "doca_mmap_export_rdma";
	struct nic_mr *mr = mr_new(pd, addr, length, func);
	if (!mr)
		return NULL;
	int rc = dg_nic_key_open_import(mr->nic, descriptor, bytes, (uintptr_t)addr, pd->handle,
					access & ACCESS_NIC, &mr->v.lkey);
	return mr_result(mr, rc, func);
}

struct ibv_mr *softdoca_ibv_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned access)
{
	const char *func = "ibv_reg_mr";
	if (!nic_pd(pd) || !addr || !length)
		return fail_with(IBV_REFUSE(
			EINVAL, func,
			"%p is not a protection domain of softdoca, or %zu bytes at %p are "
			"not a range of memory",
			(void *)pd, length, addr));
	bool unpaired = access & ACCESS_WRITES && !(access & IBV_ACCESS_LOCAL_WRITE);
	if (access & ~(unsigned)ACCESS_KNOWN || unpaired)
		return fail_with(IBV_REFUSE(
			EINVAL, func,
			"access %#x has bits other than %#x, or allows peers to write without "
			"LOCAL_WRITE (1)",
			access, (unsigned)ACCESS_KNOWN));
	struct nic_mr *mr = mr_new(pd, addr, length, func);
	return mr ? mr_result(mr, mr_open(mr, iova, access), func) : NULL;
}

/* The fd names the memory. Of an allocation on a GPU only the last fd is known; an earlier one is found by the
 * address, which is then that of its first byte. */
struct ibv_mr *softdoca_ibv_reg_fd(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				   int fd, unsigned access)
{
	char *begin, *at = (char *)(uintptr_t)iova;
	struct gpu_memory *m = softdoca_gpu_take_fd(fd, &begin);
	if (m)
		at = (char *)((uintptr_t)begin + offset);
	struct ibv_mr *mr = NULL;
	if (!m)
		m = softdoca_gpu_take(at, length);
	if (!m)
		return fail_with(IBV_REFUSE(EOPNOTSUPP, "ibv_reg_dmabuf_mr",
				     "fd %d is not of doca_gpu_dmabuf_fd()", fd));
	if (!range_within(at, length, m->addr, m->size))
		errno = IBV_REFUSE(EINVAL, "ibv_reg_dmabuf_mr",
				   "%zu bytes at offset %llu exceed the allocation of %zu bytes",
				   length, (unsigned long long)offset, m->size);
	else
		mr = softdoca_ibv_reg(pd, at, length, iova, access);
	softdoca_gpu_drop(m);
	return mr;
}

int softdoca_ibv_dereg(struct ibv_mr *mr)
{
	struct nic_mr *m = nic_object(mr, OBJECT_IBV_MR);
	if (!m)
		return IBV_REFUSE(EINVAL, "ibv_dereg_mr", "%p is not a memory region of softdoca",
				  (void *)mr);
	atomic_fetch_sub(&nic_pd(mr->pd)->users, 1);
	mr_free(m);
	return 0;
}
