/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of most tests: a device, a local region, a remote region (exported and imported by
 * the same process) and queues, for each provider in turn. With `cuda` the remote bytes are GPU
 * memory.
 */
#ifndef DGKIT_FIXTURE_H
#define DGKIT_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "check.h"
#include "gpu_memory.h"

#define MS 1000000ull
#define RW (DG_ACCESS_READ | DG_ACCESS_WRITE)
#define UNUSED __attribute__((unused))

static const char *provider UNUSED = "soft"; /* the provider under test */
static const char *wrapped UNUSED; /* the provider that fault wraps; NULL: soft */

struct test_queue {
	dg_queue *q;
};

struct fix {
	dg_device *dev;
	size_t size;
	bool gpu; /* the remote bytes are GPU memory */
	uint8_t *local_bytes, *remote_bytes; /* of the local and the remote region */
	dg_region *local, *source, *remote;
	uint32_t l, r; /* the ids of local and remote */
	struct test_queue tq;
	dg_queue *q; /* tq.q */
};

/* A posted transfer: its ticket; or its completion if it completed immediately (ticket 0); or an
 * errno (ticket < 0). */
struct transfer {
	int64_t ticket;
	dg_wc wc;
};

UNUSED static uint8_t pattern(size_t i, unsigned seed)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
}

UNUSED static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = pattern(i, seed);
}

/* Checks that bytes[0..n) contain what fill(base, .., seed) wrote at base + at. */
UNUSED static void check_pattern(const uint8_t *bytes, size_t at, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != pattern(at + i, seed))
			check_failed(__FILE__, __LINE__, "byte %zu of %zu is %u, not %u", i, n, bytes[i],
				     pattern(at + i, seed));
}

/* Maps zeroed anonymous memory. */
UNUSED static uint8_t *pages(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

UNUSED static dg_memory plain_memory(void *at, size_t size)
{
	return (dg_memory){ .addr = at, .size = size, .fd = -1 };
}

/* Creates and maps a sealed memfd. */
UNUSED static dg_memory sealed_memory(size_t size)
{
	dg_memory m = { .size = size, .fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING) };

	CHECK(m.fd >= 0);
	CHECK_EQ(ftruncate(m.fd, size), 0);
	CHECK_EQ(fcntl(m.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	m.addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
	CHECK(m.addr != MAP_FAILED);
	return m;
}

UNUSED static uint32_t id_of(dg_region *r)
{
	dg_region_info info;

	CHECK_EQ(dg_region_info_get(r, &info), 0);
	return info.id;
}

UNUSED static dg_region_info info_of(dg_region *r)
{
	dg_region_info info;

	CHECK_EQ(dg_region_info_get(r, &info), 0);
	return info;
}

static uint32_t serves; /* cuda: devices have a copy service */

UNUSED static dg_device *device_spinning(uint64_t spin_ns)
{
	dg_device_config config = { .spin_ns = spin_ns, .over = wrapped, .serves = serves };
	dg_device *dev;

	CHECK_EQ(dg_device_open(provider, &config, &dev), 0);
	return dev;
}

/* Opens a softdoca device, with `text` as the description of the devices. */
UNUSED static dg_device *device_of(const char *text)
{
	char path[] = P_tmpdir "/dgkit-devices-XXXXXX";
	int fd = mkstemp(path);
	dg_device *dev;

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	setenv("SOFTDOCA_DEVICES", path, 1);
	dev = device_spinning(0);
	CHECK_EQ(unlink(path), 0);
	return dev;
}

UNUSED static dg_region *registered(dg_device *dev, void *at, size_t size, uint32_t access)
{
	dg_memory m = plain_memory(at, size);
	dg_region *r;

	CHECK_EQ(dg_region_register(dev, &m, access, &r), 0);
	return r;
}

UNUSED static dg_region *registered_gpu(dg_device *dev, void *at, size_t size, uint32_t access)
{
	dg_memory m = { .addr = at, .size = size, .fd = -1, .block = size, .kind = DG_KIND_CUDA_IPC };
	dg_region *r;

	gpu_uuid(m.uuid);
	CHECK_EQ(dg_region_register(dev, &m, access, &r), 0);
	return r;
}

/* Exports `source` and imports it into dev. */
UNUSED static dg_region *imported(dg_device *dev, dg_region *source, uint32_t access)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	dg_region *r;
	int len = dg_region_export(source, access, descriptor, sizeof(descriptor));

	CHECK(len > 0);
	CHECK_EQ(dg_region_import(dev, descriptor, len, PATIENCE, &r), 0);
	return r;
}

/* Opens l->q. Returns the result of dg_queue_open(). */
UNUSED static int test_queue_open(struct test_queue *l, dg_device *dev, uint32_t depth, uint32_t path,
			    uint64_t spin_ns, uint64_t op_timeout_ns)
{
	return dg_queue_open(dev, depth, path, spin_ns, op_timeout_ns, &l->q);
}

UNUSED static void fix_regions(struct fix *f, size_t size, uint64_t spin_ns)
{
	memset(f, 0, sizeof(*f));
	f->dev = device_spinning(spin_ns);
	f->size = size;
	f->gpu = !strcmp(provider, "cuda");
	f->local_bytes = pages(size);
	f->remote_bytes = f->gpu ? gpu_pages(size) : pages(size);
	f->local = registered(f->dev, f->local_bytes, size, RW);
	f->source = f->gpu ? registered_gpu(f->dev, f->remote_bytes, size, RW)
			   : registered(f->dev, f->remote_bytes, size, RW);
	f->remote = imported(f->dev, f->source, RW);
	f->l = id_of(f->local);
	f->r = id_of(f->remote);
}

UNUSED static void fix_close(struct fix *f)
{
	if (f->q) {
		CHECK_EQ(dg_queue_close(f->q), 0);
		dg_queue_free(f->q);
	}
	CHECK_EQ(dg_device_close(f->dev, PATIENCE), 0);
	CHECK_EQ(munmap(f->local_bytes, f->size), 0);
	if (f->gpu)
		gpu_free(f->remote_bytes);
	else
		CHECK_EQ(munmap(f->remote_bytes, f->size), 0);
}

/* Returns false if path `inline` is requested and the provider does not copy inline. */
UNUSED static bool fix_try(struct fix *f, size_t size, uint32_t depth, uint32_t path)
{
	int rc;

	fix_regions(f, size, 0);
	rc = test_queue_open(&f->tq, f->dev, depth, path, 20000, 20 * SECOND);
	if (rc == -EOPNOTSUPP && path == DG_PATH_INLINE) {
		fix_close(f);
		return false;
	}
	CHECK_EQ(rc, 0);
	f->q = f->tq.q;
	return true;
}

UNUSED static void fix_open(struct fix *f, size_t size, uint32_t depth)
{
	CHECK(fix_try(f, size, depth, DG_PATH_WORKER));
}

/* Calls body for each path that the provider has. */
UNUSED static void each_path(size_t size, uint32_t depth, void (*body)(struct fix *f, uint32_t path))
{
	for (uint32_t path = DG_PATH_AUTO; path <= DG_PATH_WORKER; path++) {
		struct fix f;

		if (!fix_try(&f, size, depth, path))
			continue;
		body(&f, path);
		fix_close(&f);
	}
}

UNUSED static dg_wr record(const struct fix *f, uint32_t op, uint64_t size, uint64_t local_offset,
			   uint64_t remote_offset)
{
	return (dg_wr){ .op = op, .local = f->l, .remote = f->r, .size = size,
			.local_offset = local_offset, .remote_offset = remote_offset };
}

UNUSED static struct transfer begin_wr(struct test_queue *l, const dg_wr *wr, uint32_t n)
{
	struct transfer t = { 0 };

	t.ticket = dg_transfer_post_wr(l->q, wr, n, &t.wc);
	return t;
}

UNUSED static struct transfer begin(struct test_queue *l, const dg_wr *wr)
{
	struct transfer t = { 0 };

	t.ticket = dg_transfer_post(l->q, wr->op, wr->local, wr->remote, wr->size, wr->local_offset,
				    wr->remote_offset, wr->flags, &t.wc);
	return t;
}

/* Takes the completion into t->wc. Returns 0, -ETIME or another negative errno. */
UNUSED static int take(struct transfer *t, uint64_t timeout_ns)
{
	int rc;

	if (t->ticket <= 0)
		return (int)t->ticket;
	rc = dg_transfer_wait(t->ticket, timeout_ns, &t->wc);
	if (!rc)
		t->ticket = 0;
	return rc;
}

/* Posts a transfer, waits for it and returns its completion. */
UNUSED static dg_wc done(struct test_queue *l, const dg_wr *wr)
{
	struct transfer t = begin(l, wr);

	CHECK(t.ticket >= 0);
	CHECK_EQ(take(&t, 30 * SECOND), 0);
	return t.wc;
}

/* Runs tests of the provider verbs. Without an RDMA device runs only the first test, which needs
 * none. The probe is not deep, because a deep probe would open the devices before the other process
 * is forked. */
static UNUSED int run_verbs_tests(int argc, char **argv)
{
	provider = "verbs";
	if (!getenv("DG_ONLY_PROVIDER") && dg_provider_probe("verbs", false)) {
		printf("-- of %zu tests one runs: %s\n", n_tests, dg_last_error());
		n_tests = 1;
	}
	return run_tests(argc, argv);
}

/* Runs the tests with the current provider. Runs none if DG_ONLY_PROVIDER names another provider
 * (Valgrind is slow). */
UNUSED static int run_over(int argc, char **argv)
{
	const char *needs = wrapped ? wrapped : provider, *chosen = getenv("DG_ONLY_PROVIDER");

	if (chosen && strcmp(chosen, needs))
		return CHECK_SKIPPED;
	printf("-- %s%s%s\n", provider, wrapped ? " over " : "", wrapped ? wrapped : "");
	/* The probe is not deep: each test is a child process, and CUDA must not be initialized
	 * before the fork. */
	if (dg_provider_probe(needs, false)) {
		printf("skip %s: %s\n", needs, dg_last_error());
		/* softdoca is built with the tests, so it must be available. */
		return getenv("DG_NO_SKIP") && !strcmp(needs, "softdoca") ? 1 : CHECK_SKIPPED;
	}
	return run_tests(argc, argv);
}

#ifdef __SANITIZE_THREAD__
#define IS_SLOW true
#else
#define IS_SLOW (getenv("DG_EMULATOR") != NULL) /* also Valgrind */
#endif

/* Runs the tests with each provider of this build in turn, and with fault wrapping softdoca. The
 * latter takes half of the time, and is left out where all is slow: the wrapper is the same C for
 * every provider, test_fault has its threads, and AddressSanitizer runs it. */
UNUSED static int run_over_providers(int argc, char **argv)
{
	int failed = 0, skipped = 0, i = 0;

	for (bool last = false; !last; i++) {
		int rc;

		provider = dg_provider_name(i);
		last = !provider;
		if (last) {
			if (IS_SLOW)
				break;
			provider = "fault";
			wrapped = "softdoca";
		}
		rc = run_over(argc, argv);
		failed += rc && rc != CHECK_SKIPPED;
		skipped += rc == CHECK_SKIPPED;
	}
	return failed ? 1 : skipped == i ? CHECK_SKIPPED : 0;
}

#endif
