# SPDX-License-Identifier: Apache-2.0
"""Findings: a verdict, the evidence for it, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import msgspec

from ..units import one_line
from .references import Source


class Verdict(IntEnum):
    """Verdict on a subject, ordered from best to worst; findings are sorted by it."""

    NOT_APPLICABLE = 0
    OK = 1
    UNKNOWN = 2
    WARN = 3
    FAIL = 4

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Verdict.NOT_APPLICABLE: "n.a.",
    Verdict.OK: "ok",
    Verdict.UNKNOWN: "unknown",
    Verdict.WARN: "warn",
    Verdict.FAIL: "fail",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a check for one subject.

    Attributes:
        verdict: The verdict.
        found: Value that the check found; fits a table's cell.
        needed: Value that is needed; fits a table's cell. If NOT_APPLICABLE, what to try.
        why: Effect of the finding, or why there is no answer; one or two sentences.
        subject: Device that the finding is about (a GPU, a NIC, a bridge), "" if there is only one.
        remedy: Commands, in order. A line that starts with `#` is an instruction for something that
            no command can do (a BIOS setting).
        sources: Sections of documents that the verdict is based on.
        disagree: Description of a contradiction between two documents.
        follows: Check whose failure or warning explains this one, "" if none; set by the runner.
        check: Name of the check; set by the runner, like `title` and `side`.
        title: Title of the check.
        side: Side that was checked: `host`, `dpu` or `pair`.
    """

    verdict: Verdict
    found: str
    needed: str = ""
    why: str = ""
    subject: str = ""
    remedy: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    disagree: str = ""
    follows: str = ""
    check: str = ""
    title: str = ""
    side: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = {"verdict": str(self.verdict), "remedy": list(self.remedy)}
        sources = [msgspec.structs.asdict(source) for source in self.sources]
        return {**msgspec.structs.asdict(self), **plain, "sources": sources}


class _Factory:
    """Factory of findings with one verdict: `fail("7.5 GiB", needed="16 GiB", why="...")`."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def __call__(
        self,
        found: str,
        *,
        needed: str = "",
        why: str = "",
        subject: str = "",
        remedy: Iterable[str] = (),
        sources: Iterable[Source] = (),
        disagree: str = "",
    ) -> Finding:
        return Finding(
            verdict=self._verdict, found=found, needed=needed, why=why, subject=subject,
            remedy=tuple(map(one_line, remedy)), sources=tuple(sources), disagree=disagree,
        )  # fmt: skip


ok = _Factory(Verdict.OK)
warn = _Factory(Verdict.WARN)
fail = _Factory(Verdict.FAIL)
unknown = _Factory(Verdict.UNKNOWN)
n_a = _Factory(Verdict.NOT_APPLICABLE)


def about(subject: str, finding: Finding) -> Finding:
    """Return the finding with its subject set."""
    return msgspec.structs.replace(finding, subject=subject)


def attribute(finding: Finding, *, check: str, title: str, side: str) -> Finding:
    """Return the finding with its check and side set."""
    return msgspec.structs.replace(finding, check=check, title=title, side=side)


def sentence(why: str) -> str:
    """Return a reason as a sentence: add a full stop and a capital, except to `nvidia-smi`."""
    text = why.rstrip(".")
    return f"{text if text.startswith('nvidia-smi') else text[:1].upper() + text[1:]}."


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of the findings; NOT_APPLICABLE if there are none."""
    return max((finding.verdict for finding in findings), default=Verdict.NOT_APPLICABLE)
