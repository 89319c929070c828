// SPDX-License-Identifier: Apache-2.0
/* Parsing of work queue entries. Pure functions: bytes in, a checked entry or a fault out. */
#include "nic_wqe.h"

#include "dgkit.h"

static bool fail(struct nic_fault *f, uint8_t syndrome, const char *what, uint64_t value,
		 uint64_t limit)
{
	*f = (struct nic_fault){syndrome, what, value, limit};
	return false;
}

/* Parses the data segments from number `first` of the entry to `end`. */
static bool parse_data(const uint8_t *bytes, uint32_t first, uint32_t end, struct nic_wqe *out,
		       struct nic_fault *f)
{
	for (uint32_t i = first; i < end;) {
		const uint8_t *at = bytes + WQE_SEGMENT * i;
		struct nic_segment *s = &out->segments[out->n_segments++];
		const uint32_t length = be32_at(at);
		s->is_inline = length & WQE_INLINE;
		if (s->is_inline) {
			s->size = length & ~WQE_INLINE;
			s->at = (uint16_t)(WQE_SEGMENT * i + 4);
			const uint32_t room = WQE_SEGMENT * (end - i) - 4;
			if (s->size > room)
				return fail(f, SYNDROME_LOCAL_QP, "inline bytes", s->size, room);
			i += (4 + s->size + WQE_SEGMENT - 1) / WQE_SEGMENT;
		} else {
			s->size = length ? length : WQE_MESSAGE_MAX;
			s->key = be32_at(at + 4);
			s->address = be64_at(at + 8);
			i++;
		}
		out->total += s->size;
	}
	if (out->total > WQE_MESSAGE_MAX)
		return fail(f, SYNDROME_LOCAL_LENGTH, "bytes of the message", out->total,
			    WQE_MESSAGE_MAX);
	return true;
}

static bool check_segments(uint32_t segments, uint32_t least, uint32_t most, struct nic_fault *f)
{
	if (segments < least)
		return fail(f, SYNDROME_LOCAL_QP, "number of segments, too few", segments, least);
	if (segments > most)
		return fail(f, SYNDROME_LOCAL_QP, "number of segments, too many", segments, most);
	return true;
}

static bool no_inline(const struct nic_wqe *w, struct nic_fault *f)
{
	for (uint32_t i = 0; i < w->n_segments; i++)
		if (w->segments[i].is_inline)
			return fail(f, SYNDROME_LOCAL_QP, "inline segments", i + 1, 0);
	return true;
}

/* Reads the operands at `at`. Returns how many segments they take. */
static uint32_t parse_operands(const uint8_t *at, uint32_t opcode, struct dg_atomic *a)
{
	a->adds = opcode == WQE_MASKED_FA || opcode == WQE_ATOMIC_FA;
	a->mask = a->adds ? 0 : UINT64_MAX;
	a->compare_mask = UINT64_MAX;
	if (a->size == 4) {
		a->operand = be32_at(at);
		a->compare = be32_at(at + 4);
		a->mask = a->adds ? be32_at(at + 4) : be32_at(at + 8);
		a->compare_mask = be32_at(at + 12);
		return 1;
	}
	a->operand = be64_at(at);
	a->compare = be64_at(at + 8);
	if (opcode == WQE_MASKED_FA)
		a->mask = be64_at(at + 8);
	if (opcode != WQE_MASKED_CS)
		return 1;
	a->mask = be64_at(at + 16);
	a->compare_mask = be64_at(at + 24);
	return 2;
}

static bool parse_atomic(const uint8_t *bytes, uint32_t segments, uint32_t opmod, struct nic_wqe *w,
			 struct nic_fault *f)
{
	const bool masked = w->opcode == WQE_MASKED_CS || w->opcode == WQE_MASKED_FA;
	if (masked && opmod != 8 && opmod != 9)
		return fail(f, SYNDROME_LOCAL_QP, "opmod; it is 8 or 9", opmod, 9);
	w->atomic.size = masked && opmod == 8 ? 4 : 8;
	const uint32_t most = w->opcode == WQE_MASKED_CS && w->atomic.size == 8 ? 5 : 4;
	if (!check_segments(segments, most, most, f))
		return false;
	const uint32_t first = 2 + parse_operands(bytes + 2 * WQE_SEGMENT, w->opcode, &w->atomic);
	if (!parse_data(bytes, first, segments, w, f) || !no_inline(w, f))
		return false;
	if (w->total != w->atomic.size)
		return fail(f, SYNDROME_LOCAL_LENGTH, "bytes for the old value", w->total,
			    w->atomic.size);
	if (w->remote % w->atomic.size)
		return fail(f, SYNDROME_REMOTE_REQUEST, "address of the word, not aligned", w->remote,
			    w->atomic.size);
	return true;
}

/* A message of a datagram, behind its address of three segments. */
static bool parse_datagram(const uint8_t *bytes, uint32_t segments, struct nic_wqe *w, struct nic_fault *f)
{
	if (!check_segments(segments, 4, WQE_SEGMENTS_MAX, f))
		return false;
	w->q_key = be32_at(bytes + 16);
	w->to = be32_at(bytes + 24);
	memcpy(w->gid, bytes + 48, sizeof w->gid);
	if (!(w->to & WQE_LONG_ADDRESS))
		return fail(f, SYNDROME_LOCAL_QP, "address, without the bit of a long one", w->to, 0);
	w->to &= 0xffffff;
	if (!parse_data(bytes, 4, segments, w, f))
		return false;
	return w->total <= DG_NIC_MTU ||
	       fail(f, SYNDROME_LOCAL_LENGTH, "bytes of the datagram", w->total, DG_NIC_MTU);
}

/* A change of a key (UMR), as libmlx5 binds and invalidates memory windows: a control segment of 48 bytes, the key's
 * context of 64, and 64 with the memory. */
static bool parse_window(const uint8_t *bytes, uint32_t segments, struct nic_wqe *w, struct nic_fault *f)
{
	enum { INLINE = 1 << 7, CHECK_FREE = 1 << 5, CHECK_QPN = 1 << 3, SETS_LENGTH = 1 << 0, FREE = 1 << 6 };
	const uint8_t *control = bytes + WQE_SEGMENT, *context = control + 48, *memory = context + 64;
	if (!check_segments(segments, 8, 12, f))
		return false;
	struct nic_binding *b = &w->window;
	*b = (struct nic_binding){
		.binds = be64_at(control + 8) & SETS_LENGTH,
		.is_free = control[0] & CHECK_FREE,
		.is_own = control[0] & CHECK_QPN,
		.variant = context[7],
		.qpn = be32_at(context + 4) >> 8,
		.access = (context[2] & 1 << 4 ? DG_NIC_REMOTE_READ : 0u) |
			  (context[2] & 1 << 5 ? DG_NIC_REMOTE_WRITE : 0u) |
			  (context[2] & 1 << 6 ? DG_NIC_REMOTE_ATOMIC : 0u),
		.address = be64_at(context + 16),
		.size = be64_at(context + 24),
	};
	w->rkey = be32_at(bytes + 12);
	if (!b->binds)
		return context[0] & FREE ||
		       fail(f, SYNDROME_LOCAL_QP, "change of a key that neither binds nor frees it", w->rkey, 0);
	if (!(control[0] & INLINE) || segments != 12)
		return fail(f, SYNDROME_LOCAL_QP, "change of a key whose memory is not in the entry, segments",
			    segments, 12);
	b->memory = (struct nic_segment){
		.size = be32_at(memory), .key = be32_at(memory + 4), .address = be64_at(memory + 8)};
	return b->size == b->memory.size ||
	       fail(f, SYNDROME_LOCAL_QP, "bytes of a memory window; its memory has the second number", b->size,
		    b->memory.size);
}

/* Whether queue pairs of this kind execute the opcode. */
static bool has_opcode(uint32_t transport, uint32_t opcode)
{
	if (transport == DG_NIC_RC || transport == DG_NIC_XRC_SEND)
		return true;
	switch (opcode) {
	case WQE_NOP:
	case WQE_WAIT:
	case WQE_DUMP:
	case WQE_SEND:
	case WQE_SEND_IMM:
		return true;
	case WQE_WRITE:
	case WQE_WRITE_IMM:
	case WQE_UMR:
		return transport == DG_NIC_UC;
	default:
		return false;
	}
}

static bool parse_body(const uint8_t *bytes, uint32_t segments, uint32_t opmod, uint32_t transport,
		       struct nic_wqe *w, struct nic_fault *f);

/* An entry for a peer: as of RC, behind a segment that names the shared receive queue. */
static bool parse_xrc(const uint8_t *bytes, uint32_t segments, uint32_t opmod, struct nic_wqe *w,
		      struct nic_fault *f)
{
	if (!check_segments(segments, 2, WQE_SEGMENTS_MAX, f))
		return false;
	w->srq = be32_at(bytes + WQE_SEGMENT) & 0xffffff;
	const bool valid = parse_body(bytes + WQE_SEGMENT, segments - 1, opmod, DG_NIC_RC, w, f);
	for (uint32_t i = 0; i < w->n_segments; i++)
		w->segments[i].at += WQE_SEGMENT;
	return valid;
}

static bool parse_body(const uint8_t *bytes, uint32_t segments, uint32_t opmod, uint32_t transport,
		       struct nic_wqe *w, struct nic_fault *f)
{
	if (__builtin_expect(transport != DG_NIC_RC, 0) && !has_opcode(transport, w->opcode))
		return fail(f, SYNDROME_LOCAL_QP, "opcode, not of this transport", w->opcode, 0);
	if (transport == DG_NIC_XRC_SEND && w->opcode != WQE_NOP && w->opcode != WQE_WAIT && w->opcode != WQE_DUMP &&
	    w->opcode != WQE_UMR)
		return parse_xrc(bytes, segments, opmod, w, f);
	switch (w->opcode) {
	case WQE_NOP:
		return true;
	case WQE_UMR:
		return parse_window(bytes, segments, w, f);
	case WQE_SEND:
	case WQE_SEND_IMM:
	case WQE_SEND_INVAL:
		if (transport == DG_NIC_UD)
			return parse_datagram(bytes, segments, w, f);
		return parse_data(bytes, 1, segments, w, f);
	case WQE_DUMP:
		return check_segments(segments, 2, WQE_SEGMENTS_MAX, f) &&
		       parse_data(bytes, 1, segments, w, f) && no_inline(w, f);
	case WQE_WAIT:
		w->max_index = be32_at(bytes + 24);
		w->cqn = be32_at(bytes + 28) & 0xffffff;
		return check_segments(segments, 2, 2, f);
	case WQE_WRITE:
	case WQE_WRITE_IMM:
	case WQE_READ:
	case WQE_ATOMIC_CS:
	case WQE_ATOMIC_FA:
	case WQE_MASKED_CS:
	case WQE_MASKED_FA:
		break;
	default:
		return fail(f, SYNDROME_LOCAL_QP, "opcode, unknown", w->opcode, WQE_UMR);
	}
	if (!check_segments(segments, 2, WQE_SEGMENTS_MAX, f))
		return false;
	w->remote = be64_at(bytes + 16);
	w->rkey = be32_at(bytes + 24);
	if (w->opcode > WQE_READ) /* all opcodes above it that are left here are atomic */
		return parse_atomic(bytes, segments, opmod, w, f);
	return parse_data(bytes, 2, segments, w, f) && (w->opcode != WQE_READ || no_inline(w, f));
}

bool dg_nic_parse(const uint8_t *bytes, uint16_t index, uint32_t qpn, uint32_t transport,
		  struct nic_wqe *out, struct nic_fault *fault)
{
	const uint32_t first = be32_at(bytes), second = be32_at(bytes + 4), segments = second & 0x3f;
	out->opcode = first & 0xff;
	out->flags = bytes[11];
	out->blocks = wqe_blocks(bytes);
	out->n_segments = 0;
	out->total = 0;
	out->srq = 0;
	memcpy(&out->immediate, bytes + 12, 4);
	if ((uint16_t)(first >> 8) != index)
		return fail(fault, SYNDROME_LOCAL_QP, "index; it should be the second number",
			    (uint16_t)(first >> 8), index);
	if (second >> 8 != qpn)
		return fail(fault, SYNDROME_LOCAL_QP, "queue pair number; it should be the second number",
			    second >> 8, qpn);
	return check_segments(segments, 1, WQE_SEGMENTS_MAX, fault) &&
	       parse_body(bytes, segments, first >> 24, transport, out, fault);
}

uint32_t dg_nic_parse_receive(const uint8_t *bytes, uint32_t n, struct nic_segment *out)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *at = bytes + WQE_SEGMENT * i;
		const uint32_t length = be32_at(at);
		out[i] = (struct nic_segment){
			.size = length ? length : WQE_MESSAGE_MAX,
			.key = be32_at(at + 4),
			.address = be64_at(at + 8),
		};
		if (!length && (!out[i].key || out[i].key == WQE_END_KEY))
			return i;
	}
	return n;
}
