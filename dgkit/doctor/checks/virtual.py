# SPDX-License-Identifier: Apache-2.0
"""Virtual machines and containers."""

from __future__ import annotations

from collections.abc import Iterator

from .. import finding, references
from ..facts import cuda, pci, pci_ids
from ..facts.pairs import peers
from ..facts.privileges import refused
from ..facts.virtual import Container, container, is_confidential, virtual
from ..finding import Finding
from ..goals import ANY_GPU, WITH_CARD, WITH_PEERS, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, pci_unread, readable
from ..registry import check
from ..remedies import with_devices

_GUIDE = references.GPUNETIO("GPUNetIO Installation and Setup")
_SOURCES = (_GUIDE, references.P2PDMA("PCI Peer-to-Peer DMA Support"))


@check(
    "virtual-machine",
    "Virtual machine",
    asks="Is this a virtual machine, in which the hypervisor controls the devices?",
    goals=WITH_PEERS,
    sides=("host",),
    sources=_SOURCES,
    needed="no",
    requires=[readable(lambda case: case.machine.know(virtual).why, "not known")],
)
def _virtual_machine(case: Case) -> Finding:
    found = case.machine.know(virtual)
    if not found.is_vm:
        return finding.ok("no")
    by = f"yes, {found.by}"[:45] if found.by else "yes"
    if found.by == "WSL 2":
        why = "Windows owns the GPU: it is not a PCI device here, so no other device reaches it."
        remedy = ["# Boot Linux on the machine itself, or use the software DPU"]
        return finding.warn(by, why=why, remedy=remedy)
    tree = case.machine.know(pci.tree)
    if not tree.why and not (tree.gpus and peers(case.machine, case.goal)):
        return finding.n_a(f"{by}, but with no GPU and NIC")
    if case.machine.know(is_confidential):
        return finding.unknown(
            f"{by}, confidential"[:45], remedy=["nvidia-smi conf-compute -f -e"],
            why="A GPU in confidential mode lets no other device read its memory in clear; the "
            "modes of GPU and guest have to match, or the driver finds no GPU.",
            sources=[references.CONFIDENTIAL("issue 124")],
        )  # fmt: skip
    experimental = case.goal is Goal.GPUNETIO
    note = "GPUNetIO support of virtual machines is experimental. " * experimental
    make = finding.warn if experimental else finding.ok
    return make(
        by,
        why=f"{note}GPU and NIC must be passed through whole. What is between them (ACS, IOMMU, "
        "switches) belongs to the hypervisor and is not visible here.",
        remedy=["# Run the doctor on the hypervisor, too, or use the machine without one"],
    )


@check(
    "container",
    "Container",
    asks="If this is a container, does it see the devices?",
    goals=ANY_GPU | WITH_CARD,
    sources=[_GUIDE],
    needed="devices",
    requires=[
        applies(lambda case: case.machine.know(container).engine, "not in a container"),
        readable(
            lambda case: "" if case.machine.know(container).devices else "/dev could not be read",
            "devices not read",
        ),
    ],
)
def _container(case: Case) -> Finding:
    found = case.machine.know(container)
    missing = list(_missing(case, found))
    if not missing and (unread := pci_unread(case.machine)):
        why = f"Which devices it should have is not known: {unread}"
        return finding.unknown(found.engine, why=why)
    if missing:
        infiniband = "/dev/infiniband" in missing
        return finding.fail(
            f"{found.engine}, without {' and '.join(missing)}"[:45],
            why="The machine has them on its PCI bus, but the container has no access to them.",
            remedy=with_devices(case.machine, gpu="GPU" in missing, infiniband=infiniband),
            sources=[_GUIDE, references.CONTAINER_TOOLKIT("Running a Sample Workload")],
        )
    if closed := _judge_device_rules(case.machine):
        return closed
    return finding.ok(f"{found.engine}, with the devices")


def _judge_device_rules(machine: Machine) -> Finding | None:
    """Return the finding if device rules exclude files that are in the container, else None."""
    paths = [path for path, error in machine.know(refused).items() if error == "EPERM"]
    wanted = [path for path in paths if "gdrdrv" not in path and "imex" not in path]
    if any(context.code == 0 for context in machine.know(cuda.contexts).values()):
        wanted = [path for path in wanted if "nvidia" not in path]  # CUDA could open them
    if not wanted:
        return None
    gpu = any("nvidia" in path for path in wanted)
    infiniband = any("infiniband" in path for path in wanted)
    return finding.fail(
        f"{wanted[0]}: not permitted"[:45],
        needed="device rules that allow it",
        why="The file is there, but the container's device rules (cgroup) exclude it: it was "
        "mounted as a file, or the rules were written again by `systemctl daemon-reload`.",
        remedy=with_devices(machine, gpu=gpu, infiniband=infiniband),
        sources=[references.CGROUP_DEVICES(), references.CDI()],
    )


def _missing(case: Case, found: Container) -> Iterator[str]:
    """Yield the devices that the container lacks."""
    tree = case.machine.know(pci.tree)
    gpu = tree.gpus and case.goal is not Goal.HOST_DMA
    if gpu and not any(_numbered(name, "nvidia") for name in found.devices):
        yield "GPU"
    alone = case.goal in (Goal.P2P, Goal.GPU)
    nics = not alone and any(nic.vendor == pci_ids.MELLANOX for nic in tree.nics)
    nics |= case.goal is Goal.RDMA and bool(peers(case.machine, case.goal))
    if nics and not any(_numbered(name, "uverbs") for name in found.infiniband):
        yield "/dev/infiniband"


def _numbered(name: str, kind: str) -> bool:
    return name.startswith(kind) and name[len(kind) :].isdecimal()
