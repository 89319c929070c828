// SPDX-License-Identifier: Apache-2.0
/* Bytes that are not an export descriptor, or are an altered one. */
#include "export_check.h"

/* In softdoca's descriptor and dgkit's inside it: where the checksum is, and where the inner one
 * starts. */
enum { SUM_AT = 12, INNER_AT = 56 };

static uint32_t fnv(const uint8_t *p, size_t n)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (i - SUM_AT < 4 ? 0 : p[i])) * 16777619u;
	return h;
}

/* Corrects both checksums. */
static void seal(struct desc *d)
{
	uint32_t sum = fnv(d->bytes + INNER_AT, d->len - INNER_AT);

	memcpy(d->bytes + INNER_AT + SUM_AT, &sum, sizeof(sum));
	sum = fnv(d->bytes, d->len);
	memcpy(d->bytes + SUM_AT, &sum, sizeof(sum));
}

struct victim {
	struct doca_dev *dev;
	struct doca_mmap *map;
	struct desc desc;
};

static struct victim a_victim(void)
{
	static char bytes[4096];
	struct victim v = {.dev = a_dev()};

	v.map = a_started_map(v.dev, bytes, sizeof(bytes), READ_WRITE | PCI_RO);
	v.desc = exported(v.map, v.dev);
	return v;
}

static void release(struct victim v)
{
	OK(doca_mmap_destroy(imported(&v.desc, v.dev))); /* the original descriptor still works */
	OK(doca_mmap_destroy(v.map));
	OK(doca_dev_close(v.dev)); /* and nothing of the others is left behind */
}

TEST(a_descriptor_cut_anywhere_is_refused)
{
	struct victim v = a_victim();

	for (size_t n = 0; n < v.desc.len; n++) {
		uint8_t *exact = malloc(n ? n : 1); /* a sanitizer detects reads past its end */

		memcpy(exact, v.desc.bytes, n);
		REFUSED(import_error(exact, n, v.dev), INVALID_VALUE);
		free(exact);
	}
	release(v);
}

TEST(a_descriptor_with_any_bit_flipped_is_refused)
{
	struct victim v = a_victim();

	for (size_t bit = 0; bit < v.desc.len * 8; bit++) {
		struct desc d = v.desc;

		d.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		REFUSED(import_error(d.bytes, d.len, v.dev), INVALID_VALUE);
	}
	release(v);
}

TEST(random_bytes_are_refused)
{
	struct victim v = a_victim();
	unsigned seed = 1;

	for (int i = 0; i < 20000; i++) {
		struct desc d = v.desc;
		size_t n = (size_t)rand_r(&seed) % DESC_MAX, from = (size_t)(i % 3) * 10;

		/* some begin as a descriptor does */
		for (size_t k = from; k < DESC_MAX; k++)
			d.bytes[k] = (uint8_t)rand_r(&seed);
		REFUSED(import_error(d.bytes, n, v.dev), INVALID_VALUE);
	}
	release(v);
}

/* With correct checksums an importer still gets no more than the exporter's table permits: its size
 * and access. */
TEST(an_altered_descriptor_with_right_checksums_opens_nothing_more)
{
	static const uint8_t values[] = {0, 1, 2, 3, 0x7f, 0x80, 0xff};
	struct victim v = a_victim();
	struct doca_mmap *m;
	unsigned taken = 0;
	size_t len;
	void *at;

	for (size_t i = 0; i < v.desc.len; i++)
		for (size_t k = 0; k < sizeof(values); k++) {
			struct desc d = v.desc;

			d.bytes[i] = values[k];
			seal(&d);
			if (doca_mmap_create_from_export(NULL, d.bytes, d.len, v.dev, &m))
				continue;
			taken++;
			OK(doca_mmap_get_memrange(m, &at, &len));
			CHECK_EQ(len, 4096);
			OK(doca_mmap_destroy(m));
		}
	CHECK(taken > 0); /* the address, or bytes without effect */
	release(v);
}

TEST(a_size_other_than_the_exporters_is_refused)
{
	static const uint64_t sizes[] = {0, 1, 4095, 4097, 1ull << 40, UINT64_MAX};
	enum { SIZE_AT = 32 };
	struct victim v = a_victim();
	struct desc d = v.desc;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memcpy(d.bytes + SIZE_AT, &sizes[i], sizeof(sizes[i]));
		seal(&d);
		REFUSED(import_error(d.bytes, d.len, v.dev), INVALID_VALUE);
	}
	release(v);
}

TEST(an_altered_access_does_not_make_it_writable)
{
	enum { INNER_ACCESS = INNER_AT + 56 };
	struct victim v = a_victim();
	struct desc d = v.desc;
	struct doca_mmap *far;
	struct rig r;

	CHECK_EQ(d.bytes[INNER_ACCESS], 1); /* read */
	d.bytes[INNER_ACCESS] = 3;
	seal(&d);
	rig_open(&r, SIZE, 4);
	far = imported(&d, r.dev);
	OK(doca_mmap_get_memrange(far, (void **)&r.to, &r.size));
	OK(doca_mmap_destroy(r.to_map));
	r.to_map = far;
	REFUSED(copied_at(&r, 0, 0, 64), IO_FAILED);
	run_until_idle(&r);
	OK(doca_mmap_destroy(far));
	OK(doca_mmap_destroy(r.from_map));
	OK(doca_dma_destroy(r.dma));
	OK(doca_pe_destroy(r.pe));
	OK(doca_buf_inventory_destroy(r.inv));
	OK(doca_dev_close(r.dev));
	release(v);
}

TEST(bytes_behind_a_descriptor_are_not_looked_at)
{
	struct victim v = a_victim();
	struct desc d = v.desc;

	memset(d.bytes + d.len, 0xaa, DESC_MAX - d.len);
	d.len = DESC_MAX;
	OK(doca_mmap_destroy(imported(&d, v.dev)));
	release(v);
}

TEST_MAIN(run_tests)
