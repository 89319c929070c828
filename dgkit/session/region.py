"""Memory that a session knows: on the host or on the DPU, here or at the agent."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ..errors import BoundsError, ClosedError, Unsupported
from ..types import Access
from ..validate import whole
from .argument_checks import seconds

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    import numpy as np

    from ..dma import Region, RemoteRegion
    from .session import Session

    class Closable(Protocol):
        """Memory of any kind."""

        def close(self) -> None: ...


__all__ = ["SessionRegion"]


def _wait(memory: Any, gpu: int) -> None:
    """For the stream that fills the memory; the region goes on when the memory was closed."""
    if not memory.closed:
        memory.synchronize()
        return
    from ..memory.gpu_base import synchronize_stream

    synchronize_stream(gpu)


class SessionRegion:
    """Made by Session.empty() and Session.register(). `on` is the side that has the bytes.

    `id` numbers the session's regions; `handle` is the agent's name for it, 0 if it knows it not.
    `place` is where the bytes are: `host`, `pinned`, `cuda:0`.
    `chosen` says what on="auto" took, and why. `producer` waits until the GPU has computed what was
    started before (CuPy's current stream); a session calls it before each transfer. It is None for
    memory that is not on a GPU of this process.
    """

    __slots__ = (
        *("_owner", "access", "chosen", "closed", "handle", "id", "local", "name", "on"),
        *("place", "producer", "remote", "session", "size", "token"),
    )

    def __init__(
        self, session: Session, number: int, *, on: str, size: int, access: Access, name: str | None
    ) -> None:
        self.session = session
        self._owner: Closable | None = None
        self.id = number
        self.on = on
        self.size = size
        self.access = access
        self.name = name or f"{on} region {number}"
        self.handle = 0
        self.token = b""
        self.place = "host"
        self.chosen = ""
        self.producer: Callable[[], object] | None = None
        self.local: Region | None = None
        self.remote: RemoteRegion | None = None
        self.closed = False

    def take(self, local: Region) -> None:
        """The region of this process that it is."""
        self.local, self.place = local, local.place
        span = getattr(local.memory, "gpu", None)
        if span is not None:
            self.producer = lambda: _wait(local.memory, span.gpu)

    def own(self, memory: Closable) -> None:
        """The memory under it, to be closed with it."""
        self._owner = memory

    @property
    def where(self) -> str:
        """The side, and the place if that is another one than plain host memory."""
        return self.on if self.place == "host" else f"{self.on}, {self.place}"

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The bytes as NumPy, those on a GPU as CuPy, if they are in this process.

        Unsupported if they are not: it says what to call.
        """
        if self.closed:
            raise ClosedError(f"region {self.name!r} is closed")
        if self.local is None:
            raise Unsupported(
                errno.EOPNOTSUPP,
                f"the bytes of {self.name!r} lie at the agent: session.read() brings them",
            )
        array: np.ndarray[Any, Any] = self.local.memory.array
        return array

    def span(self, offset: int, size: int) -> tuple[int, int]:
        """Checks a transfer. TypeError: no whole numbers. BoundsError. ClosedError."""
        if self.closed:
            raise ClosedError(f"region {self.name!r} is closed")
        if type(offset) is not int or type(size) is not int or offset < 0 or size < 1:
            offset, size = whole("offset", offset), whole("size", size, 1)
        if offset + size > self.size:
            raise BoundsError(
                f"{size} bytes at offset {offset} leave region {self.name!r}, which has "
                f"{self.size} bytes"
            )
        return offset, size

    def close(self, timeout: float = 1.0) -> None:
        """Revokes it on both sides. RegionBusy: still in a transfer; call again. Again: nothing."""
        if not self.closed:
            self.session.forget(self, seconds("timeout", timeout, zero=True))
            self.closed = True

    def free(self, timeout: float) -> None:
        """Closes this process's part, and lets its memory go."""
        for part in (self.remote, self.local):
            if part is not None:
                part.close(timeout) if part is self.local else part.close()
        if self._owner is not None:
            self._owner.close()
        self.remote = self.local = self._owner = self.producer = None

    def __enter__(self) -> SessionRegion:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        about = f"{self.size} bytes, {self.access}"
        about += f", auto: {self.chosen}" if self.chosen else ""
        state = ", closed" if self.closed else ""
        return f"<SessionRegion {self.name!r} on {self.where}, {about}{state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import access_text, card, provider_badge

        rows = [
            ("Name", self.name),
            ("On", self.where),
            ("Size", f"{self.size} bytes"),
            ("Access", access_text(self.access)),
            *([("Chosen", self.chosen)] if self.chosen else []),
        ]
        title = "Region of a session (closed)" if self.closed else "Region of a session"
        return card(title, rows, badge=provider_badge(self.session.dpu.provider))
