# SPDX-License-Identifier: Apache-2.0
"""Continuous latency monitoring of a session."""

from __future__ import annotations

import contextlib
import errno
import threading
import warnings
from typing import TYPE_CHECKING

from ..errors import ClosedError, LimitReached, copy_of
from ..schema import EVERY_S, MONITOR_SAMPLES, WatchTask
from ..schema import Sampled as Sampled
from ..types import parse_path, provider_label
from ..unique import Closable, Unique
from ..wire.messages import MONITORS
from . import argument_checks
from .session_reports import describe_sides, scratch_for, spinning

if TYPE_CHECKING:
    from ..live_set import LiveSet
    from ..report import Machine
    from .region_factory import RegionFactory
    from .resources import SessionResources
    from .sample_source import SampleSource
    from .session_reports import Measured, Scratch


class Monitor(Unique, Closable):
    """Continuous latency measurement, created by Session.monitor(). Thread-safe.

    Close it with close() or a `with` block; closing the session also closes it.

    The DPU takes `count` samples every `every_s` seconds, independently of this process; where this
    process is the DPU, read() takes them when they are due. `path` is the path of the first
    transfer, which is not a sample. Python stamps a block's `t_ns` when the block is complete: it
    places the block on a time axis and is not part of any sample. `lost` counts the blocks that did
    not arrive, since only about 1,000 are buffered between two calls of read(). `where` names the
    region and the processes.
    """

    def __init__(
        self,
        factory: RegionFactory,
        siblings: LiveSet[Monitor],
        measured: Measured,
        offset: int,
        *,
        count: int,
        every_s: float,
        destructive: bool,
    ) -> None:
        self.region, self.offset = measured.region, offset
        self.size, self.op = measured.size, measured.op
        self.count = argument_checks.within("count", count, 1, MONITOR_SAMPLES)
        self.every_s = argument_checks.seconds(
            "every_s", every_s, least=EVERY_S[0], most=EVERY_S[1]
        )
        argument_checks.op(measured.op)
        path = parse_path(measured.path).code
        backend = factory.resources.dpu
        self._link = backend.link
        self._siblings = siblings  # the open monitors of the session
        self._lock = threading.Lock()
        self._next = 0
        self._dead: Exception | None = None
        self.lost = 0
        self.provider = backend.provider
        self.spinning = spinning(measured.info)
        self._scratch: Scratch | None = None
        self._add_to_session()
        try:
            self._scratch = scratch = scratch_for(
                factory, self.region, offset, self.size, op=self.op, destructive=destructive
            )
            source = self._start(factory.resources, measured, scratch, path)
        except BaseException:
            siblings.discard(self)
            self._free_scratch()
            raise
        with self._lock:
            self._source = source
        if self.closed:  # another thread has closed the session
            source.stop()
            self._free_scratch()
            raise ClosedError("the session is closed")

    def _start(
        self, resources: SessionResources, measured: Measured, scratch: Scratch | None, path: int
    ) -> SampleSource:
        region, offset = self.region, self.offset
        if scratch is not None:
            region, offset = scratch.region, scratch.offset
        self.where = describe_sides(measured.info, region)
        task = WatchTask(
            offset=offset, size=self.size, op=argument_checks.op(self.op).value,
            samples=self.count, path=path, every_s=self.every_s,
        )  # fmt: skip
        return resources.dpu.monitor(region, task, resources.timeout)

    def _add_to_session(self) -> None:
        """Add this monitor to the session's; raise LimitReached if it has too many."""
        self._siblings.add(self)
        if len(self._siblings) > MONITORS:
            self._siblings.discard(self)
            raise LimitReached(
                errno.ENOSPC,
                f"this session has {MONITORS} monitors open, the maximum: close one first",
            )

    def _free_scratch(self) -> None:
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.free()

    @property
    def path(self) -> str:
        """Return the path of the first transfer: `inline` or `worker`."""
        return self._source.path

    @property
    def buffered(self) -> bool:
        """Return whether blocks are also taken between two calls of read()."""
        return self._source.buffered

    @property
    def machine(self) -> Machine:
        """Return the machine that takes the samples."""
        return self._source.machine

    @property
    def label(self) -> str:
        """Return the name to show beside the samples, such as `software DPU`.

        It mentions a GPU only if one copies.
        """
        return provider_label(self.machine.mover(self.provider))

    def read(self) -> list[Sampled]:
        """Return the blocks that came since the last call, oldest first, without waiting.

        `latencies_ns` of a block is an array.

        If the monitor has ended and all blocks were returned, raise the reason.

        Raises:
            ClosedError: The monitor, its region or its session was closed.
            TransferError, AccessDenied: A sample failed.
            PeerLost: The agent is gone.
            PeerTimeout: The agent's process is stopped; call again once it continues.
        """
        with self._lock:
            if self._dead is not None:
                raise copy_of(self._dead)
            if self.region.closed:  # scratch memory would still yield blocks
                self._raise_if_ended()
            blocks = self._source.take()
            for block in blocks:
                self.lost += block.number - self._next
                self._next = block.number + 1
            if not blocks:
                self._raise_if_ended()
            return blocks

    def _raise_if_ended(self) -> None:
        """If an error ended the monitor, free this process's part and raise the error."""
        error = self._source.ended or self._link.dead
        freed = self.region.closed and (error is not None or self._scratch is not None)
        if error is None and not freed:
            return
        if freed:
            error = ClosedError(f"region {self.region.name!r} was closed while it was monitored")
        self._dead = error
        self._siblings.discard(self)
        self._source.stop()
        if self._scratch is not None:
            self._source.free()
            self._free_scratch()
        assert error is not None
        raise copy_of(error)

    def close(self) -> None:
        """End the monitor; both sides have freed its resources on return. Idempotent."""
        with self._lock:
            self._siblings.discard(self)
            self._dead = ClosedError("the monitor is closed")
            source = getattr(self, "_source", None)
            if source is None:  # __init__ is waiting for it, and stops it
                return
        with contextlib.ExitStack() as steps:  # in reverse order
            steps.callback(self._free_scratch)
            steps.callback(source.free)
            steps.callback(source.stop)

    @property
    def closed(self) -> bool:
        """Return whether no more blocks will come."""
        return self._dead is not None

    def abandon(self) -> None:
        """Detach in a forked child: the parent owns the monitor and may hold its lock."""
        self._lock = threading.Lock()
        self._dead = self._link.dead

    def __del__(self) -> None:
        if getattr(self, "_source", None) is None or self.closed:
            return  # or an exception interrupted the constructor
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        self._source.stop()  # the agent ends the monitor at the next request; never wait here

    def __repr__(self) -> str:
        from ..units import plural

        lost = f", {plural(self.lost, 'block')} lost" if self.lost else ""
        state = ", closed" if self.closed else lost
        what = f"{self.op} of {plural(self.size, 'byte')}, {self.count:,} every {self.every_s:g} s"
        return f"<Monitor {what}, {self.path}, {self.label}{state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import plural, size_text

        rows = [
            ("Times", f"{self.op} of {size_text(self.size)} at offset {self.offset:,}"),
            ("Samples", f"{self.count:,} every {self.every_s:g} s"),
            ("Path", self.path),
            ("Where", self.where),
            ("Machine", str(self.machine)),
            *([("Lost", plural(self.lost, "block"))] if self.lost else []),
        ]
        title = "Monitor (closed)" if self.closed else "Monitor"
        return card(title, rows, badge=provider_badge(self.machine.mover(self.provider)))
