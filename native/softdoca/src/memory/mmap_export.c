// SPDX-License-Identifier: Apache-2.0
/*
 * Export descriptors: a header of softdoca, then dgkit's descriptor of the region. They are created
 * and parsed in this file only. The bytes are a capability: on import, size and access are taken
 * from the exporter's table, so altered bytes give no access. Sources: "DOCA Mmap" is the published
 * reference of that library; "guess" marks an assumption that no published source confirms.
 */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT_MAGIC   0x41434f4454464f53ull /* "SOFTDOCA" */
#define EXPORT_VERSION 2
#define IMPORT_NS      ((uint64_t)5000000000)

/* Little-endian, no padding. */
struct export_header {
	uint64_t magic;
	uint16_t version, length; /* length: total */
	uint32_t checksum; /* FNV-1a over `length` bytes, with this field set to 0 */
	uint8_t kind, backing;
	uint8_t adapter; /* 1: the key is an RDMA adapter's, and dgkit's descriptor is left out */
	uint8_t reserved;
	uint32_t key; /* of EXPORT_RDMA: its rkey, and the NIC that has it */
	uint64_t addr, size; /* in the exporter */
	uint8_t gid[16];
};
_Static_assert(sizeof(struct export_header) == 56, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the struct is the format");

struct parsed {
	struct export_header h;
	const uint8_t *region; /* dgkit's descriptor */
	size_t region_len;
};

static uint32_t checksum_of(const uint8_t *bytes, size_t len)
{
	const size_t at = offsetof(struct export_header, checksum);
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < len; i++)
		h = (h ^ (i - at < sizeof(uint32_t) ? 0 : bytes[i])) * 16777619u;
	return h;
}

/* ---- export ---- */

/* Returns the dg_access that an export of this kind gives to peers; 0 if the permissions have no
 * flag for it. */
static uint32_t exported_access(uint32_t permissions, enum export_kind kind)
{
	const uint32_t both = DG_ACCESS_READ | DG_ACCESS_WRITE;
	uint32_t access = 0;
	if (kind == EXPORT_PCI) {
		if (permissions & DOCA_ACCESS_FLAG_PCI_READ_WRITE)
			return both;
		return permissions & DOCA_ACCESS_FLAG_PCI_READ_ONLY ? DG_ACCESS_READ : 0;
	}
	if (permissions & DOCA_ACCESS_FLAG_RDMA_ATOMIC)
		return both;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_READ)
		access |= DG_ACCESS_READ;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_WRITE)
		access |= DG_ACCESS_WRITE;
	return access;
}

/* A map from an export for PCI has no flags for RDMA, and none can be set: NVIDIA's application
 * "storage" exports one for RDMA. That what PCI allows is allowed is a guess. */
uint32_t mmap_rdma_permissions(const struct doca_mmap *m)
{
	if (!m->from_export)
		return m->permissions;
	uint32_t permissions = 0;
	if (m->permissions & (DOCA_ACCESS_FLAG_PCI_READ_ONLY | DOCA_ACCESS_FLAG_PCI_READ_WRITE))
		permissions |= DOCA_ACCESS_FLAG_RDMA_READ;
	if (m->permissions & DOCA_ACCESS_FLAG_PCI_READ_WRITE)
		permissions |= DOCA_ACCESS_FLAG_RDMA_WRITE | DOCA_ACCESS_FLAG_RDMA_ATOMIC;
	return permissions;
}

doca_error_t export_failed(int rc, const char *func)
{
	doca_error_t e = softdoca_failed(func, rc);
	switch (-rc) {
	case EBADMSG:
	case EINVAL:
	case EPROTONOSUPPORT:
		return DOCA_ERROR_INVALID_VALUE;
	case EMEDIUMTYPE: /* GPU memory that no other process can import */
	case EXDEV:
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	if (e == DOCA_ERROR_NO_MEMORY || e == DOCA_ERROR_NOT_SUPPORTED ||
	    e == DOCA_ERROR_NOT_PERMITTED)
		return e;
	return DOCA_ERROR_DRIVER;
}

static doca_error_t make_descriptor(struct doca_mmap *m, struct attachment *a,
				    enum export_kind kind, const char *func)
{
	uint8_t bytes[EXPORT_DESC_MAX];
	struct export_header h = {
		.magic = EXPORT_MAGIC,
		.version = EXPORT_VERSION,
		.kind = (uint8_t)kind,
		.backing = (uint8_t)m->backing,
		.adapter = dev_is_adapter(a->dev),
		.addr = (uint64_t)(uintptr_t)m->addr,
		.size = m->len,
	};
	dg_region *r = m->backing == BACKING_GPU ? a->gpu : a->host;
	if (!r) /* guess: the same error as for a stopped map */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map is not completely stopped because "
							"a transfer was in flight: stop it again");
	if (kind == EXPORT_RDMA) {
		TRY(softdoca_mmap_remote_key(m, &h.key, h.gid));
	}
	const struct export_bytes *d = &a->desc[EXPORT_PCI];
	int len = 0;
	if (m->from_export)
		memcpy(bytes + sizeof h, d->bytes, len = (int)d->len); /* the exporter's region */
	else if (!h.adapter)
		len = dg_region_export(r, exported_access(m->permissions, kind), bytes + sizeof h,
				       sizeof bytes - sizeof h);
	if (len < 0)
		return export_failed(len, func);
	h.length = (uint16_t)(sizeof h + (size_t)len);
	memcpy(bytes, &h, sizeof h);
	h.checksum = checksum_of(bytes, h.length);
	memcpy(bytes, &h, sizeof h);
	uint8_t *kept = malloc(h.length);
	if (!kept)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an export descriptor");
	memcpy(kept, bytes, h.length);
	a->desc[kind] = (struct export_bytes){kept, h.length};
	return DOCA_SUCCESS;
}

static doca_error_t may_export(const struct doca_mmap *m, const struct doca_dev *dev,
			       enum export_kind kind)
{
	/* DOCA Mmap, doca_mmap_export_pci and _rdma */
	if (m->from_export && (kind == EXPORT_PCI || m->key))
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map was created from an export for %s",
			      m->key ? "RDMA" : "PCI");
	if (!mmap_started(m))
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map is not started");
	if (!softdoca_mmap_attachment(m, dev))
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the map does not have %s", dev->info.f.pci);
	if (kind == EXPORT_PCI && !(dev->info.f.caps & CAP_EXPORT_PCI))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s cannot export", dev->info.f.pci);
	const struct doca_dev *first = m->attached[0].dev;
	if (kind == EXPORT_RDMA && dev != first && (dev_is_adapter(dev) || dev_is_adapter(first)))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the map's key is for its first device, %s, which is not %s",
			      first->info.f.ibdev, dev->info.f.ibdev);
	if (!exported_access(kind == EXPORT_RDMA ? mmap_rdma_permissions(m) : m->permissions, kind))
		return REFUSE(DOCA_ERROR_NOT_PERMITTED,
			      "permissions %#x give %s peers no access: add one for them",
			      m->permissions, kind == EXPORT_PCI ? "PCI" : "RDMA");
	/* the error that DOCA 3.2 was observed to return */
	if (kind == EXPORT_PCI && (m->permissions & DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a map with PCI_RELAXED_ORDERING cannot be exported for PCI");
	return DOCA_SUCCESS;
}

static doca_error_t export_map(struct doca_mmap *m, const struct doca_dev *dev,
			       enum export_kind kind, struct export_bytes *out, const char *func)
{
	mmap_lock(m);
	doca_error_t e = may_export(m, dev, kind);
	struct attachment *a = e ? NULL : softdoca_mmap_attachment(m, dev);
	if (a && !a->desc[kind].bytes)
		e = make_descriptor(m, a, kind, func);
	if (!e) {
		*out = a->desc[kind];
		m->exported = true;
	}
	mmap_unlock(m);
	return e;
}

static doca_error_t export_to(struct doca_mmap *m, const struct doca_dev *dev, const void **desc,
			      size_t *len, enum export_kind kind, const char *func)
{
	CHECK_MMAP(m);
	CHECK_DEV(dev);
	CHECK_OUT(desc);
	CHECK_OUT(len);
	struct export_bytes out = {0};
	TRY(export_map(m, dev, kind, &out, func));
	*desc = out.bytes;
	*len = out.len;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev,
				  const void **export_desc, size_t *export_desc_len)
{
	return export_to(mmap, dev, export_desc, export_desc_len, EXPORT_PCI, __func__);
}

doca_error_t doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev,
				   const void **export_desc, size_t *export_desc_len)
{
	return export_to(mmap, dev, export_desc, export_desc_len, EXPORT_RDMA, __func__);
}

/* ---- import ---- */

/* Checks everything that does not need the exporter. Bytes after the descriptor are ignored,
 * because programs send a buffer of fixed size (guess). */
static doca_error_t parse(const uint8_t *bytes, size_t len, struct parsed *out)
{
	struct export_header *h = &out->h;
	if (len < sizeof *h)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes are too few for an export descriptor", len);
	memcpy(h, bytes, sizeof *h);
	if (h->magic != EXPORT_MAGIC)
		return REFUSE(
			DOCA_ERROR_INVALID_VALUE,
			"not an export descriptor of softdoca: it does not begin with SOFTDOCA");
	if (h->version != EXPORT_VERSION)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the descriptor has version %u, not %u",
			      h->version, EXPORT_VERSION);
	if (h->length > len || h->length < sizeof *h + !h->adapter || h->length > EXPORT_DESC_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a truncated or altered descriptor: its length is %u, %zu bytes were "
			      "passed",
			      h->length, len);
	if (checksum_of(bytes, h->length) != h->checksum)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "an altered descriptor: its checksum does not match");
	if (h->kind >= EXPORT_KINDS || h->adapter > (h->kind == EXPORT_RDMA) ||
	    (h->backing != BACKING_HOST && h->backing != BACKING_GPU))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "the descriptor has the unknown kind %u or memory %u", h->kind,
			      h->backing);
	if (!h->addr || !h->size || h->addr + h->size < h->size || h->addr + h->size > UINTPTR_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "the descriptor has an invalid range: %llu bytes at %#llx",
			      (unsigned long long)h->size, (unsigned long long)h->addr);
	out->region = bytes + sizeof *h;
	out->region_len = h->length - sizeof *h;
	return DOCA_SUCCESS;
}

static void set_place(struct doca_mmap *m, const struct export_header *h)
{
	m->key = h->key;
	memcpy(m->gid, h->gid, sizeof m->gid);
	m->backing = h->backing;
	m->addr = (char *)(uintptr_t)h->addr;
	m->len = h->size;
}

/* Sets the attributes from the exporter's table. */
static doca_error_t describe(struct doca_mmap *m, const struct parsed *p, dg_region *r)
{
	const bool pci = p->h.kind == EXPORT_PCI;
	dg_region_info info;
	int rc = dg_region_info_get(r, &info);
	if (rc)
		return export_failed(rc, "doca_mmap_create_from_export");
	if (info.size != p->h.size)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "an altered descriptor: %llu bytes, the exporter has %llu",
			      (unsigned long long)p->h.size, (unsigned long long)info.size);
	m->writable = info.access & DG_ACCESS_WRITE;
	m->permissions = 0;
	if (info.access & DG_ACCESS_READ)
		m->permissions |= pci ? DOCA_ACCESS_FLAG_PCI_READ_ONLY : DOCA_ACCESS_FLAG_RDMA_READ;
	if (m->writable)
		m->permissions |=
			pci ? DOCA_ACCESS_FLAG_PCI_READ_WRITE : DOCA_ACCESS_FLAG_RDMA_WRITE;
	set_place(m, &p->h);
	return DOCA_SUCCESS;
}

static doca_error_t import_map(struct doca_mmap *m, const struct parsed *p, struct doca_dev *dev)
{
	struct attachment *a = &m->attached[0];
	if (p->h.adapter) {
		set_place(m, &p->h);
		return DOCA_SUCCESS;
	}
	const bool gpu = p->h.backing == BACKING_GPU;
	dg_device *engine = gpu ? softdoca_dev_gpu(dev, NULL) : dev->engine;
	if (!engine)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "the export is GPU memory, and no GPU can "
							"be used here");
	uint8_t *kept = malloc(p->region_len);
	if (!kept)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an import");
	memcpy(kept, p->region, p->region_len);
	a->desc[0] = (struct export_bytes){kept, p->region_len};
	dg_region **r = gpu ? &a->gpu : &a->host;
	int rc = dg_region_import(engine, kept, p->region_len, IMPORT_NS, r);
	/* An adapter checks the key of an export for RDMA where it is used: the exporter may be gone. */
	if (rc == -ENOTCONN && p->h.kind == EXPORT_RDMA) {
		set_place(m, &p->h);
		return DOCA_SUCCESS;
	}
	if (rc)
		return export_failed(rc, "doca_mmap_create_from_export");
	return describe(m, p, *r);
}

static doca_error_t create(const struct parsed *p, struct doca_dev *dev,
			   const union doca_data *user_data, struct doca_mmap **out)
{
	struct doca_mmap *m = mmap_new();
	if (!m)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a memory map");
	m->from_export = true;
	m->attached[m->n_attached++] = (struct attachment){.dev = dev};
	atomic_fetch_add(&dev->users, 1);
	if (user_data)
		m->user_data = *user_data;
	doca_error_t e = import_map(m, p, dev);
	if (e) {
		doca_mmap_destroy(m);
		return e;
	}
	/* release: see mmap_started() */
	__atomic_store_n(&m->state, MMAP_STARTED, __ATOMIC_RELEASE);
	*out = m;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
					  size_t export_desc_len, struct doca_dev *dev,
					  struct doca_mmap **mmap)
{
	CHECK_OUT(export_desc);
	CHECK_OUT(export_desc_len);
	CHECK_DEV(dev);
	CHECK_OUT(mmap);
	struct parsed p;
	TRY(parse(export_desc, export_desc_len, &p));
	/* DOCA Mmap, doca_mmap_create_from_export */
	if (p.h.kind == EXPORT_PCI && !(dev->info.f.caps & CAP_FROM_EXPORT_PCI))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s cannot use an export for PCI",
			      dev->info.f.pci);
	if (p.h.adapter != dev_is_adapter(dev)) /* DOCA Mmap: invalid input */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the descriptor is for %s, and %s is not one",
			      p.h.adapter ? "an RDMA adapter" : "a function of softdoca",
			      dev->info.f.ibdev);
	return create(&p, dev, user_data, mmap);
}
