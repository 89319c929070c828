/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: one C thread in a process that exports or imports, on a SEQPACKET Unix socket in a 0700
 * folder. It hands regions to importers of the same user, copies for those who can reach memory in
 * no other way, and notices when the other side of a connection dies.
 *
 * One connection joins one importing process to one exporting process. With its first answer the
 * importer gets the connection's control memory: a gate for each import, and a bounce buffer.
 */
#ifndef DG_DOOR_H
#define DG_DOOR_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "dgkit.h"
#include "provider.h"
#include "region.h"

#define DOOR_MAGIC    0x31524f4f44474bdeull
#define DOOR_VERSION  2u
#define DOOR_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path))

/* Control memory: gates from 0, the bounce buffer behind them. Sparse: reserved as it is used. */
#define CONTROL_SLOTS (1u << 17)
#define CONTROL_STEP  1024u /* slots reserved at a time */
#define BOUNCE_OFFSET ((uint64_t)CONTROL_SLOTS * sizeof(struct dg_gate))
#define BOUNCE_SIZE   (1u << 20)
#define CONTROL_SIZE  (BOUNCE_OFFSET + BOUNCE_SIZE)

enum door_kind { DOOR_IMPORT = 1, DOOR_RELEASE = 2, DOOR_GET = 3, DOOR_PUT = 4 };

/* Importer to exporter. DOOR_GET: copy region bytes into the bounce buffer; DOOR_PUT: out of it. */
struct door_ask {
	uint64_t magic;
	uint32_t version, kind;
	uint8_t key[16];
	uint32_t slot, tag; /* tag: comes back in the answer */
	uint64_t offset, size;
};

/* Exporter to importer, with the control memfd (first answer) and the region's memfd (MAP) or the POSIX
 * fd of its GPU block as fds. error is a positive errno, and text then says why. */
struct door_answer {
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
int dg_door_hold(void);
void dg_door_drop(void);
/* While `on`, the door's thread calls dg_devices_move() now and then. */
void dg_door_pace(bool on);
/* The socket's path, "" while shut. Valid while a reference is held. */
const char *dg_door_path(void);
/* Puts a region on the table under a new key. */
int dg_door_export(struct dg_region *r, uint32_t access, uint8_t key[16]);
/* For an import in the exporting process itself: the same answer, no socket. Fills hot's gate, base
 * and may_fault, and says what memory it is. */
int dg_door_import_self(const uint8_t key[16], struct door_answer *a, struct dg_hot *hot,
			dg_memory *memory);
void dg_door_release_self(uint32_t slot);
/* Revokes r everywhere and waits for its importers. 0 or -EBUSY. */
int dg_door_revoke(struct dg_region *r, uint64_t deadline_ns);
uint32_t dg_door_importers(struct dg_region *r);
/* Asks the door to call dg_peer_died(cookie) when fd reports a hang-up. */
int dg_door_watch(int fd, int pidfd, void *cookie);
void dg_door_unwatch(int fd, int pidfd);

/* sock.c: one message, with up to two fds. Returns bytes, or -errno; *n_fds says how many came. */
ssize_t dg_sock_send(int fd, const void *msg, size_t size, const int *fds, int n_fds);
ssize_t dg_sock_recv(int fd, void *msg, size_t size, int *fds, int *n_fds);
int dg_pidfd_open(pid_t pid);
bool dg_pid_dead(int pidfd);

#endif
