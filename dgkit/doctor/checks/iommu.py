"""The IOMMU and the kernel's command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import finding, references
from ..collect.reading import Reading
from ..facts import data_direct, pci, virtual
from ..facts.cmdline import Cmdline, added, cmdline
from ..facts.kconfig import kconfig
from ..facts.pci import PciDevice
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from . import _data_direct

_SHOWN = 2  # devices that are named; of more, the rest are counted
_SOURCES = (
    references.GPUDIRECT("Supported Systems, IOMMUs"),
    references.GPUNETIO("GPUNetIO Installation and Setup, IOMMU"),
    references.IOMMU_GROUPS("/sys/kernel/iommu_groups/<grp_id>/type"),
    references.KERNEL_PARAMETERS("iommu, intel_iommu, amd_iommu, iommu.passthrough"),
)
_DISAGREE = (
    "The GPUDirect RDMA guide wants the IOMMU off or in passthrough; the GPUNetIO guide has it "
    "turned off only if nothing arrives; NVIDIA's open driver maps a GPU's memory through it "
    "(nvidia/nv-dma.c, nv_dma_map_peer)."
)
_NEEDED = "off or passthrough"
_OFF, _THROUGH, _ON, _LENT, _DARK = "off", "passthrough", "translating", "lent", "?"
# What /sys/kernel/iommu_groups/*/type may say (Linux, drivers/iommu/iommu.c).
_TYPES = {
    "identity": _THROUGH,
    "DMA": _ON,
    "DMA-FQ": _ON,
    "unmanaged": _LENT,
    "blocked": _LENT,
}


@check("iommu", "IOMMU", goals=WITH_GPU, sides=("host",))
def iommu(case: Case) -> Iterator[Finding]:
    """Does the IOMMU leave addresses between GPU and NIC as they are?"""
    machine = case.machine
    tree = machine.know(pci.tree)
    near = (*tree.gpus, *(one for one in tree.nics if one.vendor == pci.MELLANOX))
    if tree.why:
        yield finding.unknown("no PCI devices", why=finding.sentence(tree.why), sources=_SOURCES)
        return
    if not near:
        yield finding.n_a("neither GPU nor NIC")
        return
    if machine.know(virtual.virtual).is_vm:
        yield _guest()
        return
    if tree.gpus and data_direct.functions(machine):
        yield from _data_direct.groups(machine)
        return
    words = machine.know(cmdline)
    states: dict[str, list[PciDevice]] = {}
    for device, state in zip(near, _states(machine, near, words), strict=True):
        states.setdefault(state, []).append(device)
    for state, devices in states.items():
        subject = _names(devices) if len(states) > 1 else ""
        yield _said(machine, state, subject, words)


def _guest() -> Finding:
    return finding.unknown(
        "the hypervisor's",
        needed=_NEEDED,
        why="What is passed through to a virtual machine goes through the host's IOMMU, which is "
        "not to be seen from here. There NVIDIA's guide has ATS on (mlxconfig, ATS_ENABLED).",
        remedy=["# On the host: dgkit doctor iommu"],
        sources=[*_SOURCES, references.VM_TUNING("ATS and ACS configuration")],
    )


def _states(machine: Machine, devices: tuple[PciDevice, ...], words: Cmdline) -> list[str]:
    links = [f"link {pci.DEVICES}/{one.address}/iommu_group" for one in devices]
    groups = machine.read.together(links)
    numbers = {one.text.rpartition("/")[2] for one in groups if one.ok}
    paths = {number: f"text /sys/kernel/iommu_groups/{number}/type" for number in sorted(numbers)}
    types = dict(zip(paths, machine.read.together(list(paths.values())), strict=True))
    return [_state(machine, one, types, words) for one in groups]


def _state(machine: Machine, group: Reading, types: Mapping[str, Reading], words: Cmdline) -> str:
    """By the type of a device's group, which kernels before 5.11 do not tell: then by what the
    kernel was told at its start."""
    if group.absent:
        return _OFF  # a device that no IOMMU looks after is in no group
    kind = types.get(group.text.rpartition("/")[2], group) if group.ok else group
    if kind.ok:
        return _TYPES.get(kind.text.strip(), _DARK)
    if not kind.absent or words.reading.fault:
        return _DARK
    if not words.iommu and machine.know(kconfig)["CONFIG_IOMMU_DEFAULT_PASSTHROUGH"] == "y":
        return _THROUGH
    return {"off": _OFF, "passthrough": _THROUGH, "on": _ON}.get(words.iommu, _DARK)


def _said(machine: Machine, state: str, subject: str, words: Cmdline) -> Finding:
    given = f" ({words.about_iommu})"[:28] if words.about_iommu else ""
    if state in (_OFF, _THROUGH):
        return finding.ok(state + given, needed=_NEEDED, subject=subject, sources=_SOURCES)
    if state == _DARK:
        return finding.unknown(
            "not told",
            needed=_NEEDED,
            why="Neither the IOMMU groups nor the kernel's command line tell.",
            subject=subject,
            remedy=["sudo dmesg | grep -i -e DMAR -e IOMMU"],
            sources=_SOURCES,
        )
    if state == _LENT:
        return finding.fail(
            "lent to a virtual machine",
            needed=_NEEDED,
            why="Its memory is mapped for a virtual machine (VFIO): this system cannot use it.",
            subject=subject,
            remedy=["# Give it back to NVIDIA's driver, or run the doctor in the virtual machine"],
            sources=_SOURCES,
        )
    return _translating(machine, state + given, subject)


def _translating(machine: Machine, found: str, subject: str) -> Finding:
    return finding.warn(
        found,
        needed=_NEEDED,
        why="Traffic between GPU and NIC may go up to the CPU to be translated, or not arrive.",
        subject=subject,
        remedy=_passthrough(machine),
        sources=(*_SOURCES, references.MULTI_GPU(), references.OPEN_MODULES("nvidia/nv-dma.c")),
        disagree=_DISAGREE,
    )


def _passthrough(machine: Machine) -> list[str]:
    arm = machine.know(uname).arm
    word = "iommu.passthrough=1" if arm else "iommu=pt"
    off = "the SMMU" if arm else "VT-d (Intel) or IOMMU (AMD)"
    return [
        added(machine, word, "iommu"),
        f"# If nothing arrives even so: turn off {off} in the BIOS",
    ]


def _names(devices: list[PciDevice]) -> str:
    named = ", ".join(one.address for one in devices[:_SHOWN])
    more = len(devices) - _SHOWN
    return f"{named} and {more} more" if more > 0 else named
