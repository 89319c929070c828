# SPDX-License-Identifier: Apache-2.0
"""Files that other programs compressed with gzip, with a limit of their size."""

from __future__ import annotations

import zlib

MAX_BYTES = 256 << 20  # of the decompressed file


def head(data: bytes) -> bytes:
    """Return the first bytes of a file, decompressed if it is compressed; b"" if it is damaged."""
    if not data.startswith(b"\x1f\x8b"):
        return data[:4096]
    try:
        return zlib.decompressobj(wbits=31).decompress(data, 4096)
    except zlib.error:
        return b""


def unpacked(data: bytes) -> bytes:
    """Return the content of a file, compressed or not.

    Raises:
        ValueError: It is damaged, or larger than 256 MiB.
    """
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return found
