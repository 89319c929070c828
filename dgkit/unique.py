"""Objects that exist once."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Unique:
    """Base of an object that owns something: a copy of it would give that back a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copy.copy(), copy.deepcopy() and pickle."""
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")
