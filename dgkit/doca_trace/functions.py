# SPDX-License-Identifier: Apache-2.0
"""Kinds of the parameters of DOCA's functions, as native/softdoca/record/generate.py found them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..files import installed_softdoca

OUTPUTS = "HL1248DABNF"
_NETWORK = ("doca_eth_", "doca_flow")  # headers
_OF_FRAMES = "doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata"
_WIDTHS = {"uint8_t": 8, "uint16_t": 16, "uint64_t": 64, "size_t": 64}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, or a result: its kind, a character of generate.py, and its C type."""

    kind: str
    type: str
    name: str = ""

    @property
    def handle(self) -> str:
        """Name of the type of a handle in a trace."""
        match = re.search(r"struct (?:doca_)?(\w+)", self.type)
        return match[1] if match and self.kind not in "lL" else "list"

    @property
    def bits(self) -> int:
        """Width of a number."""
        return _WIDTHS.get(self.type.replace("const", "").strip(), 32)


@dataclass(frozen=True)
class Function:
    """A function of DOCA, or a type of callback."""

    name: str
    header: str
    result: Parameter
    parameters: tuple[Parameter, ...]
    makes: bool

    @cached_property
    def outputs(self) -> list[int]:
        """Indices of the parameters through which something is returned."""
        return [i for i, p in enumerate(self.parameters) if p.kind in OUTPUTS]

    @property
    def why_not_replayed(self) -> str:
        """Reason why a replay does not call the function; empty if it does."""
        return "numbers of received frames are in no trace" if self.name == _OF_FRAMES else ""

    @property
    def needs_network(self) -> bool:
        """True for functions of Ethernet queues and of flow rules."""
        return self.header.startswith(_NETWORK)


@dataclass(frozen=True, slots=True)
class Functions:
    """All functions and types of callbacks."""

    functions: dict[str, Function]
    callbacks: dict[str, Function]


def load() -> Functions:
    """Load the installed description.

    Raises:
        FileNotFoundError: This installation has no recorder.
    """
    tables = json.loads((recorder_folder() / "functions.json").read_text("utf-8"))
    return Functions(*(_functions_by_name(tables[name]) for name in ("functions", "callbacks")))


def recorder_folder() -> Path:
    """Return the folder of the recorder.

    Raises:
        FileNotFoundError: This installation has none.
    """
    folder = installed_softdoca() / "lib/record"
    if not (folder / "libdoca_recorder.so").exists():
        raise FileNotFoundError(
            f"{folder} has no recorder: `pip install .` builds it on Linux, x86-64 or aarch64"
        )
    return folder


def _functions_by_name(entries: dict[str, Any]) -> dict[str, Function]:
    return {
        name: Function(
            name,
            entry["header"],
            Parameter(*entry["result"]),
            tuple(Parameter(*parameter) for parameter in entry["parameters"]),
            entry["makes"],
        )
        for name, entry in entries.items()
    }
