"""What the last read brought: its first bytes, and all of it for as long as it can be kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import html_cards
from ..base import namespace

if TYPE_CHECKING:
    from ...session import SessionTransfer

__all__ = ["Brought"]

_HEAD = 128  # bytes that are shown


@dataclass(frozen=True, slots=True)
class _Read:
    """`transfer` has all of the bytes; it is None when they were given a name, or given back."""

    record: dict[str, Any]
    size: int
    head: bytes
    transfer: SessionTransfer | None


class Brought:
    """All bytes of the last read stay in this process until they are kept, forgotten, or the next
    read brings others."""

    def __init__(self) -> None:
        self._read: _Read | None = None
        self._kept: dict[str, bytes] = {}

    def take(self, record: dict[str, Any], transfer: SessionTransfer) -> None:
        """A read is complete."""
        self._read = _Read(record, transfer.size, transfer.first(_HEAD), transfer)

    def state(self) -> dict[str, Any] | None:
        """What a view draws: `whole` says whether it can be kept."""
        read = self._read
        if read is None:
            return None
        lines = html_cards.hex_lines(read.head, offset=read.record["offset"])
        about = {"number": read.record["number"], "what": read.record["what"]}
        return about | {"size": read.size, "lines": lines, "whole": read.transfer is not None}

    def keep(self, name: str) -> int:
        """Gives the bytes a name in the notebook, which alone has them then; how many they are.

        ValueError: there are none (any more), or the name stands for something else.
        """
        read = self._read
        if read is None:
            raise ValueError("no read has brought anything yet")
        if read.transfer is None:
            raise ValueError("these bytes were kept, or forgotten: read them again")
        self.tidy()
        namespace.check_available(name, mine=self._kept)
        data = read.transfer.data
        namespace.bind(name, data, mine=self._kept)
        self._kept[name] = data
        self._drop(read)
        return read.size

    def forget(self) -> None:
        """Gives the bytes back; the first of them stay in sight."""
        if self._read is not None:
            self._drop(self._read)

    def tidy(self) -> None:
        """Holds nothing that the notebook has let go."""
        self._kept = namespace.still_bound(self._kept)

    def _drop(self, read: _Read) -> None:
        if self._read is read:
            self._read = _Read(read.record, read.size, read.head, None)
