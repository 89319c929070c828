// SPDX-License-Identifier: Apache-2.0
/*
 * A capture of a port's frames in the file of SOFTDOCA_CAPTURE: pcapng (draft-ietf-opsawg-pcapng), with
 * the queue, the direction and, as a comment, the rule of each frame. Wireshark and tcpdump read it. It has
 * whole blocks only, also after a failed write or the end of the process: the stream's buffer is written
 * between blocks.
 */
#include "capture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define BUFFER	    ((size_t)256 << 10)
#define LARGEST	    ((size_t)66 << 10) /* a block */
#define MIB_DEFAULT 1024u
#define MIB_MAX	    (1u << 24)
#define LAST	    "; the last frame of this capture: SOFTDOCA_CAPTURE_LIMIT"

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

static doca_error_t read_limit(struct capture *c)
{
	const char *text = getenv("SOFTDOCA_CAPTURE_LIMIT");
	char *end = "";
	const unsigned long long mib = text && *text ? strtoull(text, &end, 10) : MIB_DEFAULT;
	if (*end || !mib || mib > MIB_MAX)
		return MISCONFIGURED("SOFTDOCA_CAPTURE_LIMIT is '%s': it must be 1 to %u MiB", text,
				     MIB_MAX);
	c->limit = mib << 20;
	return DOCA_SUCCESS;
}

doca_error_t capture_open(const char *interface, unsigned number, struct capture *c)
{
	const char *first = getenv("SOFTDOCA_CAPTURE");
	char path[PATH_MAX];
	*c = (struct capture){0};
	if (!first || !*first)
		return DOCA_SUCCESS;
	snprintf(path, sizeof path, number ? "%s.%u" : "%s", first, number + 1);
	TRY(read_limit(c));
	c->file = fopen(path, "wbe");
	if (!c->file)
		return MISCONFIGURED("SOFTDOCA_CAPTURE is '%s', which cannot be written: %s", path,
				     strerror(errno));
	setvbuf(c->file, NULL, _IOFBF, BUFFER);
	put_section(c->file);
	put_interface(c->file, interface);
	c->used = (uint64_t)ftell(c->file);
	capture_flush(c);
	return DOCA_SUCCESS;
}

/* What is not whole is cut off. */
void capture_flush(struct capture *c)
{
	if (!c->file || c->used == c->kept)
		return;
	if (!fflush(c->file)) {
		c->kept = c->used;
		return;
	}
	softdoca_log(DOCA_LOG_LEVEL_CRIT, __func__, "the capture ends after %llu bytes: %s",
		     (unsigned long long)c->kept, strerror(errno));
	__fpurge(c->file);
	const int kept = ftruncate(fileno(c->file), (off_t)c->kept);
	(void)kept;
	fclose(c->file);
	c->file = NULL;
}

void capture_close(struct capture *c)
{
	capture_flush(c);
	if (c->file)
		fclose(c->file);
	c->file = NULL;
}

static void put_frame(FILE *f, const struct captured *c, const char *comment, uint32_t size)
{
	const uint32_t flags = c->sent ? OUTBOUND : INBOUND, queue = (uint32_t)c->queue;

	put32(f, PACKET);
	put32(f, size);
	put32(f, 0); /* the interface */
	put32(f, (uint32_t)(c->time_ns >> 32));
	put32(f, (uint32_t)c->time_ns);
	put32(f, (uint32_t)c->size);
	put32(f, (uint32_t)c->size);
	put(f, c->frame, c->size);
	put_option(f, FLAGS, &flags, 4);
	if (c->queue >= 0)
		put_option(f, QUEUE, &queue, 4);
	if (*comment)
		put_option(f, COMMENT, comment, strlen(comment));
	put32(f, END);
	put32(f, size);
}

void capture_frame(struct capture *c, const struct captured *frame)
{
	char comment[512];
	const bool last = c->used + 2 * LARGEST > c->limit;
	const int length = snprintf(comment, sizeof comment, "%s%s", frame->comment, last ? LAST : "");
	const size_t size = 32 + padded(frame->size) + option_size(4) +
			    (frame->queue < 0 ? 0 : option_size(4)) +
			    (length ? option_size((size_t)length) : 0) + 4;
	if (c->used - c->kept + size > BUFFER)
		capture_flush(c);
	if (!c->file)
		return;
	put_frame(c->file, frame, comment, (uint32_t)size);
	c->used += size;
	if (!last)
		return;
	softdoca_log(DOCA_LOG_LEVEL_CRIT, __func__,
		     "the capture ends: its limit, SOFTDOCA_CAPTURE_LIMIT, is %llu MiB",
		     (unsigned long long)(c->limit >> 20));
	capture_close(c);
}
