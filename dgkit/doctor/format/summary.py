# SPDX-License-Identifier: Apache-2.0
"""Sentences about a Diagnosis, shared by the terminal, the notebook's card and the panel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ..collect.snapshot import RecordedReader
from ..data_paths import DataPath
from ..diagnosis import Diagnosis
from ..experiments.overrule import TITLES
from ..experiments.perform import Result
from ..finding import Finding, Verdict
from ..goals import Goal
from ..machine import Machine

_MAX_SUBJECTS = 4  # subjects shown by name; for the rest, only their number


class FindingGroup(msgspec.Struct, frozen=True):
    """Findings that differ only in their subject, such as eight GPUs, shown as one."""

    finding: Finding
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """The first few subjects by name, and the number of the rest."""
        named = ", ".join(self.subjects[:_MAX_SUBJECTS])
        more = len(self.subjects) - _MAX_SUBJECTS
        return f"{named} and {more} more" if more > 0 else named


def group_findings(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Group the findings that differ only in their subject; keep the order."""
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        key = msgspec.structs.replace(finding, subject="")
        groups.setdefault(key, []).append(finding.subject)
    return [
        FindingGroup(finding, tuple(dict.fromkeys(filter(None, subjects))))
        for finding, subjects in groups.items()
    ]


class TriedKind(NamedTuple):
    """The experiments of one kind: name, title, worst verdict, and how they ended, for a line."""

    name: str
    title: str
    verdict: Verdict
    text: str


def tried_kinds(results: Iterable[Result]) -> list[TriedKind]:
    """Return a line for each kind of experiment, in the order in which they ran."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.experiment.name, []).append(result)
    return [_tried_kind(name, kind) for name, kind in by_name.items()]


def _tried_kind(name: str, results: list[Result]) -> TriedKind:
    ends = {verdict: [one for one in results if one.verdict is verdict] for verdict in Verdict}
    worked, failed, not_run = ends[Verdict.OK], ends[Verdict.FAIL], ends[Verdict.UNKNOWN]
    parts = [f"{len(worked)} of {len(results)} {'work' if len(worked) != 1 else 'works'}"]
    if failed:
        parts.append(f"failed: {_subjects(failed)}")
    if not_run:
        parts.append(f"not run: {_subjects(not_run)}: {not_run[0].said}")
    worst = Verdict.FAIL if failed else Verdict.UNKNOWN if not_run else Verdict.OK
    software = results[0].experiment.data_path == "softdoca"
    title = f"{TITLES[name]} (softdoca)" if software else TITLES[name]
    return TriedKind(name, title, worst, "; ".join(parts))


def _subjects(results: list[Result]) -> str:
    more = len(results) - _MAX_SUBJECTS
    named = ", ".join(one.experiment.subject for one in results[:_MAX_SUBJECTS])
    return f"{named} and {more} more" if more > 0 else named


def origins(diagnosis: Diagnosis) -> list[str]:
    """Return one line for each snapshot that was judged; a live machine has no line."""
    case = diagnosis.case
    machines = (machine for machine in (case.host, case.dpu, case.machine) if machine is not None)
    return [line for machine in dict.fromkeys(machines) if (line := _origin_of(machine))]


def _origin_of(machine: Machine) -> str:
    if not isinstance(machine.read, RecordedReader):
        return ""
    snapshot = machine.read.snapshot
    kind, _, model = snapshot.source.partition(":")
    if kind == "synthetic":
        return f"synthetic machine: {model.strip() or 'made by hand'} ({machine.name})"
    when = f" on {snapshot.taken}" if snapshot.taken else ""
    by = f" by dgkit {snapshot.dgkit}" if snapshot.dgkit else ""
    source = "" if snapshot.source in ("", "recorded") else f" ({snapshot.source})"
    return f"recorded{when}{by}: {machine.name}{source}"


def headline(diagnosis: Diagnosis) -> str:
    """Return the summary, and why the verdict is not FAIL although a check fails."""
    failed = any(finding.verdict is Verdict.FAIL for finding in diagnosis.findings)
    harmless = failed and diagnosis.data_paths and diagnosis.verdict is not Verdict.FAIL
    note = " What fails blocks other data paths only." if harmless else ""
    return diagnosis.summary() + note


def reason(path: DataPath) -> str:
    """Return the checks that block or warn about a path, else its `why`, as a sentence's end.

    A `why` that repeats the proviso is omitted.
    """
    checks = path.causes or path.warned_by
    if checks:
        return f" by {', '.join(checks)}" if path.causes else f": {', '.join(checks)}"
    return f": {path.why}" if path.why and path.why != path.proviso else ""


def proviso(diagnosis: Diagnosis, path: DataPath) -> str:
    """Return a path's proviso; "" for the best path, whose proviso is in the summary."""
    return "" if path is diagnosis.best else path.proviso


def other_goals(diagnosis: Diagnosis) -> str:
    """Return the names of the goals that were not chosen: `arm-dma, rdma`."""
    return ", ".join(str(goal) for goal in Goal if goal is not diagnosis.goal)


def needed_text(finding: Finding) -> str:
    """Return the requirement as a sentence's end; if the check does not apply, what to try."""
    if not finding.needed:
        return ""
    word = "try" if finding.verdict is Verdict.NOT_APPLICABLE else "needed"
    return f"; {word}: {finding.needed}"
