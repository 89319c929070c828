/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, as of DOCA 1.3 to 2.2: the current functions, and their former names. */
#ifndef DOCA_WORKQ_BUF_H
#define DOCA_WORKQ_BUF_H

#include <stdbool.h>

#include "../doca_buf.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum doca_buf_extension {
	DOCA_BUF_EXTENSION_NONE = 0,
	DOCA_BUF_EXTENSION_LINKED_LIST = 1 << 0, /* all buffers of softdoca have it */
};

/* doca_buf_inc_refcount() and doca_buf_dec_refcount(). */
DOCA_STABLE
doca_error_t doca_buf_refcount_add(struct doca_buf *buf, uint16_t *refcount);

DOCA_STABLE
doca_error_t doca_buf_refcount_rm(struct doca_buf *buf, uint16_t *refcount);

/* doca_buf_chain_list() and doca_buf_unchain_list(). */
DOCA_STABLE
doca_error_t doca_buf_list_chain(struct doca_buf *list1, struct doca_buf *list2);

DOCA_STABLE
doca_error_t doca_buf_list_unchain(struct doca_buf *list1, struct doca_buf *list2);

/* doca_buf_get_next_in_list() and doca_buf_get_last_in_list(). */
DOCA_STABLE
doca_error_t doca_buf_list_next(struct doca_buf *buf, struct doca_buf **next_buf);

DOCA_STABLE
doca_error_t doca_buf_list_last(struct doca_buf *buf, struct doca_buf **last_buf);

DOCA_STABLE
doca_error_t doca_buf_list_is_last(const struct doca_buf *buf, bool *is_last);

DOCA_STABLE
doca_error_t doca_buf_list_is_first(const struct doca_buf *buf, bool *is_first);

/* doca_buf_get_list_len(). */
DOCA_STABLE
doca_error_t doca_buf_list_num_elements(const struct doca_buf *buf, uint32_t *num_elements);

#ifdef __cplusplus
}
#endif

#endif
