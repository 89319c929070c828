# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs and GPU queues: what the proxy cannot copy is refused before a kernel runs."""

import pytest

import dgkit


def test_a_gpu_queue_of_soft_takes_no_memory_of_a_gpu():
    with (
        dgkit.empty(4096, on="gpu") as on_gpu,
        dgkit.empty(4096, on="pinned") as pinned,
        dgkit.Device("soft") as device,
    ):
        local, reached = device.register(on_gpu), device.register(pinned)
        with pytest.raises(dgkit.Unsupported, match=r"on cuda:0.* is GPU memory.*on='pinned'"):
            device.gpu_queue(regions=(local,))
        device.gpu_queue(regions=(reached,)).close()
