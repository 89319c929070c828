/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share server: one C thread in each process that exports or imports, with a SEQPACKET Unix
 * socket in a folder of mode 0700. It passes regions to importers of the same user, copies for
 * importers that cannot reach the memory in any other way, and notices when the other side of a
 * connection dies.
 *
 * There is one connection for each pair of importing and exporting process. The first reply gives
 * the importer the connection's control memory: one gate for each import, and a bounce buffer.
 */
#ifndef DG_SHARE_SERVER_H
#define DG_SHARE_SERVER_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "dgkit.h"
#include "provider.h"
#include "region.h"

#define SHARE_MAGIC    0x31524f4f44474bdeull
#define SHARE_VERSION  2u
#define SHARE_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path))

/* Layout of the control memory: the gates, then the bounce buffer. It is sparse: pages are reserved
 * when needed. */
#define CONTROL_SLOTS (1u << 17)
#define CONTROL_STEP  1024u /* slots reserved at a time */
#define BOUNCE_OFFSET ((uint64_t)CONTROL_SLOTS * sizeof(struct dg_gate))
#define BOUNCE_SIZE   (1u << 20)
#define CONTROL_SIZE  (BOUNCE_OFFSET + BOUNCE_SIZE)

enum dg_share_request_kind {
	SHARE_IMPORT = 1,
	SHARE_RELEASE = 2,
	SHARE_GET = 3,
	SHARE_PUT = 4,
	SHARE_ATOMIC = 5
};
/* Tag of a reply to a connection that the exporter refuses before it has read a request. */
enum { SHARE_NO_TAG = 0 };
/* `size` of an IMPORT: only threads of the importing process will access the memory, not a
 * device. */
enum { SHARE_BY_CPU = 1 };

/* Importer to exporter. IMPORT opens a region by its key; RELEASE returns its slot and has no
 * reply; GET copies bytes of the region into the bounce buffer, PUT copies from the bounce buffer
 * into the region; ATOMIC changes a word of the region by the struct dg_atomic in the bounce buffer,
 * and stores the word's old value, 8 bytes, over its operand. */
struct dg_share_request {
	uint64_t magic;
	uint32_t version, kind;
	uint8_t key[16];
	uint32_t slot, tag; /* tag: repeated in the reply */
	uint64_t offset, size;
};

/* Exporter to importer. Its fds: the control memfd (first reply only), then the region's memfd
 * (METHOD_MAP) or the POSIX fd of its GPU block (METHOD_GPU). error: a positive errno, explained by
 * text; status: the dg_status of GET, PUT and ATOMIC. */
struct dg_share_reply {
	uint64_t magic;
	uint32_t version, error;
	uint32_t slot, access, method, tag;
	uint32_t status, has_control;
	uint64_t size, address, fd_offset;
	uint64_t block; /* METHOD_GPU: size of the block that is imported */
	uint32_t kind, reserved;
	uint8_t uuid[16], handle[64];
	char text[128];
};

/* Registers the fork handlers, once; called before the first device opens. Errors: those of
 * pthread_atfork. */
int dg_fork_watch(void);
/* Registers the fork handlers again, once. Called after loading a library that has its own locks
 * and fork handlers and that is called with dgkit's locks held: before a fork the handlers
 * registered last are called first, and dgkit's locks must be taken before the library's. */
int dg_fork_watch_last(void);
/* The first function starts the share server if it is not running and takes a reference; the second
 * drops the reference, and stops the server with the last one. Any thread. */
int dg_share_server_acquire(void);
void dg_share_server_release(void);
/* While enabled, the server's thread calls dg_devices_poll() every 20 ms. */
void dg_share_server_set_polling(bool on);
/* Returns the socket's path, "" while the server is stopped. Valid while a reference is held. */
const char *dg_share_server_path(void);
/* Adds a region to the table of exports and returns its key: a new one, or that of an earlier
 * export with the same access. */
int dg_share_export(struct dg_region *r, uint32_t access, uint8_t key[16]);
/* Enters the region of dev that the key opens, so that it stays open until life_leave(&r->life).
 * Returns the export's access. Errors, without a text: ENOKEY. */
int dg_share_enter(const uint8_t key[16], const struct dg_device *dev, struct dg_region **out,
		   uint32_t *access);
/* Arranges that `value` is stored to *word, a word of the region's memory, when the region's last
 * import ends for any reason. */
void dg_share_watch(struct dg_region *r, _Atomic uint64_t *word, uint64_t value);
/* Imports a region of this process itself: the same reply without a socket. Fills the entry's gate
 * and may_fault, and *memory. */
int dg_share_import_self(const uint8_t key[16], struct dg_share_reply *a,
			 struct dg_region_entry *entry, dg_memory *memory);
void dg_share_release_self(uint32_t slot);
/* Revokes r in every importer, and waits until none of them has transfers in flight. Errors: EBUSY
 * at the deadline. */
int dg_share_revoke(struct dg_region *r, uint64_t deadline_ns);
/* Returns the number of imports of r. */
uint32_t dg_share_importers(struct dg_region *r);
/* Whether no process imports the region any more, and a former importer ended without releasing
 * it. */
bool dg_share_abandoned(struct dg_region *r);
/* Has the server's thread call dg_importer_exporter_died(cookie) when fd hangs up, or when the
 * process behind pidfd (-1: none) ends. */
int dg_share_server_watch(int fd, int pidfd, void *cookie);
void dg_share_server_unwatch(int fd, int pidfd);

#endif
