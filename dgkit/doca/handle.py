"""What all of DOCA's objects have in common here: parents, children, and an end."""

from __future__ import annotations

import atexit
import contextlib
import warnings
import weakref
from collections import deque
from threading import RLock

from ..errors import ClosedError, DgkitError
from . import _library
from .errors import InUse

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

__all__ = ["CLOSING_S", "Handle", "Turn"]

CLOSING_S = 5.0  # how long close() waits for what is in flight

# What a finalizer could not destroy: DOCA may still use it, so it stays.
_kept: list[Handle] = []
_roots: weakref.WeakSet[Handle] = weakref.WeakSet()


class Turn:
    """One thread at a time: who comes second gets InUse. The one inside may enter again.

    A finalizer runs in any thread, at any moment: what it has to do waits here until nobody is
    inside.
    """

    __slots__ = ("_depth", "_later", "_lock", "_what")

    def __init__(self, what: str) -> None:
        self._lock = RLock()
        self._depth = 0
        self._later: deque[Callable[[], None]] = deque()
        self._what = what

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InUse(f"another thread is in this {self._what}: use one a thread")
        if self._later and not self._depth:
            self._do_later()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._later and not self._depth:
            self._do_later()
        self._lock.release()

    def _do_later(self) -> None:
        while self._later:
            self._later.popleft()()

    def soon(self, action: Callable[[], None]) -> None:
        """Does it now if nobody is inside, else when who is inside leaves."""
        self._later.append(action)
        if self._lock.acquire(blocking=False):
            try:
                if not self._depth:
                    self._do_later()
            finally:
                self._lock.release()


class Handle:
    """One object of DOCA's. Children hold their parents; a parent that is closed closes them first.

    `close()` may be called again; `with` closes at its end. What is forgotten warns and is closed
    by the collector, after its children, whatever order that comes in.
    """

    __slots__ = ("__weakref__", "_children", "_h", "_orphaned", "_parents")

    _name: ClassVar[str]
    _order: ClassVar[int]  # of its parent's children those with the lowest are closed first
    _pooled: ClassVar[bool] = False  # an element of its parent: forgetting it gives it back

    @classmethod
    def _expect(cls, what: str, value: object) -> None:
        """TypeError if what was given for the argument `what` is none of these."""
        if not isinstance(value, cls):
            kind = type(value).__name__
            raise TypeError(f"{what} is of type {kind}; it must be a doca.{cls.__name__}")

    def __init__(self) -> None:
        self._h: Any = None
        self._parents: tuple[Handle, ...] = ()
        # By id: a child that the collector has begun to take is still a user, and cannot be seen.
        self._children: dict[int, weakref.ref[Handle]] = {}
        self._orphaned = False

    def _opened(self, h: Any, *parents: Handle) -> None:
        """The C object is there: from now on it has to be destroyed."""
        self._h = h
        self._adopt(*parents)
        if not parents:
            _roots.add(self)

    def _adopt(self, *parents: Handle) -> None:
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
    def _turn(self) -> Any:
        """Held while the C object is used: by default what all control calls hold."""
        return _library.CONTROL

    def _call(self, name: str, *args: Any) -> None:
        """Calls a function whose first argument is this object."""
        with self._turn:
            _library.library().call(name, self._handle(), *args)

    def _get(self, name: str, kind: str, *args: Any) -> Any:
        """What such a function stores through its last argument."""
        with self._turn:
            return _library.library().get(name, kind, self._handle(), *args)

    @property
    def closed(self) -> bool:
        """Whether it is closed, by itself or with a parent."""
        return self._h is None

    def close(self) -> None:
        """Closes what was made of it, then itself. Again: does nothing.

        InUse if it cannot be, because another thread or a transfer uses it: then it stays open,
        and close() may be called again.
        """
        if self._h is None or _library.forked():
            return
        with self._turn:
            self._close_children()
            if self._h is not None:
                self._destroy()
                self._gone()

    def _living(self) -> list[Handle]:
        """Its children, in the order in which they are closed."""
        children = [child for ref in list(self._children.values()) if (child := ref()) is not None]
        return sorted(children, key=lambda child: child._order)

    def _close_children(self) -> None:
        for child in self._living():
            child.close()

    def _gone(self) -> None:
        """The C object is destroyed: lets the parents go."""
        self._h = None
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent._children.pop(id(self), None)
            if parent._orphaned and not parent._children:
                parent._forgotten()

    def _destroy(self) -> None:
        """Gives the C object back; raises if DOCA refuses."""
        raise NotImplementedError

    def _finalize(self) -> None:
        """What the collector does. Never raises."""
        if self._children:  # cyclic garbage: its children's turn comes later
            self._orphaned = True
            return
        try:
            if self._h is not None:
                self._destroy()
                self._gone()
        except DgkitError:
            _kept.append(self)

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
            self._forgotten()

    def _forgotten(self) -> None:
        with self._turn:
            self._finalize()

    def _about(self) -> str:
        """What a repr says of an open one."""
        return ""

    def __repr__(self) -> str:
        if self._h is None:
            return f"<doca.{type(self).__name__}, closed>"
        if _library.forked():
            return f"<doca.{type(self).__name__}, of a parent process>"
        return f"<doca.{type(self).__name__} {self._about()}; {_library.label()}>"

    def _rows(self) -> list[tuple[str, object]]:
        """What a card says of an open one."""
        return []

    def _repr_html_(self) -> str:
        from ._repr import shown

        if self._h is None or _library.forked():
            return shown(f"{type(self).__name__} (closed)", [])
        return shown(type(self).__name__, self._rows())


@atexit.register
def _close_all() -> None:
    # The process ends, and a device in use ends with it.
    for root in sorted(_roots, key=lambda root: root._order):
        with contextlib.suppress(DgkitError):
            root.close()
