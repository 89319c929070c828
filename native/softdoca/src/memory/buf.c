// SPDX-License-Identifier: Apache-2.0
/*
 * Single buffers; lists of buffers are in buf_list.c. No locks: a buffer belongs to one thread.
 * Sources: "DOCA Buf" is the published reference of that library; "guess" marks an assumption that
 * no published source confirms.
 */
#include "memory.h"

void buf_give_back(struct doca_buf *b)
{
	while (b) {
		struct doca_buf *next = b->next;
		struct doca_buf_inventory *inv = b->inventory;
		/* release: a thread that sees the map without buffers may destroy it */
		atomic_fetch_sub_explicit(&b->mmap->bufs, 1, memory_order_release);
		object_become(b, OBJECT_BUF_IDLE);
		inventory_lock(inv);
		b->next_free = inv->free;
		inv->free = b;
		inv->n_free++;
		inventory_unlock(inv);
		b = next;
	}
}

static __attribute__((cold, noinline)) doca_error_t refuse_dec(const struct doca_buf *b)
{
	const char *func = "doca_buf_dec_refcount";
	if (object_is(b, OBJECT_BUF_IDLE)) /* DOCA Buf, doca_buf_dec_refcount: already 0 */
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "buffer %p was already returned",
				  (const void *)b);
	if (!object_is(b, OBJECT_BUF))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not a buffer",
				  (const void *)b);
	if (b->first != b) /* DOCA Buf, doca_buf_dec_refcount */
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
				  "the buffer is not the first of its list");
	return REFUSE_FOR(func, DOCA_ERROR_IN_USE,
			  "a submitted task still uses the buffer"); /* guess */
}

doca_error_t doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount)
{
	if (!object_is(buf, OBJECT_BUF) || buf->first != buf ||
	    (buf->refcount == 1 && buf_in_tasks(buf)))
		return refuse_dec(buf);
	if (refcount) /* DOCA Buf: the previous number */
		*refcount = buf->refcount;
	if (!--buf->refcount)
		buf_give_back(buf);
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_inc_refcount(struct doca_buf *buf, uint16_t *refcount)
{
	CHECK_BUF(buf);
	/* DOCA Buf, doca_buf_inc_refcount */
	if (buf->first != buf)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the buffer is not the first of its list");
	if (buf->refcount == UINT16_MAX)
		return REFUSE(DOCA_ERROR_TOO_BIG, "the buffer has %u references, the maximum",
			      UINT16_MAX);
	if (refcount)
		*refcount = buf->refcount;
	buf->refcount++;
	return DOCA_SUCCESS;
}

GETTER(doca_buf_get_refcount, CHECK_BUF, const struct doca_buf, uint16_t, handle->refcount)
GETTER(doca_buf_get_len, CHECK_BUF, const struct doca_buf, size_t, handle->len)
GETTER(doca_buf_get_head, CHECK_BUF, const struct doca_buf, void *, handle->head)
GETTER(doca_buf_get_data, CHECK_BUF, const struct doca_buf, void *, handle->data)
GETTER(doca_buf_get_data_len, CHECK_BUF, const struct doca_buf, size_t, handle->data_len)

/* DOCA Buf: data that exceeds the buffer is undefined. Here it is refused. */
static __attribute__((cold, noinline)) doca_error_t refuse_data(const struct doca_buf *b,
								const void *data, size_t len,
								const char *func)
{
	if (!object_is(b, OBJECT_BUF))
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%p is not a buffer in use",
			     (const void *)b);
	else
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func,
			     "%zu bytes at %p are not within the buffer: %zu bytes at %p", len,
			     data, b->len, (void *)b->head);
	return DOCA_ERROR_INVALID_VALUE;
}

doca_error_t doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len)
{
	if (!object_is(buf, OBJECT_BUF) || !range_within(data, data_len, buf->head, buf->len))
		return refuse_data(buf, data, data_len, __func__);
	buf->data = data;
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_set_data_len(struct doca_buf *buf, size_t data_len)
{
	if (!object_is(buf, OBJECT_BUF) || !range_within(buf->data, data_len, buf->head, buf->len))
		return refuse_data(buf, object_is(buf, OBJECT_BUF) ? buf->data : NULL, data_len,
				   __func__);
	buf->data_len = data_len;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_reset_data_len(struct doca_buf *buf)
{
	CHECK_BUF(buf);
	buf->data_len = 0;
	return DOCA_SUCCESS;
}
