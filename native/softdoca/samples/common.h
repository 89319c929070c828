/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the samples share: options, log, files, Ctrl-C, opening a device. Everything here and in the
 * samples is public DOCA, so they build and run unchanged against NVIDIA's.
 */
#ifndef SAMPLES_COMMON_H
#define SAMPLES_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <doca_dev.h>
#include <doca_error.h>

#define TEXT_MAX       4096 /* bytes of a text or a path on the command line, with its end */
#define DESCRIPTOR_MAX 1024 /* an export descriptor has at most 512 bytes as far as is known */

/* Calls a function of DOCA, and returns from this one with the error, logged, if it is one. */
#define TRY_DOCA(call)                                    \
	do {                                              \
		doca_error_t try_result = (call);         \
		if (try_result != DOCA_SUCCESS)           \
			return failed(#call, try_result); \
	} while (0)
/* The same for a function of the samples, which has logged its error already. */
#define TRY(call)                                 \
	do {                                      \
		doca_error_t try_result = (call); \
		if (try_result != DOCA_SUCCESS)   \
			return try_result;        \
	} while (0)

/* What a sample reads from its command line; `wanted` below names the members. */
struct options {
	char pci[TEXT_MAX]; /* of the device; empty: the first that can */
	char text[TEXT_MAX];
	char descriptor[TEXT_MAX]; /* path: the export descriptor */
	char buffer[TEXT_MAX]; /* path: address and length of what it exports */
	char rep_pci[TEXT_MAX]; /* of the representor; empty: the first */
	char role[TEXT_MAX];
	bool write;
	int count, size, gpu;
};

enum wanted {
	WANT_TEXT = 1,
	WANT_FILES = 2, /* descriptor and buffer */
	WANT_WRITE = 4,
	WANT_COUNT = 8,
	WANT_SIZE = 16,
	WANT_GPU = 32,
	WANT_COMCH = 64, /* rep_pci and role */
};

/* Starts the log, reads the command line (--pci-addr is always there), and takes over Ctrl-C. */
doca_error_t sample_begin(int argc, char **argv, const char *name, int wanted, struct options *o);
/* The exit code. */
int sample_end(doca_error_t result);

/* Logs that `what` failed, and gives the error back. */
doca_error_t failed(const char *what, doca_error_t error);
/* The same for a system call: errno as a sentence. */
doca_error_t failed_system(const char *what, const char *path);

/* Whether Ctrl-C, or SIGTERM, came. */
bool stopped(void);
/* Sleeps until fd is readable (true), or Ctrl-C (false). */
bool wait_readable(int fd);
/* Until Enter, the end of standard input, or Ctrl-C. */
void wait_for_enter(void);

/* DOCA_SUCCESS if a device can do what the sample needs. */
typedef doca_error_t (*device_can)(const struct doca_devinfo *info);
/* The device with this PCI address, or the first that can if it is empty. */
doca_error_t open_device(const char *pci, device_can can, struct doca_dev **dev);

/* Whole or not at all: whoever waits for the file never sees half of it. Only for this user, since an
 * export descriptor lets its reader into the memory. */
doca_error_t write_file(const char *path, const void *data, size_t size);
doca_error_t read_file(const char *path, void *data, size_t capacity, size_t *size);
/* Writes both files of an export; reads them. */
doca_error_t write_export(const struct options *o, const void *descriptor, size_t descriptor_size,
			  const void *addr, size_t size);
doca_error_t read_export(const struct options *o, void *descriptor, size_t *descriptor_size,
			 void **addr, size_t *size);
void remove_export(const struct options *o);

/* Text for a terminal: what is not printable as a dot, up to the first zero byte. */
void print_text(const char *label, const char *text, size_t size);

#endif
