"""The ways of moving bytes that there are, the better ones first, and the checks each rests on."""

from __future__ import annotations

from enum import Enum

import msgspec

from .goals import ALL, WITH_GPU, Goal

__all__ = ["ANY_WILL_DO", "PLANS", "Plan", "Thing"]


class Thing(Enum):
    """A device without which a way makes no sense: why not, and the checks that look for it."""

    GPU = ("There is no NVIDIA GPU.", ("gpu-present",))
    BLUEFIELD = ("There is no BlueField.", ("bluefield-present",))
    NIC = ("There is no NIC of NVIDIA's.", ("rdma-devices", "bluefield-present"))

    @property
    def missing(self) -> str:
        """In words."""
        return str(self.value[0])

    @property
    def checks(self) -> tuple[str, ...]:
        """Which tell more."""
        return tuple(self.value[1])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`what`: one sentence. `goals`: those it is shown for; `serves`: those that ask for it.

    `either`: sets of checks, one of which must pass whole; there a warning blocks, too, since it
    says that another set is to be taken, unless two documents disagree about it. The first check
    of a set is the one that must have been answered. `needs`: a failure blocks, and without an
    answer nothing can be told. `wants`: a failure blocks, no answer is a proviso. `slow`: why it is
    slower at its best. `stands_in`: checks that, by a warning, make this the way to the goal.
    `untried`: why nobody can promise it.
    """

    name: str
    title: str
    what: str
    goals: frozenset[Goal]
    serves: frozenset[Goal] = frozenset()
    things: tuple[Thing, ...] = ()
    either: tuple[tuple[str, ...], ...] = ()
    needs: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    slow: str = ""
    stands_in: tuple[str, ...] = ()
    untried: str = ""


# Checks that look at several devices of a kind, of which one that is right will do.
ANY_WILL_DO = frozenset(
    {
        *("bar1-size", "bar1-resizable", "dmabuf-gpu", "dmabuf-mmap", "topology", "link"),
        *("numa", "rdma-devices", "rdma-dmabuf", "driver-persistence", "firmware-version"),
    }
)

_DMABUF = ("dmabuf-gpu", "driver-flavour", "kernel-version", "gpudirect-platform")
_PEERMEM = ("peermem", "gpudirect-platform")
_RDMA_DMABUF = ("rdma-dmabuf", *_DMABUF)
_DIRECT = ("bar1-size", "iommu", "acs", "topology", "virtual-machine", "container")
_ARM = ("bluefield-present", "bluefield-mode", "doca-libraries")
_ARM_WANTS = (
    *("dgkit-core", "bluefield-representors", "doca-version", "firmware-version", "container"),
    *("pair-bluefield", "pair-versions"),
)
_TWICE = "Data in GPU memory takes a second copy, through the host's memory."
# Where CPU and GPU share their memory, pinned memory is the way that NVIDIA's documents name.
_NO_GPUDIRECT = ("gpudirect-platform",)
_ARM_DMA, _RDMA = frozenset({Goal.ARM_DMA}), frozenset({Goal.RDMA})
_GPUNETIO, _LAPTOP = frozenset({Goal.GPUNETIO}), frozenset({Goal.LAPTOP})


def _arm(name: str, title: str, what: str, gpu_memory: tuple[str, ...]) -> Plan:
    return Plan(
        name=name, title=title, what=what, goals=_ARM_DMA, serves=_ARM_DMA,
        things=(Thing.BLUEFIELD, Thing.GPU), either=(gpu_memory,),
        needs=(*_ARM, "driver-loaded"), wants=(*_ARM_WANTS, *_DIRECT, "pair-memory"),
        untried="NVIDIA's forum says that it is possible; no document describes it.",
    )  # fmt: skip


def _rdma(name: str, title: str, what: str, gpu_memory: tuple[str, ...]) -> Plan:
    return Plan(
        name=name, title=title, what=what, goals=_RDMA, serves=_RDMA,
        things=(Thing.NIC, Thing.GPU), either=(gpu_memory,),
        needs=("rdma-devices", "driver-loaded"),
        wants=("dgkit-core", "rdma-core", "ofed-version", *_DIRECT),
    )  # fmt: skip


def _gpunetio(part: str, title: str, does: str) -> Plan:
    return Plan(
        name=f"gpunetio-{part}", title=f"GPUNetIO, {title}",
        what=f"Kernels on the GPU {does}, with the data in the GPU's memory.",
        goals=_GPUNETIO, serves=_GPUNETIO, things=(Thing.NIC, Thing.GPU),
        either=(_DMABUF, _PEERMEM), needs=(f"gpunetio-{part}", "bluefield-mode", "driver-loaded"),
        wants=(
            *("bluefield-link", "firmware-version", "doca-version", "doca-libraries"),
            *("driver-registry", *_DIRECT),
        ),
    )  # fmt: skip


PLANS = (
    _arm(
        "doca-gpu-dmabuf",
        "DOCA DMA to GPU memory (dma-buf)",
        "The Arm cores read and write the GPU's memory by DOCA DMA, which has it as a dma-buf.",
        _DMABUF,
    ),
    _arm(
        "doca-gpu-peermem",
        "DOCA DMA to GPU memory (peermem)",
        "The Arm cores read and write the GPU's memory by DOCA DMA, which nvidia-peermem maps.",
        _PEERMEM,
    ),
    Plan(
        name="doca-host",
        title="DOCA DMA to host memory",
        what="The Arm cores read and write pinned memory of the host; the GPU copies from there.",
        goals=_ARM_DMA,
        things=(Thing.BLUEFIELD,),
        needs=_ARM,
        wants=(*_ARM_WANTS, "memlock"),
        slow=_TWICE,
        stands_in=_NO_GPUDIRECT,
    ),
    _rdma(
        "rdma-gpu-dmabuf",
        "RDMA to GPU memory (dma-buf)",
        "The NIC reads and writes the GPU's memory, which is registered with it as a dma-buf.",
        _RDMA_DMABUF,
    ),
    _rdma(
        "rdma-gpu-peermem",
        "RDMA to GPU memory (peermem)",
        "The NIC reads and writes the GPU's memory, which nvidia-peermem maps for it.",
        _PEERMEM,
    ),
    Plan(
        name="rdma-host",
        title="RDMA to host memory",
        what="The NIC reads and writes pinned memory of the host; the GPU copies from there.",
        goals=_RDMA,
        things=(Thing.NIC,),
        needs=("rdma-devices",),
        wants=("dgkit-core", "rdma-core", "ofed-version", "memlock", "container"),
        slow=_TWICE,
        stands_in=_NO_GPUDIRECT,
    ),
    _gpunetio("ethernet", "Ethernet", "send and receive packets"),
    _gpunetio("rdma", "RDMA", "start RDMA reads, writes and sends"),
    _gpunetio("verbs", "Verbs", "post work to RDMA queues themselves"),
    _gpunetio("dma", "DMA", "start copies of the NIC's DMA engine"),
    Plan(
        name="gpunetio-pinned",
        title="GPUNetIO, pinned CPU memory",
        what="Kernels on the GPU use the NIC, with queues and data in pinned memory of the host.",
        goals=_GPUNETIO,
        serves=_GPUNETIO,
        things=(Thing.NIC, Thing.GPU),
        needs=("driver-loaded", "doca-libraries", "bluefield-mode"),
        wants=("bluefield-link", "doca-version", "container", "memlock"),
        slow="The data lies in the host's memory, and a CPU thread may have to ring the doorbell.",
    ),
    Plan(
        name="cuda",
        title="software DPU, GPU memory (cuda)",
        what="A second process in the DPU's place copies by the GPU's own copy engine.",
        goals=WITH_GPU,
        things=(Thing.GPU,),
        needs=("driver-loaded",),
        wants=("dgkit-core", "cuda-driver", "cuda-python"),
    ),
    Plan(
        name="soft",
        title="software DPU (soft)",
        what="A second process in the DPU's place copies by the CPU, in the host's memory.",
        goals=ALL,
        serves=_LAPTOP,
        wants=("dgkit-core",),
    ),
    Plan(
        name="softdoca",
        title="softdoca",
        what="Programs written for DOCA run on the CPU, with no DPU.",
        goals=ALL,
        serves=_LAPTOP,
        wants=("dgkit-core",),
    ),
)
