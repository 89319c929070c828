# SPDX-License-Identifier: Apache-2.0
"""JSON that somebody else wrote."""

from __future__ import annotations

import json
from typing import Any

_MOST_LEVELS = 64  # a notebook has fewer than 20, and repr() of 1000 levels fails
_TOO_DEEP = f"it is nested more than {_MOST_LEVELS} levels deep"


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not JSON, or its arrays and objects are nested too deeply.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError if lists and dicts are nested more than 64 levels deep."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
