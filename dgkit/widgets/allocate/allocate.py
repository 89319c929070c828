"""AllocatePanel: new memory, what memory there is, descriptors, the notebook's variables."""

from __future__ import annotations

import base64
import errno
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import html_cards
from ...errors import RegionBusy, Unsupported
from ...units import size_text
from ..base import namespace, region_usage, scheduler
from ..base.background import BackgroundCall, in_background
from ..base.fill_patterns import KINDS, Pattern
from ..base.forms import for_field, to_shape
from ..base.panel import Panel, handler
from ..base.session_model import SessionModel
from .fill import filling
from .placement_options import places

if TYPE_CHECKING:
    from ...session import Session, SessionRegion

__all__ = ["DTYPES", "AllocatePanel"]

Steps = Generator[Any, None, None]

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
_LET_GO_S = 1.0  # how long a region that is freed may still be in a transfer
_SHOWN = 20  # regions of a saved notebook
_CAPABILITY = (
    "A descriptor is a capability: any process of your user on this machine that has these bytes "
    "can import the region, to {access} it by DMA, until it is freed: "
    "dgkit.Device('{provider}').import_region(bytes.fromhex(...)). Keep it out of saved notebooks."
)


class Job:
    """An allocation and its fill, on the frame thread. `region` is None until it is made."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.region: SessionRegion | None = None
        self.done = self.total = 0
        self.error: Exception | None = None
        self.ended = threading.Event()
        self.task: scheduler.Task | None = None

    def state(self) -> dict[str, Any]:
        """What a view draws."""
        return {"id": self.number, "name": self.name, "done": self.done, "total": self.total}


class AllocatePanel(Panel):
    """Allocates memory for a session, fills it, and lists the regions that are open."""

    name = "allocate"
    title = "Allocate memory"
    parts = ("base/forms",)

    def __init__(self, session: Session) -> None:
        self._session = session
        self._model = SessionModel.of(session)
        self._jobs: dict[int, Job] = {}
        self._made = 0
        self._places: list[dict[str, Any]] = []
        super().__init__()
        self._model.subscribe(self)

    def state(self) -> dict[str, Any]:
        """Regions, what is being filled, and what a form can offer."""
        if not self._places and not self._session.closed:
            self._places = places(self._session, look=False)
            scheduler.start(self._look(), self.fail)
        offers = {"places": self._places, "dtypes": list(DTYPES), "fills": [list(k) for k in KINDS]}
        return self._model.state() | offers | {"jobs": self._states()}

    def _states(self) -> list[dict[str, Any]]:
        return [job.state() for job in list(self._jobs.values())]

    def _look(self) -> Steps:
        """The first look for GPUs takes a while; all is drawn meanwhile."""
        self._places = yield from in_background(partial(places, self._session))
        self.broadcast("places", places=self._places)

    def _say(self, text: str) -> None:
        self.broadcast("said", text=text)

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
        """New memory, once it is filled; Ctrl-C ends the fill and leaves the region.

        `shape` as NumPy's, or text: `"1024, 1024"`, `"1M"`. `fill`: `zeros`, `ones`, `counter`,
        `random:SEED`, `byte:0xNN`, `checkerboard`, `text:WORDS`. Errors as Session.empty().
        """
        shape, pattern = to_shape(shape), Pattern(fill)
        job = self._new_job(name)
        self._started(job, self._session.empty(shape, dtype, on=on, name=name))
        self._begin(job, self._filling(job, pattern, dtype), lambda _error: None)
        try:
            while not job.ended.wait(0.1):
                pass
        finally:
            self.cancel(job.number)
        if job.error is not None:
            raise job.error
        assert job.region is not None
        return job.region

    @handler
    def make(self, shape: str, dtype: str, on: str, fill: str, name: str = "") -> dict[str, Any]:
        """Starts an allocation; `desk`, `jobs` and `said` tell how it goes, `failed` if not."""
        with for_field("shape"):
            lengths = to_shape(shape)
        with for_field("dtype"):
            if dtype not in DTYPES:
                raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
        with for_field("fill"):
            pattern = Pattern(fill)
        job = self._new_job(name)
        self._begin(job, self._making(job, lengths, dtype, on, pattern), self.fail)
        self.broadcast("jobs", jobs=self._states())
        return {"job": job.number}

    def _new_job(self, name: str | None) -> Job:
        self._made += 1
        return Job(self._made, name or "new memory")

    def _begin(self, job: Job, steps: Steps, failed: Callable[[Exception], None]) -> None:
        self._jobs[job.number] = job
        job.task = scheduler.start(steps, failed, partial(self._over, job))

    def _making(self, job: Job, shape: Any, dtype: str, on: str, pattern: Pattern) -> Steps:
        yield True  # the views show it before the pages are there
        name = None if job.name == "new memory" else job.name
        with for_field("on" if on != "host" else "shape"):
            begun = BackgroundCall(partial(self._session.empty, shape, dtype, on=on, name=name))
            try:
                region = yield from begun.wait()
            except GeneratorExit:
                self._say(
                    f"{job.name}: cancelled; its memory is given back when its pages are there"
                )
                scheduler.start(self._unwanted(begun), self.fail)
                raise
        self._started(job, region)
        yield from self._filling(job, pattern, dtype)

    def _unwanted(self, begun: BackgroundCall[SessionRegion]) -> Steps:
        """Gives back what was cancelled before it was there; if it failed, that is said."""
        region = yield from begun.wait()
        yield from in_background(region.close)
        self._say(f"{region.name} was cancelled, and its memory is free again")

    def _started(self, job: Job, region: SessionRegion) -> None:
        job.region, job.name, job.total = region, region.name, region.size

    def _filling(self, job: Job, pattern: Pattern, dtype: str) -> Steps:
        region = job.region
        assert region is not None
        try:
            self._model.select(region.id)
            told = 0.0
            for job.done in filling(region, pattern, dtype) if pattern.kind != "zeros" else ():
                if time.monotonic() - told > scheduler.TICK_S:
                    told = time.monotonic()
                    self.broadcast("jobs", jobs=self._states())
                yield True
            self._model.written(region.id)
            size = size_text(region.size)
            self._say(f"{region.name}: {size} on {region.where}, filled: {pattern}")
        except Exception as error:
            job.error = error
            raise
        except GeneratorExit:
            self._say(f"{region.name}: the fill was cancelled after {job.done:,} bytes")
            raise

    def _over(self, job: Job) -> None:
        self._jobs.pop(job.number, None)
        self.broadcast("jobs", jobs=self._states())
        job.ended.set()

    @handler
    def cancel(self, job: int) -> None:
        """Ends a fill: the region stays. What has no pages yet is given back when it has them."""
        found = self._jobs.get(job)
        if found is not None and found.task is not None:
            found.task.cancel()

    # What there is

    @handler
    def look(self, region: int) -> None:
        """Selects a region in all panels."""
        self._model.select(region)

    @handler
    def export(self, region: int) -> dict[str, Any]:
        """The descriptor of a region, in hex and base64, and what it lets its holder do."""
        found = self._model.region(region)
        token = found.token
        if not token:
            text = (
                f"the bytes of {found.name!r} lie at the agent, which made no descriptor for this "
                "process: export memory of this side, or import it there"
            )
            raise Unsupported(errno.EOPNOTSUPP, text)
        access = html_cards.access_text(found.access)
        words = _CAPABILITY.format(access=access, provider=self._session.dpu.provider)
        coded = base64.b64encode(token).decode()
        return {"name": found.name, "hex": token.hex(), "base64": coded, "what": words}

    @handler
    def free(self, region: int, sure: bool = False) -> dict[str, Any]:
        """Starts to free a region, or says in `in_use` what would be disturbed by that."""
        found = self._model.region(region)
        uses = region_usage.uses(found)
        if uses and not sure:
            return {"in_use": f"{' and '.join(uses)} is using {found.name}"}
        for job in list(self._jobs.values()):
            if job.region is found and job.task is not None:
                job.task.cancel()
        scheduler.start(self._freeing(found), self.fail)
        return {}

    def _freeing(self, region: SessionRegion) -> Steps:
        """RegionBusy: a transfer still holds it; it stays in the table, and may be freed again."""
        end = time.monotonic() + _LET_GO_S
        while not region.closed:
            try:
                yield from in_background(partial(region.close, timeout=0.01))
            except RegionBusy:
                if time.monotonic() > end:
                    raise
                yield
        self._say(f"{region.name} was freed")

    # What the notebook has

    @handler
    def variables(self) -> dict[str, Any]:
        """The notebook's variables that are memory."""
        return {"variables": namespace.candidates()}

    @handler
    def register(
        self, variable: str, access: str = "rw", share_block: bool = False, name: str = ""
    ) -> dict[str, Any]:
        """Starts to register a variable of the notebook, in place."""
        with for_field("variable"):
            value = namespace.variable(variable)
        scheduler.start(self._registering(value, access, share_block, name or variable), self.fail)
        return {}

    def _registering(self, value: Any, access: str, share_block: bool, name: str) -> Steps:
        yield True
        options: dict[str, Any] = {"access": access, "name": name, "share_block": share_block}
        with for_field("variable"):
            region = yield from in_background(partial(self._session.register, value, **options))
        self._model.select(region.id)
        self._say(f"{region.name}: {size_text(region.size)}, registered in place")

    def close(self) -> None:
        """Ends the views and the fills. The regions stay, but for one that is still being made."""
        for job in list(self._jobs.values()):
            if job.task is not None:
                job.task.cancel()
        super().close()

    def static_html(self) -> str:
        """The regions that there were when the cell ran."""
        state = self._model.state()
        rows = [
            (each["name"], each["text"], each["where"], each["provider"], each["access_text"],
             "yes" if each["exported"] else "no")
            for each in state["regions"][:_SHOWN]
        ]  # fmt: skip
        header = ("Name", "Size", "Place", "Provider", "Access", "Exported")
        body = html_cards.table("Regions of the session", header, rows) if rows else ""
        note = "The session is closed." if state["closed"] else ""
        badge = "" if state["closed"] else html_cards.provider_badge(state["provider"])
        more = [("Regions", state["count"]), ("Live view", "run the cell")]
        return html_cards.card(self.title, more, badge=badge, body=body, note=note)
