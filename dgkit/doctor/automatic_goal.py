# SPDX-License-Identifier: Apache-2.0
"""Automatic goal: a table that derives the goal from the devices and software of a machine.

A working machine fails when it is judged for a goal that it was not meant for. Therefore DMA by the
Arm cores of a BlueField is chosen only if DOCA or rshim is installed or, without a GPU, only if
DOCA is. A GeForce leads to a goal that needs only CUDA, because NVIDIA's driver gives no other
device access to its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from .facts import bluefield, nvidia_proc, pairs, pci
from .facts.bluefield import Mode
from .facts.doca import doca
from .goals import Goal
from .machine import Machine
from .prerequisites import pci_unread


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """Devices and software of a machine that decide its goal.

    Attributes:
        arm: Whether the Arm side of a BlueField is judged, alone or together with its host.
        host: Whether a host is judged.
        gpus: Number of NVIDIA GPUs.
        reachable: Whether a GPU is not a GeForce, whose memory other devices cannot access.
        nic: Whether there is a NIC with RDMA or a BlueField.
        card: The first BlueField; "" if there is none.
        software: Software installed for its Arm cores: `DOCA` or `rshim`; "" for neither.
        nic_mode: Whether the BlueField is in NIC mode; False if unknown.
        unread: Whether PCI devices may be missing, because they were not read.
    """

    arm: bool = False
    host: bool = True
    gpus: int = 0
    reachable: bool = False
    nic: bool = False
    card: str = ""
    software: str = ""
    nic_mode: bool = False
    unread: bool = False

    @property
    def has_dpu(self) -> bool:
        """True if there is a BlueField with software for its Arm cores, not in NIC mode."""
        return bool(self.card and self.software) and not self.nic_mode


class Rule(msgspec.Struct, frozen=True):
    """A goal, and the condition under which it is chosen.

    Attributes:
        goal: The goal.
        when: Description of the condition, for the documentation.
        holds: Returns whether the condition is met.
        why: Returns the reason, as the end of a sentence.
    """

    goal: Goal
    when: str
    holds: Callable[[Signs], bool]
    why: Callable[[Signs], str]


def _why_arm(shown: Signs) -> str:
    both = "these are a host and the Arm side of a BlueField"
    return both if shown.host else "this is the Arm side of a BlueField"


def _why_rdma(shown: Signs) -> str:
    if not shown.card:
        return "there are a GPU and a NIC, and no BlueField"
    use = "is in NIC mode" if shown.nic_mode else "has neither DOCA nor rshim here"
    return f"there are a GPU and a {shown.card} that {use}"


def _why_gpu(shown: Signs) -> str:
    if shown.reachable:
        return "there is one GPU, and no NIC with RDMA"
    return "there are several GPUs, all GeForce" if shown.gpus > 1 else "the GPU is a GeForce"


def _why_none(shown: Signs) -> str:
    if shown.unread:
        return "the PCI devices were not read, so that no GPU is known"
    if not shown.card:
        return "there is no NVIDIA GPU"
    use = " in NIC mode" if shown.nic_mode else "" if shown.software == "DOCA" else " without DOCA"
    return f"there is a {shown.card}{use}, and no GPU"


def _host_memory(shown: Signs) -> bool:
    """Return whether Arm cores should access the memory of a host without a GPU."""
    if shown.gpus or not shown.host:
        return False
    return shown.arm or (shown.has_dpu and shown.software == "DOCA")


def _why_host(shown: Signs) -> str:
    if shown.arm:
        return "these are a host without a GPU and the Arm side of a BlueField"
    return f"there are a {shown.card} and DOCA, and no GPU"


# The first rule that holds gives the goal.
RULES = (
    Rule(
        Goal.HOST_DMA,
        "no GPU on the host; a BlueField, not in NIC mode; DOCA",
        _host_memory,
        _why_host,
    ),
    Rule(
        Goal.ARM_DMA,
        "the Arm side of a BlueField",
        lambda shown: shown.arm,
        _why_arm,
    ),
    Rule(
        Goal.ARM_DMA,
        "a GPU, not GeForce; a BlueField, not in NIC mode; DOCA or rshim",
        lambda shown: shown.reachable and shown.has_dpu,
        lambda shown: f"there are a GPU, a {shown.card} and {shown.software}",
    ),
    Rule(
        Goal.RDMA,
        "a GPU, not GeForce; a NIC with RDMA of any vendor, or a BlueField",
        lambda shown: shown.reachable and shown.nic,
        _why_rdma,
    ),
    Rule(
        Goal.P2P,
        "several GPUs, not GeForce",
        lambda shown: shown.reachable and shown.gpus > 1,
        lambda _: "there are several GPUs, and no NIC with RDMA",
    ),
    Rule(
        Goal.GPU,
        "any other GPU",
        lambda shown: shown.gpus > 0,
        _why_gpu,
    ),
    Rule(Goal.LAPTOP, "no NVIDIA GPU", lambda _: True, _why_none),
)


def choose(shown: Signs) -> tuple[Goal, str]:
    """Return the goal of the first rule that holds, and the reason."""
    rule = next(rule for rule in RULES if rule.holds(shown))
    return rule.goal, rule.why(shown)


def signs(sides: Mapping[str, Machine]) -> Signs:
    """Return the signs of a machine, or of a host and its DPU, except for the card's mode.

    This runs before all checks, so it reads only files and runs only ibv_devinfo.
    """
    if "dpu" in sides:
        return Signs(arm=True, host="host" in sides, gpus=_gpu_count(sides.get("host")))
    machine = sides["host"]
    devices = machine.know(pci.tree)
    shown = Signs(
        gpus=len(devices.gpus),
        card=devices.bluefields[0].bluefield if devices.bluefields else "",
        software=_software_reason(machine) if devices.bluefields else "",
        unread=bool(pci_unread(machine)),
    )
    if not shown.gpus:
        return shown
    return msgspec.structs.replace(
        shown,
        reachable=any(_is_reachable(machine, gpu.address) for gpu in devices.gpus),
        nic=bool(pairs.peers(machine, Goal.RDMA)),
    )


def _gpu_count(host: Machine | None) -> int:
    """Return the number of GPUs of a host; 1 if the number is unknown."""
    devices = host.know(pci.tree) if host is not None else None
    return 1 if devices is None or devices.why else len(devices.gpus)


def nic_mode(machine: Machine) -> bool:
    """Return whether all BlueFields are in NIC mode according to the rshim driver or mlxconfig.

    Both sources need root.
    """
    reported = machine.know(bluefield.rshim)
    modes = [
        reported.get(card.address.rpartition(".")[0]) or bluefield.mode(settings)
        for card, settings in machine.know(bluefield.configs)
    ]
    return bool(modes) and all(mode is Mode.NIC for mode in modes)


def _is_reachable(machine: Machine, gpu: str) -> bool:
    model = nvidia_proc.information(machine, gpu).get("Model", "")
    return "geforce" not in model.lower().split()


def _software_reason(machine: Machine) -> str:
    found = machine.know(doca)
    if found.version or found.parts:
        return "DOCA"
    names = machine.read.names("/dev").names
    rshim = any(name.startswith("rshim") for name in names) or machine.know(bluefield.tmfifo).nets
    return "rshim" if rshim else ""
