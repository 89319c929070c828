# SPDX-License-Identifier: Apache-2.0
"""Specifications of all data paths, best first, with the checks that each path depends on."""

from __future__ import annotations

from enum import Enum

import msgspec

from .goals import ALL, ANY_GPU, Goal


class DeviceKind(Enum):
    """Kind of device that a data path needs: text if it is missing, checks that look for it."""

    GPU = ("There is no NVIDIA GPU.", ("gpu-present",), "gpu-log")
    BLUEFIELD = ("There is no BlueField.", ("bluefield-present",), "nic-log")
    NIC = ("There is no NIC with RDMA.", ("rdma-devices", "bluefield-present"), "nic-log")

    @property
    def missing(self) -> str:
        """Sentence for a machine without such a device."""
        return str(self.value[0])

    @property
    def checks(self) -> tuple[str, ...]:
        """Names of the checks that look for the device."""
        return tuple(self.value[1])

    @property
    def log(self) -> str:
        """Name of the check of what its driver wrote into the kernel's log."""
        return str(self.value[2])


class DataPathSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of one data path.

    Attributes:
        name: Name in JSON.
        title: Name for people.
        what: Description, one sentence.
        goals: Goals that list the path.
        serves: Goals that the path achieves; for the other goals it is a substitute.
        devices: Devices without which the path does not apply.
        alternatives: Sets of checks; all checks of one set have to pass. In a set, a warning blocks
            like a failure, since it advises the other set, unless two documents disagree about it.
            The first check of a set must have an answer.
        required: Checks whose failure blocks the path; without their answer, the verdict on the
            path is "unknown".
        assumed: Checks whose failure blocks the path; without their answer, the path "should work".
        slow_why: Reason why the path is slow even if all checks pass.
        substitute_on: Checks whose warning makes this path serve the goal.
        unverified: Reason why the path only "should work" even if all checks pass.
    """

    name: str
    title: str
    what: str
    goals: frozenset[Goal]
    serves: frozenset[Goal] = frozenset()
    devices: tuple[DeviceKind, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    required: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    slow_why: str = ""
    substitute_on: tuple[str, ...] = ()
    unverified: str = ""


# Checks of several devices of one kind where it suffices that one device passes.
ANY_DEVICE_SUFFICES = frozenset(
    {
        *("bar1-size", "bar1-resizable", "dmabuf-gpu", "dmabuf-mmap", "topology", "link"),
        *(
            "cuda-context",
            "numa",
            "rdma-devices",
            "rdma-dmabuf",
            "driver-persistence",
            "firmware-version",
        ),
    }
)

# Checks that do not apply if an alternative is set up instead.
REPLACED = frozenset({"dmabuf-gpu"})
# Checks that never fail, only warn, so that a path "should work" without their answer.
# The kernel's log is for root on many systems, and shows errors rather than their absence.
ADVISORY = frozenset(
    {"acs", "topology", "topology-nvidia-smi", "numa", "link", "gpu-log", "nic-log"}
)
# Checks without which CUDA cannot be used.
CUDA = ("driver-loaded", "cuda-driver", "cuda-context")
_DMABUF = (
    *("dmabuf-gpu", "driver-flavour", "kernel-version", "kernel-p2pdma", "gpudirect-platform"),
)
_PEERMEM = ("peermem", "gpudirect-platform")
_RDMA_DMABUF = ("rdma-dmabuf", *_DMABUF)
_PEER_TO_PEER = ("bar1-size", "iommu", "acs", "topology", "virtual-machine", "container")
_ARM = ("bluefield-present", "bluefield-mode", "doca-libraries")
_ARM_ASSUMED = (
    *("dgkit-core", "bluefield-representors", "doca-version", "firmware-version", "container"),
    *("pair-bluefield", "pair-versions", "rdma-devices"),
)
_SECOND_COPY = "Data in GPU memory takes a second copy, through host memory."
# If CPU and GPU share their memory, NVIDIA's documents recommend pinned memory.
_NO_GPUDIRECT = ("gpudirect-platform",)
_HOST_DMA = frozenset({Goal.HOST_DMA})
_ARM_DMA, _RDMA = frozenset({Goal.ARM_DMA}), frozenset({Goal.RDMA})
_P2P, _GPU = frozenset({Goal.P2P}), frozenset({Goal.GPU})
_GPUNETIO, _LAPTOP = frozenset({Goal.GPUNETIO}), frozenset({Goal.LAPTOP})


def _arm_path(name: str, title: str, what: str, gpu_memory: tuple[str, ...]) -> DataPathSpec:
    return DataPathSpec(
        name=name, title=title, what=what, goals=_ARM_DMA, serves=_ARM_DMA,
        devices=(DeviceKind.BLUEFIELD, DeviceKind.GPU), alternatives=(gpu_memory,),
        required=(*_ARM, *CUDA),
        assumed=(*_ARM_ASSUMED, *_PEER_TO_PEER, "pair-memory"),
        unverified="NVIDIA's forum says that it is possible; no document describes it.",
    )  # fmt: skip


def _rdma_path(
    name: str, title: str, what: str, gpu_memory: tuple[str, ...], memlock: tuple[str, ...]
) -> DataPathSpec:
    return DataPathSpec(
        name=name, title=title, what=what, goals=_RDMA, serves=_RDMA,
        devices=(DeviceKind.NIC, DeviceKind.GPU), alternatives=(gpu_memory,),
        required=("rdma-devices", *CUDA),
        assumed=("rdma-core", "ofed-version", *memlock, *_PEER_TO_PEER),
    )  # fmt: skip


def _gpunetio_path(part: str, title: str, does: str) -> DataPathSpec:
    return DataPathSpec(
        name=f"gpunetio-{part}", title=f"GPUNetIO, {title}",
        what=f"GPU kernels {does}; the data is in GPU memory.",
        goals=_GPUNETIO, serves=_GPUNETIO, devices=(DeviceKind.NIC, DeviceKind.GPU),
        alternatives=(_DMABUF, _PEERMEM),
        required=(f"gpunetio-{part}", "bluefield-mode", *CUDA),
        assumed=(
            *("bluefield-link", "firmware-version", "doca-version", "doca-libraries"),
            *("driver-registry", *_PEER_TO_PEER),
        ),
    )  # fmt: skip


DATA_PATH_SPECS = (
    _arm_path(
        "doca-gpu-dmabuf",
        "DOCA DMA to GPU memory (dma-buf)",
        "The Arm cores read and write GPU memory by DOCA DMA; it is exported as a dma-buf.",
        _DMABUF,
    ),
    _arm_path(
        "doca-gpu-peermem",
        "DOCA DMA to GPU memory (peermem)",
        "The Arm cores read and write GPU memory by DOCA DMA; nvidia-peermem maps it.",
        _PEERMEM,
    ),
    DataPathSpec(
        name="doca-host",
        title="DOCA DMA to host memory",
        what="The Arm cores read and write pinned host memory; the GPU copies to and from it.",
        goals=_ARM_DMA,
        devices=(DeviceKind.BLUEFIELD,),
        required=_ARM,
        assumed=(*_ARM_ASSUMED, "memlock"),
        slow_why=_SECOND_COPY,
        substitute_on=_NO_GPUDIRECT,
    ),
    DataPathSpec(
        name="doca-host-memory",
        title="DOCA DMA to host memory",
        what="The Arm cores read and write host memory by DOCA DMA.",
        goals=_HOST_DMA,
        serves=_HOST_DMA,
        devices=(DeviceKind.BLUEFIELD,),
        required=_ARM,
        assumed=(*_ARM_ASSUMED, "memlock"),
    ),
    _rdma_path(
        "rdma-gpu-dmabuf",
        "RDMA to GPU memory (dma-buf)",
        "The NIC reads and writes GPU memory, which is registered as a dma-buf.",
        _RDMA_DMABUF,
        ("memlock-queues",),
    ),
    _rdma_path(
        "rdma-gpu-peermem",
        "RDMA to GPU memory (peermem)",
        "The NIC reads and writes GPU memory, which nvidia-peermem maps.",
        _PEERMEM,
        ("memlock", "memlock-queues"),
    ),
    DataPathSpec(
        name="rdma-host",
        title="RDMA to host memory",
        what="The NIC reads and writes pinned host memory; the GPU copies to and from it.",
        goals=_RDMA,
        devices=(DeviceKind.NIC,),
        required=("rdma-devices",),
        assumed=("rdma-core", "ofed-version", "memlock", "memlock-queues", "container"),
        slow_why=_SECOND_COPY,
        substitute_on=_NO_GPUDIRECT,
    ),
    _gpunetio_path("ethernet", "Ethernet", "send and receive packets"),
    _gpunetio_path("rdma", "RDMA", "start RDMA reads, writes and sends"),
    _gpunetio_path("verbs", "Verbs", "post work requests to RDMA queues"),
    _gpunetio_path("dma", "DMA", "start copies by the NIC's DMA engine"),
    DataPathSpec(
        name="gpunetio-pinned",
        title="GPUNetIO, pinned CPU memory",
        what="GPU kernels drive the NIC; queues and data are in pinned host memory.",
        goals=_GPUNETIO,
        serves=_GPUNETIO,
        devices=(DeviceKind.NIC, DeviceKind.GPU),
        required=(*CUDA, "doca-libraries", "bluefield-mode"),
        assumed=("bluefield-link", "doca-version", "container", "memlock"),
        slow_why="Data is in host memory, and a CPU thread may have to ring the doorbell.",
    ),
    DataPathSpec(
        name="gpu-peers",
        title="GPU to GPU",
        what="A GPU reads and writes another's memory, over PCIe or NVLink.",
        goals=_P2P,
        serves=_P2P,
        devices=(DeviceKind.GPU,),
        required=(*CUDA, "gpu-peers"),
        assumed=("nvlink-fabric", "imex", "iommu", "acs", "virtual-machine", "container"),
    ),
    DataPathSpec(
        name="gpu",
        title="CUDA",
        what="Programs of this machine use the GPU, and its copy engines move the bytes.",
        goals=_GPU,
        serves=_GPU,
        devices=(DeviceKind.GPU,),
        required=CUDA,
        assumed=("nvlink-fabric", "iommu", "container"),
    ),
    DataPathSpec(
        name="cuda",
        title="software DPU, GPU memory (cuda)",
        what="A second process takes the DPU's place; the GPU's copy engine copies.",
        goals=ANY_GPU,
        devices=(DeviceKind.GPU,),
        required=CUDA[:1],
        assumed=("dgkit-core", *CUDA[1:], "cuda-python"),
    ),
    DataPathSpec(
        name="gpunetio-comch",
        title="GPUNetIO, Comch",
        what="GPU kernels send and receive messages of a BlueField's Arm cores.",
        goals=_GPUNETIO,
        devices=(DeviceKind.BLUEFIELD, DeviceKind.GPU),
        required=("doca-libraries", *CUDA),
        assumed=("bluefield-link", "firmware-version", "doca-version"),
    ),
    DataPathSpec(
        name="gpunetio-softdoca",
        title="GPUNetIO, softdoca",
        what="Programs of GPUNetIO (Ethernet, RDMA, Verbs, DMA, Comch) run on a GPU or the "
        "emulated one, with a software NIC: dgkit softdoca env.",
        goals=_GPUNETIO,
        assumed=("dgkit-core",),
    ),
    DataPathSpec(
        name="soft",
        title="software DPU (soft)",
        what="A second process takes the DPU's place; the CPU copies, in host memory.",
        goals=ALL,
        serves=_LAPTOP,
        assumed=("dgkit-core",),
    ),
    DataPathSpec(
        name="softdoca",
        title="softdoca",
        what="DOCA programs run on the CPU, without a DPU.",
        goals=ALL,
        serves=_LAPTOP,
        assumed=("dgkit-core",),
    ),
)
