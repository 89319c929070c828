"""Traits of panels: synced, observable, and backed by the panel's own state.

A `State` holds the panel's state as of the last call of its observers. They are called in the
kernel's thread that runs cells and handlers, so a change by a sample, a completion or another
process reaches them when the running cell has ended. Assigning such a trait acts on the panel
first; if the panel refuses the value, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from traitlets import TraitError, TraitType

from ...errors import AccessDenied

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

T = TypeVar("T")

as_stored: ContextVar[bool] = ContextVar("dgkit_as_stored", default=False)


class State(TraitType[T, Any]):
    """Trait that mirrors a part of a panel's state.

    Args:
        read: Returns the value, given the panel.
        assign: Acts on the panel, given the panel and the new value; without it the trait is
            read-only.
        to_json: Returns the value's form for a view, given the value.
        freshen: Called with the panel before a cell gets the value, to bring it up to date.
        help: Description of the trait.
    """

    def __init__(
        self,
        read: Callable[[Any], T],
        assign: Callable[[Any, Any], object] | None = None,
        *,
        to_json: Callable[[T], Any] | None = None,
        freshen: Callable[[Any], object] | None = None,
        help: str,
    ) -> None:
        super().__init__(None, allow_none=True, help=help)
        self._read, self._assign, self._freshen = read, assign, freshen
        self.tag(sync=True)
        if to_json is not None:
            self.tag(to_json=lambda value, _panel: to_json(value))

    def default(self, obj: Any = None) -> Any:
        """Return the panel's state; None if the panel is closed."""
        return None if obj is None or obj.closed else self._read(obj)

    def get(self, obj: Any, cls: Any = None) -> Any:
        """Return the stored value, after updating it unless it is read for a page."""
        if self._freshen is not None and not as_stored.get() and not obj.closed:
            self._freshen(obj)
            value = self._read(obj)
            if obj._trait_values.get(self.name, value) != value:  # the first access
                obj._trait_values[self.name] = value
                obj.send_state(self.name)
        return super().get(obj, cls)

    def set(self, obj: Any, value: Any) -> None:
        """Act on the panel, then store its new state.

        Raises:
            TraitError: The value is refused, or the trait is read-only.
            ClosedError: The panel is closed.
            DgkitError: The action failed for another reason than the value.
        """
        name = self.name
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

    def store(self, obj: Any) -> None:
        """Store the panel's state and call the observers if it is new."""
        super().set(obj, self._read(obj))


def _text_of(name: str | None, value: object, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(f"{name} is ") else f"{name} is {value!r}: {text}"


def choose_region(session: Session, value: Any, regions: tuple[SessionRegion, ...]) -> int:
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
