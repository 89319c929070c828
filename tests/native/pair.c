/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes move bytes both ways; they may be of different architectures.
 *
 *	pair COMMAND...   exports three regions and runs COMMAND with their descriptors appended
 *	pair COMMAND... import HEX HEX HEX    is what it runs: imports them, checks, reads, writes
 *
 * One region is a memfd, which the importer maps; the other is plain memory, which it reaches
 * One region is a memfd, which the importer maps; the second is plain memory, which it reaches
 * through the exporter. The third, a memfd, begins with a counter: the exporter's CPU and the
 * importer's atomic operations add to it concurrently.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "check.h"

#define SIZE (1 << 20)
#define EDGE 4093 /* an odd offset, so that no copy is aligned */
#define HEX (2 * DG_DESCRIPTOR_MAX + 1)
#define REGIONS 3
#define COUNTER 2 /* its region */
#define ADDS 20000 /* of the importer */
#define CPU_ADDS 1000000 /* of the exporter: they take as long */

static uint8_t pattern(size_t i, unsigned seed)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
}

static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = pattern(i, seed);
}

static void check_bytes(const uint8_t *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != pattern(i, seed))
			check_failed(__FILE__, __LINE__, "byte %zu is %u, not %u", i, bytes[i],
				     pattern(i, seed));
}

static dg_memory sealed(void)
{
	dg_memory memory = { .size = SIZE };

	memory.fd = memfd_create("pair", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(memory.fd >= 0);
	CHECK_EQ(fallocate(memory.fd, 0, 0, SIZE), 0);
	CHECK_EQ(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	memory.addr = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
	CHECK(memory.addr != MAP_FAILED);
	return memory;
}

static dg_memory plain(void)
{
	dg_memory memory = { .addr = malloc(SIZE), .size = SIZE, .fd = -1 };

	CHECK(memory.addr);
	return memory;
}

static void export_hex(dg_region *region, char hex[HEX])
{
	uint8_t bytes[DG_DESCRIPTOR_MAX];
	int len = dg_region_export(region, DG_ACCESS_READ | DG_ACCESS_WRITE, bytes, sizeof(bytes));

	CHECK(len > 0);
	for (int i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

/* Starts command with `import` and the descriptors appended. */
static pid_t start_importer(char **command, int n, char hex[REGIONS][HEX])
{
	char *argv[n + 2 + REGIONS];
	pid_t pid;

	memcpy(argv, command, n * sizeof(*argv));
	argv[n] = "import";
	for (int i = 0; i < REGIONS; i++)
		argv[n + 1 + i] = hex[i];
	argv[n + 1 + REGIONS] = NULL;
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		execvp(argv[0], argv);
		perror(argv[0]);
		_exit(127);
	}
	return pid;
}

/* Adds to the counter while the importer does the same. */
static void count_beside(pid_t importer, uint64_t *counter)
{
	pid_t ended = 0;
	int status;

	while (!__atomic_load_n(counter, __ATOMIC_SEQ_CST) && !ended)
		ended = waitpid(importer, &status, WNOHANG);
	for (int i = 0; i < CPU_ADDS; i++)
		__atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
	CHECK_EQ(ended ? ended : waitpid(importer, &status, 0), importer);
	CHECK_EQ(status, 0);
	CHECK_EQ(*counter, ADDS + CPU_ADDS);
}

static void exporter(char **command, int n)
{
	dg_memory memory[REGIONS] = { sealed(), plain(), sealed() };
	dg_region *region[REGIONS];
	char hex[REGIONS][HEX];
	dg_device *dev;

	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	for (int i = 0; i < REGIONS; i++) {
		if (i != COUNTER)
			fill(memory[i].addr, SIZE, i);
		CHECK_EQ(dg_region_register(dev, &memory[i], DG_ACCESS_READ | DG_ACCESS_WRITE,
					    &region[i]), 0);
		export_hex(region[i], hex[i]);
	}
	count_beside(start_importer(command, n, hex), memory[COUNTER].addr);
	for (int i = 0; i < REGIONS; i++) {
		uint8_t *bytes = memory[i].addr;

		if (i != COUNTER) {
			check_bytes(bytes, EDGE, i); /* not written by the importer */
			check_bytes(bytes + EDGE, SIZE - EDGE, 100 + i);
		}
		CHECK_EQ(dg_region_close(region[i], PATIENCE), 0);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	for (int i = 0; i < REGIONS; i++) {
		if (memory[i].fd < 0) {
			free(memory[i].addr);
			continue;
		}
		CHECK_EQ(munmap(memory[i].addr, SIZE), 0);
		CHECK_EQ(close(memory[i].fd), 0);
	}
}

static dg_region *import_hex(dg_device *dev, const char *hex)
{
	uint8_t bytes[DG_DESCRIPTOR_MAX];
	size_t len = strlen(hex) / 2;
	dg_region *region;
	unsigned byte;

	CHECK(len <= sizeof(bytes));
	for (size_t i = 0; i < len; i++) {
		CHECK_EQ(sscanf(hex + 2 * i, "%2x", &byte), 1);
		bytes[i] = byte;
	}
	CHECK_EQ(dg_region_import(dev, bytes, len, PATIENCE, &region), 0);
	return region;
}

static uint32_t id_of(dg_region *region)
{
	dg_region_info info;

	CHECK_EQ(dg_region_info_get(region, &info), 0);
	CHECK_EQ(info.size, SIZE);
	return info.id;
}

static void transfer(dg_queue *q, uint32_t op, uint32_t local, uint32_t remote, uint64_t offset)
{
	const dg_wr wr = { .op = op, .local = local, .remote = remote, .size = SIZE - offset,
			   .local_offset = offset, .remote_offset = offset };
	dg_wc wc;

	CHECK_EQ(dg_queue_run(q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(wc.size, SIZE - offset);
}

/* Adds 1 to the remote counter ADDS times: each old value is larger than the one before. */
static void count(dg_queue *q, uint32_t local, const uint64_t *old, uint32_t remote)
{
	const dg_wr wr = { .op = DG_FETCH_ADD, .local = local, .remote = remote, .size = 8,
			   .local_stride = 1 };

	for (uint64_t i = 0, last = 0; i < ADDS; i++) {
		dg_wc wc;

		CHECK_EQ(dg_queue_run(q, &wr, 1, &wc, 20 * SECOND), 1);
		CHECK_EQ(wc.status, DG_OK);
		CHECK(i == 0 || *old > last);
		last = *old;
	}
}

static void importer(char **hex)
{
	dg_memory memory = plain();
	dg_region *local, *remote;
	dg_device *dev;
	dg_queue *q;

	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	CHECK_EQ(dg_region_register(dev, &memory, DG_ACCESS_READ | DG_ACCESS_WRITE, &local), 0);
	CHECK_EQ(dg_queue_open(dev, 16, DG_PATH_WORKER, 0, 20 * SECOND, &q), 0);
	remote = import_hex(dev, hex[COUNTER]);
	count(q, id_of(local), memory.addr, id_of(remote));
	CHECK_EQ(dg_region_close(remote, PATIENCE), 0);
	for (int i = 0; i < COUNTER; i++) {
		uint8_t *bytes = memory.addr;

		remote = import_hex(dev, hex[i]);
		transfer(q, DG_READ, id_of(local), id_of(remote), 0);
		check_bytes(bytes, SIZE, i);
		fill(bytes + EDGE, SIZE - EDGE, 100 + i);
		transfer(q, DG_WRITE, id_of(local), id_of(remote), EDGE);
		CHECK_EQ(dg_region_close(remote, PATIENCE), 0);
	}
	CHECK_EQ(dg_queue_close(q), 0);
	dg_queue_free(q);
	CHECK_EQ(dg_region_close(local, PATIENCE), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	free(memory.addr);
}

int main(int argc, char **argv)
{
	alarm(CHECK_SECONDS);
	if (argc == 2 + REGIONS && !strcmp(argv[1], "import"))
		importer(argv + 2);
	else if (argc > 1)
		exporter(argv + 1, argc - 1);
	else
		return fprintf(stderr, "usage: pair COMMAND...\n"), 2;
	return 0;
}
