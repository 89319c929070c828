# SPDX-License-Identifier: Apache-2.0
"""Regions of a session: memory on the host or on the DPU, in this process or at the agent."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ..callbacks import Callbacks
from ..errors import AccessDenied, BoundsError, ClosedError, Unsupported
from ..types import Access
from ..unique import Closable, Unique
from ..validate import byte_count
from ..wire.creation import Creation
from ..wire.messages import Free
from .argument_checks import seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    import numpy as np

    from ..dma import Region, RemoteRegion
    from ..dpu.region_ref import RegionRef
    from ..wire.connection import Connection
    from ..wire.messages import Request
    from .session import Session


_PUBLIC = (
    *("access", "allocated", "array", "chosen", "close", "closed", "id", "name", "on", "place"),
    *("provider", "registration", "session", "size", "where"),
)
READ_ONLY, WRITE_ONLY = Access.READ, Access.WRITE  # members are singletons: compared with `is`


def _synchronize(memory: Any, gpu: int) -> None:
    """Synchronize with the producing stream, also after the memory was closed."""
    if not memory.closed:
        memory.synchronize()
        return
    from ..memory.gpu_base import synchronize_stream

    synchronize_stream(gpu)


class SessionRegion(Unique, Closable):
    """Region of a session, created by Session.empty() and Session.register().

    Attributes:
        session: Session that created it.
        id: Number within the session.
        name: Name given at creation, or one made of `on` and `id`.
        on: Side that has the bytes: `host` or `dpu`.
        place: Where the bytes are: `host`, `pinned`, `cuda:0`.
        provider: Provider by which the session's DPU moves the bytes.
        size: Bytes.
        access: What DMA may do to it.
        chosen: The place that on="auto" chose, and why; else empty.
        registration: How an RDMA adapter registered the memory (see dgkit.Region); else empty.
        closed: Whether the region was closed.
    """

    # For dgkit alone, and not in dir():
    # handle: at the agent; 0 if not registered with the agent
    # creations: what agents hold for the region, in order of creation
    # token: descriptor
    # local, remote: region of this process, imported region; or None
    # ref: what the DPU in this process uses for its transfers, from the first on; or None
    # producer: synchronizes with the producing stream (CuPy's current one); the session calls it
    #     before each transfer; None unless the memory is on a GPU of this process

    __slots__ = (
        *(
            "_close",
            "_close_memory",
            "access",
            "chosen",
            "closed",
            "creations",
            "handle",
            "id",
            "local",
        ),
        *("local", "name", "on", "place", "producer", "provider", "ref", "registration", "remote"),
        *("session", "size", "token"),
    )

    def __init__(self, *, on: str, size: int, access: Access) -> None:
        self._close_memory: Callable[[], object] | None = None
        self.on = on
        self.size = size
        self.access = access
        self.name = ""
        self.handle = 0
        self.creations: list[Creation] = []
        self.token = b""
        self.place = "host"
        self.chosen = ""
        self.registration = ""
        self.producer: Callable[[], object] | None = None
        self.local: Region | None = None
        self.remote: RemoteRegion | None = None
        self.ref: RegionRef | None = None
        self.closed = False

    def attach(self, local: Region) -> None:
        """Set the region of this process."""
        self.local, self.place = local, local.place
        self.registration = local.registration
        span = getattr(local.memory, "gpu", None)
        if span is not None:
            self.producer = lambda: _synchronize(local.memory, span.gpu)

    def create(self, link: Connection, request: Request, timeout: float) -> Any:
        """Have an agent create its part of the region; return its reply.

        The agent frees it at free_at_agents(), or when this object is collected.
        """
        creation = Creation(link)
        self.creations.append(creation)
        return link.ask(request, timeout=timeout, pending=creation)

    def free_at_agents(self, timeout: float, reply_timeout: float) -> None:
        """Have the agents free their parts, the latest first, and wait. Idempotent.

        Args:
            timeout: Seconds that an agent may wait for transfers in flight.
            reply_timeout: Seconds to wait for its reply, besides.
        """
        for creation in reversed(self.creations):
            if creation.reply is not None:
                free = Free(region=creation.reply.region, timeout=timeout)
                creation.end(free, timeout=timeout + reply_timeout)

    def own_memory(self, close_memory: Callable[[], object]) -> None:
        """Make the region own its memory: closing the region calls `close_memory`."""
        self._close_memory = close_memory

    def bind(
        self,
        session: Session,
        number: int,
        provider: str,
        close: Callable[[SessionRegion, float], None],
    ) -> None:
        """Make the region one of `session`, not yet registered with either side.

        Args:
            session: The new session.
            number: Number within that session.
            provider: How that session's DPU moves the bytes.
            close: Closes the region on both sides, within a number of seconds.
        """
        self.session, self.id, self._close, self.closed = session, number, close, False
        self.provider = provider
        self.remote, self.ref, self.handle, self.token = None, None, 0, b""
        self.creations = []

    @property
    def allocated(self) -> bool:
        """True if the session allocated the memory, False if it was registered."""
        return self.on == "dpu" or self._close_memory is not None

    @property
    def where(self) -> str:
        """Return the side, and the place unless it is plain host memory."""
        return self.on if self.place == "host" else f"{self.on}, {self.place}"

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """Return the bytes as a NumPy array, or as a CuPy array if they are on a GPU.

        Raises:
            Unsupported: The bytes are at the agent; session.read() returns them.
            ClosedError: The region is closed.
        """
        local = self.local  # read once: another thread may close the region
        if self.closed:
            raise ClosedError(f"region {self.name!r} is closed")
        if local is None:
            raise Unsupported(
                errno.EOPNOTSUPP,
                f"the bytes of {self.name!r} are at the agent: session.read() returns them",
            )
        array: np.ndarray[Any, Any] = local.memory.array
        return array

    def span(self, offset: int | str, size: int | str) -> tuple[int, int]:
        """Return the checked offset and size of a transfer, given as numbers or texts ("64K").

        Raises:
            TypeError, ValueError: `offset` or `size` is neither a number of bytes nor such a text.
            BoundsError: The span exceeds the region.
            ClosedError: The region is closed.
        """
        if self.closed:
            raise ClosedError(f"region {self.name!r} is closed")
        if type(offset) is not int or type(size) is not int or offset < 0 or size < 1:
            offset, size = byte_count("offset", offset), byte_count("size", size, 1)
        if offset + size > self.size:
            from ..units import plural  # imported late: connect() must be quick

            verb = "leaves" if size == 1 else "leave"
            raise BoundsError(
                f"{plural(size, 'byte')} at offset {offset:,} {verb} region {self.name!r}, "
                f"which has {plural(self.size, 'byte')}"
            )
        return offset, size

    def close(self, timeout: float = 1.0) -> None:
        """Revoke the region on both sides. Idempotent.

        Raises:
            RegionBusy: A transfer is still in flight after `timeout` seconds; call again.
        """
        if not self.closed:
            self._close(self, seconds("timeout", timeout, zero=True))
            self.closed = True

    def free(self, timeout: float) -> None:
        """Close this process's side of the region, and its memory if the region owns it."""
        remote, local, close_memory = self.remote, self.local, self._close_memory
        if remote is not None:
            remote.close()
        if local is not None:
            local.close(timeout)
        if close_memory is not None:
            close_memory()
        self.remote = self.local = self._close_memory = self.producer = None

    def __dir__(self) -> list[str]:
        """List what users of a region need."""
        return [*_PUBLIC, *(name for name in super().__dir__() if name.startswith("__"))]

    def _layout(self) -> str:
        """Return dtype and shape of an array in this process's memory; "" for plain bytes."""
        array = getattr(getattr(self.local, "memory", None), "array", None)
        if array is None or (array.dtype == "u1" and array.ndim == 1):
            return ""
        from ..units import dtype_text  # imported late: connect() must be quick

        return f"{dtype_text(array.dtype)}, shape {array.shape}"

    def __repr__(self) -> str:
        from ..units import plural  # imported late: connect() must be quick

        layout = f" ({layout})" if (layout := self._layout()) else ""
        about = f"{plural(self.size, 'byte')}{layout}, {self.access}"
        about += f", {self.registration}" if self.registration else ""
        about += f", auto: {self.chosen}" if self.chosen else ""
        state = ", closed" if self.closed else ""
        return f"<SessionRegion {self.name!r} on {self.where}, {about}{state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import access_text, card, provider_badge
        from ..units import plural

        rows = [
            ("Name", self.name),
            ("On", self.where),
            ("Size", plural(self.size, "byte")),
            *([("Array", layout)] if (layout := self._layout()) else []),
            ("Access", access_text(self.access)),
            *([("Registered", self.registration)] if self.registration else []),
            *([("Chosen", self.chosen)] if self.chosen else []),
        ]
        title = "Region of a session (closed)" if self.closed else "Region of a session"
        return card(title, rows, badge=provider_badge(self.provider))


class RegionRegistry:
    """Open regions, in order of creation. Thread-safe.

    Attributes:
        notify: Called after each change.
    """

    def __init__(self) -> None:
        self._regions: dict[int, SessionRegion] = {}
        self._last_id = 0
        self.notify: Callbacks[[]] = Callbacks("a change of a session's regions")

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def open(self) -> tuple[SessionRegion, ...]:
        """Return the regions that are not closed."""
        return tuple(self._regions.values())

    def next_id(self) -> int:
        """Return the number of a new region."""
        self._last_id += 1
        return self._last_id

    def add(self, region: SessionRegion) -> SessionRegion:
        """Add a region that both sides have set up; return it."""
        self._regions[region.id] = region
        self.notify()
        return region

    def remove(self, region: SessionRegion) -> None:
        """Remove a region that was closed on both sides."""
        region.closed = True
        self._regions.pop(region.id, None)
        self.notify()

    def free_all(self, undo: ExitStack) -> None:
        """Register the freeing of all regions with `undo`."""
        for region in self.open:
            undo.callback(region.free, 1.0)

    def on_session_closed(self, kind: type[BaseException] | None, *_: object) -> None:
        """Mark all regions as closed unless an error occurred; runs as the last exit callback."""
        if kind is None:
            for region in self.open:
                region.closed = True
            self._regions.clear()
        self.notify()


def checked_span(
    session: Session, region: Any, offset: int | str, size: int | str, refused: Access | None = None
) -> tuple[int, int]:
    """Return the checked offset and size of a transfer of a session.

    Synchronizes with the stream that produces the bytes. Errors as SessionRegion.span().

    Args:
        offset: Byte of the region to start at.
        size: Bytes.
        refused: Access of a region that does not allow the transfer: READ_ONLY or WRITE_ONLY.

    Raises:
        AccessDenied: The region's access is `refused`.
        TypeError, ValueError: `region` is not a region of `session`.
    """
    if type(region) is not SessionRegion or region.session is not session:
        raise _not_of_session(session, region)
    span = region.span(offset, size)
    if region.access is refused:
        has, verb = ("read", "write") if refused is READ_ONLY else ("write", "read")
        raise AccessDenied(f"region {region.name!r} is {has}-only: a {verb} is not allowed")
    if region.producer is not None:
        region.producer()
    return span


def check_region(session: Session, region: Any) -> None:
    """Check that an argument is an open region of `session`.

    Raises:
        ClosedError: The region is closed.
        TypeError, ValueError: `region` is not a region of `session`.
    """
    if type(region) is not SessionRegion or region.session is not session:
        raise _not_of_session(session, region)
    if region.closed:
        raise ClosedError(f"region {region.name!r} is closed")


def _not_of_session(session: Session, value: Any) -> Exception:
    """Return the error for an argument that is not a region of `session`."""
    if isinstance(value, SessionRegion):
        return ValueError(
            f"region {value.name!r} is of another session; {session!r} can use only those that its "
            "own empty() and register() made"
        )
    return TypeError(
        f"region has type {type(value).__name__}; it must be a SessionRegion: session.empty() "
        "makes one, session.register(obj) makes one of existing memory"
    )
