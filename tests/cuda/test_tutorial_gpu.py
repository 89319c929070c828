# SPDX-License-Identifier: Apache-2.0
"""The tutorial about GPU memory, with its GPU half."""

import pytest
from support.jupyter.notebooks import pictures, read, run, said

from dgkit.memory import gpus

ON_A_GPU = ("gpu-array", "gpu-foreign", "gpu-latency", "gpu-dmabuf")


@pytest.mark.any_gpu
def test_with_a_gpu_it_leaves_nothing_out(tmp_path):
    done = run(read("04_gpu_memory"), tmp_path)
    cells = {one.id: one for one in done.cells}
    assert gpus()[0].name in said(cells["here"])
    assert [name for name in ON_A_GPU if "Left out" in said(cells[name])] == []
    assert "share_block=True" in said(cells["gpu-foreign"])
    (card,) = cells["gpu-dmabuf"].outputs
    assert "dma-buf" in card.data["text/html"]
    assert "GPU, direct" in said(cells["stop-measure"])
    assert pictures(done)
