/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests with two processes: a host that exports memory, and this process, which copies from and
 * to it like a DPU.
 */
#ifndef SOFTDOCA_PAIR_CHECK_H
#define SOFTDOCA_PAIR_CHECK_H

#include "doca_check.h"
#include "other_process.h"

/* What the host sends about its memory. */
struct offer {
	uint64_t addr, len, desc_len;
	uint8_t desc[512];
};

/* Tells the other side to end, and waits until it has ended successfully. */
UNUSED static void join(struct other o)
{
	int status;

	shutdown(o.fd, SHUT_WR);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status, 0);
	close(o.fd);
}

/* A host: exports `size` bytes of plain memory, filled with seed 5, until it is told to end. For
 * each byte that it receives before, it stops the map, and replies whether the memory is as filled
 * with seed 6. */
UNUSED static void export_and_wait(int fd, size_t size, uint32_t permissions)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = malloc(size), *want = malloc(size), asked;
	struct offer offer = { .addr = (uintptr_t)bytes, .len = size };
	struct doca_mmap *m;
	const void *desc;
	size_t desc_len;

	CHECK(bytes && want);
	fill(bytes, size, 5);
	fill(want, size, 6);
	m = a_started_map(dev, bytes, size, permissions);
	OK(doca_mmap_export_pci(m, dev, &desc, &desc_len));
	CHECK(desc_len <= sizeof(offer.desc));
	offer.desc_len = desc_len;
	memcpy(offer.desc, desc, desc_len);
	say(fd, &offer, sizeof(offer));
	if (hears(fd, &asked, 1)) {
		/* Takes the lock that is held during copies for others, so that TSan sees an
		 * order. */
		OK(doca_mmap_stop(m));

		uint8_t same = !memcmp(bytes, want, size);

		say(fd, &same, 1);
		CHECK(!hears(fd, &asked, 1));
	}
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
	free(bytes);
	free(want);
}

/* Imports the memory of the host into this process. */
UNUSED static struct doca_mmap *imported(struct rig *r, const struct offer *offer)
{
	struct doca_mmap *m;

	OK(doca_mmap_create_from_export(NULL, offer->desc, offer->desc_len, r->dev, &m));
	return m;
}

/* A buffer over n bytes of that memory, full or empty, at the host's own address. */
UNUSED static struct doca_buf *far_buf(struct rig *r, struct doca_mmap *m, const struct offer *offer,
				       size_t offset, size_t n, bool full)
{
	void *at = (void *)(uintptr_t)(offer->addr + offset);
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_args(r->inv, m, at, n, at, full ? n : 0, &b));
	return b;
}

/* Selects how importers reach memory that is not shared, in this process and those started later:
 * through the exporter's thread, or through the kernel where it permits that (otherwise through the
 * thread). */
UNUSED static void choose(bool by_thread)
{
	setenv("DGKIT_NO_PROCESS_VM", by_thread ? "1" : "0", 1);
	setenv("SOFTDOCA_SHARE_PROCESS", by_thread ? "0" : "1", 1);
}

#endif
