# SPDX-License-Identifier: Apache-2.0
"""Comparison of two machines, or of one at two times: what differs, and what of it matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from .collect.snapshot import RecordedReader
from .data_paths import DataPath
from .diagnosis import Diagnosis
from .finding import Finding, Verdict
from .finding_order import serving
from .goals import Goal
from .machine import SIZE, Machine
from .runner import diagnose

_MATTERS = (Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN)


class Difference(msgspec.Struct, frozen=True):
    """A check whose findings differ.

    Attributes:
        check: Name of the check.
        title: Its title.
        matters: Whether a data path to the goal depends on it.
        first, second: Findings of A and of B, worst first.
    """

    check: str
    title: str
    matters: bool
    first: tuple[Finding, ...]
    second: tuple[Finding, ...]

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Worst verdicts of A and of B."""
        none = Verdict.NOT_APPLICABLE
        both = (self.first, self.second)
        first, second = (max((finding.verdict for finding in side), default=none) for side in both)
        return first, second

    @property
    def is_relevant(self) -> bool:
        """True if the verdicts differ and one of them is a warning or a failure."""
        first, second = self.verdicts
        return first is not second and (first in _MATTERS or second in _MATTERS)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "check": self.check,
            "matters": self.matters,
            "decides": self.is_relevant,
            "a": [finding.as_dict() for finding in self.first],
            "b": [finding.as_dict() for finding in self.second],
        }


class Comparison(msgspec.Struct, frozen=True):
    """Two diagnoses for the same goal.

    Attributes:
        first, second: Diagnoses of A and of B.
        differences: Checks that differ: those that decide the goal first.
        same: Number of checks whose findings are the same.
        readings: Keys whose readings differ.
    """

    first: Diagnosis
    second: Diagnosis
    differences: tuple[Difference, ...]
    same: int
    readings: tuple[str, ...]

    @property
    def paths(self) -> tuple[tuple[DataPath, DataPath], ...]:
        """Data paths whose verdict differs."""
        others = {path.name: path for path in self.second.data_paths}
        both = [(path, others.get(path.name, path)) for path in self.first.data_paths]
        return tuple((a, b) for a, b in both if a.word != b.word)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "goal": str(self.first.goal),
            "a": self.first.case.machine.name,
            "b": self.second.case.machine.name,
            "verdicts": [str(self.first.verdict), str(self.second.verdict)],
            "data_paths": [{"name": a.name, "a": a.word, "b": b.word} for a, b in self.paths],
            "differences": [difference.as_dict() for difference in self.differences],
            "same": self.same,
            "readings": list(self.readings),
        }


def compare(first: Machine, second: Machine, *, goal: Goal | None, size: int = SIZE) -> Comparison:
    """Judge two recorded machines for one goal, by default that of the first, and compare."""
    diagnosis = diagnose([first], goal=goal, size=size)
    return _compare_pair(diagnosis, diagnose([second], goal=diagnosis.goal, size=size))


def _compare_pair(first: Diagnosis, second: Diagnosis) -> Comparison:
    checks = [_difference(name, first, second) for name in _names(first, second)]
    different = [check for check in checks if _comparable(check.first) != _comparable(check.second)]
    different.sort(key=lambda d: (not d.is_relevant, not d.matters, -max(d.verdicts)))
    same = len(checks) - len(different)
    readings = tuple(_readings(first.case.machine, second.case.machine))
    return Comparison(first, second, tuple(different), same, readings)


def _names(*diagnoses: Diagnosis) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.check for diagnosis in diagnoses for f in diagnosis.findings))


def _findings(diagnosis: Diagnosis, check: str) -> tuple[Finding, ...]:
    return tuple(sorted(diagnosis.of(check), key=lambda finding: -finding.verdict))


def _difference(check: str, a: Diagnosis, b: Diagnosis) -> Difference:
    first, second = _findings(a, check), _findings(b, check)
    title = (*first, *second)[0].title
    return Difference(check, title, check in serving(a.goal), first, second)


def _comparable(findings: Iterable[Finding]) -> list[tuple[Verdict, str, str]]:
    """Return the parts of findings that are compared, without the devices' addresses."""
    return sorted((finding.verdict, finding.found, finding.needed) for finding in findings)


def _readings(first: Machine, second: Machine) -> Iterator[str]:
    """Yield the keys of readings that both recordings have and that differ."""
    one, other = first.read, second.read
    if isinstance(one, RecordedReader) and isinstance(other, RecordedReader):
        a, b = one.snapshot.readings, other.snapshot.readings
        yield from (key for key in sorted(a.keys() & b) if a[key] != b[key])
