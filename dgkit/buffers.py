# SPDX-License-Identifier: Apache-2.0
"""Objects with the buffer protocol: what `memory`, `dma` and `session` require of them."""

from __future__ import annotations

import errno

from .errors import Unsupported

TYPE_CHECKING = False  # importing typing costs more than this whole module
if TYPE_CHECKING:
    from typing import Any


def flat_view(obj: Any) -> memoryview:
    """Return all bytes of an object in place, as a flat memoryview of format B.

    Raises:
        TypeError: No buffer, GPU memory, or items that are Python objects.
        ValueError: No bytes.
        Unsupported: Not contiguous, or a PyTorch tensor that requires grad.
    """
    kind = type(obj).__name__
    check_no_grad(obj)
    try:
        view = memoryview(obj)
    except BufferError as error:  # JAX, for dtypes that the buffer protocol lacks
        raise Unsupported(errno.EOPNOTSUPP, f"{kind} exposes no bytes: {error}") from error
    except TypeError:
        if hasattr(obj, "__cuda_array_interface__"):
            raise TypeError(
                f"{kind} is in GPU memory: register dgkit.wrap(array) instead"
            ) from None
        if not hasattr(obj, "__dlpack__"):
            raise no_buffer("memory", obj) from None
        view = _dlpack_view(obj)
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


def no_buffer(what: str, value: object) -> TypeError:
    """Return the error for an argument without bytes.

    Args:
        what: The argument's name.
        value: The argument.
    """
    kind = type(value).__name__
    hint = "; encode text first: text.encode()" if kind == "str" else ""
    return TypeError(
        f"{what} has type {kind}; it must be bytes, or have the buffer protocol, as arrays have"
        + hint
    )


def _dlpack_view(obj: Any) -> memoryview:
    """Return the bytes of host memory that an object exposes by DLPack alone (PyTorch)."""
    import numpy as np

    try:
        return np.from_dlpack(obj).data
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"NumPy cannot access the bytes of this {type(obj).__name__} by DLPack: {error}",
        ) from error


def check_no_grad(obj: Any) -> None:
    """Raise Unsupported for a PyTorch tensor that requires grad, whose bytes PyTorch withholds."""
    if getattr(obj, "requires_grad", None) is True:
        raise Unsupported(
            errno.EOPNOTSUPP,
            f"this {type(obj).__name__} requires grad, so PyTorch does not expose its bytes: "
            "register tensor.detach(), which shares its memory",
        )


def has_objects(view: memoryview) -> bool:
    """Return whether the items of a view are Python objects (format `O`).

    Field names, which a format has between colons, are skipped.
    """
    return "O" in "".join((view.format or "B").split(":")[::2])


def contiguous_view(data: Any) -> memoryview:
    """Return the bytes of a buffer as one contiguous view; a copy if they are not contiguous.

    Raises:
        TypeError: `data` has no buffer protocol, or holds Python objects.
    """
    try:
        view = memoryview(data)
    except TypeError:
        raise no_buffer("data", data) from None
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if has_objects(view):
        raise TypeError("data holds Python objects, which have no bytes to transfer")
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # strided, or a multi-character format
        return memoryview(view.tobytes())
