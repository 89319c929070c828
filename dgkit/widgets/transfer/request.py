"""A validated request: a transfer, its repetitions and its depth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import AccessDenied
from ...types import Access
from ...units import size_text
from ..base.as_python import region_lines, script
from ..base.forms import bounded_int, for_field, to_offset, to_size
from .payload import MAX_PAYLOAD, Payload

if TYPE_CHECKING:
    from ...session import Session, SessionRegion, SessionTransfer

MAX_DEPTH = 64  # transfers of a request in flight at once
MAX_REPEAT = 100_000  # transfers of a request


@dataclass(slots=True, eq=False)
class Request:
    """One request of the list.

    Attributes:
        state: `waiting`, `running`, `done`, `failed` or `cancelled`.
        done: Completed transfers of `repeat`.
    """

    id: int
    op: str
    region: SessionRegion
    offset: int
    size: int
    payload: Payload | None
    repeat: int
    depth: int
    state: str = "waiting"
    done: int = 0

    def start(self, data: Any) -> SessionTransfer:
        """Start one transfer; errors as Session.start_write()."""
        session: Session = self.region.session
        if self.op == "write":
            return session.start_write(self.region, data, self.offset)
        return session.start_read(self.region, self.size, self.offset)

    def python(self) -> str:
        """Return the lines of Python that do the same."""
        lines = region_lines(self.region)
        at = f", offset={self.offset}" if self.offset else ""
        if self.payload is not None:
            lines.append(f"data = {self.payload.python}")
            call = f"write(region, data{at})"
        else:
            call = f"read(region, {self.size}{at})"
        if self.depth == 1:
            result = "" if self.payload is not None else "data = "
            loop = [] if self.repeat == 1 else [f"for _ in range({self.repeat}):"]
            return script([*lines, *loop, f"{'    ' * len(loop)}{result}session.{call}"])
        return script([
            *lines,
            "in_flight = []",
            f"for _ in range({self.repeat}):",
            f"    if len(in_flight) == {self.depth}:",
            "        in_flight.pop(0).wait()",
            f"    in_flight.append(session.start_{call})",
            "for transfer in in_flight:",
            "    transfer.wait()",
        ])  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """Describe the request in plain values, for a table."""
        return {
            "id": self.id, "op": self.op, "region": self.region.name, "offset": self.offset,
            "size": self.size, "text": size_text(self.size), "repeat": self.repeat,
            "payload": self.payload.text if self.payload else "", "depth": self.depth,
            "state": self.state, "done": self.done, "freed": self.region.closed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class How:
    """Parameters of a request besides operation, region and payload, as numbers or as text.

    Attributes:
        offset: Offset in the region in bytes.
        size: Bytes of a read or of a pattern.
        repeat: Number of transfers.
        depth: Transfers in flight at once.
    """

    offset: Any = 0
    size: Any = None
    repeat: Any = 1
    depth: Any = 1


def make_request(
    number: int, op: str, region: SessionRegion, payload: Payload | None, how: How
) -> Request:
    """Validate a request before any data moves.

    Args:
        number: Id of the request.
        op: `read` or `write`.
        region: The remote region.
        payload: The data of a write, None for a read.
        how: Offset, size, repetitions and depth.

    Raises:
        AccessDenied, BoundsError, ClosedError, TypeError, ValueError: With the form field that the
            error belongs to.
    """
    with for_field("op"):
        _check_op(op, region)
    with for_field("offset"):
        offset = to_offset(how.offset)
        region.span(offset, 1)
    with for_field("size" if payload is None else "payload"):
        if payload is None and how.size in (None, ""):
            raise ValueError("a read needs a size")
        size = to_size(how.size) if payload is None else payload.size
        region.span(offset, size)
    repeat, depth = _repeat_and_depth(how, size if op == "read" else 0)
    return Request(number, op, region, offset, size, payload, repeat, depth)


def _repeat_and_depth(how: How, read_size: int) -> tuple[int, int]:
    """Validate both; the results of all reads in flight are held in this process."""
    with for_field("repeat"):
        repeat = bounded_int("repeat", how.repeat, 1, MAX_REPEAT)
    with for_field("depth"):
        depth = bounded_int("depth", how.depth, 1, MAX_DEPTH)
        if read_size * min(depth, repeat) > MAX_PAYLOAD:
            limit = size_text(MAX_PAYLOAD)
            raise ValueError(
                f"{depth} reads of {size_text(read_size)} in flight; the limit is {limit} in total"
            )
    return repeat, depth


def check_list_size(requests: Iterable[Request]) -> None:
    """Check the total payload data of a list; patterns count as none.

    Raises:
        ValueError: The total exceeds the limit for one payload.
    """
    total = sum(len(request.payload.data or b"") for request in requests if request.payload)
    if total > MAX_PAYLOAD:
        limit = size_text(MAX_PAYLOAD)
        raise ValueError(f"the list would hold {size_text(total)} of data; the limit is {limit}")


def _check_op(op: str, region: SessionRegion) -> None:
    needed = {"read": Access.READ, "write": Access.WRITE}.get(op)
    if needed is None:
        raise ValueError(f"op is {op!r}; it must be 'read' or 'write'")
    if not region.access & needed:
        raise AccessDenied(f"{region.name!r} has access '{region.access}', which forbids a {op}")
