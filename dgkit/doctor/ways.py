"""The ways that bytes can go on this machine: which work, and what blocks the better ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .finding import Finding, Verdict
from .machine import Case

__all__ = ["Way", "ways"]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way, the better ones first. `verdict` is the worst of the checks that it rests on.

    `blocked_by`: the names of the checks that stand in its way, worst first.
    """

    name: str
    title: str
    verdict: Verdict
    why: str = ""
    blocked_by: tuple[str, ...] = ()


def ways(case: Case, findings: Sequence[Finding]) -> tuple[Way, ...]:
    """All that are known, the better ones first."""
    del case, findings
    return ()
