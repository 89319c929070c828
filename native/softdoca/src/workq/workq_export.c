// SPDX-License-Identifier: Apache-2.0
/* Export descriptors of maps. In DOCA 1.3 they are texts of JSON, which programs send as such, and
 * of which they read the members addr and len. The current descriptor is a member in base64. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workq.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
#define MEMBER   "\"softdoca\": \""
#define TEXT_MAX (EXPORT_DESC_MAX * 4 / 3 + 96)

static void encode_base64(const uint8_t *from, size_t n, char *to)
{
	for (size_t i = 0; i < n; i += 3) {
		uint32_t bits = (uint32_t)from[i] << 16;
		bits |= i + 1 < n ? (uint32_t)from[i + 1] << 8 : 0;
		bits |= i + 2 < n ? from[i + 2] : 0;
		for (int shift = 18; shift >= 0; shift -= 6)
			*to++ = digits[bits >> shift & 63];
	}
	*to = '\0';
}

/* Returns the number of bytes: up to two more than were encoded, which are 0. Stops at the first
 * other character. */
static size_t decode(const char *from, size_t n, uint8_t *to, size_t cap)
{
	size_t bytes = 0;
	for (size_t i = 0; i + 4 <= n && bytes + 3 <= cap; i += 4, bytes += 3) {
		uint32_t bits = 0;
		for (int k = 0; k < 4; k++) {
			const char *digit = from[i + k] ? strchr(digits, from[i + k]) : NULL;
			if (!digit)
				return bytes;
			bits = bits << 6 | (uint32_t)(digit - digits);
		}
		to[bytes] = (uint8_t)(bits >> 16);
		to[bytes + 1] = (uint8_t)(bits >> 8);
		to[bytes + 2] = (uint8_t)bits;
	}
	return bytes;
}

static doca_error_t may_export(const struct wq_mmap *m, const struct doca_dev *dev,
			       const char *func)
{
	const char *why = NULL;
	doca_error_t error = DOCA_ERROR_NOT_PERMITTED; /* Mmap 1.5 */
	uint32_t i = 0;
	while (i < m->n_devs && m->devs[i] != dev)
		i++;
	if (!m->started || m->exported || m->from_export) {
		why = !m->started ? "it is not started" : "it was exported or is from an export";
	} else if (i == m->n_devs) {
		why = "it does not have the device";
		error = DOCA_ERROR_INVALID_VALUE; /* Mmap 1.5 */
	} else if (m->n_chunks != 1) {
		why = "it does not have one range of memory";
		error = DOCA_ERROR_NOT_SUPPORTED; /* Mmap 1.5: only one can be imported */
	}
	if (!why)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, error, "the map cannot be exported: %s", why);
}

DOCA_STABLE doca_error_t doca_mmap_export(struct wq_mmap *mmap, const struct doca_dev *dev,
					  void **export_desc, size_t *export_desc_len)
{
	CHECK_WQ_MMAP(mmap);
	CHECK_DEV(dev);
	CHECK_OUT(export_desc);
	CHECK_OUT(export_desc_len);
	TRY(may_export(mmap, dev, __func__));
	const struct chunk *c = mmap->chunks;
	const void *bytes;
	size_t len;
	TRY(doca_mmap_export_pci(c->map, dev, &bytes, &len));
	char *text = malloc(TEXT_MAX);
	if (!text)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a descriptor");
	int n = snprintf(text, TEXT_MAX, "{\"addr\": %" PRIu64 ", \"len\": %zu, " MEMBER,
			 (uint64_t)(uintptr_t)c->addr, c->len);
	encode_base64(bytes, len, text + n);
	strcat(text, "\"}");
	mmap->exported = true;
	*export_desc = text;
	*export_desc_len = strlen(text) + 1;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_mmap_export_dpu(struct wq_mmap *mmap, const struct doca_dev *dev,
					      const void **export_desc, size_t *export_desc_len)
{
	CHECK_OUT(export_desc);
	void *text;
	doca_error_t e = doca_mmap_export(mmap, dev, &text, export_desc_len);
	if (!e) {
		free(mmap->export_desc); /* of before the map was stopped */
		*export_desc = mmap->export_desc = text;
	}
	return e;
}

static doca_error_t import_export(const char *text, size_t n, struct doca_dev *dev,
				  struct wq_mmap *m)
{
	uint8_t bytes[EXPORT_DESC_MAX + 3];
	const char *at = memmem(text, n, MEMBER, strlen(MEMBER));
	if (!at)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes that are not a descriptor of softdoca", n);
	at += strlen(MEMBER);
	size_t len = decode(at, n - (size_t)(at - text), bytes, sizeof bytes);
	struct doca_mmap *map;
	TRY(doca_mmap_create_from_export(NULL, bytes, len, dev, &map));
	void *addr;
	size_t size;
	doca_error_t e = doca_mmap_get_memrange(map, &addr, &size);
	if (!e)
		e = wq_mmap_add(m, addr, size, false);
	if (e)
		doca_mmap_destroy(map);
	else
		m->chunks->map = map;
	return e;
}

DOCA_STABLE doca_error_t wq_mmap_create_from_export(const union doca_data *user_data,
						    const void *export_desc, size_t export_desc_len,
						    struct doca_dev *dev, struct wq_mmap **mmap)
{
	CHECK_DEV(dev);
	CHECK_OUT(export_desc);
	CHECK_OUT(mmap);
	struct wq_mmap *m = wq_mmap_new();
	if (!m)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a memory map");
	doca_error_t e = import_export(export_desc, export_desc_len, dev, m);
	if (e) {
		softdoca_object_free(m);
		return e;
	}
	m->started = m->from_export = true;
	if (user_data)
		m->user_data = *user_data;
	*mmap = m;
	return DOCA_SUCCESS;
}
EXPORT(mmap_create_from_export);

DOCA_STABLE doca_error_t softdoca_1_3_mmap_create_from_export(const char *name,
							      const void *export_desc,
							      size_t export_desc_len,
							      struct doca_dev *dev,
							      struct wq_mmap **mmap)
{
	(void)name;
	return wq_mmap_create_from_export(NULL, export_desc, export_desc_len, dev, mmap);
}
