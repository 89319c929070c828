"""What somebody wants to do: it decides which checks count."""

from __future__ import annotations

from enum import Enum

__all__ = ["ALL", "WITH_GPU", "Goal"]


class Goal(Enum):
    """Without one (`auto`) the machine is judged for what it looks like: diagnosis.py."""

    ARM_DMA = "arm-dma"
    RDMA = "rdma"
    GPUNETIO = "gpunetio"
    LAPTOP = "laptop"

    def __str__(self) -> str:
        return self.value

    @property
    def text(self) -> str:
        """In words."""
        return _TEXTS[self]


_TEXTS = {
    Goal.ARM_DMA: "the Arm cores of a BlueField in DPU mode read and write a GPU's memory",
    Goal.RDMA: "a NIC reads and writes a GPU's memory by RDMA",
    Goal.GPUNETIO: "kernels on a GPU use a NIC by DOCA GPUNetIO (NIC mode on a BlueField)",
    Goal.LAPTOP: "the software DPU, on a machine with neither DPU nor GPU",
}

ALL = frozenset(Goal)
WITH_GPU = frozenset({Goal.ARM_DMA, Goal.RDMA, Goal.GPUNETIO})
