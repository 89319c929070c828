/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one machine in a PCI BAR of another: in a testbed, a part of the host guest's RAM is
 * BAR 2 of a device of the DPU guest (QEMU's ivshmem). Emulator only: no hardware has such a BAR.
 *
 * The BAR begins with a table, which both machines map. It has a page for each export, with the
 * export's range, access and key, and in it a slot with a gate for each import of that export.
 *
 *       0  header      magic, version, size, a random id of this boot
 *    4096  page 1      export | slot 0 | slot 1 | ... | slot 14
 *    8192  page 2      ...
 *  524288  memory      what dgkit.empty(on="bar") allocates
 *
 * The host's processes write the exports and `revoked`; the DPU's write the rest of the slots.
 *
 *   state of an export    FREE -> OPEN -> CLOSED -> FREE; LOST for CLOSED if its process ended
 *   state of a slot       FREE -> CLAIMED -> FREE
 *
 *   importing   slot = CLAIMED (seq_cst)   then load the export's state and key (seq_cst)
 *   closing     state = CLOSED (seq_cst)   then load the slots' states (seq_cst)
 *
 * Forbidden outcome: an import that the closer does not see. In the total order of the four
 * accesses either the closer's loads come after the claim, so that the closer revokes that slot's
 * gate and waits for it; or the importer's loads come after CLOSED, and it releases the slot. A
 * page is reused only while all of its slots are FREE, and with another key, so a claim of an
 * earlier export fails, too.
 *
 * The owner of a page or a slot holds a lock of its bytes on the file that it maps (F_OFD_SETLK,
 * fcntl(2)). The kernel drops the lock when the process has ended, after its last access to its
 * memory. So an OPEN export or a CLAIMED slot without a lock belongs to a process that has ended,
 * and the next process of the same machine that uses the table reclaims it. About processes of the
 * other machine, a machine knows nothing but these words.
 *
 * The DPU maps the BAR write-combining: Normal non-cacheable memory on Arm. There the exclusive
 * instructions of an atomic operation are guaranteed to work on the machine's own memory only (Arm
 * Architecture Reference Manual, B2.10), and no barrier orders what a PCIe device has taken. Under
 * QEMU both machines' CPUs access one memory of this machine, and atomics are exact. With hardware
 * this protocol would need other words for each side, and reads to flush its writes.
 */
#ifndef DG_SHARE_BAR_H
#define DG_SHARE_BAR_H

#include <stddef.h>

#include "provider.h"
#include "region.h"

#define BAR_MAGIC   0x5241424b4744ull /* "DGKBAR" */
#define BAR_VERSION 1u
#define BAR_PAGE    4096u /* unit of the layout; neither machine's page size */
#define BAR_PAGES   127u
#define BAR_SLOTS   15u
#define BAR_TABLE   ((uint64_t)BAR_PAGE * (BAR_PAGES + 1))

enum bar_export_state { BAR_FREE, BAR_OPEN, BAR_CLOSED, BAR_LOST };

struct bar_header {
	uint64_t magic;
	uint32_t version, pages;
	uint64_t size; /* of the BAR */
	uint8_t id[16];
};

struct bar_export {
	_Alignas(256) atomic_uint state; /* enum bar_export_state */
	atomic_uint access;
	atomic_uint_least64_t offset, size; /* size is 0 once its bytes may be allocated again */
	atomic_uint_least64_t key[2];
};

struct bar_slot {
	_Alignas(256) struct dg_gate gate;
	atomic_uint claimed, pid;
	atomic_uint_least64_t boot_id[2]; /* of the importing process's machine */
};

struct bar_page {
	struct bar_export export;
	struct bar_slot slots[BAR_SLOTS];
};
_Static_assert(sizeof(struct bar_page) == BAR_PAGE, "the layout is shared between machines");
_Static_assert(offsetof(struct bar_export, key) == 24, "dgkit/memory/bar.py has it, too");
_Static_assert(offsetof(struct bar_slot, claimed) == 128, "dgkit/memory/bar.py has it, too");
_Static_assert(offsetof(struct bar_slot, gate.revoked) == 72, "dgkit/memory/bar.py has it, too");

/* The export of a region, in a descriptor's blob. */
struct bar_blob {
	uint8_t id[16];
	uint64_t key[2];
	uint64_t offset, size; /* in the BAR */
	uint32_t page, access;
};

/* A BAR, as this process maps it. */
struct dg_bar {
	struct dg_bar *next;
	uint32_t refs;
	bool whole; /* the whole BAR is mapped; otherwise its table only */
	int fd; /* this process's own open file description, which holds its locks */
	uint64_t start; /* where the BAR begins in the file */
	uint64_t size; /* of the BAR */
	uint8_t id[16];
	char *base;
	uint64_t mapped; /* bytes from base on */
	uint16_t held[BAR_PAGES]; /* this process's locks: bit 15 the page, bit n slot n */
};

static inline struct bar_page *bar_page_at(const struct dg_bar *b, uint32_t page)
{
	return (struct bar_page *)(b->base + (uint64_t)BAR_PAGE * (page + 1));
}

/* The table is guarded by one lock in each process. */
void dg_bar_lock(void);
void dg_bar_unlock(void);
/* Closes the files in a forked child, because their locks belong to the parent. */
void dg_bar_forget_all(void);

/* Maps the BAR that begins at `start` of fd's file, either whole or its table only, or takes
 * another reference to it. Checks its header. file_size: size of the file, 0 if it is not known.
 * id: id of the wanted BAR, or NULL. Errors: EBADMSG if there is no BAR, or a different one; those
 * of open(2) and mmap(2). */
int dg_bar_take(int fd, uint64_t start, uint64_t file_size, const uint8_t *id, bool whole,
		struct dg_bar **out);
void dg_bar_drop(struct dg_bar *b);

/* Locks the bytes of a page's export (slot BAR_SLOTS) or of one of its slots for this process. Call
 * with the lock held. Returns false if any process holds them, including this one. */
bool dg_bar_hold(struct dg_bar *b, uint32_t page, uint32_t slot);
void dg_bar_let_go(struct dg_bar *b, uint32_t page, uint32_t slot);

/* bar_export.c: the machine that owns the memory. Opens a page for blob's range and access, and
 * fills in the rest of the blob. Errors: EMFILE if the table is full. */
int dg_bar_open(struct dg_bar *b, struct bar_blob *blob);
/* Revokes the import in every slot. Returns a slot with transfers in flight, or -1. */
int dg_bar_revoke(struct dg_bar *b, uint32_t page);
/* Releases a revoked page. */
void dg_bar_close(struct dg_bar *b, uint32_t page);
uint32_t dg_bar_imports(const struct dg_bar *b, uint32_t page);

/* bar_import.c: the other machine. Claims a slot of the export that the blob opens; range and
 * access are taken from the table. Errors: EBADMSG if the blob's differ from these, ENOKEY,
 * EMFILE. */
int dg_bar_claim(struct dg_bar *b, const struct bar_blob *blob, uint32_t *slot);
/* Releases a slot whose gate is quiet. */
void dg_bar_release(struct dg_bar *b, uint32_t page, uint32_t slot);
/* Releases the slots of processes of this machine that have ended. */
void dg_bar_sweep(struct dg_bar *b);
/* Folder in which PCI devices are searched; tests set it. */
extern const char *dg_bar_devices;
/* Maps the BAR with this id of a PCI device. Errors: EXDEV if no device has it. */
int dg_bar_find(const uint8_t id[16], struct dg_bar **out);

/* bar_region.c: regions in a BAR, DG_KIND_BAR. */
extern const struct dg_memory_ops dg_bar_memory;

#endif
