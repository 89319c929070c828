"""Tasks of a DMA context: one copy each."""

from __future__ import annotations

import time

from ._library import library
from .buf import Buf
from .codes import Code
from .errors import BadState, DocaError, InUse, TimeOut
from .handle import CLOSING_S, Handle, Turn

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from .dma import Dma

__all__ = ["MemcpyTask"]

_NO_FLUSH = 0  # DOCA_TASK_SUBMIT_FLAG_NONE


class MemcpyTask(Handle):
    """One copy (`doca_dma_task_memcpy`). Made by `Dma.memcpy`; forgotten, it goes back there."""

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
        with dma._lock:
            data = int(lib.ffi.cast("uintptr_t", flag))
            h = dma._get(
                "doca_dma_task_memcpy_alloc_init", "struct doca_dma_task_memcpy **",
                src._handle(), dst._handle(), data,
            )  # fmt: skip
            self._opened(h, dma, src, dst)
            self._task = lib.dma.doca_dma_task_memcpy_as_task(h)

    @property
    def _turn(self) -> Turn:
        return self.dma._lock

    @property
    def src(self) -> Buf:
        """Where the bytes come from; may be set while it is not in flight."""
        return self._src

    @src.setter
    def src(self, buf: Buf) -> None:
        self._set("doca_dma_task_memcpy_set_src", buf)
        self._src = buf

    @property
    def dst(self) -> Buf:
        """Where they go; may be set while it is not in flight."""
        return self._dst

    @dst.setter
    def dst(self, buf: Buf) -> None:
        self._set("doca_dma_task_memcpy_set_dst", buf)
        self._dst = buf

    def _set(self, name: str, buf: Buf) -> None:
        Buf._expect("buf", buf)
        with self._turn:
            self._refuse_in_flight()
            library().function(name)(self._handle(), buf._handle())
            self._adopt(buf)  # the one before stays a parent, too: it may be needed again

    def _refuse_in_flight(self) -> None:
        if self.in_flight:
            raise InUse("this task is in flight: wait for it first")

    def submit(self, *, flush: bool = True) -> MemcpyTask:
        """Hands it over, and gives it back. It completes in `progress()` or a wait, never here.

        `flush=False`: the device may look later, when one with `flush=True` or `Dma.flush()` comes.
        BadState unless the context runs, Again if there is no room, InUse if it is in flight.
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
            dma._pe._flying.append(self)
        return self

    def _land(self) -> None:
        """It has completed: with what, says DOCA."""
        self._status = library().common.doca_task_get_status(self._task)

    @property
    def in_flight(self) -> bool:
        """Whether it was submitted and is not complete."""
        return self._status == Code.IN_PROGRESS

    @property
    def done(self) -> bool:
        """Whether it is complete, well or not."""
        return self._status is not None and self._status != Code.IN_PROGRESS

    @property
    def status(self) -> int | None:
        """How it ended: a Code. IN_PROGRESS while in flight; None if it never was submitted."""
        known = self._status in Code.__members__.values()
        return Code(self._status) if self._status is not None and known else self._status

    @property
    def error(self) -> DocaError | None:
        """What `wait` would raise; None if all is well, or still open."""
        if not self.done or not self._status:
            return None
        lib = library()
        why = lib.text(lib.common.doca_error_get_descr(self._status))
        likely = "" if self.closed else self._likely()
        return lib.error(self._status, f"memcpy of {self._sizes()}", why + likely)

    def _likely(self) -> str:
        """What would explain a failure, as far as it can be seen from here: DOCA says nothing."""
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
            return " (the memory's owner may not permit it, may have closed its map, or be gone)"
        return ""

    def wait(self, timeout: float | None = None) -> MemcpyTask:
        """Makes progress until it is complete, and gives it back. Raises the error that it had.

        TimeOut after `timeout` seconds; it is still in flight then. BadState if it never was
        submitted.
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
            self._come_down()
        library().common.doca_task_free(self._task)

    def _come_down(self) -> None:
        """Waits for it, whatever it ends with. InUse if it does not."""
        end = time.monotonic() + CLOSING_S
        assert self.dma._pe is not None
        while self.in_flight:
            if (left := end - time.monotonic()) <= 0:
                raise InUse(f"{self!r} is still in flight after {CLOSING_S} s")
            self.dma._pe.wait(left)

    def _forgotten(self) -> None:
        self._turn.soon(self._finalize)

    def _sizes(self) -> str:
        if self._src.closed or self._dst.closed:
            return "buffers that are closed by now"
        data = sum(part.data_size for part in self._src.parts)
        return f"{data} bytes, {len(self._src.parts)} to {len(self._dst.parts)} buffers"

    def _state(self) -> str:
        if self._status is None:
            return "not submitted"
        words = {Code.IN_PROGRESS: "in flight", Code.SUCCESS: "done"}
        return words.get(Code(self._status)) or f"failed: {self.status}"

    def _about(self) -> str:
        return f"{self._sizes()}, {self._state()}"

    def _rows(self) -> list[tuple[str, object]]:
        return [("Copies", self._sizes()), ("State", self._state())]
