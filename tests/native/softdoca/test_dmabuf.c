// SPDX-License-Identifier: Apache-2.0
/*
 * Maps over a dma-buf: of GPU memory, with CUDA's driver or the fake one, and of a udmabuf where
 * the system has /dev/udmabuf. The fake driver's dma-bufs are memfds, so this program reports for
 * them what the kernel would report for a dma-buf: see readlink() below.
 */
#include <doca_log.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "export_check.h"
#include "gpu_memory.h"

enum { GPU_SIZE = 4 << 20 };

static int fake_dmabuf = -1; /* the fake driver's dma-buf, or a duplicate of that fd */

/* Replaces libc's readlink() for the whole program: the link of a dma-buf starts with its file
 * system. */
__attribute__((visibility("default"))) ssize_t readlink(const char *path, char *out, size_t n)
{
	char of_gpu[64];

	snprintf(of_gpu, sizeof(of_gpu), "/proc/self/fd/%d", fake_dmabuf);
	if (fake_dmabuf < 0 || strcmp(path, of_gpu))
		return syscall(SYS_readlinkat, AT_FDCWD, path, out, n);
	memcpy(out, "/dmabuf:", 8);
	return 8;
}

static bool is_fake_cuda(void)
{
	driver("cuInit"); /* loads it */
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "dgkitFakeCuda") != NULL;
}

/* A dma-buf of GPU memory. */
static int dmabuf_of(void *at, size_t size)
{
	int fd = -1;

	gpu_context();
	DRIVER("cuMemGetHandleForAddressRange",
	       (int *, unsigned long long, size_t, int, unsigned long long), &fd,
	       (unsigned long long)(uintptr_t)at, size, 1, 0);
	CHECK(fd >= 0);
	if (is_fake_cuda())
		fake_dmabuf = fd;
	return fd;
}

static struct doca_mmap *dmabuf_map(struct doca_dev *dev, int fd, void *at, size_t offset,
				    size_t len, uint32_t permissions)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	OK(doca_mmap_set_dmabuf_memrange(m, fd, at, offset, len));
	OK(doca_mmap_set_permissions(m, permissions));
	OK(doca_mmap_add_dev(m, dev));
	return m;
}

/* Allocates CUDA virtual memory that can be shared by a POSIX fd. */
static void *virtual_pages(size_t size)
{
	/* CUmemAllocationProp and CUmemAccessDesc as words: pinned, POSIX fd, device 0, for
	 * GPUDirect RDMA; device 0, both ways */
	unsigned prop[8] = {1, 1, 1, 0, 0, 0, 0x100}, access[3] = {1, 0, 3};
	unsigned long long handle, at;

	gpu_context();
	DRIVER("cuMemCreate", (unsigned long long *, size_t, const void *, unsigned long long),
	       &handle, size, prop, 0);
	DRIVER("cuMemAddressReserve",
	       (unsigned long long *, size_t, size_t, unsigned long long, unsigned long long), &at,
	       size, 0, 0, 0);
	DRIVER("cuMemMap",
	       (unsigned long long, size_t, size_t, unsigned long long, unsigned long long), at,
	       size, 0, handle, 0);
	DRIVER("cuMemSetAccess", (unsigned long long, size_t, const void *, size_t), at, size,
	       access, 1);
	DRIVER("cuMemRelease", (unsigned long long), handle);
	return (void *)(uintptr_t)at;
}

TEST(an_fd_that_is_no_dma_buf_is_refused)
{
	static char bytes[4096];
	int memfd = memfd_create("not a dma-buf", 0), none[] = {-1, INT32_MAX, 0, memfd};
	struct doca_mmap *m;

	CHECK_EQ(ftruncate(memfd, sizeof(bytes)), 0);
	OK(doca_mmap_create(&m));
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		REFUSED(doca_mmap_set_dmabuf_memrange(m, none[i], bytes, 0, sizeof(bytes)),
			INVALID_VALUE);
	OK(doca_mmap_set_memrange(m, bytes, sizeof(bytes))); /* nothing was set by them */
	OK(doca_mmap_destroy(m));
	close(memfd);
}

TEST(a_range_that_leaves_the_dma_buf_is_refused)
{
	char *at = gpu_pages(GPU_SIZE);
	int fd = dmabuf_of(at, GPU_SIZE);
	struct doca_mmap *m;
	void *got;
	size_t len;

	OK(doca_mmap_create(&m));
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, NULL, 0, 64), INVALID_VALUE);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, 0, 0), INVALID_VALUE);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, 0, SIZE_MAX), INVALID_VALUE);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, SIZE_MAX, 64), INVALID_VALUE);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, 0, GPU_SIZE + 1), INVALID_VALUE);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, GPU_SIZE - 63, 64), INVALID_VALUE);
	REFUSED(doca_mmap_get_memrange(m, &got, &len), BAD_STATE);
	OK(doca_mmap_set_dmabuf_memrange(m, fd, at + 64, 64, 64));
	OK(doca_mmap_get_memrange(m, &got, &len));
	CHECK(got == at + 64);
	CHECK_EQ(len, 64);
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, at, 0, 64), NOT_PERMITTED);
	REFUSED(doca_mmap_set_memrange(m, at, 64), NOT_PERMITTED);
	/* The same range again: NVIDIA's gpunetio_rdma_client_server_write relies on it. */
	OK(doca_mmap_set_memrange(m, at + 64, 64));
	OK(doca_mmap_destroy(m));
	close(fd);
	gpu_free(at);
}

/* Like the H200's driver, the fake driver creates dma-bufs that cannot be mapped. */
TEST(a_dma_buf_that_is_neither_mapped_nor_of_a_gpu_is_not_supported)
{
	static char bytes[4096];
	char *at = gpu_pages(GPU_SIZE);
	int fd = dmabuf_of(at, GPU_SIZE);
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	REFUSED(doca_mmap_set_dmabuf_memrange(m, fd, bytes, 0, sizeof(bytes)), NOT_SUPPORTED);
	OK(doca_mmap_set_dmabuf_memrange(m, fd, at, 0, GPU_SIZE));
	OK(doca_mmap_destroy(m));
	close(fd);
	gpu_free(at);
}

TEST(that_only_the_dma_bufs_identity_counts_is_logged)
{
	char *at = gpu_pages(GPU_SIZE), text[4096];
	struct doca_log_backend *backend;
	FILE *log = tmpfile();
	struct doca_mmap *m;

	OK(doca_log_backend_create_with_file_sdk(log, &backend));
	OK(doca_log_backend_set_sdk_level(backend, DOCA_LOG_LEVEL_INFO));
	OK(doca_mmap_create(&m));
	OK(doca_mmap_set_dmabuf_memrange(m, dmabuf_of(at, GPU_SIZE), at, 0, GPU_SIZE));
	fflush(log);
	rewind(log);
	text[fread(text, 1, sizeof(text) - 1, log)] = 0;
	CHECK_SAYS(text, "dma-buf identity only");
	OK(doca_mmap_destroy(m));
	gpu_free(at);
}

/* Copies from host memory to the map and back, using the map's own addresses. */
static void bytes_come_and_go(struct doca_mmap *map, uint8_t *at)
{
	struct doca_mmap *host;
	uint8_t *memory;

	FIXTURE(rig, r, rig_open, SIZE, 8);
	fill(r.from, SIZE, 5);
	host = r.to_map;
	memory = r.to;
	r.to_map = map;
	r.to = at;
	OK(copied_at(&r, 0, 100, 1));
	OK(copied_at(&r, 3, 3, SIZE - 3));
	OK(copied_at(&r, 0, 0, 3));
	r.to_map = host;
	r.to = memory;
	host = r.from_map;
	memory = r.from;
	r.from_map = map;
	r.from = at;
	OK(copied_at(&r, 0, 0, SIZE));
	r.from_map = host;
	r.from = memory;
	CHECK(!memcmp(r.from, r.to, SIZE));
}

static void exercise_gpu(char *at)
{
	struct doca_dev *dev = a_dev();
	int fd = dmabuf_of(at, GPU_SIZE);
	struct doca_mmap *m = dmabuf_map(dev, fd, at + 64, 64, GPU_SIZE - 64, READ_WRITE | PCI_RW);

	close(fd); /* the map has its own fd */
	for (int round = 0; round < 2; round++) {
		OK(doca_mmap_start(m));
		DRIVER("cuMemsetD8_v2", (unsigned long long, unsigned char, size_t),
		       (unsigned long long)(uintptr_t)at, 0, GPU_SIZE);
		bytes_come_and_go(m, (uint8_t *)at + 64);
		OK(doca_mmap_stop(m));
	}
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(gpu_memory_of_cudaMalloc_is_copied)
{
	char *at = gpu_pages(GPU_SIZE);

	exercise_gpu(at);
	gpu_free(at);
}

TEST(cuda_virtual_memory_is_copied)
{
	exercise_gpu(virtual_pages(GPU_SIZE));
}

TEST(an_export_of_gpu_memory_is_imported_by_its_own_process)
{
	char *at = virtual_pages(GPU_SIZE);
	struct doca_dev *dev = a_dev();
	int fd = dmabuf_of(at, GPU_SIZE);
	struct doca_mmap *m = dmabuf_map(dev, fd, at, 0, GPU_SIZE, READ_WRITE | PCI_RW), *far;
	struct desc d;

	OK(doca_mmap_start(m));
	d = exported(m, dev);
	far = imported(&d, dev);
	bytes_come_and_go(far, (uint8_t *)at);
	OK(doca_mmap_destroy(far));
	OK(doca_mmap_destroy(m));
	close(fd);
	OK(doca_dev_close(dev));
}

struct offer {
	struct desc desc;
	uint8_t *at;
};

/* The host: exports GPU memory behind a dma-buf, until it is told to end. */
static void gpu_host(int fd, bool virtual)
{
	static uint8_t want[SIZE], seen[SIZE];
	struct offer offer = {0};
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m;
	char word;

	offer.at = virtual ? virtual_pages(GPU_SIZE) : gpu_pages(GPU_SIZE);
	m = dmabuf_map(dev, dmabuf_of(offer.at, GPU_SIZE), offer.at, 0, GPU_SIZE,
		       READ_WRITE | PCI_RW);
	OK(doca_mmap_start(m));
	offer.desc = exported(m, dev);
	CHECK_EQ(send(fd, &offer, sizeof(offer), 0), (ssize_t)sizeof(offer));
	CHECK_EQ(recv(fd, &word, 1, 0), 1);
	fill(want, SIZE, 5);
	DRIVER("cuMemcpyDtoH_v2", (void *, unsigned long long, size_t), seen,
	       (unsigned long long)(uintptr_t)offer.at, SIZE);
	CHECK(!memcmp(seen, want, SIZE));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

static void a_dpu_reaches_gpu_memory_of(bool virtual)
{
	struct offer offer;
	struct doca_dev *dev;
	struct doca_mmap *far;
	int fds[2], status;
	pid_t host;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	host = fork();
	if (!host) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		alarm(CHECK_SECONDS);
		gpu_host(fds[1], virtual);
		exit(0);
	}
	close(fds[1]);
	CHECK_EQ(recv(fds[0], &offer, sizeof(offer), MSG_WAITALL), (ssize_t)sizeof(offer));
	dev = a_dev();
	far = imported(&offer.desc, dev);
	bytes_come_and_go(far, offer.at);
	CHECK_EQ(send(fds[0], "", 1, 0), 1);
	CHECK_EQ(waitpid(host, &status, 0), host);
	CHECK_EQ(status, 0);
	OK(doca_mmap_destroy(far));
	OK(doca_dev_close(dev));
}

TEST(gpu_memory_of_cudaMalloc_is_reached_from_another_process)
{
	a_dpu_reaches_gpu_memory_of(false);
}

TEST(cuda_virtual_memory_is_reached_from_another_process)
{
	a_dpu_reaches_gpu_memory_of(true);
}

/* facts/doca.md, line 12: nvidia-peermem, where a dma-buf was refused. */
TEST(gpu_memory_is_found_by_its_address_alone)
{
	char *at = virtual_pages(GPU_SIZE);
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m = a_started_map(dev, at, GPU_SIZE, READ_WRITE);

	bytes_come_and_go(m, (uint8_t *)at);
	if (is_fake_cuda())
		CHECK(gpu_calls("cuMemcpyHtoDAsync_v2") + gpu_calls("cuMemcpy2DAsync_v2") > 0);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(gpu_memory_that_was_freed_does_not_start)
{
	char *at = gpu_pages(GPU_SIZE);
	struct doca_dev *dev = a_dev();
	int fd = dmabuf_of(at, GPU_SIZE);
	struct doca_mmap *m = dmabuf_map(dev, fd, at, 0, GPU_SIZE, READ_WRITE);

	gpu_free(at);
	REFUSED(doca_mmap_start(m), DRIVER);
	OK(doca_mmap_destroy(m));
	close(fd);
	OK(doca_dev_close(dev));
}

TEST(gpu_maps_leave_no_fd_behind)
{
	char *at = virtual_pages(GPU_SIZE);
	struct doca_dev *dev = a_dev();
	int fd = dmabuf_of(at, GPU_SIZE), before = 0;

	for (int i = 0; i < repeats(300); i++) {
		struct doca_mmap *m = dmabuf_map(dev, fd, at, 0, GPU_SIZE, READ_WRITE | PCI_RW);

		OK(doca_mmap_start(m));
		exported(m, dev);
		OK(doca_mmap_stop(m));
		OK(doca_mmap_start(m));
		OK(doca_mmap_destroy(m));
		if (i == 0)
			before = open_fds();
	}
	CHECK(open_fds() < before + 100); /* dgkit's thread has some fds open now and then */
	CHECK_EQ(close(fd), 0); /* the program's own fd is still open */
	OK(doca_dev_close(dev));
}

/* ---- a udmabuf ---- */

TEST(a_udmabuf_is_mapped_and_copied)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = 2 * SIZE};
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd;
	struct doca_dev *dev;
	struct doca_mmap *m;
	uint8_t *seen;

	if (device < 0) { /* no SKIP(): which kernels have one is not for a test run to demand */
		fprintf(stderr, "skipped: /dev/udmabuf: %s\n", strerror(errno));
		exit(CHECK_SKIPPED);
	}
	create.memfd = (unsigned)memfd_create("udmabuf", MFD_ALLOW_SEALING);
	CHECK_EQ(ftruncate((int)create.memfd, 2 * SIZE), 0);
	CHECK_EQ(fcntl((int)create.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	fd = ioctl(device, UDMABUF_CREATE, &create);
	CHECK(fd >= 0);
	seen = mmap(NULL, 2 * SIZE, PROT_READ, MAP_SHARED, (int)create.memfd, 0);
	CHECK(seen != MAP_FAILED);
	dev = a_dev();
	/* The addresses are the program's own, and need not be mapped in this process. */
	m = dmabuf_map(dev, fd, (void *)(16 * page), page + 10, SIZE, READ_WRITE);
	OK(doca_mmap_start(m));
	bytes_come_and_go(m, (uint8_t *)(16 * page));
	CHECK(seen[page + 10] != 0);
	CHECK_EQ(seen[page + 9], 0);
	CHECK_EQ(seen[page + 10 + SIZE], 0);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST_MAIN(run_tests)
