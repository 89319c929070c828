/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common part of the samples: options, log, files, Ctrl-C, opening a device. The samples use public
 * DOCA only, so they build and run unchanged with NVIDIA's libraries.
 */
#ifndef SAMPLES_SAMPLE_H
#define SAMPLES_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <doca_dev.h>
#include <doca_error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TEXT_MAX       4096 /* bytes of a text or a path on the command line, with its terminating 0 */
#define DESCRIPTOR_MAX 1024 /* size of the largest export descriptor known */

/* Calls a DOCA function; logs an error and returns it from the calling function. */
#define TRY_DOCA(call)                                    \
	do {                                              \
		doca_error_t try_result = (call);         \
		if (try_result != DOCA_SUCCESS)           \
			return failed(#call, try_result); \
	} while (0)
/* The same for a function of the samples, which logs its errors itself. */
#define TRY(call)                                 \
	do {                                      \
		doca_error_t try_result = (call); \
		if (try_result != DOCA_SUCCESS)   \
			return try_result;        \
	} while (0)

/* Options of a sample; `wanted` below selects the members. */
struct options {
	char pci[TEXT_MAX]; /* of the device; empty: the first capable device */
	char text[TEXT_MAX];
	char descriptor[TEXT_MAX]; /* path of the export descriptor, or of an RDMA connection's details */
	char buffer[TEXT_MAX]; /* path of the file with the exported memory's address and length */
	char rep_pci[TEXT_MAX]; /* of the representor; empty: the first one */
	char role[TEXT_MAX];
	char address[TEXT_MAX];
	bool write;
	int count, size, gpu, port, gid_index;
};

enum wanted {
	WANT_TEXT = 1,
	WANT_FILES = 2, /* descriptor and buffer */
	WANT_WRITE = 4,
	WANT_COUNT = 8,
	WANT_SIZE = 16,
	WANT_GPU = 32,
	WANT_COMCH = 64, /* rep_pci and role */
	WANT_PEER = 128, /* role, address, port and gid_index */
	WANT_IP = 256, /* address */
	WANT_RDMA = 512, /* role and descriptor */
};

/* Starts the log, parses the command line (which always accepts --pci-addr), and handles Ctrl-C. */
doca_error_t sample_begin(int argc, char **argv, const char *name, int wanted, struct options *o);
/* Returns the exit code. */
int sample_end(doca_error_t result);

/* Logs that `what` failed, and returns the error. */
doca_error_t failed(const char *what, doca_error_t error);
/* The same for a system call, with the text of errno. */
doca_error_t failed_system(const char *what, const char *path);

/* Returns whether SIGINT (Ctrl-C) or SIGTERM was received. */
bool stopped(void);
/* Sleeps until fd is readable (returns true) or Ctrl-C is received (returns false). */
bool wait_readable(int fd);
/* Waits for Enter, the end of standard input, or Ctrl-C. */
void wait_for_enter(void);

/* Returns DOCA_SUCCESS if a device has the capabilities that the sample needs. */
typedef doca_error_t (*device_can)(const struct doca_devinfo *info);
/* Opens the device with this PCI address, or the first capable one if it is empty. */
doca_error_t open_device(const char *pci, device_can can, struct doca_dev **dev);

/* Writes a file completely or not at all, so that a process waiting for it never reads half of it.
 * Only this user can read it, because an export descriptor gives access to the memory. */
doca_error_t write_file(const char *path, const void *data, size_t size);
doca_error_t read_file(const char *path, void *data, size_t capacity, size_t *size);
/* Write and read both files of an export. */
doca_error_t write_export(const struct options *o, const void *descriptor, size_t descriptor_size,
			  const void *addr, size_t size);
doca_error_t read_export(const struct options *o, void *descriptor, size_t *descriptor_size,
			 void **addr, size_t *size);
void remove_export(const struct options *o);

/* Prints text up to the first zero byte, with dots for unprintable characters. */
void print_text(const char *label, const char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
