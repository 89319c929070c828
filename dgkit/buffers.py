"""What `memory` and `dma` both ask of an object that has a buffer."""

from __future__ import annotations

import errno

from .errors import Unsupported

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["flat_view", "has_objects"]


def flat_view(obj: Any) -> memoryview:
    """All bytes of an object of the buffer protocol, in place, as a flat memoryview of u1.

    TypeError without a buffer, ValueError for no bytes, Unsupported if they are not contiguous.
    """
    kind = type(obj).__name__
    try:
        view = memoryview(obj)
    except TypeError:
        if not hasattr(obj, "__cuda_array_interface__"):
            raise
        raise TypeError(f"{kind} lies on a GPU: register dgkit.wrap(array) instead") from None
    if has_objects(view):
        raise TypeError(f"{kind} holds Python objects, which have no bytes that could be moved")
    if not view.contiguous:
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{kind} is not contiguous: register the array that it is a view of, "
            "and use write_2d or read_2d with its strides",
        )
    if view.nbytes == 0:
        raise ValueError(f"{kind} has no bytes; a memory needs at least one")
    if not view.c_contiguous:  # Fortran's order: the same bytes, seen as the transposed array
        import numpy as np

        view = memoryview(np.asarray(view).T)
    return view.cast("B")


def has_objects(view: memoryview) -> bool:
    """Whether its items are Python objects; field names of its format stand between colons."""
    return "O" in "".join((view.format or "B").split(":")[::2])
