/* SPDX-License-Identifier: Apache-2.0 */
/* What the door's thread needs of the table of exports. All of it under the door's lock. */
#ifndef DG_SHARE_EXPORTS_H
#define DG_SHARE_EXPORTS_H

#include <stdio.h>

#include "share/server.h"

/* An importing process, as the exporter sees it. */
struct conn {
	struct conn *next;
	int fd, pidfd, control_fd;
	pid_t pid;
	bool control_sent, bounce;
	char *control;
	struct dg_import **imports; /* by slot */
	uint32_t *free_slots;
	uint32_t slots, n_free;
};

void dg_share_lock(void);
void dg_share_unlock(void);
struct conn *dg_conn_new(int fd, pid_t pid, int pidfd);
void dg_conn_free(struct conn *c);
bool dg_conn_over(struct conn *c);
void dg_conns_free(void);
/* In a forked child: the regions are the parent's. */
void dg_exports_forget_all(void);
/* Gives a slot for the region that key opens. Fds to send, in order: control (if has_control), memory. */
int dg_conn_import(struct conn *c, const uint8_t key[16], struct dg_share_reply *a, int fds[2],
		   int *n_fds);
void dg_conn_release(struct conn *c, uint32_t slot);
/* SHARE_GET and SHARE_PUT. Gives a dg_status. */
uint32_t dg_conn_copy(struct conn *c, const struct dg_share_request *q);

#endif
