# SPDX-License-Identifier: Apache-2.0
"""Traits of panels: synced, observable, and backed by the panel's own state.

A `State` holds the panel's state as of the last call of its observers. They are called on the
kernel's event loop, the thread that runs cells and handlers, so a change by a sample, a completion
or another process reaches them when the running cell has ended. Assigning such a trait acts on the
panel first; if the panel refuses the value, nothing has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anywidget
from traitlets import TraitError, TraitType

from ...errors import AccessDenied
from .scheduler import BACKGROUND, FRAMES, PanelClosed

if TYPE_CHECKING:
    from ...session import Session, SessionRegion
    from .page_input import Json

P = TypeVar("P", bound="StateWidget")
T = TypeVar("T")

_as_stored: ContextVar[bool] = ContextVar("dgkit_as_stored", default=False)
_loops: list[asyncio.AbstractEventLoop] = []  # the loop on which the latest panel was created


class StateWidget(anywidget.AnyWidget):
    """Widget whose `State` traits show its own state.

    Attributes:
        closed: The widget was closed.
    """

    closed = False

    def __init__(self, esm: str, css: str) -> None:
        traits = self.traits().items()
        self._states = {name: trait for name, trait in traits if isinstance(trait, State)}
        self._due: asyncio.AbstractEventLoop | None = None  # runs _store_traits() later
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(RuntimeError):  # not in a kernel
                _loops[:] = [asyncio.get_running_loop()]
        super().__init__(_esm=esm, _css=css)

    def complete(self) -> None:
        """Wait until the widget has its state; most have it from the start."""

    def check_open(self, name: str) -> None:
        """Raise PanelClosed if the widget is closed: `name` cannot be assigned any more."""
        if self.closed:
            raise PanelClosed(f"the panel is closed: {type(self).__name__}.{name} was assigned")

    def refresh_traits(self) -> None:
        """Update the traits from the widget's state: now, or from dgkit's threads after the cell.

        The kernel's loop updates them when the running cell has ended; calls until then are merged.
        """
        with contextlib.suppress(PanelClosed):
            loop = next((loop for loop in _loops if loop.is_running()), None)
            if loop is None or not in_own_thread():
                self._store_traits()
            elif loop is not self._due:
                self._due = loop
                with contextlib.suppress(RuntimeError):  # the kernel is ending
                    loop.call_soon_threadsafe(self._store_traits)

    def _store_traits(self) -> None:
        with contextlib.suppress(PanelClosed):
            states = self._states.values()
            self._due = None  # before the values are read: a later change causes another call
            for trait in states:
                trait.store(self)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Json:
        """Return the stored values of the traits, to be sent to a page."""
        token = _as_stored.set(True)
        try:
            state: Json = super().get_state(key, drop_defaults)
            return state
        finally:
            _as_stored.reset(token)


def in_own_thread() -> bool:
    """Return whether this is a panel's own thread, which must not wait or call observers."""
    return threading.current_thread().name in (FRAMES, BACKGROUND)


class State(TraitType[T, object], Generic[P, T]):
    """Trait of a StateWidget that shows a part of its state.

    Args:
        read: Returns the value, given the widget.
        assign: Acts on the widget, given the widget and the new value; without it the trait is
            read-only.
        to_json: Returns the value's form for a view, given the value.
        freshen: Called with the widget before a cell gets the value, to bring it up to date.
        help: Description of the trait.
    """

    def __init__(
        self,
        read: Callable[[P], T],
        assign: Callable[[P, Any], object] | None = None,
        *,
        to_json: Callable[[T], object] | None = None,
        freshen: Callable[[P], object] | None = None,
        help: str,
    ) -> None:
        super().__init__(None, allow_none=True, help=help)
        self._read, self._assign, self._freshen = read, assign, freshen
        self.tag(sync=True)
        if to_json is not None:
            self.tag(to_json=lambda value, _panel: to_json(value))

    # Each state is a trait of the class P that its functions take, not of any HasTraits.

    def default(self, obj: P | None = None) -> T | None:
        """Return the widget's state; None if the widget is closed."""
        return None if obj is None or obj.closed else self._read(obj)

    def get(self, obj: P, cls: type | None = None) -> T | None:  # type: ignore[override]
        """Return the stored value, after updating it unless it is read for a page."""
        if not _as_stored.get() and not obj.closed:
            obj.complete()
            if self._freshen is not None and not obj.closed:
                self._freshen(obj)
                value = self._read(obj)
                # Before the first access nothing is stored: then default() reads the state.
                if obj._trait_values.get(self.name, value) != value:
                    obj._trait_values[self.name] = value
                    obj.send_state(self.name)
        return super().get(obj, cls)

    def set(self, obj: P, value: object) -> None:  # type: ignore[override]
        """Act on the widget, then store its new state.

        Raises:
            TraitError: The value is refused, or the trait is read-only.
            ClosedError: The widget is closed.
            DgkitError: The action failed for another reason than the value.
        """
        name = str(self.name)
        if self._assign is None:
            if value is obj._trait_values.get(name) or value == obj._trait_values.get(name):
                return  # set anew by hold_trait_notifications()
            raise TraitError(f"{type(obj).__name__}.{name} is read-only; {value!r} was assigned")
        obj.check_open(name)
        try:
            self._assign(obj, value)
        except (ValueError, TypeError, AccessDenied) as error:
            raise TraitError(_text_of(name, value, error)) from error
        obj.refresh_traits()

    def store(self, obj: P) -> None:
        """Store the widget's state and call the observers if it is new."""
        super().set(obj, self._read(obj))


def _text_of(name: str, value: object, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(f"{name} is ") else f"{name} is {value!r}: {text}"


def choose_region(
    session: Session, value: SessionRegion | int | str, regions: tuple[SessionRegion, ...]
) -> int:
    """Return the id of the region assigned to a trait as a region, an id or a name.

    Raises:
        ValueError: The value names none of `regions`.
    """
    for region in regions:
        if value is region or (not isinstance(value, bool) and value in (region.id, region.name)):
            return region.id
    known = ", ".join(repr(region.name) for region in regions) or "none"
    raise ValueError(f"region is {value!r}; it must be a live region of {session!r}: {known}")


def region_id(region: SessionRegion | None) -> int | None:
    """Return the id of a region, which is what a page is sent; None without a region."""
    return None if region is None else region.id
