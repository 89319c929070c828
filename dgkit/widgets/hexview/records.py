"""The region as a table of records: pages of them, in a sorted or filtered order.

An order is an array of record numbers. The region is not copied: columns are views of the host's
memory with the record's size as stride, and a page reads the records that it shows.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...errors import BoundsError, ClosedError, DgkitError
from ...units import plural
from ..base import page_input, scheduler
from ..base.panel import handler
from ..base.scheduler import in_background
from .fetch import host_bytes, why_no_host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...session import SessionRegion
    from ..base.page_input import Json
    from .fetch import Reader
    from .structure import Field, Structure, StructureView

    Column: TypeAlias = NDArray[Any]
    Condition: TypeAlias = tuple[Field, str, np.bytes_ | float]

# Records: each takes 4 bytes for its place in an order, and 8 for the column while sorting.
MAX_ORDERED = 10_000_000
_MAX_PAGE = 64  # records
MAX_COLUMNS = 64
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge,
    "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(?P<field>[^\s=!<>]+)\s*(?P<op>[=!<>]=|[<>])\s*(?P<value>\S.*?)\s*")


class Records:
    """Table of the records in a region: the structure again and again, from its offset on."""

    def __init__(
        self, reader: Reader, region: Callable[[], SessionRegion | None],
        sources: Callable[[], Sequence[str]], structure: StructureView, *,
        changed: Callable[[], None], failed: Callable[[Exception], None],
    ) -> None:  # fmt: skip
        """Start with the order of memory.

        Args:
            reader: Reads the bytes.
            region: Returns the shown region.
            sources: Returns the names of the shown sources; the first is read.
            structure: Has the structure, which is one record.
            changed: Called when the order has changed.
            failed: Called with an unexpected error.
        """
        self._reader, self._region, self._sources = reader, region, sources
        self._structure, self._changed, self._failed = structure, changed, failed
        self._task: scheduler.Task | None = None
        self.reset()

    def reset(self) -> None:
        """Return to the order of memory."""
        self._cancel()
        self._order: Column | None = None
        self._by: Json = {"sort": "", "descending": False, "where": ""}
        self._key: tuple[int, Structure, int] | None = None

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = None

    def _table(self) -> tuple[SessionRegion, Structure, int, int] | None:
        """Return region, structure, the offset of record 0 and the number of records."""
        region, structure = self._region(), self._structure.structure
        if region is None or structure is None:
            return None
        first = self._structure.offset % structure.size
        count = (region.size - first) // structure.size
        return (region, structure, first, count) if count > 1 else None

    def state(self) -> Json | None:
        """Return columns, counts and order for a view; None without a structure."""
        table = self._table()
        if table is None:
            return None
        region, structure, first, count = table
        if self._key not in (None, (region.id, structure, first)):
            self.reset()  # the order is that of another region or structure
        columns = [[field.name, field.type] for field in structure.fields[:MAX_COLUMNS]]
        shown = count if self._order is None else len(self._order)
        return {
            "columns": columns, "count": count, "shown": shown, "first": first,
            "size": structure.size, "busy": self._task is not None and not self._task.done,
            **self._by,
        }  # fmt: skip

    @handler
    def arrange(self, where: str = "", sort: str = "", descending: bool = False) -> None:
        """Start to filter and sort the records; the views show them when that has ended.

        Args:
            where: Conditions joined by "and": `size > 0x40 and kind == 'dma'`; "" for all.
            sort: Name of a field; "" for the order of memory.
            descending: Sort from the greatest value.

        Raises:
            ValueError: There are no records, a condition or a field is invalid, or the host's
                memory is not in this process.
            BoundsError: There are too many records to sort.
        """
        table = self._table()
        if table is None:
            raise ValueError("there are no records: assign HexView.structure")
        region, structure, first, count = table
        with page_input.for_field("where"):
            conditions = _conditions(structure, where)
        key = _field(structure, sort) if sort else None
        if (key or conditions) and (why := why_no_host(region)):
            raise ValueError(f"records are sorted and filtered in the host's memory. {why}")
        if count > MAX_ORDERED and (key or conditions):
            raise BoundsError(f"there are {count:,} records; at most {MAX_ORDERED:,} are sorted")
        self._cancel()
        by = {"sort": sort, "descending": descending, "where": where}
        columns = _Columns(region, structure, first, count)
        arranged = lambda: columns.order(conditions, key, descending)  # noqa: E731
        self._key = region.id, structure, first
        self._task = scheduler.start(self._steps(arranged, by), self._failed)

    def _steps(self, arranged: Callable[[], Column | None], by: Json) -> scheduler.Steps:
        order = yield from in_background(arranged)
        self._order, self._by, self._task = order, by, None
        self._changed()

    @handler
    def records(self, first: int, count: int) -> Json:
        """Return `rows` from a place of the order on: the number of the record, then its values."""
        table = self._table()
        if table is None:
            return {"first": 0, "rows": [], "error": ""}
        region, structure, at, total = table
        order = self._order
        last = total if order is None else len(order)
        first = max(0, min(int(first), last))
        places = range(first, min(last, first + min(int(count), _MAX_PAGE)))
        numbers = [*places] if order is None else [int(order[place]) for place in places]
        try:
            parts = self._parts(region, [at + number * structure.size for number in numbers],
                                structure.size)  # fmt: skip
        except ClosedError:
            return {"first": first, "rows": [], "error": ""}
        except DgkitError as error:
            return {"first": first, "rows": [], "error": str(error)}
        fields = structure.fields[:MAX_COLUMNS]
        rows = [
            [number, *(field.value(data, plain=True) for field in fields)]
            for number, data in zip(numbers, parts, strict=True)
        ]
        return {"first": first, "rows": rows, "error": ""}

    def _parts(self, region: SessionRegion, offsets: list[int], size: int) -> list[bytes]:
        """Return the bytes of records, which are adjacent unless they are in another order."""
        if self._order is not None:
            return [host_bytes(region, at, size) for at in offsets]
        if not offsets:
            return []
        whole = self._reader.read(region, self._sources()[:1], offsets[0], size * len(offsets))[0]
        return [whole[at : at + size] for at in range(0, len(whole), size)]


class _Columns:
    """Columns of the records in the host's memory, without a copy of the region."""

    def __init__(self, region: SessionRegion, structure: Structure, first: int, count: int) -> None:
        self._region, self._structure, self._first, self._count = region, structure, first, count

    def order(
        self,
        conditions: list[Condition],
        key: Field | None,
        descending: bool,
    ) -> Column | None:
        """Return the numbers of the records to show, in order; None for all, as in memory."""
        if not conditions and key is None:
            return None
        kept = np.ones(self._count, bool)
        for field, name, value in conditions:
            kept &= _OPERATORS[name](self._values(field), value)
        numbers = np.flatnonzero(kept).astype(np.uint32)
        if key is not None:
            values = self._values(key)[numbers]
            by = np.argsort(values[::-1] if descending else values, kind="stable")
            numbers = numbers[::-1][by][::-1] if descending else numbers[by]
        return numbers

    def _values(self, field: Field) -> Column:
        array = self._region.array
        if hasattr(array, "get"):  # on a GPU: its bytes are copied to the host
            array = np.frombuffer(host_bytes(self._region, 0, self._region.size), "u1")
        column: Column = np.ndarray(
            (self._count,), field.dtype, array.reshape(-1).view("u1"), self._first + field.offset,
            (self._structure.size,),
        )  # fmt: skip
        if field.bits is not None:
            low, bits = field.bits
            return (column >> low) & ((1 << bits) - 1)
        return column


def _field(structure: Structure, name: str) -> Field:
    """Return a field that can be compared.

    Raises:
        ValueError: There is none of this name, or it is an array or bytes.
    """
    fields = {field.name: field for field in structure.fields}
    if name not in fields:
        raise ValueError(f"there is no field {name!r}; fields: {', '.join(fields)}")
    field = fields[name]
    if field.dtype.subdtype is not None or field.dtype.kind == "V":
        raise ValueError(f"field {name!r} is {field.type}: records are compared by single values")
    return field


def _conditions(structure: Structure, text: str) -> list[Condition]:
    """Return (field, operator, value) of each condition of a filter.

    Raises:
        ValueError: A condition, its field or its value is invalid.
    """
    parts = re.split(r"\s+and\s+", text.strip()) if text.strip() else []
    return [_condition(structure, part) for part in parts]


def _condition(structure: Structure, part: str) -> Condition:
    match = _CONDITION.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is no condition; write for example: size > 0x40 and kind == 3")
    field = _field(structure, match["field"])
    value = match["value"]
    try:
        if field.dtype.kind == "S":
            return field, match["op"], np.bytes_(value.strip("'\"").encode())
        number: int | float = int(value, 0) if re.fullmatch(r"[+-]?\w+", value) else float(value)
    except ValueError:
        kind = plural(field.size, "byte") if field.dtype.kind == "S" else field.type
        raise ValueError(f"{value!r} is no value of field {field.name!r} ({kind})") from None
    return field, match["op"], number
