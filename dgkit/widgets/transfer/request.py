"""What a person asks for: a transfer, how often, how many at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import AccessDenied
from ...types import Access
from ...units import size_text
from ..base.forms import bounded_int, for_field, to_offset, to_size
from .payload import LARGEST, Payload

if TYPE_CHECKING:
    from ...session import SessionRegion, SessionTransfer

__all__ = ["DEEPEST", "OFTENEST", "Order", "bounded_list", "order_of"]

DEEPEST = 64  # transfers of an order in flight at once
OFTENEST = 100_000  # transfers of an order


@dataclass(slots=True, eq=False)
class Order:
    """One line of the list. `state`: waiting, running, done, failed, cancelled."""

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
        """One transfer of it, on its way. Errors as Session.start_write()."""
        session = self.region.session
        if self.op == "write":
            return session.start_write(self.region, data, self.offset)
        return session.start_read(self.region, self.size, self.offset)

    def described(self) -> dict[str, Any]:
        """In plain values, for a table."""
        return {
            "id": self.id, "op": self.op, "region": self.region.name, "offset": self.offset,
            "size": self.size, "text": size_text(self.size), "repeat": self.repeat,
            "payload": self.payload.text if self.payload else "", "depth": self.depth,
            "state": self.state, "done": self.done, "freed": self.region.closed,
        }  # fmt: skip


def order_of(
    number: int,
    op: str,
    region: SessionRegion,
    payload: Payload | None,
    *,
    offset: Any = 0,
    size: Any = None,
    repeat: Any = 1,
    depth: Any = 1,
) -> Order:
    """Checked, before anything moves. BoundsError, AccessDenied, ClosedError, ValueError: each with
    the field that it is about."""
    with for_field("op"):
        _check_op(op, region)
    with for_field("offset"):
        offset = to_offset(offset)
        region.span(offset, 1)
    with for_field("size" if payload is None else "payload"):
        if payload is None and size in (None, ""):
            raise ValueError("a read takes a size")
        size = to_size(size) if payload is None else payload.size
        region.span(offset, size)
    often = _how_often(repeat, depth, size if op == "read" else 0)
    return Order(number, op, region, offset, size, payload, *often)


def _how_often(repeat: Any, depth: Any, size: int) -> tuple[int, int]:
    """How often, and how many at once: of reads, which all lie in this process, `size` each."""
    with for_field("repeat"):
        repeat = bounded_int("repeat", repeat, 1, OFTENEST)
    with for_field("depth"):
        depth = bounded_int("depth", depth, 1, DEEPEST)
        if size * min(depth, repeat) > LARGEST:
            most = size_text(LARGEST)
            raise ValueError(f"{depth} reads of {size_text(size)} at once; {most} are the most")
    return repeat, depth


def bounded_list(orders: Iterable[Order]) -> None:
    """ValueError: they hold more data than one payload may. A pattern holds none."""
    held = sum(len(order.payload.data or b"") for order in orders if order.payload is not None)
    if held > LARGEST:
        most = size_text(LARGEST)
        raise ValueError(f"the list would hold {size_text(held)} of data; {most} is the most")


def _check_op(op: str, region: SessionRegion) -> None:
    needs = {"read": Access.READ, "write": Access.WRITE}.get(op)
    if needs is None:
        raise ValueError(f"op is {op!r}; it must be 'read' or 'write'")
    if not region.access & needs:
        raise AccessDenied(f"{region.name!r} has access '{region.access}', and this is a {op}")
