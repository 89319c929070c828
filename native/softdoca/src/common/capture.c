// SPDX-License-Identifier: Apache-2.0
/*
 * A capture of a port's frames in the file of SOFTDOCA_CAPTURE: pcapng (draft-ietf-opsawg-pcapng), with
 * the queue, the direction and, as a comment, the rule of each frame. Wireshark and tcpdump read it.
 */
#include "capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softdoca.h"

enum { SECTION = 0x0a0d0d0a, INTERFACE = 1, PACKET = 6 };
enum { END = 0, COMMENT = 1, NAME = 2, FLAGS = 2, QUEUE = 6, RESOLUTION = 9 };
enum { ETHERNET = 1, INBOUND = 1, OUTBOUND = 2, NANOSECONDS = 9 };

static const char zeros[4];

static size_t padded(size_t size)
{
	return (size + 3) / 4 * 4;
}

static void put(FILE *f, const void *bytes, size_t size)
{
	fwrite(bytes, 1, size, f);
	fwrite(zeros, 1, padded(size) - size, f);
}

static void put32(FILE *f, uint32_t value)
{
	put(f, &value, 4);
}

static size_t option_size(size_t size)
{
	return 4 + padded(size);
}

static void put_option(FILE *f, uint16_t code, const void *value, size_t size)
{
	put32(f, code | (uint32_t)size << 16);
	put(f, value, size);
}

/* The section's length is unknown: -1. */
static void put_section(FILE *f)
{
	put32(f, SECTION);
	put32(f, 28);
	put32(f, 0x1a2b3c4d);
	put32(f, 1); /* version 1.0 */
	put32(f, UINT32_MAX);
	put32(f, UINT32_MAX);
	put32(f, 28);
}

static void put_interface(FILE *f, const char *name)
{
	const uint8_t resolution = NANOSECONDS;
	const uint32_t size = (uint32_t)(24 + option_size(strlen(name)) + option_size(1));

	put32(f, INTERFACE);
	put32(f, size);
	put32(f, ETHERNET);
	put32(f, 0); /* frames are never cut */
	put_option(f, NAME, name, strlen(name));
	put_option(f, RESOLUTION, &resolution, 1);
	put32(f, END);
	put32(f, size);
}

doca_error_t capture_open(const char *interface, FILE **out)
{
	const char *path = getenv("SOFTDOCA_CAPTURE");
	*out = NULL;
	if (!path || !*path)
		return DOCA_SUCCESS;
	FILE *f = fopen(path, "wbe");
	if (!f)
		return MISCONFIGURED("SOFTDOCA_CAPTURE is '%s', which cannot be written: %s", path,
				     strerror(errno));
	put_section(f);
	put_interface(f, interface);
	fflush(f);
	*out = f;
	return DOCA_SUCCESS;
}

void capture_frame(FILE *f, const struct captured *c)
{
	const uint32_t flags = c->sent ? OUTBOUND : INBOUND, queue = (uint32_t)c->queue;
	const size_t comment = strlen(c->comment);
	const size_t size = 32 + padded(c->size) + option_size(4) +
			    (c->queue < 0 ? 0 : option_size(4)) +
			    (comment ? option_size(comment) : 0) + 4;

	put32(f, PACKET);
	put32(f, (uint32_t)size);
	put32(f, 0); /* the interface */
	put32(f, (uint32_t)(c->time_ns >> 32));
	put32(f, (uint32_t)c->time_ns);
	put32(f, (uint32_t)c->size);
	put32(f, (uint32_t)c->size);
	put(f, c->frame, c->size);
	put_option(f, FLAGS, &flags, 4);
	if (c->queue >= 0)
		put_option(f, QUEUE, &queue, 4);
	if (comment)
		put_option(f, COMMENT, c->comment, comment);
	put32(f, END);
	put32(f, (uint32_t)size);
}
