# SPDX-License-Identifier: Apache-2.0
"""Backend where the DPU is an agent: this process provides host memory and sends requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..dpu.byte_pool import BytePool
from ..dpu.job import Chunk, Job, TransferJob
from ..dpu.job_worker import Worker
from ..errors import DgkitError, LimitReached, Unsupported
from ..schema import Moved
from ..sizes import LARGE, LARGE_SLOTS, SLOT_WAIT_S, SMALL, SMALL_SLOTS
from ..types import Op
from ..wire.connection import Connection
from ..wire.messages import (
    Allocate,
    Allocated,
    Block,
    Cancel,
    Digest,
    Import,
    Latency,
    Move,
    MoveDone,
    Progress,
    Rate,
)
from ..wire.pending import Pending, ReplyLost
from .session_transfer import SessionTransfer, TransferReport
from .staging import Staging, WholeMove

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device
    from ..dpu.benchmark import MeasurementListener
    from ..dpu.copier import Slots
    from ..schema import LatencyResult, LatencyTask, RateResult, RateTask, WatchTask
    from ..wire.messages import Request
    from .sample_source import SampleSource
    from .session_region import SessionRegion

_PROGRESS_S = 0.1  # how often a measurement reports progress


def cancel(link: Connection, pending: Pending) -> None:
    """Ask the agent to end a request early, unless it has been answered."""
    if link.dead is None and not pending.done:
        link.post(Cancel(target=pending.number))


class SentRequest:
    """Step of a chunk: a request, repeated if its reply is lost, since repeating it is harmless.

    Args:
        link: Connection to the agent.
        message: The request; or one that was sent already and must not be repeated.
    """

    def __init__(self, link: Connection, message: Request | Pending) -> None:
        self._link = link
        self._message = None if isinstance(message, Pending) else message
        self.pending = message if isinstance(message, Pending) else link.post(message)

    def done(self) -> bool:
        """Return whether the request was answered or has failed."""
        lost = self.pending.done and isinstance(self.pending.error, ReplyLost)
        if lost and self._message is not None:
            try:
                self.pending = self._link.post(self._message)
            except DgkitError as exc:
                self.pending.error = exc
        return self.pending.done

    def wait(self, timeout: float | None = None) -> Any:
        """Wait, then return the reply or raise the error."""
        self._link.wait(self.pending, timeout)
        return self.pending.result()


class RemoteJob(TransferJob):
    """Transfer by one Move request for each chunk, between staging memory and the region.

    Args:
        link: Connection to the agent.
        handle: The region's handle at the agent.
        offset: Byte of the region to start at.
        size: Bytes.
        view: As in TransferJob.
        data: As in TransferJob.
    """

    _slots: Staging

    def __init__(
        self,
        link: Connection,
        handle: int,
        offset: int,
        size: int,
        view: memoryview | None,
        data: bytes,
    ) -> None:
        super().__init__(size, handle, view, data)
        self.link, self._offset = link, offset
        self._parts = 0  # chunks of the agent

    def _prepare(self, slots: Staging) -> None:
        slots.open()
        self._chunk_size = slots.slot_size

    def _move(self, chunk: Chunk) -> SentRequest:
        staging, slot = self._slots.handle, chunk.slot
        region, offset, size = self.refs[0], self._offset + chunk.at, chunk.size
        if self.writes:
            move = Move(src=staging, src_offset=slot, dst=region, dst_offset=offset, size=size)
        else:
            move = Move(src=region, src_offset=offset, dst=staging, dst_offset=slot, size=size)
        return SentRequest(self.link, move)

    def _record(self, _: Chunk, result: Any) -> None:
        if isinstance(result, MoveDone):
            moved = result.moved
            self._first, self._last = self._first or moved, moved
            self._ns[Op.READ] += moved.read_ns
            self._ns[Op.WRITE] += moved.write_ns
            self._parts += moved.chunks

    def _total(self) -> Moved:
        first, last = cast("Moved", self._first), cast("Moved", self._last)
        return replace(
            last, size=self.size, chunks=self._parts,
            read_ns=self._ns[Op.READ], write_ns=self._ns[Op.WRITE],
            first_submit_ns=first.first_submit_ns, first_post_ns=first.first_post_ns,
            first_complete_ns=first.first_complete_ns,
        )  # fmt: skip

    def cancel(self, error: Exception) -> None:
        """End the job early, and ask the agent to do so with the chunks in flight."""
        super().cancel(error)
        for chunk in [*self._storing, *self._loading]:
            if isinstance(step := chunk.step, SentRequest):  # None: the worker records its result
                cancel(self.link, step.pending)


class SentJob(RemoteJob):
    """Transfer by one request that was sent; the thread that waits for it handles the reply.

    If the reply is lost, the worker repeats the transfer.

    Args:
        sent: The request.
        worker: The session's worker.
        job: Arguments of RemoteJob.
    """

    def __init__(self, sent: WholeMove, worker: RemoteWorker, *job: Any) -> None:
        super().__init__(*job)
        self.sent: WholeMove | None = sent  # None: the worker has the job
        self._worker = worker
        sent.repeat = self._repeat

    def take_reply(self) -> None:
        """Record the result of the request, which is done, and end the job."""
        sent = self.sent
        if sent is None:
            return
        if isinstance(sent.error, ReplyLost):
            self._repeat()
            return
        if sent.error is not None:
            self.fail(sent.error)
        else:
            moved = sent.reply.moved
            self._first = self._last = moved
            self._ns, self._parts = [moved.read_ns, moved.write_ns], moved.chunks
            self.done, self.chunks = self.size, 1
        self.end()

    def _repeat(self) -> None:
        """Have the worker repeat the transfer; later transfers with the same region wait."""
        if self.sent is None:
            return
        try:
            self._worker.submit(self)
        except LimitReached as exc:
            self.fail(exc)
            self.end()
        self.sent = None

    def cancel(self, error: Exception) -> None:
        """End the job early, unless the request is done before."""
        super().cancel(error)
        if self.sent is not None:
            cancel(self.link, self.sent)

    def call_on_end(self, call: Callable[[], object]) -> None:
        """Call once when the job has ended, from the worker; at once if it has."""
        super().call_on_end(call)
        if self.sent is not None and not self.ended:
            self._worker.submit(_ReplyWaiter(self, self.sent))


class _ReplyWaiter(Job):
    """Job that waits for another job's request and ends that job; it moves no bytes.

    For callbacks: without it, nobody would wait for the reply.
    """

    def __init__(self, job: SentJob, sent: WholeMove) -> None:
        super().__init__(0)
        self._job, self._sent = job, sent

    def _prepare(self, slots: Slots) -> None:
        """Do nothing: no bytes are moved."""

    def _load(self, _: Chunk) -> SentRequest:
        return SentRequest(self._job.link, self._sent)

    def _store(self, _: Chunk) -> None:
        """Do nothing: the request was all."""

    def _record(self, _: Chunk, __: Any) -> None:
        """Do nothing: the job takes the result."""

    def _total(self) -> None:
        """Return nothing."""

    def end(self) -> None:
        """End the job, if the request is done."""
        if self._sent.done:
            self._job.take_reply()
        super().end()


class RemoteWorker(Worker):
    """Worker whose jobs send requests to an agent."""

    def __init__(self, link: Connection, slots: Slots) -> None:
        super().__init__(slots, lambda _: None)
        self.link = link
        self._raise_if_stopped = link.peer_state.stop_check()

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait for a job, as Worker.wait().

        Raises:
            PeerTimeout: The agent's process is stopped, or it is silent.
        """
        if isinstance(job, SentJob) and job.sent is not None:
            return self._wait_sent(job, job.sent, timeout)
        if super().wait(job, timeout):
            return True
        if timeout and any(job.share[0] for job in list(self.jobs)):  # requests were sent
            self._raise_if_stopped()
            self.link.check_silence()
        return False

    def _wait_sent(self, job: SentJob, sent: WholeMove, timeout: float) -> bool:
        if sent.done or self.link.wait(sent, timeout):
            job.take_reply()
        else:
            self.link.check()  # a forked child's is dead
            if timeout:
                self.link.check_silence()
        return job.ended


class RemoteDpu:
    """Moves bytes by requests to an agent. Thread-safe."""

    _job_type = RemoteJob
    over_wire = False
    emulated = False  # the agent's machine

    def __init__(self, link: Connection, device: Device, provider: str, timeout: float) -> None:
        self.link = link
        self.provider = provider
        self.no_dma: Unsupported | None = None
        self._timeout = timeout
        self._small = Staging(link, device, SMALL, SMALL_SLOTS, timeout)
        self._large = self._large_staging(device)
        self._worker = RemoteWorker(link, self._large)
        self._results = BytePool()

    def _large_staging(self, device: Device) -> Staging:
        """Return the staging memory of the worker, and of single chunks of other threads."""
        return Staging(self.link, device, LARGE, LARGE_SLOTS, self._timeout)

    def write(self, region: SessionRegion, view: memoryview | bytes, offset: int) -> TransferReport:
        """Write and wait; one request and one reply if the data fits a slot."""
        pending = self._move_whole(region, offset, len(view), view, waits=True)
        if pending is None:
            return self._transfer(region, offset, len(view), memoryview(view)).run()
        try:
            reply = pending.reply if pending.done and not pending.error else self._wait(pending)
        except ReplyLost:  # repeating the write is harmless
            return self.write(region, view, offset)
        return TransferReport(reply.moved, self.provider, emulated=self.emulated)

    def read(self, region: SessionRegion, offset: int, size: int) -> bytes:
        """Read and wait; return the bytes."""
        pending = self._move_whole(region, offset, size, None, waits=True)
        if pending is None:
            transfer = self._transfer(region, offset, size, None)
            transfer.run()
            return transfer.data
        try:
            self._wait(pending)
        except ReplyLost:  # repeating the read is harmless
            return self.read(region, offset, size)
        return pending.data

    def _move_whole(
        self,
        region: SessionRegion,
        offset: int,
        size: int,
        view: memoryview | bytes | None,
        waits: bool = False,
    ) -> WholeMove | None:
        """Send one request for a whole transfer; return None if the worker has to move it.

        A transfer whose caller does not wait must be small, so that this returns soon.
        """
        if self.link.pending:
            self.link.find_lost()  # a started transfer that is repeated is made before this one
        if size > (LARGE if waits else SMALL) or (
            self._worker.jobs and self._worker.using(region.handle)
        ):
            return None
        staging = self._small if size <= SMALL else self._large
        if not staging.handle:
            staging.open()
        data = self._results.take(size) if view is None else b""
        with self.link.lock:  # so that no other thread finds the same slot
            pending = staging.stage(view, data)
            if pending is not None:
                if view is None or not waits:
                    pending.then = pending.finish
                if view is None:
                    move = Move(
                        src=region.handle, src_offset=offset,
                        dst=staging.handle, dst_offset=pending.slot, size=size,
                    )  # fmt: skip
                else:
                    move = Move(
                        src=staging.handle, src_offset=pending.slot,
                        dst=region.handle, dst_offset=offset, size=size,
                    )  # fmt: skip
                small = waits and size <= SMALL
                if not (small and self.link.exchange(move, pending)):
                    self.link.post(move, pending=pending)
                return pending
        if staging is self._small and self._wait_for_small_slot():
            return self._move_whole(region, offset, size, view, waits)
        return None

    def _wait_for_small_slot(self) -> bool:
        """Wait briefly for the oldest small request; return whether it is done."""
        with self.link.lock:
            moves = self._small.pending_moves()
        return not moves or self.link.wait(moves[0], SLOT_WAIT_S)

    def start(
        self, region: SessionRegion, offset: int, size: int, view: memoryview | None
    ) -> SessionTransfer:
        """Start a write of `view`, or a read if `view` is None."""
        sent = self._move_whole(region, offset, size, view)
        transfer = self._transfer(region, offset, size, view, sent)
        return transfer if sent is not None else transfer.start()

    def _transfer(
        self,
        region: SessionRegion,
        offset: int,
        size: int,
        view: memoryview | None,
        sent: WholeMove | None = None,
    ) -> SessionTransfer:
        data = sent.data if sent else self._results.take(size) if view is None else b""
        job = (self.link, region.handle, offset, size, view, data)
        transfer = self._job_type(*job) if sent is None else SentJob(sent, self._worker, *job)
        return SessionTransfer(self._worker, transfer, self.provider, self.over_wire, self.emulated)

    def _wait(self, pending: Pending) -> Any:
        """Return the reply to a request; wait as long as the agent lives and is not silent."""
        try:
            while not self.link.wait(pending, self.link.timeout / 2):
                self.link.check_silence()
        except BaseException:
            cancel(self.link, pending)
            raise
        return pending.result()

    def copy(self, src: SessionRegion, dst: SessionRegion, size: int) -> TransferReport:
        """Copy and wait, after the transfers with these regions that were started before."""
        self._finish_transfers(src, dst)
        move = Move(src=src.handle, src_offset=0, dst=dst.handle, dst_offset=0, size=size)
        return TransferReport(self._request(move).moved, self.provider, emulated=self.emulated)

    def digest(self, region: SessionRegion, offset: int, size: int) -> str:
        """Return the SHA-256, in hex digits, of bytes that the DPU reads; ordered like copy()."""
        self._finish_transfers(region)
        request = Digest(region=region.handle, offset=offset, size=size)
        return str(self._request(request).digested.sha256)

    def _finish_transfers(self, *regions: SessionRegion) -> None:
        """Wait for the transfers with some regions that were started before."""
        self.link.find_lost()
        for job in [job for region in regions for job in self._worker.using(region.handle)]:
            while not self._worker.wait(job, 1.0):
                pass

    def _request(self, request: Request) -> Any:
        """Send a request that is safe to repeat, and return the reply."""
        while True:
            try:
                return self._wait(self.link.post(request))
            except ReplyLost:
                continue

    def latency(
        self, region: SessionRegion, task: LatencyTask, listener: MeasurementListener
    ) -> LatencyResult:
        """Measure latencies at the agent."""
        request = Latency(region=region.handle, task=task)
        result: LatencyResult = self._measure(request, listener).result
        return result

    def bandwidth(
        self, region: SessionRegion, task: RateTask, listener: MeasurementListener
    ) -> RateResult:
        """Measure bandwidth at the agent."""
        request = Rate(region=region.handle, task=task)
        result: RateResult = self._measure(request, listener).result
        return result

    def _measure(self, request: Latency | Rate, listener: MeasurementListener) -> Any:
        """Measure at the agent; return the final reply."""

        def on_progress(message: Any) -> None:
            if isinstance(message, Block):
                listener.add_block(message.number, message.samples)
            elif isinstance(message, Progress):
                listener.add_progress(message.done, message.total)

        pending = Pending()
        pending.on_progress = on_progress
        try:
            self.link.post(request, pending=pending)
            while not self.link.wait(pending, _PROGRESS_S):
                listener.check()
                self.link.check_silence()
        except BaseException:
            cancel(self.link, pending)
            raise
        listener.check()
        return pending.result()

    def monitor(self, region: SessionRegion, task: WatchTask, timeout: float) -> SampleSource:
        """Start a monitor at the agent."""
        from .sample_source import RemoteSource

        return RemoteSource(self.link, region.handle, task, timeout)

    def allocate(self, region: SessionRegion, name: str, place: str, timeout: float) -> Allocated:
        """Have the agent allocate the memory of a region."""
        request = Allocate(
            size=region.size, access=int(region.access), export=False, name=name, place=place
        )
        allocated: Allocated = region.create(self.link, request, timeout)
        region.handle = allocated.region
        return allocated

    def adopt(self, region: SessionRegion) -> None:
        """Have the agent import a region of this process."""
        assert region.local is not None
        region.token = region.local.export()
        imported = region.create(self.link, Import(token=region.token), self._timeout)
        region.handle = imported.region

    def forget(self, region: SessionRegion, timeout: float) -> None:
        """Have the agents close their sides of a region."""
        region.free_at_agents(timeout, self._timeout)

    def counters(self) -> dict[str, int]:
        """Return the counters that Session.stats() adds to the agent's counters: none."""
        return {}

    def close(self) -> None:
        """Free the staging memory; the link is closed by then, so nothing uses it."""
        self._worker.close()
        self._small.close()
        self._results.clear()
