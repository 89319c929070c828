"""Requirements of the parts of DOCA GPUNetIO: libraries, a static library, a CUDA toolkit."""

from __future__ import annotations

import msgspec

from .. import finding, references
from ..facts import distribution, nvidia_proc, pci, pci_ids
from ..facts.bluefield import side
from ..facts.cuda import Toolkits, toolkits
from ..facts.doca import doca
from ..facts.nvidia_proc import version_key
from ..finding import Finding
from ..goals import BY_ARM, Goal
from ..machine import Case
from ..prerequisites import Requirement, missing_device, pci_unread, readable, reason

INSTALL = references.GPUNETIO("Installation and Setup")
_CUDA = references.GPUNETIO("CUDA Dependency")
_STATIC_CUDA = (13, 0)  # the static library was built with this version
_HEADERS_CUDA = (12, 0)
_RECOMMENDED = (12, 6)  # for the functions in headers
_EXTRA = {
    "apt": "doca-all doca-sdk-gpunetio libdoca-sdk-gpunetio-dev",
    "dnf": "doca-all doca-sdk-gpunetio doca-sdk-gpunetio-devel",
}


class Part(msgspec.Struct, frozen=True):
    """Part of GPUNetIO.

    Attributes:
        name: Name in the guide.
        libraries: DOCA libraries needed in addition to libdoca_gpunetio: one library of each tuple.
        static: Whether its GPU code is in the static library rather than in headers.
        why: Remark on a part that can be used.
    """

    name: str
    libraries: tuple[tuple[str, ...], ...]
    static: bool
    why: str = ""


ETHERNET = Part("Ethernet", (("eth",), ("flow",)), static=False)
RDMA = Part("RDMA", (("rdma",),), static=True)
VERBS = Part(
    "Verbs", (("verbs", "rdma_verbs"),), static=False, why="NVIDIA calls Verbs experimental."
)
DMA = Part("DMA", (("dma",),), static=True)


def install_commands(case: Case) -> list[str]:
    """Return the commands that install DOCA with the parts that the goal needs."""
    if case.machine.know(side) == "dpu":
        return [
            "# On the host, with an image (BFB) from developer.nvidia.com/doca-downloads.",
            "# It erases the system and all files of these Arm cores: save them first.",
            "sudo bfb-install --rshim rshim0 --bfb IMAGE.bfb",
        ]
    names = _EXTRA if case.goal is Goal.GPUNETIO else {"apt": "doca-all", "dnf": "doca-all"}
    return [
        "# first add NVIDIA's repository: developer.nvidia.com/doca-downloads, DOCA-Host",
        distribution.install(case.machine, **names),
    ]


def missing_card(case: Case) -> Finding | None:
    """Return "not applicable" on a host without a card that DOCA drives, else None.

    The remedy is that of the check bluefield-present.
    """
    tree = case.machine.know(pci.tree)
    if case.machine.know(side) == "dpu" or (tree.why and not pci_unread(case.machine)):
        return None
    if case.goal in BY_ARM:
        return None if tree.bluefields else missing_device(case.machine, "no BlueField")
    has_nic = any(nic.vendor == pci_ids.MELLANOX for nic in tree.nics)
    return None if has_nic else missing_device(case.machine, "no NVIDIA NIC")


def part_needs(part: Part) -> tuple[Requirement, ...]:
    """Return the requirements of the check of a part."""
    source = references.GPUNETIO(f"GPUNetIO {part.name}")
    return missing_card, readable(reason(doca), "DOCA not read", sources=[source])


def judge_part(case: Case, part: Part) -> Finding:
    """Return the finding on whether programs that use a part can be built here."""
    source = references.GPUNETIO(f"GPUNetIO {part.name}")
    installed = case.machine.know(doca)
    wanted = (("gpunetio",), *part.libraries)
    missing = [names[0] for names in wanted if not installed.parts.intersection(names)]
    needed = ", ".join(f"doca-{names[0]}" for names in wanted)
    if missing:
        return finding.fail(
            f"no doca-{missing[0]}" if installed.parts else "no DOCA",
            needed=needed,
            why=f"GPUNetIO {part.name} consists of {needed}.",
            remedy=install_commands(case),
            sources=[source, INSTALL],
        )
    if part.static and not installed.device:
        return finding.fail(
            "no libdoca_gpunetio_device.a",
            needed="libdoca_gpunetio_device.a",
            why=f"The GPU code of {part.name} is in this static library.",
            remedy=install_commands(case),
            sources=[source, _CUDA],
        )
    known = case.machine.know(toolkits)
    least = _STATIC_CUDA if part.static else _HEADERS_CUDA
    needed = f"CUDA {least[0]}.{least[1]}"
    remedy = [distribution.install(case.machine, "cuda-toolkit-13-0", "cuda-toolkit-13-0")]
    if known.version >= least:
        advice = "" if known.version >= _RECOMMENDED else "NVIDIA recommends CUDA 12.6 or newer."
        return finding.ok(
            f"installed, CUDA {_text(known)}",
            needed=needed,
            why=f"{part.why} {advice}".strip(),
            sources=[source, _CUDA],
        )
    if not known.version and known.why:
        why = known.why
        return finding.unknown("toolkit not known", needed=needed, why=why, sources=[source])
    if not known.version:
        why = f"The libraries are installed, but programs cannot be built here. {part.why}".strip()
        return finding.warn(
            "no CUDA toolkit", needed=needed, why=why, remedy=remedy, sources=[source, _CUDA]
        )
    if part.static and version_key(case.machine.know(nvidia_proc.driver).version) < (580,):
        remedy.append("# CUDA 13.0 needs driver 580 or newer, too.")
    return finding.fail(
        f"CUDA {_text(known)}",
        needed=needed,
        why=f"The static library with the GPU code of {part.name} is built with CUDA 13.0; older "
        "toolkits cannot link it."
        if part.static
        else f"The headers of {part.name} need CUDA 12 or newer.",
        remedy=remedy,
        sources=[_CUDA],
    )


def _text(known: Toolkits) -> str:
    return ".".join(map(str, known.version))
