/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: one C thread in a process that exports or imports, on a SEQPACKET Unix socket in a 0700
 * folder. It hands regions to importers of the same user, copies for those who can reach memory in
 * no other way, and notices when the other side of a connection dies.
 *
 * One connection joins one importing process to one exporting process. With its first answer the
 * importer gets the connection's control memory: a gate for each import, and a bounce buffer.
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

/* Control memory: gates from 0, the bounce buffer behind them. Sparse: reserved as it is used. */
#define CONTROL_SLOTS (1u << 17)
#define CONTROL_STEP  1024u /* slots reserved at a time */
#define BOUNCE_OFFSET ((uint64_t)CONTROL_SLOTS * sizeof(struct dg_gate))
#define BOUNCE_SIZE   (1u << 20)
#define CONTROL_SIZE  (BOUNCE_OFFSET + BOUNCE_SIZE)

enum dg_share_request_kind { SHARE_IMPORT = 1, SHARE_RELEASE = 2, SHARE_GET = 3, SHARE_PUT = 4 };

/* Importer to exporter. SHARE_GET: copy region bytes into the bounce buffer; SHARE_PUT: out of it. */
struct dg_share_request {
	uint64_t magic;
	uint32_t version, kind;
	uint8_t key[16];
	uint32_t slot, tag; /* tag: comes back in the answer */
	uint64_t offset, size;
};

/* Exporter to importer, with the control memfd (first answer) and the region's memfd (MAP) or the POSIX
 * fd of its GPU block as fds. error is a positive errno, and text then says why. */
struct dg_share_reply {
	uint64_t magic;
	uint32_t version, error;
	uint32_t slot, access, method, tag;
	uint32_t status, has_control;
	uint64_t size, address, fd_offset;
	uint64_t block; /* GPU: of the block that is imported */
	uint32_t kind, reserved;
	uint8_t uuid[16], handle[64];
	char text[128];
};

/* Before the first device: forks are counted from now on. */
int dg_fork_watch(void);
/* After a library was loaded that is called with our locks held, and has locks and handlers of its own:
 * those registered last are called first before a fork, so ours are registered once more. */
int dg_fork_watch_last(void);
/* Opens the door if it is shut, and takes a reference. */
int dg_share_server_acquire(void);
void dg_share_server_release(void);
/* While `on`, the door's thread calls dg_devices_poll() now and then. */
void dg_share_server_set_polling(bool on);
/* The socket's path, "" while shut. Valid while a reference is held. */
const char *dg_share_server_path(void);
/* Puts a region on the table under a new key. */
int dg_share_export(struct dg_region *r, uint32_t access, uint8_t key[16]);
/* For an import in the exporting process itself: the same answer, no socket. Fills hot's gate, base
 * and may_fault, and says what memory it is. */
int dg_share_import_self(const uint8_t key[16], struct dg_share_reply *a,
			 struct dg_region_entry *entry, dg_memory *memory);
void dg_share_release_self(uint32_t slot);
/* Revokes r everywhere and waits for its importers. 0 or -EBUSY. */
int dg_share_revoke(struct dg_region *r, uint64_t deadline_ns);
uint32_t dg_share_importers(struct dg_region *r);
/* Asks the door to call dg_importer_exporter_died(cookie) when fd reports a hang-up. */
int dg_share_server_watch(int fd, int pidfd, void *cookie);
void dg_share_server_unwatch(int fd, int pidfd);

#endif
