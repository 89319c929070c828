# SPDX-License-Identifier: Apache-2.0
"""The doctor's verdicts on all machines of a fleet, in groups, the smallest first."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import html_cards
from ..doctor import Diagnosis, Verdict
from ..doctor.goals import Goal
from ..doctor.machine import Machine
from ..doctor.record import record
from ..doctor.runner import diagnose, live_machine
from ..units import plural

_VERSION = re.compile(r"\d+\.\d+")
_SHOWN = 8  # maximum number of machine names in a group's line


def record_here(word: str) -> Any:
    """Record the machine of the worker that runs this task, with pseudonyms, in at most 60 s."""
    with live_machine(recorded=True) as machine:
        return record(machine, word=word)


def judge(machines: Sequence[Machine], goal: Goal | None) -> list[Diagnosis]:
    """Judge a host and its DPU together, or machines that are the same side separately."""
    try:
        return [diagnose(machines, goal=goal)]
    except ValueError:
        return [diagnose([machine], goal=goal) for machine in machines]


@dataclass(frozen=True, slots=True)
class Group:
    """Machines with the same verdict for the same reasons.

    Attributes:
        verdict: Verdict on the goal.
        reasons: Findings other than OK, and versions that differ from those of most machines.
        names: The machines.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        names = ", ".join(self.names[:_SHOWN])
        return f"{len(self.names)} {self.verdict}{why} ({names}{more})"


class FleetDiagnosis:
    """Diagnoses of a fleet's machines.

    Attributes:
        diagnoses: Diagnoses, keyed by the names of the machines that were judged together.
        failures: The reason for each machine that could not be read.
    """

    def __init__(self, diagnoses: Mapping[str, Diagnosis], failures: Mapping[str, str]) -> None:
        self.diagnoses = dict(diagnoses)
        self.failures = dict(failures)
        self._usual = _usual_versions(self.diagnoses.values())

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups: the smallest (outliers) first; of equal size, the worst verdict first."""
        members: defaultdict[tuple[Verdict, tuple[str, ...]], list[str]] = defaultdict(list)
        for name, found in self.diagnoses.items():
            members[found.verdict, tuple(dict.fromkeys(self._reasons(found)))].append(name)
        groups = [Group(verdict, why, tuple(names)) for (verdict, why), names in members.items()]
        return tuple(sorted(groups, key=lambda each: (len(each.names), -each.verdict)))

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; UNKNOWN if no machine could be read."""
        verdicts = [found.verdict for found in self.diagnoses.values()]
        return max(verdicts, default=Verdict.UNKNOWN)

    @property
    def exit_code(self) -> int:
        """Exit code of `dgkit fleet doctor`: the worst diagnosis's, or 1 if a machine failed."""
        codes = [d.exit_code for d in self.diagnoses.values() if d.verdict is self.verdict]
        return 1 if self.failures or not codes else codes[0]

    def _reasons(self, found: Diagnosis) -> Iterator[str]:
        for finding in found.findings:
            if finding.verdict in (Verdict.FAIL, Verdict.WARN) and not finding.follows:
                yield f"{finding.title} ({finding.verdict})"
        for key, text in _versions(found):
            usual = self._usual.get(key, text)
            if text != usual:
                yield f"{key[1]} is {text}, most have {usual}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        groups = [
            {"verdict": str(g.verdict), "reasons": list(g.reasons), "machines": list(g.names)}
            for g in self.groups
        ]
        found = {name: each.as_dict() for name, each in self.diagnoses.items()}
        return {
            "verdict": str(self.verdict), "groups": groups, "failures": self.failures,
            "diagnoses": found,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [str(group) for group in self.groups]
        lines += [f"not read: {name}: {why}" for name, why in self.failures.items()]
        return "\n".join(lines) or "no machines"

    def __repr__(self) -> str:
        counts = Counter(str(found.verdict) for found in self.diagnoses.values())
        text = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        return f"<FleetDiagnosis of {plural(len(self.diagnoses), 'machine')}: {text or 'none'}>"

    def _repr_html_(self) -> str:
        rows = [(len(g.names), g.verdict, "; ".join(g.reasons), ", ".join(g.names[:_SHOWN]))
                for g in self.groups]  # fmt: skip
        body = html_cards.table("groups", ("machines", "verdict", "reasons", "names"), rows)
        return html_cards.card("fleet doctor", list(self.failures.items()), body=body)


def _versions(found: Diagnosis) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the OK findings that name a version, keyed by check, title and side."""
    for finding in found.findings:
        if finding.verdict is Verdict.OK and _VERSION.search(finding.found):
            yield (finding.check, finding.title, finding.side), finding.found


def _usual_versions(diagnoses: Iterator[Diagnosis] | Any) -> dict[tuple[str, str, str], str]:
    """Return, for each finding that names a version, the text that most machines share."""
    counts: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for found in diagnoses:
        for key, text in dict(_versions(found)).items():
            counts[key][text] += 1
    usual = {key: texts.most_common(1)[0] for key, texts in counts.items()}
    return {key: text for key, (text, n) in usual.items() if 2 * n > counts[key].total()}
