# SPDX-License-Identifier: Apache-2.0
"""DMA contexts, their tasks (copies between buffers), and the progress engines that run them."""

from __future__ import annotations

import select
import time
from collections import deque

from ..validate import whole
from ._library import CONTROL, forked, library
from .buf import Buf
from .codes import Code, State
from .doca_device import Device
from .doca_errors import BadState, DocaError, InUse, TimeOut
from .handle import CLOSING_S, Handle, TryLock

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any


_NO_FLUSH = 0  # DOCA_TASK_SUBMIT_FLAG_NONE


class Dma(Handle):
    """DMA context (`doca_dma` and its `doca_ctx`).

    Connect the context to a ProgressEngine, then start it. If a task fails because of the device,
    the context stops: its state changes to STOPPING, then IDLE, and all tasks in flight fail too.

    Args:
        device: Device that copies.
        tasks: Largest number of tasks that exist at the same time.
    """

    __slots__ = ("_ctx", "_lock", "_pe", "device", "tasks")
    _name = "DMA context"
    _order = 1

    def __init__(self, device: Device, *, tasks: int = 32) -> None:
        super().__init__()
        Device._expect("device", device)
        self.device, self.tasks = device, whole("tasks", tasks, 1)
        self._lock = TryLock("DMA context")
        self._pe: ProgressEngine | None = None
        lib = library()
        with CONTROL:
            h = lib.get("doca_dma_create", "struct doca_dma **", device._handle())
            self._opened(h, device)
            self._ctx = lib.dma.doca_dma_as_ctx(h)
            try:
                self._call(
                    "doca_dma_task_memcpy_set_conf",
                    lib.completion_callback,
                    lib.completion_callback,
                    self.tasks,
                )
            except BaseException:
                self.close()
                raise

    @property
    def _guard(self) -> TryLock:
        return self._lock

    def _context(self) -> Any:
        self._handle()
        return self._ctx

    def _set_engine(self, pe: ProgressEngine) -> None:
        self._pe = pe
        self._lock = pe._lock

    @property
    def pe(self) -> ProgressEngine | None:
        """Progress engine that the context is connected to."""
        return self._pe

    @property
    def state(self) -> State:
        """State of the context."""
        with self._lock:
            return State(library().get("doca_ctx_get_state", "int *", self._context()))

    @property
    def max_tasks(self) -> int:
        """Largest value of `tasks` for a new context."""
        return int(self._get("doca_dma_cap_get_max_num_tasks", "uint32_t *"))

    def start(self) -> None:
        """Start the context. Raises BadState if it is not connected or already running."""
        with self._lock, CONTROL:
            library().call("doca_ctx_start", self._context())

    def stop(self, timeout: float | None = 1.0) -> State:
        """Complete the tasks in flight, with or without errors, free all tasks, and stop.

        A context has stopped when all of its tasks are freed (DOCA's API reference,
        doca_task_free).

        Args:
            timeout: Seconds to wait; None for no limit. With 0 the state is STOPPING until
                progress() has completed, and close() has freed, every task.

        Returns:
            The state on return.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            lib = library()
            with CONTROL:
                code = lib.common.doca_ctx_stop(self._context())
            if code not in (Code.SUCCESS, Code.IN_PROGRESS):
                raise lib.error(code, "doca_ctx_stop")
            while (state := self.state) != State.IDLE and self._pe is not None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                for child in self._live_children():
                    if isinstance(child, MemcpyTask) and not child.in_flight:
                        child.close()
                # A task that was collected meanwhile is no live child any more, and its finalizer
                # waits for this lock.
                self._lock.run_deferred()
                self._pe.wait(left)
            return state

    def close(self) -> None:
        """Stop the context, then close it. Idempotent. Raises InUse if it cannot be stopped."""
        with self._lock:
            if self._h is not None and not forked():
                self._stop_fully()
            super().close()

    def _stop_fully(self) -> None:
        if self.state != State.IDLE and self.stop(CLOSING_S) != State.IDLE:
            raise InUse(f"{self!r} did not stop within {CLOSING_S} s")

    def flush(self) -> None:
        """Pass the tasks that were submitted with `flush=False` to the device."""
        with self._lock:
            library().function("doca_ctx_flush_tasks")(self._context())

    def memcpy(self, src: Buf, dst: Buf) -> MemcpyTask:
        """Return a task that copies the data of `src` into `dst`; it can be submitted repeatedly.

        Args:
            src: Buffer with data, or the first of a list.
            dst: Buffer with room after its data, to which the bytes are appended, or the first of a
                list.

        Raises:
            BadState: The context is not running.
            NoMemory: All tasks are in use.
        """
        return MemcpyTask(self, src, dst)

    def _destroy(self) -> None:
        self._stop_fully()
        with CONTROL:
            library().call("doca_dma_destroy", self._h)

    def _abandon(self) -> None:
        self._lock.defer(self._finalize)

    def _summary(self) -> str:
        return f"{self.tasks} tasks, {self.state.name}"

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("State", self.state.name), ("Tasks", self.tasks)]
        connected = "no engine" if self._pe is None else "a progress engine"
        return [*rows, ("Connected to", connected), ("Device", self.device.info.pci)]


class MemcpyTask(Handle):
    """Copy task (`doca_dma_task_memcpy`). Created by `Dma.memcpy`; freed when unreferenced."""

    __slots__ = ("_dst", "_flag", "_src", "_status", "_task", "dma")
    _name = "task"
    _order = 0
    _pooled = True

    def __init__(self, dma: Dma, src: Buf, dst: Buf) -> None:
        super().__init__()
        Buf._expect("src", src)
        Buf._expect("dst", dst)
        self.dma, self._src, self._dst = dma, src, dst
        self._status: int | None = None
        lib = library()
        self._flag = flag = lib.ffi.new("uint32_t *")
        with dma._lock, CONTROL:  # CONTROL: another thread may close the buffers
            data = int(lib.ffi.cast("uintptr_t", flag))
            h = dma._get(
                "doca_dma_task_memcpy_alloc_init", "struct doca_dma_task_memcpy **",
                src._handle(), dst._handle(), data,
            )  # fmt: skip
            self._opened(h, dma, src, dst)
            self._task = lib.dma.doca_dma_task_memcpy_as_task(h)

    @property
    def _guard(self) -> TryLock:
        return self.dma._lock

    @property
    def src(self) -> Buf:
        """Source of the bytes; may be set while the task is not in flight."""
        return self._src

    @src.setter
    def src(self, buf: Buf) -> None:
        self._set("doca_dma_task_memcpy_set_src", buf)
        self._src = buf

    @property
    def dst(self) -> Buf:
        """Destination of the bytes; may be set while the task is not in flight."""
        return self._dst

    @dst.setter
    def dst(self, buf: Buf) -> None:
        self._set("doca_dma_task_memcpy_set_dst", buf)
        self._dst = buf

    def _set(self, name: str, buf: Buf) -> None:
        Buf._expect("buf", buf)
        with self._guard, CONTROL:
            self._refuse_in_flight()
            library().function(name)(self._handle(), buf._handle())
            self._add_parents(buf)  # the previous buffer stays a parent: it may be set again

    def _refuse_in_flight(self) -> None:
        if self.in_flight:
            raise InUse("this task is in flight: wait() for it first")

    def submit(self, *, flush: bool = True) -> MemcpyTask:
        """Submit and return the task. It completes in `progress()` or a wait, never in this call.

        Args:
            flush: If False, the device may defer the task until another one is submitted with
                `flush=True`, or `Dma.flush()` is called.

        Raises:
            BadState: The context is not running.
            Again: The device has no room; make progress, then retry.
            InUse: The task is in flight.
        """
        dma = self.dma
        with dma._lock:
            self._refuse_in_flight()
            self._handle()
            lib = library()
            self._flag[0] = 0
            if flush:
                code = lib.common.doca_task_submit(self._task)
            else:
                code = lib.function("doca_task_submit_ex")(self._task, _NO_FLUSH)
            if code:
                raise lib.error(code, "doca_task_submit")
            self._status = Code.IN_PROGRESS
            assert dma._pe is not None
            dma._pe._in_flight.append(self)
        return self

    def _complete(self) -> None:
        """Store the status of the completed task."""
        self._status = library().common.doca_task_get_status(self._task)

    @property
    def in_flight(self) -> bool:
        """True if the task was submitted and is not complete."""
        return self._status == Code.IN_PROGRESS

    @property
    def done(self) -> bool:
        """True if the task is complete, with or without an error."""
        return self._status is not None and self._status != Code.IN_PROGRESS

    @property
    def status(self) -> int | None:
        """Result as a Code: IN_PROGRESS while in flight; None if never submitted."""
        known = self._status in Code.__members__.values()
        return Code(self._status) if self._status is not None and known else self._status

    @property
    def error(self) -> DocaError | None:
        """Error that wait() would raise; None before the completion or after success."""
        if not self.done or not self._status:
            return None
        lib = library()
        why = lib.text(lib.common.doca_error_get_descr(self._status))
        likely = "" if self.closed else self._likely_cause()
        return lib.error(self._status, f"memcpy of {self._sizes()}", why + likely)

    def _likely_cause(self) -> str:
        """Return the likely cause of a failure, because DOCA reports none."""
        size = sum(part.data_size for part in self._src.parts)
        room = sum(part.room for part in self._dst.parts)
        if not size:
            return " (the source has no data)"
        if size > (most := self.dma.device.info.max_copy):
            return f" (the device copies at most {most} bytes at once)"
        if size > room:
            return f" (the destination has room for {room} bytes behind its data)"
        if self._dst.mmap.permissions == 0:
            return " (the destination's map is LOCAL_READ_ONLY)"
        if self._src.mmap.imported or self._dst.mmap.imported:
            return " (the memory's owner may forbid it, may have closed its map, or may be gone)"
        return ""

    def wait(self, timeout: float | None = None) -> MemcpyTask:
        """Make progress until the task is complete and return it.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            DocaError: The task failed.
            TimeOut: The task is not complete after `timeout` seconds; it stays in flight.
            BadState: The task was never submitted.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if self._status is None:
            raise BadState("this task was not submitted: there is nothing to wait for")
        while self.in_flight:
            left = None if end is None else end - time.monotonic()
            if left is not None and left < 0:
                raise TimeOut(f"{self!r} is not complete after {timeout} s")
            assert self.dma._pe is not None
            self.dma._pe.wait(left)
        if (error := self.error) is not None:
            raise error
        return self

    def _destroy(self) -> None:
        if self.in_flight:
            self._drain()
        library().common.doca_task_free(self._task)

    def _drain(self) -> None:
        """Wait for the completion, successful or not. Raises InUse after CLOSING_S."""
        end = time.monotonic() + CLOSING_S
        assert self.dma._pe is not None
        while self.in_flight:
            if (left := end - time.monotonic()) <= 0:
                raise InUse(f"{self!r} is still in flight after {CLOSING_S} s")
            self.dma._pe.wait(left)

    def _abandon(self) -> None:
        self._guard.defer(self._finalize)

    def _sizes(self) -> str:
        if self._src.closed or self._dst.closed:
            return "closed buffers"
        data = sum(part.data_size for part in self._src.parts)
        return f"{data:,} bytes, {len(self._src.parts)} to {len(self._dst.parts)} buffers"

    def _state(self) -> str:
        if self._status is None:
            return "not submitted"
        words = {Code.IN_PROGRESS: "in flight", Code.SUCCESS: "done"}
        return words.get(Code(self._status)) or f"failed: {self.status}"

    def _summary(self) -> str:
        return f"{self._sizes()}, {self._state()}"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Copies", self._sizes()), ("State", self._state())]


class ProgressEngine(Handle):
    """Progress engine (`doca_pe`). Tasks complete only inside `progress()` and calls that use it.

    Only one thread at a time can use the engine and everything connected to it; a second thread
    gets InUse.
    """

    __slots__ = ("_fd", "_in_flight", "_lock", "_poll")
    _name = "progress engine"
    _order = 4

    def __init__(self) -> None:
        super().__init__()
        lib = library()
        self._lock = TryLock("progress engine")
        # In the order of submission, which is mostly also the order of completion.
        self._in_flight: deque[MemcpyTask] = deque()
        self._poll: select.poll | None = None
        with CONTROL:
            self._opened(lib.get("doca_pe_create", "struct doca_pe **"))

    @property
    def _guard(self) -> TryLock:
        return self._lock

    def connect(self, dma: Dma) -> None:
        """Connect a context before its start. Raises BadState if it is running or connected."""
        Dma._expect("dma", dma)
        with self._lock, dma._guard, CONTROL:
            self._call("doca_pe_connect_ctx", dma._context())
            dma._set_engine(self)
            dma._add_parents(self)

    def progress(self) -> tuple[MemcpyTask, ...]:
        """Make progress without blocking; return the completed tasks, usually one or none."""
        with self._lock:
            return self._take_completed()

    def _take_completed(self) -> tuple[MemcpyTask, ...]:
        # The completion callback, which is in C, sets the task's flag.
        library().common.doca_pe_progress(self._handle())
        flying = self._in_flight
        if not flying:
            return ()
        if flying[0]._flag[0]:
            done = [flying.popleft()]
            while flying and flying[0]._flag[0]:
                done.append(flying.popleft())
        else:
            done = [task for task in flying if task._flag[0]]
            for task in done:
                flying.remove(task)
        for task in done:
            task._complete()
        return tuple(done)

    def wait(self, timeout: float | None = None) -> tuple[MemcpyTask, ...]:
        """Sleep until a task completes.

        Args:
            timeout: Seconds to wait; None for no limit.

        Returns:
            The completed tasks, as from progress(). Empty after the timeout, or at once if no task
            is in flight.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not (done := self._take_completed()) and self._in_flight:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._sleep(left)
            return done

    def _sleep(self, left: float | None) -> None:
        """Sleep until a notification arrives, at most `left` seconds."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.fileno(), select.POLLIN)
        self.request_notification()
        try:
            self._poll.poll(None if left is None else max(1, int(left * 1000)))
        finally:
            self.clear_notification()

    def fileno(self) -> int:
        """Return the notification handle: a file descriptor for `select`, `poll` and event loops.

        After request_notification() it becomes readable when progress() has work to do. Before
        sleeping again, call clear_notification(), make progress until nothing completes, and call
        request_notification().
        """
        return int(self._get("doca_pe_get_notification_handle", "doca_notification_handle_t *"))

    def request_notification(self) -> None:
        """Arm the notification handle."""
        self._call("doca_pe_request_notification")

    def clear_notification(self) -> None:
        """Disarm the notification handle."""
        self._call("doca_pe_clear_notification", self.fileno())

    @property
    def in_flight(self) -> int:
        """Number of tasks submitted and not complete."""
        return len(self._in_flight)

    def _destroy(self) -> None:
        with CONTROL:
            library().call("doca_pe_destroy", self._h)
        self._poll = None

    def _abandon(self) -> None:
        self._lock.defer(self._finalize)

    def _summary(self) -> str:
        return f"{len(self._children)} contexts, {len(self._in_flight)} tasks in flight"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Contexts", len(self._children)), ("Tasks in flight", len(self._in_flight))]
