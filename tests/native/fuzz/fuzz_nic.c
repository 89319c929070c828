/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: a work queue entry that passes the parser has only segments within its bytes, and the
 * parser reads nothing beyond the blocks that the entry claims. */
#include <stdlib.h>

#include "dgkit.h"
#include "nic_wqe.h"

static void must(int truth)
{
	if (!truth)
		abort();
}

static void check_segments(const struct nic_wqe *w)
{
	uint64_t total = 0;
	for (uint32_t i = 0; i < w->n_segments; i++) {
		const struct nic_segment *s = &w->segments[i];
		must(s->size <= WQE_MESSAGE_MAX);
		must(!s->is_inline || s->at + s->size <= (uint32_t)w->blocks * WQE_BLOCK);
		total += s->size;
	}
	must(total == w->total && total <= WQE_MESSAGE_MAX);
	must(w->n_segments <= WQE_SEGMENTS_MAX && w->blocks <= WQE_BLOCKS_MAX);
}

static void check_atomic(const struct nic_wqe *w)
{
	if (w->opcode != WQE_MASKED_FA && w->opcode != WQE_MASKED_CS && w->opcode != WQE_ATOMIC_CS &&
	    w->opcode != WQE_ATOMIC_FA)
		return;
	must(w->atomic.size == 4 || w->atomic.size == 8);
	must(w->total == w->atomic.size && w->n_segments == 1 && !w->segments[0].is_inline);
	must(w->remote % w->atomic.size == 0);
	if (w->opcode == WQE_MASKED_CS || w->opcode == WQE_ATOMIC_CS)
		must(!((dg_atomic_value(&w->atomic, w->remote) ^ w->remote) & ~w->atomic.mask));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* The first byte says whether index and number are right, so that the rest is reached, and the transport. */
	const bool right = size && data[0] & 1;
	const uint32_t transport = size ? (data[0] >> 1) % 3 : 0;
	uint8_t block[WQE_BLOCK] = {0};
	struct nic_segment receives[4];
	struct nic_wqe w;
	struct nic_fault f = {0};
	if (!size)
		return 0;
	data++, size--;
	memcpy(block, data, size < sizeof block ? size : sizeof block);
	if (right) { /* index 7, number 0x521 */
		block[1] = block[4] = 0;
		block[2] = 7;
		block[5] = 5;
		block[6] = 0x21;
	}
	/* Exactly the blocks that it claims, so that AddressSanitizer sees any byte beyond. */
	const size_t claimed = wqe_blocks(block) * WQE_BLOCK;
	uint8_t *bytes = calloc(1, claimed);
	must(bytes != NULL);
	memcpy(bytes, data, size < claimed ? size : claimed);
	memcpy(bytes, block, sizeof block);
	if (dg_nic_parse(bytes, 7, 0x521, transport, &w, &f)) {
		must(!f.syndrome && claimed == (size_t)w.blocks * WQE_BLOCK);
		check_segments(&w);
		must(transport == DG_NIC_RC || w.opcode < WQE_READ || w.opcode == WQE_DUMP || w.opcode == WQE_UMR);
		must(transport != DG_NIC_UD || !w.total || w.total <= DG_NIC_MTU || w.opcode == WQE_DUMP);
		check_atomic(&w);
	} else {
		must(f.syndrome && f.what);
	}
	must(dg_nic_parse_receive(bytes, 4, receives) <= 4);
	free(bytes);
	return 0;
}
