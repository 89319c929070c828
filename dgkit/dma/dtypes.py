# SPDX-License-Identifier: Apache-2.0
"""Batch layouts: `dg_wr` and `dg_wc` of native/dgkit.h as NumPy dtypes; pointers of such arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._ffi import ffi

if TYPE_CHECKING:
    from ._ffi import native

_FORMATS = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def _dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of a C struct, with the C compiler's field offsets and sizes."""
    struct = ffi.typeof(name)
    names, formats, offsets = [], [], []
    for field_name, field in struct.fields:
        names.append(field_name)
        signed = field.type.cname.startswith("int")
        code = _FORMATS[ffi.sizeof(field.type)]
        formats.append(code.replace("u", "i") if signed else code)
        offsets.append(field.offset)
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(struct)}
    )


#: Work request, 64 bytes: user, local, remote (region ids), local_offset, remote_offset, size
#: (bytes of a row), local_stride, remote_stride (bytes), rows, op (0 read, 1 write, 2 fetch-add, 3
#: compare-swap), flags (1 fence, 2 chain). For ops 2 and 3, size is 8, local_stride is the addend
#: or the value to compare with, remote_stride the value to store if the word equals it.
WR_DTYPE = _dtype("dg_wr")

#: Completion, 48 bytes: user, size (bytes), submit_ns, post_ns, complete_ns, status, op, path
#: (1 inline, 2 worker), flags (1: a stamp is shared).
WC_DTYPE = _dtype("dg_wc")


def work_requests(array: Any) -> native.Array:
    """Return a flat array of WR_DTYPE as `dg_wr[]`. Raises TypeError otherwise."""
    return _array_pointer(array, WR_DTYPE, "WR", writable=False)


def completions(array: Any) -> native.Array:
    """Return a flat, writable array of WC_DTYPE as `dg_wc[]`. Raises TypeError otherwise."""
    return _array_pointer(array, WC_DTYPE, "WC", writable=True)


def _array_pointer(array: Any, dtype: Any, name: str, *, writable: bool) -> native.Array:
    if getattr(array, "dtype", None) != dtype or array.ndim != 1:
        raise TypeError(f"a flat array of dgkit.{name}_DTYPE is needed, not {array!r:.80}")
    if not array.flags.c_contiguous or (writable and not array.flags.writeable):
        raise TypeError(f"the array of dgkit.{name}_DTYPE must be contiguous and writable")
    return ffi.from_buffer(f"dg_{name.lower()}[]", array, require_writable=writable)
