# SPDX-License-Identifier: Apache-2.0
"""Python code that repeats a panel's action in a notebook cell."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import namespace
from .fill_patterns import Pattern

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

_namers: list[Callable[[Session], str]] = []
_MAX_LITERAL = 1 << 10  # most bytes written as a literal
MAX_ENCODED = 1 << 16  # most bytes written in base64


def session_expression(session: Session) -> str:
    """Return the expression for a session: a variable of the notebook, or how to get it."""
    variables = namespace.all_variables()
    for name, value in variables.items():
        if value is session and not name.startswith("_"):
            return name
    for name, value in variables.items():
        if not name.startswith("_") and getattr(value, "session", None) is session:
            return f"{name}.session"
    return next(filter(None, (name_of(session) for name_of in _namers)), "session")


def add_namer(name_of: Callable[[Session], str]) -> None:
    """Add a function that returns an expression for a session, or ""."""
    _namers.append(name_of)


def region_lines(region: SessionRegion) -> list[str]:
    """Return lines that bind `session` and `region`."""
    session = region.session
    lines = session_lines(session)
    for name, value in namespace.all_variables().items():
        if value is region and not name.startswith("_"):
            return lines if name == "region" else [*lines, f"region = {name}"]
    same = [other for other in session.regions if other.name == region.name]
    key = f"name == {region.name!r}" if len(same) <= 1 else f"id == {region.id}"
    return [*lines, f"region = next(one for one in session.regions if one.{key})"]


def session_lines(session: Session) -> list[str]:
    """Return the line that binds `session`; no line if it is already bound."""
    expression = session_expression(session)
    return [] if expression == "session" else [f"session = {expression}"]


def bytes_expression(data: bytes, elsewhere: str) -> str:
    """Return an expression for bytes; `elsewhere` if it would be too long for a cell."""
    if len(data) <= _MAX_LITERAL:
        return repr(bytes(data))
    if len(data) <= MAX_ENCODED:
        return f'base64.b64decode("{base64.b64encode(data).decode()}")'
    return elsewhere


def pattern_expression(pattern: Pattern, size: int, dtype: str = "u1") -> str:
    """Return an expression for `size` bytes of a pattern, counted in items of `dtype`."""
    import numpy as np

    kind, unit = pattern.kind, pattern.unit
    if kind == "random":
        return f"np.random.default_rng({pattern.seed}).bytes({size})"
    if kind == "counter":
        item = np.dtype(dtype)
        items, bits = -(-size // item.itemsize), pattern.counter_bits(dtype)
        counted = f'(np.arange({items}, dtype="u8") & {(1 << bits) - 1:#x}).astype("{dtype}")'
        return f"{counted}.tobytes()[:{size}]"
    if kind == "zeros":
        return f"bytes({size})"
    repeats = -(-size // len(unit))
    return f"{unit!r} * {repeats}" if len(unit) == 1 else f"({unit!r} * {repeats})[:{size}]"


def script(lines: Sequence[str]) -> str:
    """Return lines as a script, which imports the modules that they use."""
    text = "\n".join(lines)
    used = {
        "import base64": "base64.", "import statistics": "statistics.", "import time": "time.",
        "from pathlib import Path": "Path(",
        "import numpy as np": "np.", "import dgkit": "dgkit.",
    }  # fmt: skip
    head = [line for line, name in used.items() if name in text]
    return "\n".join([*head, "", text] if head else [text]) + "\n"
