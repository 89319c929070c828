/* SPDX-License-Identifier: Apache-2.0 */
/* The file of SOFTDOCA_CAPTURE (capture.c). */
#ifndef SOFTDOCA_CAPTURE_H
#define SOFTDOCA_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "doca_error.h"

/* A frame of a queue. queue: its number, -1 for none. comment: the rule, or why it was dropped. */
struct captured {
	uint64_t time_ns;
	const uint8_t *frame;
	size_t size;
	bool sent;
	int queue;
	const char *comment;
};

/* A file of whole blocks; file: NULL if there is none, or it has ended. used: bytes, of which `kept` were
 * handed to the system. */
struct capture {
	FILE *file;
	uint64_t used, kept, limit;
};

/* Opens the file if there is to be one; `number`: of the port; from 1 on it is a part of the file's name. Errors:
 * BAD_CONFIG if it cannot be written, or for an invalid limit. */
doca_error_t capture_open(const char *interface, unsigned number, struct capture *c);
/* Adds a frame. At the limit, and if the file cannot be written, the capture ends, which is logged. */
void capture_frame(struct capture *c, const struct captured *frame);
void capture_flush(struct capture *c);
void capture_close(struct capture *c);

#endif
