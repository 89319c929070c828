# SPDX-License-Identifier: Apache-2.0
"""Goals a machine is judged for; a goal selects the checks that count."""

from __future__ import annotations

from enum import Enum


class Goal(Enum):
    """Intended use of a machine. Without a goal (`auto`), automatic_goal.py derives it."""

    ARM_DMA = "arm-dma"
    HOST_DMA = "host-dma"
    RDMA = "rdma"
    GPUNETIO = "gpunetio"
    P2P = "p2p"
    GPU = "gpu"
    LAPTOP = "laptop"

    def __str__(self) -> str:
        return self.value

    @property
    def text(self) -> str:
        """Description, in words."""
        return _TEXTS[self]


_TEXTS = {
    Goal.ARM_DMA: "the Arm cores of a BlueField in DPU mode read and write GPU memory",
    Goal.HOST_DMA: "the Arm cores of a BlueField in DPU mode read and write host memory",
    Goal.RDMA: "a NIC reads and writes GPU memory by RDMA",
    Goal.GPUNETIO: "GPU kernels drive a NIC through DOCA GPUNetIO (a BlueField in NIC mode)",
    Goal.P2P: "GPUs of one machine read and write each other's memory",
    Goal.GPU: "programs of this machine use its GPU; no other device has to reach it",
    Goal.LAPTOP: "the software DPU, which needs neither a DPU nor a GPU",
}

ALL = frozenset(Goal)
# Goals that use the DMA engine of a BlueField, driven by its Arm cores.
BY_ARM = frozenset({Goal.ARM_DMA, Goal.HOST_DMA})
# WITH_GPU: a NIC or DPU accesses GPU memory. WITH_CARD: it accesses GPU or host memory. WITH_PEERS:
# a NIC, a DPU or another GPU accesses GPU memory. ANY_GPU: a GPU is used in any way.
WITH_GPU = frozenset({Goal.ARM_DMA, Goal.RDMA, Goal.GPUNETIO})
WITH_CARD = WITH_GPU | {Goal.HOST_DMA}
WITH_PEERS = WITH_GPU | {Goal.P2P}
ANY_GPU = WITH_PEERS | {Goal.GPU}
