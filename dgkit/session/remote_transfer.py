"""Transfer where the DPU is an agent: each chunk is moved by a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..dpu.job import Chunk, Job, TransferJob
from ..dpu.job_worker import Worker
from ..errors import DgkitError, LimitReached
from ..schema import Moved
from ..types import Op
from ..wire import messages
from ..wire.pending import Pending, ReplyLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dpu.copier import Slots
    from ..wire.connection import Connection
    from .staging import Staging, WholeMove


def cancel(link: Connection, pending: Pending) -> None:
    """Ask the agent to end a request early, unless it has been answered."""
    if link.dead is None and not pending.done:
        link.post(messages.Cancel(target=pending.number))


class SentRequest:
    """Step of a chunk: a request, repeated if its reply is lost, since repeating it is harmless.

    Args:
        link: Connection to the agent.
        message: The request; or one that was sent already and must not be repeated.
    """

    def __init__(self, link: Connection, message: messages.Request | Pending) -> None:
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
            move = messages.Move(
                src=staging, src_offset=slot, dst=region, dst_offset=offset, size=size
            )
        else:
            move = messages.Move(
                src=region, src_offset=offset, dst=staging, dst_offset=slot, size=size
            )
        return SentRequest(self.link, move)

    def _record(self, _: Chunk, result: Any) -> None:
        if isinstance(result, messages.MoveDone):
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
