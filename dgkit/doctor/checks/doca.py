# SPDX-License-Identifier: Apache-2.0
"""DOCA, MLNX_OFED and rdma-core: their versions, and the parts of GPUNetIO."""

from __future__ import annotations

import msgspec

from .. import finding, references
from ..facts import distribution, firmware, nvidia_proc, pci, pci_ids, rdma, versions
from ..facts.bluefield import side
from ..facts.cuda import Toolkits, toolkits
from ..facts.doca import doca, ofed
from ..facts.nvidia_proc import version_key
from ..facts.peermem import peermem_state
from ..facts.versions import version
from ..finding import Finding, Verdict
from ..goals import BY_ARM, WITH_CARD, WITH_GPU, Goal
from ..machine import Case
from ..prerequisites import (
    Requirement,
    applies,
    device,
    missing_device,
    pci_unread,
    readable,
    reason,
)
from ..registry import check
from . import _card_settings

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
        distribution.install_command(case.machine, **names),
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
    remedy = [distribution.install_command(case.machine, "cuda-toolkit-13-0", "cuda-toolkit-13-0")]
    if known.version >= least:
        advice = "" if known.version >= _RECOMMENDED else "NVIDIA recommends CUDA 12.6 or newer."
        return finding.ok(
            f"installed, CUDA {_version_text(known)}",
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
        f"CUDA {_version_text(known)}",
        needed=needed,
        why=f"The static library with the GPU code of {part.name} is built with CUDA 13.0; older "
        "toolkits cannot link it."
        if part.static
        else f"The headers of {part.name} need CUDA 12 or newer.",
        remedy=remedy,
        sources=[_CUDA],
    )


def _version_text(known: Toolkits) -> str:
    return ".".join(map(str, known.version))


_PROVIDER = version(2, 5)  # oldest that dgkit's provider loads: native/src/providers/doca_api.c
_SAMPLES_OFED = version(5, 5)
_DMABUF_VERBS = version(34)  # first rdma-core with ibv_reg_dmabuf_mr
_GUIDE_VERBS = version(44)
_ROOT = "/opt/mellanox/doca"
_CORE = references.DOCA("DOCA Core, tasks and progress engine")
_VERBS_SOURCES = (
    references.GPUNETIO("Using dmabuf"),
    references.RDMA_CORE("Documentation/versioning.md"),
)
_PARTS = {**dict.fromkeys(BY_ARM, ("common", "dma")), Goal.GPUNETIO: ("common", "gpunetio")}
_API_DISAGREE = (
    "The DMA sample guide 1.3 uses doca_job and doca_workq, which DOCA 2.x no longer has; dgkit "
    "and current samples use tasks and progress engines (2.5 and later)."
)
_OFED_DISAGREE = (
    "The DMA sample guide 1.3 requires OFED 5.5; DOCA includes its own drivers (OFED-internal, "
    "DOCA-OFED), and MLNX_OFED ended with 24.10."
)
_VERBS_DISAGREE = (
    "The GPUNetIO guide requires libibverbs 1.14.44, which is that of rdma-core 44; the function "
    "that registers a dma-buf, ibv_reg_dmabuf_mr, exists since rdma-core 34 (libibverbs 1.12.34)."
)


def _has_goal(case: Case) -> bool:
    """Return whether the goal's programs run on this side; GPUNetIO runs on the host."""
    return case.goal is not Goal.GPUNETIO or case.machine.know(side) != "dpu"


def _doca_unread(case: Case) -> str:
    found = case.machine.know(doca)
    return found.why if found.version is None else ""


_ON_HOST = applies(_has_goal, "GPUNetIO runs on the host")


@check(
    "doca-version",
    "DOCA",
    asks="Is DOCA installed, and new enough?",
    goals=BY_ARM | {Goal.GPUNETIO},
    requires=[
        _ON_HOST,
        missing_card,
        readable(_doca_unread, "DOCA not read", needed="2.5", sources=[_CORE]),
    ],
)
def _doca_version(case: Case) -> Finding:
    found = case.machine.know(doca)
    source = _CORE
    disagree = _API_DISAGREE if case.goal in BY_ARM else ""
    if found.version is None:
        why = "DOCA drives the DMA engine of a BlueField, and GPUNetIO is a part of it; softdoca "
        why += "replaces it in tests."
        needed, remedy = "2.5 or later", install_commands(case)
        return finding.fail(
            "no DOCA", needed=needed, why=why, remedy=remedy, sources=[source, INSTALL]
        )
    if found.version < _PROVIDER:
        return finding.fail(
            f"DOCA {found.version}",
            needed="2.5 or later",
            why="dgkit uses the API of tasks and progress engines, which is newer.",
            remedy=install_commands(case),
            sources=[source],
            disagree=disagree,
        )
    text, why = f"DOCA {found.version}", f"According to {found.source}."
    return finding.ok(text, needed="2.5", why=why, sources=[source], disagree=disagree)


def _needed_libraries(case: Case) -> list[str]:
    return [f"libdoca_{part}" for part in _PARTS[case.goal]]


@check(
    "doca-libraries",
    "DOCA libraries",
    asks="Does the dynamic loader find the DOCA libraries, and are they NVIDIA's?",
    goals=BY_ARM | {Goal.GPUNETIO},
    sources=[INSTALL],
    requires=[
        _ON_HOST,
        missing_card,
        readable(
            reason(versions.libraries),
            "not read",
            needed=lambda case: ", ".join(_needed_libraries(case)),
        ),
    ],
)
def _doca_libraries(case: Case) -> Finding:
    known = case.machine.know(versions.libraries)
    names = _needed_libraries(case)
    missing = [name for name in names if name not in known.files]
    if missing:
        return _packages_missing(case, missing, known.whys.get(missing[0], ""))
    if soft := _softdoca(case, known.files["libdoca_common"]):
        return finding.warn(
            "softdoca",
            needed="NVIDIA's libdoca_common",
            why=f"The loader finds softdoca in {soft}, which copies in software and uses no card.",
            remedy=["unset LD_LIBRARY_PATH  # or take softdoca's folder out of it"],
        )
    found = known.version("libdoca_common")
    text = f"{len(names)} libraries{f', {found}' if found else ''}"
    return finding.ok(text, needed=", ".join(names))


def _softdoca(case: Case, path: str) -> str:
    """Return the folder of the library if the library is softdoca's, else ""."""
    environ = case.machine.read.ask("environ").data
    own = str(environ.get("SOFTDOCA_LIB") or "") if isinstance(environ, dict) else ""
    folder = path.rpartition("/")[0]
    return folder if "softdoca" in path or (own and folder == own.rstrip("/")) else ""


def _packages_missing(case: Case, missing: list[str], why: str) -> Finding:
    installed = {f"libdoca_{part}" for part in case.machine.know(doca).parts}
    if installed.issuperset(missing):
        text = "DOCA is installed, but the dynamic loader does not find it."
        remedy = [f"echo {_ROOT}/lib/$(uname -m)-linux-gnu | sudo tee /etc/ld.so.conf.d/doca.conf"]
        remedy.append("sudo ldconfig")
    else:
        text = "dgkit's provider doca and all DOCA programs need it."
        remedy = install_commands(case)
    return finding.fail(
        f"no {missing[0]}", needed=", ".join(missing), why=f"{text} {why}".strip(), remedy=remedy
    )


@check(
    "ofed-version",
    "MLNX_OFED",
    asks="Are the network drivers from MLNX_OFED, DOCA or the kernel, and of which version?",
    goals=WITH_CARD,
)
def _ofed_version(case: Case) -> Finding:
    drivers = case.machine.know(ofed)
    reading, found = drivers.info, drivers.release or drivers.driver
    arm = case.goal in BY_ARM
    source = references.DMA_SAMPLES("Introduction") if arm else references.MLNX_OFED("Introduction")
    if found is None and reading.absent:
        if not case.machine.know(firmware.adapters):
            return missing_device(case.machine, "no NVIDIA NIC")
        if not arm:
            return finding.ok(
                "the kernel's own drivers", sources=[references.MLNX_OFED("Introduction")]
            )
        if case.machine.know(doca).version is None:
            return finding.n_a("neither DOCA nor MLNX_OFED")
        return finding.warn(
            "the kernel's own drivers",
            needed="DOCA's drivers",
            why="DOCA is tested with its own drivers; the kernel's may lack features that it uses.",
            remedy=[distribution.install_command(case.machine, "doca-ofed", "doca-ofed")],
            sources=[references.DMA_SAMPLES("Introduction")],
            disagree=_OFED_DISAGREE,
        )
    if found is None:
        why = reading.why or reading.said.strip()[:200] or "ofed_info -s prints no version"
        return finding.unknown("not known", why=why, sources=[source])
    if arm and found < _SAMPLES_OFED:
        return finding.fail(
            str(found),
            needed="5.5",
            why="DOCA DMA needs the drivers of OFED 5.5 or later.",
            remedy=install_commands(case),
            sources=[source],
            disagree=_OFED_DISAGREE,
        )
    kind = "MLNX_OFED" if "MLNX_OFED" in reading.text else "OFED of DOCA"
    kind = kind if reading.ok else "OFED"
    return finding.ok(f"{kind} {found}", sources=[source], disagree=_OFED_DISAGREE if arm else "")


def _has_nic(case: Case) -> bool:
    devices = case.machine.know(rdma.devices)
    return bool(devices.devices or devices.why or case.machine.know(firmware.adapters))


def _verbs_unread(case: Case) -> str:
    known = case.machine.know(versions.libraries)
    file, version = known.files.get("libibverbs"), known.version("libibverbs")
    unversioned = file is not None and versions.rdma_core(version) is None
    return known.why or (f"The file name {file} has no version" if unversioned else "")


@check(
    "rdma-core",
    "libibverbs",
    asks="Is libibverbs new enough to register a dma-buf?",
    goals=WITH_GPU,
    requires=[
        device(_has_nic, "no RDMA devices, no NVIDIA NIC"),
        readable(_verbs_unread, "version not known", needed="1.14.44", sources=_VERBS_SOURCES),
    ],
)
def _rdma_core(case: Case) -> Finding:
    known = case.machine.know(versions.libraries)
    verbs = known.version("libibverbs")
    release = versions.rdma_core(verbs)
    sources = _VERBS_SOURCES
    if release is None:
        make = finding.warn if case.goal is Goal.ARM_DMA else finding.fail
        why = f"RDMA programs and DOCA load it. {known.whys.get('libibverbs', '')}".strip()
        remedy = _newer_verbs(case)
        return make("no libibverbs", needed="1.14.44", why=why, remedy=remedy, sources=sources)
    found = f"{verbs} (rdma-core {release})"
    old, current = release < _DMABUF_VERBS, not release < _GUIDE_VERBS
    plain = case.goal is Goal.RDMA  # without DOCA
    by_peermem = plain and case.machine.know(peermem_state) == "loaded"
    if current or (plain and not old) or by_peermem:
        needed = "1.12.34 for a dma-buf" if plain else "1.14.44"
        return finding.ok(found, needed=needed, sources=sources, disagree=_VERBS_DISAGREE)
    make = finding.fail if old and case.goal is Goal.RDMA else finding.warn
    return make(
        found,
        needed="1.14.44 (rdma-core 44)",
        why="It has no ibv_reg_dmabuf_mr: GPU memory needs nvidia-peermem."
        if old
        else "It can register a dma-buf, but DOCA requires a later version.",
        remedy=_newer_verbs(case),
        sources=sources,
        disagree=_VERBS_DISAGREE,
    )


# rdma-core release of distributions that ship one that is too old (packages.ubuntu.com,
# packages.debian.org).
_SHIPPED = {("ubuntu", "20.04"): 28, ("ubuntu", "22.04"): 39, ("debian", "11"): 33}


def _newer_verbs(case: Case) -> list[str]:
    """Return the commands that install a newer rdma-core: the distribution's, or else DOCA's."""
    if case.machine.know(ofed).installed:
        return ["# Upgrade MLNX_OFED or DOCA-OFED, which has its own rdma-core: no other over it."]
    os_release = case.machine.know(distribution.os_release)
    name, number = os_release.get("ID", "").lower(), os_release.get("VERSION_ID", "")
    shipped = _SHIPPED.get((name, number))
    if shipped is None:
        return [
            distribution.install_command(
                case.machine, "rdma-core libibverbs1", "rdma-core libibverbs"
            )
        ]
    return [
        f"# {name.capitalize()} {number} has rdma-core {shipped}; DOCA includes a later one",
        *install_commands(case)[:1],
        distribution.install_command(case.machine, "doca-ofed", "doca-ofed"),
    ]


@check(
    "gpunetio-ethernet",
    "GPUNetIO Ethernet",
    asks="Are the needs of GPUNetIO Ethernet met: DOCA Ethernet, DOCA Flow and Ethernet ports?",
    goals={Goal.GPUNETIO},
    sides=("host",),
    requires=part_needs(ETHERNET),
)
def _gpunetio_ethernet(case: Case) -> Finding:
    found = judge_part(case, ETHERNET)
    source = references.GPUNETIO("Running without Root Privileges")
    card = _card_settings.infiniband_only(case)
    if card is not None and found.verdict in (Verdict.OK, Verdict.WARN):
        found = _card_settings.ethernet_required(*card, references.GPUNETIO("BlueField NIC"))
    elif found.verdict is Verdict.OK:
        why = f"{found.why} DOCA Flow needs root: run programs that use it with sudo.".strip()
        found = msgspec.structs.replace(found, why=why, sources=(*found.sources, source))
    return found


@check(
    "gpunetio-rdma",
    "GPUNetIO RDMA",
    asks="Are the needs of GPUNetIO RDMA met: DOCA RDMA, the static library and CUDA 13.0?",
    goals={Goal.GPUNETIO},
    sides=("host",),
    requires=part_needs(RDMA),
)
def _gpunetio_rdma(case: Case) -> Finding:
    return judge_part(case, RDMA)


@check(
    "gpunetio-verbs",
    "GPUNetIO Verbs",
    asks="Are the needs of GPUNetIO Verbs met: DOCA RDMA Verbs and its headers?",
    goals={Goal.GPUNETIO},
    sides=("host",),
    requires=part_needs(VERBS),
)
def _gpunetio_verbs(case: Case) -> Finding:
    return judge_part(case, VERBS)


@check(
    "gpunetio-dma",
    "GPUNetIO DMA",
    asks="Are the needs of GPUNetIO DMA met: DOCA DMA, the static library and CUDA 13.0?",
    goals={Goal.GPUNETIO},
    sides=("host",),
    requires=part_needs(DMA),
)
def _gpunetio_dma(case: Case) -> Finding:
    return judge_part(case, DMA)
