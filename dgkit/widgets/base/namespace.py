"""The notebook's variables: which are memory, what an expression is, a new name for bytes."""

from __future__ import annotations

import builtins
import keyword
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from ... import memory
from ...buffers import has_objects
from ...units import size_text

__all__ = ["bind", "candidates", "check_available", "evaluate", "still_bound", "variable"]

T = TypeVar("T")

_MOST = 200  # names that are offered


def user_namespace() -> dict[str, Any]:
    """The user's variables, in place. ValueError: no notebook runs here."""
    shell = None
    if "IPython" in sys.modules:
        from IPython import get_ipython

        shell = get_ipython()
    if shell is None:
        raise ValueError("there are no variables of a notebook here: this is no IPython kernel")
    found: dict[str, Any] = shell.user_ns
    return found


def variable(name: str) -> Any:
    """What a name stands for. ValueError: for nothing."""
    _check(name)
    known = user_namespace()
    if name not in known:
        raise ValueError(f"the notebook has no variable {name!r}: run the cell that makes it")
    return known[name]


def candidates() -> list[dict[str, Any]]:
    """Variables that may be registered: `name`, `text` (what they are), `readonly`."""
    try:
        known = list(user_namespace().items())
    except ValueError:
        return []
    found: list[dict[str, Any]] = []
    for name, value in known:
        if not name.startswith("_") and len(found) < _MOST:
            about = _about(value)
            if about:
                found.append({"name": name, **about})
    return found


def _about(value: Any) -> dict[str, Any] | None:
    """What a value is, if it is memory. It is not touched: its class is asked."""
    kind = type(value)
    if hasattr(kind, "__cuda_array_interface__"):
        size = getattr(value, "nbytes", 0)
        return {"text": f"{kind.__name__} on a GPU, {size_text(size)}", "readonly": False}
    try:
        with memoryview(value) as view:
            if not view.contiguous or not view.nbytes or has_objects(view):
                return None
            text = f"{kind.__name__}, {size_text(view.nbytes)}"
            return {"text": text, "readonly": view.readonly}
    except (TypeError, ValueError, BufferError):
        return None


def evaluate(expression: str, most: int) -> tuple[bytes, str]:
    """The bytes of an expression's result, copied, and what it was.

    ValueError: the expression fails, in its own words, or its result has more than `most` bytes,
    and none was copied; TypeError: its result has no bytes.
    """
    if not expression.strip():
        raise ValueError("the expression is empty")
    names = user_namespace()
    try:
        result = eval(expression.strip(), names)
    except Exception as error:
        raise ValueError(f"the expression raised {type(error).__name__}: {error}") from error
    return _bytes_of(result, most)


def _bytes_of(result: Any, most: int) -> tuple[bytes, str]:
    import numpy as np

    if isinstance(result, str):
        raise TypeError("the result is text: choose the payload 'text', or call .encode()")
    _bounded(result, most)
    if memory.is_gpu_array(result):
        result = result.get() if hasattr(result, "get") else np.from_dlpack(result.cpu())
    if isinstance(result, bytes | bytearray | memoryview):
        made = bytes(result)
        return made, f"{type(result).__name__}, {len(made)} bytes"
    array = np.asarray(result)
    if array.dtype.hasobject:
        kind = type(result).__name__
        raise TypeError(f"the result is a {kind}, which has no bytes that could be moved")
    _bounded(array, most)
    about = f"{array.dtype} array {array.shape}" if array.shape else f"{array.dtype} {array}"
    return array.tobytes(), f"{about}, {array.nbytes} bytes"


def _bounded(result: Any, most: int) -> None:
    size = len(result) if isinstance(result, bytes | bytearray) else getattr(result, "nbytes", 0)
    if isinstance(size, int) and size > most:
        raise ValueError(f"the result has {size_text(size)}; {size_text(most)} is the most")


def check_available(name: str, *, mine: Mapping[str, object]) -> None:
    """ValueError: it is no name, or the notebook has it for something that is not in `mine`."""
    _check(name)
    known = user_namespace()
    if hasattr(builtins, name):
        raise ValueError(f"{name!r} is a name of Python's own: take another")
    if name in known and not (name in mine and known[name] is mine[name]):
        kind = type(known[name]).__name__
        raise ValueError(f"the notebook has a variable {name!r} already (a {kind}): take another")


def bind(name: str, value: Any, *, mine: Mapping[str, object]) -> None:
    """Gives a value a name in the notebook. ValueError: as free()."""
    check_available(name, mine=mine)
    user_namespace()[name] = value


def still_bound(values: Mapping[str, T]) -> dict[str, T]:
    """Those that the notebook has under their names."""
    known = user_namespace() if values else {}
    return {name: value for name, value in values.items() if known.get(name) is value}


def _check(name: str) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name of a variable")
