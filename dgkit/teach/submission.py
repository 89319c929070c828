# SPDX-License-Identifier: Apache-2.0
"""The grader's end of a submission: calls its functions and serves its requests."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import DgkitError
from ..unique import Closable
from ..units import printable
from . import codec, harness, sandbox

_STATUS_S = 2.0  # between the end of its connection and that of its process
_NONE = sandbox.Isolation("", note="functions of this process")
_HANGS = 2  # number of time-outs after which no more calls are made


class SubmissionFailed(Exception):
    """Raised if a call of a submission raised, timed out, ended its process or sent invalid data.

    Attributes:
        kinds: Names of the classes of the exception that it raised, most derived class first.
    """

    def __init__(self, text: str, kinds: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.kinds = tuple(kinds)


class Served:
    """Base class of objects that a submission gets as arguments.

    The submission can call only the methods listed in `methods`. They may raise DgkitError,
    ValueError, TypeError and IndexError.
    """

    methods: tuple[str, ...] = ()


Request = tuple[Served, str, list[Any]]  # the object, its method, the arguments


class Call:
    """A call in progress, which makes requests and ends with a value or an exception.

    Args:
        name: The function's name.
        args: Plain values, and Served objects.
    """

    def __init__(self, submission: Submission, name: str, args: Sequence[Any]) -> None:
        self._submission, self.name = submission, name
        self._objects: list[Served] = []
        values = [codec.encode(arg, self._reference) for arg in args]
        self._requests = 0
        submission.begin()
        submission.busy = True
        submission.send(["call", name, values])

    def _reference(self, value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Served):
            return None
        self._objects.append(value)
        number, kind = len(self._objects) - 1, type(value).__name__
        return {"object": number, "name": kind, "methods": list(value.methods)}

    def next(self) -> Request | None:
        """Wait for the next request; return None when the call has returned its `value`.

        Raises:
            SubmissionFailed: The call ended in another way.
        """
        kind, *rest = self._submission.receive(self.name)
        try:
            self._submission.busy = kind == "ask"
            if kind == "returned":
                self.value = codec.decode(*rest)
                return None
            if kind == "raised":
                raise self._submission.failure(self.name, rest)
            number, method, args = rest
            served = self._objects[number]
            assert kind == "ask"
            assert type(number) is int
            assert number >= 0
            assert method in served.methods
            values = codec.decode(args)
            assert isinstance(values, list)
        except (AssertionError, IndexError, KeyError, TypeError, ValueError):
            self._submission.close()
            raise SubmissionFailed(f"{self.name} sent a message that is not understood") from None
        self._requests += 1
        if self._requests > self._submission.limits.requests:
            self._submission.close()
            raise SubmissionFailed(
                f"{self.name} made more than {self._submission.limits.requests} requests"
            )
        return served, method, values

    def resume(self) -> None:
        """Restart the time limit of the call, after the caller has paused the call."""
        self._submission.restart_clock()

    def serve(self, request: Request) -> None:
        """Execute a request, and answer it."""
        served, method, args = request
        try:
            value = getattr(served, method)(*args)
        except (DgkitError, ValueError, TypeError, IndexError) as exc:
            self.refuse(exc)
        else:
            self.answer(value)

    def answer(self, value: Any) -> None:
        """Answer the request."""
        self._submission.send(["value", codec.encode(value)])

    def refuse(self, error: Exception) -> None:
        """Raise an error in the submission as the answer to the request."""
        self._submission.send(["error", type(error).__name__, str(error)])

    def run(self) -> Any:
        """Serve all requests; return the value."""
        while (request := self.next()) is not None:
            self.serve(request)
        return self.value


Connection = tuple[socket.socket, "subprocess.Popen[bytes] | None"]


class Submission(Closable):
    """A process or thread that runs a student's cells. After a failure, a new one is started.

    Args:
        connect: Function that starts the process or thread and returns the connection and the
            process (or None).
        limits: Limits of the process.
        cells: Name and source of each cell; a process runs them first.
        isolation: Isolation of the process.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        limits: sandbox.Limits,
        cells: Sequence[tuple[str, str]] = (),
        isolation: sandbox.Isolation = _NONE,
    ) -> None:
        self._connect, self.limits, self._cells = connect, limits, cells
        self.isolation = isolation
        self._sources = dict(cells)
        self.busy = False  # whether a call is in progress
        self._sock: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._left_s = _HANGS * limits.time_s
        self._deadline = 0.0

    @classmethod
    def of_cells(
        cls,
        cells: Sequence[tuple[str, str]],
        *,
        limits: sandbox.Limits,
        isolation: sandbox.Isolation,
    ) -> Submission:
        """Return a submission whose process runs the cells, pairs of a name and its source."""
        return cls(lambda: sandbox.start(limits, isolation), limits, cells, isolation)

    def twin(self) -> Submission:
        """Return a submission of the same cells in another process."""
        return Submission(self._connect, self.limits, self._cells, self.isolation)

    def begin(self) -> None:
        """Start the process unless it is running, and start the time limit of a call.

        Raises:
            SubmissionFailed: A cell raised, or too many earlier calls timed out.
        """
        if self._left_s <= 0:
            raise SubmissionFailed("not tested: earlier calls took all the time")
        if self.busy:  # the last call was abandoned
            self.close()
        if not self._sock:
            self._sock, self._process = self._connect()
            if self._process:
                self._deadline = time.monotonic() + self.limits.start_s + self.limits.time_s
                self.send(["cells", [list(cell) for cell in self._cells]])
                kind, *rest = self.receive("a solution cell")
                if kind != "ready":
                    failure = self.failure("a solution cell", rest)
                    self.close()
                    raise failure
        self.restart_clock()

    def restart_clock(self) -> None:
        """Restart the time limit of the call in progress."""
        self._deadline = time.monotonic() + self.limits.time_s

    def function(self, name: str) -> RemoteFunction:
        """Return a function by name; calling it fails if the submission does not define it."""
        return RemoteFunction(self, name)

    def send(self, message: list[Any]) -> None:
        """Send a message; raise SubmissionFailed if the submission has ended."""
        try:
            codec.send(self._open_socket, message, self._deadline)
        except TimeoutError:
            raise self._late("the submission") from None
        except (OSError, EOFError):
            raise self._ended("the submission") from None

    def receive(self, what: str) -> list[Any]:
        """Return the next message; raise SubmissionFailed if none arrives in time."""
        try:
            return codec.receive(self._open_socket, self._deadline)
        except TimeoutError:
            raise self._late(what) from None
        except EOFError:
            raise self._ended(what) from None
        except codec.BadMessage as exc:
            self.close()
            raise SubmissionFailed(f"{what} sent {exc}") from None

    @property
    def _open_socket(self) -> socket.socket:
        if not self._sock:
            raise EOFError
        return self._sock

    def failure(self, what: str, raised: Sequence[Any]) -> SubmissionFailed:
        """Return a SubmissionFailed for an exception that the submission reports."""
        try:
            kinds, text, cell, line = raised
            kinds = [str(kind)[:80] for kind in kinds][:20]
            source = self._sources.get(str(cell), "").splitlines()
            shown = source[line - 1].strip() if 0 < line <= len(source) else ""
            where = f" (cell {cell}, line {line}: {shown})" if shown else ""
            said = f": {str(text)[:500]}" if text else ""
            return SubmissionFailed(printable(f"{what} raised {kinds[0]}{said}{where}"), kinds)
        except (ValueError, TypeError, IndexError):
            self.close()
            return SubmissionFailed(f"{what} sent a message that is not understood")

    def _late(self, what: str) -> SubmissionFailed:
        self._left_s -= self.limits.time_s
        self.close()
        return SubmissionFailed(f"{what} did not return within {self.limits.time_s:g} s")

    def _ended(self, what: str) -> SubmissionFailed:
        status = None
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_STATUS_S)
        self.close()
        return SubmissionFailed(f"{what} ended its process{_described(status)}")

    def close(self) -> None:
        """Kill all of its processes. Idempotent."""
        if self._sock:
            self._sock.close()
        if self._process:
            sandbox.end(self._process)
        self._sock = self._process = None
        self.busy = False


def _described(status: int | None) -> str:
    """Describe how a process ended: a signal also if a shell or bubblewrap reports it as 128+N."""
    if status is None:
        return ""
    number = -status if status < 0 else status - 128
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return f" (exit status {status})"


class RemoteFunction:
    """A function of a submission; calling it raises SubmissionFailed if it does not return."""

    def __init__(self, submission: Submission, name: str) -> None:
        self.submission, self.name = submission, name

    def __call__(self, *args: Any) -> Any:
        """Call it with plain values and Served objects; return a plain value."""
        return self.start(*args).run()

    def twin(self) -> RemoteFunction:
        """Return the same function in another process; the caller closes its `submission`."""
        return RemoteFunction(self.submission.twin(), self.name)

    def start(self, *args: Any) -> Call:
        """Start a call whose requests the caller answers."""
        return Call(self.submission, self.name, args)


@contextlib.contextmanager
def local(*functions: Callable[..., Any]) -> Iterator[tuple[RemoteFunction, ...]]:
    """Serve functions of this process from a thread, as if they were a submission's.

    The visible tests of a notebook use it, so that student functions get the same values as when
    they are graded. A RemoteFunction is yielded unchanged.
    """
    with contextlib.ExitStack() as stack:
        yield tuple(
            each if isinstance(each, RemoteFunction) else stack.enter_context(_serve_function(each))
            for each in functions
        )


@contextlib.contextmanager
def _serve_function(function: Callable[..., Any]) -> Iterator[RemoteFunction]:
    name = getattr(function, "__name__", "the function")

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, EOFError):
            harness.serve(sock, {name: function})

    def connect() -> Connection:
        ours, theirs = socket.socketpair()
        threading.Thread(target=serve, args=(theirs,), daemon=True, name=f"dgkit {name}").start()
        return ours, None

    with Submission(connect, sandbox.Limits()) as submission:
        yield submission.function(name)
