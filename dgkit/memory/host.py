# SPDX-License-Identifier: Apache-2.0
"""Host memory: a sealed memfd, which other processes of this user map by its descriptor."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from ..errors import ClosedError, LimitReached, OutOfMemory
from ..files import Fd
from ..unique import Closable
from ..units import dtype_text
from .meminfo import available_bytes
from .shape import total_size

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, TypeVar

    import numpy as np

    Self = TypeVar("Self", bound="HostBase")

_MADV_POPULATE_READ = 22  # <linux/mman.h>; Linux 5.14
_PART = 4 << 20  # bytes that are mapped in one call: about 1 ms
# <linux/fcntl.h>; Python's fcntl lacks some of them.
_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 0x1, 0x2, 0x4, 0x10


class HostBase(Closable):
    """Bytes that the CPU reads and writes. `_buffer` is None once closed."""

    place = "host"
    fd_offset = 0
    gpu = None
    _buffer: memoryview | None

    @property
    def closed(self) -> bool:
        """True if the memory is closed."""
        return self._buffer is None

    @property
    def buffer(self) -> memoryview:
        """All bytes, flat."""
        buffer = self._buffer  # read once: another thread may close the memory
        if buffer is None:
            raise ClosedError(f"{self!r} is closed")
        return buffer

    if TYPE_CHECKING:

        @property
        def array(self) -> np.ndarray[Any, Any]:
            """The bytes as a NumPy array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return `array`, for `numpy.asarray`: NumPy would else make an array of one object."""
        import numpy as np

        return np.array(self.array, dtype=dtype, copy=copy)

    def close(self) -> None:
        """Release the bytes; regions and arrays over them keep them alive. Idempotent."""
        self._buffer = None


class HostMemory(HostBase):
    """Host memory that other processes can map. Created by `dgkit.empty`.

    `size` bytes, zeroed. The pages are reserved: if memory is short, the allocation raises an
    error, not a later access. The memfd is sealed against shrinking and growing, so it cannot crash
    an importer. Closing frees the bytes once no region and no array uses them.
    """

    share_process = False
    chosen = ""
    _title = "Host memory"
    _mmap_class: type[mmap.mmap] | None = None  # None: mmap.mmap

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, *, readonly_export: bool, name: str | None
    ) -> None:
        self.size = total_size(shape, dtype)
        self.shape = shape
        self.dtype = dtype
        self.name = name
        self.readonly_export = readonly_export
        mmap_class = self._mmap_class or mmap.mmap
        self._keep, mapped = _allocate(self.size, readonly_export, mmap_class)
        self._buffer = memoryview(mapped)

    @property
    def keep(self) -> object:
        """Object to hold while `fd` is in use."""
        return self._keep

    @property
    def fd(self) -> int:
        """The memfd."""
        keep = self._keep  # read once: another thread may close the memory
        if keep is None:
            raise ClosedError(f"{self!r} is closed")
        return keep.number

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The bytes as a NumPy array of `shape` and `dtype`. Imports NumPy."""
        import numpy as np

        return np.frombuffer(self.buffer, dtype=self.dtype).reshape(self.shape)

    def close(self) -> None:
        """Release the memory; regions and arrays over it keep its bytes alive. Idempotent."""
        super().close()
        self._keep = None

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        chosen = f"; on='auto' chose {self.chosen}" if self.chosen else ""
        what = f"{self.shape} {dtype_text(self.dtype)} = {self.size} bytes"
        return f"<dgkit.{type(self).__name__}{name} {what}{chosen}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card

        rows = [("Name", self.name)] if self.name else []
        rows += [
            ("Size", f"{self.size} bytes"),
            ("Shape", f"{self.shape} of {dtype_text(self.dtype)}"),
        ]
        rows += [("Chosen by on='auto'", self.chosen)] if self.chosen else []
        rows += [("Importers may", "read" if self.readonly_export else "read and write")]
        return card(f"{self._title} (closed)" if self.closed else self._title, rows)


def _allocate(
    size: int, readonly_export: bool, mmap_class: type[mmap.mmap]
) -> tuple[Fd | None, mmap.mmap]:
    try:
        limit = available_bytes()
        if size > limit:
            text = f"{size:,} bytes requested, {limit:,} available; none were allocated"
            raise OutOfMemory(errno.ENOMEM, text)
        keep = Fd(os.memfd_create, "dgkit", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.posix_fallocate(keep.number, 0, size)
        mapped = mmap_class(keep.number, size, flags=mmap.MAP_SHARED)
        if not _populate(mapped):
            mapped = mmap_class(keep.number, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OutOfMemory:
        raise
    except OSError as error:
        raise _to_dgkit_error(error, size) from None
    seals = _SEAL_SHRINK | _SEAL_GROW
    if readonly_export:
        fcntl.fcntl(keep.number, _F_ADD_SEALS, seals | _SEAL_FUTURE_WRITE)
        seals = _SEAL_SEAL
    fcntl.fcntl(keep.number, _F_ADD_SEALS, seals)
    return keep, mapped


def _populate(mapped: mmap.mmap) -> bool:
    """Map the pages now, so that their first accesses raise no page faults.

    It works in parts, because the GIL is held during a call and other threads run only between two
    calls. mmap() with MAP_POPULATE would block them for the whole time, a third of a second for 1
    GiB.

    Returns:
        False if the kernel does not support it.
    """
    for start in range(0, len(mapped), _PART):
        try:
            mapped.madvise(_MADV_POPULATE_READ, start, _PART)
        except OSError as error:
            return error.errno != errno.EINVAL
    return True


def _to_dgkit_error(error: OSError, size: int) -> Exception:
    code = error.errno or 0
    if code in (errno.EMFILE, errno.ENFILE):
        what = "open files (ulimit -n)" if code == errno.EMFILE else "open files of the system"
        return LimitReached(code, f"the limit of {what} is reached; close some memory first")
    if code == errno.ENOMEM and size < available_bytes() // 2:
        what = "mappings (vm.max_map_count) or of address space (ulimit -v)"
        return LimitReached(code, f"the limit of {what} is reached; close some memory first")
    return OutOfMemory(code, f"{size} bytes could not be reserved: {error.strerror}")
