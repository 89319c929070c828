"""Sizes, times and rates as text, and sizes read back from text."""

from __future__ import annotations

import re

__all__ = ["gb_per_s", "parse_size", "size_text", "us"]

_SIZE = re.compile(r"(\d+)(?:\.(\d+))?\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_UNITS = ("", "k", "m", "g", "t")
_LARGEST = 2**63 - 1  # what a request can carry (wire/requests.py)


def us(ns: float) -> str:
    """Nanoseconds as microseconds with two decimals: `1,234.50`."""
    return f"{ns / 1000:,.2f}"


def gb_per_s(bytes_per_s: float) -> str:
    """Bytes a second in units of 10^9 with two decimals."""
    return f"{bytes_per_s / 1e9:,.2f}"


def size_text(size: int) -> str:
    """Bytes in the largest binary unit that they fill: `64 KiB`, `1.50 MiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value.is_integer() else f"{value:.2f} {unit}"


def parse_size(text: str, *, least: int = 1) -> int:
    """`4096`, `64K`, `1.5GiB`, `0x100` in bytes; K is 1024. ValueError: it is none, or too small.

    Reads back what `size_text` writes without a fraction. The panels read it as it is read here
    (parseSize in widgets/base/panel.js).
    """
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text.strip()):
        found, left = int(text, 16), 0
    elif match := _SIZE.fullmatch(text.strip()):
        unit = _UNITS.index((match[3] or "").lower())
        scaled = int(match[1] + (match[2] or "")) << 10 * unit
        found, left = divmod(scaled, 10 ** len(match[2] or ""))
    else:
        raise ValueError(f"{text!r} is no size: write bytes, or 64K, 512M, 4G (K is 1024)")
    if left or found < least:
        words = {0: "", 1: ", one or more"}.get(least, f", {least} or more")
        raise ValueError(f"{text!r} is no whole number of bytes{words}")
    if found > _LARGEST:
        raise ValueError(f"{text!r} is more than any machine has: the limit is {_LARGEST}")
    return found
