# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver of a machine: /proc/driver/nvidia, `nvidia-smi -q`, `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from doctor.synthetic_machines.kinds import MIB
from doctor.synthetic_machines.sysfs import window
from doctor.synthetic_machines.tree import Node

from dgkit.doctor.collect.reader import Reading

_PROC = "/proc/driver/nvidia"
_MEMORY = {"a100x": 80, "a100": 80, "a100-sxm": 40, "h100": 80, "l40s": 48, "t4": 16, "rtx": 16}
_AGES = {
    "a100x": "Ampere",
    "a100": "Ampere",
    "a100-sxm": "Ampere",
    "rtx": "Ampere",
    "h100": "Hopper",
    "l40s": "Ada Lovelace",
    "t4": "Turing",
    "gb10": "Blackwell",
}
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""  # noqa: E501


@dataclass(frozen=True)
class Driver:
    """`flavour`: open or closed. `broken`: what nvidia-smi says instead. `used`: MiB of BAR1.

    `fabric`: state and status, as `Completed/Success`; `cluster`: the fabric's UUID. `peers`: the
    name in /sys/kernel/mm/memory_peers.
    """

    version: str = "580.95.05"
    cuda: str = "13.0"
    flavour: str = "open"
    machine: str = "x86_64"
    persistence: bool = True
    peermem: bool = False
    peers: str = ""
    gdrdrv: bool = False
    nvlinks: int = 0
    used: int = 1
    virtual: str = "None"
    registry: str = ""
    broken: str = ""
    compute: str = "Default"
    mig: bool = False
    fabric: str = ""
    cluster: str = "00000000-0000-0000-0000-000000000000"
    modules: tuple[str, ...] = field(default=("nvidia_uvm", "nvidia_modeset"))


def driver(made: Driver, nodes: Sequence[Node]) -> dict[str, object]:
    """All that it shows."""
    gpus = [node for node in nodes if node.kind.is_gpu]
    found: dict[str, object] = {
        f"text {_PROC}/version": _version(made),
        f"text {_PROC}/params": _params(made),
        "text /sys/module/nvidia/version": f"{made.version}\n",
    }
    if made.peers:
        found["names /sys/kernel/mm/memory_peers"] = [made.peers]
    for minor, node in enumerate(gpus):
        found[f"text {_PROC}/gpus/{node.address}/information"] = _information(made, node, minor)
    if made.broken:
        failed = Reading(text=f"{made.broken}\n", code=18)
        found |= {"run nvidia-smi -q": failed, "run nvidia-smi topo -m": failed}
        return found
    found["run nvidia-smi -q"] = query(made, gpus)
    found["run nvidia-smi topo -m"] = matrix(made, nodes)
    return found


def modules(made: Driver) -> list[tuple[str, tuple[str, ...]]]:
    """Its lines of /proc/modules: a module, and those that use it."""
    others = [*made.modules]
    others += ["nvidia_peermem"] if made.peermem else []
    others += ["gdrdrv"] if made.gdrdrv else []
    return [("nvidia", tuple(others)), *((name, ()) for name in others)]


def _version(made: Driver) -> str:
    if made.flavour == "open":
        what = f"NVIDIA UNIX Open Kernel Module for {made.machine}  {made.version}  Release Build"
    else:
        what = f"NVIDIA UNIX {made.machine} Kernel Module  {made.version}"
    gcc = "gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)"
    return f"NVRM version: {what}  Tue Sep 23 09:55:41 UTC 2025\nGCC version:  {gcc}\n"


def _params(made: Driver) -> str:
    lines = {
        "EnableMSI": "1",
        "EnableResizableBar": "0",
        "EnableStreamMemOPs": "0",
        "DmaRemapPeerMmio": "1",
        "RegistryDwords": f'"{made.registry}"',
        "RegistryDwordsPerDevice": '""',
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items())


def _information(made: Driver, node: Node, minor: int) -> str:
    lines = {
        "Model": node.kind.name,
        "IRQ": str(64 + minor),
        "GPU UUID": _uuid(minor),
        "Video BIOS": "92.00.90.00.01",
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": node.address,
        "Device Minor": str(minor),
        "GPU Firmware": made.version if made.flavour == "open" else "N/A",
        "GPU Excluded": "No",
    }
    return "".join(f"{name + ':':<17}{value}\n" for name, value in lines.items())


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number + 1:012x}"


_QUERY = """
==============NVSMI LOG==============

Timestamp: Sat Nov 21 12:00:00 2026
Driver Version: {made.version}
CUDA Version: {made.cuda}

Attached GPUs: {count}
"""
_QUERY_GPU = """\
GPU {bus}
    Product Name: {node.kind.name}
    Product Brand: NVIDIA
    Product Architecture: {age}
    Display Mode: Disabled
    Persistence Mode: {persistence}
    Addressing Mode: {addressing}
    MIG Mode
        Current: {mig}
        Pending: {mig}
    Serial Number: N/A
    GPU UUID: {uuid}
    Minor Number: {number}
    VBIOS Version: 92.00.90.00.01
    GSP Firmware Version: {gsp}
    GPU Virtualization Mode
        Virtualization Mode: {made.virtual}
        Host VGPU Mode: N/A
    PCI
        Device Id: 0x{node.kind.device:04X}10DE
        Bus Id: {bus}
        GPU Link Info
            PCIe Generation
                Max: {node.at_most.gen}
                Current: {node.now.gen}
            Link Width
                Max: {node.at_most.lanes}x
                Current: {node.now.lanes}x
    Performance State: {state}
    FB Memory Usage
        Total: {memory[0]}
        Reserved: {memory[1]}
        Used: {memory[2]}
        Free: {memory[3]}
    BAR1 Memory Usage
        Total: {bar1[0]}
        Used: {bar1[1]}
        Free: {bar1[2]}
    Compute Mode: {made.compute}
    Processes: None
{fabric}
"""
_FABRIC = """\
    Fabric
        State: {state}
        Status: {status}
        CliqueId: 0
        ClusterUUID: {made.cluster}
"""


def query(made: Driver, gpus: Sequence[Node]) -> str:
    """Return the output of `nvidia-smi -q`, without the sections that no check uses."""
    text = _QUERY.format(made=made, count=len(gpus))
    text += "".join(_query_gpu(made, node, number) for number, node in enumerate(gpus))
    parts = (line.partition(": ") for line in text.splitlines())
    return "".join(
        f"{name:<50}: {value}\n" if colon else f"{name}\n" for name, colon, value in parts
    )


def _query_gpu(made: Driver, node: Node, number: int) -> str:
    domain, _, rest = node.address.partition(":")
    spark, opened = node.word == "gb10", made.flavour == "open"
    bar1 = window(node) // MIB
    memory = (node.kind.memory or _MEMORY.get(node.word, 0)) * 1024
    return _QUERY_GPU.format(
        made=made,
        node=node,
        number=number,
        bus=f"{int(domain, 16):08X}:{rest.upper()}",
        age=node.kind.age or _AGES[node.word],
        state="P8" if "now" in node.words else "P0",
        persistence="Enabled" if made.persistence else "Disabled",
        addressing="ATS" if spark else "HMM" if opened else "None",
        uuid=_uuid(number),
        gsp=made.version if opened else "N/A",
        mig="Enabled" if made.mig else "Disabled",
        fabric=_fabric(made),
        memory=_mib(memory, 600, 4, memory - 604) if memory else ["N/A"] * 4,
        bar1=_mib(bar1, made.used, bar1 - made.used) if bar1 else ["N/A"] * 3,
    )


def _fabric(made: Driver) -> str:
    state, _, status = made.fabric.partition("/")
    return _FABRIC.format(made=made, state=state, status=status or "N/A") if state else ""


def _mib(*sizes: int) -> list[str]:
    return [f"{size} MiB" for size in sizes]


def relation(one: Node, other: Node) -> str:
    """Return the topology class of two functions, by the legend of nvidia-smi."""
    if one.path[0] != other.path[0]:
        return "NODE" if one.numa == other.numa else "SYS"
    shared = 0
    for mine, theirs in zip(one.path, other.path, strict=False):
        if mine != theirs:
            break
        shared += 1
    if shared == 1:
        return "PHB"
    # Each side passes a port of the switch that both are below; any more is another switch.
    most = max(len(one.path), len(other.path)) - shared
    return "PIX" if most <= 2 else "PXB"


def matrix(made: Driver, nodes: Sequence[Node]) -> str:
    """`nvidia-smi topo -m`: tabs between cells, a header that terminals underline."""
    gpus = [node for node in nodes if node.kind.is_gpu]
    nics = sorted(
        (node for node in nodes if node.words.get("rdma")), key=lambda one: one.words["rdma"]
    )
    names = [f"GPU{at}" for at in range(len(gpus))] + [f"NIC{at}" for at in range(len(nics))]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    lines = [f"\x1b[4m{header}\x1b[0m"]
    for name, node in zip(names, [*gpus, *nics], strict=True):
        cells = [_cell(made, node, other) for other in [*gpus, *nics]]
        tail = (
            [node.cpus, str(node.numa) if node.numa >= 0 else "N/A", "\tN/A"]
            if node in gpus
            else ["", ""]
        )
        lines.append("\t".join([name, *cells, *tail]))
    legend = "".join(f"  NIC{at}: {node.words['rdma']}\n" for at, node in enumerate(nics))
    return "\n".join(lines) + "\n" + LEGEND + (f"\nNIC Legend:\n\n{legend}\n" if nics else "\n")


def _cell(made: Driver, one: Node, other: Node) -> str:
    if one is other:
        return " X "
    if made.nvlinks and one.kind.is_gpu and other.kind.is_gpu:
        return f"NV{made.nvlinks}"
    return relation(one, other)
