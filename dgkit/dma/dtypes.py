"""Batch layouts: `dg_wr` and `dg_wc` of native/dgkit.h as NumPy dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._ffi import ffi

__all__ = ["WC_DTYPE", "WR_DTYPE"]

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
#: compare-swap), flags (1 fence, 2 chain). Of 2 and 3 size is 8, local_stride what to add or to
#: compare with, remote_stride what to store if the word equals it.
WR_DTYPE = _dtype("dg_wr")

#: Completion, 48 bytes: user, size (bytes), submit_ns, post_ns, complete_ns, status, op, path
#: (1 inline, 2 worker), flags (1: a stamp is shared).
WC_DTYPE = _dtype("dg_wc")
