# SPDX-License-Identifier: Apache-2.0
"""Mode of the IOMMU, from the IOMMU groups of the devices and the kernel command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import finding, references
from ..collect.reader import Reading
from ..facts import coherent, cuda, data_direct, gpus, pci, pci_ids, virtual
from ..facts.cmdline import Cmdline, add_parameter, cmdline
from ..facts.kconfig import kconfig
from ..facts.pci import PciDevice
from ..facts.uname import uname
from ..finding import Finding
from ..goals import ANY_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, readable, reason
from ..registry import check
from . import _data_direct

_MAX_NAMED = 2  # devices shown by name; for the rest, only their number
_SOURCES = (
    references.GPUDIRECT("Supported Systems, IOMMUs"),
    references.GPUNETIO("GPUNetIO Installation and Setup, IOMMU"),
    references.IOMMU_GROUPS("/sys/kernel/iommu_groups/<grp_id>/type"),
    references.KERNEL_PARAMETERS("iommu, intel_iommu, amd_iommu, iommu.passthrough"),
)
_DISAGREE = (
    "The GPUDirect RDMA guide requires the IOMMU off or in passthrough; the GPUNetIO guide turns "
    "it off only if no data arrives; NVIDIA's open driver maps GPU memory through it "
    "(nvidia/nv-dma.c, nv_dma_map_peer)."
)
_NEEDED = "off or passthrough"
_OFF, _PASSTHROUGH, _TRANSLATING = "off", "passthrough", "translating"
_IN_VM, _UNKNOWN = "vm", "?"
# Contents of /sys/kernel/iommu_groups/*/type (Linux, drivers/iommu/iommu.c).
_TYPES = {
    "identity": _PASSTHROUGH,
    "DMA": _TRANSLATING,
    "DMA-FQ": _TRANSLATING,
    "unmanaged": _IN_VM,
    "blocked": _IN_VM,
}


def _devices(machine: Machine) -> tuple[PciDevice, ...]:
    tree = machine.know(pci.tree)
    return (*tree.gpus, *(nic for nic in tree.nics if nic.vendor == pci_ids.MELLANOX))


@check(
    "iommu",
    "IOMMU",
    asks="Does the IOMMU leave the addresses between GPUs and NICs untranslated?",
    goals=ANY_GPU,
    sides=("host",),
    sources=_SOURCES,
    requires=[
        readable(reason(pci.tree), "no PCI devices"),
        applies(lambda case: _devices(case.machine), "neither GPU nor NIC"),
        applies(
            lambda case: not case.machine.know(virtual.virtual).is_vm,
            "the hypervisor's",
            needed="on the hypervisor: dgkit doctor iommu",
            why="Devices passed through to a virtual machine use the host's IOMMU, which is not "
            "visible here. NVIDIA's guide enables ATS there (mlxconfig, ATS_ENABLED).",
            sources=[*_SOURCES, references.VM_TUNING("ATS and ACS configuration")],
        ),
        applies(
            lambda case: case.goal is not Goal.GPU or coherent.is_coherent(case.machine),
            "no other device has to reach the GPU",
        ),
    ],
)
def _iommu(case: Case) -> Iterator[Finding]:
    machine = case.machine
    if coherent.is_coherent(machine):
        yield _coherent(machine)
        return
    if machine.know(pci.tree).gpus and data_direct.functions(machine):
        yield from _data_direct.judge_groups(machine)
        return
    words, devices = machine.know(cmdline), _devices(machine)
    states: dict[str, list[PciDevice]] = {}
    for device, state in zip(devices, _iommu_states(machine, devices, words), strict=True):
        states.setdefault(state, []).append(device)
    for state, alike in states.items():
        subject = _names(alike) if len(states) > 1 else ""
        yield finding.about(subject, _judge_state(machine, state, words))


def _coherent(machine: Machine) -> Finding:
    """Return the finding on a GPU coherent with the CPU, whose data does not pass the SMMU."""
    sources = [references.GRACE_SMMU("pull request 22")]
    if not coherent.smmu_passthrough(machine):
        return finding.ok("translating or new enough", needed="any", sources=sources)
    contexts = machine.know(cuda.contexts)
    codes = {contexts[gpu.address].code for gpu in gpus.usable(machine) if gpu.address in contexts}
    if codes == {0}:
        why = "This kernel has NVIDIA's change that allows it: a CUDA context was created."
        return finding.ok("passthrough", needed="any", why=why, sources=sources)
    make = finding.fail if codes - {0, None} else finding.warn
    return make(
        "passthrough, before Linux 6.11",
        needed="translating",
        why="Before Linux 6.11 CUDA creates no context on a GPU that shares the CPU's page tables "
        "while the SMMU is in passthrough.",
        remedy=[add_parameter(machine, "iommu.passthrough=0", "iommu")],
        sources=sources,
    )


def _iommu_states(machine: Machine, devices: tuple[PciDevice, ...], words: Cmdline) -> list[str]:
    links = [f"link {pci.DEVICES}/{device.address}/iommu_group" for device in devices]
    groups = machine.read.together(links)
    numbers = {group.text.rpartition("/")[2] for group in groups if group.ok}
    paths = {number: f"text /sys/kernel/iommu_groups/{number}/type" for number in sorted(numbers)}
    types = dict(zip(paths, machine.read.together(list(paths.values())), strict=True))
    return [_state(machine, group, types, words) for group in groups]


def _state(machine: Machine, group: Reading, types: Mapping[str, Reading], words: Cmdline) -> str:
    """Return the state from the type of a device's group, else from the kernel command line.

    Kernels before 5.11 do not report a type.
    """
    if group.absent:
        return _OFF  # a device without an IOMMU does not belong to a group
    kind = types.get(group.text.rpartition("/")[2], group) if group.ok else group
    if kind.ok:
        return _TYPES.get(kind.text.strip(), _UNKNOWN)
    if not kind.absent or words.reading.fault:
        return _UNKNOWN
    if not words.iommu and machine.know(kconfig)["CONFIG_IOMMU_DEFAULT_PASSTHROUGH"] == "y":
        return _PASSTHROUGH
    return {"off": _OFF, "passthrough": _PASSTHROUGH, "on": _TRANSLATING}.get(words.iommu, _UNKNOWN)


def _judge_state(machine: Machine, state: str, words: Cmdline) -> Finding:
    given = f" ({words.about_iommu})"[:28] if words.about_iommu else ""
    if state in (_OFF, _PASSTHROUGH):
        return finding.ok(state + given, needed=_NEEDED)
    if state == _UNKNOWN:
        return finding.unknown(
            "not known",
            needed=_NEEDED,
            why="Neither the IOMMU groups nor the kernel command line show it.",
            remedy=["sudo dmesg | grep -i -e DMAR -e IOMMU"],
        )
    if state == _IN_VM:
        return finding.fail(
            "assigned to a virtual machine",
            needed=_NEEDED,
            why="Its memory is mapped for a virtual machine (VFIO): this system cannot use it.",
            remedy=["# Return it to NVIDIA's driver, or run the doctor in the virtual machine"],
        )
    return finding.warn(
        state + given,
        needed=_NEEDED,
        why="Traffic between devices may be routed to the CPU for translation, or not arrive.",
        remedy=_enable_passthrough(machine),
        sources=(*_SOURCES, references.MULTI_GPU(), references.OPEN_MODULES("nvidia/nv-dma.c")),
        disagree=_DISAGREE,
    )


def _enable_passthrough(machine: Machine) -> list[str]:
    arm = machine.know(uname).arm
    word = "iommu.passthrough=1" if arm else "iommu=pt"
    off = "the SMMU" if arm else "VT-d (Intel) or IOMMU (AMD)"
    return [
        add_parameter(machine, word, "iommu"),
        f"# If no data arrives even so: turn off {off} in the BIOS",
    ]


def _names(devices: list[PciDevice]) -> str:
    named = ", ".join(device.address for device in devices[:_MAX_NAMED])
    more = len(devices) - _MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named
