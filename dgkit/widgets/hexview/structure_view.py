"""The structure that a hex view lays over the bytes, its offset, and the values of its fields."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import BoundsError, ClosedError, DgkitError
from ...units import plural
from ..base.panel import handler
from .structure import Structure, parse_structure

if TYPE_CHECKING:
    from ...session import SessionRegion
    from .fetch import Reader
    from .live_view import Page


class StructureView:
    """Structure and offset of a panel; an assigned one stays when another region is shown.

    Without one, a region whose array has a structured dtype is shown with that.

    Attributes:
        offset: The offset of the structure's first byte.
    """

    def __init__(
        self,
        reader: Reader,
        region: Callable[[], SessionRegion | None],
        source: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        """Start without a structure; `changed()` is called when the structure has changed."""
        self._changed = changed
        self._reader, self._region, self._source = reader, region, source
        self._assigned: Structure | None = None
        self._adopted: tuple[Any, Structure | None] = None, None  # of the dtype that is first
        self.offset = 0

    @property
    def structure(self) -> Structure | None:
        """The assigned structure, or that of the region's dtype; None if there is none."""
        if self._assigned is not None:
            return self._assigned
        dtype = _record_dtype(self._region())
        if dtype != self._adopted[0]:
            self._adopted = dtype, _parsed(dtype)
        return self._adopted[1]

    def region_changed(self) -> None:
        """Place the structure of another region's dtype at its start."""
        if self._assigned is None:
            self.offset = 0

    @property
    def described_by(self) -> Any:
        """The description of the structure; None without one."""
        structure = self.structure
        return None if structure is None else structure.source

    def assign(self, source: Any) -> None:
        """Lay a structure over the bytes at the current offset; None: that of the region's dtype.

        Raises:
            TypeError, ValueError, BoundsError: As raised by parse_structure() and place().
        """
        structure = None if source is None else parse_structure(source)
        if structure is not None:
            self._check(structure, 0)
            region = self._region()
            if region is not None and self.offset + structure.size > region.size:
                self.offset = 0
        self._assigned = structure
        self._changed()

    @handler
    def place_structure(self, offset: Any) -> None:
        """Move the structure to an offset.

        Raises:
            ValueError: There is no structure.
            BoundsError: It does not fit there.
        """
        structure = self.structure
        if structure is None:
            raise ValueError("there is no structure: assign one to HexView.structure")
        self._check(structure, offset)
        self.offset = offset
        self._changed()

    def _check(self, structure: Structure, offset: Any) -> None:
        region = self._region()
        if type(offset) is not int or offset < 0:
            raise BoundsError(f"structure_offset is {offset!r}; it must be 0 or more")
        if region is not None and offset + structure.size > region.size:
            raise BoundsError(
                f"structure {structure.name!r} at offset {offset:,} ends at "
                f"{offset + structure.size:,}: region {region.name!r} has {region.size:,} bytes"
            )

    def state(self) -> dict[str, Any] | None:
        """Return name, size, offset and fields for a view; None without a structure."""
        structure = self.structure
        if structure is None:
            return None
        fields = [[one.name, one.type, one.offset, one.size] for one in structure.fields]
        return {
            "name": structure.name, "size": structure.size, "at": self.offset, "fields": fields,
        }  # fmt: skip

    @handler
    def fields(self) -> dict[str, Any]:
        """Read the bytes of the structure; return `at` and `values`, or the reason in `error`."""
        structure, region = self.structure, self._region()
        if structure is None or region is None:
            return {"at": self.offset, "values": [], "error": ""}
        at = self.offset
        if at + structure.size > region.size:
            text = f"{structure.name} has {plural(structure.size, 'byte')}; there are fewer here."
            return {"at": at, "values": [], "error": text}
        try:
            data = self._reader.read(region, (self._source(),), at, structure.size)[0]
        except ClosedError:
            return {"at": at, "values": [], "error": ""}
        except DgkitError as error:
            return {"at": at, "values": [], "error": str(error)}
        return {"at": at, "values": structure.values(data), "error": ""}

    def of_page(self, page: Page) -> dict[str, Any] | None:
        """Return the same as fields() from a page that was read, or None if bytes are missing."""
        structure, at = self.structure, self.offset - page.at
        if structure is None or at < 0 or at + structure.size > len(page.parts[0]):
            return None
        values = structure.values(page.parts[0][at : at + structure.size])
        return {"at": self.offset, "values": values, "error": ""}


def _record_dtype(region: SessionRegion | None) -> Any:
    """Return the dtype of a region's array in this process if it has fields, else None."""
    array = getattr(getattr(region and region.local, "memory", None), "array", None)
    dtype = getattr(array, "dtype", None)
    return dtype if getattr(dtype, "names", None) else None


def _parsed(dtype: Any) -> Structure | None:
    with contextlib.suppress(BoundsError, TypeError):  # too large to be shown
        return None if dtype is None else parse_structure(dtype)
    return None
