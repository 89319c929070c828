"""Allowlist: names made of the doctor's own vocabulary, which are never redacted.

A host named `core` or `gpu0`, or a folder named `lib`, is not identifying, and replacing the word
wherever it occurs would make the readings useless.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

__all__ = ["is_allowed"]

_WORD = re.compile("[a-z]+")
_DOCTOR = Path(__file__).parents[1]


@functools.cache
def _vocabulary() -> frozenset[str]:
    """Return all words of the doctor's source code, which names everything that it looks for."""
    words: set[str] = set()
    for path in _DOCTOR.rglob("*.py"):
        words.update(_WORD.findall(path.read_text("utf-8").lower()))
    return frozenset(words)


def is_allowed(name: str) -> bool:
    """Return whether a name may stay: at most four digits, and only known or two-letter words."""
    return sum(map(str.isdigit, name)) <= 4 and all(
        len(word) < 3 or word in _vocabulary() for word in _WORD.findall(name.lower())
    )
