# SPDX-License-Identifier: Apache-2.0
"""Verdicts on the data paths of data_path_specs.py, from the findings of the checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from .data_path_specs import (
    ANY_DEVICE_SUFFICES,
    CUDA,
    DATA_PATH_SPECS,
    REPLACED,
    DataPathSpec,
    DeviceKind,
)
from .facts import pairs, pci, pci_ids, virtual
from .finding import Finding, Verdict, worst
from .goals import Goal
from .machine import Case


class DataPath(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict on one path that bytes can take.

    Attributes:
        name: Name in JSON.
        title: Name for people.
        what: Description, one sentence.
        serves: Whether the path achieves the goal, rather than substituting for a path that does.
        verdict: OK: the path works. WARN: it works, but slower or with the warnings of `warned_by`.
            FAIL: it is blocked. UNKNOWN: unknown. NOT_APPLICABLE: it is not set up, and another
            path works without it.
        why: Reason for the verdict, one sentence. If a device is missing, `blocked_by` may be
            empty, and `why` names the device.
        proviso: Why the path "should work" rather than "works": the conditions that it depends on
            and that were not verified.
        blocked_by: Names of the checks that block the path, worst first.
        caused_by: The checks in `blocked_by` that do not follow from another of these, in the order
            of the findings.
        warned_by: Names of the checks that warn about the path, worst first.
        tried: Whether an experiment gave the verdict, rather than the findings.
    """

    name: str
    title: str
    what: str
    serves: bool
    verdict: Verdict
    why: str = ""
    proviso: str = ""
    blocked_by: tuple[str, ...] = ()
    caused_by: tuple[str, ...] = ()
    warned_by: tuple[str, ...] = ()
    tried: bool = False

    @property
    def works(self) -> bool:
        """True if bytes can take this path, even if slower."""
        return self.verdict in (Verdict.OK, Verdict.WARN)

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the checks whose remedies should be applied first."""
        return self.caused_by or self.blocked_by

    @property
    def word(self) -> str:
        """The verdict, for people."""
        if self.works:
            warnings = ", with warnings" if self.warned_by else ""
            slower = ", but slower" if self.verdict is Verdict.WARN and not self.warned_by else ""
            return f"{'should work' if self.proviso else 'works'}{slower}{warnings}"
        return _WORDS[self.verdict]


_WORDS = {
    Verdict.FAIL: "blocked",
    Verdict.UNKNOWN: "unknown",
    Verdict.NOT_APPLICABLE: "not set up",
}


def judge_data_paths(case: Case, findings: Sequence[Finding]) -> tuple[DataPath, ...]:
    """Return all data paths of the case's goal, best first."""
    present, verdicts = _devices_present(case), _CheckVerdicts(findings)
    return tuple(
        _judge_path(spec, case, present, verdicts)
        for spec in DATA_PATH_SPECS
        if case.goal in spec.goals
    )


class _CheckVerdicts:
    """Findings, grouped by check."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._findings: dict[str, list[Finding]] = {}
        self._not_applicable: dict[str, Finding] = {}
        for finding in findings:
            if finding.verdict is Verdict.NOT_APPLICABLE:
                self._not_applicable[finding.check] = finding
            else:
                self._findings.setdefault(finding.check, []).append(finding)

    def __contains__(self, check: str) -> bool:
        return check in self._findings

    def verdict(self, check: str) -> Verdict:
        """Return the worst verdict of a check; NOT_APPLICABLE if it has no other finding.

        If one of several devices suffices, a failure counts as a warning when another device
        passes.
        """
        findings = self._findings.get(check, [])
        verdict = worst(findings)
        if verdict is Verdict.FAIL and self._a_device_passes(check):
            return Verdict.WARN
        return verdict

    def _a_device_passes(self, check: str) -> bool:
        findings = self._findings.get(check, [])
        return check in ANY_DEVICE_SUFFICES and any(
            finding.verdict is Verdict.OK for finding in findings
        )

    def rules_out(self, check: str) -> bool:
        """Return whether a check, by a failure or warning, rules out its set of alternatives."""
        if self.verdict(check) is not Verdict.WARN:
            return self.verdict(check) is Verdict.FAIL
        if self._a_device_passes(check):
            return False
        findings = self._findings[check]
        warnings = [finding for finding in findings if finding.verdict is Verdict.WARN]
        return not all(warning.disagree for warning in warnings)

    def not_applicable(self, check: str) -> bool:
        """Return whether all findings of a check are NOT_APPLICABLE."""
        return check in self._not_applicable and check not in self._findings

    def with_verdict(self, checks: Iterable[str], verdict: Verdict) -> list[str]:
        """Return the checks that have this verdict, without duplicates."""
        return [check for check in dict.fromkeys(checks) if self.verdict(check) is verdict]

    def causes(self, checks: Sequence[str]) -> tuple[str, ...]:
        """Return the checks that do not follow from another of them, in the findings' order."""
        order = list(self._findings)
        following = {
            check
            for check in checks
            for finding in self._findings.get(check, ())
            if finding.follows in checks
        }
        roots = [check for check in checks if check not in following] or checks
        return tuple(sorted(roots, key=lambda check: order.index(check) if check in order else 0))

    def why(self, checks: Sequence[str]) -> str:
        """Return the reason given in the worst finding of the first of these checks."""
        findings = self._findings.get(checks[0], []) if checks else []
        if not findings and checks and checks[0] in self._not_applicable:
            known = self._not_applicable[checks[0]]
            return f"{known.title or known.check}: {known.found}."
        return max(findings, key=lambda finding: finding.verdict).why if findings else ""


def _devices_present(case: Case) -> dict[DeviceKind, bool | None]:
    """Return whether each kind of device is present; None if unknown."""
    tree = case.host.know(pci.tree) if case.host is not None else None
    if tree is None or tree.why:
        arm = True if case.dpu is not None else None
        return {DeviceKind.GPU: None, DeviceKind.BLUEFIELD: arm, DeviceKind.NIC: arm}
    return {
        DeviceKind.GPU: bool(tree.gpus),
        DeviceKind.BLUEFIELD: bool(tree.bluefields) or case.dpu is not None,
        DeviceKind.NIC: _has_nic(case, tree),
    }


def _has_nic(case: Case, tree: pci.PciTree) -> bool:
    """Return whether there is a NIC for the goal: GPUNetIO supports only NVIDIA's NICs."""
    if case.host is None or any(nic.vendor == pci_ids.MELLANOX for nic in tree.nics):
        return case.host is not None
    return case.goal is Goal.RDMA and bool(pairs.peers(case.host, case.goal))


def _judge_path(
    spec: DataPathSpec,
    case: Case,
    present: dict[DeviceKind, bool | None],
    verdicts: _CheckVerdicts,
) -> DataPath:
    missing = [kind for kind in spec.devices if present[kind] is False]
    if missing:
        looked_for = (check for kind in missing for check in kind.checks)
        blocking = tuple(verdicts.with_verdict(looked_for, Verdict.FAIL))
        why = " ".join(kind.missing for kind in missing)
        return _data_path(spec, case, Verdict.FAIL, why, blocked_by=blocking, caused_by=blocking)
    choice = _choose(spec, verdicts)
    rest = (*spec.required, *spec.assumed, *(kind.log for kind in spec.devices))
    failed = verdicts.with_verdict(rest, Verdict.FAIL)
    if blocking := tuple(dict.fromkeys((*choice.blocking, *failed))):
        causes = verdicts.causes(blocking)
        why = verdicts.why(causes)
        return _data_path(spec, case, Verdict.FAIL, why, blocked_by=blocking, caused_by=causes)
    unknown = [kind for kind in spec.devices if present[kind] is None]
    if choice.unanswered and not unknown and all(map(verdicts.not_applicable, choice.unanswered)):
        why = verdicts.why(choice.unanswered)
        return _data_path(spec, case, Verdict.NOT_APPLICABLE, why)
    unanswered = (
        *choice.unanswered,
        *verdicts.with_verdict(spec.required, Verdict.UNKNOWN),
    )
    if unanswered or unknown:
        why = _why_unknown(case, verdicts, unanswered)
        return _data_path(spec, case, Verdict.UNKNOWN, why)
    warned = (*choice.ruled_out, *verdicts.with_verdict((*choice.chosen, *rest), Verdict.WARN))
    proviso = _unverified_conditions(spec, case, verdicts)
    substituted = tuple(verdicts.with_verdict(spec.substitute_on, Verdict.WARN))
    if verdicts.with_verdict(CUDA, Verdict.FAIL):  # without CUDA there is no pinned memory
        substituted = ()
    slow_why = "" if substituted else spec.slow_why
    make = partial(_data_path, spec, case, proviso=proviso, serves=bool(substituted))
    if warned or slow_why:
        return make(Verdict.WARN, verdicts.why(warned) or slow_why, warned_by=warned)
    return make(Verdict.OK, verdicts.why(substituted) or proviso)


def _data_path(
    spec: DataPathSpec, case: Case, verdict: Verdict, why: str, **fields: Any
) -> DataPath:
    serves = fields.pop("serves", False) or case.goal in spec.serves
    return DataPath(
        name=spec.name, title=spec.title, what=spec.what, serves=serves, verdict=verdict, why=why,
        **fields,
    )  # fmt: skip


class _Choice(NamedTuple):
    """Choice among a path's alternatives.

    Attributes:
        blocking: Checks that rule out all sets.
        ruled_out: Checks that ruled out the sets before the chosen set.
        unanswered: Checks whose missing answer prevents the choice of a set.
        chosen: The set of checks that was chosen.
    """

    blocking: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()


def _choose(spec: DataPathSpec, verdicts: _CheckVerdicts) -> _Choice:
    """Choose the first set of alternatives that no check rules out."""
    ruled_out: list[str] = []
    unanswered: list[str] = []
    for checks in spec.alternatives:
        against = [check for check in checks if verdicts.rules_out(check)]
        silent = [checks[0]] if checks[0] not in verdicts else []
        silent += [
            check for check in checks[1:] if check in REPLACED and verdicts.not_applicable(check)
        ]
        silent += verdicts.with_verdict(checks, Verdict.UNKNOWN)
        if not against and not silent:
            return _Choice(ruled_out=tuple(dict.fromkeys(ruled_out)), chosen=checks)
        ruled_out += against
        unanswered += [] if against else silent
    if unanswered:
        return _Choice(unanswered=tuple(unanswered))
    return _Choice(blocking=tuple(dict.fromkeys(ruled_out)))


def _why_unknown(case: Case, verdicts: _CheckVerdicts, checks: Sequence[str]) -> str:
    if case.host is None:
        return "The GPU is on the host: judge both sides together."
    why = verdicts.why(checks)
    return why or (f"{checks[0]} has no answer." if checks else "The PCI devices are not known.")


_IN_GUEST = "What connects the devices is the hypervisor's, and not visible here."


def _unverified_conditions(spec: DataPathSpec, case: Case, verdicts: _CheckVerdicts) -> str:
    """Return sentences on the conditions of the path that were not verified."""
    sentences = [spec.unverified] if spec.unverified else []
    if DeviceKind.BLUEFIELD in spec.devices and case.dpu is None:
        sentences.append("The DPU was not examined.")
    guest = case.host is not None and case.host.know(virtual.virtual).is_vm
    if guest and "virtual-machine" in spec.assumed:
        sentences.append(_IN_GUEST)
    unanswered = verdicts.with_verdict(spec.assumed, Verdict.UNKNOWN)
    if unanswered:
        sentences.append(f"No answer: {', '.join(unanswered)}.")
    return " ".join(sentences)
