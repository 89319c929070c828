# SPDX-License-Identifier: Apache-2.0
"""Result of a run of the doctor: its findings, its data paths, and the verdict on the goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..units import listed, one_line
from .collect.reader import Trace
from .data_path_specs import ADVISORY
from .data_paths import DataPath
from .experiments.perform import Result
from .finding import Finding, Verdict, worst
from .finding_order import BY_OTHERS, OWN
from .goals import Goal
from .machine import Case

_EXIT_CODES = {Verdict.FAIL: 1, Verdict.WARN: 5, Verdict.UNKNOWN: 6}


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run: findings, data paths, verdict and summary.

    Attributes:
        case: The machines and the goal for which they were judged.
        findings: The findings, in the order of finding_order.
        data_paths: The data paths, best first; none if only some of the checks were requested.
        chosen: Why this goal was chosen, "" if it was given.
        took_s: Duration of the run, in seconds.
        traces: Readings and facts that each check used, by name and side.
        tried: Results of experiments, which took the place of what the readings suggested.
    """

    case: Case
    findings: tuple[Finding, ...]
    data_paths: tuple[DataPath, ...]
    chosen: str
    took_s: float
    traces: Mapping[tuple[str, str], Trace] = {}
    tried: tuple[Result, ...] = ()

    @property
    def goal(self) -> Goal:
        """Goal that the machine was judged for."""
        return self.case.goal

    @property
    def best(self) -> DataPath | None:
        """The best data path that works; None if no path works."""
        return next((path for path in self.data_paths if path.works), None)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the goal: FAIL if no data path serves it; UNKNOWN if that is unknown.

        If a data path serves the goal, failures that only block other paths count as WARN.
        """
        serving = [path for path in self.data_paths if path.serves and path.verdict]
        if serving and all(path.verdict is Verdict.FAIL for path in serving):
            return Verdict.FAIL
        runs = any(path.works for path in serving)
        findings = [finding for finding in self.findings if self._counts(finding, runs=runs)]
        verdict = worst(findings)
        blocking = {check for path in self.data_paths for check in path.blocked_by}
        failed = {f.check for f in findings if f.verdict is Verdict.FAIL}
        if not serving or not failed <= blocking:
            return verdict
        if not runs:
            return Verdict.UNKNOWN
        return min(verdict, Verdict.WARN)

    def _counts(self, finding: Finding, *, runs: bool) -> bool:
        """Return whether a finding counts for the verdict.

        Checks that only dgkit needs count only for goals that dgkit serves: RDMA, GPUNetIO, access
        between GPUs and a GPU alone are used by other programs. If a data path works, a check that
        never fails does not need an answer.
        """
        if runs and finding.verdict is Verdict.UNKNOWN and finding.check in ADVISORY:
            return False
        by_others = self.goal in BY_OTHERS and bool(self.data_paths)
        return not (by_others and finding.check in OWN - {"dgkit-core", "cuda-toolkit"})

    @property
    def exit_code(self) -> int:
        """Exit code of `dgkit doctor`: 0 ok, 1 failure, 5 warnings, 6 unknown."""
        return _EXIT_CODES.get(self.verdict, 0)

    @property
    def counts(self) -> str:
        """Number of findings by verdict, worst first: `1 fail, 3 ok`."""
        verdicts = [finding.verdict for finding in self.findings]
        counts = [
            f"{verdicts.count(v)} {v}" for v in sorted(Verdict, reverse=True) if v in verdicts
        ]
        return ", ".join(counts) or "nothing was found"

    def of(self, check: str) -> tuple[Finding, ...]:
        """Return the findings of one check."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def summary(self) -> str:
        """Return one sentence on the best working data path and on what blocks better paths."""
        best = self.best
        if best is None:
            return f"{self.counts}." if not self.data_paths else "No data path works."
        text = f"{best.title} {best.word}"
        better = [path for path in self.data_paths[: self.data_paths.index(best)] if path.verdict]
        if better and all(path.verdict is Verdict.FAIL for path in better) and not best.serves:
            text = f"Only {best.title} {best.word}"
        return f"{text}{_why_not(better)}. {best.proviso}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        sides = {"host": self.case.host, "dpu": self.case.dpu}
        return {
            "goal": str(self.goal),
            "chosen": self.chosen,
            "verdict": str(self.verdict),
            "summary": self.summary(),
            "best": self.best.name if self.best is not None else None,
            "machines": {name: side.name for name, side in sides.items() if side is not None},
            "data_paths": [
                {**msgspec.structs.asdict(p), "verdict": str(p.verdict)} for p in self.data_paths
            ],
            "findings": [finding.as_dict() for finding in self.findings],
            "tried": [result.as_dict() for result in self.tried],
            "took_s": round(self.took_s, 3),
        }

    def __repr__(self) -> str:
        return f"<Diagnosis of {one_line(self.case.machine.name)}: {self.goal}, {self.verdict}>"

    def __str__(self) -> str:
        return _formatters["text"](self)

    def _repr_html_(self) -> str:
        return _formatters["html"](self)


_formatters: dict[str, Callable[[Diagnosis], str]] = {"text": repr, "html": repr}


def register_formatters(
    *, text: Callable[[Diagnosis], str], html: Callable[[Diagnosis], str]
) -> None:
    """Set the functions that format a Diagnosis for `str()` and for a notebook.

    They are registered by `dgkit.doctor` on import, because the formatters import this module.
    """
    _formatters.update(text=text, html=html)


def _why_not(better: Sequence[DataPath]) -> str:
    """Return why the best of the better paths does not work, as the end of a sentence."""
    if not better:
        return ""
    first, why = better[0], better[0].why.rstrip(".")
    if first.verdict is Verdict.UNKNOWN:
        return f"; whether {first.title} does cannot be determined{f' ({why})' if why else ''}"
    by = f" by {listed(first.causes)}" if first.causes else f": {why}"
    return f"; {first.title} is blocked{by}"
