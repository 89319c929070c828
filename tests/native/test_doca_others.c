/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes with softdoca: one exports with DOCA, the other imports, also as if from another
 * machine. */
#include "share/descriptor.h"
#include "two_sides.h"

#define SIZE (8u << 20)
#define BIG (256u << 20)
#define DEPTH 16

/* The exporter fills its memory with a pattern, sends the descriptor, and then executes
 * commands. */
enum { LEAVE, FILL, CLOSE };

/* Takes the locks that the share server's thread takes, so that ThreadSanitizer sees an order:
 * it does not see order through another process. */
static void take_locks(dg_device *dev)
{
	uint8_t byte;

	CHECK_EQ(dg_region_close(registered(dev, &byte, 1, RW), PATIENCE), 0);
}

static void lend(int fd, const dg_memory *m)
{
	dg_device *dev = device_spinning(0);
	dg_region *r;
	struct token token;

	fill(m->addr, m->size, 1);
	r = exportable(dev, m);
	token = export_of(r, RW);
	say(fd, &token, sizeof(token));
	for (int what; (what = hear_int(fd)) != LEAVE;) {
		if (what == FILL) {
			take_locks(dev);
			fill(m->addr, m->size, 2);
			take_locks(dev);
		} else {
			CHECK_EQ(dg_region_close(r, PATIENCE), 0);
		}
		say_int(fd, 0);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

static void lend_plain(int fd)
{
	const dg_memory m = plain_memory(pages(SIZE), SIZE);

	lend(fd, &m);
}

static void lend_sealed(int fd)
{
	const dg_memory m = sealed_memory(SIZE);

	lend(fd, &m);
}

static void lend_big(int fd)
{
	const dg_memory m = plain_memory(pages(BIG), BIG);

	lend(fd, &m);
}

static void lend_by_soft(int fd)
{
	provider = "soft";
	lend_plain(fd);
}

static void lend_sealed_by_soft(int fd)
{
	provider = "soft";
	lend_sealed(fd);
}

static void lend_as_host(int fd)
{
	setenv("SOFTDOCA_SIDE", "host", 1);
	lend_plain(fd);
}

static void command(struct other o, int what)
{
	say_int(o.fd, what);
	CHECK_EQ(hear_int(o.fd), 0);
}

static void leave(struct other o)
{
	say_int(o.fd, LEAVE);
	join(o);
}

static struct other borrow(void (*side)(int fd), struct token *t)
{
	struct other o = start(side);

	hear(o.fd, t, sizeof(*t));
	return o;
}

static void check_read(struct fix *f, size_t size, unsigned seed)
{
	dg_wr wr = record(f, DG_READ, size, 11, 7);
	dg_wc wc;

	memset(f->local_bytes, 0xee, f->size);
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 30 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	check_pattern(f->local_bytes + 11, 7, size, seed);
	CHECK_EQ(f->local_bytes[10], 0xee);
	CHECK_EQ(f->local_bytes[11 + size], 0xee);
}

/* Reads, writes and reads again, each larger than one task. */
static void exchange(struct fix *f, struct other o)
{
	dg_wr wr = record(f, DG_WRITE, SIZE / 2, 100, 0);

	for (size_t size = 1; size < SIZE - 32; size = 7 * size + 1)
		check_read(f, size, 1);
	fill(f->local_bytes, SIZE, 5);
	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	memset(f->local_bytes, 0, SIZE);
	wr.op = DG_READ;
	wr.local_offset = 0;
	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	check_pattern(f->local_bytes, 100, SIZE / 2, 5);
	command(o, FILL);
	check_read(f, SIZE - 32, 2);
}

TEST(bytes_go_both_ways_through_docas_export)
{
	for (enum how how = BY_VM; how <= BY_PROXY; how++) {
		struct token token;
		struct other o;
		struct fix f;

		if (!choose(how))
			continue;
		o = borrow(lend_plain, &token);
		import_fix(&f, &token, SIZE, 8);
		CHECK_EQ(info_of(f.remote).method, DG_METHOD_DOCA);
		CHECK_EQ(info_of(f.remote).peer_pid, o.pid);
		exchange(&f, o);
		fix_close(&f);
		leave(o);
	}
}

TEST(a_host_and_a_dpu_function_meet)
{
	struct token token;
	struct other o = borrow(lend_as_host, &token);
	struct fix f;

	setenv("SOFTDOCA_SIDE", "dpu", 1);
	import_fix(&f, &token, SIZE, 8);
	exchange(&f, o);
	fix_close(&f);
	leave(o);
}

TEST(a_function_that_cannot_import_says_so)
{
	struct token token;
	struct other o = borrow(lend_plain, &token);
	dg_device *dev;
	dg_region *r;

	dev = device_of("side=both pci=0000:05:00.0 ibdev=mlx5_5 caps=dma,export\n");
	CHECK_EQ(dg_region_import(dev, token.bytes, token.len, SECOND, &r), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "import");
	CHECK_EQ(dg_device_close(dev, 0), 0);
	leave(o);
}

TEST(memory_that_soft_lends_is_reached_if_it_can_be_mapped)
{
	struct token token;
	struct other o = borrow(lend_sealed_by_soft, &token);
	dg_device *dev;
	dg_region *r;
	struct fix f;

	import_fix(&f, &token, SIZE, 8);
	CHECK_EQ(info_of(f.remote).method, DG_METHOD_MAP);
	exchange(&f, o);
	fix_close(&f);
	leave(o);
	o = borrow(lend_by_soft, &token);
	dev = device_spinning(0);
	CHECK_EQ(dg_region_import(dev, token.bytes, token.len, SECOND, &r), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "Device('softdoca')");
	CHECK_EQ(dg_device_close(dev, 0), 0);
	leave(o);
}

TEST(what_softdoca_lends_soft_reaches_as_before)
{
	struct token token;
	struct other o = borrow(lend_sealed, &token);
	struct fix f;

	provider = "soft";
	import_fix(&f, &token, SIZE, 8);
	CHECK_EQ(info_of(f.remote).method, DG_METHOD_MAP);
	exchange(&f, o);
	fix_close(&f);
	leave(o);
}

/* Returns the descriptor as if of another machine, without a share server to contact. */
static struct dg_descriptor from_other_machine(const struct token *t)
{
	struct dg_descriptor d;

	CHECK_EQ(dg_descriptor_parse(t->bytes, t->len, &d), 0);
	d.boot_id[0] ^= 1;
	return d;
}

static int import_other_machine(dg_device *dev, struct dg_descriptor d, dg_region **r)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	int len = dg_descriptor_pack(&d, buf, sizeof(buf));

	CHECK(len > 0);
	return dg_region_import(dev, buf, len, PATIENCE, r);
}

TEST(memory_of_another_machine_is_reached_without_a_share_server)
{
	struct dg_descriptor d;
	struct token token;
	struct other o = borrow(lend_plain, &token);
	struct fix f;
	dg_wr wr;
	int status;

	d = from_other_machine(&token);
	token.len = dg_descriptor_pack(&d, token.bytes, sizeof(token.bytes));
	CHECK(token.len > 0);
	import_fix(&f, &token, SIZE, 8);
	CHECK_EQ(info_of(f.remote).method, DG_METHOD_DOCA);
	CHECK_EQ(info_of(f.remote).peer_pid, 0);
	exchange(&f, o);
	/* Only DOCA knows about a revocation on another machine. */
	command(o, CLOSE);
	wr = record(&f, DG_READ, 64, 0, 0);
	status = done(&f.tq, &wr).status;
	CHECK_EQ(status, DG_IO_FAILED);
	CHECK_EQ(info_of(f.remote).revoked, 0);
	fix_close(&f);
	leave(o);
}

TEST(an_altered_descriptor_of_another_machine_opens_nothing)
{
	struct dg_descriptor d, good;
	struct token token;
	struct other o = borrow(lend_plain, &token);
	dg_device *dev = device_spinning(0);
	dg_region *r = NULL;

	good = d = from_other_machine(&token);
	d.blob[3] ^= 1; /* the address */
	CHECK_EQ(import_other_machine(dev, d, &r), -EBADMSG);
	d = good;
	d.size *= 2;
	CHECK_EQ(import_other_machine(dev, d, &r), -EBADMSG);
	d = good;
	d.blob_length = 8;
	CHECK_EQ(import_other_machine(dev, d, &r), -EBADMSG);
	d.blob_length = 0;
	CHECK_EQ(import_other_machine(dev, d, &r), -EXDEV);
	d = good;
	strcpy((char *)d.provider, "doca");
	CHECK_EQ(import_other_machine(dev, d, &r), -EXDEV);
	CHECK_SAYS(dg_last_error(), "machine");
	for (uint32_t i = 8; i < good.blob_length; i++) {
		d = good;
		d.blob[i] ^= 1u << i % 8;
		CHECK(import_other_machine(dev, d, &r) < 0);
		CHECK(!r);
	}
	CHECK_EQ(import_other_machine(dev, good, &r), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	leave(o);
}

static void post_all(struct fix *f, struct transfer *t)
{
	dg_wr wr = record(f, DG_READ, BIG, 0, 0);

	for (uint32_t i = 0; i < DEPTH; i++) {
		t[i] = begin(&f->tq, &wr);
		CHECK(t[i].ticket >= DG_TICKET);
	}
}

TEST(an_exporter_that_dies_under_transfers_ends_them)
{
	for (enum how how = BY_VM; how <= BY_PROXY; how++) {
		struct transfer t[DEPTH];
		struct token token;
		struct other o;
		struct fix f;
		dg_wr wr;

		if (!choose(how))
			continue;
		o = borrow(lend_big, &token);
		import_fix(&f, &token, BIG, DEPTH);
		post_all(&f, t);
		CHECK_EQ(take(&t[0], 5 * MS), -ETIME);
		kill_and_reap(o);
		for (uint32_t i = 0; i < DEPTH; i++) {
			CHECK_EQ(take(&t[i], 30 * SECOND), 0);
			CHECK(t[i].wc.status == DG_OK || t[i].wc.status == DG_PEER_LOST);
		}
		CHECK_EQ(t[DEPTH - 1].wc.status, DG_PEER_LOST);
		/* The queue still works with other memory. */
		CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
		f.source = registered(f.dev, f.remote_bytes, BIG, RW);
		f.remote = imported(f.dev, f.source, RW);
		f.r = id_of(f.remote);
		wr = record(&f, DG_WRITE, 4096, 0, 0);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		fix_close(&f);
	}
}

static void busy_importer(int fd)
{
	struct transfer t[DEPTH];
	struct token token;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, BIG, DEPTH);
	post_all(&f, t);
	say_int(fd, info_of(f.remote).method);
	for (uint32_t i = 0; i < DEPTH; i++) {
		CHECK_EQ(take(&t[i], 60 * SECOND), 0);
		say_int(fd, t[i].wc.status);
	}
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
}

static void export_to(struct other importer, dg_device **dev, dg_region **region)
{
	const dg_memory m = plain_memory(pages(BIG), BIG);
	struct token token;

	*dev = device_spinning(0);
	*region = exportable(*dev, &m);
	token = export_of(*region, RW);
	say(importer.fd, &token, sizeof(token));
	CHECK_EQ(hear_int(importer.fd), DG_METHOD_DOCA);
}

TEST(a_region_revoked_under_transfers_is_free_soon)
{
	struct other importer = start(busy_importer);
	int status = DG_OK;
	dg_device *dev;
	dg_region *region;

	export_to(importer, &dev, &region);
	CHECK_EQ(dg_region_close(region, 10 * SECOND), 0);
	for (uint32_t i = 0; i < DEPTH; i++) {
		status = hear_int(importer.fd);
		CHECK(status == DG_OK || status == DG_REMOTE_ACCESS_ERROR);
	}
	CHECK_EQ(status, DG_REMOTE_ACCESS_ERROR);
	join(importer);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(an_importer_that_is_killed_holds_nothing)
{
	struct other importer = start(busy_importer);
	dg_device *dev;
	dg_region *region;

	export_to(importer, &dev, &region);
	CHECK_EQ(info_of(region).importers, 1);
	CHECK_EQ(kill(importer.pid, SIGKILL), 0); /* not yet reaped */
	CHECK_EQ(dg_region_close(region, 10 * SECOND), 0);
	kill_and_reap(importer);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

int main(int argc, char **argv)
{
	provider = "softdoca";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	return run_with_own_folder(argc, argv);
}
