// SPDX-License-Identifier: Apache-2.0
/* Connection by address over TCP, as over an RDMA adapter, while the software NIC moves the bytes. */
#include "device/device.h"

#define dev_is_adapter(dev) ((void)(dev), true)
#include "rdma/address.c" /* NOLINT: the port is chosen in it */

#include "address_over_tcp.h"

void over_tcp(struct doca_rdma *r)
{
	static struct verbs v;
	static struct adapter a = {.d = &v};

	*(struct sockaddr_in *)&v.address =
		(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	r->over.adapter = &a;
}

int socket_of(const struct doca_rdma_connection *c)
{
	return c->fd;
}
