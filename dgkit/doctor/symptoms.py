# SPDX-License-Identifier: Apache-2.0
"""Causes of an error text, ranked by what the checks find on this machine."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..units import listed
from .diagnosis import Diagnosis
from .facts import kernel_log, pci_ids
from .finding import Finding, Verdict
from .machine import Machine
from .names import NAMED, Name, found, known, spelt
from .symptom_table import KERNEL, SYMPTOMS, Cause, Symptom

MAX_TEXT = 1 << 20  # characters of a log that are looked at: its last ones
_MAX_LINE = 400  # characters of a quoted line
_MOST = 3  # texts that are explained
_MOST_NAMES = 5  # of what a text names
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
        known = bool(self.match.symptom.source)
        return known and excluded and len(looked_for) < len(self.causes)

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


_LACKS = "This machine lacks what it needs."
_LOOK = "What it names is not as it should be here."
_ELSEWHERE = "The program or its other side; no check looks for it."
# A number as an error of Linux: behind a word that says so, negative, or behind its text. But CUDA,
# NCCL and others number their own errors.
_ERRNO = re.compile(
    r"\b(?:err(?:or|no)?|ret|rc)\b\W{0,3}-?(?P<said>\d{1,3})\b|(?<=[ =(])-(?P<negative>\d{1,3})\b"
    r"|(?<=[a-z]) ?[\[(]-?(?P<behind>\d{1,3})[\])]",
    re.IGNORECASE,
)
_OWN_NUMBERS = re.compile(r"\b(?:cuda|nccl|nvml|doca|hip)(?: \w+)? $", re.IGNORECASE)
_ERRNO_NAME = re.compile(r"\bE[A-Z0-9]{3,}\b")
_ERRNO_TEXTS = [(os.strerror(number).lower(), name) for number, name in errno.errorcode.items()]
# Checks that read the lines of a subsystem of the kernel.
_LOGS = dict.fromkeys(("gpu", "nvlink", "peermem", "display"), "gpu-log")
_LOGS |= dict.fromkeys(("nic", "rdma", "bluefield"), "nic-log")
_SETTINGS = (
    "NCCL|UCX|NVSHMEM|CUDA|FI|MC|NIXL|UCCL|GLOO|MLX5|DOCA|OMPI|HSA|ROCR|HIP|RDMAV|NVIDIA|MORI|GDR"
)
# Parts of a text that a command looks up: what they are, and the command.
_PARTS = (
    (r"\b((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![.\w])",
     "the PCI address of a device", "lspci -nnks {}"),
    (r"(?<![\w/-])((?:/[\w.-]+)*/?lib[\w-]+\.so(?:\.\d+)*)", "a library", "ldconfig -p | grep {}"),
    (r"(?:\bmodule |\bmodprobe:? |\b)([a-z]\w+)(?:\.ko\b| not found in directory /lib/modules)",
     "a module of the kernel", "modinfo {}; dkms status"),
    (rf"\b(?!\w*(?:ERR|STATUS|EVENT))((?:{_SETTINGS})_[A-Z][A-Z0-9_]{{3,}})\b(?!\w)",
     "a setting or constant", "env | grep {}"),
)  # fmt: skip


_NUMBER = re.compile(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b|\d+")
_MOST_LINES = 2000  # that differ; they take about a second


def taken_apart(text: str) -> list[Match]:
    """Return a text that is not in the table as what it names, with the checks that concern it.

    It is the first of the lines that tell most: how it failed counts twice, each name once; there
    is none where no line names anything.
    """
    best: tuple[int, str, list[Name], list[Name]] = (0, "", [], [])
    lines = (line.strip()[:_MAX_LINE] for line in text[-MAX_TEXT:].splitlines())
    # Of lines that differ in numbers only, the last one: a log of a training has thousands.
    table = known()
    different = list({_NUMBER.sub("0", line): line for line in lines}.values())
    for line in different[-_MOST_LINES:]:
        named = table.named(line)
        names = [one for one in named if one.kind == "name"]
        about = len(names) + sum(bool(re.search(pattern, line)) for pattern, *_ in _PARTS)
        ways = [*(one for one in named if one.kind == "error"), *_ways(line, about)]
        if not ways and about:
            ways = found(line, table.last_ways)[:1]
        count = about + 2 * len(ways)
        if count > best[0]:
            best = (count, line, names, ways)
    _, line, names, ways = best
    return [Match(_of_names(line, names, ways), line)] if line else []


def _ways(line: str, about: int) -> list[Name]:
    """Return the ways to fail that a line tells of; some only of something that it names."""
    text = " ".join([line, *_errors(line)])
    ways = found(text, known().ways) or found(spelt(line), known().ways)
    return [way for way in ways if about or NAMED not in way.checks]


def _of_names(line: str, names: list[Name], ways: list[Name]) -> Symptom:
    said = [way.what for way in ways]
    said += [f"It names {listed([name.what for name in names[:_MOST_NAMES]])}."] if names else []
    said += [f"{one}: {os.strerror(getattr(errno, one)).lower()}." for one in _errors(line)]
    commands = [command for way in ways for command in way.remedy]
    for pattern, what, command in _PARTS:
        for part in dict.fromkeys(re.findall(pattern, line)):
            said.append(f"{part} is {what}.")
            commands.append(command.format(part))
    said += [f"{name} is a {known}." for name, known in _pci_ids(line)]
    checks = [check for way in ways for check in way.checks if check != NAMED]
    checks += [_LOGS[one.subsystem] for one in kernel_log.parse(line) if one.subsystem in _LOGS]
    causes = [Cause(_LACKS, tuple(dict.fromkeys(checks)))] if checks else []
    told: set[str] = set()  # a check's findings are told once, by the first cause that has it
    for name in names[:_MOST_NAMES]:
        short = name.what.partition(" (")[0].partition(", ")[0]
        own = tuple(check for check in name.checks if check not in told)
        if own or name.remedy:
            causes.append(Cause(f"The cause is in {short}.", own, name.remedy))
        told |= set(own)
    causes += [Cause(_LOOK, (), tuple(commands))] if commands else []
    return Symptom(
        program="Not in the doctor's table",
        pattern=re.compile(""),
        means=" ".join(said),
        source="",
        causes=tuple(causes) or (Cause(_ELSEWHERE),),
        fault=next((f"error,syndrome={one.syndrome:#x}" for one in ways if one.syndrome), ""),
    )


def _pci_ids(line: str) -> Iterator[tuple[str, str]]:
    """Yield each vendor and device of PCI in a line, and the device's name."""
    for vendor, device in re.findall(r"\b([0-9a-f]{4}):([0-9a-f]{4})\b", line, re.IGNORECASE):
        if known := pci_ids.known(int(vendor, 16), int(device, 16)):
            yield f"{vendor}:{device}", known


def _errors(line: str) -> list[str]:
    """Return the names of the errors of Linux in a line."""
    numbers = (
        int(found[found.lastgroup or 0]) for found in _ERRNO.finditer(line) if _is_errno(found)
    )
    names = [errno.errorcode[number] for number in numbers if number in errno.errorcode]
    names += [name for name in _ERRNO_NAME.findall(line) if hasattr(errno, name)]
    names += [name for text, name in _ERRNO_TEXTS if text in line.lower()]
    return list(dict.fromkeys(names))


def _is_errno(found: re.Match[str]) -> bool:
    before = found.string[: found.start()]
    if found[found.lastgroup or 0] in {"1", "3"} and "errno" not in found[0].lower():
        return False  # most often just "failed", or of getaddrinfo()
    if found["behind"]:
        return before.lower().endswith(os.strerror(int(found["behind"])).lower())
    return not (found["said"] and _OWN_NUMBERS.search(before))


def explain(found: Iterable[Match], diagnosis: Diagnosis) -> list[Explanation]:
    """Rank the causes of error texts by a diagnosis; texts with a confirmed cause come first."""
    explained = [_explain(match, diagnosis) for match in found]
    explained.sort(key=lambda one: _ORDER.index(one.causes[0].state))
    return explained[:_MOST]


def _explain(match: Match, diagnosis: Diagnosis) -> Explanation:
    known = bool(match.symptom.source)
    causes = [_rank_cause(cause, diagnosis, known) for cause in match.symptom.causes]
    return Explanation(match, tuple(sorted(causes, key=lambda one: _ORDER.index(one.state))))


def _rank_cause(cause: Cause, diagnosis: Diagnosis, known: bool) -> RankedCause:
    findings = tuple(one for name in cause.checks for one in diagnosis.of(name))
    alarms = tuple(
        one for one in findings if one.verdict in _ALARMS and cause.says in f"{one.found} {one.why}"
    )
    if alarms:
        return RankedCause(cause, FOUND, alarms)
    # What a text only names may be at fault although the checks that concern it pass.
    well = known and bool(findings) and all(one.verdict is Verdict.OK for one in findings)
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
