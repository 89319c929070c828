"""Regions in use by panels: the user is asked before such a region is freed."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...session import SessionRegion

__all__ = ["uses", "using"]

_lock = threading.Lock()
_uses: weakref.WeakKeyDictionary[Any, list[tuple[int, str]]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def using(region: SessionRegion, what: str) -> Iterator[None]:
    """Mark a region as in use for the block.

    Args:
        region: The region.
        what: The use, as shown to the user: `a fill`.
    """
    use = (region.id, what)
    with _lock:
        _uses.setdefault(region.session, []).append(use)
    try:
        yield
    finally:
        with _lock:
            _uses[region.session].remove(use)


def uses(region: SessionRegion) -> list[str]:
    """Return the current uses of a region."""
    with _lock:
        return [what for number, what in _uses.get(region.session, ()) if number == region.id]
