// SPDX-License-Identifier: Apache-2.0
#include "share/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

#define HEADER offsetof(struct dg_descriptor, blob)

_Static_assert(sizeof(struct dg_descriptor) <= DG_DESCRIPTOR_MAX,
	       "a descriptor has at most DG_DESCRIPTOR_MAX bytes");
_Static_assert(sizeof(struct dg_descriptor) == DESCRIPTOR_FIXED + DESCRIPTOR_BLOB, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the struct is the format");

static uint32_t checksum(const uint8_t *p, size_t n)
{
	uint32_t h = 2166136261u;
	while (n--)
		h = (h ^ *p++) * 16777619u;
	return h;
}

static int nibble(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_boot_id(uint8_t out[16])
{
	char text[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return dg_fail_errno("cannot read /proc/sys/kernel/random/boot_id");
	ssize_t n = read(fd, text, sizeof text);
	close(fd);
	int digits = 0;
	memset(out, 0, 16);
	for (ssize_t i = 0; i < n && digits < 32; i++)
		if (nibble(text[i]) >= 0) {
			out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | nibble(text[i]));
			digits++;
		}
	return digits == 32 ? 0 : dg_fail(EIO, "/proc/sys/kernel/random/boot_id is not a UUID");
}

/* Read once, because opening the file takes 12 us, a fifth of an import. Threads that arrive first
 * at the same time each read it, and store the same bytes. */
int dg_boot_id(uint8_t out[16])
{
	static _Atomic uint64_t words[2];
	static atomic_bool known;
	/* Acquire and release: a thread that sees `known` sees both words. */
	if (!atomic_load_explicit(&known, memory_order_acquire)) {
		uint64_t read[2];
		TRY(read_boot_id((uint8_t *)read));
		for (int i = 0; i < 2; i++)
			atomic_store_explicit(&words[i], read[i], memory_order_relaxed);
		atomic_store_explicit(&known, true, memory_order_release);
	}
	for (int i = 0; i < 2; i++) {
		uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
		memcpy(out + 8 * i, &word, sizeof word);
	}
	return 0;
}

int dg_descriptor_pack(struct dg_descriptor *d, uint8_t *buf, size_t cap)
{
	d->magic = DESCRIPTOR_MAGIC;
	d->version = DG_VERSION;
	d->length = (uint16_t)(HEADER + d->blob_length);
	d->checksum = 0;
	if (cap < d->length)
		return dg_fail(ENOSPC,
			       "the descriptor has %u bytes, but the buffer only %zu: use "
			       "DG_DESCRIPTOR_MAX (%d)",
			       d->length, cap, DG_DESCRIPTOR_MAX);
	d->checksum = checksum((const uint8_t *)d, d->length);
	memcpy(buf, d, d->length);
	return d->length;
}

static int check_header(const struct dg_descriptor *d, size_t len)
{
	if (d->magic != DESCRIPTOR_MAGIC)
		return dg_fail(
			EBADMSG,
			"these bytes are not a dgkit descriptor (they do not begin with DGKIT)");
	if (d->version != DG_VERSION)
		return dg_fail(EPROTONOSUPPORT,
			       "the descriptor has version %u; this dgkit supports version %u: use "
			       "the same release of dgkit on both sides",
			       d->version, DG_VERSION);
	if (d->length != HEADER + (size_t)d->blob_length || d->length > sizeof *d)
		return dg_fail(EBADMSG,
			       "the descriptor was altered: its lengths contradict each other");
	if (d->length != len)
		return dg_fail(EBADMSG, "the descriptor has %u bytes, but %zu were given",
			       d->length, len);
	return 0;
}

int dg_descriptor_parse(const uint8_t *buf, size_t len, struct dg_descriptor *d)
{
	memset(d, 0, sizeof *d);
	if (len < HEADER)
		return dg_fail(EBADMSG,
			       "the descriptor is truncated: it has %zu bytes, the minimum is %zu",
			       len, HEADER);
	memcpy(d, buf, len < sizeof *d ? len : sizeof *d);
	TRY(check_header(d, len));
	uint32_t sum = d->checksum;
	d->checksum = 0;
	if (checksum((const uint8_t *)d, len) != sum)
		return dg_fail(EBADMSG, "the descriptor was altered: its checksum does not match");
	d->checksum = sum;
	if (!memchr(d->path, 0, sizeof d->path) || d->path[0] != '/')
		return dg_fail(EBADMSG,
			       "the descriptor was altered: its socket is not an absolute path");
	if (d->size == 0 || d->access == 0 || d->access > 3)
		return dg_fail(EBADMSG,
			       "the descriptor was altered: size %llu and access %u are invalid",
			       (unsigned long long)d->size, d->access);
	return 0;
}

int dg_descriptor_check(const uint8_t *desc, size_t len)
{
	struct dg_descriptor d;
	int rc = dg_descriptor_parse(desc, len, &d);
	return rc ? rc : d.length;
}
