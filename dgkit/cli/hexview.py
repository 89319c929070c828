"""Bytes as offset, hex and ASCII."""

from __future__ import annotations

__all__ = ["hex_lines"]


def hex_lines(data: bytes, *, offset: int = 0) -> list[str]:
    """16 bytes a line, 76 columns: offset, two groups of eight, printable ASCII or a dot."""
    return [_line(data[at : at + 16], offset + at) for at in range(0, len(data), 16)]


def _line(row: bytes, offset: int) -> str:
    halves = (" ".join(f"{byte:02x}" for byte in half) for half in (row[:8], row[8:]))
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
    left, right = halves
    return f"{offset:08x}  {left:<23}  {right:<23}  {text}"
