# SPDX-License-Identifier: Apache-2.0
"""Order of findings: causes before their consequences, checks that only dgkit needs last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from .data_path_specs import DATA_PATH_SPECS
from .data_paths import DataPath
from .finding import Finding, Verdict
from .goals import Goal

_USE = ("cuda-context", "cuda-python", "dgkit-providers", "driver-persistence")
_ACCESS = ("dmabuf-gpu", "peermem", "driver-flavour", "bar1-size", "bar1-resizable", "gdrcopy")
_GPUNETIO = tuple(f"gpunetio-{part}" for part in ("ethernet", "rdma", "verbs", "dma"))
# For each check: the checks whose failures and warnings follow from its failure or warning.
CONSEQUENCES: dict[str, tuple[str, ...]] = {
    "gpu-log": ("driver-loaded", "nvlink-fabric", "cuda-driver", *_USE, *_ACCESS),
    "nic-log": ("rdma-devices", "rdma-dmabuf", "firmware-version", "peermem"),
    "gpu-present": ("driver-loaded", "cuda-driver", "gpu-log", *_USE, *_ACCESS),
    "container": (
        *("driver-loaded", "cuda-driver", "gdrcopy", "rdma-devices", "rdma-dmabuf", "memlock"),
        *("memlock-queues", "doca-libraries", "rdma-core", "driver-registry", "imex", *_USE),
    ),
    "driver-loaded": (
        *("gpu-log", "cuda-driver", "cuda-toolkit", "topology-nvidia-smi"),
        *(*_USE, *_ACCESS),
    ),
    "iommu": ("cuda-context", "cuda-python", "dgkit-providers"),
    "cuda-driver": ("nvlink-fabric", *_USE),
    "cuda-context": ("cuda-python", "dgkit-providers"),
    "gpudirect-platform": _ACCESS,
    "driver-version": ("cuda-driver",),
    "doca-version": ("doca-libraries", *_GPUNETIO),
    "driver-flavour": ("dmabuf-gpu", "kernel-version"),
    "kernel-p2pdma": ("dmabuf-gpu", "peermem"),
    "kernel-version": ("rdma-dmabuf", "dmabuf-gpu"),
    "dmabuf-gpu": ("rdma-dmabuf",),
    "peermem": ("gpu-log", "dmabuf-gpu", "kernel-version", "rdma-dmabuf"),
    "nvlink-fabric": ("gpu-log", "cuda-context", "imex"),
    "rdma-devices": ("nic-log", "rdma-dmabuf", "peermem"),
    "memlock": ("memlock-queues",),
    "bar1-resizable": (),
    "bar1-size": ("bar1-resizable",),
    "bluefield-mode": ("bluefield-representors", "bluefield-tmfifo", "doca-libraries"),
    "topology": ("numa",),
}
# Checks that only dgkit and its packages need.
OWN = frozenset(
    {"cuda-python", "dgkit-core", "dgkit-providers", "dgkit-extras", "open-files", "cuda-toolkit"}
)
# Goals for which programs other than dgkit are used.
BY_OTHERS = frozenset({Goal.RDMA, Goal.GPUNETIO, Goal.P2P, Goal.GPU})
_BELOW_WARNINGS = (Verdict.WARN + Verdict.UNKNOWN) / 2
_ALARMS = (Verdict.WARN, Verdict.FAIL)
_LOGS = ("gpu-log", "nic-log")
_UNKNOWN_LINE = "Its meaning is not known"


def order(findings: Iterable[Finding], goal: Goal) -> tuple[Finding, ...]:
    """Return the findings, worst first; mark consequences and place them after their cause.

    A cause ranks as high as its worst consequence. Among equal verdicts, findings that block a data
    path to the goal come first, and findings of checks that only dgkit needs come last. If other
    programs serve the goal, the latter come after all other failures and warnings.
    """
    found = tuple(findings)
    marked = [_mark(one, found) for one in found]
    ranks = [_rank(one, marked, goal) for one in marked]
    order = sorted(range(len(marked)), key=ranks.__getitem__)
    return tuple(marked[at] for at in order)


def quote_log(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings; a cause says itself what the kernel's log has about it."""
    found = tuple(findings)
    logs = [one for one in found if one.check in _LOGS and one.follows]
    logs.sort(key=lambda one: _UNKNOWN_LINE not in one.why)  # a known meaning takes the place
    said = {(one.follows, one.side): one.why for one in logs}

    def quote(one: Finding) -> Finding:
        line = said.get((one.check, one.side), "")
        if not line or "The kernel's log:" in one.why or one.verdict not in _ALARMS:
            return one
        return msgspec.structs.replace(one, why=f"{one.why} {line}".strip())

    return tuple(map(quote, found))


def lead(findings: Sequence[Finding], paths: Iterable[DataPath]) -> tuple[Finding, ...]:
    """Return ordered findings with those first that concern a working path to the goal.

    Failures that only block other paths come after these, since they count as warnings.
    """
    every = tuple(paths)
    working = [path for path in every if path.serves and path.works]
    if not working:
        return tuple(findings)
    concerned = {check for path in working for check in path.warned_by}
    blocking = {check for path in every for check in path.blocked_by}

    def rank(finding: Finding) -> int:
        if finding.verdict not in _ALARMS or finding.check in OWN:
            return 2
        other = finding.verdict is Verdict.WARN or finding.check in blocking
        return int(other and not {finding.check, finding.follows} & concerned)

    return tuple(sorted(findings, key=rank))


def _mark(finding: Finding, found: Sequence[Finding]) -> Finding:
    """Return a finding with its cause; its remedy is omitted while the cause fails."""
    follows = _cause(finding, found)
    fails = any(one.check == follows and one.verdict is Verdict.FAIL for one in found)
    remedy = () if fails else finding.remedy
    return msgspec.structs.replace(finding, follows=follows, remedy=remedy)


def _cause(finding: Finding, found: Sequence[Finding]) -> str:
    """Return the check that a finding follows from; "" if it has no cause or is not a problem."""
    if finding.verdict < Verdict.UNKNOWN or finding.side == "pair":
        return ""
    for other in found:
        related = finding.check in CONSEQUENCES.get(other.check, ())
        if related and other.side == finding.side and _explains(other, finding):
            return other.check
    return ""


def _explains(cause: Finding, finding: Finding) -> bool:
    if cause.check in _LOGS:  # an error that does not stop the device explains nothing
        return cause.verdict is Verdict.FAIL
    if finding.check in _LOGS:
        return finding.verdict is not Verdict.FAIL and cause.verdict in _ALARMS
    if cause.check == "driver-flavour" and finding.verdict in _ALARMS:
        return cause.verdict in _ALARMS  # even a warning about the modules explains missing dma-buf
    return cause.verdict is Verdict.FAIL or cause.verdict is finding.verdict is Verdict.WARN


@cache
def serving(goal: Goal) -> frozenset[str]:
    """Return the checks on which a path to the goal depends."""
    return frozenset(
        check
        for path in DATA_PATH_SPECS
        if goal in path.serves
        for check in (*path.required, *path.assumed, *(c for s in path.alternatives for c in s))
    )


def _rank(finding: Finding, found: Sequence[Finding], goal: Goal) -> tuple[float, bool, bool, bool]:
    worst: float = finding.verdict
    if worst in _ALARMS:
        following = [
            one.verdict
            for one in found
            if one.follows == finding.check and one.side == finding.side and one.check not in OWN
        ]
        worst = max([worst, *following])
    own = finding.check in OWN
    if own and goal in BY_OTHERS:
        worst = min(worst, _BELOW_WARNINGS)
    return (-worst, own, bool(finding.follows), finding.check not in serving(goal))
