/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTDOCA_ADDRESS_OVER_TCP_H
#define SOFTDOCA_ADDRESS_OVER_TCP_H

struct doca_rdma;
struct doca_rdma_connection;

/* Gives a context the address 127.0.0.1. */
void over_tcp(struct doca_rdma *r);
int socket_of(const struct doca_rdma_connection *c);

#endif
