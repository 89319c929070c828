"""What a write brings: text, hex digits, a file, a pattern, or the result of an expression."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ...session.staging import flat
from ...units import size_text
from ..base import namespace
from ..base.fill_patterns import Pattern
from ..base.forms import for_field, to_size
from .uploads import Uploads

__all__ = ["LARGEST", "Payload", "from_form", "from_python"]

LARGEST = 1 << 30  # bytes of one payload, and of all reads in flight: they lie in this process
_BETWEEN = re.compile(r"0[xX]|[\s,:_]+")
_NO_HEX = re.compile(r"[^0-9a-fA-F]")


@dataclass(frozen=True, slots=True)
class Payload:
    """`size` bytes: `data`, or what `pattern` makes of them. `text` says what they are."""

    text: str
    size: int
    data: bytes | None = None
    pattern: Pattern | None = None

    def made(self) -> Generator[bool, None, Any]:
        """Steps that return the bytes; a pattern takes one a block."""
        if self.pattern is None:
            return self.data
        made, at = bytearray(self.size), 0
        for block in self.pattern.blocks(self.size):
            made[at : at + len(block)] = block.data
            at += len(block)
            yield True
        return made


def from_form(kind: str, value: str, size: Any, uploads: Uploads) -> Payload:
    """As a view sends it. `value`: the text, the digits, an upload's key, a pattern or expression.

    ValueError, TypeError: with the field that they are about, `payload` or `size`.
    """
    with for_field("payload"):
        if kind == "pattern":
            return _patterned(Pattern(value), size)
        if kind == "text":
            return _of(f"text {_short(value)!r}", value.encode())
        if kind == "hex":
            return _of(f"hex {_short(value)}", unhex(value))
        if kind == "file":
            name, data = uploads.whole(value)
            return _of(f"file {_short(name)!r}", data)
        if kind == "expression":
            data, what = namespace.evaluate(value, LARGEST)
            return _of(f"{_short(value)}: {what}", data)
        raise ValueError(f"{kind!r} is no kind of payload")


def from_python(data: Any, pattern: str | None, size: Any) -> Payload:
    """`data` with the buffer protocol, copied; or `pattern` and `size`. TypeError, ValueError."""
    if (data is None) == (pattern is None):
        raise TypeError("a write takes either data or pattern=")
    if pattern is not None:
        return _patterned(Pattern(pattern), size)
    if size is not None:
        raise TypeError("size= goes with pattern=: data has a size of its own")
    with for_field("payload"):
        view = flat(data)
        _bounded(view.nbytes)
        made = bytes(view)
        return _of(f"{type(data).__name__} of {size_text(len(made))}", made)


def unhex(text: str) -> bytes:
    """`00 ff 1a`, `0x00ff1a`, `00:ff:1a` as bytes. ValueError: what is wrong with it."""
    digits = _BETWEEN.sub("", text)
    wrong = _NO_HEX.search(digits)
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no hex digit")
    if len(digits) % 2:
        raise ValueError(f"{len(digits)} hex digits: each byte takes two")
    return bytes.fromhex(digits)


def _patterned(pattern: Pattern, size: Any) -> Payload:
    with for_field("size"):
        if size is None or size == "":
            raise ValueError("a pattern takes a size")
        return Payload(f"pattern {_short(pattern.text)}", _bounded(to_size(size)), pattern=pattern)


def _of(text: str, data: bytes) -> Payload:
    if not data:
        raise ValueError("the payload is empty")
    return Payload(text, _bounded(len(data)), data=data)


def _bounded(size: int) -> int:
    if size > LARGEST:
        raise ValueError(f"{size_text(size)} at once; {size_text(LARGEST)} is the most")
    return size


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 40 else f"{words[:39]}\N{HORIZONTAL ELLIPSIS}"
