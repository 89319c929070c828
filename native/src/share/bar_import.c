// SPDX-License-Identifier: Apache-2.0
/* The table of a BAR, on the machine where the BAR is that of a PCI device, and the search for that
 * device. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "share/bar.h"
#include "share/descriptor.h"

const char *dg_bar_devices = "/sys/bus/pci/devices";

/* Reads a file of a device's folder. Returns whether its first line is `text`. */
static bool says(const char *device, const char *name, const char *text)
{
	char path[384], line[16] = "";
	snprintf(path, sizeof path, "%s/%s/%s", dg_bar_devices, device, name);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool read = fgets(line, sizeof line, f);
	fclose(f);
	line[strcspn(line, "\n")] = 0;
	return read && !strcmp(line, text);
}

/* Maps a device's BAR 2 if it is the one with this id. Uses the write-combining resource only:
 * through the file resource2 Arm maps Device memory, in which a copy's unaligned accesses raise
 * SIGBUS. */
static int take_device(const char *device, const uint8_t id[16], struct dg_bar **out)
{
	char path[384];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s/resource2_wc", dg_bar_devices, device);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return dg_fail_errno("cannot open %s", path);
	int rc = fstat(fd, &st) ? dg_fail_errno("cannot query %s", path) : 0;
	if (!rc)
		rc = dg_bar_take(fd, 0, (uint64_t)st.st_size, id, true, out);
	close(fd);
	return rc;
}

/* Whether a device is QEMU's ivshmem (docs/specs/ivshmem-spec.txt). */
static bool is_ivshmem(const char *device)
{
	return says(device, "vendor", "0x1af4") && says(device, "device", "0x1110");
}

int dg_bar_find(const uint8_t id[16], struct dg_bar **out)
{
	int rc = -ENODEV;
	DIR *devices = opendir(dg_bar_devices);
	for (struct dirent *d; devices && rc && (d = readdir(devices));)
		if (is_ivshmem(d->d_name))
			rc = take_device(d->d_name, id, out);
	if (devices)
		closedir(devices);
	if (rc == -ENODEV || rc == -EBADMSG)
		return dg_fail(EXDEV,
			       "the descriptor is of memory in a PCI BAR that no device of this "
			       "machine has: import it in the DPU guest of the testbed whose host "
			       "guest exported it");
	return rc;
}

/* Copies an export's words once, because the other machine may change them at any time. */
static void read_export(struct bar_page *p, struct bar_blob *out, uint32_t *state)
{
	*state = atomic_load_explicit(&p->export.state, memory_order_seq_cst);
	out->access = atomic_load_explicit(&p->export.access, memory_order_relaxed);
	out->offset = atomic_load_explicit(&p->export.offset, memory_order_relaxed);
	out->size = atomic_load_explicit(&p->export.size, memory_order_relaxed);
	out->key[0] = atomic_load_explicit(&p->export.key[0], memory_order_seq_cst);
	out->key[1] = atomic_load_explicit(&p->export.key[1], memory_order_seq_cst);
}

static int check_export(struct dg_bar *b, const struct bar_blob *blob)
{
	struct bar_blob table;
	uint32_t state;
	read_export(bar_page_at(b, blob->page), &table, &state);
	if (state != BAR_OPEN || memcmp(table.key, blob->key, sizeof table.key))
		return dg_fail(ENOKEY, "the BAR has no export for this descriptor: its region was "
				       "closed, or the descriptor is forged");
	if (table.offset != blob->offset || table.size != blob->size ||
	    table.access != blob->access)
		return dg_fail(EBADMSG, "the descriptor was altered: its range or access is not "
					"what its owner exported");
	if (!table.access || table.access > 3 || !table.size || table.offset < BAR_TABLE ||
	    table.offset > b->size || table.size > b->size - table.offset)
		return dg_fail(EBADMSG, "the BAR's table is damaged: an export leaves the BAR's "
					"memory, or has no access");
	return 0;
}

/* Locks a slot that no process of this machine uses. */
static int take_slot(struct dg_bar *b, uint32_t page, uint32_t *slot)
{
	for (*slot = 0; *slot < BAR_SLOTS; ++*slot) {
		if (!dg_bar_hold(b, page, *slot))
			continue;
		struct bar_slot *s = &bar_page_at(b, page)->slots[*slot];
		if (!atomic_load_explicit(&s->claimed, memory_order_acquire))
			return 0;
		dg_bar_let_go(b, page, *slot); /* its process ended after the sweep */
	}
	return dg_fail(EMFILE, "the region has %u importers, which is the maximum in a BAR: close one",
		       BAR_SLOTS);
}

static int claim_slot(struct dg_bar *b, const struct bar_blob *blob, uint32_t *slot)
{
	uint64_t boot_id[2];
	int rc = dg_boot_id((uint8_t *)boot_id);
	if (!rc)
		rc = take_slot(b, blob->page, slot);
	if (rc)
		return rc;
	struct bar_slot *s = &bar_page_at(b, blob->page)->slots[*slot];
	atomic_store_explicit(&s->pid, (uint32_t)getpid(), memory_order_relaxed);
	atomic_store_explicit(&s->boot_id[0], boot_id[0], memory_order_relaxed);
	atomic_store_explicit(&s->boot_id[1], boot_id[1], memory_order_relaxed);
	atomic_store_explicit(&s->claimed, 1, memory_order_seq_cst);
	/* Check again: the export may have been closed before the claim was visible. */
	rc = check_export(b, blob);
	if (rc) {
		atomic_store_explicit(&s->claimed, 0, memory_order_release);
		dg_bar_let_go(b, blob->page, *slot);
	}
	return rc;
}

int dg_bar_claim(struct dg_bar *b, const struct bar_blob *blob, uint32_t *slot)
{
	if (blob->page >= BAR_PAGES)
		return dg_fail(EBADMSG, "the descriptor names page %u of a BAR's table that has %u",
			       blob->page, BAR_PAGES);
	dg_bar_sweep(b);
	dg_bar_lock();
	int rc = check_export(b, blob);
	if (!rc)
		rc = claim_slot(b, blob, slot);
	dg_bar_unlock();
	return rc;
}

void dg_bar_release(struct dg_bar *b, uint32_t page, uint32_t slot)
{
	dg_bar_lock();
	/* Release: this process's accesses to the memory have ended. */
	atomic_store_explicit(&bar_page_at(b, page)->slots[slot].claimed, 0, memory_order_release);
	dg_bar_let_go(b, page, slot);
	dg_bar_unlock();
}

/* Releases a claimed slot whose lock is free: the process that claimed it has ended. */
static void sweep_slot(struct dg_bar *b, uint32_t page, uint32_t slot)
{
	struct bar_slot *s = &bar_page_at(b, page)->slots[slot];
	if (!atomic_load_explicit(&s->claimed, memory_order_acquire) || !dg_bar_hold(b, page, slot))
		return;
	uint64_t posted = atomic_load_explicit(&s->gate.posted, memory_order_seq_cst);
	atomic_store_explicit(&s->gate.done, posted, memory_order_release);
	atomic_store_explicit(&s->claimed, 0, memory_order_release);
	dg_bar_let_go(b, page, slot);
}

void dg_bar_sweep(struct dg_bar *b)
{
	dg_bar_lock();
	for (uint32_t page = 0; page < BAR_PAGES; page++)
		for (uint32_t slot = 0; slot < BAR_SLOTS; slot++)
			sweep_slot(b, page, slot);
	dg_bar_unlock();
}
