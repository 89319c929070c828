# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments of the emulated GPU, and the shared memory that they point to."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

from ..buffers import flat_view
from ..dma import KernelQueue, Region
from ..dma.bytes_memory import address_of
from ..types import is_memory

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Mapping:
    """Shared memory that the emulated GPU maps at the address that it has in this process.

    Attributes:
        fd: File descriptor of the shared memory.
        offset: Offset of the first byte in the file; a multiple of the page size.
        size: Bytes.
        address: Address in both processes.
    """

    fd: int
    offset: int
    size: int
    address: int


class _Copy:
    """Shared copy of a private buffer, filled before the launch and copied back after it."""

    def __init__(self, buffer: Any) -> None:
        self.original = flat_view(buffer)
        fd = os.memfd_create("dgkit-emulated", os.MFD_CLOEXEC)
        os.truncate(fd, self.original.nbytes)
        self._shared = mmap.mmap(fd, self.original.nbytes)
        self._shared[:] = self.original.tobytes()
        self.mapping = Mapping(fd, 0, self.original.nbytes, address_of(self._shared))

    def close(self) -> None:
        """Copy the bytes back and release the shared memory."""
        if not self.original.readonly:
            self.original[:] = memoryview(self._shared)[:]
        os.close(self.mapping.fd)
        self._shared.close()


class Arguments:
    """Encoded arguments of one launch, and the memory behind them.

    Raises:
        TypeError: An argument is neither a number nor memory that can be shared or copied.
        ValueError: An integer has more than 64 bits.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.mappings: dict[int, Mapping] = {}
        self._copies: list[_Copy] = []
        try:
            encoded = [self._encode(i, value) for i, value in enumerate(values)]
        except BaseException:
            self.close()
            raise
        self.bytes = struct.pack("<I", len(encoded)) + b"".join(encoded)

    def close(self) -> None:
        """Copy private buffers back."""
        while self._copies:
            self._copies.pop().close()

    def _encode(self, i: int, value: Any) -> bytes:
        if isinstance(value, (bool, int)):
            if not -_INT64 <= value < 2 * _INT64:
                raise ValueError(f"argument {i} is {value}; it must fit 64 bits")
            return _encode_tagged(
                b"I" if value >= _INT64 else b"i", (value % (1 << 64)).to_bytes(8, "little")
            )
        if isinstance(value, float):
            return _encode_tagged(b"f", struct.pack("<d", value))
        if getattr(value, "shape", None) == () and hasattr(value, "dtype"):  # a NumPy scalar
            return _encode_tagged(b"t", value.tobytes())
        return _encode_tagged(b"p", self._address(i, value).to_bytes(8, "little"))

    def _address(self, i: int, value: Any) -> int:
        """Return the address of an argument's first byte, and add its mapping."""
        if isinstance(value, KernelQueue):
            fd, size, address, handle = value._shared_memory()
            self._map(Mapping(fd, value.shared_offset, size, address))
            return handle
        if isinstance(value, Region):
            value = value.memory
        known = is_memory(value)
        if known and getattr(value, "gpu", None) is not None:
            raise TypeError(f"argument {i} is GPU memory, which the emulated GPU cannot access")
        if known and (file := _file_of(value)):
            fd, at = file
            start = address_of(value.buffer)
            before = at % mmap.PAGESIZE
            self._map(Mapping(fd, at - before, value.size + before, start - before))
            return start
        try:
            copy = _Copy(value.buffer if known else value)
        except TypeError as error:
            raise TypeError(f"argument {i} is {value!r:.60}: {error}") from None
        self._copies.append(copy)
        self._map(copy.mapping)
        return copy.mapping.address

    def _map(self, mapping: Mapping) -> None:
        known = self.mappings.get(mapping.address)
        if known is None or known.size < mapping.size:
            self.mappings[mapping.address] = mapping


def _file_of(memory: Any) -> tuple[int, int] | None:
    """Return the file of shared memory and the offset of its first byte; None: it is private."""
    if hasattr(memory, "mapped_file"):  # in a BAR
        return memory.mapped_file  # type: ignore[no-any-return]
    return (memory.fd, memory.fd_offset) if memory.fd >= 0 else None


def _encode_tagged(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<I", len(data)) + data
