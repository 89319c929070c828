"""What `nvidia-smi topo -m` prints: how near GPUs and NICs are, as the driver sees it.

The header underlines its words by ANSI escapes; columns are parted by tabs (by blanks where people
copied it). NICs came with driver 384 as mlx5_0, and stand as NIC0 with a legend since 510; the
columns behind the matrix (CPU Affinity, NUMA Affinity, GPU NUMA ID) came one after another.
"""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from . import gpus as gpu_facts
from . import rdma
from .topology import Near

__all__ = ["TopoM", "named", "parse", "topo_m"]

COMMAND = "nvidia-smi topo -m"
_ESCAPE = re.compile(r"\x1b?\[[0-9;]*m|\x1b")  # a copy may have lost the escape itself
_FIRST = re.compile(r"GPU\d{1,3}")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV\d{1,2}|N/A|\?+")
_MOST = 256  # columns that a matrix may have
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*:\s*(\S+)\s*")
# SOC was what now is NODE or SYS, PSB what now is PIX, in drivers before 384.
_NEAR = {**{str(near): near for near in Near}, "SOC": Near.SYS, "PSB": Near.PIX}


class TopoM(msgspec.Struct, frozen=True):
    """`cells`: each pair of names as it stands in the matrix: `("GPU0", "NIC0"): "NODE"`.

    Cells of a device with itself are left out. `nics`: the legend, `NIC0: mlx5_0`. `why`: why there
    is no matrix, "" if there is one.
    """

    cells: dict[tuple[str, str], str]
    nics: dict[str, str]
    why: str = ""

    def near(self, a: str, b: str) -> Near | None:
        """The class of two by their names; None for NVLink (NV#) and what is not told."""
        return _NEAR.get(self.cells.get((a, b), ""))


def parse(text: str) -> TopoM:
    """Of any text; rows that are cut short give the cells that are there."""
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
    return TopoM(cells, nics, "" if header else "there is no matrix in what nvidia-smi printed")


def _header(words: list[str]) -> list[str]:
    """The names of the columns, up to CPU Affinity; [] if the line is no header."""
    names = words[: words.index("CPU")] if "CPU" in words else words
    odd = len(set(names)) < len(names) or any(map(_CELL.fullmatch, names))
    odd |= not 0 < len(names) <= _MOST
    return [] if odd or _FIRST.fullmatch(names[0]) is None else names


def _row(words: list[str]) -> list[str]:
    """The cells of a row, up to the first word that is none (a list of CPUs)."""
    end = next((at for at, word in enumerate(words) if not _CELL.fullmatch(word)), len(words))
    return words[:end]


def topo_m(machine: Machine) -> TopoM:
    """What this machine's nvidia-smi prints."""
    reading = machine.read.run(*COMMAND.split())
    if not reading.ok:
        return TopoM({}, {}, reading.why)
    if reading.code:
        said = (reading.text.strip() or reading.said.strip()).splitlines()
        return TopoM({}, {}, f"nvidia-smi says: {said[0][:120] if said else 'nothing'}")
    return parse(reading.text)


def named(machine: Machine, found: TopoM) -> dict[str, str]:
    """The PCI address of each name in the matrix, as far as it can be told."""
    gpus = {f"GPU{one.index}": one.address for one in machine.know(gpu_facts.gpus)}
    nics = {one.name: one.address for one in machine.know(rdma.devices).devices}
    names = sorted({name for pair in found.cells for name in pair})
    known = {name: gpus.get(name) or nics.get(found.nics.get(name, name)) for name in names}
    return {name: address for name, address in known.items() if address}
