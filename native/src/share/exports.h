/* SPDX-License-Identifier: Apache-2.0 */
/* The table of exports and the importing processes, for the share server. Guarded by
 * dg_share_lock(). */
#ifndef DG_SHARE_EXPORTS_H
#define DG_SHARE_EXPORTS_H

#include <stdio.h>

#include "share/server.h"

/* Connection of an importing process, on the exporter's side. */
struct conn {
	struct conn *next;
	int fd, pidfd, control_fd;
	int maps_fd; /* the address space that imports: dg_address_space_open(), or -1 */
	pid_t pid;
	bool control_sent, bounce;
	char *control;
	struct dg_import **imports; /* by slot */
	uint32_t *free_slots;
	uint32_t slots, n_free;
};

void dg_share_lock(void);
void dg_share_unlock(void);
/* Adds a connection, which owns fd and pidfd (-1: none). Returns NULL if out of memory. */
struct conn *dg_conn_new(int fd, pid_t pid, int pidfd);
/* Ends a connection: invalidates its imports and closes its fds. */
void dg_conn_free(struct conn *c);
/* Whether a disconnected importer can no longer access any memory: nothing is in flight through any
 * slot, or its process or address space, and with it any transfer, has ended. */
bool dg_conn_over(struct conn *c);
/* Frees the disconnected connections that are over and have no pidfd whose event would do so. */
void dg_conns_sweep(void);
void dg_conns_free(void);
/* Empties the table in a forked child, because its regions belong to the parent. */
void dg_exports_forget_all(void);
/* Imports the region that q->key opens into a slot of the connection and fills *a. fds receives the
 * descriptors to send, in this order: the control memory (if a->has_control; the connection keeps
 * it), then the memory (the caller owns it). Errors: ENOKEY, EMFILE, ENOMEM. */
int dg_conn_import(struct conn *c, const struct dg_share_request *q, struct dg_share_reply *a,
		   int fds[2], int *n_fds);
/* Frees a slot. Ignores slots that are not in use. */
void dg_conn_release(struct conn *c, uint32_t slot);
/* Executes SHARE_GET, SHARE_PUT or SHARE_ATOMIC. Returns a dg_status. */
uint32_t dg_conn_access(struct conn *c, const struct dg_share_request *q);

#endif
