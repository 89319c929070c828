// SPDX-License-Identifier: Apache-2.0
/* Objects of attributes: a table of setters for each. */
#include "verbs_objects.h"

/* DOCA API reference, Verbs: INVALID_VALUE, NO_MEMORY, for all functions of this file. */
#define ATTR(type, kind, what, ...)                                          \
	static struct type *type##_new(void)                                 \
	{                                                                    \
		struct type *attr = softdoca_object_new(kind, sizeof *attr); \
		struct object o = attr ? attr->o : (struct object){0};       \
		if (attr)                                                    \
			*attr = (struct type){.o = o, __VA_ARGS__};          \
		return attr;                                                 \
	}                                                                    \
	doca_error_t type##_destroy(struct type *attr)                       \
	{                                                                    \
		CHECK_OBJECT(attr, kind, what);                              \
		softdoca_object_free(attr);                                  \
		return DOCA_SUCCESS;                                         \
	}

#define CREATE(type)                                                                     \
	doca_error_t type##_create(struct type **attr)                                   \
	{                                                                                \
		CHECK_OUT(attr);                                                         \
		*attr = type##_new();                                                    \
		return *attr ? DOCA_SUCCESS                                              \
			     : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for attributes"); \
	}

/* A number from `least` to `most`. */
#define NUMBER(type, kind, what, name, ctype, least, most)                                   \
	doca_error_t type##_set_##name(struct type *attr, ctype name)                        \
	{                                                                                    \
		const long long given = (long long)name, low = least, high = most;           \
		CHECK_OBJECT(attr, kind, what);                                              \
		if (given < low || given > high)                                             \
			return REFUSE(DOCA_ERROR_INVALID_VALUE,                              \
				      #name " is %lld: it must be %lld to %lld", given, low, \
				      high);                                                 \
		attr->name = name;                                                           \
		return DOCA_SUCCESS;                                                         \
	}

/* A handle, which may be NULL. */
#define HANDLE(type, kind, what, name, ctype, handle_kind)                                  \
	doca_error_t type##_set_##name(struct type *attr, ctype *name)                      \
	{                                                                                   \
		CHECK_OBJECT(attr, kind, what);                                             \
		if (name && !object_is(name, handle_kind))                                  \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a valid " #name, \
				      (void *)name);                                        \
		attr->name = name;                                                          \
		return DOCA_SUCCESS;                                                        \
	}

#define ANY(type, kind, what, name, ctype)                            \
	doca_error_t type##_set_##name(struct type *attr, ctype name) \
	{                                                             \
		CHECK_OBJECT(attr, kind, what);                       \
		attr->name = name;                                    \
		return DOCA_SUCCESS;                                  \
	}

#define UMEM(type, kind, what, name, field)                                                        \
	doca_error_t type##_set_##name(struct type *attr, struct doca_umem *umem, uint64_t offset) \
	{                                                                                          \
		CHECK_OBJECT(attr, kind, what);                                                    \
		CHECK_UMEM(umem);                                                                  \
		attr->field = (struct placed){umem, offset};                                       \
		return DOCA_SUCCESS;                                                               \
	}

/* ---- address handles ---- */

#define AH               doca_verbs_ah_attr, OBJECT_VERBS_AH_ATTR, "attributes of an address"
#define EACH(MACRO, ...) MACRO(__VA_ARGS__)

EACH(ATTR, AH, .hop_limit = 255)
EACH(NUMBER, AH, addr_type, enum doca_verbs_addr_type, 0, DOCA_VERBS_ADDR_TYPE_IB_NO_GRH)
EACH(ANY, AH, gid, struct doca_verbs_gid)
EACH(ANY, AH, dlid, uint32_t)
EACH(NUMBER, AH, sl, uint8_t, 0, 15)
EACH(ANY, AH, sgid_index, uint8_t)
EACH(ANY, AH, static_rate, uint8_t)
EACH(ANY, AH, hop_limit, uint8_t)
EACH(ANY, AH, traffic_class, uint8_t)

doca_error_t doca_verbs_ah_attr_create(struct doca_verbs_context *verbs_ctx,
				       struct doca_verbs_ah_attr **attr)
{
	CHECK_CONTEXT(verbs_ctx);
	CHECK_OUT(attr);
	*attr = doca_verbs_ah_attr_new();
	return *attr ? DOCA_SUCCESS : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for attributes");
}

/* ---- completion queues ---- */

#define CQ doca_verbs_cq_attr, OBJECT_VERBS_CQ_ATTR, "attributes of a completion queue"

EACH(ATTR, CQ, .cq_size = 0)
CREATE(doca_verbs_cq_attr)
EACH(NUMBER, CQ, cq_size, uint32_t, 1, DG_NIC_CQES_MAX)
EACH(ANY, CQ, cq_context, void *)
EACH(NUMBER, CQ, external_datapath_en, uint8_t, 0, 1)
EACH(UMEM, CQ, external_umem, external)
EACH(HANDLE, CQ, external_uar, struct doca_uar, OBJECT_UAR)
EACH(NUMBER, CQ, cq_overrun, enum doca_verbs_cq_overrun, 0, 1)
EACH(NUMBER, CQ, cq_collapsed, uint8_t, 0, 1)

doca_error_t doca_verbs_cq_attr_set_entry_size(struct doca_verbs_cq_attr *attr,
					       enum doca_verbs_cq_entry_size entry_size)
{
	CHECK_OBJECT(attr, OBJECT_VERBS_CQ_ATTR, "attributes of a completion queue");
	if (entry_size != DOCA_VERBS_CQ_ENTRY_SIZE_64)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "entry_size is %u: entries have 64 bytes, 0",
			      (unsigned)entry_size);
	return DOCA_SUCCESS;
}

/* ---- queue pairs: creation ---- */

#define INIT doca_verbs_qp_init_attr, OBJECT_VERBS_QP_INIT_ATTR, "attributes of a new queue pair"
#define CHECK_INIT(a) CHECK_OBJECT(a, OBJECT_VERBS_QP_INIT_ATTR, "attributes of a new queue pair")

EACH(ATTR, INIT, .send_max_sges = 1, .receive_max_sges = 1)
CREATE(doca_verbs_qp_init_attr)
EACH(HANDLE, INIT, pd, struct doca_verbs_pd, OBJECT_VERBS_PD)
EACH(HANDLE, INIT, send_cq, struct doca_verbs_cq, OBJECT_VERBS_CQ)
EACH(HANDLE, INIT, receive_cq, struct doca_verbs_cq, OBJECT_VERBS_CQ)
EACH(NUMBER, INIT, sq_sig_all, int, 0, 1)
EACH(NUMBER, INIT, sq_wr, uint32_t, 0, DG_NIC_ENTRIES_MAX)
EACH(NUMBER, INIT, rq_wr, uint32_t, 0, DG_NIC_ENTRIES_MAX)
EACH(NUMBER, INIT, send_max_sges, uint32_t, 1, SEND_SGES_MAX)
EACH(NUMBER, INIT, receive_max_sges, uint32_t, 1, DG_NIC_SGES)
EACH(NUMBER, INIT, max_inline_data, uint32_t, 0, 44)
EACH(ANY, INIT, user_index, uint32_t)
EACH(NUMBER, INIT, qp_type, uint32_t, DOCA_VERBS_QP_TYPE_RC, DOCA_VERBS_QP_TYPE_RC)
EACH(UMEM, INIT, external_umem, external)
EACH(UMEM, INIT, external_dbr_umem, external_dbr)
EACH(NUMBER, INIT, external_datapath_en, uint8_t, 0, 1)
EACH(HANDLE, INIT, external_uar, struct doca_uar, OBJECT_UAR)
EACH(ANY, INIT, qp_context, void *)
EACH(NUMBER, INIT, core_direct_master, uint8_t, 0, 1)
EACH(NUMBER, INIT, cqe_inline, uint8_t, 0, 1)
EACH(NUMBER, INIT, send_dbr_mode, enum doca_verbs_qp_send_dbr_mode, 0, 1)
EACH(NUMBER, INIT, ordering_semantic, enum doca_verbs_qp_ordering_semantic, 0, 2)

doca_error_t doca_verbs_qp_init_attr_set_srq(struct doca_verbs_qp_init_attr *attr,
					     struct doca_verbs_srq *srq)
{
	CHECK_INIT(attr);
	return srq ? REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there are no shared receive queues")
		   : DOCA_SUCCESS;
}

doca_error_t doca_verbs_qp_init_attr_get_external_umem(const struct doca_verbs_qp_init_attr *attr,
						       struct doca_umem **external_umem,
						       uint64_t *external_umem_offset)
{
	CHECK_INIT(attr);
	CHECK_OUT(external_umem);
	*external_umem = attr->external.umem;
	return SET_OUT(external_umem_offset, attr->external.offset);
}

GETTER(doca_verbs_qp_init_attr_get_external_uar, CHECK_INIT, const struct doca_verbs_qp_init_attr,
       struct doca_uar *, handle->external_uar)

static bool valid(const char *func, const void *attr, enum object_kind kind)
{
	return object_is(attr, kind) ||
	       REFUSE_FOR(func, false, "%p is not an object of attributes", attr);
}

#define INIT_GET(name, ctype)                                                                \
	ctype doca_verbs_qp_init_attr_get_##name(const struct doca_verbs_qp_init_attr *attr) \
	{                                                                                    \
		return valid(__func__, attr, OBJECT_VERBS_QP_INIT_ATTR) ? attr->name : 0;    \
	}

INIT_GET(qp_context, void *)
INIT_GET(send_dbr_mode, enum doca_verbs_qp_send_dbr_mode)
INIT_GET(ordering_semantic, enum doca_verbs_qp_ordering_semantic)

/* ---- queue pairs: states ---- */

#define QP doca_verbs_qp_attr, OBJECT_VERBS_QP_ATTR, "attributes of a queue pair"

EACH(ATTR, QP, .port_num = 1)
CREATE(doca_verbs_qp_attr)
EACH(NUMBER, QP, next_state, enum doca_verbs_qp_state, 0, DOCA_VERBS_QP_STATE_ERR)
EACH(NUMBER, QP, current_state, enum doca_verbs_qp_state, 0, DOCA_VERBS_QP_STATE_ERR)
EACH(NUMBER, QP, path_mtu, enum doca_mtu_size, 0, DOCA_MTU_SIZE_4K_BYTES)
EACH(NUMBER, QP, rq_psn, uint32_t, 0, 0xffffff)
EACH(NUMBER, QP, sq_psn, uint32_t, 0, 0xffffff)
EACH(NUMBER, QP, dest_qp_num, uint32_t, 0, 0xffffff)
EACH(NUMBER, QP, allow_remote_write, int, 0, 1)
EACH(NUMBER, QP, allow_remote_read, int, 0, 1)
EACH(NUMBER, QP, atomic_mode, enum doca_verbs_qp_atomic_mode, 0, 8)
EACH(HANDLE, QP, ah_attr, struct doca_verbs_ah_attr, OBJECT_VERBS_AH_ATTR)
EACH(NUMBER, QP, pkey_index, uint16_t, 0, 0)
EACH(NUMBER, QP, port_num, uint16_t, 1, 1)
EACH(NUMBER, QP, ack_timeout, uint16_t, 0, 31)
EACH(NUMBER, QP, retry_cnt, uint16_t, 0, 7)
EACH(NUMBER, QP, rnr_retry, uint16_t, 0, 7)
EACH(NUMBER, QP, min_rnr_timer, uint16_t, 0, 31)
EACH(NUMBER, QP, max_rd_atomic, uint8_t, 0, RD_ATOMIC)
EACH(NUMBER, QP, max_dest_rd_atomic, uint8_t, 0, RD_ATOMIC)

enum doca_verbs_qp_state doca_verbs_qp_attr_get_current_state(const struct doca_verbs_qp_attr *attr)
{
	return valid(__func__, attr, OBJECT_VERBS_QP_ATTR) ? attr->current_state
							   : DOCA_VERBS_QP_STATE_RST;
}
