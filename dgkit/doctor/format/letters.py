"""Texts to send to those who may do what this user may not: `dgkit doctor --ask`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import msgspec

from ..diagnosis import Diagnosis
from ..facts.virtual import container
from ..finding import Verdict, printable
from ..machine import Machine
from .summary import FindingGroup, group_findings
from .terminal import WIDTH, Line, Span

_ALARMS = (Verdict.WARN, Verdict.FAIL)
_POWER = re.compile(
    r"switch its power off and on|Switch the machine off and on|Power the machine off"
)
_BIOS = re.compile(r"^# In the BIOS")
_ROOT = re.compile(
    r"^(?:# )?"
    r"(?:sudo |(?:Then r|R)estart the machine|[^#\n]{1,300}\| sudo tee |On the host, outside)"
)
_IMAGE = re.compile(
    r"^# (?:Ask who keeps the image|In the (?:machine configuration|settings)) of (\S+): "
)
_ADDRESSED = re.compile(r"^# (?:Ask who keeps the image of \S+: )?")
_RESTART = re.compile(r"sudo reboot")
_OPERATOR = "the operator of the cluster"
_BMC = "those who reach its BIOS and power (BMC)"


class Letter(msgspec.Struct, frozen=True):
    """Request to somebody: each finding with the lines of its remedy that are for them."""

    to: str
    findings: tuple[tuple[FindingGroup, tuple[str, ...]], ...]


def letters(diagnosis: Diagnosis) -> list[Letter]:
    """Return a letter for each who has to act: BMC, administrator, operator of the cluster."""
    machine = diagnosis.case.machine
    asked: dict[str, list[tuple[FindingGroup, tuple[str, ...]]]] = {}
    shown = {finding.check for finding in diagnosis.findings}
    groups = group_findings(
        one for one in diagnosis.findings if one.verdict in _ALARMS and one.follows not in shown
    )
    for group in groups:
        lines: dict[str, list[str]] = {}
        for line in group.finding.remedy:
            if to := _recipient(machine, line):
                lines.setdefault(to, []).append(line)
        for to, own in lines.items():
            asked.setdefault(to, []).append((group, tuple(own)))
    return [Letter(to, tuple(found)) for to, found in asked.items()]


def _recipient(machine: Machine, line: str) -> str:
    """Return who may do what a line of a remedy says; "" if the user may."""
    if _POWER.search(line) or _BIOS.match(line):
        return _BMC
    if match := _IMAGE.match(line):
        return f"those who keep the image of {match[1]}"
    engine = machine.know(container).engine
    if engine:
        host = bool(_ROOT.match(line)) or line.startswith("# In the pod:")
        return (
            ""
            if not host
            else _OPERATOR
            if engine == "Kubernetes"
            else "the administrator of its host"
        )
    root = machine.read.ask("euid").data == 0
    return "the administrator" if _ROOT.match(line) and not root else ""


def letters_page(diagnosis: Diagnosis, *, width: int = WIDTH) -> list[Line]:
    """Return the letters as lines."""
    found = letters(diagnosis)
    if not found:
        return [(Span("Nothing is for somebody else to do: `dgkit doctor` has what you can do."),)]
    return [line for letter in found for line in _letter(diagnosis, letter, width)]


def _letter(diagnosis: Diagnosis, letter: Letter, width: int) -> Iterator[Line]:
    uname = diagnosis.case.machine.read.ask("uname").data
    node = str(uname.get("node", "")) if isinstance(uname, dict) else ""
    yield (Span(f"To {letter.to}:", "strong"),)
    opening = (
        f"On {node or 'this machine'}, I need this: {diagnosis.goal.text}. The doctor of dgkit "
    )
    yield from _wrap(f"{opening}found what I may not change. Please:", width, "")
    for number, (group, lines) in enumerate(letter.findings, 1):
        finding, about = group.finding, f", {group.about}" if group.about else ""
        needed = f"; needed: {finding.needed}" if finding.needed else ""
        text = f"{number}. {finding.title}{about}: {finding.found}{needed}. {finding.why}"
        yield from _wrap(text.rstrip(), width, "   ")
        for line in lines:
            yield (Span(f"       {printable(_ADDRESSED.sub('', line))}", "command"),)
    if any(_RESTART.search(line) for _, lines in letter.findings for line in lines):
        yield from _wrap("This restarts the machine.", width, "")
    yield ()


def _wrap(text: str, width: int, indent: str) -> Iterator[Line]:
    lines = textwrap.wrap(printable(text), width, subsequent_indent=indent, break_on_hyphens=False)
    return ((Span(line),) for line in lines)
