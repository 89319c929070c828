/* SPDX-License-Identifier: Apache-2.0 */
/* A DPU agent (`dgkit serve`) that moves the bytes in the place of this process: its mover's client.
 * DGKIT_NCCL_DPU has its address. */
#ifndef DG_NCCL_AGENT_H
#define DG_NCCL_AGENT_H

#include <stdbool.h>

#include "dgkit.h"

struct agent;

/* All return 0 or a negative errno, with a message in dg_last_error(). */

/* Connects to the agent at DGKIT_NCCL_DPU; stores NULL in *out if the variable is not set. */
int agent_open(struct agent **out);
void agent_close(struct agent *a);
/* Has the agent import memory, and stores the number by which requests name it. One thread at a
 * time. */
int agent_import(struct agent *a, const uint8_t *descriptor, uint32_t length, bool on_gpu, uint32_t *id);
void agent_release(struct agent *a, uint32_t id);
/* Posts n work requests whose regions are the agent's. Errors: EAGAIN if they do not fit, ENOTCONN. */
int agent_post(struct agent *a, const dg_wr *wr, uint32_t n);
/* Stores user and status of up to n completions. Returns their number. */
int agent_poll(struct agent *a, dg_wc *wc, uint32_t n);
/* The agent has broken a rule of the ring: it has ended for this process. */
void agent_break(struct agent *a);
/* Whether the agent has ended; looks at the socket. */
bool agent_ended(struct agent *a);
const char *agent_address(const struct agent *a);
/* The provider whose exports of host memory the agent imports. */
const char *agent_provider(const struct agent *a);

#endif
