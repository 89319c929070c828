# SPDX-License-Identifier: Apache-2.0
"""Inline PTX for the emulated GPU."""

import numpy as np
import pytest

from dgkit.errors import KernelError
from dgkit.gpu_initiated import emulate, ptx

# A header in the manner of GPUNetIO's: asm statements, a packed structure, a read by volatile.
HEADER = r"""
#pragma once
#include <cuda/atomic>
#include <cuda_runtime.h>
struct Queue {
    uint64_t index;
    uint32_t flags, mask;
} __attribute__((__aligned__(8))) __attribute__((__packed__));
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
__device__ static inline void count(uint64_t &index) { index++; }
__device__ static inline uint64_t swap64(uint64_t x)
{
    uint64_t ret;
    asm volatile("{\n\t.reg .b32 mask, none;\n\t.reg .b32 lo; .reg .b32 hi, %%t;\n\t" /* a
        comment of several


        lines, after which a preprocessor may state the line anew


        */
                 "mov.b32 mask, 0x0123; mov.b64 {lo,hi}, %1;\n\t"
                 "prmt.b32 %%t, lo, none, mask; // the upper half\n\t"
                 "prmt.b32 lo, hi, none, mask; mov.b64 %0, {lo,%%t}; }"
                 : "=l"(ret) : "l"(x));
    return ret;
}
__device__ static inline uint16_t swap16(uint16_t x)
{
    asm("{ .reg .b8 hi, lo; mov.b16 {hi, lo}, %0; mov.b16 %0, {lo, hi}; }" : "+h"(x));
    return x;
}
"""
KERNELS = r"""
#include "queue.cuh"
template <class T> __device__ T relaxed(T *p)
{
    uint32_t v;
    asm volatile("{ .reg .b32 x; ld.L1::no_allocate.relaxed.sys.global.b8 x, [%1];"
                 "mov.b32 %0, x; } { .reg .b64 x; mov.b64 x, %1; }" : "=" "r"(v) : "l"(p));
    return v;
}
__global__ void statements(uint64_t *out, uint8_t *bytes, int32_t minus)
{
    Queue q = {41, 5, 0};
    count(q.index);
    out[0] = READ_ONCE(q.index);
    out[1] = swap64(0x0102030405060708);
    out[2] = swap16(0x0102);
    out[3] = relaxed(bytes + 1);
    asm volatile("st.weak.cs.v2.b64 [%0], {%1, %2};" :: "l"(out + 4), "l"(7ull), "n"(8));
    asm volatile("st.mmio.relaxed.sys.global.b64 [%0+48], %1;" :: "l"(out), "l"((uint64_t *)99));
    asm volatile("fence.acq_rel.sys; membar.gl; fence.proxy.async;" ::: "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 8;"
                 :: "l"(out + 7), "l"(out + 1));
    asm volatile("atom.acquire.gpu.add.u64 %0, [%1], %2;" : "=l"(out[8]) : "l"(out + 4), "l"(3ull));
    asm volatile("red.release.sys.max.s64 [%0], -5;" :: "l"(out + 9));
    asm("atom.cas.b32 %0, [%1], 8, %2;" : "=r"(*(uint32_t *)(out + 10)) : "l"(out + 5), "r"(6));
    asm("{ .reg .pred p; setp.lt.s32 p, %2, 0; selp.b32 %0, 11, 12, p; @!p mov.b32 %1, 1;"
        "@p cvt.s64.s32 %1, %2; }" : "=r"(*(uint32_t *)(out + 11)), "=l"(out[12]) : "r"(minus));
    asm("shr.s32 %0, %1, 40; bfe.u32 %0, %0, 4, 8;" : "+r"(*(int *)(out + 13)) : "r"(minus));
    asm("mad.wide.s32 %0, %1, 3, %0; lop3.b32 %1, %1, 0xf, 0, 0xc0;"
        : "+l"(out[14]), "+r"(minus));
    float f = 1.5f, g;
    asm("fma.rn.f32 %0, %1, 0f40000000, %1; cvt.rzi.s32.f32 %2, %0;"
        : "=f"(g), "+f"(f), "=r"(*(int *)(out + 15)));
    out[16] = (uint64_t)minus;
}
"""


def test_statements_give_what_a_gpu_gives(tmp_path):
    (tmp_path / "queue.cuh").write_text(HEADER)
    module = emulate(KERNELS, options=[f"-I{tmp_path}"])
    out, data = np.zeros(17, "i8"), np.arange(200, 204, dtype="u1")
    module["statements"](1, 1, (out, data, np.int32(-2)))
    swapped = 0x0807060504030201
    assert out.tolist() == [
        42, swapped, 0x0201, 201, 10, 6, 99, swapped, 7, 0, 8, 11, -2, 255, -6, 4, 14,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("statement", "quoted"),
    [
        ('asm("wgmma.fence.sync.aligned;")', "wgmma.fence.sync.aligned"),
        ('asm("add.u32 %0, %0, 1; bra again;" : "+r"(x))', "bra again"),
        (
            '__asm__ __volatile__("mov.u32 %0, %%clusterid.x;" : "=r"(x))',
            "mov.u32 %0, %clusterid.x",
        ),
        ('asm("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(y))', "ld.shared.u32 %0, [%1]"),
        ('asm("add.f16x2 %0, %0, %0;" : "+r"(x))', "add.f16x2 %0, %0, %0"),
        ('asm(".reg .f16 half; mov.b16 half, %0;" :: "h"(x))', ".reg .f16 half"),
        ('asm("bar.sync %0, 64;" :: "r"(x))', "bar.sync %0, 64"),
        ('asm("mov.b32 %0, missing;" : "=r"(x))', "mov.b32 %0, missing"),
        ('asm("mov.b32 %0, 0;" : "=Q"(x))', 'operand "=Q"(x)'),
    ],
)
def test_an_unknown_statement_is_quoted_with_its_file_and_line(statement, quoted):
    text = f'# 1 "kernel.cu"\nint x;\n# 7 "warp.cuh" 1\n\nvoid f(int y)\n{{\n    {statement};\n}}\n'
    with pytest.raises(KernelError) as raised:
        ptx.translate(text)
    assert f"warp.cuh:10: the PTX statement `{quoted};` is not known" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        'extern int scan(void) __asm__("" "scan2");',
        'void f() { asm volatile("" ::: "memory"); }',
        'const char *s = "asm(\\"bra x;\\")"; char c = \'"\'; int big = 1\'000;',
        'const char *s = R"x(asm("bra x;"))x";',
        "int product = a *(volatile_one);",
        '# 5 "/usr/include/math.h" 1 3 4\nvoid f() { asm("fsqrt;"); }\n',
    ],
)
def test_what_is_no_ptx_stays(text):
    assert ptx.translate(f'# 1 "kernel.cu"\n{text}\n') == f'# 1 "kernel.cu"\n{text}\n'


def test_lines_stay_where_they_are():
    text = '# 1 "kernel.cu"\nvoid f(int x) {\n asm("mov.b32 %0,"\n  "0;"\n : "=r"(x));\n}\n'
    assert ptx.translate(text).count("\n") == text.count("\n")


def test_a_packed_structure_that_needs_its_packing_is_refused():
    packed = "struct P { char c; long l; } __attribute__((aligned(8))) __attribute__((packed));"
    with pytest.raises(KernelError, match="static assertion failed: P"):
        emulate(f'{packed} void f() {{ asm("membar.gl;"); }}')
