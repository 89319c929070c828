/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are refused, and what closing does to operations in flight. For each provider and
 * path. */
#include <pthread.h>

#include "fixture.h"
#include "provider.h"

#define HUGE_SIZE (1ull << 30)

static int post(struct fix *f, const dg_wr *wr)
{
	return dg_queue_post(f->q, wr, 1);
}

static void bounds(struct fix *f, uint32_t path)
{
	static const struct {
		uint64_t offset, size;
	} out[] = {
		{ 0, 4097 }, { 1, 4096 }, { 4095, 2 }, { 4096, 1 }, { 4097, 1 }, { 1ull << 63, 1 },
		{ 1ull << 63, 1ull << 63 }, { UINT64_MAX, 1 }, { UINT64_MAX, UINT64_MAX }, { 1, UINT64_MAX },
		{ 0, UINT64_MAX }, { 4096, UINT64_MAX - 4095 }, { 0, 1ull << 63 }, { 8, UINT64_MAX - 7 },
	};
	static const struct {
		uint64_t offset, size;
	} in[] = { { 0, 4096 }, { 4095, 1 }, { 1, 4095 }, { 0, 1 } };

	(void)path;
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
		dg_wr wr = record(f, DG_WRITE, out[i].size, out[i].offset, 0);
		dg_wc wc;

		CHECK_EQ(post(f, &wr), -ERANGE);
		wr = record(f, DG_WRITE, out[i].size, 0, out[i].offset);
		CHECK_EQ(post(f, &wr), -ERANGE);
		CHECK_EQ(dg_transfer_post(f->q, DG_READ, f->l, f->r, out[i].size, 0, out[i].offset, 0, &wc),
			 -ERANGE);
		CHECK_SAYS(dg_last_error(), "4,096");
		/* The same behind valid requests of one size: such a batch is checked as a whole. */
		dg_wr batch[4];
		for (size_t k = 0; k < 4; k++)
			batch[k] = record(f, DG_WRITE, 8, 0, 0);
		batch[2].local_offset = out[i].offset | 4096;
		CHECK_EQ(dg_queue_post(f->q, batch, 4), -ERANGE);
		batch[2].local_offset = 0;
		batch[3].remote_offset = out[i].offset | 4096;
		CHECK_EQ(dg_queue_post(f->q, batch, 4), -ERANGE);
	}
	for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
		dg_wr wr = record(f, DG_READ, in[i].size, in[i].offset, in[i].offset);

		CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	}
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(not_one_byte_outside_a_region_is_allowed)
{
	each_path(4096, 4, bounds);
}

/* Imports the remote bytes a second time. Returns the import's id. */
static uint32_t imported_again(struct fix *f)
{
	return id_of(imported(f->dev, f->source, RW));
}

/* Returns the name of a region in an error message. Valid until the next call. */
static const char *named(const char *side, uint32_t id)
{
	static char text[64];

	snprintf(text, sizeof(text), "%s region #%u:", side, id);
	return text;
}

static void nonsense(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 0, 0, 0);

	(void)path;
	CHECK_EQ(post(f, &wr), -ERANGE);
	wr = record(f, 4, 8, 0, 0);
	CHECK_EQ(post(f, &wr), -EINVAL);
	wr = record(f, DG_WRITE, 8, 0, 0);
	wr.flags = 4;
	CHECK_EQ(post(f, &wr), -EINVAL);
	wr.flags = 0;
	wr.remote = f->l;
	CHECK_EQ(post(f, &wr), -EINVAL);
	wr.remote = 0;
	CHECK_EQ(post(f, &wr), -ESTALE);
	wr.remote = UINT32_MAX;
	CHECK_EQ(post(f, &wr), -ESTALE);
	wr.remote = f->r ^ 1u << 20; /* another generation */
	CHECK_EQ(post(f, &wr), -ESTALE);
	CHECK_EQ(dg_queue_post(f->q, NULL, 0), 0);
}

TEST(records_without_sense_are_refused)
{
	each_path(4096, 4, nonsense);
}

/* dgkit.h: the local side is a registered region, or imported GPU memory. */
static void imported_on_the_local_side(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 64, 0, 1024);

	(void)path;
	wr.local = f->r;
	if (!f->gpu) {
		CHECK_EQ(post(f, &wr), -EINVAL);
		CHECK_SAYS(dg_last_error(), "the local side of a transfer must be a registered region");
		return;
	}
	memset(f->remote_bytes, 7, 64);
	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	CHECK_EQ(memcmp((char *)f->remote_bytes + 1024, f->remote_bytes, 64), 0);
	wr.remote = imported_again(f);
	wr.local_offset = 4090;
	CHECK_EQ(post(f, &wr), -ERANGE);
	CHECK_SAYS(dg_last_error(), named("local", wr.local));
	wr.local_offset = 0;
	wr.remote_offset = 4090;
	CHECK_EQ(post(f, &wr), -ERANGE);
	CHECK_SAYS(dg_last_error(), named("remote", wr.remote));
}

TEST(only_gpu_memory_that_is_imported_may_be_the_local_side)
{
	each_path(4096, 4, imported_on_the_local_side);
}

TEST(a_region_of_another_device_is_refused)
{
	struct fix f, g;
	dg_wr wr;

	fix_open(&f, 4096, 4);
	fix_open(&g, 4096, 4);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	wr.local = g.l;
	CHECK_EQ(post(&f, &wr), -EINVAL);
	CHECK_SAYS(dg_last_error(), "another device");
	wr.local = f.l;
	wr.remote = g.r;
	CHECK_EQ(post(&f, &wr), -EINVAL);
	fix_close(&g);
	fix_close(&f);
}

static void each_access(struct fix *f, uint32_t path)
{
	(void)path;
	for (uint32_t mine = 1; mine <= 3; mine++)
		for (uint32_t theirs = 1; theirs <= 3; theirs++)
			for (uint32_t op = DG_READ; op <= DG_WRITE; op++) {
				dg_region *local = registered(f->dev, f->local_bytes, 64, mine);
				dg_region *remote = imported(f->dev, f->source, theirs);
				uint32_t from = op == DG_WRITE ? mine : theirs, to = op == DG_WRITE ? theirs : mine;
				bool allowed = (from & DG_ACCESS_READ) && (to & DG_ACCESS_WRITE);
				dg_wr wr = record(f, op, 64, 0, 0);

				wr.local = id_of(local);
				wr.remote = id_of(remote);
				CHECK_EQ(info_of(remote).access, theirs);
				if (allowed)
					CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
				else
					CHECK_EQ(post(f, &wr), -EACCES);
				CHECK_EQ(dg_region_close(remote, 0), 0);
				CHECK_EQ(dg_region_close(local, 0), 0);
			}
}

TEST(access_flags_are_kept)
{
	each_path(4096, 4, each_access);
}

TEST(access_can_be_narrowed_and_never_widened)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_memory m = plain_memory(buf, sizeof(buf));
	dg_region *r;

	FIXTURE(fix, f, fix_regions, 4096, 0);
	m.flags = DG_MEMORY_READONLY;
	CHECK_EQ(dg_region_register(f.dev, &m, RW, &r), -EACCES);
	CHECK_EQ(dg_region_register(f.dev, &m, 0, &r), -EINVAL);
	CHECK_EQ(dg_region_register(f.dev, &m, 4, &r), -EINVAL);
	CHECK_EQ(dg_region_register(f.dev, &m, DG_ACCESS_READ, &r), 0);
	CHECK_EQ(dg_region_export(r, RW, buf, sizeof(buf)), -EACCES);
	CHECK_EQ(dg_region_export(r, 0, buf, sizeof(buf)), -EACCES);
	CHECK_EQ(dg_region_export(f.remote, DG_ACCESS_READ, buf, sizeof(buf)), -EINVAL);
	CHECK_EQ(dg_region_export(r, DG_ACCESS_READ, buf, 10), -ENOSPC);
	CHECK_EQ(dg_region_close(r, 0), 0);
	m.size = 0;
	CHECK_EQ(dg_region_register(f.dev, &m, RW, &r), -EINVAL);
	m = plain_memory(buf, UINT64_MAX);
	CHECK_EQ(dg_region_register(f.dev, &m, RW, &r), -ERANGE);
}

static void after_close(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 8, 0, 0);

	(void)path;
	CHECK_EQ(dg_region_close(f->local, 0), 0);
	CHECK_EQ(post(f, &wr), -ESTALE);
	CHECK_SAYS(dg_last_error(), "local region");
	wr.local = id_of(f->source);
	CHECK_EQ(dg_region_close(f->remote, 0), 0);
	CHECK_EQ(post(f, &wr), -ESTALE);
	CHECK_SAYS(dg_last_error(), "remote region");
}

TEST(a_closed_region_is_refused)
{
	each_path(4096, 4, after_close);
}

static void revoked(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 64, 0, 0);
	dg_wc wc;

	(void)path;
	CHECK_EQ(dg_region_close(f->source, 0), 0);
	memset(f->local_bytes, 1, 64);
	CHECK_EQ(info_of(f->remote).revoked, 1);
	wc = done(&f->tq, &wr);
	CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(wc.size, 0);
	for (int i = 0; i < 64; i++)
		CHECK_EQ(f->remote_bytes[i], 0);
	CHECK_EQ(dg_region_close(f->remote, 0), 0);
}

TEST(a_revoked_region_gives_errors_and_no_bytes)
{
	each_path(4096, 4, revoked);
}

static size_t huge(void)
{
	return strcmp(provider, "cuda") ? HUGE_SIZE : HUGE_SIZE / 32;
}

/* Posts more huge operations than any machine copies in a second. A GPU completes all operations
 * that it was given, however long that takes, so it gets only one. */
static void post_huge(struct fix *f, struct transfer *t, uint32_t n)
{
	dg_wr wr;

	fix_open(f, huge(), 16);
	wr = record(f, DG_WRITE, huge(), 0, 0);
	for (uint32_t i = 0; i < (f->gpu ? 1 : n); i++) {
		t[i] = begin(&f->tq, &wr);
		CHECK(t[i].ticket >= DG_TICKET);
	}
}

static void take_all(struct fix *f, struct transfer *t, uint32_t n, int status)
{
	for (uint32_t i = 0; i < (f->gpu ? 1 : n); i++) {
		CHECK_EQ(take(&t[i], 30 * SECOND), 0);
		CHECK_EQ(t[i].wc.status, f->gpu ? DG_OK : status);
		CHECK_EQ(t[i].wc.size, f->gpu ? huge() : 0);
	}
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

static void new_remote_memory(struct fix *f)
{
	if (f->gpu)
		gpu_free(f->remote_bytes);
	else
		CHECK_EQ(munmap(f->remote_bytes, f->size), 0);
	f->remote_bytes = f->gpu ? gpu_pages(f->size) : pages(f->size);
}

TEST(closing_the_exported_region_aborts_what_is_in_flight)
{
	struct transfer t[16];

	FIXTURE(fix, f, post_huge, t, 16);
	CHECK_EQ(dg_region_close(f.source, PATIENCE), 0);
	new_remote_memory(&f); /* no thread accesses it any more */
	take_all(&f, t, 16, DG_REMOTE_ACCESS_ERROR);
}

TEST(closing_the_local_region_aborts_what_is_in_flight)
{
	struct transfer t[16];

	FIXTURE(fix, f, post_huge, t, 16);
	CHECK_EQ(dg_region_close(f.local, PATIENCE), 0);
	CHECK_EQ(munmap(f.local_bytes, f.size), 0);
	f.local_bytes = pages(f.size);
	take_all(&f, t, 16, DG_LOCAL_ERROR);
}

TEST(closing_the_queue_flushes_what_is_in_flight)
{
	struct transfer t[16];
	uint64_t start;

	FIXTURE(fix, f, post_huge, t, 16);
	start = dg_now_ns();
	CHECK_EQ(dg_queue_close(f.q), 0);
	CHECK(dg_now_ns() - start < PATIENCE);
	/* The gates were left: the regions close without waiting, and their memory can be freed. */
	CHECK_EQ(dg_region_close(f.local, 0), 0);
	CHECK_EQ(dg_region_close(f.remote, 0), 0);
	/* An exporter's thread may still be handling the importer's connection request. */
	CHECK_EQ(dg_region_close(f.source, strcmp(provider, "verbs") ? 0 : 10 * SECOND), 0);
	take_all(&f, t, 16, DG_FLUSHED);
}

TEST(closing_the_imported_region_waits_and_may_be_called_again)
{
	struct transfer t[1];
	dg_wr wr;
	int rc;

	FIXTURE(fix, f, post_huge, t, 1);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	rc = dg_region_close(f.remote, 0);
	CHECK_EQ(rc, -EBUSY);
	CHECK_EQ(post(&f, &wr), -ESTALE);
	CHECK_EQ(dg_queue_close(f.q), 0); /* ends the wait */
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
	take_all(&f, t, 1, DG_FLUSHED);
}

/* One inline copy in another thread. */
struct copier {
	struct fix *f;
	dg_wr wr;
	dg_wc wc;
};

static void *copy_inline(void *arg)
{
	struct copier *c = arg;

	CHECK_EQ(dg_queue_run(c->f->q, &c->wr, 1, &c->wc, PATIENCE), 1);
	return NULL;
}

/* Closes the local or the exported region during a huge inline copy. Returns the copy's status. */
static int close_under_inline_copy(bool local)
{
	struct copier c;
	pthread_t thread;
	struct fix f;

	if (!fix_try(&f, HUGE_SIZE, 4, DG_PATH_INLINE))
		return -1;
	c = (struct copier){ .f = &f, .wr = record(&f, DG_WRITE, HUGE_SIZE, 0, 0) };
	CHECK_EQ(pthread_create(&thread, NULL, copy_inline, &c), 0);
	while (!atomic_load(&region_entry_at(REGION_INDEX(f.r))->gate->posted))
		; /* the copy has not started yet */
	CHECK_EQ(dg_region_close(local ? f.local : f.source, 20 * SECOND), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	fix_close(&f);
	return c.wc.status;
}

TEST(closing_a_region_aborts_an_inline_copy)
{
	int status = close_under_inline_copy(true);

	if (status < 0)
		return; /* this provider does not copy inline */
	CHECK_EQ(status, DG_LOCAL_ERROR);
	CHECK_EQ(close_under_inline_copy(false), DG_REMOTE_ACCESS_ERROR);
}

TEST(closing_the_device_closes_its_queues_and_regions)
{
	struct transfer t[16];

	FIXTURE(fix, f, post_huge, t, 16);
	CHECK_EQ(dg_device_close(f.dev, PATIENCE), 0);
	take_all(&f, t, 16, DG_FLUSHED);
	dg_queue_free(f.q);
	f.q = NULL;
	f.dev = device_spinning(0);
}

TEST(unknown_providers_are_named)
{
	dg_device *dev;

	CHECK_EQ(dg_device_open("nonesuch", NULL, &dev), -ENODEV);
	CHECK_SAYS(dg_last_error(), "nonesuch");
	CHECK_EQ(dg_last_reason(-ENODEV), DG_REASON_UNKNOWN_PROVIDER);
	CHECK_EQ(dg_last_reason(-EINVAL), EINVAL);
	CHECK_EQ(dg_device_open(NULL, NULL, &dev), -ENODEV);
	CHECK(!dev);
	CHECK(!dg_provider_name(1000));
}

TEST_MAIN(run_over_providers)
