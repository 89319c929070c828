"""DMA: a context that copies between buffers."""

from __future__ import annotations

import time

from ..validate import whole
from ._library import CONTROL, forked, library
from .codes import Code, State
from .device import Device
from .errors import InUse
from .handle import CLOSING_S, Handle, Turn
from .task import MemcpyTask

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .buf import Buf
    from .pe import ProgressEngine

__all__ = ["Dma"]


class Dma(Handle):
    """A DMA context (`doca_dma` and its `doca_ctx`), for up to `tasks` tasks at a time.

    It is connected to a ProgressEngine, then started. A task that fails for a reason that is the
    device's ends it: the state goes to STOPPING, then IDLE, and the tasks in flight fail, too.
    """

    __slots__ = ("_ctx", "_lock", "_pe", "device", "tasks")
    _name = "DMA context"
    _order = 1

    def __init__(self, device: Device, *, tasks: int = 32) -> None:
        super().__init__()
        Device._expect("device", device)
        self.device, self.tasks = device, whole("tasks", tasks, 1)
        self._lock = Turn("DMA context")
        self._pe: ProgressEngine | None = None
        lib = library()
        with CONTROL:
            h = lib.get("doca_dma_create", "struct doca_dma **", device._handle())
            self._opened(h, device)
            self._ctx = lib.dma.doca_dma_as_ctx(h)
            try:
                self._call("doca_dma_task_memcpy_set_conf", lib.note, lib.note, self.tasks)
            except BaseException:
                self.close()
                raise

    @property
    def _turn(self) -> Turn:
        return self._lock

    def _context(self) -> Any:
        self._handle()
        return self._ctx

    def _joined(self, pe: ProgressEngine) -> None:
        self._pe = pe
        self._lock = pe._lock
        self._adopt(pe)

    @property
    def pe(self) -> ProgressEngine | None:
        """The progress engine that it is connected to."""
        return self._pe

    @property
    def state(self) -> State:
        """Where it stands."""
        with self._lock:
            return State(library().get("doca_ctx_get_state", "int *", self._context()))

    @property
    def max_tasks(self) -> int:
        """The most tasks that it could be made for."""
        return int(self._get("doca_dma_cap_get_max_num_tasks", "uint32_t *"))

    def start(self) -> None:
        """From IDLE to RUNNING. BadState without a progress engine, or if it runs already."""
        with self._lock, CONTROL:
            library().call("doca_ctx_start", self._context())

    def stop(self, timeout: float | None = 1.0) -> State:
        """To IDLE: what is in flight comes to its end, well or not, and all tasks are freed.

        The state that it has after at most `timeout` seconds (None: no limit). 0: it is only asked,
        and STOPPING until `progress()` and `close()` of each task have done the rest. (DOCA's API
        reference, doca_task_free: a context is stopped when all of its tasks are freed.)
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
                self._free_landed()
                self._pe.wait(left)
            return state

    def _free_landed(self) -> None:
        for child in self._living():
            if isinstance(child, MemcpyTask) and not child.in_flight:
                child.close()

    def close(self) -> None:
        """Stops it, then closes it. Again: does nothing. InUse if it does not come to its end."""
        with self._lock:
            if self._h is not None and not forked():
                self._stop_whole()
            super().close()

    def _stop_whole(self) -> None:
        if self.state != State.IDLE and self.stop(CLOSING_S) != State.IDLE:
            raise InUse(f"{self!r} did not come to its end within {CLOSING_S} s")

    def flush(self) -> None:
        """Hands over what was submitted with `flush=False`."""
        with self._lock:
            library().function("doca_ctx_flush_tasks")(self._context())

    def memcpy(self, src: Buf, dst: Buf) -> MemcpyTask:
        """A task that copies the data of `src` into `dst`, to be submitted as often as one likes.

        Either may be the first of a list. A full destination takes no bytes: it wants room behind
        its data. BadState unless the context runs, NoMemory if all its tasks are taken.
        """
        return MemcpyTask(self, src, dst)

    def _destroy(self) -> None:
        self._stop_whole()
        with CONTROL:
            library().call("doca_dma_destroy", self._h)

    def _forgotten(self) -> None:
        self._lock.soon(self._finalize)

    def _about(self) -> str:
        return f"{self.tasks} tasks, {self.state.name}"

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("State", self.state.name), ("Tasks", self.tasks)]
        connected = "no engine" if self._pe is None else "a progress engine"
        return [*rows, ("Connected to", connected), ("Device", self.device.info.pci)]
