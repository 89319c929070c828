/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of memory: a device, maps and buffers, and invalid handles. */
#ifndef SOFTDOCA_MEMORY_CHECK_H
#define SOFTDOCA_MEMORY_CHECK_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>

const char *softdoca_last_refusal(void);
#define CHECK_DETAIL() softdoca_last_refusal()
#include "check.h"

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_dev.h>
#include <doca_mmap.h>

#define UNUSED               __attribute__((unused))
#define OK(call)             CHECK_EQ(call, DOCA_SUCCESS)
#define REFUSED(call, error) CHECK_EQ(call, DOCA_ERROR_##error)

#define READ_WRITE DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
#define PCI_RO     DOCA_ACCESS_FLAG_PCI_READ_ONLY
#define PCI_RW     DOCA_ACCESS_FLAG_PCI_READ_WRITE

/* Counts the entries of /proc/self/fd, including a few that always exist, for comparison. */
UNUSED static int open_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int n = 0;

	CHECK(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* Opens the first device. */
UNUSED static struct doca_dev *a_dev(void)
{
	struct doca_devinfo **list;
	struct doca_dev *dev;
	uint32_t n;

	OK(doca_devinfo_create_list(&list, &n));
	CHECK(n > 0);
	OK(doca_dev_open(list[0], &dev));
	OK(doca_devinfo_destroy_list(list));
	return dev;
}

/* Not started; dev may be NULL. */
UNUSED static struct doca_mmap *a_map(struct doca_dev *dev, void *at, size_t len,
				      uint32_t permissions)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	OK(doca_mmap_set_memrange(m, at, len));
	OK(doca_mmap_set_permissions(m, permissions));
	if (dev)
		OK(doca_mmap_add_dev(m, dev));
	return m;
}

UNUSED static struct doca_mmap *a_started_map(struct doca_dev *dev, void *at, size_t len,
					      uint32_t permissions)
{
	struct doca_mmap *m = a_map(dev, at, len, permissions);

	OK(doca_mmap_start(m));
	return m;
}

UNUSED static struct doca_buf_inventory *an_inventory(size_t n)
{
	struct doca_buf_inventory *inv;

	OK(doca_buf_inventory_create(n, &inv));
	OK(doca_buf_inventory_start(inv));
	return inv;
}

UNUSED static struct doca_buf *a_buf(struct doca_buf_inventory *inv, struct doca_mmap *m, void *at,
				     size_t len)
{
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_addr(inv, m, at, len, &b));
	return b;
}

UNUSED static uint32_t free_bufs(const struct doca_buf_inventory *inv)
{
	uint32_t n;

	OK(doca_buf_inventory_get_num_free_elements(inv, &n));
	return n;
}

UNUSED static uint32_t bufs_of(const struct doca_mmap *m)
{
	uint32_t n;

	OK(doca_mmap_get_num_bufs(m, &n));
	return n;
}

/* Returns a map that was destroyed. */
UNUSED static struct doca_mmap *a_dead_map(void)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	OK(doca_mmap_destroy(m));
	return m;
}

/* Values that are not a valid handle of the expected kind: each function must refuse them. `living`
 * is an object of another kind. */
#define NO_HANDLES(living)                  \
	{NULL,                              \
	 (void *)1,                         \
	 (void *)(uintptr_t)-64,            \
	 (void *)(uintptr_t)0x7fff00000000, \
	 (char[64]){0},                     \
	 (void *)"a string",                \
	 (char *)(living) + 8,              \
	 (char *)(living) + 64,             \
	 (living)}

/* The calls of a program that take a handle `h`: CALL(name, expression) adds one. */
static struct handle_call {
	const char *text;
	doca_error_t (*run)(void *h);
} handle_calls[64];
static size_t n_handle_calls;

#define CALL(name, expression)                                    \
	static doca_error_t name(void *h)                         \
	{                                                         \
		return expression;                                \
	}                                                         \
	__attribute__((constructor)) static void add_##name(void) \
	{                                                         \
		handle_calls[n_handle_calls++] =                  \
			(struct handle_call){#expression, name};  \
	}

/* Checks that every call refuses every one of the handles as invalid. */
UNUSED static void all_refuse(void *const *handles, size_t n)
{
	CHECK(n_handle_calls);
	for (size_t i = 0; i < n_handle_calls; i++)
		for (size_t k = 0; k < n; k++)
			if (handle_calls[i].run(handles[k]) != DOCA_ERROR_INVALID_VALUE)
				check_failed(__FILE__, __LINE__, "%s takes handle %zu, %p",
					     handle_calls[i].text, k, handles[k]);
}

#endif
