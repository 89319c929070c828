"""Bytes as text for the clipboard: hex, text, Python, C, NumPy."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["DTYPES", "FORMS", "MOST", "as_form"]

MOST = 1 << 20  # bytes that are copied at once

# What the hex view reads a row as: the bytes of one value, and NumPy's letter (bf16 has none).
DTYPES = {
    "u8": (1, "u1"), "i8": (1, "i1"), "u16": (2, "u2"), "i16": (2, "i2"), "u32": (4, "u4"),
    "i32": (4, "i4"), "u64": (8, "u8"), "i64": (8, "i8"), "f16": (2, "f2"), "bf16": (2, "u2"),
    "f32": (4, "f4"), "f64": (8, "f8"),
}  # fmt: skip


def _c_array(data: bytes) -> str:
    lines = [
        "  " + ", ".join(f"0x{byte:02x}" for byte in data[at : at + 12]) + ","
        for at in range(0, len(data), 12)
    ]
    return f"const uint8_t data[{len(data)}] = {{\n" + "\n".join(lines) + "\n};"


FORMS: dict[str, Callable[[bytes], str]] = {
    "hex": lambda data: data.hex(" "),
    "text": lambda data: data.decode("utf-8", "replace"),
    "python": repr,
    "c": _c_array,
}


def as_form(data: bytes, form: str, dtype: str = "u8", endian: str = "little") -> str:
    """`form` is one of FORMS, or "numpy": an expression of that dtype. ValueError: neither, or the
    bytes are no whole number of values."""
    if form in FORMS:
        return FORMS[form](data)
    if form != "numpy":
        raise ValueError(f"bytes are copied as {', '.join(FORMS)} or numpy, not as {form!r}")
    size, letter = DTYPES.get(dtype, DTYPES["u8"])
    if len(data) % size:
        raise ValueError(f"{len(data)} bytes are no whole number of {dtype}, which has {size}")
    order = "|" if size == 1 else "<" if endian == "little" else ">"
    return f'np.frombuffer(bytes.fromhex("{data.hex()}"), dtype="{order}{letter}")'
