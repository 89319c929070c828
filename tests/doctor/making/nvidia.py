"""The NVIDIA driver of a machine: /proc/driver/nvidia, `nvidia-smi -q`, `nvidia-smi topo -m`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dgkit.doctor.reading import Reading

from .kinds import MIB
from .sysfs import window
from .tree import Node

_PROC = "/proc/driver/nvidia"
_MEMORY = {"a100x": 80, "a100": 80, "a100-sxm": 40, "h100": 80, "l40s": 48, "t4": 16, "rtx": 16}
_MEMORY_ROWS = ("Total", "Reserved", "Used", "Free")
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
    """`flavour`: open or closed. `broken`: what nvidia-smi says instead. `used`: MiB of BAR1."""

    version: str = "580.95.05"
    cuda: str = "13.0"
    flavour: str = "open"
    machine: str = "x86_64"
    persistence: bool = True
    peermem: bool = False
    gdrdrv: bool = False
    nvlinks: int = 0
    used: int = 1
    virtual: str = "None"
    registry: str = ""
    broken: str = ""
    modules: tuple[str, ...] = field(default=("nvidia_uvm", "nvidia_modeset"))


def driver(made: Driver, nodes: Sequence[Node]) -> dict[str, object]:
    """All that it shows."""
    gpus = [node for node in nodes if node.kind.is_gpu]
    found: dict[str, object] = {
        f"text {_PROC}/version": _version(made),
        f"text {_PROC}/params": _params(made),
        "text /sys/module/nvidia/version": f"{made.version}\n",
    }
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
    lines = ["ResmanDebugLevel: 4294967295", "EnableMSI: 1", "EnableResizableBar: 0"]
    lines += [
        "PreserveVideoMemoryAllocations: 0",
        "EnableStreamMemOPs: 0",
        "OpenRmEnableUnsupportedGpus: 1",
    ]
    lines += [
        "DmaRemapPeerMmio: 1",
        f'RegistryDwords: "{made.registry}"',
        'RegistryDwordsPerDevice: ""',
    ]
    return "\n".join(lines) + "\n"


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


def _row(depth: int, name: str, value: str = "") -> str:
    text = f"{' ' * 4 * depth}{name}"
    return f"{text:<50}: {value}" if value else text


def query(made: Driver, gpus: Sequence[Node]) -> str:
    """`nvidia-smi -q`, without the sections that nobody here asks for."""
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [
        _row(0, "Timestamp", "Sat Nov 21 12:00:00 2026"),
        _row(0, "Driver Version", made.version),
    ]
    lines += [_row(0, "CUDA Version", made.cuda), "", _row(0, "Attached GPUs", str(len(gpus)))]
    for number, node in enumerate(gpus):
        lines += _one(made, node, number)
    return "\n".join(lines) + "\n"


def _one(made: Driver, node: Node, number: int) -> list[str]:
    domain, _, rest = node.address.partition(":")
    bus = f"{int(domain, 16):08X}:{rest.upper()}"
    hmm = "HMM" if made.flavour == "open" else "None"
    integrated = node.word == "gb10"
    memory = _MEMORY.get(node.word, 0) * 1024
    sizes = ["N/A"] * 4 if integrated else [f"{one} MiB" for one in (memory, 600, 4, memory - 604)]
    bar1 = window(node) // MIB
    bars = [f"{bar1} MiB", f"{made.used} MiB", f"{bar1 - made.used} MiB"] if bar1 else ["N/A"] * 3
    rows = [
        (1, "Product Name", node.kind.name),
        (1, "Product Brand", "NVIDIA"),
        (1, "Product Architecture", _AGES[node.word]),
        (1, "Display Mode", "Disabled"),
        (1, "Persistence Mode", "Enabled" if made.persistence else "Disabled"),
        (1, "Addressing Mode", "ATS" if integrated else hmm),
        (1, "MIG Mode", ""),
        (2, "Current", "Disabled"),
        (2, "Pending", "Disabled"),
        (1, "Serial Number", "N/A"),
        (1, "GPU UUID", _uuid(number)),
        (1, "Minor Number", str(number)),
        (1, "VBIOS Version", "92.00.90.00.01"),
        (1, "GSP Firmware Version", made.version if made.flavour == "open" else "N/A"),
        (1, "GPU Virtualization Mode", ""),
        (2, "Virtualization Mode", made.virtual),
        (2, "Host VGPU Mode", "N/A"),
        (1, "PCI", ""),
        (2, "Bus", f"0x{bus[9:11]}"),
        (2, "Device", f"0x{bus[12:14]}"),
        (2, "Domain", f"0x{bus[4:8]}"),
        (2, "Device Id", f"0x{node.kind.device:04X}10DE"),
        (2, "Bus Id", bus),
        (2, "GPU Link Info", ""),
        (3, "PCIe Generation", ""),
        (4, "Max", str(node.at_most.gen)),
        (4, "Current", str(node.now.gen)),
        (3, "Link Width", ""),
        (4, "Max", f"{node.at_most.lanes}x"),
        (4, "Current", f"{node.now.lanes}x"),
        (1, "FB Memory Usage", ""),
        *((2, what, one) for what, one in zip(_MEMORY_ROWS, sizes, strict=True)),
        (1, "BAR1 Memory Usage", ""),
        *((2, what, one) for what, one in zip(("Total", "Used", "Free"), bars, strict=True)),
        (1, "Compute Mode", "Default"),
        (1, "Processes", "None"),
    ]
    return [f"GPU {bus}", *(_row(*row) for row in rows), ""]


def relation(one: Node, other: Node) -> str:
    """By nvidia-smi's legend: what lies between two functions."""
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
