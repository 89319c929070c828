// SPDX-License-Identifier: Apache-2.0
/* Remote copy, the host's side, by the steps of DOCA 1.3's DMA sample guide:
 *
 *	dma_remote_copy_sender SOCKET [TEXT]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workq_sample.h"

/* Sends the descriptor, and waits until the receiver has copied. */
static doca_error_t send_and_wait(int fd, const void *descriptor, size_t size)
{
	char ack;

	if (send(fd, descriptor, size, 0) != (ssize_t)size)
		return failed("Sending the descriptor", DOCA_ERROR_IO_FAILED);
	if (recv(fd, &ack, 1, 0) != 1)
		return failed("Waiting for the receiver", DOCA_ERROR_CONNECTION_RESET);
	return DOCA_SUCCESS;
}

static doca_error_t sender(struct state *s, int fd, char *src, size_t size)
{
	uint8_t *descriptor;
	size_t descriptor_size;
	doca_error_t result = open_map(s, 1);

	if (result)
		return result;
	TRY(doca_mmap_populate(s->map, src, size, PAGE, NULL, NULL));
	TRY(doca_mmap_export(s->map, s->dev, &descriptor, &descriptor_size));
	result = send_and_wait(fd, descriptor, descriptor_size);
	free(descriptor);
	return result;
}

int main(int argc, char **argv)
{
	static char src[TEXT_MAX];
	struct state s = {.dev = NULL};
	int fd = argc > 1 ? connect_to(argv[1]) : -1;
	doca_error_t result = DOCA_ERROR_NOT_CONNECTED;

	snprintf(src, sizeof src, "%s", argc > 2 ? argv[2] : "a text, copied by DMA");
	if (fd < 0)
		failed("Connecting to the receiver", result);
	else
		result = sender(&s, fd, src, strlen(src) + 1);
	close_all(&s);
	if (fd >= 0)
		close(fd);
	if (!result)
		printf("the receiver has it\n");
	return result != DOCA_SUCCESS;
}
