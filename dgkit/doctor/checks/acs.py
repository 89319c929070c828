# SPDX-License-Identifier: Apache-2.0
"""ACS on the bridges between a GPU and a NIC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import finding, references
from ..facts import bridges, cmdline, coherent, data_direct, pairs, pci, virtual
from ..facts.bridges import Bridge
from ..facts.distribution import as_root
from ..facts.topology import Near
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_PEERS
from ..machine import Case, Machine
from ..prerequisites import applies
from ..registry import check
from . import _data_direct
from .topology import GPU_AND_PEER

_GUIDE = references.GPUNETIO("Installation and Setup, ACSCtl")
_LINUX = references.P2PDMA_CODE("pci_bridge_has_acs_redir")
_VFIO = references.VFIO("Groups, Devices, and IOMMUs")
_VM = references.VM_TUNING("ATS and ACS configuration")
_SMMU = references.NODEWRIGHT("pull request 121")
_PARAMETERS = references.KERNEL_PARAMETERS("pci=disable_acs_redir=")
_PARAMETER = (4, 19)  # the first Linux with it
# The bits that redirect peer-to-peer traffic to the CPU (Linux, drivers/pci/p2pdma.c,
# pci_bridge_has_acs_redir). pci=disable_acs_redir= clears only these (pci.c, pci_enable_acs).
_REDIRECT = frozenset({"ReqRedir", "CmpltRedir", "EgressCtrl"})
_AS_ROOT = as_root("acs")
_NEEDED = "ReqRedir- CmpltRedir- EgressCtrl-"
_DISAGREE = (
    "The GPUNetIO guide wants all ACSCtl bits off on some x86 machines; Linux (P2PDMA) cares only "
    "about these three; the kernel's VFIO document relies on ACS to isolate devices that are "
    "passed to virtual machines, and NVIDIA's guide to GPUDirect RDMA in virtual machines sets it "
    "on these bridges, with ATS."
)


@check(
    "acs",
    "PCIe Access Control Services",
    asks="Does a bridge between GPU and NIC redirect their traffic to the CPU?",
    goals=WITH_PEERS,
    needed=_NEEDED,
    requires=[
        *GPU_AND_PEER,
        applies(
            lambda case: not case.machine.know(virtual.virtual).is_vm,
            "the hypervisor's: these bridges are virtual",
            needed="on the hypervisor: dgkit doctor acs",
            why="Only the host sees the real bridges.",
            sources=[_GUIDE, _VM],
        ),
    ],
)
def _acs(case: Case) -> Iterator[Finding]:
    if data_direct.functions(case.machine):
        yield from _data_direct.judge_acs(case.machine)
        return
    if coherent.is_coherent(case.machine):
        yield finding.ok(
            "not in the way: GPU by NVLink-C2C",
            needed="any",
            why="Other devices reach GPU memory through the CPU, for which Grace's guide keeps "
            "ACS on.",
            sources=[references.GRACE_CX8("Platform Software and Configuration"), _SMMU],
        )
        return
    below_cpu = _bridges(case)
    if not below_cpu:
        yield finding.n_a("no bridge between GPU and NIC")
    for alike in _group_alike(bridges.bridges(case.machine, below_cpu), below_cpu):
        yield _judge_bridges(case.machine, alike, below_cpu[alike[0].address])


def _bridges(case: Case) -> dict[str, bool]:
    """Return the bridges between each GPU and its NIC or DPU; the value is True below the CPU."""
    below_cpu: dict[str, bool] = {}
    for pair in pairs.pairs(case.machine, case.goal):
        for bridge in pair.path.bridges:
            below_cpu[bridge] = below_cpu.get(bridge, False) or pair.path.near <= Near.PXB
    return below_cpu


def _group_alike(found: Sequence[Bridge], below_cpu: Mapping[str, bool]) -> list[list[Bridge]]:
    groups: dict[object, list[Bridge]] = {}
    for bridge in found:
        on = bridge.on if bridge.acs is not None else None
        key = (bridge.why, on, below_cpu[bridge.address] or not on)
        groups.setdefault(key, []).append(bridge)
    return list(groups.values())


def _judge_bridges(machine: Machine, alike: list[Bridge], below_cpu: bool) -> Finding:
    names = [bridge.address for bridge in alike]
    subject = ", ".join(names) if len(names) <= 4 else f"{len(names)} bridges"
    first = alike[0]
    if first.why:
        lines = [f"sudo lspci -s {name} -vvv | grep ACSCtl" for name in names[:8]]
        return finding.unknown(
            "needs root", subject=subject, why=f"{first.why}.",
            remedy=[*_where(machine), _AS_ROOT, *lines], sources=[_GUIDE],
        )  # fmt: skip
    if not _REDIRECT & set(first.on):
        bits = " ".join(f"{bit}+" for bit in first.on) or "all off"
        why = "These bits check and block, but redirect no peer-to-peer traffic to the CPU."
        return finding.ok(
            "no ACS" if first.acs is None else bits, subject=subject, why=why if first.on else "",
            sources=[_GUIDE, _LINUX],
        )  # fmt: skip
    return finding.warn(
        " ".join(f"{bit}+" for bit in first.on),
        subject=subject,
        why=_explain_acs(below_cpu),
        remedy=_remedy(machine, names),
        sources=[_GUIDE, _LINUX, _VFIO, _VM, _PARAMETERS],
        disagree=_DISAGREE,
    )


def _where(machine: Machine) -> list[str]:
    """Return where to run commands as root: in a container, even root may not read ACS."""
    return ["# On the host, outside the container:"] * bool(machine.know(virtual.container).engine)


def _explain_acs(below_cpu: bool) -> str:
    if below_cpu:
        return (
            "Traffic between the devices is routed up to the CPU's root complex and back, or is "
            "lost there, although a switch could forward it."
        )
    return (
        "As far as is known no switch below the CPU connects the devices: their traffic passes the "
        "CPU in any case, and ACS may still block or slow it."
    )


def _remedy(machine: Machine, names: Sequence[str]) -> list[str]:
    """Return the remedies: in the BIOS, until the next boot, and on the kernel command line.

    Where devices are assigned to virtual machines, ACS isolates the devices.
    """
    if any(device.driver == "vfio-pci" for device in machine.know(pci.tree).devices.values()):
        return ["# Devices of this machine are given to guests, which ACS isolates: keep it on,",
                "# or put GPU and NIC below a separate switch."]  # fmt: skip
    return [
        "# In the BIOS: switch off ACS (Access Control) for these bridges, if it has the option",
        *(f"sudo setpci -s {name} ECAP_ACS+0x6.w=0000" for name in names),
        *_for_good(machine, names),
    ]


def _for_good(machine: Machine, names: Sequence[str]) -> list[str]:
    """Return how to keep ACS off at each boot; the kernel's parameter came with Linux 4.19."""
    linux = machine.know(uname)
    if () < linux.version < _PARAMETER:
        return [f"# That lasts until the next boot: Linux {linux.release} has no parameter for it."]
    return [
        "# That lasts until the next boot; permanently, on the kernel command line:",
        cmdline.add_parameter(machine, f'pci=disable_acs_redir="{";".join(names)}"', "acs"),
    ]
