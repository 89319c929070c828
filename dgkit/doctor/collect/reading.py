"""What one look at the machine gave: the only thing that checks know of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["Fault", "Reading"]

Fault = Literal["", "absent", "denied", "late", "failed", "unrecorded"]


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file's text, a folder's names, a link's target, a command's output, or an answer.

    `fault` is "" if it was read; `why` then says nothing. "absent": there is no such file, folder
    or command, which is a fact about the machine. "denied": it needs more rights. "late": it did
    not answer in time. "failed": the system or the command gave an error. "unrecorded": the
    snapshot was taken by a dgkit that did not look there.
    """

    text: str = ""  # a file's; a link's target; what a command wrote to standard output
    said: str = ""  # what a command wrote to standard error
    code: int = 0  # a command's exit status
    names: tuple[str, ...] = ()  # in a folder, sorted
    raw: bytes = b""  # of a file that is not text
    data: Any = None  # an answer as plain values: of the system, or of a probe
    fault: Fault = ""
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was read. A command that ran and failed was read, too: see `code`."""
        return not self.fault

    @property
    def absent(self) -> bool:
        """Whether it is known not to be there."""
        return self.fault == "absent"
