"""What each part of DOCA GPUNetIO takes: libraries, a static library, a CUDA toolkit."""

from __future__ import annotations

import msgspec

from .. import finding, references
from ..facts import pci, system
from ..facts.cuda import Toolkits, toolkits
from ..facts.doca import doca
from ..facts.side import side
from ..finding import Finding
from ..goals import Goal
from ..machine import Case
from ._per_gpu import none, unread

__all__ = [
    "DMA",
    "ETHERNET",
    "INSTALL",
    "RDMA",
    "VERBS_PART",
    "Part",
    "installing",
    "judged",
    "no_card",
]

INSTALL = references.GPUNETIO("Installation and Setup")
_CUDA = references.GPUNETIO("CUDA Dependency")
STATIC_CUDA = (13, 0)  # the static library was built with it
HEADERS_CUDA = (12, 6)  # NVIDIA recommends it, or newer, for the functions in headers
_EXTRA = {
    "apt": "doca-all doca-sdk-gpunetio libdoca-sdk-gpunetio-dev",
    "dnf": "doca-all doca-sdk-gpunetio doca-sdk-gpunetio-devel",
}


class Part(msgspec.Struct, frozen=True):
    """`beside`: the libraries beside libdoca_gpunetio; one of each tuple will do.

    `static`: its GPU code is in the static library, not in headers.
    """

    name: str
    beside: tuple[tuple[str, ...], ...]
    static: bool
    why: str = ""


ETHERNET = Part("Ethernet", (("eth",), ("flow",)), static=False)
RDMA = Part("RDMA", (("rdma",),), static=True)
VERBS_PART = Part(
    "Verbs", (("verbs", "rdma_verbs"),), static=False, why="NVIDIA calls Verbs experimental."
)
DMA = Part("DMA", (("dma",),), static=True)


def installing(case: Case) -> list[str]:
    """How DOCA gets here, with what the goal needs of it."""
    if case.machine.know(side) == "dpu":
        return [
            "# on the host, with an image (BFB) from developer.nvidia.com/doca-downloads:",
            "sudo bfb-install --rshim rshim0 --bfb IMAGE.bfb",
        ]
    names = _EXTRA if case.goal is Goal.GPUNETIO else {"apt": "doca-all", "dnf": "doca-all"}
    return [
        "# first add NVIDIA's repository: developer.nvidia.com/doca-downloads, DOCA-Host",
        system.install(case.machine, **names),
    ]


def no_card(case: Case) -> Finding | None:
    """N.a. on a host that has no card for DOCA to drive: bluefield-present says what to do."""
    tree = case.machine.know(pci.tree)
    if case.machine.know(side) == "dpu" or (tree.why and not unread(case.machine)):
        return None
    if case.goal is Goal.ARM_DMA:
        return None if tree.bluefields else none(case.machine, "no BlueField")
    there = any(one.vendor == pci.MELLANOX for one in tree.nics)
    return None if there else none(case.machine, "no NIC of NVIDIA's")


def judged(case: Case, part: Part) -> Finding:
    """Whether programs that use it can be built here."""
    if missing_card := no_card(case):
        return missing_card
    source = references.GPUNETIO(f"GPUNetIO {part.name}")
    installed = case.machine.know(doca)
    if installed.why:
        return finding.unknown("DOCA not read", why=installed.why, sources=[source])
    wanted = (("gpunetio",), *part.beside)
    missing = [names[0] for names in wanted if not installed.parts.intersection(names)]
    needed = ", ".join(f"doca-{names[0]}" for names in wanted)
    if missing:
        return finding.fail(
            f"no doca-{missing[0]}" if installed.parts else "no DOCA",
            needed=needed,
            why=f"GPUNetIO {part.name} is made of {needed}.",
            remedy=installing(case),
            sources=[source, INSTALL],
        )
    if part.static and not installed.device:
        return finding.fail(
            "no libdoca_gpunetio_device.a",
            needed="libdoca_gpunetio_device.a",
            why=f"The GPU code of {part.name} is in this static library.",
            remedy=installing(case),
            sources=[source, _CUDA],
        )
    return _built(case, part, source)


def _built(case: Case, part: Part, source: references.Source) -> Finding:
    """The libraries are there; and the compiler?"""
    known = case.machine.know(toolkits)
    least = STATIC_CUDA if part.static else HEADERS_CUDA
    needed = f"CUDA {least[0]}.{least[1]}"
    remedy = [system.install(case.machine, "cuda-toolkit-13-0", "cuda-toolkit-13-0")]
    if known.version >= least:
        return finding.ok(
            f"there, CUDA {_text(known)}", needed=needed, why=part.why, sources=[source, _CUDA]
        )
    if not known.version and known.why:
        why = known.why
        return finding.unknown("toolkit not known", needed=needed, why=why, sources=[source])
    if not known.version:
        why = f"The libraries are there, but programs cannot be built here. {part.why}".strip()
        return finding.warn(
            "no CUDA toolkit", needed=needed, why=why, remedy=remedy, sources=[source, _CUDA]
        )
    make = finding.fail if part.static else finding.warn
    return make(
        f"CUDA {_text(known)}",
        needed=needed,
        why=f"The static library with the GPU code of {part.name} is built with CUDA 13.0; older "
        "toolkits cannot link it."
        if part.static
        else f"NVIDIA recommends CUDA 12.6 or newer for the headers of {part.name}.",
        remedy=remedy,
        sources=[_CUDA],
    )


def _text(known: Toolkits) -> str:
    return ".".join(map(str, known.version))
