"""Transfer where the DPU is an agent: each chunk is moved by a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dpu.job import Chunk, TransferJob
from ..dpu.job_worker import Worker
from ..dpu.values import Moved
from ..errors import DgkitError, PeerTimeout
from ..types import Op
from ..wire import messages
from ..wire.connection import Pending, ReplyLost

if TYPE_CHECKING:
    from ..dpu.copier import Slots
    from ..dpu.job import Job
    from ..wire.connection import Connection
    from .staging import Staging

SILENCE_S = 30.0  # a request is given up if the agent sends nothing for this long


def check_silence(link: Connection) -> None:
    """Raise PeerTimeout if the agent has sent nothing for SILENCE_S."""
    if link.idle_s > SILENCE_S:
        raise PeerTimeout(f"the agent has sent nothing for {SILENCE_S:.0f} s")


def cancel(link: Connection, pending: Pending) -> None:
    """Ask the agent to end a request early, unless it has been answered."""
    if link.dead is None and not pending.done:
        link.post(messages.Cancel, pending.number)


class Request:
    """Step of a chunk: a request, which is sent again if its reply is lost, since that is harmless.

    Args:
        link: Connection to the agent.
        message: The request's class, and its fields after the number.
    """

    def __init__(self, link: Connection, *message: Any) -> None:
        self._link, self._message = link, message
        self.pending = link.post(*message)

    def done(self) -> bool:
        """Return whether the request was answered or has failed."""
        if self.pending.done and isinstance(self.pending.error, ReplyLost):
            try:
                self.pending = self._link.post(*self._message)
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
        self._link, self._offset = link, offset
        self._parts = 0  # chunks of the agent

    def _prepare(self, slots: Staging) -> None:
        slots.open()
        self._chunk_size = slots.slot_size

    def _move(self, chunk: Chunk) -> Request:
        staged = (self._slots.handle, chunk.slot)
        remote = (self.refs[0], self._offset + chunk.at)
        ends = (*staged, *remote) if self.writes else (*remote, *staged)
        return Request(self._link, messages.Move, *ends, chunk.size)

    def _record(self, _: Chunk, result: Any) -> None:
        if isinstance(result, messages.Moved):
            self._first, self._last = self._first or result, result
            self._ns[Op.READ] += result.read_ns
            self._ns[Op.WRITE] += result.write_ns
            self._parts += result.chunks

    def _total(self) -> Moved:
        first, last = self._first, self._last
        return Moved(
            self.size, last.op, last.path, last.submit_ns, last.post_ns, last.complete_ns,
            self._ns[Op.READ], self._ns[Op.WRITE], self._parts,
            first.first_submit_ns, first.first_post_ns, first.first_complete_ns,
        )  # fmt: skip

    def cancel(self, error: Exception) -> None:
        """End the job early, and ask the agent to do so with the chunks in flight."""
        super().cancel(error)
        for chunk in [*self._storing, *self._loading]:
            if isinstance(step := chunk.step, Request):  # None: the worker records its result
                cancel(self._link, step.pending)


class RemoteWorker(Worker):
    """Worker whose jobs send requests to an agent."""

    def __init__(self, link: Connection, slots: Slots) -> None:
        super().__init__(slots, lambda _: None)
        self._link = link
        self._raise_if_stopped = link.liveness.stop_check()

    def wait(self, job: Job, timeout: float) -> bool:
        """Wait for a job, as Worker.wait().

        Raises:
            PeerTimeout: The agent's process is stopped, or it has sent nothing for SILENCE_S.
        """
        if super().wait(job, timeout):
            return True
        if timeout and any(job.share[0] for job in list(self.jobs)):  # requests were sent
            self._raise_if_stopped()
            check_silence(self._link)
        return False
