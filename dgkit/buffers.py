"""Validation of objects that support the buffer protocol, shared by `memory` and `dma`."""

from __future__ import annotations

import errno

from .errors import Unsupported

TYPE_CHECKING = False  # importing typing costs more than this whole module
if TYPE_CHECKING:
    from typing import Any

__all__ = ["flat_view", "has_objects"]


def flat_view(obj: Any) -> memoryview:
    """Return all bytes of an object in place, as a flat memoryview of format B.

    Raises:
        TypeError: No buffer, GPU memory, or items that are Python objects.
        ValueError: No bytes.
        Unsupported: Not contiguous.
    """
    kind = type(obj).__name__
    try:
        view = memoryview(obj)
    except TypeError:
        if not hasattr(obj, "__cuda_array_interface__"):
            raise
        raise TypeError(f"{kind} is in GPU memory: register dgkit.wrap(array) instead") from None
    if has_objects(view):
        raise TypeError(f"{kind} holds Python objects, whose bytes cannot be moved")
    if not view.contiguous:
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"{kind} is not contiguous: register the array that it is a view of, and use write_2d "
            "or read_2d with its strides",
        )
    if view.nbytes == 0:
        raise ValueError(f"{kind} has 0 bytes; the minimum is 1")
    if not view.c_contiguous:  # Fortran order: the same bytes as the transposed array
        import numpy as np

        view = memoryview(np.asarray(view).T)
    return view.cast("B")


def has_objects(view: memoryview) -> bool:
    """Return whether the items of a view are Python objects (format `O`).

    Field names, which a format has between colons, are skipped.
    """
    return "O" in "".join((view.format or "B").split(":")[::2])
