/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: a stretch of a memory map, and the data in it; alone or chained to a list.
 *
 *   head <= data <= data + data_len <= head + len
 *
 * A buffer comes from an inventory with one reference, and goes back with its last. A list is
 * known by its first buffer, whose references are the list's. A buffer belongs to one thread at a
 * time, and while a submitted task uses it nobody changes it. Every function gives INVALID_VALUE
 * for what is no buffer in use, or no place for its answer.
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

/* Puts list2 behind list1, whose references are those of both from now on. NOT_PERMITTED: one of
 * them is not the first of its list, or list2 has more than one reference. IN_USE: a submitted
 * task uses one. */
DOCA_STABLE
doca_error_t doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2);

/* Gives a reference back; with the last the whole list goes back to where it came from. refcount,
 * which may be NULL, gets the number before. NOT_PERMITTED: not the first of its list. BAD_STATE:
 * given back already. IN_USE: it is the last one, and a submitted task uses the buffer. */
DOCA_STABLE
doca_error_t doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount);

/* INVALID_VALUE: the data is not within the buffer. */
DOCA_STABLE
doca_error_t doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len);

/* refcount, which may be NULL, gets the number before. NOT_PERMITTED: not the first of its list.
 * TOO_BIG: 65,535 references. */
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

/* INVALID_VALUE: the data would leave the buffer. */
DOCA_STABLE
doca_error_t doca_buf_set_data_len(struct doca_buf *buf, size_t data_len);

/* No data; it still begins where it did. */
DOCA_STABLE
doca_error_t doca_buf_reset_data_len(struct doca_buf *buf);

/* NULL behind the last. */
DOCA_STABLE
doca_error_t doca_buf_get_next_in_list(struct doca_buf *buf, struct doca_buf **next_buf);

/* The buffer itself, if it is the last. */
DOCA_STABLE
doca_error_t doca_buf_get_last_in_list(struct doca_buf *buf, struct doca_buf **last_buf);

DOCA_STABLE
doca_error_t doca_buf_is_last_in_list(const struct doca_buf *buf, uint8_t *is_last);

DOCA_STABLE
doca_error_t doca_buf_is_first_in_list(const struct doca_buf *buf, uint8_t *is_first);

/* 0 for a buffer that is alone. */
DOCA_STABLE
doca_error_t doca_buf_is_in_list(const struct doca_buf *buf, uint8_t *is_in_list);

/* 1 for a buffer that is alone. NOT_PERMITTED: not the first of its list. */
DOCA_STABLE
doca_error_t doca_buf_get_list_len(const struct doca_buf *buf, uint32_t *num_elements);

/* Takes list2, and what comes behind it, off the list that it is in; it has one reference then.
 * INVALID_VALUE: it does not come behind list1. IN_USE: a submitted task uses the list. */
DOCA_STABLE
doca_error_t doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2);

#ifdef __cplusplus
}
#endif

#endif
