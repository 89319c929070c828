# SPDX-License-Identifier: Apache-2.0
"""Exports of Python buffers to C."""

from __future__ import annotations

from ._ffi import ffi

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any


def exported(view: memoryview) -> tuple[Any, Any]:
    """Return the address of a view's bytes as `char *`, and an object that keeps them in place.

    The object exports the view's owner, not the view: CPython 3.11, and 3.12 before 3.12.7, crash
    if the cycle collector clears a memoryview that another object has exported (gh-77894).
    """
    address = ffi.cast("char *", ffi.from_buffer("char[]", view))
    try:
        return address, ffi.from_buffer("char[]", view.obj)
    except (TypeError, ValueError, BufferError):  # the owner has more bytes, not contiguous
        return address, ffi.from_buffer("char[]", view)
