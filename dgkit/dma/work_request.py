"""Work records from Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import BoundsError
from ..validate import whole
from .region import Region, RemoteRegion

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["chain", "check_sides", "record"]

_FIELDS = {"size", "local_offset", "remote_offset", "rows", "local_stride", "remote_stride", "user"}
_CHAIN = 2
_ROWS_MAX = (1 << 32) - 1


def check_sides(local: Any, remote: Any) -> None:
    """TypeError for what is no region. That a side is the right one the C core knows."""
    if not isinstance(local, (Region, RemoteRegion)):
        raise TypeError(f"local is {local!r:.60}; it must be a Region (Device.register)")
    if not isinstance(remote, (Region, RemoteRegion)):
        raise TypeError(f"remote is {remote!r:.60}; it must be a RemoteRegion (import_region)")


def record(
    op: int, local: Region, remote: RemoteRegion, shape: Mapping[str, int]
) -> dict[str, int]:
    """The fields of one dg_wr. TypeError for unknown or fractional ones, ValueError for 0 bytes."""
    check_sides(local, remote)
    unknown = set(shape) - _FIELDS
    if unknown:
        raise TypeError(
            f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(_FIELDS))}"
        )
    if "size" not in shape:
        raise TypeError("size is missing: the bytes to move (of a row, where there are rows)")
    fields = {name: whole(name, value) for name, value in shape.items()}
    fields["size"] = whole("size", shape["size"], 1)
    fields["rows"] = whole("rows", shape.get("rows", 1), 1)
    if fields["rows"] > _ROWS_MAX:
        raise BoundsError(f"rows is {fields['rows']}; the limit is {_ROWS_MAX}")
    return {"op": op, "local": local.id, "remote": remote.id, **fields}


def chain(
    op: int, segments: Sequence[tuple[Region, int, int]], remote: RemoteRegion, remote_offset: int
) -> list[dict[str, int]]:
    """A chain over segments (region, offset, size) that lie one behind another in `remote`."""
    at = whole("remote_offset", remote_offset)
    records = []
    for segment in segments:
        try:
            region, offset, size = segment
        except (TypeError, ValueError):
            raise TypeError(f"a segment is (region, offset, size), not {segment!r:.60}") from None
        shape = {"size": size, "local_offset": offset, "remote_offset": at}
        records.append({**record(op, region, remote, shape), "flags": _CHAIN})
        at += records[-1]["size"]
    if not records:
        raise ValueError("no segments: a transfer needs at least one")
    records[-1]["flags"] = 0
    return records
