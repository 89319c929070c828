# SPDX-License-Identifier: Apache-2.0
"""Error texts of other programs and of the kernel, read from error_texts.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .finding import Verdict
from .goals import Goal
from .names import blocks


class Cause(msgspec.Struct, frozen=True):
    """A possible cause of an error text.

    Attributes:
        text: The cause, as a sentence.
        checks: Checks that warn or fail if it is the cause; none if no check looks for it.
        remedy: Commands or instructions (`#`) where no check has its own.
        says: Text that a finding has if it is about this cause.
    """

    text: str
    checks: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    says: str = ""


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """An error text.

    Attributes:
        program: Program that prints it.
        pattern: Regular expression within one line.
        means: Meaning, as a sentence.
        source: Public thread or page in which it was explained.
        causes: Possible causes, the likeliest first.
        goal: Goal of those who see it.
        fault: Rule of `dgkit mlx5 run --fault` with which a program shows it without hardware.
        severity: Of a text of the kernel: FAIL if the device does not work after it, OK if it says
            nothing about the machine.
    """

    program: str
    pattern: re.Pattern[str]
    means: str
    source: str
    causes: tuple[Cause, ...]
    goal: Goal = Goal.RDMA
    fault: str = ""
    severity: Verdict = Verdict.WARN


KERNEL = "the kernel"
_GITHUB = "https://github.com/"
_SEVERITIES = {"": Verdict.WARN, "fail": Verdict.FAIL, "ok": Verdict.OK}
_SOURCE = re.compile(r"source (\S+)(?: goal (\S+))?(?: severity (fail|ok))?(?: fault (\S+))?")


def read_table(text: str) -> tuple[Symptom, ...]:
    """Parse a table; its first lines describe the format.

    Raises:
        ValueError: A line does not fit; the message has its number and what is wrong.
    """
    symptoms = []
    shared: dict[str, Cause] = {}
    for number, (head, *body) in blocks(text):
        try:
            if head.startswith("shared "):
                name, cause = _cause(head.removeprefix("shared "), body)
                shared[name] = cause
            else:
                symptoms.append(_parse_symptom(head, body, shared))
        except (ValueError, KeyError, re.error) as error:
            raise ValueError(f"line {number}: {error}: {head[:60]!r}") from None
    return tuple(symptoms)


def _cause(line: str, remedy: list[str]) -> tuple[str, Cause]:
    """Return the first word of `WORD CHECK ... [says WORD]: SENTENCE`, and the cause."""
    left, _, sentence = line.partition(": ")
    (first, *checks), _, says = (part.split() for part in left.partition(" says "))
    if not sentence or len(says) > 1:
        raise ValueError(f"no `CHECK ... [says WORD]: SENTENCE`: {line.strip()[:60]!r}")
    do = tuple(map(str.strip, remedy))
    return first, Cause(sentence, tuple(checks), do, "".join(says))


def _parse_symptom(head: str, body: list[str], shared: dict[str, Cause]) -> Symptom:
    program, _, pattern = head.partition(": ")
    source = _SOURCE.fullmatch(body[1].strip()) if len(body) > 1 else None
    if not pattern or source is None:
        raise ValueError("no pattern, meaning and `source ADDRESS [goal GOAL] [severity fail]`")
    address, goal, severity, fault = source.groups("")
    return Symptom(
        program=program,
        pattern=re.compile(pattern, re.IGNORECASE),
        means=body[0].strip(),
        source=address if address.startswith("https:") else f"{_GITHUB}{address}",
        causes=tuple(_causes(body[2:], shared)),
        goal=Goal(goal or "rdma"),
        fault=fault,
        severity=_SEVERITIES[severity],
    )


def _causes(lines: list[str], shared: dict[str, Cause]) -> Iterator[Cause]:
    """Yield the causes; lines that are indented more are the remedy of the one above."""
    starts = [at for at, line in enumerate(lines) if not line.startswith("    ")]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if lines[at].startswith("  cause as "):
            yield from (shared[name] for name in lines[at].split()[2:])
            continue
        word, cause = _cause(lines[at], lines[at + 1 : end])
        if word != "cause":
            raise ValueError(f"{word!r} where a cause is expected")
        yield cause


SYMPTOMS = read_table(Path(__file__).with_name("error_texts.txt").read_text("utf-8"))
