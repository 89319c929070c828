# SPDX-License-Identifier: Apache-2.0
"""The notebook's variables: finding memory, evaluating expressions."""

from __future__ import annotations

import keyword
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from ... import memory
from ...buffers import has_objects
from ...units import size_text

if TYPE_CHECKING:
    from .page_input import Json

T = TypeVar("T")

_MAX_CANDIDATES = 200


def user_namespace() -> dict[str, Any]:
    """Return the user's variables, in place.

    Raises:
        ValueError: This process is not an IPython kernel.
    """
    shell = None
    if "IPython" in sys.modules:
        from IPython import get_ipython

        shell = get_ipython()
    if shell is None:
        raise ValueError("no notebook variables: this process is not an IPython kernel")
    found: dict[str, Any] = shell.user_ns
    return found


def all_variables() -> dict[str, Any]:
    """Return a copy of the user's variables; none outside a kernel."""
    try:
        return dict(user_namespace())
    except ValueError:
        return {}


def variable(name: str) -> Any:
    """Return the value of a variable.

    Raises:
        ValueError: The name is invalid, or no such variable exists.
    """
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is not a valid variable name")
    variables = user_namespace()
    if name not in variables:
        raise ValueError(f"the notebook has no variable {name!r}: run the cell that defines it")
    return variables[name]


def candidates() -> list[Json]:
    """Return the variables that can be registered as memory, at most 200.

    Returns:
        `name`, `text` (type and size) and `readonly` of each; empty outside a kernel.
    """
    try:
        variables = list(user_namespace().items())
    except ValueError:
        return []
    found: list[Json] = []
    for name, value in variables:
        if not name.startswith("_") and len(found) < _MAX_CANDIDATES:
            description = _describe(value)
            if description:
                found.append({"name": name, **description})
    return found


def _describe(value: Any) -> Json | None:
    """Describe a value if it is memory; reads its type and its buffer's format, not its bytes."""
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


def evaluate(expression: str, max_size: int) -> bytes:
    """Evaluate an expression in the notebook and copy the bytes of its result.

    Args:
        expression: A Python expression of the notebook's variables.
        max_size: Largest number of bytes to copy.

    Raises:
        TypeError: The result has no bytes, or is text.
        ValueError: The expression is empty or raised an exception, or its result is larger than
            `max_size`; nothing is copied then.
    """
    if not expression.strip():
        raise ValueError("the expression is empty")
    variables = user_namespace()
    try:
        result = eval(expression.strip(), variables)
    except Exception as error:
        raise ValueError(f"the expression raised {type(error).__name__}: {error}") from error
    return _bytes_of(result, max_size)


def _bytes_of(result: Any, max_size: int) -> bytes:
    import numpy as np

    if isinstance(result, str):
        raise TypeError("the result is text: select the payload 'text', or call .encode()")
    _check_size(result, max_size)
    if memory.is_gpu_array(result):
        result = result.get() if hasattr(result, "get") else np.from_dlpack(result.cpu())
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    array = np.asarray(result)
    if array.dtype.hasobject:
        raise TypeError(f"the result has type {type(result).__name__}, which has no bytes to write")
    _check_size(array, max_size)
    return array.tobytes()


def _check_size(result: Any, max_size: int) -> None:
    size = len(result) if isinstance(result, bytes | bytearray) else getattr(result, "nbytes", 0)
    if isinstance(size, int) and size > max_size:
        raise ValueError(f"the result has {size_text(size)}; the limit is {size_text(max_size)}")
