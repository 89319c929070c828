"""DOCA, MLNX_OFED and rdma-core: versions against what each feature needs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .. import finding, references
from ..facts import firmware, rdma, system, versions
from ..facts.doca import doca
from ..facts.side import side
from ..facts.versions import version
from ..finding import Finding, Verdict
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..registry import check
from . import _link_type
from ._per_gpu import none
from .gpunetio import DMA, ETHERNET, INSTALL, RDMA, VERBS_PART, installing, judged, no_card

PROVIDER = version(2, 5)  # what dgkit's provider loads: README.md, native/src/providers/doca_api.c
SAMPLES_OFED = version(5, 5)
FILES = version(34)  # rdma-core with ibv_reg_dmabuf_mr
GUIDE_VERBS = version(44)
_ROOT = "/opt/mellanox/doca"
_PARTS = {Goal.ARM_DMA: ("common", "dma"), Goal.GPUNETIO: ("common", "gpunetio")}
OLD_API = (
    "The DMA sample guide 1.3 is written for doca_job and doca_workq, which DOCA 2.x no longer "
    "has; dgkit and today's samples use tasks and progress engines (2.5 and later)."
)
OLD_OFED = (
    "The DMA sample guide 1.3 asks for OFED 5.5; DOCA brings drivers of its own (OFED-internal, "
    "DOCA-OFED), and MLNX_OFED ended with 24.10."
)
VERBS = (
    "The GPUNetIO guide asks for libibverbs 1.14.44, which is that of rdma-core 44; rdma-core has "
    "the function that takes a dma-buf, ibv_reg_dmabuf_mr, since 34 (libibverbs 1.12.34)."
)


@check("doca-version", "DOCA", goals={Goal.ARM_DMA, Goal.GPUNETIO})
def doca_version(case: Case) -> Iterator[Finding]:
    """Is DOCA installed, and new enough?"""
    found = case.machine.know(doca)
    source = references.DOCA("DOCA Core, tasks and progress engine")
    disagree = OLD_API if case.goal is Goal.ARM_DMA else ""
    if case.goal is Goal.GPUNETIO and case.machine.know(side) == "dpu":
        yield finding.n_a("GPUNetIO runs on the host")
    elif missing := no_card(case):
        yield missing
    elif found.version is None and found.why:
        yield finding.unknown("DOCA not read", needed="2.5", why=found.why, sources=[source])
    elif found.version is None:
        yield finding.fail(
            "no DOCA",
            needed="2.5 or later",
            why="Without it nothing drives the DMA engine of a BlueField, and GPUNetIO is a part "
            "of it; softdoca stands in for tests.",
            remedy=installing(case),
            sources=[source, INSTALL],
        )
    elif found.version < PROVIDER:
        yield finding.fail(
            f"DOCA {found.version}",
            needed="2.5 or later",
            why="It is older than the API of tasks and progress engines, which dgkit uses.",
            remedy=installing(case),
            sources=[source],
            disagree=disagree,
        )
    else:
        text, why = f"DOCA {found.version}", f"By {found.source}."
        yield finding.ok(text, needed="2.5", why=why, sources=[source], disagree=disagree)


@check("doca-libraries", "DOCA libraries", goals={Goal.ARM_DMA, Goal.GPUNETIO})
def doca_libraries(case: Case) -> Iterator[Finding]:
    """Does the loader find the libraries of DOCA, and are they NVIDIA's?"""
    if case.goal is Goal.GPUNETIO and case.machine.know(side) == "dpu":
        yield finding.n_a("GPUNetIO runs on the host")
        return
    if nothing := no_card(case):
        yield nothing
        return
    known = case.machine.know(versions.libraries)
    names = [f"libdoca_{part}" for part in _PARTS[case.goal]]
    needed = ", ".join(names)
    if known.why:
        yield finding.unknown("not asked", needed=needed, why=known.why, sources=[INSTALL])
        return
    missing = [name for name in names if name not in known.files]
    if missing:
        yield _missing(case, missing, known.whys.get(missing[0], ""))
    elif soft := _softdoca(case, known.files["libdoca_common"]):
        yield finding.warn(
            "softdoca",
            needed="NVIDIA's libdoca_common",
            why=f"The loader takes dgkit's stand-in from {soft}: it moves bytes in software, and "
            "no card is used.",
            remedy=["unset LD_LIBRARY_PATH  # or take softdoca's folder out of it"],
            sources=[INSTALL],
        )
    else:
        found = known.version("libdoca_common")
        text = f"{len(names)} libraries{f', {found}' if found else ''}"
        yield finding.ok(text, needed=needed, sources=[INSTALL])


def _softdoca(case: Case, path: str) -> str:
    """The folder of softdoca's library, "" if the one that is loaded is another."""
    environ = case.machine.read.ask("environ").data
    own = str(environ.get("SOFTDOCA_LIB") or "") if isinstance(environ, dict) else ""
    folder = path.rpartition("/")[0]
    return folder if "softdoca" in path or (own and folder == own.rstrip("/")) else ""


def _missing(case: Case, missing: list[str], why: str) -> Finding:
    installed = {f"libdoca_{part}" for part in case.machine.know(doca).parts}
    if installed.issuperset(missing):
        text = "DOCA is installed, but the loader does not find it."
        remedy = [f"echo {_ROOT}/lib/$(uname -m)-linux-gnu | sudo tee /etc/ld.so.conf.d/doca.conf"]
        remedy.append("sudo ldconfig")
    else:
        text, remedy = "dgkit's provider doca and all DOCA programs need it.", installing(case)
    return finding.fail(
        f"no {missing[0]}",
        needed=", ".join(missing),
        why=f"{text} {why}".strip(),
        remedy=remedy,
        sources=[INSTALL],
    )


@check("ofed-version", "MLNX_OFED", goals=WITH_GPU)
def ofed_version(case: Case) -> Iterator[Finding]:
    """Are the network drivers those of MLNX_OFED, of DOCA or of the kernel, and which version?"""
    reading, module = case.machine.read.together(
        ["run ofed_info -s", "text /sys/module/mlx5_core/version"]
    )
    found, arm = versions.ofed(reading.text) or versions.driver(module.text), _arm(case)
    source = references.DMA_SAMPLES("Introduction") if arm else references.MLNX_OFED("Introduction")
    if found is None and reading.absent:
        yield _own_drivers(case, arm)
    elif found is None:
        why = reading.why or reading.said.strip()[:200] or "ofed_info -s names no version"
        yield finding.unknown("not told", why=why, sources=[source])
    elif arm and found < SAMPLES_OFED:
        yield finding.fail(
            str(found),
            needed="5.5",
            why="DOCA DMA asks for the drivers of OFED 5.5 at least.",
            remedy=installing(case),
            sources=[source],
            disagree=OLD_OFED,
        )
    else:
        kind = "MLNX_OFED" if "MLNX_OFED" in reading.text else "OFED of DOCA"
        kind = kind if reading.ok else "OFED"
        yield finding.ok(f"{kind} {found}", sources=[source], disagree=OLD_OFED if arm else "")


def _arm(case: Case) -> bool:
    return case.goal is Goal.ARM_DMA


def _own_drivers(case: Case, arm: bool) -> Finding:
    """No ofed_info: the drivers are those of the kernel."""
    if not case.machine.know(firmware.adapters):
        return none(case.machine, "no NIC of NVIDIA's")
    if not arm:
        return finding.ok(
            "the kernel's own drivers", sources=[references.MLNX_OFED("Introduction")]
        )
    if case.machine.know(doca).version is None:
        return finding.n_a("neither DOCA nor MLNX_OFED")
    return finding.warn(
        "the kernel's own drivers",
        needed="those of DOCA",
        why="DOCA is tested with the drivers that it brings; the kernel's may lack what it uses.",
        remedy=[system.install(case.machine, "doca-ofed", "doca-ofed")],
        sources=[references.DMA_SAMPLES("Introduction")],
        disagree=OLD_OFED,
    )


@check("rdma-core", "libibverbs", goals=WITH_GPU)
def rdma_core(case: Case) -> Iterator[Finding]:
    """Is libibverbs new enough to register a dma-buf?"""
    devices = case.machine.know(rdma.devices)
    if not (devices.devices or devices.why) and not case.machine.know(firmware.adapters):
        yield none(case.machine, "no RDMA devices, no NIC of NVIDIA's")
        return
    known = case.machine.know(versions.libraries)
    verbs = known.version("libibverbs")
    release = versions.rdma_core(verbs)
    said = [
        references.GPUNETIO("Using dmabuf"),
        references.RDMA_CORE("Documentation/versioning.md"),
    ]
    upgrade = _newer_verbs(case)
    if known.why or ("libibverbs" in known.files and release is None):
        why = known.why or f"The name of {known.files['libibverbs']} tells no version."
        yield finding.unknown("version not known", needed="1.14.44", why=why, sources=said)
    elif release is None:
        make = finding.warn if case.goal is Goal.ARM_DMA else finding.fail
        why = f"RDMA programs and DOCA load it. {known.whys.get('libibverbs', '')}".strip()
        yield make("no libibverbs", needed="1.14.44", why=why, remedy=upgrade, sources=said)
    elif release < GUIDE_VERBS:
        old = release < FILES
        yield (finding.fail if old and case.goal is Goal.RDMA else finding.warn)(
            f"{verbs} (rdma-core {release})",
            needed="1.14.44 (rdma-core 44)",
            why="It has no ibv_reg_dmabuf_mr: GPU memory needs nvidia-peermem."
            if old
            else "It can register a dma-buf, but NVIDIA asks for a later one for DOCA.",
            remedy=upgrade,
            sources=said,
            disagree=VERBS,
        )
    else:
        text = f"{verbs} (rdma-core {release})"
        yield finding.ok(text, needed="1.14.44", sources=said, disagree=VERBS)


# Of the distributions whose own is older than that: packages.ubuntu.com, packages.debian.org.
_SHIPPED = {("ubuntu", "20.04"): 28, ("ubuntu", "22.04"): 39, ("debian", "11"): 33}


def _newer_verbs(case: Case) -> list[str]:
    """Where the distribution's own is too old, DOCA's: another install would change nothing."""
    said = case.machine.know(system.os_release)
    name, number = said.get("ID", "").lower(), said.get("VERSION_ID", "")
    own = _SHIPPED.get((name, number))
    if own is None:
        return [system.install(case.machine, "rdma-core libibverbs1", "rdma-core libibverbs")]
    return [
        f"# {name.capitalize()} {number} itself has rdma-core {own}; DOCA brings a later one",
        *installing(case)[:1],
        system.install(case.machine, "doca-ofed", "doca-ofed"),
    ]


@check("gpunetio-ethernet", "GPUNetIO Ethernet", goals={Goal.GPUNETIO}, sides=("host",))
def gpunetio_ethernet(case: Case) -> Iterator[Finding]:
    """Is there what GPUNetIO Ethernet needs: DOCA Ethernet, DOCA Flow, and Ethernet ports?"""
    found = judged(case, ETHERNET)
    source = references.GPUNETIO("Running without Root Privileges")
    card = _link_type.infiniband(case)
    if card is not None and found.verdict in (Verdict.OK, Verdict.WARN):
        found = _link_type.to_ethernet(*card, references.GPUNETIO("BlueField NIC"))
    elif found.verdict is Verdict.OK:
        why = f"{found.why} DOCA Flow needs root: start programs that use it with sudo.".strip()
        found = msgspec.structs.replace(found, why=why, sources=(*found.sources, source))
    yield found


@check("gpunetio-rdma", "GPUNetIO RDMA", goals={Goal.GPUNETIO}, sides=("host",))
def gpunetio_rdma(case: Case) -> Iterator[Finding]:
    """Is there what GPUNetIO RDMA needs: DOCA RDMA, the static library, and CUDA 13.0?"""
    yield judged(case, RDMA)


@check("gpunetio-verbs", "GPUNetIO Verbs", goals={Goal.GPUNETIO}, sides=("host",))
def gpunetio_verbs(case: Case) -> Iterator[Finding]:
    """Is there what GPUNetIO Verbs needs: DOCA RDMA Verbs and its headers?"""
    yield judged(case, VERBS_PART)


@check("gpunetio-dma", "GPUNetIO DMA", goals={Goal.GPUNETIO}, sides=("host",))
def gpunetio_dma(case: Case) -> Iterator[Finding]:
    """Is there what GPUNetIO DMA needs: DOCA DMA, the static library, and CUDA 13.0?"""
    yield judged(case, DMA)
