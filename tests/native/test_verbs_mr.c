/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the provider verbs registers memory: which calls of libibverbs it makes, in which order, with
 * which arguments, and which error it reports if they fail. The functions of libibverbs are
 * replaced by recorders, so neither an RDMA device nor libibverbs is needed; GPU memory is that of
 * the fake driver.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "gpu_memory.h"
#include "providers/verbs_provider.h"
#include "region.h"

#define SIZE 65536u

/* Arguments of the last call of each function, and its result: an errno, or 0. */
static struct {
	int calls, answer, flags;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
} plain;
static struct {
	int calls, answer, flags, fd;
	bool fd_open;
	struct ibv_pd *pd;
	uint64_t offset, length, iova;
} dmabuf;
static struct {
	int calls, answer;
	size_t size;
	uint64_t general;
	uint32_t rc;
} query;
static int deregistered, fd_at_deregistration;
static char order[8]; /* 'd' for each dma-buf, 'p' for each plain registration */

static struct ibv_mr mr = { .lkey = 7 };
static struct verbs_context extended;
static struct verbs device;
#define PD ((struct ibv_pd *)&device) /* any address will do */
#define OTHER_PD ((struct ibv_pd *)&mr)

static struct ibv_mr *answer(int error, char letter)
{
	size_t n = strlen(order);

	if (n + 1 < sizeof(order))
		order[n] = letter;
	errno = error;
	return error ? NULL : &mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, int flags)
{
	plain.calls++;
	plain.pd = pd;
	plain.addr = addr;
	plain.length = length;
	plain.flags = flags;
	return answer(plain.answer, 'p');
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				    int fd, int flags)
{
	dmabuf.calls++;
	dmabuf.pd = pd;
	dmabuf.offset = offset;
	dmabuf.length = length;
	dmabuf.iova = iova;
	dmabuf.fd = fd;
	dmabuf.fd_open = fcntl(fd, F_GETFD) >= 0;
	dmabuf.flags = flags;
	return answer(dmabuf.answer, 'd');
}

static int dereg_mr(struct ibv_mr *gone)
{
	CHECK(gone == &mr);
	deregistered++;
	fd_at_deregistration = fcntl(dmabuf.fd, F_GETFD);
	return 0;
}

static int query_device_ex(struct ibv_context *context, const uint32_t *input,
			   struct ibv_device_attr_ex *out, size_t size)
{
	CHECK(context == &extended.context);
	CHECK(!input);
	query.calls++;
	query.size = size;
	out->odp_caps.general_caps = query.general;
	out->odp_caps.rc_odp_caps = query.rc;
	return query.answer;
}

/* Starts with a device whose libibverbs has all functions and refuses nothing. */
static void start(void)
{
	dg_verbs.ibv_reg_mr = reg_mr;
	dg_verbs.ibv_reg_dmabuf_mr = reg_dmabuf_mr;
	dg_verbs.ibv_dereg_mr = dereg_mr;
	extended.query_device_ex = query_device_ex;
	extended.sz = sizeof(extended);
	extended.context.abi_compat = VERBS_ABI_IS_EXTENDED;
	query.general = IBV_ODP_SUPPORT;
	query.rc = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
	device.pd = PD;
	device.context = &extended.context;
	pthread_mutex_init(&device.lock, NULL);
	strcpy(device.name, "fake0");
	dg_verbs_modules = "/nowhere";
}

static dg_memory host(uint32_t flags)
{
	static uint8_t bytes[SIZE];

	return (dg_memory){ .addr = bytes, .size = SIZE, .fd = -1, .flags = flags };
}

/* Returns bytes within GPU memory that do not begin at a page. */
static dg_memory gpu(void)
{
	dg_memory m = { .size = SIZE, .fd = -1, .kind = DG_KIND_CUDA_OWN };

	gpu_uuid(m.uuid);
	m.addr = (char *)gpu_pages(1 << 20) + 4096 + 100;
	return m;
}

/* Creates a folder of kernel modules that contains this one. */
static void loaded(const char *module)
{
	static char folder[] = "/tmp/dgkit-modules-XXXXXX";
	char path[128];

	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof(path), "%s/%s", folder, module);
	CHECK_EQ(mkdir(path, 0700), 0);
	dg_verbs_modules = folder;
}

static void unload(const char *module)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dg_verbs_modules, module);
	CHECK_EQ(rmdir(path), 0);
	CHECK_EQ(rmdir(dg_verbs_modules), 0);
}

static int open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	CHECK(folder != NULL);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static struct verbs_source source;
static struct ibv_mr *made;

static int registers(const dg_memory *m, int flags)
{
	return dg_verbs_register(&device, m, flags, &source, &made);
}

TEST(host_memory_is_pinned)
{
	dg_memory m = host(0);

	start();
	CHECK_EQ(registers(&m, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(source.way, DG_REGISTRATION_PINNED);
	CHECK(made == &mr);
	CHECK(plain.pd == PD && plain.addr == m.addr && plain.length == SIZE);
	CHECK_EQ(plain.flags, IBV_ACCESS_LOCAL_WRITE);
	CHECK_EQ(source.fd, -1);
	CHECK_EQ(query.calls + dmabuf.calls, 0);
}

/* The kernel does not bind a window to a dma-buf. */
TEST(only_pinned_host_memory_can_have_windows)
{
	dg_memory pinned = host(0), on_demand = host(DG_MEMORY_ON_DEMAND), on_gpu = gpu();

	start();
	device.windows = true;
	CHECK_EQ(registers(&pinned, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(plain.flags, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK_EQ(registers(&on_demand, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(plain.flags, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	CHECK_EQ(registers(&on_gpu, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(dmabuf.flags, IBV_ACCESS_LOCAL_WRITE);
	dg_verbs_source_close(&source);
}

TEST(memory_on_demand_has_its_flag_and_is_looked_up_first)
{
	dg_memory m = host(DG_MEMORY_ON_DEMAND);

	start();
	CHECK_EQ(registers(&m, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(source.way, DG_REGISTRATION_ON_DEMAND);
	CHECK_EQ(plain.flags, IBV_ACCESS_LOCAL_WRITE | 64);
	CHECK_EQ(query.calls, 1);
	CHECK_EQ(query.size, sizeof(struct ibv_device_attr_ex));
	CHECK(dg_verbs_mr(OTHER_PD, &m, &source, IBV_ACCESS_REMOTE_READ) == &mr);
	CHECK(plain.pd == OTHER_PD);
	CHECK_EQ(plain.flags, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
}

TEST(an_adapter_without_paging_is_not_asked_to_page)
{
	dg_memory m = host(DG_MEMORY_ON_DEMAND);

	start();
	query.general = 0;
	CHECK_EQ(registers(&m, 0), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "fake0 cannot register memory on demand");
	CHECK_SAYS(dg_last_error(), "no on-demand paging");
	query.general = IBV_ODP_SUPPORT;
	query.rc = IBV_ODP_SUPPORT_WRITE; /* reads are not supported */
	CHECK_EQ(registers(&m, 0), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "no RDMA reads and writes");
	CHECK_EQ(plain.calls, 0);
}

TEST(a_device_in_software_is_not_asked_to_page)
{
	dg_memory m = host(DG_MEMORY_ON_DEMAND);

	start();
	device.software = true;
	CHECK_EQ(registers(&m, 0), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "accesses wrong bytes of each page");
	CHECK_EQ(query.calls + plain.calls, 0);
	m.flags = 0;
	CHECK_EQ(registers(&m, 0), 0);
}

/* If libibverbs cannot report what the adapter pages, the kernel's answer decides. */
TEST(without_extended_verbs_the_registration_itself_shows_it)
{
	dg_memory m = host(DG_MEMORY_ON_DEMAND);

	start();
	extended.context.abi_compat = NULL;
	CHECK_EQ(registers(&m, 0), 0);
	extended.context.abi_compat = VERBS_ABI_IS_EXTENDED;
	extended.sz = sizeof(extended) - sizeof(void *);
	CHECK_EQ(registers(&m, 0), 0);
	extended.sz = sizeof(extended);
	extended.query_device_ex = NULL;
	CHECK_EQ(registers(&m, 0), 0);
	CHECK_EQ(query.calls, 0);
	for (int i = 0; i < 2; i++) {
		plain.answer = i ? EINVAL : EOPNOTSUPP;
		CHECK_EQ(registers(&m, 0), -EOPNOTSUPP);
		CHECK_SAYS(dg_last_error(), "its driver has no on-demand paging");
	}
	plain.answer = ENOMEM; /* nothing is pinned, so that limit cannot be the reason */
	CHECK_EQ(registers(&m, 0), -ENOMEM);
	CHECK(!strstr(dg_last_error(), "locked memory"));
}

TEST(too_little_locked_memory_is_named_with_its_limit)
{
	struct rlimit limit = { 16 << 10, 16 << 10 };
	dg_memory m = host(0);

	start();
	plain.answer = ENOMEM;
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CHECK_EQ(registers(&m, 0), -ENOMEM);
	CHECK_SAYS(dg_last_error(), "limit of locked memory is 16 KiB");
	plain.answer = EFAULT;
	CHECK_EQ(registers(&m, 0), -EFAULT);
	CHECK_SAYS(dg_last_error(), "65536 bytes");
}

TEST(gpu_memory_is_registered_as_a_dma_buf_at_its_own_address)
{
	dg_memory m = gpu();
	int fds;

	start();
	loaded("nvidia_peermem"); /* not used if there is a dma-buf */
	fds = open_fds();
	CHECK_EQ(registers(&m, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK_EQ(source.way, DG_REGISTRATION_DMABUF);
	CHECK(made == &mr);
	CHECK(dmabuf.pd == PD);
	CHECK_EQ(dmabuf.offset, 100); /* in the page that contains the first byte */
	CHECK_EQ(dmabuf.length, SIZE);
	CHECK_EQ(dmabuf.iova, (uintptr_t)m.addr);
	CHECK_EQ(dmabuf.flags, IBV_ACCESS_LOCAL_WRITE);
	CHECK(dmabuf.fd_open);
	CHECK_EQ(plain.calls, 0);
	CHECK_EQ(open_fds(), fds + 1);
	unload("nvidia_peermem");
}

TEST(importers_get_the_same_dma_buf_without_another_export)
{
	dg_memory m = gpu();
	unsigned long exports;
	int fd;

	start();
	CHECK_EQ(registers(&m, IBV_ACCESS_LOCAL_WRITE), 0);
	fd = dmabuf.fd;
	exports = gpu_calls("cuMemGetHandleForAddressRange");
	CHECK(dg_verbs_mr(OTHER_PD, &m, &source, IBV_ACCESS_REMOTE_READ) == &mr);
	CHECK(dmabuf.pd == OTHER_PD);
	CHECK_EQ(dmabuf.fd, fd);
	CHECK(dmabuf.fd_open);
	CHECK_EQ(dmabuf.offset, 100);
	CHECK_EQ(dmabuf.iova, (uintptr_t)m.addr);
	CHECK_EQ(dmabuf.flags, IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(gpu_calls("cuMemGetHandleForAddressRange"), exports);
}

TEST(a_dma_buf_is_closed_once)
{
	dg_memory m = gpu();
	int fd, again;

	start();
	CHECK_EQ(registers(&m, 0), 0);
	fd = source.fd;
	dg_verbs_source_close(&source);
	CHECK_EQ(fcntl(fd, F_GETFD), -1);
	again = open("/dev/null", O_RDONLY);
	CHECK_EQ(again, fd); /* the lowest free fd */
	dg_verbs_source_close(&source);
	CHECK(fcntl(again, F_GETFD) >= 0);
}

static void an_adapter_that_takes_no_dma_buf_gets_the_address(const char *module)
{
	dg_memory m = gpu();
	int fds;

	start();
	loaded(module);
	dmabuf.answer = EOPNOTSUPP;
	fds = open_fds();
	CHECK_EQ(registers(&m, IBV_ACCESS_LOCAL_WRITE), 0);
	CHECK(!strcmp(order, "dp"));
	CHECK_EQ(source.way, DG_REGISTRATION_PEERMEM);
	CHECK(plain.pd == PD && plain.addr == m.addr && plain.length == SIZE);
	CHECK_EQ(plain.flags, IBV_ACCESS_LOCAL_WRITE);
	CHECK_EQ(source.fd, -1);
	CHECK_EQ(open_fds(), fds);
	/* Importers are registered by the address immediately. */
	CHECK(dg_verbs_mr(OTHER_PD, &m, &source, IBV_ACCESS_REMOTE_WRITE) == &mr);
	CHECK(!strcmp(order, "dpp"));
	unload(module);
}

TEST(nvidia_peermem_is_the_second_way)
{
	an_adapter_that_takes_no_dma_buf_gets_the_address("nvidia_peermem");
}

TEST(mellanox_peer_memory_will_do_as_well)
{
	an_adapter_that_takes_no_dma_buf_gets_the_address("nv_peer_mem");
}

/* Registers GPU memory when no method works, and checks the message about both methods. */
static void refused(int reason, const char *of_dmabuf, const char *of_address)
{
	dg_memory m = gpu();
	int fds = open_fds();

	CHECK_EQ(registers(&m, 0), -EMEDIUMTYPE);
	CHECK_EQ(dg_last_reason(-EMEDIUMTYPE), reason);
	CHECK_SAYS(dg_last_error(), "fake0 cannot access this GPU memory: as a dma-buf: ");
	CHECK_SAYS(dg_last_error(), "; by its address, with nvidia-peermem: ");
	CHECK_SAYS(dg_last_error(), of_dmabuf);
	CHECK_SAYS(dg_last_error(), of_address);
	CHECK_EQ(open_fds(), fds);
	CHECK_EQ(source.fd, -1);
	CHECK(!made);
}

TEST(without_either_way_both_answers_are_given)
{
	start();
	gpu_context();
	dmabuf.answer = EOPNOTSUPP;
	refused(DG_REASON_DMABUF_ADAPTER, "the adapter's driver, or this kernel, does not support it",
		"the module is not loaded");
	CHECK(!strcmp(order, "d")); /* an address that no module knows is not tried */
	dmabuf.answer = ENOMEM;
	refused(DG_REASON_DMABUF_GPU, "BAR1 has no room", "`dgkit doctor peermem`");
	dmabuf.answer = EIO;
	refused(DG_REASON_DMABUF_GPU, "ibv_reg_dmabuf_mr: Input/output error",
		"the module is not loaded");
}

TEST(a_module_that_does_not_know_the_address_is_named)
{
	start();
	gpu_context();
	loaded("nvidia_peermem");
	dmabuf.answer = EOPNOTSUPP;
	plain.answer = EFAULT;
	refused(DG_REASON_DMABUF_ADAPTER, "does not support it", "ibv_reg_mr: Bad address");
	unload("nvidia_peermem");
}

TEST(an_rdma_core_without_dma_bufs_is_named)
{
	start();
	gpu_context();
	dg_verbs.ibv_reg_dmabuf_mr = NULL;
	refused(DG_REASON_DMABUF_RDMA_CORE, "the installed rdma-core is older than 34",
		"the module is not loaded");
	CHECK_EQ(gpu_calls("cuMemGetHandleForAddressRange"), 0);
}

TEST(a_driver_that_exports_no_dma_buf_is_named)
{
	start();
	gpu_context();
	gpu_knobs("attr124=0"); /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
	refused(DG_REASON_DMABUF_GPU, "CUDA_ERROR_NOT_SUPPORTED", "the module is not loaded");
	CHECK_EQ(dmabuf.calls, 0);
}

/* Maps memory as a region of the fake device. */
static struct dg_region_entry *mapped(struct dg_region *r, const dg_memory *m)
{
	static struct dg_device dev = { .blob_provider = "verbs" };
	struct dg_region_entry entry = { .size = m->size, .access = DG_ACCESS_READ | DG_ACCESS_WRITE };

	r->dev = &dev;
	r->memory = *m;
	CHECK_EQ(dg_verbs_map(&dev, &device, r, m, &entry), 0);
	CHECK_EQ(dg_region_table_open(), 0);
	CHECK_EQ(dg_region_table_add(r, &entry), 0);
	return r->entry;
}

TEST(gpu_memory_of_a_region_is_not_accessed_by_the_cpu)
{
	struct dg_region of_gpu = { 0 }, of_host = { 0 };
	dg_memory m = gpu(), h = host(0);
	struct dg_region_entry *entry;
	struct dg_op op = { 0 };

	start();
	entry = mapped(&of_gpu, &m);
	CHECK_EQ(entry->method, DG_METHOD_RDMA);
	CHECK(entry->base == m.addr);
	CHECK_EQ(of_gpu.registration, DG_REGISTRATION_DMABUF);
	op.local = of_gpu.index;
	CHECK(!dg_verbs_fits_inline(64, &op, 8)); /* the CPU would copy it into the request */

	entry = mapped(&of_host, &h);
	CHECK_EQ(entry->method, DG_METHOD_MAP);
	CHECK_EQ(of_host.registration, DG_REGISTRATION_PINNED);
	op.local = of_host.index;
	CHECK(dg_verbs_fits_inline(64, &op, 64));
	CHECK(!dg_verbs_fits_inline(64, &op, 65));
	dg_verbs_unmap(of_gpu.dev, &device, &of_gpu);
	dg_verbs_unmap(of_host.dev, &device, &of_host);
}

TEST(closing_a_region_ends_its_registration_and_then_its_dma_buf)
{
	struct dg_region r = { 0 };
	dg_memory m = gpu();
	int fds;

	start();
	fds = open_fds();
	mapped(&r, &m);
	CHECK_EQ(open_fds(), fds + 1);
	dg_verbs_unmap(r.dev, &device, &r);
	CHECK_EQ(deregistered, 1);
	CHECK(fd_at_deregistration >= 0);
	CHECK_EQ(open_fds(), fds);
}

TEST_MAIN(run_tests)
