// SPDX-License-Identifier: Apache-2.0
/* The BARs that this process maps, and this process's locks in their tables. */
#include "share/bar.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37 /* <linux/fcntl.h> */
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dg_bar *bars;

void dg_bar_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_bar_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void dg_bar_forget_all(void)
{
	for (struct dg_bar *b = bars; b; b = b->next)
		close(b->fd);
	bars = NULL;
}

/* Locks or unlocks the bytes of a page's export or of a slot. Returns whether that succeeded. */
static bool set_lock(const struct dg_bar *b, uint32_t page, uint32_t slot, short type)
{
	uint32_t place = slot == BAR_SLOTS ? 0 : slot + 1;
	struct flock f = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = (off_t)(b->start + (uint64_t)BAR_PAGE * (page + 1) +
				   place * sizeof(struct bar_slot)),
		.l_len = sizeof(struct bar_slot),
	};
	return !fcntl(b->fd, F_OFD_SETLK, &f);
}

bool dg_bar_hold(struct dg_bar *b, uint32_t page, uint32_t slot)
{
	uint16_t bit = (uint16_t)(1u << slot);
	if ((b->held[page] & bit) || !set_lock(b, page, slot, F_WRLCK))
		return false;
	b->held[page] |= bit;
	return true;
}

void dg_bar_let_go(struct dg_bar *b, uint32_t page, uint32_t slot)
{
	b->held[page] &= (uint16_t)~(1u << slot);
	set_lock(b, page, slot, F_UNLCK);
}

/* Copies the header, which the other machine may change at any time, and checks the copy. */
static int check_header(struct dg_bar *b, uint64_t file_size, const uint8_t *id)
{
	struct bar_header h;
	memcpy(&h, b->base, sizeof h);
	if (h.magic != BAR_MAGIC)
		return dg_fail(EBADMSG, "this memory is not a BAR with a dgkit table");
	if (h.version != BAR_VERSION || h.pages != BAR_PAGES)
		return dg_fail(EPROTONOSUPPORT,
			       "the BAR has a table of version %u with %u pages, not version %u "
			       "with %u: use the same release of dgkit on both sides",
			       h.version, h.pages, BAR_VERSION, BAR_PAGES);
	if (h.size <= BAR_TABLE || h.size > INT64_MAX || (file_size && h.size > file_size))
		return dg_fail(EBADMSG,
			       "the BAR's header says %" PRIu64 " bytes, but the BAR has %" PRIu64,
			       h.size, file_size);
	if (id && memcmp(h.id, id, sizeof h.id))
		return dg_fail(EBADMSG, "this BAR is not the one of the descriptor");
	b->size = h.size;
	memcpy(b->id, h.id, sizeof b->id);
	return 0;
}

static int map_bar(struct dg_bar *b, uint64_t file_size)
{
	uint64_t size = b->whole ? file_size : BAR_TABLE;
	void *at = MAP_FAILED;
	if (size >= BAR_TABLE)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, (off_t)b->start);
	else
		errno = ENOSPC;
	if (at == MAP_FAILED)
		return dg_fail_errno("cannot map the %" PRIu64 " bytes of a BAR", size);
	b->base = at;
	b->mapped = size;
	/* A forked child has no use for the mapping, and would keep the parent's locks after the
	 * parent's end. */
	return madvise(at, size, MADV_DONTFORK)
		       ? dg_fail_errno("cannot exclude a BAR from forked children")
		       : 0;
}

static void bar_free(struct dg_bar *b)
{
	if (b->base)
		munmap(b->base, b->mapped);
	if (b->fd >= 0)
		close(b->fd);
	free(b);
}

static int bar_new(int fd, uint64_t start, uint64_t file_size, const uint8_t *id, bool whole,
		   struct dg_bar **out)
{
	char name[32];
	struct dg_bar *b = calloc(1, sizeof *b);
	if (!b)
		return dg_fail(ENOMEM, "out of memory for a BAR");
	b->whole = whole;
	b->start = start;
	b->refs = 1;
	/* A lock belongs to an open file description, so open a new one. */
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	b->fd = open(name, O_RDWR | O_CLOEXEC);
	int rc = b->fd < 0 ? dg_fail_errno("cannot open the file of a BAR again") : 0;
	if (!rc)
		rc = map_bar(b, file_size);
	if (!rc)
		rc = check_header(b, file_size, id);
	if (rc)
		bar_free(b);
	else
		*out = b;
	return rc;
}

int dg_bar_take(int fd, uint64_t start, uint64_t file_size, const uint8_t *id, bool whole,
		struct dg_bar **out)
{
	struct dg_bar *b = NULL;
	/* Locked from here on, so that a fork finds the file either in the list or not open. */
	dg_bar_lock();
	int rc = bar_new(fd, start, file_size, id, whole, &b);
	struct dg_bar *known = rc ? NULL : bars;
	while (known && (known->whole != whole || memcmp(known->id, b->id, sizeof b->id)))
		known = known->next;
	if (known) {
		known->refs++;
		bar_free(b);
	} else if (b) {
		b->next = bars;
		bars = b;
	}
	dg_bar_unlock();
	*out = known ? known : b;
	return rc;
}

void dg_bar_drop(struct dg_bar *b)
{
	dg_bar_lock();
	bool last = !--b->refs;
	struct dg_bar **at = &bars;
	while (last && *at && *at != b)
		at = &(*at)->next;
	if (last && *at)
		*at = b->next;
	dg_bar_unlock();
	if (last)
		bar_free(b);
}
