# SPDX-License-Identifier: Apache-2.0
"""AllocatePanel: allocate, fill, export, register and free memory."""

from __future__ import annotations

import base64
import errno
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import html_cards, memory
from ...errors import RegionBusy, Unsupported
from ...types import OWN_EXPORT
from ...units import size_text
from ..base import namespace, scheduler
from ..base.as_python import pattern_expression, script, session_lines
from ..base.fill_patterns import KINDS, Pattern, fill_region
from ..base.page_input import for_field, to_shape
from ..base.panel import handler
from ..base.scheduler import BackgroundCall, in_background
from ..base.session_model import (
    SessionModel,
    SessionPanel,
    describe,
    regions_trait,
    selected_trait,
)

if TYPE_CHECKING:
    from ...memory.gpu_info import GpuInfo
    from ...session import Session, SessionRegion
    from ..base.page_input import Json
    from ..base.traits import State


DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
_FREE_TIMEOUT_S = 1.0  # for transfers to release a region that is being freed
_MAX_STATIC_ROWS = 20  # regions listed in a saved notebook
_CAPABILITY = (
    "A descriptor is a capability: until the region is freed, any process of your user on this "
    "machine that has these bytes can import it and {access} it by DMA: "
    "dgkit.Device('{provider}').import_region(bytes.fromhex(...)). Do not save it in a notebook."
)


def _dtype_expression(region: SessionRegion) -> str:
    """Return Python of the dtype of the array of a region in this process."""
    assert region.local is not None
    dtype = region.local.memory.array.dtype
    return str(dtype) if dtype.names else f'"{dtype}"'


class Job:
    """An allocation and its fill, run on the frame thread.

    Attributes:
        region: None until the memory is allocated.
        done: Bytes filled.
        total: Bytes to fill; 0 until the memory is allocated.
        error: The exception that ended the fill.
        ended: Set when nothing is left to do.
    """

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.region: SessionRegion | None = None
        self.done = self.total = 0
        self.error: Exception | None = None
        self.ended = threading.Event()
        self.task: scheduler.Task | None = None

    def state(self) -> Json:
        """Return what a view draws."""
        return {"id": self.number, "name": self.name, "done": self.done, "total": self.total}


class AllocatePanel(SessionPanel):
    """Panel that allocates and fills memory for a session and lists its live regions.

    Attributes:
        regions: The live regions of the session; read-only.
        selected: The region that the panels of the session show, or None; assigning one selects it
            in all of them.
    """

    name = "allocate"
    title = "Allocate memory"

    regions: State[AllocatePanel, tuple[SessionRegion, ...]] = regions_trait()
    selected: State[AllocatePanel, SessionRegion | None] = selected_trait()

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = SessionModel.of(session)
        self._jobs: dict[int, Job] = {}
        self._job_count = 0
        self._places: list[Json] = []
        self._fills: dict[int, tuple[Pattern, str]] = {}  # by the id of the filled region
        self._variables: dict[int, str] = {}  # by the id of the registered region
        super().__init__()
        self._model.subscribe(self)
        self.on_close(self._model.listen(lambda _: self.refresh_traits(), "regions", "select"))

    def state(self) -> Json:
        """Return the regions, the running fills and the choices of the form."""
        if not self._places and not self._session.closed:
            self._places = placement_options(self._session, probe=False)
            scheduler.start(self._probe(), self.fail)
        choices = {
            "places": self._places,
            "dtypes": list(DTYPES),
            "fills": [list(k) for k in KINDS],
        }
        return self._model.state() | choices | {"jobs": self._job_states()}

    def _job_states(self) -> list[Json]:
        return [job.state() for job in list(self._jobs.values())]

    def _send_jobs(self) -> None:
        self.broadcast_state("jobs", lambda: {"jobs": self._job_states()})

    def _probe(self) -> scheduler.Steps:
        """Detect GPUs, which takes a while the first time, without blocking the frame thread."""
        self._places = yield from in_background(partial(placement_options, self._session))
        self.broadcast("places", places=self._places)

    def _set_status(self, text: str) -> None:
        self.broadcast("status", text=text)

    # Allocating

    def allocate(
        self,
        shape: int | tuple[int, ...] | str,
        dtype: str = "u1",
        on: str = "host",
        *,
        fill: str = "zeros",
        name: str | None = None,
    ) -> SessionRegion:
        """Allocate memory, fill it and return its region. Ctrl-C cancels the fill, not the region.

        Args:
            shape: As in NumPy, or text: `"1024, 1024"`, `"1M"`.
            dtype: NumPy dtype of the array.
            on: `host`, `pinned`, `dpu`, `cuda:0`, `gpu` or `auto`, see Session.empty().
            fill: `zeros`, `ones`, `counter`, `random:SEED`, `byte:0xNN`, `checkerboard` or
                `text:WORDS`.
            name: Name of the region.

        Raises:
            ValueError: The shape or the pattern is invalid. Further errors as Session.empty().
        """
        shape, pattern = to_shape(shape), Pattern(fill)
        job = self._new_job(name)
        self._set_region(job, self._session.empty(shape, dtype, on=on, name=name))
        self._start(job, self._fill(job, pattern, dtype), lambda _error: None)
        try:
            while not job.ended.wait(0.1):
                pass
        finally:
            if job.task is not None:
                job.task.cancel()
        if job.error is not None:
            raise job.error
        assert job.region is not None
        self.refresh_traits()
        return job.region

    @handler
    def make(self, shape: str, dtype: str, on: str, fill: str, name: str = "") -> Json:
        """Start an allocation.

        Messages `session`, `jobs` and `status` report progress, `failed` an error.
        """
        with for_field("shape"):
            lengths = to_shape(shape)
        with for_field("dtype"):
            if dtype not in DTYPES:
                raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
        with for_field("fill"):
            pattern = Pattern(fill)
        job = self._new_job(name)
        self._start(job, self._allocate(job, lengths, dtype, on, pattern), self.fail)
        self._send_jobs()
        return {"job": job.number}

    def _new_job(self, name: str | None) -> Job:
        self._job_count += 1
        return Job(self._job_count, name or "new memory")

    def _start(self, job: Job, steps: scheduler.Steps, failed: Callable[[Exception], None]) -> None:
        self._jobs[job.number] = job
        job.task = scheduler.start(steps, failed, partial(self._end, job))

    def _allocate(
        self, job: Job, shape: Any, dtype: str, on: str, pattern: Pattern
    ) -> scheduler.Steps:
        yield True  # the views show the job before its pages are reserved
        name = None if job.name == "new memory" else job.name
        with for_field("on" if on != "host" else "shape"):
            call = BackgroundCall(partial(self._session.empty, shape, dtype, on=on, name=name))
            try:
                region = yield from call.wait()
            except GeneratorExit:
                self._set_status(f"{job.name}: cancelled; its memory is freed once it is reserved")
                scheduler.start(self._discard(call), self.fail)
                raise
        self._set_region(job, region)
        yield from self._fill(job, pattern, dtype)

    def _discard(self, call: BackgroundCall[SessionRegion]) -> scheduler.Steps:
        """Free the memory of a cancelled allocation once it is allocated; a failure is shown."""
        region = yield from call.wait()
        yield from in_background(region.close)
        self._set_status(f"{region.name} was cancelled and its memory freed")

    def _set_region(self, job: Job, region: SessionRegion) -> None:
        job.region, job.name, job.total = region, region.name, region.size

    def _fill(self, job: Job, pattern: Pattern, dtype: str) -> scheduler.Steps:
        region = job.region
        assert region is not None
        try:
            self._model.select(region.id)
            reported = 0.0
            for job.done in fill_region(region, pattern, dtype) if pattern.kind != "zeros" else ():
                if time.monotonic() - reported > scheduler.TICK_S:
                    reported = time.monotonic()
                    self._send_jobs()
                yield True
            self._fills[region.id] = pattern, dtype
            self._model.written(region.id)
            size = size_text(region.size)
            self._set_status(f"{region.name}: {size} on {region.where}, filled with {pattern}")
        except Exception as error:
            job.error = error
            raise
        except GeneratorExit:
            self._set_status(f"{region.name}: fill cancelled after {job.done:,} bytes")
            raise

    def _end(self, job: Job) -> None:
        self._jobs.pop(job.number, None)
        self._send_jobs()
        job.ended.set()

    @handler
    def cancel(self, job: int) -> None:
        """Cancel a fill; its region stays. A region not yet allocated is freed once it is."""
        found = self._jobs.get(job)
        if found is not None and found.task is not None:
            found.task.cancel()

    # Live regions

    @handler
    def select(self, region: int) -> None:
        """Select a region in all panels."""
        self._model.select(region)

    @handler
    def export(self, region: int) -> Json:
        """Return the descriptor of a region in hex and base64, and what its holder can do.

        Raises:
            Unsupported: The memory belongs to the agent, which made no descriptor for this process.
        """
        found = self._model.region(region)
        token = found.token
        if not token:
            text = (
                f"the memory of {found.name!r} is at the agent, which made no descriptor for this "
                "process: export memory of this process, or import it at the agent"
            )
            raise Unsupported(errno.EOPNOTSUPP, text)
        access = html_cards.access_text(found.access)
        text = _CAPABILITY.format(access=access, provider=self._session.dpu.provider)
        encoded = base64.b64encode(token).decode()
        return {"name": found.name, "hex": token.hex(), "base64": encoded, "what": text}

    @handler
    def as_python(self, region: int) -> dict[str, str]:
        """Return Python code that creates and fills a region like this one."""
        found = self._model.region(region)
        lines = [*session_lines(self._session), *self._creation(found)]
        if found.id in self._fills:
            pattern, dtype = self._fills[found.id]
            if pattern.kind != "zeros":
                data = pattern_expression(pattern, found.size, dtype)
                lines.append(f"session.write(region, {data})")
        return {"text": script(lines)}

    def _creation(self, region: SessionRegion) -> list[str]:
        about = describe(region)
        shape = about["shape"][0] if len(about["shape"]) == 1 else tuple(about["shape"])
        place = "dpu" if region.on == "dpu" else region.place
        if region.allocated:
            where = "" if place == "host" else f', on="{place}"'
            dtype = "" if about["dtype"] == "uint8" else f", dtype={_dtype_expression(region)}"
            return [f"region = session.empty({shape}{dtype}{where}, name={region.name!r})"]
        variable = self._variables.get(region.id, "memory")
        call = f'session.register({variable}, access="{region.access}", name={region.name!r})'
        return [f"region = {call}"]

    @handler
    def free(self, region: int, sure: bool = False) -> Json:
        """Start to free a region.

        Args:
            region: Its id.
            sure: Free it even if a panel uses it, which ends that use.

        Returns:
            `in_use`: what uses the region, if it is not freed for that reason.
        """
        found = self._model.region(region)
        uses = self._model.uses(found)
        if uses and not sure:
            return {"in_use": f"{' and '.join(uses)} is using {found.name}"}
        for job in list(self._jobs.values()):
            if job.region is found and job.task is not None:
                job.task.cancel()
        scheduler.start(self._free(found), self.fail)
        return {}

    def _free(self, region: SessionRegion) -> scheduler.Steps:
        """Free a region; if a transfer still uses it after 1 s, the region stays listed.

        Raises:
            RegionBusy: A transfer still uses the region; it can be freed later.
        """
        end = time.monotonic() + _FREE_TIMEOUT_S
        while not region.closed:
            try:
                yield from in_background(partial(region.close, timeout=0.01))
            except RegionBusy:
                if time.monotonic() > end:
                    raise
                yield
        self._set_status(f"{region.name} was freed")

    # The notebook's variables

    @handler
    def variables(self) -> Json:
        """Return the notebook's variables that can be registered."""
        return {"variables": namespace.candidates()}

    @handler
    def register(
        self, variable: str, access: str = "", share_block: bool = False, name: str = ""
    ) -> Json:
        """Start to register a notebook variable in place; `access` "" is all that it allows."""
        with for_field("variable"):
            value = namespace.variable(variable)
        steps = self._register(variable, value, access, share_block, name or variable)
        scheduler.start(steps, self.fail)
        return {}

    def _register(
        self, variable: str, value: Any, access: str, share_block: bool, name: str
    ) -> scheduler.Steps:
        yield True
        options: Json = {
            "access": access or None, "name": name, "share_block": share_block,
        }  # fmt: skip
        with for_field("variable"):
            region = yield from in_background(partial(self._session.register, value, **options))
        self._variables[region.id] = variable
        self._model.select(region.id)
        self._set_status(f"{region.name}: {size_text(region.size)}, registered in place")

    def end(self) -> None:
        """End the fills. The regions stay, unless still being allocated."""
        for job in list(self._jobs.values()):
            if job.task is not None:
                job.task.cancel()

    def static_html(self) -> str:
        """Return the regions at the time of the call as a card."""
        state = self._model.state()
        rows = [
            (region["name"], region["text"], region["where"], region["provider"],
             region["access_text"], "yes" if region["exported"] else "no")
            for region in state["regions"][-_MAX_STATIC_ROWS:]
        ]  # fmt: skip
        header = ("Name", "Size", "Place", "Provider", "Access", "Exported")
        body = html_cards.table("Regions of the session", header, rows) if rows else ""
        note = "The session is closed." if state["closed"] else ""
        badge = "" if state["closed"] else html_cards.provider_badge(state["provider"])
        more = [("Regions", f"{state['count']:,}"), ("Live view", "run the cell")]
        return html_cards.card(self.title, more, badge=badge, body=body, note=note)


_PROBING = "dgkit is still detecting GPUs"
_NO_GPU_ACCESS = (
    "the provider {provider!r} of this session's DPU cannot access GPU memory: "
    "use connect(provider='cuda')"
)


def placement_options(session: Session, *, probe: bool = True) -> list[Json]:
    """Return the places where memory can be allocated.

    Args:
        probe: Detect GPUs, which takes a moment the first time. Without it, GPU memory is listed
            as unavailable.

    Returns:
        For each place its `value` (of the argument `on`), `text`, and `why` it is unavailable (""
        if it is available).
    """
    on_host = session.role == "host"
    why = (memory.why_no_gpu() if probe else _PROBING) if on_host else ""  # the agent decides
    options = [
        _option("host", "host" if on_host else "host, at the agent"),
        _option("dpu", "DPU, this process" if session.role == "dpu" else "DPU, at the agent"),
        _option("pinned", "pinned host memory", why),
    ]
    gpu_why = why
    if not why and session.dpu.provider not in {"cuda", *OWN_EXPORT}:
        gpu_why = _NO_GPU_ACCESS.format(provider=session.dpu.provider)
    return [
        *options,
        *_gpu_places(gpu_why, why, on_host),
        _option("auto", "auto: a GPU, else host"),
    ]


def _option(value: str, text: str, why: str = "") -> Json:
    return {"value": value, "text": text, "why": why}


def _gpu_places(gpu_why: str, why: str, on_host: bool) -> list[Json]:
    if why or not on_host:
        return [_option("gpu", "GPU" if on_host else "GPU, at the agent", gpu_why)]
    return [
        _option(f"cuda:{gpu.index}", f"GPU {gpu.index}: {gpu.name}, {_sizes(gpu)}", gpu_why)
        for gpu in memory.gpus()
    ]


def _sizes(gpu: GpuInfo) -> str:
    free = "" if gpu.free is None else f", {size_text(gpu.free)} free"
    return f"{size_text(gpu.total)}{free}"
