/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel for many small copies, in PTX: the driver compiles it, so no CUDA compiler is needed.
 * Each operation is executed by 1 << shift threads, which copy 8 bytes at a time if both addresses
 * and the size are multiples of 8, and single bytes otherwise. All accesses are volatile, so that
 * they see writes of the CPU and of other processes, and nothing is cached.
 *
 *   dg_gather(struct gather_op *ops, u32 first, u32 mask, u32 n, u32 shift)
 *   operation i is ops[(first + i) & mask]
 */
#ifndef DG_CUDA_GATHER_H
#define DG_CUDA_GATHER_H

static const char dg_gather_ptx[] =
	".version 6.0\n.target sm_60\n.address_size 64\n"
	".visible .entry dg_gather(.param .u64 ops, .param .u32 first, .param .u32 mask,\n"
	"	.param .u32 n, .param .u32 shift)\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .b32 %r<12>;\n"
	"	.reg .b64 %rd<12>;\n"
	"	mov.u32 %r0, %ctaid.x;\n"
	"	mov.u32 %r1, %ntid.x;\n"
	"	mov.u32 %r2, %tid.x;\n"
	"	mad.lo.u32 %r0, %r0, %r1, %r2;\n"
	"	ld.param.u32 %r3, [shift];\n"
	"	shr.u32 %r4, %r0, %r3;\n" /* index of the operation */
	"	ld.param.u32 %r5, [n];\n"
	"	setp.ge.u32 %p, %r4, %r5;\n"
	"	@%p bra DONE;\n"
	"	mov.u32 %r6, 1;\n"
	"	shl.b32 %r6, %r6, %r3;\n" /* threads per operation */
	"	sub.u32 %r7, %r6, 1;\n"
	"	and.b32 %r7, %r0, %r7;\n" /* index of this thread in it */
	"	ld.param.u32 %r8, [first];\n"
	"	ld.param.u32 %r9, [mask];\n"
	"	add.u32 %r8, %r8, %r4;\n"
	"	and.b32 %r8, %r8, %r9;\n"
	"	ld.param.u64 %rd0, [ops];\n"
	"	mul.wide.u32 %rd1, %r8, 32;\n"
	"	add.u64 %rd0, %rd0, %rd1;\n"
	"	ld.volatile.global.u64 %rd2, [%rd0];\n" /* dst */
	"	ld.volatile.global.u64 %rd3, [%rd0+8];\n" /* src */
	"	ld.volatile.global.u64 %rd4, [%rd0+16];\n" /* size */
	"	or.b64 %rd5, %rd2, %rd3;\n"
	"	or.b64 %rd5, %rd5, %rd4;\n"
	"	and.b64 %rd5, %rd5, 7;\n"
	"	cvt.u64.u32 %rd6, %r7;\n"
	"	cvt.u64.u32 %rd7, %r6;\n"
	"	setp.ne.u64 %p, %rd5, 0;\n"
	"	@%p bra BYTES;\n"
	"	shl.b64 %rd6, %rd6, 3;\n"
	"	shl.b64 %rd7, %rd7, 3;\n"
	"WORDS:\n"
	"	setp.ge.u64 %p, %rd6, %rd4;\n"
	"	@%p bra DONE;\n"
	"	add.u64 %rd8, %rd3, %rd6;\n"
	"	ld.volatile.global.u64 %rd9, [%rd8];\n"
	"	add.u64 %rd8, %rd2, %rd6;\n"
	"	st.volatile.global.u64 [%rd8], %rd9;\n"
	"	add.u64 %rd6, %rd6, %rd7;\n"
	"	bra WORDS;\n"
	"BYTES:\n"
	"	setp.ge.u64 %p, %rd6, %rd4;\n"
	"	@%p bra DONE;\n"
	"	add.u64 %rd8, %rd3, %rd6;\n"
	"	ld.volatile.global.u8 %r10, [%rd8];\n"
	"	add.u64 %rd8, %rd2, %rd6;\n"
	"	st.volatile.global.u8 [%rd8], %r10;\n"
	"	add.u64 %rd6, %rd6, %rd7;\n"
	"	bra BYTES;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

#endif
