# SPDX-License-Identifier: Apache-2.0
"""Weak set that a thread can iterate while other threads add and drop members."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Generic, TypeVar

    T = TypeVar("T")
else:
    T, Generic = None, {None: object}


class LiveSet(Generic[T]):
    """Weak references to objects, in the order in which they were added. Thread-safe.

    A `weakref.WeakSet` raises RuntimeError if another thread adds a member during an iteration, and
    keeps a dead member whose removal was interrupted.
    """

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, weakref.ref[T]] = {}

    def add(self, member: T) -> None:
        """Add an object."""
        # The callback is C code, which cannot be interrupted before it removes the member.
        gone = partial(self._by_id.pop, id(member))
        self._by_id[id(member)] = weakref.ref(member, gone)

    def discard(self, member: T) -> None:
        """Remove an object if it is a member."""
        self._by_id.pop(id(member), None)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[T]:
        """Iterate over a snapshot; members stay referenced during iteration."""
        members = [ref() for ref in list(self._by_id.values())]
        return iter([member for member in members if member is not None])
