# SPDX-License-Identifier: Apache-2.0
"""Parser of `nvidia-smi topo`: topology classes of GPUs and NICs (-m), peer access (-p2p).

The header is underlined by ANSI escapes; columns are separated by tabs (by spaces in copied text).
NICs are listed since driver 384, under names such as mlx5_0; since 510, as NIC0 with a legend. The
columns after the matrix (CPU Affinity, NUMA Affinity, GPU NUMA ID) were added one by one.
"""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import gpus as gpu_facts
from . import rdma
from .topology import Near

COMMAND = "nvidia-smi topo -m"
PEERS = "nvidia-smi topo -p2p r"
_ESCAPE = re.compile(r"\x1b?\[[0-9;]*m|\x1b")  # copied text may lack the escape character
_FIRST = re.compile(r"GPU\d{1,3}")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV\d{1,2}|N/A|\?+")
_MAX_COLUMNS = 256
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*:\s*(\S+)\s*")
# Drivers before 384 print SOC for NODE and SYS, PSB for PIX.
_NEAR = {**{str(near): near for near in Near}, "SOC": Near.SYS, "PSB": Near.PIX}


class TopologyMatrix(msgspec.Struct, frozen=True):
    """Topology matrix of nvidia-smi.

    Attributes:
        cells: Cell of each pair of names, `("GPU0", "NIC0"): "NODE"`, without the diagonal.
        nics: Device of each NIC in the legend, `NIC0: mlx5_0`.
        why: Reason why there is no matrix, "" if there is one.
    """

    cells: dict[tuple[str, str], str]
    nics: dict[str, str]
    why: str = ""

    def near(self, a: str, b: str) -> Near | None:
        """Return the class of a pair of names; None for NVLink (NV#) and unknown pairs."""
        return _NEAR.get(self.cells.get((a, b), ""))


def parse(text: str) -> TopologyMatrix:
    """Parse an output; of truncated rows, the cells that are present are returned."""
    cells: dict[tuple[str, str], str] = {}
    nics: dict[str, str] = {}
    header: list[str] = []
    for line in _ESCAPE.sub("", text).splitlines():
        words, legend = line.split(), _LEGEND.fullmatch(line)
        if legend is not None:
            nics[legend[1]] = legend[2]
        elif not header:
            header = _header(words)
        elif words and words[0] in header:
            row = words[0]
            for name, cell in zip(header, _row(words[1:]), strict=False):
                if name != row:
                    cells[row, name] = cell
    return TopologyMatrix(cells, nics, "" if header else "nvidia-smi printed no matrix")


def _header(words: list[str]) -> list[str]:
    """Return the column names before CPU Affinity; [] if the line is not a header."""
    names = words[: words.index("CPU")] if "CPU" in words else words
    invalid = len(set(names)) < len(names) or any(map(_CELL.fullmatch, names))
    invalid |= not 0 < len(names) <= _MAX_COLUMNS
    return [] if invalid or _FIRST.fullmatch(names[0]) is None else names


def _row(words: list[str]) -> list[str]:
    """Return the cells of a row, up to the first word that is not a cell (the CPU list)."""
    end = next((at for at, word in enumerate(words) if not _CELL.fullmatch(word)), len(words))
    return words[:end]


def topology_matrix(machine: Machine) -> TopologyMatrix:
    """Run `nvidia-smi topo -m` and parse its output."""
    reading = machine.read.run(*COMMAND.split())
    if not reading.ok:
        return TopologyMatrix({}, {}, reading.why)
    if reading.code:
        lines = (reading.text.strip() or reading.said.strip()).splitlines()
        why = f"nvidia-smi failed: {lines[0][:120] if lines else f'exit status {reading.code}'}"
        return TopologyMatrix({}, {}, why)
    return parse(reading.text)


def addresses(machine: Machine, matrix: TopologyMatrix) -> dict[str, str]:
    """Return the PCI address of each name in the matrix whose address is known."""
    gpus = {f"GPU{gpu.index}": gpu.address for gpu in machine.know(gpu_facts.gpus)}
    nics = {nic.name: nic.address for nic in machine.know(rdma.devices).devices}
    names = sorted({name for pair in matrix.cells for name in pair})
    found = {name: gpus.get(name) or nics.get(matrix.nics.get(name, name)) for name in names}
    return {name: address for name, address in found.items() if address}


# Cells of `nvidia-smi topo -p2p`, according to its legend and nvmlGpuP2PStatus_t.
_PEER = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U")


def parse_peers(text: str) -> dict[tuple[str, str], str]:
    """Parse an output of `nvidia-smi topo -p2p`: `("GPU0", "GPU1"): "OK"`, without the diagonal."""
    cells: dict[tuple[str, str], str] = {}
    header: list[str] = []
    for line in _ESCAPE.sub("", text).splitlines():
        words = line.split()
        if not header:
            header = _header(words)
        elif words and words[0] in header and all(map(_PEER.fullmatch, words[1:])):
            pairs = zip(header, words[1:], strict=False)
            cells |= {(words[0], name): cell for name, cell in pairs if name != words[0]}
    return cells


def peer_access(machine: Machine) -> dict[tuple[str, str], str]:
    """Run `nvidia-smi topo -p2p r` and parse its output; {} if it prints no matrix.

    Snapshots from other sources may contain the output of `rw` (read and write) instead.
    """
    for command in (PEERS, f"{PEERS}w"):
        reading = machine.read.run(*command.split())
        if reading.ok and not reading.code and (cells := parse_peers(reading.text)):
            return cells
    return {}
