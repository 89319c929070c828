"""What a LatencyPlot measures: the setting, the memory that it uses, the monitor that it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import LimitReached
from ...html_cards import provider_label
from ...memory.placement import parse_on
from ...units import size_text
from ..base import forms
from ..base.session_model import Desk

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from ...session.monitor import Monitor
    from .run import Run

__all__ = ["Meter", "Setting"]

_EVERY_S = 0.05  # how often a block is taken
_OWN_BYTES = 1 << 16


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return str(value)


def _region_of(value: Any) -> int:
    """A region, its id as a number or as text, or nothing: the plot's own."""
    value = 0 if value is None else getattr(value, "id", value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is no region: take one of session.regions, or its id")
    return int(value)


_READ: dict[str, Callable[[Any], Any]] = {
    "region": _region_of,
    "size": forms.size_of,
    "op": lambda value: _one_of(value, ("read", "write")),
    "path": lambda value: _one_of(value, ("auto", "inline", "worker")),
    "count": lambda value: forms.within("samples per block", value, 1, 4096),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What to measure. `region` is an id; 0 is memory of the plot's own. `count` is of a block."""

    region: int = 0
    size: int = 64
    op: str = "write"
    path: str = "auto"
    count: int = 50

    def but(self, changes: Mapping[str, Any]) -> Setting:
        """With these changes, as a person writes them. ValueError, TypeError: one is nonsense."""
        known: dict[str, Any] = {}
        for name, value in changes.items():
            if name not in _READ:
                raise TypeError(f"there is no setting {name!r}; there are {', '.join(_READ)}")
            with forms.about(name):
                known[name] = _READ[name](value)
        return replace(self, **known)

    def state(self) -> dict[str, Any]:
        """As a view's controls show it."""
        text = size_text(self.size)
        return asdict(self) | {"size": str(self.size) if "." in text else text}


class Meter:
    """Of one session. It has memory of its own, made at the first use and freed by close()."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._own: SessionRegion | None = None
        self._outgrown: list[SessionRegion] = []

    def open(self, setting: Setting) -> Monitor:
        """Begins to measure. BoundsError, AccessDenied, ClosedError, PeerLost, ValueError..."""
        region = self._region(setting)
        return self.session.monitor(
            region, size=setting.size, op=setting.op, path=setting.path, count=setting.count,
            every_s=_EVERY_S,
        )  # fmt: skip

    def exchange(
        self, old: Setting, new: Setting, end: Callable[[], None]
    ) -> tuple[Monitor, Exception | None]:
        """A monitor of `new` in place of that of `old`, which end() ends: first, if as many are
        open as may be. If then none of `new` can be, it is one of `old`, and why. Errors as open().
        """
        try:
            return self.open(new), None
        except LimitReached:
            end()
        try:
            return self.open(new), None
        except Exception as error:
            return self.open(old), error

    def label(self, setting: Setting, run: Run | None) -> str:
        """Of the run, or of what would be measured: a GPU is named only where one copies, and
        between memories of the host the provider `cuda` has the CPU copy."""
        provider = self.session.dpu.provider
        if run is not None and run.what.provider == provider:
            return run.what.label
        chosen = [one for one in self.session.regions if one.id == setting.region]
        by_cpu = provider == "cuda" and not any(parse_on(one.place)[0] == "gpu" for one in chosen)
        return provider_label("soft" if by_cpu else provider)

    def _region(self, setting: Setting) -> SessionRegion:
        if setting.region:
            with forms.about("region"):
                return Desk.of(self.session).region(setting.region)
        own = self._own
        if own is None or own.closed or own.size < setting.size:
            size = max(setting.size, _OWN_BYTES)
            with forms.about("size"):
                self._own = self.session.empty(size, name="latency plot")
            Desk.of(self.session).hide(self._own)
            self._outgrown += [own] if own is not None else []
            own = self._own
        return own

    def tidy(self) -> None:
        """Frees memory that was too small; no monitor uses it any more."""
        while self._outgrown:
            self._free(self._outgrown.pop())

    def close(self) -> None:
        """Frees its memory. No monitor uses it any more."""
        if self._own is not None:
            self._outgrown.append(self._own)
        self._own = None
        self.tidy()

    def _free(self, region: SessionRegion) -> None:
        if not self.session.closed:
            region.close()
