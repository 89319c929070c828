/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: a range of a memory map and the data in it, single or chained to a list.
 *
 *   head <= data <= data + data_len <= head + len
 *
 * A buffer is taken from an inventory with one reference and returns to it when the last reference
 * is released. A list is represented by its first buffer, which holds the reference count of the
 * list. Only one thread at a time may use a buffer, and it must not be changed while a submitted
 * task uses it. Every function returns INVALID_VALUE for an invalid buffer or output pointer.
 */
#ifndef DOCA_BUF_H
#define DOCA_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;

/* Appends list2 to list1, whose reference count then covers both. Errors: NOT_PERMITTED if one of
 * them is not the first of its list or list2 has more than one reference; IN_USE if a submitted
 * task uses one. */
DOCA_STABLE
doca_error_t doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2);

/* Releases a reference; the last one returns the whole list to its inventory. *refcount is the
 * previous number; refcount may be NULL. Errors: NOT_PERMITTED if not the first of its list;
 * BAD_STATE if already returned; IN_USE if a submitted task uses the buffer and this is the last
 * reference. */
DOCA_STABLE
doca_error_t doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount);

/* Sets the data. Errors: INVALID_VALUE if it exceeds the buffer. */
DOCA_STABLE
doca_error_t doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len);

/* Adds a reference. *refcount is the previous number; refcount may be NULL. Errors: NOT_PERMITTED
 * if not the first of its list; TOO_BIG at 65,535 references. */
DOCA_STABLE
doca_error_t doca_buf_inc_refcount(struct doca_buf *buf, uint16_t *refcount);

DOCA_STABLE
doca_error_t doca_buf_get_refcount(const struct doca_buf *buf, uint16_t *refcount);

DOCA_STABLE
doca_error_t doca_buf_get_len(const struct doca_buf *buf, size_t *len);

DOCA_STABLE
doca_error_t doca_buf_get_head(const struct doca_buf *buf, void **head);

DOCA_STABLE
doca_error_t doca_buf_get_data(const struct doca_buf *buf, void **data);

DOCA_STABLE
doca_error_t doca_buf_get_data_len(const struct doca_buf *buf, size_t *data_len);

/* Sets the length of the data. Errors: INVALID_VALUE if the data would exceed the buffer. */
DOCA_STABLE
doca_error_t doca_buf_set_data_len(struct doca_buf *buf, size_t data_len);

/* Sets the length of the data to 0; its start is unchanged. */
DOCA_STABLE
doca_error_t doca_buf_reset_data_len(struct doca_buf *buf);

/* Gets the next buffer, NULL after the last. */
DOCA_STABLE
doca_error_t doca_buf_get_next_in_list(struct doca_buf *buf, struct doca_buf **next_buf);

/* Gets the last buffer, which may be buf. */
DOCA_STABLE
doca_error_t doca_buf_get_last_in_list(struct doca_buf *buf, struct doca_buf **last_buf);

DOCA_STABLE
doca_error_t doca_buf_is_last_in_list(const struct doca_buf *buf, uint8_t *is_last);

DOCA_STABLE
doca_error_t doca_buf_is_first_in_list(const struct doca_buf *buf, uint8_t *is_first);

/* Gets 1 if the buffer is part of a list of several buffers, otherwise 0. */
DOCA_STABLE
doca_error_t doca_buf_is_in_list(const struct doca_buf *buf, uint8_t *is_in_list);

/* Gets the number of buffers in the list; 1 for a single buffer. Errors: NOT_PERMITTED if not the
 * first of its list. */
DOCA_STABLE
doca_error_t doca_buf_get_list_len(const struct doca_buf *buf, uint32_t *num_elements);

/* Detaches list2 and all buffers after it from its list; it then has one reference. Errors:
 * INVALID_VALUE if list2 does not follow list1; IN_USE if a submitted task uses the list. */
DOCA_STABLE
doca_error_t doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2);

#ifdef __cplusplus
}
#endif

#endif
