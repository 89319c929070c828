"""The words that the doctor itself uses: what is called like one of them names nobody.

A host called `core` or `gpu0`, a folder called `lib`: to replace these wherever they stand would
spoil the readings, and would hide nothing.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

__all__ = ["says_nothing"]

_WORD = re.compile("[a-z]+")


@functools.cache
def _own() -> frozenset[str]:
    """Out of its program: what it looks for stands there."""
    found: set[str] = set()
    for path in Path(__file__).parents[1].rglob("*.py"):
        found.update(_WORD.findall(path.read_text("utf-8").lower()))
    return frozenset(found)


def says_nothing(name: str) -> bool:
    """Whether all its words are the doctor's own, or of two letters at most, with few digits."""
    return sum(map(str.isdigit, name)) <= 4 and all(
        len(word) < 3 or word in _own() for word in _WORD.findall(name.lower())
    )
