# SPDX-License-Identifier: Apache-2.0
"""Interface through which the doctor reads a machine: files, commands and system queries.

A key names one reading: `text /proc/version`, `run nvidia-smi -q`. `live.LiveReader` reads this
machine and `snapshot.RecordedReader` reads a snapshot, so that the input of the checks can be
stored and judged on another machine.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

# The first word of a key:
# text   the text of a file
# raw    the first 4,096 bytes of a file
# names  the names in a directory
# link   the target of a symbolic link, resolved to an absolute path
# run    the output of a command in the C locale
# ask    a system query (live.QUERIES)
# probe  a query that needs a library and runs in a child process: the queries of probes.py, `core`
#        (whether the C core of dgkit loads) and `info` (the output of `dgkit info`)
KINDS = ("text", "raw", "names", "link", "run", "ask", "probe")

Fault = Literal["", "absent", "denied", "late", "failed", "unrecorded"]


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one read: a file, a directory, a link, a command or a query.

    Attributes:
        text: Text of a file, target of a link, or standard output of a command.
        said: Standard error of a command.
        code: Exit status of a command.
        names: Names in a directory, sorted.
        raw: Bytes of a binary file.
        data: Answer of a system query or a probe, as plain values.
        fault: "" on success. "absent": there is no such file, directory or command, which is a
            fact about the machine. "denied": more privileges are needed. "late": timed out.
            "failed": the system or the command reported an error. "unrecorded": the snapshot was
            taken by a version of dgkit that did not read this key.
        why: Description of the fault, "" on success.
    """

    text: str = ""
    said: str = ""
    code: int = 0
    names: tuple[str, ...] = ()
    raw: bytes = b""
    data: Any = None
    fault: Fault = ""
    why: str = ""

    @property
    def ok(self) -> bool:
        """True if the read succeeded, even if a command exited with non-zero status (`code`)."""
        return not self.fault

    @property
    def unread(self) -> str:
        """Description of the fault; "" if the read succeeded or there is nothing to read."""
        return "" if self.ok or self.absent else self.why or f"the read ended as {self.fault}"

    @property
    def absent(self) -> bool:
        """True if the file, directory or command is known not to exist."""
        return self.fault == "absent"


class Reader:
    """Base class of readers.

    A reader never raises because of the state of the machine: the error is in the Reading.

    Attributes:
        waits: Whether a read may wait, for a command or a device.
    """

    waits = True

    def read(self, key: str) -> Reading:
        """Return the reading of a key: the same result for each call during the reader's life."""
        raise NotImplementedError

    def text(self, path: str) -> Reading:
        """Read a file as text: at most 1 MiB, with invalid UTF-8 replaced."""
        return self.read(f"text {path}")

    def raw(self, path: str) -> Reading:
        """Read the first 4,096 bytes of a file."""
        return self.read(f"raw {path}")

    def names(self, path: str) -> Reading:
        """List the names in a directory, sorted."""
        return self.read(f"names {path}")

    def link(self, path: str) -> Reading:
        """Resolve a symbolic link; the target is in `text`."""
        return self.read(f"link {path}")

    def run(self, *command: str) -> Reading:
        """Run a command in the C locale, without input, for at most 5 s."""
        return self.read(f"run {shlex.join(command)}")

    def ask(self, what: str) -> Reading:
        """Query the system; the answer is in `data`. The queries are listed in live.QUERIES."""
        return self.read(f"ask {what}")

    def probe(self, *question: str) -> Reading:
        """Query a library in a child process; the answer is in `data`."""
        return self.read(f"probe {shlex.join(question)}")

    def together(self, keys: Sequence[str]) -> list[Reading]:
        """Return the readings of several keys; a live reader reads them in parallel."""
        return [self.read(key) for key in keys]

    def close(self) -> None:
        """Stop running commands. A reader of a snapshot has none."""


class Trace:
    """Readings by key, in the order in which they were used, and facts by name.

    Attributes:
        readings: The readings, including those from which the facts were derived.
        facts: Values of the facts that the check requested directly.
    """

    __slots__ = ("facts", "readings")

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.facts: dict[str, Any] = {}


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_stack = _Stack()


@contextmanager
def tracing() -> Iterator[Trace]:
    """Record the readings of this thread in a new trace, not in the enclosing trace."""
    trace = Trace()
    _stack.traces.append(trace)
    try:
        yield trace
    finally:
        _stack.traces.remove(trace)


def note(key: str, reading: Reading) -> Reading:
    """Record a reading in the trace of this thread, if it has one; return the reading."""
    if _stack.traces:
        _stack.traces[-1].readings.setdefault(key, reading)
    return reading


def note_fact(name: str, value: Any, used: Trace) -> None:
    """Record a fact and the readings in `used` in the trace of this thread, if it has one.

    Args:
        used: Readings from which the fact was derived, perhaps earlier by another thread.
    """
    if _stack.traces:
        trace = _stack.traces[-1]
        trace.facts.setdefault(name, value)
        for key, reading in used.readings.items():
            trace.readings.setdefault(key, reading)
