/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes with which another process imports a region. Only share/descriptor.c writes and parses
 * them. */
#ifndef DG_SHARE_DESCRIPTOR_H
#define DG_SHARE_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>

#include "dgkit.h"

#define DESCRIPTOR_MAGIC 0x54494b4744ull /* "DGKIT" */
#define DESCRIPTOR_PATH  108
#define DESCRIPTOR_FIXED 184 /* bytes before the blob */
#define DESCRIPTOR_BLOB  (DG_DESCRIPTOR_MAX - DESCRIPTOR_FIXED)

/* Little-endian, without padding. A descriptor is a capability: the key opens the region. Range and
 * access are determined by the exporter's table, not by these bytes; size and access are for
 * display and early errors. */
struct dg_descriptor {
	uint64_t magic;
	uint16_t version, length; /* length: of the descriptor with blob_length bytes of blob */
	/* FNV-1a over `length` bytes, with this field as 0: detects accidents, not forgery */
	uint32_t checksum;
	uint8_t boot_id[16];
	uint8_t key[16];
	uint64_t size;
	uint32_t access;
	uint16_t reserved, blob_length;
	char path[DESCRIPTOR_PATH];
	uint8_t provider[12]; /* the provider that wrote the blob */
	uint8_t blob[DESCRIPTOR_BLOB];
};

/* Reads this machine's boot id. */
int dg_boot_id(uint8_t out[16]);
/* Fills magic, version, length and checksum, copies the descriptor to buf and returns its length.
 * Errors: ENOSPC. */
int dg_descriptor_pack(struct dg_descriptor *d, uint8_t *buf, size_t cap);
/* Parses buf and checks everything that can be checked without contacting the exporter. Errors:
 * EBADMSG, EPROTONOSUPPORT. */
int dg_descriptor_parse(const uint8_t *buf, size_t len, struct dg_descriptor *d);

#endif
