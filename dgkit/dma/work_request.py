# SPDX-License-Identifier: Apache-2.0
"""Fields of work requests (`dg_wr`) from Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import BoundsError
from ..validate import whole

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

_FIELDS = {"size", "local_offset", "remote_offset", "rows", "local_stride", "remote_stride", "user"}
_CHAIN = 2
_ROWS_MAX = (1 << 32) - 1
_WORD = 8  # bytes of the word of an atomic operation


def wr_fields(op: int, ids: tuple[int, int], shape: Mapping[str, int]) -> dict[str, int]:
    """Return the fields of one `dg_wr`.

    Args:
        op: `Op.READ` or `Op.WRITE`.
        ids: The ids of the local and of the remote region.
        shape: The other fields by name.

    Raises:
        TypeError: A field is unknown, missing or not an integer.
        BoundsError: A field is out of range.
    """
    unknown = set(shape) - _FIELDS
    if unknown:
        raise TypeError(
            f"unknown fields: {', '.join(sorted(unknown))}; use {', '.join(sorted(_FIELDS))}"
        )
    if "size" not in shape:
        raise TypeError("size is missing: the bytes to move (of a row, where there are rows)")
    fields = {name: whole(name, value) for name, value in shape.items()}
    fields["size"] = whole("size", shape["size"], 1)
    fields["rows"] = whole("rows", shape.get("rows", 1), 1)
    if fields["rows"] > _ROWS_MAX:
        raise BoundsError(f"rows is {fields['rows']}; the limit is {_ROWS_MAX}")
    return {"op": op, "local": ids[0], "remote": ids[1], **fields}


def atomic_fields(
    op: int,
    ids: tuple[int, int],
    operands: tuple[int, int],
    offsets: tuple[Any, Any],
    *,
    fence: bool,
) -> dict[str, int]:
    """Return the fields of one `dg_wr` of an atomic operation.

    Args:
        op: `Op.FETCH_ADD` or `Op.COMPARE_SWAP`.
        ids: The ids of the local and of the remote region.
        operands: The addend or the value to compare with, and the value to swap in.
        offsets: Offset of the old value in the local region, and of the word in the remote region.
        fence: Start only when all operations posted before are complete.
    """
    return {
        "op": op, "local": ids[0], "remote": ids[1], "size": _WORD, "rows": 1,
        "local_offset": whole("local_offset", offsets[0]),
        "remote_offset": whole("remote_offset", offsets[1]),
        "local_stride": operands[0], "remote_stride": operands[1], "flags": bool(fence),
    }  # fmt: skip


def chain(
    op: int,
    segments: Sequence[tuple[Any, int, int]],
    ids: Callable[[Any], tuple[int, int]],
    remote_offset: int,
) -> list[dict[str, int]]:
    """Return a chain of work requests for segments that are consecutive in `remote`.

    Args:
        op: `Op.READ` or `Op.WRITE`.
        segments: `(region, offset, size)` of each segment; bytes.
        ids: Returns the ids of a segment's region and of the remote one.
        remote_offset: Where the first segment begins in the remote region; bytes.
    """
    at = whole("remote_offset", remote_offset)
    requests = []
    for segment in segments:
        try:
            region, offset, size = segment
        except (TypeError, ValueError):
            raise TypeError(f"a segment is (region, offset, size), not {segment!r:.60}") from None
        shape = {"size": size, "local_offset": offset, "remote_offset": at}
        requests.append({**wr_fields(op, ids(region), shape), "flags": _CHAIN})
        at += requests[-1]["size"]
    if not requests:
        raise ValueError("no segments: a transfer needs at least one")
    requests[-1]["flags"] = 0
    return requests
