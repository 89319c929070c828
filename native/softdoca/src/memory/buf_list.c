// SPDX-License-Identifier: Apache-2.0
/*
 * Lists of buffers. Each buffer refers to the first, and the first has the last and the length. The
 * reference count of the list is that of its first buffer; the others have one reference each.
 * Sources: "DOCA Buf" is the published reference of that library; "guess" marks an assumption that
 * no published source confirms.
 */
#include "memory.h"

GETTER(doca_buf_get_next_in_list, CHECK_BUF, struct doca_buf, struct doca_buf *, handle->next)
GETTER(doca_buf_get_last_in_list, CHECK_BUF, struct doca_buf, struct doca_buf *,
       handle->first->last)
GETTER(doca_buf_is_last_in_list, CHECK_BUF, const struct doca_buf, uint8_t, !handle->next)
GETTER(doca_buf_is_first_in_list, CHECK_BUF, const struct doca_buf, uint8_t,
       handle->first == handle)
GETTER(doca_buf_is_in_list, CHECK_BUF, const struct doca_buf, uint8_t,
       handle->next || handle->first != handle)

doca_error_t doca_buf_get_list_len(const struct doca_buf *buf, uint32_t *num_elements)
{
	CHECK_BUF(buf);
	CHECK_OUT(num_elements);
	if (buf->first != buf) /* DOCA Buf, doca_buf_get_list_len */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the buffer is not the first of its list");
	*num_elements = buf->list_len;
	return DOCA_SUCCESS;
}

doca_error_t doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2)
{
	CHECK_BUF(list1);
	CHECK_BUF(list2);
	if (list1 == list2) /* guess */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a list cannot follow itself");
	/* DOCA Buf, doca_buf_chain_list: both must be heads, and list2 must have one reference; the
	 * errors are a guess */
	if (list1->first != list1 || list2->first != list2)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "list%d is not the first of its list",
			      list1->first != list1 ? 1 : 2);
	if (list2->refcount != 1)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "list2 has %u references, not one",
			      list2->refcount);
	if (buf_in_tasks(list1) || buf_in_tasks(list2)) /* the engine reads it: guess */
		return REFUSE(DOCA_ERROR_IN_USE, "a submitted task still uses list%d",
			      buf_in_tasks(list1) ? 1 : 2);
	list1->last->next = list2;
	list1->last = list2->last;
	list1->list_len += list2->list_len;
	for (struct doca_buf *b = list2; b; b = b->next)
		b->first = list1;
	return DOCA_SUCCESS;
}

/* Returns the buffer before `b`, searching from `from`; NULL if b does not follow it. */
static struct doca_buf *before(struct doca_buf *from, const struct doca_buf *b)
{
	while (from && from->next != b)
		from = from->next;
	return from;
}

doca_error_t doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2)
{
	CHECK_BUF(list1);
	CHECK_BUF(list2);
	struct doca_buf *first = list1->first;
	/* DOCA Buf, doca_buf_unchain_list */
	struct doca_buf *prev = list2->first == first ? before(list1, list2) : NULL;
	if (!prev)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "list2 is not part of list1");
	if (buf_in_tasks(first)) /* the engine reads it: guess */
		return REFUSE(DOCA_ERROR_IN_USE, "a submitted task still uses the list");
	list2->last = first->last;
	list2->list_len = 0;
	for (struct doca_buf *b = list2; b; b = b->next) {
		b->first = list2;
		list2->list_len++;
	}
	prev->next = NULL;
	first->last = prev;
	first->list_len -= list2->list_len;
	return DOCA_SUCCESS;
}
