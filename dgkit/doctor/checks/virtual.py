"""Virtual machines and containers."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import pci
from ..facts.pairs import others
from ..facts.virtual import Container, container, virtual
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..registry import check
from ._per_gpu import unread

_GUIDE = references.GPUNETIO("GPUNetIO Installation and Setup")


@check("virtual-machine", "Virtual machine", goals=WITH_GPU, sides=("host",))
def machine(case: Case) -> Iterator[Finding]:
    """Is this a virtual machine, whose hypervisor decides what devices may do?"""
    found = case.machine.know(virtual)
    used = [_GUIDE, references.P2PDMA("PCI Peer-to-Peer DMA Support")]
    if found.is_vm is None:
        why = finding.sentence(found.why)
        yield finding.unknown("not told", needed="no", why=why, sources=used)
        return
    if not found.is_vm:
        yield finding.ok("no", needed="no", sources=used)
        return
    by = f"yes, {found.by}"[:45] if found.by else "yes"
    if found.by == "WSL 2":
        yield finding.warn(
            by,
            needed="no",
            why="Windows holds the GPU: it is no PCI device here, and no other device reaches it.",
            remedy=["# Start Linux on the machine itself, or use the software DPU"],
            sources=used,
        )
        return
    tree = case.machine.know(pci.tree)
    if not tree.why and not (tree.gpus and others(case.machine, case.goal)):
        yield finding.n_a(f"{by}, but with no GPU and NIC")
        return
    only = "GPUNetIO calls virtual machines experimental. " * (case.goal is Goal.GPUNETIO)
    yield finding.warn(
        by,
        needed="no",
        why=f"{only}GPU and NIC must be passed through whole. What lies between them (ACS, IOMMU, "
        "switches) is the hypervisor's, and not to be seen from here.",
        remedy=["# Run the doctor on the hypervisor, too, or use the machine without one"],
        sources=used,
    )


@check("container", "Container", goals=WITH_GPU)
def inside(case: Case) -> Iterator[Finding]:
    """If this is a container, does it see the devices?"""
    found = case.machine.know(container)
    if not found.engine:
        yield finding.n_a("not in a container")
        return
    if not found.devices:
        why = "/dev could not be read."
        yield finding.unknown(found.engine, needed="devices", why=why, sources=[_GUIDE])
        return
    missing = list(_missing(case, found))
    if not missing and (devices := unread(case.machine)):
        why = f"What should be in it is not known: {devices}"
        yield finding.unknown(found.engine, needed="devices", why=why, sources=[_GUIDE])
        return
    if not missing:
        yield finding.ok(f"{found.engine}, devices are in it", needed="devices", sources=[_GUIDE])
        return
    flags = " ".join(dict.fromkeys(flag for _, flag in missing))
    yield finding.fail(
        f"{found.engine}, without {' and '.join(name for name, _ in missing)}"[:45],
        needed="devices",
        why="The machine has them on its PCI bus, but the container was not given them.",
        remedy=[
            "# Start it with these options of docker run, too:",
            f"# {flags} --ulimit memlock=-1 --cap-add=IPC_LOCK",
        ],
        sources=[_GUIDE, references.CONTAINER_TOOLKIT("Running a Sample Workload")],
    )


def _missing(case: Case, found: Container) -> Iterator[tuple[str, str]]:
    """The devices that the machine has and the container has not; how Docker gives them."""
    tree = case.machine.know(pci.tree)
    if tree.gpus and not any(_numbered(name, "nvidia") for name in found.devices):
        yield "GPU", "--gpus all"
    nics = any(one.vendor == pci.MELLANOX for one in tree.nics)
    if nics and not any(_numbered(name, "uverbs") for name in found.infiniband):
        yield "/dev/infiniband", "--device=/dev/infiniband"


def _numbered(name: str, kind: str) -> bool:
    return name.startswith(kind) and name[len(kind) :].isdecimal()
