# SPDX-License-Identifier: Apache-2.0
"""Sizes, times and rates as text, and sizes parsed from text."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_LONG_DTYPE = 120  # letters
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_UNITS = ("", "k", "m", "g", "t")
_LARGEST = 2**63 - 1  # limit of a size in a request (schema.py)


def printable(text: str, kept: str = "\n\t") -> str:
    """Return another's text with control characters, such as ESC and U+202E, escaped.

    Args:
        kept: Control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text
    )


def one_line(text: str) -> str:
    """Return a text with control characters, such as newlines and ESC, replaced by spaces."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, thousands separated: `1 byte`, `4,096 bytes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Return words as they stand in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def us(ns: float) -> str:
    """Format nanoseconds as microseconds with two decimals: `1,234.50`."""
    return f"{ns / 1000:,.2f}"


def gb_per_s(bytes_per_s: float) -> str:
    """Format bytes per second in units of 10^9 with two decimals."""
    return f"{bytes_per_s / 1e9:,.2f}"


def size_text(size: int) -> str:
    """Format bytes in the largest binary unit of which there is at least one: `1.50 MiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value.is_integer() else f"{value:.2f} {unit}"


def dtype_text(dtype: Any) -> str:
    """Return a dtype as text; a long structured one as its number of fields and bytes."""
    text = str(dtype)
    if not getattr(dtype, "names", None) or len(text) <= _LONG_DTYPE:
        return text
    return f"{plural(len(dtype.names), 'field')} of {plural(dtype.itemsize, 'byte')}"


def parse_size(text: str, *, least: int = 1) -> int:
    """Parse a size such as `4096`, `64K`, `1.5GiB` or `0x100`; K is 1024.

    Accepts the output of `size_text` unless it was rounded. parseSize in widgets/base/units.js
    accepts the same forms.

    Args:
        least: The smallest size to accept, in bytes.

    Returns:
        Bytes.

    Raises:
        ValueError: Not a size, not a whole number of bytes, too small or too large.
    """
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text.strip()):
        size, rest = int(text, 16), 0
    elif match := _SIZE.fullmatch(text.strip()):
        unit = _UNITS.index((match[3] or "").lower())
        scaled = int(match[1] + (match[2] or "")) << 10 * unit
        size, rest = divmod(scaled, 10 ** len(match[2] or ""))
    else:
        raise ValueError(f"{text!r} is not a size: use bytes, or 64K, 512M, 4G (K is 1024)")
    if rest or size < least:
        limit = {0: "", 1: ", one or more"}.get(least, f", {least} or more")
        raise ValueError(f"{text!r} is not a whole number of bytes{limit}")
    if size > _LARGEST:
        raise ValueError(f"{text!r} is too large: the limit is {_LARGEST} bytes")
    return size
