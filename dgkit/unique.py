# SPDX-License-Identifier: Apache-2.0
"""Base classes of objects that own something: such as exist once, and such as are closed."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from typing_extensions import Self


class Unique:
    """Base of an object that owns something: a copy of it would give that back a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copy.copy(), copy.deepcopy() and pickle."""
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")


class Closable:
    """Base of an object whose `with` block ends with its close()."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what the object owns."""
        raise NotImplementedError
