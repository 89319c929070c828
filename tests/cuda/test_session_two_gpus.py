# SPDX-License-Identifier: Apache-2.0
"""session.copy() between memory of GPUs: from GPU to GPU, or through the DPU, and it says so."""

import re

import pytest
from support.processes.children import run

# argv: places of source and target, and bytes
PROGRAM = """
import os, sys, dgkit
source, target, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
with dgkit.connect(provider="cuda") as session:
    with session.empty(size, on=source) as src, session.empty(size, on=target) as dst:
        data = os.urandom(size)
        session.write(src, data)
        report = session.copy(src, dst)
        assert session.read(dst, size) == data and session.read(src, size) == data
        print(report.direct, report.op.name, report.size == size, report.chunks)
        print(report)
        print("direct" in report._repr_html_(), "through the DPU" in report._repr_html_())
"""
MIB = 1 << 20


def copied(source: str, target: str, size: int) -> list[str]:
    return run(PROGRAM, source, target, size, DGKIT_FAKE_CUDA="gpus=2").splitlines()


@pytest.mark.parametrize("pair", [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0"), ("cuda:1", "cuda:1")])
def test_large_gpu_memory_is_copied_directly(pair, fake_cuda):
    said, shown, card = copied(*pair, 3 * MIB + 1)
    assert (said, card) == ("True WRITE True 1", "True False")
    assert re.fullmatch(
        r"<TransferReport OK, 3,145,729 bytes by cuda, worker: "
        r"DMA write [\d.,]+ µs, direct, in 1 piece>",
        shown,
    )


def test_what_is_larger_than_a_chunk_is_copied_in_several(fake_cuda):
    assert copied("cuda:0", "cuda:1", 258 * MIB)[0] == "True WRITE True 2"


@pytest.mark.parametrize("pair", [("cuda:0", "host"), ("host", "cuda:1"), ("pinned", "cuda:0")])
def test_all_else_goes_through_the_memory_of_the_dpu(pair, fake_cuda):
    said, shown, card = copied(*pair, MIB)
    assert said.startswith("False WRITE True")
    assert card == "False True"
    assert re.search(r"DMA read [\d.,]+ µs, write [\d.,]+ µs, in", shown)


def test_a_small_copy_waits_for_no_kernel_of_the_gpu(fake_cuda):
    assert copied("cuda:0", "cuda:1", 64)[0].startswith("False WRITE True")
