"""Bytes as text for the clipboard: hex, text, Python, C, NumPy."""

from __future__ import annotations

from collections.abc import Callable

MAX_BYTES = 1 << 20  # bytes per copy

# Value types of the hex view: size in bytes, and NumPy's type code (bf16 has none).
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


FORMATS: dict[str, Callable[[bytes], str]] = {
    "hex": lambda data: data.hex(" "),
    "text": lambda data: data.decode("utf-8", "replace"),
    "python": repr,
    "c": _c_array,
}


def format_bytes(data: bytes, form: str, dtype: str = "u8", endian: str = "little") -> str:
    """Return bytes as text.

    Args:
        data: The bytes.
        form: A key of FORMATS, or "numpy" for a NumPy expression.
        dtype: The value type of the NumPy expression, a key of DTYPES.
        endian: The byte order of the NumPy expression, "little" or "big".

    Raises:
        ValueError: The format is unknown, or the size is not a multiple of the value size.
    """
    if form in FORMATS:
        return FORMATS[form](data)
    if form != "numpy":
        known = ", ".join(FORMATS)
        raise ValueError(f"unknown copy format {form!r}; formats: {known}, numpy")
    size, code = DTYPES.get(dtype, DTYPES["u8"])
    if len(data) % size:
        raise ValueError(f"{len(data):,} bytes are not a multiple of the {size} bytes of a {dtype}")
    order = "|" if size == 1 else "<" if endian == "little" else ">"
    return f'np.frombuffer(bytes.fromhex("{data.hex()}"), dtype="{order}{code}")'
