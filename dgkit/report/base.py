"""What latency and bandwidth reports share: who made the figure, the floor, and how it is shown."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .. import html_cards
from ..html_cards import provider_label
from ..types import DOCA
from ..units import size_text
from .system_info import Machine

__all__ = ["FLOOR_MOVED", "Report", "ends", "own_fields"]

FLOOR_MOVED = "floor moved: figures not comparable"
_FLOOR_RATIO = 1.5  # the floor of a machine has two states, over four times apart; noise is less


def ends(name: str, floors: Sequence[float]) -> dict[str, float | str]:
    """The first and the last floor, by names for a table; empty where it was not taken."""
    first, last = floors[:1], floors[1:][-1:]
    pairs = (("before", first), ("after", last))
    return {name.format(when): some[0] if some else "" for when, some in pairs}


def _plain(value: Any) -> Any:
    """With lists in place of tuples, as JSON gives them back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def own_fields(cls: type[Report], data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `cls` in what its to_dict() made. ValueError if another class made it."""
    if data.get("kind") != cls.__name__:
        raise ValueError(f"this is a {data.get('kind')!r}, not a {cls.__name__}")
    own = {field.name: data[field.name] for field in fields(cls)}
    return own | {"machine": Machine(**data["machine"])}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(ABC):
    """What the reports share. `size` and `op` are of one operation; `where` says between whom."""

    size: int
    op: str
    provider: str
    path: str
    spinning: bool
    machine: Machine
    where: str = ""

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
        """What the floor is: the least that this machine needs for the same bytes, without dgkit.

        Of a GPU's copy engine it is a bare loop over CUDA's driver that does the same copy, of
        DOCA one that submits the same task and looks for its completion.
        """
        if self.provider in DOCA:
            return "DOCA's own calls, bare C loop"
        return "the driver's own copy, bare C loop" if self.by_gpu else self._floor()

    def _floor(self) -> str:
        """The same, of the providers whose floor is the CPU's."""
        return "memcpy"

    @property
    def label(self) -> str:
        """`software DPU` for simulated figures, `hardware` for others."""
        return provider_label(self._mover)

    @property
    def by_gpu(self) -> bool:
        """Whether a GPU's copy engine copied: not so between memories of the host."""
        return self.provider == "cuda" and bool(self.machine.engine)

    @property
    def _mover(self) -> str:
        """The provider that does what was done: where `cuda` has the CPU copy, that is `soft`."""
        return self.machine.mover(self.provider)

    @property
    def floor_moved(self) -> bool:
        """Whether the floor before and the floor after are more than 1.5 times apart."""
        floors = self._floors()
        return bool(floors) and max(floors) > _FLOOR_RATIO * min(floors)

    @property
    def no_floor(self) -> str:
        """Why there is no floor beside the figure; "" where there is one."""
        if self._floors():
            return ""
        if self.provider in DOCA:
            return "not measured: it takes several DMA tasks"
        return "one CPU" if self.machine.cpus == 1 else "not measured"

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, and `kind`, `label`, `floor_kind`, `floor_moved`, `no_floor`.

        from_dict() takes it.
        """
        derived: dict[str, Any] = {"label": self.label, "floor_kind": self.floor_kind}
        derived |= {"floor_moved": self.floor_moved, "no_floor": self.no_floor}
        plain: dict[str, Any] = _plain(asdict(self))
        return {"kind": type(self).__name__} | derived | plain

    def to_json(self) -> str:
        """to_dict() as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def to_csv(self, *, header: bool = True) -> str:
        """One row of plain figures, in ns and bytes, under a row of names if `header`."""
        row = {"op": self.op, "size": self.size, "provider": self.provider, "label": self.label}
        row |= {"path": self.path, "spinning": self.spinning, **self._flat()}
        row |= {"floor_kind": self.floor_kind, "floor_moved": self.floor_moved}
        row |= {"no_floor": self.no_floor}
        row |= {**asdict(self.machine), "where": self.where}
        out = io.StringIO()
        writer = csv.DictWriter(out, list(row), lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerow(row)
        return out.getvalue()

    def _title(self) -> str:
        return f"{self.op} {size_text(self.size)}, {self._how()}"

    def _how(self) -> str:
        if self.path != "worker":
            return f"{self.path} path"
        if self.provider == "cuda":  # which has no worker thread
            return "copy engine" if self.by_gpu else "copied by the CPU"
        if self.provider in DOCA:
            return "DMA tasks"
        return f"worker path ({'spinning' if self.spinning else 'sleeping'})"

    def _rows(self) -> list[tuple[str, str]]:
        made = [("provider", f"{self.provider} ({self.label})")]
        made += [("between", self.where)] if self.where else []
        return [*self._figures(), *made, ("machine", str(self.machine))]

    def __repr__(self) -> str:
        name, moved = type(self).__name__, f", {FLOOR_MOVED}" if self.floor_moved else ""
        return f"<dgkit.{name} {self._title()}: {self._short()}, {self.label}{moved}>"

    def __str__(self) -> str:
        name = type(self).__name__.removesuffix("Report")
        lines = [f"{name}: {self._title()} [{self.label}]"]
        lines += [f"  {key:<11}{value}" for key, value in self._rows()]
        return "\n".join([*lines, f"  ! {FLOOR_MOVED}"] if self.floor_moved else lines)

    def _card(self, body: str = "") -> str:
        name = type(self).__name__.removesuffix("Report")
        tag = html_cards.provider_badge(self._mover)
        note = FLOOR_MOVED if self.floor_moved else ""
        return html_cards.card(
            f"{name}: {self._title()}", self._rows(), badge=tag, body=body, note=note
        )
