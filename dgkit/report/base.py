# SPDX-License-Identifier: Apache-2.0
"""Base class of latency and bandwidth reports: common fields, the floor, and output formats."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

from .. import html_cards
from ..types import DOCA, machine_is_emulated, provider_label
from ..units import size_text
from .system_info import Machine

FLOOR_MOVED = "floor moved: figures not comparable"
_FLOOR_RATIO = 1.5  # a floor may switch between two states over 4x apart; noise stays below 1.5x


def ends(name: str, floors: Sequence[float]) -> dict[str, float | str]:
    """Return the first and the last floor by column name; "" where it was not measured."""
    first, last = floors[:1], floors[1:][-1:]
    pairs = (("before", first), ("after", last))
    return {name.format(when): value[0] if value else "" for when, value in pairs}


def path_text(path: str, provider: str, machine: Machine, *, spinning: bool) -> str:
    """Return the path of transfers for a title, and what copies the bytes."""
    if path != "worker":
        return f"{path} path"
    if provider == "cuda":  # the provider has no worker thread
        return "copy engine" if machine.engine else "copied by the CPU"
    if provider in DOCA:
        return "DMA tasks"
    if provider == "verbs":
        return "RDMA"
    return f"worker path ({'spinning' if spinning else 'sleeping'})"


def _plain(value: Any) -> Any:
    """Replace tuples with lists, as a round trip through JSON does."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def own_fields(cls: type[Report], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `cls` from its to_dict(); raise ValueError for another class."""
    if data.get("kind") != cls.__name__:
        raise ValueError(f"kind is {data.get('kind')!r}; it must be {cls.__name__!r}")
    # Reports stored before sleeps were counted do not have this field.
    data = {"sleeps": 0, **data}
    own = {field.name: data[field.name] for field in fields(cls)}
    return own | {"machine": Machine(**data["machine"])}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(ABC):
    """Base of all reports. `size` and `op` are those of one operation; `where` names the two sides.

    `sleeps` is how often the engine's thread slept during the measurement: operations that had to
    wake it took longer.
    """

    size: int
    op: str
    provider: str
    path: str
    spinning: bool
    machine: Machine
    where: str = ""
    sleeps: int = 0

    @abstractmethod
    def _floors(self) -> Sequence[float]: ...

    @abstractmethod
    def _figures(self) -> list[tuple[str, str]]: ...

    @abstractmethod
    def _short(self) -> str: ...

    @abstractmethod
    def _flat(self) -> dict[str, Any]: ...

    @property
    def floor_kind(self) -> str:
        """Kind of the floor: the least time that this machine needs for the same bytes.

        For a GPU's copy engine it is a C loop over the CUDA driver that does the same copy; for
        DOCA and for RDMA, a C loop that posts the same operation and polls for its completion.
        """
        if self.provider in DOCA:
            return "DOCA's own calls, bare C loop"
        if self.provider == "verbs":
            return "libibverbs' own calls, bare C loop"
        return "the driver's own copy, bare C loop" if self.by_gpu else self._floor()

    def _floor(self) -> str:
        """Return the kind of the floor for providers that copy by CPU."""
        return "memcpy"

    @property
    def label(self) -> str:
        """`hardware` if a DPU moved the bytes, else `software DPU` with what copied, and where."""
        label = provider_label(self._copied_by)
        elsewhere = self.machine.emulated and not machine_is_emulated()
        return label + ", emulated" * elsewhere

    @property
    def by_gpu(self) -> bool:
        """True if a GPU's copy engine copied; between host memories the CPU does."""
        return self.provider == "cuda" and bool(self.machine.engine)

    @property
    def _copied_by(self) -> str:
        """The provider that the label names: `soft` where `cuda` had the CPU copy."""
        return self.machine.mover(self.provider)

    @property
    def floor_moved(self) -> bool:
        """True if the floors before and after differ by more than a factor of 1.5.

        Also if a latency's floor is higher than the latency by that factor: only the floor was
        disturbed.
        """
        floors = self._floors()
        return bool(floors) and max(floors) > _FLOOR_RATIO * min(*floors, self._floor_limit())

    def _floor_limit(self) -> float:
        """Return the figure that its floor should not exceed, in the unit of the floor."""
        return inf

    @property
    def no_floor(self) -> str:
        """Reason why the floor is missing, or "" if it was measured."""
        if self._floors():
            return ""
        if self.provider in DOCA:
            return "not measured: this size takes several DMA tasks"
        return "one CPU" if self.machine.cpus == 1 else "not measured"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, for from_dict().

        Also `kind` (the class), `label`, `floor_kind`, `floor_moved` and `no_floor`.
        """
        derived: dict[str, Any] = {"label": self.label, "floor_kind": self.floor_kind}
        derived |= {"floor_moved": self.floor_moved, "no_floor": self.no_floor}
        plain: dict[str, Any] = _plain(asdict(self))
        return {"kind": type(self).__name__} | derived | plain

    def to_json(self) -> str:
        """Return to_dict() as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_csv(self, *, header: bool = True) -> str:
        """Return one row of figures in ns and bytes, after a row of column names if `header`."""
        row = {"op": self.op, "size": self.size, "provider": self.provider, "label": self.label}
        row |= {"path": self.path, "spinning": self.spinning, **self._flat()}
        row |= self._extra_columns()
        row |= {"floor_kind": self.floor_kind, "floor_moved": self.floor_moved}
        row |= {"no_floor": self.no_floor, "sleeps": self.sleeps}
        row |= {**asdict(self.machine), "where": self.where}
        out = io.StringIO()
        writer = csv.DictWriter(out, list(row), lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerow(row)
        return out.getvalue()

    def _extra_columns(self) -> dict[str, Any]:
        """Return the columns that a subclass adds to those of its figures."""
        return {}

    def _title(self) -> str:
        how = path_text(self.path, self.provider, self.machine, spinning=self.spinning)
        return f"{self.op} {size_text(self.size)}, {how}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("provider", f"{self.provider} ({self.label})")]
        rows += [("engine", self._sleeps_text())] if self.sleeps else []
        rows += [("between", self.where)] if self.where else []
        return [*self._figures(), *rows, ("machine", str(self.machine))]

    def _sleeps_text(self) -> str:
        return "slept once" if self.sleeps == 1 else f"slept {self.sleeps:,} times"

    def __repr__(self) -> str:
        name, moved = type(self).__name__, f", {FLOOR_MOVED}" if self.floor_moved else ""
        slept = f", engine {self._sleeps_text()}" if self.sleeps else ""
        return f"<dgkit.{name} {self._title()}: {self._short()}, {self.label}{slept}{moved}>"

    def __str__(self) -> str:
        name = type(self).__name__.removesuffix("Report")
        lines = [f"{name}: {self._title()} [{self.label}]"]
        lines += [f"  {key:<11}{value}" for key, value in self._rows()]
        return "\n".join([*lines, f"  ! {FLOOR_MOVED}"] if self.floor_moved else lines)

    def _card(self, body: str = "") -> str:
        name = type(self).__name__.removesuffix("Report")
        tag = html_cards.badge(self.label, warn=self.label != "hardware")
        note = FLOOR_MOVED if self.floor_moved else ""
        return html_cards.card(
            f"{name}: {self._title()}", self._rows(), badge=tag, body=body, note=note
        )
