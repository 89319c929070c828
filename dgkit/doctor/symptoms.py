"""Causes of an error text, ranked by what the checks find on this machine."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .diagnosis import Diagnosis
from .facts import kernel_log
from .facts.pci import address
from .finding import Finding, Verdict
from .machine import Machine
from .symptom_table import KERNEL, NAMES, SYMPTOMS, Cause, Name, Symptom

MAX_TEXT = 1 << 20  # characters of a log that are looked at: its last ones
_MAX_LINE = 400  # characters of a quoted line
_MOST = 3  # texts that are explained
_ALARMS = (Verdict.WARN, Verdict.FAIL)
FOUND, OPEN, EXCLUDED = "found", "possible", "excluded"  # states of a cause, in this order
_ORDER = (FOUND, OPEN, EXCLUDED)
DMESG = "sudo dmesg | dgkit doctor --symptom -"


class Match(msgspec.Struct, frozen=True):
    """A text of the table, and the line in which it was found."""

    symptom: Symptom
    line: str


class RankedCause(msgspec.Struct, frozen=True):
    """A cause and its state on this machine, with the findings that decided it."""

    cause: Cause
    state: str
    findings: tuple[Finding, ...] = ()

    @property
    def remedy(self) -> tuple[str, ...]:
        """Commands: those of the findings, else those of the table."""
        found = (one.remedy for one in self.findings if self.state == FOUND and one.remedy)
        return next(found, self.cause.remedy)


class Explanation(msgspec.Struct, frozen=True):
    """An error text, and its causes: found on this machine, possible, excluded."""

    match: Match
    causes: tuple[RankedCause, ...]

    @property
    def program_only(self) -> bool:
        """True if the checks exclude each cause that they look for, and others are left."""
        looked_for = [one for one in self.causes if one.cause.checks]
        excluded = bool(looked_for) and all(one.state == EXCLUDED for one in looked_for)
        return excluded and len(looked_for) < len(self.causes)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        symptom = self.match.symptom
        return {
            "program": symptom.program,
            "line": self.match.line,
            "means": symptom.means,
            "source": symptom.source,
            "fault": symptom.fault,
            "program_only": self.program_only,
            "causes": [
                {
                    "cause": one.cause.text,
                    "state": one.state,
                    "checks": list(one.cause.checks),
                    "remedy": list(one.remedy),
                }
                for one in self.causes
            ],
        }


class Explanations(msgspec.Struct, frozen=True):
    """Explained texts of a log, the kernel's own words, and why these could not be read."""

    texts: tuple[Explanation, ...]
    kernel: tuple[Match, ...] = ()
    unread: str = ""

    @property
    def exit_code(self) -> int:
        """Exit code of `dgkit doctor --symptom`: 1 if a cause was found here, else 6."""
        return 1 if any(one.causes[0].state == FOUND for one in self.texts) else 6

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        said = [{"line": one.line, "means": one.symptom.means} for one in self.kernel]
        texts = [one.as_dict() for one in self.texts]
        return {"symptoms": texts, "kernel": said, "kernel_unread": self.unread}


def matches(text: str, symptoms: Iterable[Symptom] = SYMPTOMS) -> list[Match]:
    """Return the texts of the table that occur in a log, in the order of the table."""
    found = []
    text = text[-MAX_TEXT:]
    for symptom in symptoms:
        match = symptom.pattern.search(text)
        if match is not None:
            first, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            line = text[first : end if end >= 0 else len(text)].strip()
            found.append(Match(symptom, line[:_MAX_LINE]))
    return found


# A number as an error of Linux: behind a word that says so, or negative.
_ERRNO = re.compile(
    r"(?:\berr(?:or|no)?\b|\bret\b|\brc\b)\W{0,3}-?(\d{1,3})\b|(?<=[ =(])-(\d{1,3})\b", re.I
)
_ERRNO_NAME = re.compile(r"\bE[A-Z0-9]{3,}\b")


_SYNDROME = re.compile(r"syndrome?\W{0,3}0x([0-9a-f]{1,2})\b", re.IGNORECASE)
# Completions with an error of mlx5 by their syndrome (linux/mlx5/cq.h, enum of mlx5_cqe64).
_SYNDROMES = {
    0x01: "a length that does not fit (local)",
    0x02: "a request that the queue pair does not allow (local)",
    0x04: "memory that this NIC may not access (local protection)",
    0x05: "flushed, as an earlier request of this queue pair failed: look for that one",
    0x10: "a response that was not expected",
    0x11: "memory that this NIC may not access (local)",
    0x12: "a request that the other side found invalid",
    0x13: "memory that the other side does not allow (rkey, range, revoked)",
    0x14: "an error of the other side",
    0x15: "the other NIC did not answer, after all retries: a time-out of the network or its peer",
    0x16: "the other side has no receive posted, after all retries",
}


def taken_apart(text: str) -> list[Match]:
    """Return a text that is not in the table as what it names, with the checks that concern it.

    It is the last line that names something; there is none where no line does.
    """
    for line in reversed(text[-MAX_TEXT:].splitlines()):
        names, rest = [], line[:_MAX_LINE]
        for name in NAMES:
            rest, count = name.pattern.subn(" ", rest)
            names += [name] * bool(count)
        codes = [int(code, 16) for code in _SYNDROME.findall(line[:_MAX_LINE])]
        if not names and any(code in _SYNDROMES for code in codes):
            names = [Name(_SYNDROME, "a completion of a NIC", ("rdma-devices",))]
        if names:
            return [Match(_of_names(line[:_MAX_LINE], names), line.strip()[:_MAX_LINE])]
    return []


def _of_names(line: str, names: list[Name]) -> Symptom:
    said = [f"It names {_listed([name.what for name in names])}."]
    words = (address(word.strip("()[],:")) for word in line.split())
    said += [f"{word} is the PCI address of a device." for word in words if word]
    codes = (int(code, 16) for code in _SYNDROME.findall(line))
    known = [code for code in codes if code in _SYNDROMES]
    said += [f"Syndrome {code:#x}: {_SYNDROMES[code]}." for code in known]
    said += [f"{one}: {os.strerror(getattr(errno, one)).lower()}." for one in _errors(line)]
    return Symptom(
        program="Not in the doctor's table",
        pattern=re.compile(""),
        means=" ".join(said),
        source="",
        causes=tuple(Cause(f"{one.what[0].upper()}{one.what[1:]}.", one.checks) for one in names),
        fault=next((f"error,syndrome={code:#x}" for code in known), ""),
    )


def _errors(line: str) -> list[str]:
    """Return the names of the errors of Linux in a line."""
    numbers = (int(first or second) for first, second in _ERRNO.findall(line))
    names = [errno.errorcode[number] for number in numbers if number in errno.errorcode]
    names += [name for name in _ERRNO_NAME.findall(line) if hasattr(errno, name)]
    return list(dict.fromkeys(names))


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def explain(found: Iterable[Match], diagnosis: Diagnosis) -> list[Explanation]:
    """Rank the causes of error texts by a diagnosis; texts with a confirmed cause come first."""
    explained = [_explain(match, diagnosis) for match in found]
    explained.sort(key=lambda one: _ORDER.index(one.causes[0].state))
    return explained[:_MOST]


def _explain(match: Match, diagnosis: Diagnosis) -> Explanation:
    causes = [_rank(cause, diagnosis) for cause in match.symptom.causes]
    return Explanation(match, tuple(sorted(causes, key=lambda one: _ORDER.index(one.state))))


def _rank(cause: Cause, diagnosis: Diagnosis) -> RankedCause:
    findings = tuple(one for name in cause.checks for one in diagnosis.of(name))
    alarms = tuple(
        one for one in findings if one.verdict in _ALARMS and cause.says in f"{one.found} {one.why}"
    )
    if alarms:
        return RankedCause(cause, FOUND, alarms)
    well = bool(findings) and all(one.verdict is Verdict.OK for one in findings)
    return RankedCause(cause, EXCLUDED if well else OPEN, findings)


def needed_checks(found: Iterable[Match]) -> tuple[str, ...]:
    """Return the checks that decide on the causes of texts."""
    names = (name for match in found for cause in match.symptom.causes for name in cause.checks)
    return tuple(dict.fromkeys(names))


def kernel_words(machine: Machine) -> tuple[list[Match], str]:
    """Return the symptoms found in the kernel's log, and why it could not be read, if so."""
    log = machine.know(kernel_log.log)
    known = [one for one in SYMPTOMS if one.program == KERNEL]
    harmless = [one.pattern for one in known if one.severity is Verdict.OK]
    lines = [line.text for line in log.lines if not any(p.search(line.text) for p in harmless)]
    return matches("\n".join(lines), known), log.why
