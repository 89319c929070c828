// SPDX-License-Identifier: Apache-2.0
/* Comm Channel of DOCA 1.3: a client sends a message to a service, which answers.
 *
 *	comm_channel server NAME [TEXT]       on the DPU, first
 *	comm_channel client NAME [TEXT]       on the host
 */
#include <stdio.h>
#include <string.h>

#include <doca_comm_channel.h>

#include "workq_sample.h"

static struct doca_comm_channel_addr_t *peer;

static doca_error_t receive(struct doca_comm_channel_ep_t *ep)
{
	char text[TEXT_MAX + 1];
	size_t size = TEXT_MAX;

	TRY(doca_comm_channel_ep_recvfrom(ep, text, &size, DOCA_CC_MSG_FLAG_NONE, &peer));
	text[size] = '\0';
	printf("received: \"%s\"\n", text);
	return DOCA_SUCCESS;
}

static doca_error_t server(struct doca_comm_channel_ep_t *ep, const char *name, const char *text)
{
	doca_error_t result;

	TRY(doca_comm_channel_ep_listen(ep, name));
	printf("listening\n");
	fflush(stdout);
	result = receive(ep);
	if (result)
		return result;
	TRY(doca_comm_channel_ep_sendto(ep, text, strlen(text), DOCA_CC_MSG_FLAG_NONE, peer));
	TRY(doca_comm_channel_ep_disconnect(ep, peer));
	return DOCA_SUCCESS;
}

static doca_error_t client(struct doca_comm_channel_ep_t *ep, const char *name, const char *text)
{
	doca_error_t result;

	TRY(doca_comm_channel_ep_connect(ep, name, &peer));
	TRY(doca_comm_channel_ep_sendto(ep, text, strlen(text), DOCA_CC_MSG_FLAG_NONE, peer));
	result = receive(ep);
	if (result)
		return result;
	TRY(doca_comm_channel_ep_disconnect(ep, peer));
	return DOCA_SUCCESS;
}

static doca_error_t run(int argc, char **argv)
{
	struct doca_comm_channel_init_attr attr = {.msgsize = 1024, .maxmsgs = 10};
	struct doca_comm_channel_ep_t *ep;
	bool serves = argc > 1 && !strcmp(argv[1], "server");
	const char *text = argc > 3 ? argv[3] : serves ? "from the server" : "from the client";
	doca_error_t result;

	if (argc < 3 || (!serves && strcmp(argv[1], "client")))
		return failed("comm_channel ROLE NAME: ROLE, server or client,",
			      DOCA_ERROR_INVALID_VALUE);
	TRY(doca_comm_channel_ep_create(&attr, &ep));
	result = serves ? server(ep, argv[2], text) : client(ep, argv[2], text);
	doca_comm_channel_ep_destroy(ep);
	return result;
}

int main(int argc, char **argv)
{
	return run(argc, argv) != DOCA_SUCCESS;
}
