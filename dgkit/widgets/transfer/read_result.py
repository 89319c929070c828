"""The bytes of the last read: the first ones for display, and all of them until discarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import html_cards
from ..base import namespace

if TYPE_CHECKING:
    from ...session import SessionTransfer

_HEAD = 128  # bytes that are displayed


@dataclass(frozen=True, slots=True)
class _Read:
    """A completed read; `transfer` holds its bytes and is None once they are kept or discarded."""

    record: dict[str, Any]
    size: int
    head: bytes
    transfer: SessionTransfer | None


class ReadResult:
    """The result of the last read.

    All of its bytes stay in this process until they are kept, discarded, or replaced by the next
    read.
    """

    def __init__(self) -> None:
        self._read: _Read | None = None
        self._kept: dict[str, bytes] = {}

    def store(self, record: dict[str, Any], transfer: SessionTransfer) -> None:
        """Replace the result by that of a completed read."""
        self._read = _Read(record, transfer.size, transfer.first(_HEAD), transfer)

    def state(self) -> dict[str, Any] | None:
        """Return what a view draws; `whole` is true while all bytes are held."""
        read = self._read
        if read is None:
            return None
        lines = html_cards.hex_lines(read.head, offset=read.record["offset"])
        state = {"number": read.record["number"], "what": read.record["what"]}
        return state | {"size": read.size, "lines": lines, "whole": read.transfer is not None}

    def keep(self, name: str) -> int:
        """Bind the bytes to a variable of the notebook and release them here.

        Args:
            name: The variable; it may replace only a value that was kept under this name before.

        Returns:
            The number of bytes.

        Raises:
            ValueError: No bytes are held, or the name is invalid or taken.
        """
        read = self._read
        if read is None:
            raise ValueError("nothing has been read yet")
        if read.transfer is None:
            raise ValueError("these bytes were kept or discarded already: read them again")
        self.release_unbound()
        namespace.check_available(name, mine=self._kept)
        data = read.transfer.data
        namespace.bind(name, data, mine=self._kept)
        self._kept[name] = data
        self._release(read)
        return read.size

    def discard(self) -> None:
        """Release the bytes; the first ones stay for display."""
        if self._read is not None:
            self._release(self._read)

    def release_unbound(self) -> None:
        """Drop references to kept bytes whose variables no longer exist in the notebook."""
        self._kept = namespace.still_bound(self._kept)

    def _release(self, read: _Read) -> None:
        if self._read is read:
            self._read = _Read(read.record, read.size, read.head, None)
