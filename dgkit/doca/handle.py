# SPDX-License-Identifier: Apache-2.0
"""Base of DOCA's objects: parents, children, locking and close()."""

from __future__ import annotations

import atexit
import contextlib
import warnings
import weakref
from collections import deque
from threading import RLock

from ..errors import ClosedError, DgkitError
from ..live_set import LiveSet
from ..unique import Unique
from . import _library
from .doca_errors import InUse

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, ClassVar

CLOSING_S = 5.0  # how long close() waits for tasks in flight

# Objects that a finalizer could not destroy: DOCA may still use them, so they are kept.
_leaked: list[Handle] = []
_roots: LiveSet[Handle] = LiveSet()


class TryLock:
    """Non-blocking, reentrant lock: raises InUse in a second thread.

    Finalizers may run in any thread at any time; they use defer() to run once the lock is free.
    """

    __slots__ = ("_deferred", "_depth", "_lock", "_what")

    def __init__(self, what: str) -> None:
        self._lock = RLock()
        self._depth = 0
        self._deferred: deque[Callable[[], None]] = deque()
        self._what = what

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InUse(f"another thread is using this {self._what}: use one per thread")
        if self._deferred and not self._depth:
            self.run_deferred()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._deferred and not self._depth:
            self.run_deferred()
        self._lock.release()

    def run_deferred(self) -> None:
        """Run what finalizers deferred. The caller holds the lock."""
        while self._deferred:
            self._deferred.popleft()()

    def defer(self, action: Callable[[], None]) -> None:
        """Run the action now if the lock is free, otherwise when it is released."""
        self._deferred.append(action)
        if self._lock.acquire(blocking=False):
            try:
                if not self._depth:
                    self.run_deferred()
            finally:
                self._lock.release()


class Handle(Unique):
    """DOCA object. Children hold their parents; closing a parent closes its children first.

    `close()` is idempotent; a `with` block closes the object at its end. The finalizer of an open
    object warns and closes it after its children, whatever the order in which the garbage collector
    finalizes them.
    """

    __slots__ = ("__weakref__", "_children", "_h", "_orphaned", "_parents")

    _name: ClassVar[str]
    _order: ClassVar[int]  # children with a lower order are closed first
    _pooled: ClassVar[bool] = False  # whether its finalizer silently returns it to its parent

    @classmethod
    def _expect(cls, what: str, value: object) -> None:
        """Raise TypeError unless the argument `what` is an instance of this class."""
        if not isinstance(value, cls):
            kind = type(value).__name__
            raise TypeError(f"{what} is of type {kind}; it must be a doca.{cls.__name__}")

    def __init__(self) -> None:
        self._h: Any = None
        self._parents: tuple[Handle, ...] = ()
        # Keyed by id, because a child that is being finalized still counts although its weak
        # reference is dead.
        self._children: dict[int, weakref.ref[Handle]] = {}
        self._orphaned = False

    def _opened(self, h: Any, *parents: Handle) -> None:
        """Record the C object, which close() must destroy."""
        self._h = h
        self._add_parents(*parents)
        if not parents:
            _roots.add(self)

    def _add_parents(self, *parents: Handle) -> None:
        for parent in parents:
            parent._children[id(self)] = weakref.ref(self)
        self._parents += parents

    def _handle(self) -> Any:
        if self._h is None:
            raise ClosedError(f"this {self._name} is closed")
        if _library.forked():
            raise _library.after_fork(f"this {self._name}")
        return self._h

    @property
    def _guard(self) -> Any:
        """Lock to hold while the C object is used; by default the lock for all control calls."""
        return _library.CONTROL

    def _call(self, name: str, *args: Any) -> None:
        """Call a function whose first argument is this object."""
        with self._guard:
            _library.library().call(name, self._handle(), *args)

    def _get(self, name: str, kind: str, *args: Any) -> Any:
        """Call a function of this object whose last argument is an output; return the output."""
        with self._guard:
            return _library.library().get(name, kind, self._handle(), *args)

    @property
    def closed(self) -> bool:
        """True if the object or a parent is closed."""
        return self._h is None

    def close(self) -> None:
        """Close the children, then the object. Idempotent.

        Raises:
            InUse: Another thread or a transfer uses the object. It stays open; retry close().
        """
        if self._h is None or _library.forked():
            return
        with self._guard:
            self._close_children()
            if self._h is not None:
                self._destroy()
                self._destroyed()

    def _live_children(self) -> list[Handle]:
        """Return the children in the order in which they are closed."""
        children = [child for ref in list(self._children.values()) if (child := ref()) is not None]
        return sorted(children, key=lambda child: child._order)

    def _close_children(self) -> None:
        for child in self._live_children():
            child.close()

    def _destroyed(self) -> None:
        """Release the parents after the C object was destroyed."""
        self._h = None
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent._children.pop(id(self), None)
            if parent._orphaned and not parent._children:
                parent._abandon()

    def _destroy(self) -> None:
        """Destroy the C object; raise if DOCA refuses."""
        raise NotImplementedError

    def _finalize(self) -> None:
        """Destroy an unreferenced object. Never raises."""
        if self._children:  # part of cyclic garbage: the children are finalized later
            self._orphaned = True
            return
        try:
            if self._h is not None:
                self._destroy()
                self._destroyed()
        except DgkitError:
            _leaked.append(self)

    def __enter__(self) -> Any:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_h", None) is None or _library.forked():
            return
        try:
            if not self._pooled:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        with self._guard:
            self._finalize()

    def _summary(self) -> str:
        """Return the text that the repr of an open object contains."""
        return ""

    def __repr__(self) -> str:
        if self._h is None:
            return f"<doca.{type(self).__name__}, closed>"
        if _library.forked():
            return f"<doca.{type(self).__name__}, of a parent process>"
        return f"<doca.{type(self).__name__} {self._summary()}; {_library.label()}>"

    def _rows(self) -> list[tuple[str, object]]:
        """Return the rows of an open object's HTML card."""
        return []

    def _repr_html_(self) -> str:
        if self._h is None or _library.forked():
            return library_card(f"{type(self).__name__} (closed)", [])
        return library_card(type(self).__name__, self._rows())


def library_card(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return an HTML card with the library's label, which is highlighted for software DOCA."""
    from ..html_cards import badge, card

    software = _library.library().kind == "softdoca"
    return card(title, rows, badge=badge(_library.label(), warn=software))


@atexit.register
def _close_all() -> None:
    # A device that is still in use is released when the process exits.
    for root in sorted(_roots, key=lambda root: root._order):
        with contextlib.suppress(DgkitError):
            root.close()
