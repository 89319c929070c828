/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of exports: a descriptor that a test may alter, its exporter and its importer. */
#ifndef SOFTDOCA_EXPORT_CHECK_H
#define SOFTDOCA_EXPORT_CHECK_H

#include "doca_check.h"

enum { SIZE = 1 << 16, DESC_MAX = 512 };

struct desc {
	size_t len;
	uint8_t bytes[DESC_MAX];
};

UNUSED static struct desc exported(struct doca_mmap *m, struct doca_dev *dev)
{
	struct desc d = {0}; /* initialize all of it, because tests send the whole struct */
	const void *bytes;

	OK(doca_mmap_export_pci(m, dev, &bytes, &d.len));
	CHECK(d.len <= DESC_MAX);
	memcpy(d.bytes, bytes, d.len);
	return d;
}

UNUSED static struct doca_mmap *imported(const struct desc *d, struct doca_dev *dev)
{
	struct doca_mmap *m;

	OK(doca_mmap_create_from_export(NULL, d->bytes, d->len, dev, &m));
	return m;
}

UNUSED static doca_error_t import_error(const void *bytes, size_t len, struct doca_dev *dev)
{
	struct doca_mmap *m = NULL;
	doca_error_t e = doca_mmap_create_from_export(NULL, bytes, len, dev, &m);

	CHECK(e == DOCA_SUCCESS || !m);
	return e;
}

#endif
