"""The kernel's log: what it says since the last start of the machine."""

from __future__ import annotations

import re
import shlex

from ...units import one_line
from ..machine import Machine

SEARCH = "sudo dmesg | grep "  # a command of a remedy, which the doctor then runs itself
_MAX_QUOTE = 160  # characters
_START = "Linux version "
_STAMP = re.compile(r"\[[ 0-9.]{1,20}\] ?")
_ERROR = re.compile(
    r"error|fail|cannot|can't|unable|not supported|time[d-]? ?out|reject|refus|fatal|fallen off"
    r"|no space|unknown symbol|disagrees|xid|unsuitable|not found|invalid|insufficient",
    re.IGNORECASE,
)
_RECOVERED = ("corrected error", "severity=corrected", "recovery successful")


def newest_start(text: str) -> list[str]:
    """Return the lines since the last start, without their times."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _START in line]
    return [_without_time(line) for line in lines[starts[-1] if starts else 0 :]]


def _without_time(line: str) -> str:
    found = _STAMP.search(line[:120])
    return line[found.end() :] if found else line


def errors(machine: Machine, command: str) -> list[str]:
    """Return the error lines since the last start that `sudo dmesg | grep ...` would print.

    Lines about what the kernel has corrected are left out.
    """
    words = [word.lower() for word in shlex.split(command.removeprefix(SEARCH)) if word[0] != "-"]
    lines = newest_start(machine.read.run("dmesg").text)
    return [
        line
        for line in lines
        if any(word in line.lower() for word in words)
        and _ERROR.search(line)
        and not any(word in line.lower() for word in _RECOVERED)
    ]


def quoted(lines: list[str]) -> str:
    """Return a sentence with the first error line, which the others often follow from."""
    more = f" ({len(lines) - 1} more)" if len(lines) > 1 else ""
    line = one_line(lines[0]).rstrip(".")
    line = line if len(line) <= _MAX_QUOTE else f"{line[: _MAX_QUOTE - 3]}..."
    return f'The kernel\'s log: "{line}"{more}.'
