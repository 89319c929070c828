/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor is untrusted input: however its bytes were changed, it is refused with the right
 * error. */
#include <errno.h>
#include <stddef.h>
#include <sys/resource.h>

#include "check.h"
#include "share/descriptor.h"

#define BLOB 9

static struct dg_descriptor good(void)
{
	struct dg_descriptor d = { .size = 4096, .access = DG_ACCESS_READ, .path = "/run/some/socket",
				   .provider = "soft", .blob = "ten bytes", .blob_length = BLOB };

	CHECK_EQ(dg_boot_id(d.boot_id), 0);
	memset(d.key, 0xa5, sizeof(d.key));
	return d;
}

static int packed(struct dg_descriptor d, uint8_t buf[DG_DESCRIPTOR_MAX])
{
	int len = dg_descriptor_pack(&d, buf, DG_DESCRIPTOR_MAX);

	CHECK(len > 0);
	return len;
}

/* Returns the error of a descriptor packed from these fields, with a valid checksum. */
static int verdict(struct dg_descriptor d)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];

	return dg_descriptor_check(buf, packed(d, buf));
}

TEST(a_good_one_is_accepted_and_says_its_length)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	int len = packed(good(), buf);

	CHECK_EQ(len, offsetof(struct dg_descriptor, blob) + BLOB);
	CHECK_EQ(dg_descriptor_check(buf, len), len);
}

TEST(what_was_packed_is_parsed)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	struct dg_descriptor want = good(), got;

	CHECK_EQ(dg_descriptor_parse(buf, packed(want, buf), &got), 0);
	CHECK_EQ(got.size, want.size);
	CHECK_EQ(got.access, want.access);
	CHECK_EQ(memcmp(got.key, want.key, sizeof(want.key)), 0);
	CHECK_EQ(memcmp(got.boot_id, want.boot_id, sizeof(want.boot_id)), 0);
	CHECK_EQ(memcmp(got.blob, want.blob, BLOB), 0);
	CHECK_EQ(strcmp(got.path, want.path), 0);
}

/* Without a free file descriptor the file cannot be read again. */
TEST(the_boot_id_is_read_once)
{
	uint8_t first[16], again[16];
	struct rlimit before, none;

	CHECK_EQ(dg_boot_id(first), 0);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	int rc = dg_boot_id(again);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
	CHECK_EQ(rc, 0);
	CHECK_EQ(memcmp(first, again, sizeof(first)), 0);
}

TEST(a_buffer_too_small_is_refused_and_not_written)
{
	struct dg_descriptor d = good();
	uint8_t buf[DG_DESCRIPTOR_MAX] = { 0 };

	CHECK_EQ(dg_descriptor_pack(&d, buf, offsetof(struct dg_descriptor, blob) + BLOB - 1), -ENOSPC);
	CHECK_EQ(buf[0], 0);
}

TEST(each_truncation_is_refused)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];

	for (int len = packed(good(), buf) - 1; len >= 0; len--) {
		uint8_t *exact = malloc(len ? len : 1); /* exact size, so that a sanitizer detects a read past the end */

		memcpy(exact, buf, len);
		CHECK_EQ(dg_descriptor_check(exact, len), -EBADMSG);
		free(exact);
	}
}

TEST(bytes_after_the_end_are_refused)
{
	uint8_t buf[2 * DG_DESCRIPTOR_MAX] = { 0 };
	int len = packed(good(), buf);

	CHECK_EQ(dg_descriptor_check(buf, len + 1), -EBADMSG);
	CHECK_EQ(dg_descriptor_check(buf, sizeof(buf)), -EBADMSG);
}

TEST(each_single_bit_altered_is_refused)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	int len = packed(good(), buf);

	for (int bit = 0; bit < 8 * len; bit++) {
		int rc;

		buf[bit / 8] ^= 1 << bit % 8;
		rc = dg_descriptor_check(buf, len);
		CHECK(rc == -EBADMSG || rc == -EPROTONOSUPPORT);
		buf[bit / 8] ^= 1 << bit % 8;
	}
	CHECK_EQ(dg_descriptor_check(buf, len), len);
}

TEST(other_versions_are_named)
{
	static const uint16_t versions[] = { 0, DG_VERSION + 1, 0xffff };
	uint8_t buf[DG_DESCRIPTOR_MAX];
	int len = packed(good(), buf);

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		memcpy(buf + offsetof(struct dg_descriptor, version), &versions[i], sizeof(versions[i]));
		CHECK_EQ(dg_descriptor_check(buf, len), -EPROTONOSUPPORT);
		CHECK_SAYS(dg_last_error(), "version");
	}
}

TEST(other_bytes_are_not_a_descriptor)
{
	uint8_t zeros[DG_DESCRIPTOR_MAX] = { 0 }, ones[DG_DESCRIPTOR_MAX];

	memset(ones, 0xff, sizeof(ones));
	CHECK_EQ(dg_descriptor_check(zeros, sizeof(zeros)), -EBADMSG);
	CHECK_EQ(dg_descriptor_check(ones, sizeof(ones)), -EBADMSG);
	CHECK_SAYS(dg_last_error(), "not a dgkit descriptor");
}

TEST(fields_without_sense_are_refused)
{
	struct dg_descriptor d = good();

	d.size = 0;
	CHECK_EQ(verdict(d), -EBADMSG);
	d = good();
	d.access = 0;
	CHECK_EQ(verdict(d), -EBADMSG);
	d.access = 4;
	CHECK_EQ(verdict(d), -EBADMSG);
	d = good();
	strcpy(d.path, "relative/socket");
	CHECK_EQ(verdict(d), -EBADMSG);
	memset(d.path, '/', sizeof(d.path));
	CHECK_EQ(verdict(d), -EBADMSG);
	CHECK_SAYS(dg_last_error(), "path");
}

/* Tries to import a descriptor. */
static int import_of(struct dg_descriptor d)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_device *dev = NULL;
	dg_region *region = NULL;
	int rc;

	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	rc = dg_region_import(dev, buf, packed(d, buf), PATIENCE, &region);
	CHECK(!region);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	return rc;
}

TEST(a_descriptor_of_another_machine_says_so)
{
	struct dg_descriptor d = good();

	d.boot_id[3] ^= 1;
	CHECK_EQ(import_of(d), -EXDEV);
	CHECK_SAYS(dg_last_error(), "machine");
}

TEST(a_descriptor_of_a_dead_process_says_that_it_is_gone)
{
	CHECK_EQ(import_of(good()), -ENOTCONN);
}

/* Exports real bytes, lets `alter` change the descriptor, and imports it. */
static int import_altered(void (*alter)(struct dg_descriptor *))
{
	static uint8_t bytes[4096];
	const dg_memory memory = { .addr = bytes, .size = sizeof(bytes), .fd = -1 };
	uint8_t buf[DG_DESCRIPTOR_MAX];
	struct dg_descriptor d;
	dg_device *dev = NULL;
	dg_region *region = NULL, *remote = NULL;
	int rc;

	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	CHECK_EQ(dg_region_register(dev, &memory, DG_ACCESS_READ, &region), 0);
	rc = dg_region_export(region, DG_ACCESS_READ, buf, sizeof(buf));
	CHECK(rc > 0);
	CHECK_EQ(dg_descriptor_parse(buf, rc, &d), 0);
	alter(&d);
	rc = dg_region_import(dev, buf, packed(d, buf), PATIENCE, &remote);
	if (rc == 0) {
		dg_region_info info;

		CHECK_EQ(dg_region_info_get(remote, &info), 0);
		CHECK_EQ(info.size, sizeof(bytes));
		CHECK_EQ(info.access, DG_ACCESS_READ);
		CHECK_EQ(dg_region_close(remote, 0), 0);
	}
	CHECK_EQ(dg_region_close(region, PATIENCE), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	return rc;
}

static void with_another_key(struct dg_descriptor *d)
{
	d->key[15] ^= 1;
}

static void asking_for_more(struct dg_descriptor *d)
{
	d->size *= 2;
	d->access = DG_ACCESS_READ | DG_ACCESS_WRITE;
}

TEST(a_key_that_the_exporter_does_not_know_opens_nothing)
{
	CHECK_EQ(import_altered(with_another_key), -ENOKEY);
}

/* Either refused, or opened with the size and access of the exporter's table (checked by
 * import_altered()). */
TEST(edited_size_and_access_gain_nothing)
{
	int rc = import_altered(asking_for_more);

	CHECK(rc == 0 || rc == -EBADMSG || rc == -EPERM);
}

TEST_MAIN(run_tests)
