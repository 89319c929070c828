"""Allowlist: names made of the doctor's own vocabulary, which are never redacted.

A host named `core` or `gpu0`, or a folder named `lib`, is not identifying, and replacing the word
wherever it occurs would make the readings useless.
"""

from __future__ import annotations

import re

from .vocabulary import WORDS

__all__ = ["is_allowed"]

_WORD = re.compile("[a-z]+")


def is_allowed(name: str) -> bool:
    """Return whether a name may stay: at most four digits, and only known or two-letter words."""
    return sum(map(str.isdigit, name)) <= 4 and all(
        len(word) < 3 or word in WORDS for word in _WORD.findall(name.lower())
    )
