"""What a check says: a verdict, what it stands on, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import msgspec

from .references import Source

__all__ = ["Finding", "Verdict", "fail", "n_a", "named", "ok", "sentence", "unknown", "warn"]
__all__ += ["worst"]


class Verdict(IntEnum):
    """From the best to the worst, as they are sorted."""

    NOT_APPLICABLE = 0
    OK = 1
    CANNOT_TELL = 2
    WARN = 3
    FAIL = 4

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Verdict.NOT_APPLICABLE: "n.a.",
    Verdict.OK: "ok",
    Verdict.CANNOT_TELL: "cannot tell",
    Verdict.WARN: "warn",
    Verdict.FAIL: "fail",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    `found` and `needed` are short enough for a table's cell; `why` is one or two sentences: what it
    blocks, or why nothing can be told. `remedy`: commands, in order; a line that starts with `#`
    says in words what no command does (a BIOS setting). `subject`: which of several things it is
    about (a GPU, a NIC, a bridge), "" if there is one only. `disagree`: where two documents do.
    """

    verdict: Verdict
    found: str
    needed: str = ""
    why: str = ""
    subject: str = ""
    remedy: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    disagree: str = ""
    # Which check said it, and of which side: filled in by who runs the check.
    check: str = ""
    title: str = ""
    side: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        words = {"verdict": str(self.verdict), "remedy": list(self.remedy)}
        sources = [msgspec.structs.asdict(source) for source in self.sources]
        return {**msgspec.structs.asdict(self), **words, "sources": sources}


class _Maker:
    """Makes findings of one verdict: `fail("7.5 GiB", needed="16 GiB", why="...")`."""

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
            remedy=tuple(map(_line, remedy)), sources=tuple(sources), disagree=disagree,
        )  # fmt: skip


def _line(text: str) -> str:
    """One line of it, as people see it: what stands for itself alone ends no comment."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


ok = _Maker(Verdict.OK)
warn = _Maker(Verdict.WARN)
fail = _Maker(Verdict.FAIL)
unknown = _Maker(Verdict.CANNOT_TELL)
n_a = _Maker(Verdict.NOT_APPLICABLE)


def named(one: Finding, *, check: str, title: str, side: str) -> Finding:
    """The finding, with the check that said it, and of which side."""
    return msgspec.structs.replace(one, check=check, title=title, side=side)


def sentence(why: str) -> str:
    """A reason as a sentence: with a capital, and one full stop."""
    return f"{why[:1].upper()}{why[1:].rstrip('.')}."


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict among them; NOT_APPLICABLE for none."""
    return max((one.verdict for one in findings), default=Verdict.NOT_APPLICABLE)
