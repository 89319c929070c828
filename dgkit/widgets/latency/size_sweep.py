# SPDX-License-Identifier: Apache-2.0
"""Latency over sizes: a sweep of a LatencyPlot, in rounds, with the floor beside each figure.

A round measures each size once. So a change on the machine during the sweep widens the band of all
sizes, instead of distorting the curve at one size.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import BoundsError
from ...report import GPU_INITIATED
from ...report.published import latencies
from ...types import provider_label
from ...units import plural, size_text
from ..base import page_input
from ..base.as_python import region_lines, script, session_lines
from ..base.error_text import explain
from ..base.session_model import SessionModel

if TYPE_CHECKING:
    from ...report import LatencyReport
    from ...session import Session, SessionRegion
    from ..base.page_input import Json
    from .measurement import Setting

_SIZES = (8, 64, 512, 4096, 32768, 262144, 1048576)
_MOST_SIZES, _MOST_ROUNDS, _MOST_SAMPLES = 32, 100, 100_000
_BYTES, _LEAST = 64 << 20, 20  # most bytes moved for a size and round, but at least so many samples
P99_LEAST = 100  # samples


class _Stopped(Exception):
    """stop() was called."""


Sizes: TypeAlias = "str | Iterable[int | str]"


def _sizes_of(value: Sizes) -> tuple[int, ...]:
    """Return sizes in ascending order, given as text with commas or as sizes."""
    parts = value
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(parts, bytes) or not isinstance(parts, Iterable):
        raise TypeError(
            f"the sizes are {value!r}; they must be text such as '8, 64, 4K', or a list"
        )
    sizes = sorted({page_input.to_size(part) for part in parts})
    if not 1 <= len(sizes) <= _MOST_SIZES:
        raise ValueError(f"there are {plural(len(sizes), 'size')}; a sweep has 1 to {_MOST_SIZES}")
    return tuple(sizes)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "sizes": _sizes_of,
    "rounds": lambda value: page_input.bounded_int("rounds", value, 1, _MOST_ROUNDS),
    "samples": lambda value: page_input.bounded_int("samples", value, 1, _MOST_SAMPLES),
}


@dataclass(frozen=True, slots=True)
class SweepSetting:
    """Setting of a sweep; memory, operation and path are those of the plot.

    Attributes:
        sizes: Bytes per operation, ascending.
        rounds: How often each size is measured.
        samples: For each size and round; fewer where they would move more than 64 MiB.
    """

    sizes: tuple[int, ...] = _SIZES
    rounds: int = 5
    samples: int = 500

    def updated(self, changes: Mapping[str, Sizes | int | None]) -> SweepSetting:
        """Return a copy with these changes, given as values or as typed text; None: no change.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: A value is invalid.
        """
        parsed: Json = {}
        for name, value in changes.items():
            if value is not None:
                with page_input.for_field(name):
                    parsed[name] = _PARSERS[name](value)
        return replace(self, **parsed)

    def count(self, size: int) -> int:
        """Return the number of samples for one size and round."""
        return min(self.samples, max(_LEAST, _BYTES // size))

    def state(self) -> Json:
        """Return the values as the controls of a view show them."""
        texts = [size_text(size) for size in self.sizes]
        # A text with decimals may be rounded: such a size is given as its number of bytes.
        exact = (
            str(size) if "." in text else text for size, text in zip(self.sizes, texts, strict=True)
        )
        return {"sizes": ", ".join(exact), "rounds": self.rounds, "samples": self.samples}


class SizeSweep:
    """One sweep: `run` measures in a background thread; other methods may be used meanwhile.

    Attributes:
        setting: Sizes, rounds and samples of the sweep.
        status: `running`, `done`, `stopped` or `failed`.
        error: The error that ended the sweep, or None.
        done: Measurements that have ended, of `total`.
    """

    def __init__(self, session: Session, measured: Setting, setting: SweepSetting) -> None:
        """Prepare a sweep.

        Args:
            measured: Region, operation and path.
            setting: Sizes, rounds and samples.

        Raises:
            ValueError: The region does not exist, or the path cannot be swept.
            BoundsError: A size exceeds the region.
        """
        self.setting, self.status, self.done = setting, "running", 0
        self.error: Exception | None = None
        self._session, self._measured = session, measured
        self._provider = session.dpu.provider
        self._region = self._check()
        self._lock = threading.Lock()
        self._reports: dict[int, list[LatencyReport]] = {size: [] for size in setting.sizes}
        self._stopping, self._ended = threading.Event(), threading.Event()

    def _check(self) -> SessionRegion | None:
        measured, largest = self._measured, self.setting.sizes[-1]
        if measured.path == GPU_INITIATED:
            with page_input.for_field("path"):
                raise ValueError(
                    f"a size sweep has no path {GPU_INITIATED!r}: choose auto, inline or worker"
                )
        if not measured.region:
            return None
        with page_input.for_field("region"):
            region = SessionModel.of(self._session).region(measured.region)
        if largest > region.size:
            with page_input.for_field("sizes"):
                raise BoundsError(
                    f"size {largest:,} is larger than region {region.name!r} of "
                    f"{plural(region.size, 'byte')}: leave it out, or choose other memory"
                )
        return region

    @property
    def total(self) -> int:
        """The number of measurements: sizes times rounds."""
        return len(self.setting.sizes) * self.setting.rounds

    def stop(self) -> None:
        """End the sweep early; what was measured stays. Idempotent."""
        self._stopping.set()

    def wait(self, timeout: float | None = None) -> SizeSweep:
        """Wait until the sweep has ended.

        Args:
            timeout: Seconds, or None to wait without limit.

        Returns:
            The sweep.

        Raises:
            TimeoutError: It has not ended in time.
            Exception: The error that ended it.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"not done within {timeout} s: {self!r}")
        if self.error is not None:
            raise self.error
        return self

    def run(self) -> None:
        """Measure all sizes in each round; an error is stored in `error`."""
        try:
            with self._memory() as region:
                for _ in range(self.setting.rounds):
                    for size in self.setting.sizes:
                        self._measure(region, size)
            self.status = "done"
        except _Stopped:
            self.status = "stopped"
        except BaseException as error:
            wrong = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self.error, self.status = wrong, "failed"
        finally:
            self._ended.set()

    @contextlib.contextmanager
    def _memory(self) -> Iterator[SessionRegion]:
        """Yield the region that is measured: the chosen one, or new memory."""
        if self._region is not None:
            yield self._region
            return
        session = self._session
        with page_input.for_field("sizes"):
            own = session.empty(self.setting.sizes[-1], name="size sweep")
        SessionModel.of(session).hide(own)
        try:
            yield own
        finally:
            if not session.closed:
                own.close()

    def _measure(self, region: SessionRegion, size: int) -> None:
        self._check_stop()
        report = self._session.latency(
            region, size=size, op=self._measured.op, path=self._measured.path,
            count=self.setting.count(size), progress=self._check_stop,
            destructive=self._region is None,
        )  # fmt: skip
        with self._lock:
            self._reports[size].append(report)
            self.done += 1

    def _check_stop(self, _done: int = 0, _total: int = 0) -> None:
        if self._stopping.is_set():
            raise _Stopped

    @property
    def reports(self) -> dict[int, list[LatencyReport]]:
        """The reports by size, one for each round."""
        with self._lock:
            return {size: list(reports) for size, reports in self._reports.items() if reports}

    def rows(self) -> list[Json]:
        """Return a row for each size that was measured.

        Returns:
            `size`, `path`, `rounds`, `samples` of all rounds; in ns, the median over the rounds of
            `p50`, `p99` (None for fewer than 100 samples a round) and `floor` (None if there is
            none); `low` and `high`, the least and greatest p50 of a round. `gb_per_s` is the rate
            of one operation at a time, in 10^9 bytes per second, at the median. `ratio` is the
            median of p50 divided by the floor. `floor` and `ratio` are of the rounds whose floor
            was steady and below the p50, as on an idle machine; `moved` counts the other rounds.
        """
        return [_row(size, reports) for size, reports in self.reports.items()]

    @property
    def description(self) -> str:
        """The operation, the path and the amount: `write, auto path, 5 rounds of 500 samples`."""
        rounds, samples = self.setting.rounds, self.setting.samples
        return (
            f"{self._measured.op}, {self._measured.path} path, {plural(rounds, 'round')} of "
            f"{plural(samples, 'sample')}"
        )

    def origin(self) -> dict[str, str]:
        """Return provider, label, place and machine as text, for a view and for CSV."""
        report = next((report for reports in self.reports.values() for report in reports), None)
        about = {"words": self.description, "provider": self._provider}
        if report is None:
            return about | {"label": provider_label(self._provider), "where": "", "machine": ""}
        about |= {"label": report.label, "where": report.where}
        return about | {"machine": str(report.machine)}

    def state(self) -> Json:
        """Return what a view draws."""
        kinds = {report.floor_kind for reports in self.reports.values() for report in reports}
        return {
            **self.origin(), "status": self.status, "done": self.done, "total": self.total,
            "rows": self.rows(), "floor": " or ".join(sorted(kinds)),
            "published": latencies(self._measured.op),
            "error": explain(self.error, self._session) if self.error else None,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<SizeSweep {self.description}: {self.done} of {self.total}, {self.status}>"


def _row(size: int, reports: list[LatencyReport]) -> Json:
    p50s = [report.p50_ns for report in reports]
    p99s = [report.p99_ns for report in reports if report.percentiles.n >= P99_LEAST]
    # A floor above its measurement has moved: such a report gives neither ratio nor floor.
    steady = [(each, ratio) for each in reports if (ratio := each.floor_ratio) and ratio >= 1]
    floors = [ns for report, _ in steady for ns in report.floor_ns]
    return {
        "size": size, "text": size_text(size), "rounds": len(reports),
        "path": " and ".join(sorted({report.path for report in reports})),
        "samples": sum(report.percentiles.n for report in reports),
        "p50": median(p50s), "low": min(p50s), "high": max(p50s),
        "gb_per_s": size / max(median(p50s), 1),
        "p99": median(p99s) if p99s else None, "floor": median(floors) if floors else None,
        "ratio": median(ratio for _, ratio in steady) if steady else None,
        "moved": sum(bool(report.floor_ns) for report in reports) - len(steady),
    }  # fmt: skip


def python_lines(session: Session, measured: Setting, setting: SweepSetting) -> str:
    """Return lines of Python that measure the same sweep.

    Raises:
        ValueError: The region does not exist.
    """
    more = ""
    if measured.region:
        with page_input.for_field("region"):
            lines = region_lines(SessionModel.of(session).region(measured.region))
    else:
        lines = session_lines(session)
        lines.append(f"region = session.empty({setting.sizes[-1]})")
        more = ", destructive=True"
    count = f"count=min({setting.samples}, max({_LEAST}, {_BYTES} // size))"
    return script([
        *lines,
        f"reports = {{size: [] for size in {list(setting.sizes)}}}",
        f"for _ in range({setting.rounds}):  # rounds",
        "    for size in reports:",
        "        reports[size].append(session.latency(",
        f'            region, size=size, op="{measured.op}", path="{measured.path}",',
        f"            {count}{more}))",
        "for size, rounds in reports.items():",
        "    p50 = statistics.median(report.p50_ns for report in rounds)",
        "    floors = [ns for report in rounds for ns in report.floor_ns]",
        "    floor = f'{statistics.median(floors) / 1000:,.2f} µs' if floors else 'not measured'",
        "    print(f'{size:,} bytes: {p50 / 1000:,.2f} µs; floor {floor}')",
    ])  # fmt: skip
