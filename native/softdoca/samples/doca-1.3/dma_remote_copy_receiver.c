// SPDX-License-Identifier: Apache-2.0
/* Remote copy, the DPU's side, by the steps of DOCA 1.3's DMA sample guide:
 *
 *	dma_remote_copy_receiver SOCKET
 *
 * An export descriptor is a text of JSON, which has the memory's address and length.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workq_sample.h"

#define DESCRIPTOR_MAX 1024

/* Receives the descriptor, which ends with a 0. Returns its size, 0 on failure. */
static size_t receive(int fd, char *descriptor, uint64_t *addr, size_t *size)
{
	size_t n = 0;
	ssize_t got;

	do {
		got = recv(fd, descriptor + n, DESCRIPTOR_MAX - n, 0);
		n += got > 0 ? (size_t)got : 0;
	} while (got > 0 && descriptor[n - 1] && n < DESCRIPTOR_MAX);
	if (got <= 0 || descriptor[n - 1] ||
	    sscanf(descriptor, "{\"addr\": %" SCNu64 ", \"len\": %zu", addr, size) != 2)
		return 0;
	return n;
}

static doca_error_t copy_from(struct state *s, struct doca_mmap *remote, uint64_t addr, char *dst,
			      size_t size)
{
	struct doca_buf *src_buf, *dst_buf;
	doca_error_t result;

	TRY(doca_buf_inventory_buf_by_addr(s->inventory, remote, (void *)(uintptr_t)addr, size,
					   &src_buf));
	TRY(doca_buf_inventory_buf_by_addr(s->inventory, s->map, dst, size, &dst_buf));
	result = copy(s, dst_buf, src_buf, size);
	doca_buf_refcount_rm(src_buf, NULL);
	doca_buf_refcount_rm(dst_buf, NULL);
	return result;
}

static doca_error_t receiver(struct state *s, int fd, char *dst, size_t capacity)
{
	char descriptor[DESCRIPTOR_MAX];
	struct doca_mmap *remote;
	uint64_t addr;
	size_t n, size;
	doca_error_t result = open_map(s, 1);

	if (result)
		return result;
	TRY(doca_mmap_populate(s->map, dst, capacity, PAGE, NULL, NULL));
	n = receive(fd, descriptor, &addr, &size);
	if (!n || size > capacity)
		return failed("Receiving a descriptor", DOCA_ERROR_INVALID_VALUE);
	result = open_dma(s);
	if (result)
		return result;
	TRY(doca_mmap_create_from_export("remote", (uint8_t *)descriptor, n, s->dev, &remote));
	result = copy_from(s, remote, addr, dst, size);
	doca_mmap_destroy(remote);
	if (!result && send(fd, "", 1, 0) != 1)
		result = failed("Telling the sender", DOCA_ERROR_CONNECTION_RESET);
	return result;
}

int main(int argc, char **argv)
{
	static char dst[TEXT_MAX];
	struct state s = {.dev = NULL};
	int fd = argc > 1 ? accept_one(argv[1]) : -1;
	doca_error_t result = DOCA_ERROR_NOT_CONNECTED;

	if (fd < 0)
		failed("Waiting for the sender", result);
	else
		result = receiver(&s, fd, dst, sizeof dst);
	close_all(&s);
	if (fd >= 0)
		close(fd);
	if (!result)
		printf("received: \"%.*s\"\n", TEXT_MAX - 1, dst);
	return result != DOCA_SUCCESS;
}
