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

/* Opens the file, or stores NULL if there is to be none. Errors: BAD_CONFIG if it cannot be written. */
doca_error_t capture_open(const char *interface, FILE **out);
void capture_frame(FILE *f, const struct captured *c);

#endif
