# SPDX-License-Identifier: Apache-2.0
"""Measurement of a LatencyPlot: its setting, the memory used, and the monitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import BoundsError, LimitReached
from ...memory import why_no_gpu
from ...memory.allocate import parse_on
from ...report import GPU_INITIATED, posted_label
from ...types import provider_label
from ...units import size_text
from ..base import page_input
from ..base.as_python import region_lines, script, session_lines
from ..base.session_model import SessionModel

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from ...session.kernel_latency import KernelMonitor
    from ...session.monitor import Monitor
    from ..base.page_input import Json, JsonValue
    from .run import Run

_EVERY_S = 0.05  # interval between blocks
_OWN_BYTES = 1 << 16  # least size of the plot's own region


def _choice_of(value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise ValueError(f"{value!r} is not one of: {', '.join(known)}")
    return str(value)


def _region_of(value: SessionRegion | int | str | None) -> int:
    """Return the id of a region, given as a region, a number or text; 0 for None."""
    value = 0 if value is None else getattr(value, "id", value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not a region: use one of session.regions, or its id")
    return int(value)


Changes: TypeAlias = "Mapping[str, JsonValue | SessionRegion]"  # of a setting, by name
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "region": _region_of,
    "size": page_input.to_size,
    "op": lambda value: _choice_of(value, ("read", "write")),
    "path": lambda value: _choice_of(value, ("auto", "inline", "worker", GPU_INITIATED)),
    "count": lambda value: page_input.bounded_int("samples per block", value, 1, 4096),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a measurement.

    Attributes:
        region: The id of a region; 0 for the plot's own memory.
        size: Bytes per operation.
        op: "write" or "read".
        path: "auto", "inline", "worker" or "GPU-initiated": started by kernels of the host.
        count: Samples per block.
    """

    region: int = 0
    size: int = 64
    op: str = "write"
    path: str = "auto"
    count: int = 50

    def updated(self, changes: Changes) -> Setting:
        """Return a copy with these changes, given as values or as typed text.

        Raises:
            TypeError: A setting is unknown, or a value has the wrong type.
            ValueError: A value is invalid.
        """
        parsed: Json = {}
        for name, value in changes.items():
            if name not in _PARSERS:
                known = ", ".join(_PARSERS)
                raise TypeError(f"there is no setting {name!r}; settings: {known}")
            with page_input.for_field(name):
                parsed[name] = _PARSERS[name](value)
        return replace(self, **parsed)

    def state(self) -> Json:
        """Return the values as the controls of a view show them."""
        text = size_text(self.size)
        return asdict(self) | {"size": str(self.size) if "." in text else text}


class Measurement:
    """Opens the monitors of a plot for one session.

    It allocates the plot's own region at first use; close() frees it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._own: SessionRegion | None = None
        self._outgrown: list[SessionRegion] = []

    def check(self, setting: Setting) -> None:
        """Check that a setting can be measured, without measuring.

        Raises:
            ValueError: The region does not exist, or the size exceeds it.
        """
        if not setting.region or self.session.closed:
            return
        with page_input.for_field("region"):
            region = SessionModel.of(self.session).region(setting.region)
        if setting.size > region.size:
            with page_input.for_field("size"):
                raise BoundsError(
                    f"size is {setting.size:,}; it must be 1 to {region.size:,}, the size of "
                    f"region {region.name!r}"
                )

    def open(self, setting: Setting) -> Monitor | KernelMonitor:
        """Open a monitor, which starts to measure.

        Raises:
            ValueError: The region does not exist, or a value is invalid.
            DgkitError: As raised by Session.monitor: BoundsError, AccessDenied, PeerLost, ...
        """
        region = self._region(setting)
        if setting.path == GPU_INITIATED:
            return self._open_kernel(setting, region)
        return self.session.monitor(
            region, size=setting.size, op=setting.op, path=setting.path, count=setting.count,
            every_s=_EVERY_S, destructive=region is self._own,
        )  # fmt: skip

    def python(self, setting: Setting) -> str:
        """Return lines of Python that measure: for five seconds, or 10,000 transfers of kernels.

        Raises:
            ValueError: The region does not exist.
        """
        options = f'size={setting.size}, op="{setting.op}", path="{setting.path}", '
        options += f"count={setting.count}, every_s={_EVERY_S}"
        if setting.region:
            lines = region_lines(self._region(setting))
        else:
            lines = session_lines(self.session)
            lines.append(f"region = session.empty({max(setting.size, _OWN_BYTES)})")
            options += ", destructive=True"
        if setting.path == GPU_INITIATED:
            return script(
                [
                    "from dgkit.session import kernel_latency",
                    "",
                    *lines,
                    f'kernel_latency.latency(session, region, {setting.size}, op="{setting.op}")',
                ]
            )
        return script([
            *lines,
            f"with session.monitor(region, {options}) as monitor:",
            "    time.sleep(5)  # the DPU measures meanwhile",
            "    blocks = monitor.read()",
            "samples = np.sort(np.concatenate([block.latencies_ns for block in blocks]))",
            "for share in (50, 99, 100):  # percentiles by nearest rank",
            "    print(share, samples[-(-len(samples) * share // 100) - 1] / 1000, 'µs')",
        ])  # fmt: skip

    def _open_kernel(self, setting: Setting, region: SessionRegion) -> KernelMonitor:
        from ...session.kernel_latency import KernelMonitor

        monitor = KernelMonitor(
            self.session, region, size=setting.size, op=setting.op, count=setting.count,
            every_s=_EVERY_S,
        )  # fmt: skip
        for scratch in monitor.scratch:
            SessionModel.of(self.session).hide(scratch)
        return monitor

    def switch(
        self, old: Setting, new: Setting, end: Callable[[], None]
    ) -> tuple[Monitor | KernelMonitor, Exception | None]:
        """Open a monitor of `new` while one of `old` runs.

        At the limit of monitors, end the old one first; if the new one then cannot be opened,
        reopen the old one.

        Args:
            old: The setting that is measured.
            new: The setting to measure.
            end: Ends the monitor of `old`.

        Returns:
            The monitor, and the error if the monitor is one of `old`.

        Raises:
            DgkitError: As raised by open().
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
        """Return the provider's label for the run, or for the setting that would be measured.

        A GPU is named only if it copies: between host memories the provider `cuda` uses the CPU.
        """
        provider = self.session.dpu.provider
        if run is not None and run.config.provider == provider:
            return run.config.label
        places = [region.place for region in self.session.regions if region.id == setting.region]
        by_cpu = provider == "cuda" and not any(parse_on(place)[0] == "gpu" for place in places)
        emulated = setting.path == GPU_INITIATED and bool(why_no_gpu())
        return posted_label(provider_label("soft" if by_cpu else provider), emulated=emulated)

    def _region(self, setting: Setting) -> SessionRegion:
        if setting.region:
            with page_input.for_field("region"):
                return SessionModel.of(self.session).region(setting.region)
        own = self._own
        if own is None or own.closed or own.size < setting.size:
            size = max(setting.size, _OWN_BYTES)
            with page_input.for_field("size"):
                self._own = self.session.empty(size, name="latency plot")
            SessionModel.of(self.session).hide(self._own)
            self._outgrown += [own] if own is not None else []
            own = self._own
        return own

    def free_outgrown(self) -> None:
        """Free regions that were replaced by larger ones; no monitor uses them any more."""
        while self._outgrown:
            self._free(self._outgrown.pop())

    def close(self) -> None:
        """Free the plot's own region; no monitor uses it any more."""
        if self._own is not None:
            self._outgrown.append(self._own)
        self._own = None
        self.free_outgrown()

    def _free(self, region: SessionRegion) -> None:
        if not self.session.closed:
            region.close()
