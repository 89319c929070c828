/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory in a PCI BAR. A file serves both as the host's memory and as the BAR of the other
 * machine's device, and a descriptor with another boot id counts as one of another machine.
 */
#include <sys/stat.h>

#include "share/bar.h"
#include "share/descriptor.h"
#include "two_sides.h"

#define SIZE (64u << 20)
#define BIG (32u << 20)
#define DEPTH 16
#define MY_BYTES 8192

static char folder[] = P_tmpdir "/dgkit-bar-XXXXXX";
static char bar_path[160];

static void put(const char *name, const void *content, size_t n)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/0000:00:01.0/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, content, n), (ssize_t)n);
	close(fd);
}

static struct bar_header header(void)
{
	return (struct bar_header){ .magic = BAR_MAGIC, .version = BAR_VERSION, .pages = BAR_PAGES,
				    .size = SIZE, .id = "an id of 16 byte" };
}

static void remove_bar(void)
{
	char command[160];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	CHECK_EQ(system(command), 0);
}

/* Creates the device with an empty BAR. */
static void make_bar(void)
{
	struct bar_header h = header();
	char path[128];

	CHECK(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/0000:00:01.0", folder);
	CHECK_EQ(mkdir(path, 0700), 0);
	put("vendor", "0x1af4\n", 7);
	put("device", "0x1110\n", 7);
	put("resource2_wc", &h, sizeof(h));
	snprintf(bar_path, sizeof(bar_path), "%s/resource2_wc", path);
	CHECK_EQ(truncate(bar_path, SIZE), 0);
	dg_bar_devices = folder;
}

static dg_memory bar_memory(uint64_t offset, size_t size)
{
	dg_memory m = { .size = size, .fd = open(bar_path, O_RDWR | O_CLOEXEC), .fd_offset = offset,
			.kind = DG_KIND_BAR };

	CHECK(m.fd >= 0);
	m.addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, (off_t)offset);
	CHECK(m.addr != MAP_FAILED);
	return m;
}

/* Makes a descriptor appear to be from another machine, and changes its blob. */
static struct token far_with(struct token t, void (*change)(struct dg_descriptor *d, struct bar_blob *b))
{
	struct dg_descriptor d;
	struct bar_blob b;

	CHECK_EQ(dg_descriptor_parse(t.bytes, (size_t)t.len, &d), 0);
	CHECK_EQ(d.blob_length, sizeof(b));
	memcpy(&b, d.blob, sizeof(b));
	d.boot_id[0] ^= 1;
	if (change)
		change(&d, &b);
	memcpy(d.blob, &b, sizeof(b));
	t.len = dg_descriptor_pack(&d, t.bytes, sizeof(t.bytes));
	CHECK(t.len > 0);
	return t;
}

static struct token far(dg_region *r, uint32_t access)
{
	return far_with(export_of(r, access), NULL);
}

struct host {
	dg_device *dev;
	dg_memory memory;
	dg_region *region;
};

static void host_open(struct host *h, uint64_t offset, size_t size)
{
	h->dev = device_spinning(0);
	h->memory = bar_memory(offset, size);
	h->region = exportable(h->dev, &h->memory);
}

static void host_close(struct host *h)
{
	CHECK_EQ(dg_device_close(h->dev, PATIENCE), 0);
	CHECK_EQ(munmap(h->memory.addr, h->memory.size), 0);
	close(h->memory.fd);
}

/* Creates a BAR, and a host that has registered the first bytes after its table. */
static void bar_open(struct host *h)
{
	make_bar();
	host_open(h, BAR_TABLE, MY_BYTES);
}

static void bar_close(struct host *h)
{
	host_close(h);
	remove_bar();
}

static int import_error(const struct token *t)
{
	dg_device *dev = device_spinning(0);
	dg_region *r;
	int rc = dg_region_import(dev, t->bytes, (size_t)t->len, PATIENCE, &r);

	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	return rc;
}

TEST(the_other_machine_reads_and_writes)
{
	struct host h;
	struct token t;
	struct fix f;
	dg_wr wr;

	bar_open(&h);
	fill(h.memory.addr, MY_BYTES, 1);
	t = far(h.region, RW);
	import_fix(&f, &t, MY_BYTES, DEPTH);
	CHECK_EQ(info_of(f.remote).method, DG_METHOD_BAR);
	CHECK_EQ(info_of(f.remote).size, MY_BYTES);
	CHECK_EQ(info_of(h.region).importers, 1);
	wr = record(&f, DG_READ, MY_BYTES, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	check_pattern(f.local_bytes, 0, MY_BYTES, 1);
	fill(f.local_bytes, MY_BYTES, 2);
	wr = record(&f, DG_WRITE, 4093, 0, 3);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	CHECK_EQ(((uint8_t *)h.memory.addr)[2], pattern(2, 1));
	for (size_t i = 0; i < 4093; i++)
		CHECK_EQ(((uint8_t *)h.memory.addr)[i + 3], pattern(i, 2));
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
	CHECK_EQ(info_of(h.region).importers, 0);
	fix_close(&f);
	bar_close(&h);
}

TEST(a_revoked_region_refuses_the_next_write)
{
	struct host h, other;
	struct token t;
	struct fix f;
	dg_wr wr;

	bar_open(&h);
	t = far(h.region, RW);
	import_fix(&f, &t, MY_BYTES, DEPTH);
	wr = record(&f, DG_WRITE, MY_BYTES, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	CHECK_EQ(dg_region_close(h.region, PATIENCE), 0);
	memset(h.memory.addr, 0x5a, MY_BYTES);
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(info_of(f.remote).revoked, 1);
	/* Exporting the same bytes again creates another export: the first import stays revoked. */
	host_open(&other, BAR_TABLE, MY_BYTES);
	far(other.region, RW);
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	for (size_t i = 0; i < MY_BYTES; i++)
		CHECK_EQ(((uint8_t *)h.memory.addr)[i], 0x5a);
	CHECK_EQ(import_error(&t), -ENOKEY);
	fix_close(&f);
	host_close(&other);
	bar_close(&h);
}

static void busy_importer(int fd)
{
	struct transfer t[DEPTH];
	struct token token;
	dg_wr wr;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, BIG, DEPTH);
	wr = record(&f, DG_WRITE, BIG, 0, 0);
	for (uint32_t i = 0; i < DEPTH; i++)
		t[i] = begin(&f.tq, &wr);
	say_int(fd, 0);
	for (uint32_t i = 0; i < DEPTH; i++) {
		CHECK_EQ(take(&t[i], 60 * SECOND), 0);
		say_int(fd, t[i].wc.status);
	}
}

TEST(a_region_revoked_under_transfers_is_free_at_once)
{
	struct other importer;
	struct host h;
	struct token t;
	int status = DG_OK;

	make_bar();
	importer = start(busy_importer);
	host_open(&h, BAR_TABLE, BIG);
	t = far(h.region, RW);
	say(importer.fd, &t, sizeof(t));
	CHECK_EQ(hear_int(importer.fd), 0);
	CHECK_EQ(dg_region_close(h.region, 10 * SECOND), 0);
	memset(h.memory.addr, 0x5a, BIG);
	for (uint32_t i = 0; i < DEPTH; i++) {
		status = hear_int(importer.fd);
		CHECK(status == DG_OK || status == DG_REMOTE_ACCESS_ERROR);
	}
	CHECK_EQ(status, DG_REMOTE_ACCESS_ERROR);
	join(importer);
	for (size_t i = 0; i < BIG; i += 509)
		CHECK_EQ(((uint8_t *)h.memory.addr)[i], 0x5a);
	bar_close(&h);
}

static void forge_key(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)d;
	b->key[1] ^= 1;
}

static void move_range(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)d;
	b->offset += 4096;
}

static void grow_range(struct dg_descriptor *d, struct bar_blob *b)
{
	d->size = b->size += 1;
}

static void grow_size(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)b;
	d->size++;
}

static void widen_access(struct dg_descriptor *d, struct bar_blob *b)
{
	d->access = b->access = RW;
}

static void name_no_page(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)d;
	b->page = BAR_PAGES;
}

static void name_free_page(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)d;
	b->page++;
}

static void name_zero_key(struct dg_descriptor *d, struct bar_blob *b)
{
	name_free_page(d, b);
	memset(b->key, 0, sizeof(b->key));
}

static void name_other_bar(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)d;
	b->id[0]++;
}

static void cut_blob(struct dg_descriptor *d, struct bar_blob *b)
{
	(void)b;
	d->blob_length--;
}

TEST(an_edited_descriptor_opens_nothing)
{
	static const struct {
		void (*change)(struct dg_descriptor *d, struct bar_blob *b);
		int rc;
	} edits[] = {
		{ forge_key, -ENOKEY },	     { move_range, -EBADMSG },	 { grow_range, -EBADMSG },
		{ grow_size, -EBADMSG },     { widen_access, -EBADMSG }, { name_no_page, -EBADMSG },
		{ name_free_page, -ENOKEY }, { name_zero_key, -ENOKEY }, { name_other_bar, -EXDEV },
		{ cut_blob, -EBADMSG },
	};
	struct host h;
	struct token t;

	bar_open(&h);
	t = export_of(h.region, DG_ACCESS_READ);
	for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
		struct token edited = far_with(t, edits[i].change);

		CHECK_EQ(import_error(&edited), edits[i].rc);
	}
	CHECK_EQ(info_of(h.region).importers, 0);
	t = far_with(t, NULL);
	CHECK_EQ(import_error(&t), 0);
	bar_close(&h);
}

TEST(an_import_to_read_writes_nothing)
{
	struct host h;
	struct token t;
	struct fix f;
	dg_wr wr;

	bar_open(&h);
	t = far(h.region, DG_ACCESS_READ);
	import_fix(&f, &t, MY_BYTES, DEPTH);
	wr = record(&f, DG_WRITE, 64, 0, 0);
	CHECK_EQ(begin(&f.tq, &wr).ticket, -EACCES);
	wr = record(&f, DG_READ, 64, 0, MY_BYTES - 63);
	CHECK_EQ(begin(&f.tq, &wr).ticket, -ERANGE);
	fix_close(&f);
	bar_close(&h);
}

/* Maps the table for writing, as the other machine does. */
static struct bar_page *table_of(const struct host *h)
{
	void *at = mmap(NULL, BAR_TABLE, PROT_READ | PROT_WRITE, MAP_SHARED, h->memory.fd, 0);

	CHECK(at != MAP_FAILED);
	return (struct bar_page *)at + 1;
}

static uint64_t damaged_offset, damaged_size;

static void name_damage(struct dg_descriptor *d, struct bar_blob *b)
{
	b->offset = damaged_offset;
	d->size = b->size = damaged_size;
}

TEST(a_damaged_table_opens_nothing)
{
	static const uint64_t ranges[][2] = {
		{ SIZE - 64, 65 }, { SIZE + 1, 1 }, { BAR_TABLE - 1, 64 }, { BAR_TABLE, SIZE },
		{ UINT64_MAX, 2 }, { BAR_TABLE, UINT64_MAX },
	};
	struct host h;
	struct token t, edited;

	bar_open(&h);
	t = export_of(h.region, RW);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		damaged_offset = ranges[i][0];
		damaged_size = ranges[i][1];
		atomic_store(&table_of(&h)->export.offset, damaged_offset);
		atomic_store(&table_of(&h)->export.size, damaged_size);
		edited = far_with(t, name_damage);
		CHECK_EQ(import_error(&edited), -EBADMSG);
		CHECK_SAYS(dg_last_error(), "damaged");
	}
	CHECK_EQ(dg_region_close(h.region, PATIENCE), 0);
	bar_close(&h);
}

TEST(a_wrong_header_is_no_bar)
{
	struct bar_header wrong[4] = { header(), header(), header(), header() };
	const int rc[] = { -EXDEV, -EPROTONOSUPPORT, -EXDEV, -EXDEV };
	struct host h;
	struct token t;

	bar_open(&h);
	t = far(h.region, RW);
	wrong[0].magic++;
	wrong[1].version++;
	wrong[2].size = SIZE + 1;
	wrong[3].size = BAR_TABLE;
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(pwrite(h.memory.fd, &wrong[i], sizeof(wrong[i]), 0), sizeof(wrong[i]));
		CHECK_EQ(import_error(&t), rc[i]);
	}
	CHECK_EQ(ftruncate(h.memory.fd, BAR_TABLE / 2), 0);
	CHECK(import_error(&t) < 0);
	CHECK_EQ(ftruncate(h.memory.fd, SIZE), 0);
	bar_close(&h);
}

TEST(a_full_table_is_named)
{
	dg_region *regions[BAR_PAGES], *imports[BAR_SLOTS], *one_more;
	struct token t = { 0 };
	struct host h;

	bar_open(&h);
	for (uint32_t i = 0; i < BAR_PAGES; i++) {
		regions[i] = exportable(h.dev, &h.memory);
		t = far(regions[i], RW);
	}
	CHECK_EQ(dg_region_export(h.region, RW, t.bytes, sizeof(t.bytes)), -EMFILE);
	CHECK_SAYS(dg_last_error(), "room for 127 exports");
	t = far(regions[0], RW); /* exporting the same region again uses no other page */
	for (uint32_t i = 0; i < BAR_SLOTS; i++)
		imports[i] = import_of(h.dev, &t);
	CHECK_EQ(info_of(regions[0]).importers, BAR_SLOTS);
	CHECK_EQ(dg_region_import(h.dev, t.bytes, (size_t)t.len, SECOND, &one_more), -EMFILE);
	CHECK_SAYS(dg_last_error(), "15 importers");
	CHECK_EQ(dg_region_close(imports[3], PATIENCE), 0);
	imports[3] = import_of(h.dev, &t);
	/* After the close, its page stays in use until the last importer has closed, too. */
	CHECK_EQ(dg_region_close(regions[0], PATIENCE), 0);
	CHECK_EQ(dg_region_export(h.region, RW, t.bytes, sizeof(t.bytes)), -EMFILE);
	for (uint32_t i = 0; i < BAR_SLOTS; i++)
		CHECK_EQ(dg_region_close(imports[i], PATIENCE), 0);
	CHECK(dg_region_export(h.region, RW, t.bytes, sizeof(t.bytes)) > 0);
	bar_close(&h);
}

/* Imports a region and stays in the middle of a transfer forever. */
static void stuck_importer(int fd)
{
	struct token token;
	dg_device *dev;
	dg_region *r;

	hear(fd, &token, sizeof(token));
	dev = device_spinning(0);
	r = import_of(dev, &token);
	gate_enter(r->entry->gate, 1);
	say_int(fd, 0);
	for (;;)
		pause();
}

/* Imports a token and closes the import. */
static void next_importer(int fd)
{
	struct token token;

	hear(fd, &token, sizeof(token));
	say_int(fd, import_error(&token));
}

TEST(a_killed_importer_is_named_until_another_one_comes)
{
	struct other stuck, next;
	struct host h;
	struct token t;
	char text[64];

	make_bar();
	stuck = start(stuck_importer);
	next = start(next_importer);
	host_open(&h, BAR_TABLE, MY_BYTES);
	t = far(h.region, RW);
	say(stuck.fd, &t, sizeof(t));
	CHECK_EQ(hear_int(stuck.fd), 0);
	kill_and_reap(stuck);
	CHECK_EQ(dg_region_close(h.region, SECOND / 50), -EBUSY);
	snprintf(text, sizeof(text), "process %d of this machine", (int)stuck.pid);
	CHECK_SAYS(dg_last_error(), text);
	say(next.fd, &t, sizeof(t));
	CHECK_EQ(hear_int(next.fd), -ENOKEY);
	join(next);
	CHECK_EQ(dg_region_close(h.region, PATIENCE), 0);
	bar_close(&h);
}

static void exporter(int fd)
{
	struct host h;
	struct token t;

	host_open(&h, BAR_TABLE, MY_BYTES);
	t = far(h.region, RW);
	say(fd, &t, sizeof(t));
	for (;;)
		pause();
}

/* Exports other bytes, so that the table is scanned. */
static void next_exporter(int fd)
{
	struct host h;

	hear_int(fd);
	host_open(&h, BAR_TABLE + MY_BYTES, MY_BYTES);
	far(h.region, RW);
	say_int(fd, 0);
	hear_int(fd);
	host_close(&h);
}

TEST(a_killed_exporter_is_lost_once_another_one_comes)
{
	struct other first, next;
	struct token t;
	struct fix f;
	dg_wr wr;

	make_bar();
	first = start(exporter);
	next = start(next_exporter);
	hear(first.fd, &t, sizeof(t));
	import_fix(&f, &t, MY_BYTES, DEPTH);
	wr = record(&f, DG_WRITE, MY_BYTES, 0, 0);
	kill_and_reap(first);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK); /* these bytes are still free */
	CHECK_EQ(info_of(f.remote).lost, 0);
	say_int(next.fd, 0);
	CHECK_EQ(hear_int(next.fd), 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(info_of(f.remote).lost, 1);
	CHECK_EQ(import_error(&t), -ENOKEY);
	say_int(next.fd, 0);
	join(next);
	fix_close(&f);
	remove_bar();
}

TEST(memory_that_leaves_the_bar_is_refused)
{
	dg_device *dev;
	dg_memory m;
	dg_region *r;

	make_bar();
	dev = device_spinning(0);
	m = bar_memory(BAR_TABLE, MY_BYTES);
	m.fd_offset = SIZE - MY_BYTES + 1;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -ERANGE);
	m.fd_offset = BAR_TABLE - 1;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -ERANGE);
	m.fd_offset = BAR_TABLE;
	m.block = 4096; /* no header there */
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EBADMSG);
	close(m.fd);
	m.fd = -1;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EINVAL);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	dev = device_spinning(0);
	dev->mapped_kinds = false; /* as of a provider that does not copy with the CPU */
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "memory in a testbed's PCI BAR is for the provider soft");
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	CHECK_EQ(munmap(m.addr, MY_BYTES), 0);
	remove_bar();
}

TEST(processes_of_one_machine_share_it_without_the_bar)
{
	struct host h;
	struct token t;
	struct fix f;
	dg_wr wr;

	bar_open(&h);
	fill(h.memory.addr, MY_BYTES, 1);
	t = export_of(h.region, RW);
	import_fix(&f, &t, MY_BYTES, DEPTH);
	CHECK_EQ(info_of(f.remote).method, DG_METHOD_MAP); /* its own memory */
	wr = record(&f, DG_READ, MY_BYTES, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	check_pattern(f.local_bytes, 0, MY_BYTES, 1);
	fix_close(&f);
	bar_close(&h);
}

TEST_MAIN(run_with_own_folder)
