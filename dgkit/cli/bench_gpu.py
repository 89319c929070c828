# SPDX-License-Identifier: Apache-2.0
"""`dgkit bench gpu-initiated`: measure operations that a GPU kernel posts."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import PeerLost
from .console import console, progress_bar, progress_bars
from .json_file import STDOUT, json_option, output_file, write_document
from .options import choice, comma_separated, duration

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from ..dma import Device, Region, RemoteRegion
    from ..dma.gpu_queue import KernelQueue
    from ..gpu_initiated.kernel_benchmark import Meter
    from ..report import PostedLatencyReport, PostedRateReport
    from ..session import Session

_HERE, _DPU = "here", "dpu"
_PROXIES = {_HERE: "this process", _DPU: "DPU process"}
_SAMPLES = 100_000  # most samples of one latency
_FLOOR_SAMPLES = 2000
_HOST, _TO_GPU = "host to host", ("pinned to GPU", "GPU to GPU")
_NOT_MEASURED = "puts into GPU memory by the provider cuda: there is no GPU"


@dataclass(frozen=True, slots=True)
class _Case:
    """One row of a table: `rings` queues, each used by one block of `threads` threads."""

    op: str
    size: int
    fenced: bool | None
    rings: int
    threads: int
    owner: str
    proxy: str
    memory: str = _HOST
    scattered: bool = False

    def __str__(self) -> str:
        shape = f", {self.rings} x {self.threads} threads" if self.threads > 1 else ""
        return f"{self.op}{shape}, {self.memory}, owner {self.owner}, proxy {self.proxy}"


def _cases(owners: Sequence[str], proxies: Sequence[str]) -> tuple[list[_Case], list[_Case]]:
    """Return the cases of latencies, and those of rates."""
    single = (("doorbell", 0, None), ("put", 8, True), ("put", 8, False), ("get", 8, True))
    many = ((1, 32), (8, 256))
    places = [(owner, proxy) for proxy in proxies for owner in owners]
    return (
        [
            _Case(op, size, fenced, 1, 1, owner, proxy)
            for owner, proxy in places
            for op, size, fenced in single
        ],
        [
            _Case("put", 64, fenced, rings, threads, owner, proxy)
            for owner, proxy in places
            for rings, threads in many
            for fenced in (True, False)
        ],
    )


def _gpu_cases(owners: Sequence[str], proxies: Sequence[str]) -> tuple[list[_Case], list[_Case]]:
    """Return the cases with GPU memory, all of them with the proxy in this process."""
    places = [(owner, memory) for memory in _TO_GPU for owner in owners if _HERE in proxies]
    return (
        [_Case("put", 8, True, 1, 1, owner, _HERE, memory) for owner, memory in places],
        [
            _Case("put", 64, True, 8, 256, owner, _HERE, memory, scattered)
            for owner, memory in places
            for scattered in (False, True)
        ],
    )


@click.command("gpu-initiated", short_help="Measure operations that a GPU's kernel posts.")
@click.option(
    "--proxies",
    type=comma_separated(choice(_HERE, _DPU)),
    default="here,dpu",
    metavar="LIST",
    help="Process that runs the proxy, the CPU thread that serves a kernel. here: this process, "
    "which also launches the kernel.",
)
@click.option(
    "--owners",
    type=comma_separated(choice("idle", "busy")),
    default="idle,busy",
    metavar="LIST",
    help="busy: another kernel of this process runs at the same time.",
)
@click.option(
    "--seconds",
    type=duration(0.01, 10),
    default=0.1,
    metavar="SECONDS",
    help="Duration of each measurement.",
)
@json_option
def gpu_initiated(
    proxies: Sequence[str], owners: Sequence[str], seconds: float, json_: str | None
) -> int:
    """Measure puts and gets that a GPU kernel posts, from the post until it sees the completion.

    The provider soft moves them to host memory of the proxy's process; on a GPU, the provider cuda
    also moves them to GPU memory of another process. The kernel takes the samples with its own
    clock. The floor of a latency is a kernel's doorbell, answered by a loop in C; the floor of a
    rate is the same threads storing records that no proxy reads. The floor is measured before and
    after each row. If the two differ, the row is marked: do not compare it.

    Without a GPU or without CuPy, the kernels run on the emulated GPU, and each row says so: the
    figures are those of this CPU, and say nothing about a GPU.

    \b
    Examples:
      dgkit bench gpu-initiated
      dgkit bench gpu-initiated --proxies dpu --owners idle
      dgkit bench gpu-initiated --seconds 1 --json result.json
    """
    from ..gpu_initiated.kernel_benchmark import Meter

    path = output_file(json_)
    meter = Meter()
    single, many = _cases(owners, proxies)
    if not meter.emulated:
        more = _gpu_cases(owners, proxies)
        single, many = single + more[0], many + more[1]
    results = _measure(meter, single, many, seconds=seconds)
    if json_ != STDOUT:
        _print_results(results)
    if json_:
        rows = {key: [r.to_dict() for r in results[key]] for key in ("latency", "rates")}
        write_document(path, "dgkit bench gpu-initiated", {**results, **rows})
    return 0


def _measure(
    meter: Meter, single: Sequence[_Case], many: Sequence[_Case], *, seconds: float
) -> dict[str, Any]:
    from .. import connect

    latency: list[PostedLatencyReport] = []
    rates: list[PostedRateReport] = []
    with connect() as session, ExitStack() as opened, progress_bars() as progress:
        rig = _Rig(meter, session, seconds)
        opened.callback(rig.close)
        if any(case.memory != _HOST for case in (*single, *many)):
            rig.gpu_side = opened.enter_context(_gpu_side(rig.size))
        with progress_bar(progress, "GPU-initiated", len(single) + len(many)) as advance:
            for number, case in enumerate((*single, *many)):
                with progress_bar(progress, f"  {case}"), rig.opened(case) as (queues, ids):
                    if case.threads == 1:
                        latency.append(rig.latency(case, queues[0], ids))
                    else:
                        rates.append(rig.rate(case, queues, ids))
                advance(number + 1, len(single) + len(many))
        info = session.info
    about = {"gpu": rig.gpu, "emulated": meter.emulated, "why_emulated": meter.why_emulated}
    figures = {"latency": latency, "rates": rates}
    not_measured = [_NOT_MEASURED] if meter.emulated else []
    return {"info": info, **about, **figures, "not_measured": not_measured}


class _GpuSide(NamedTuple):
    """Device with the provider cuda, and its local and remote regions."""

    device: Device
    remote: RemoteRegion
    local: dict[str, Region]  # by _Case.memory


@contextlib.contextmanager
def _gpu_side(size: int) -> Iterator[_GpuSide]:
    """Open regions of `size` bytes: local pinned and GPU memory, remote GPU memory.

    The remote region belongs to a new process.
    """
    from .. import Device, empty

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    owner = context.Process(target=_own_gpu_memory, args=(size, theirs), daemon=True)
    owner.start()
    theirs.close()
    try:
        with (
            Device("cuda") as device,
            empty(size, on="pinned") as pinned,
            empty(size, on="gpu") as own,
        ):
            try:
                token = ours.recv_bytes()
            except EOFError:
                raise PeerLost(errno.EPIPE, "the process that owns the GPU memory ended") from None
            remote = device.import_region(token, timeout=10)
            local = map(device.register, (pinned, own))
            yield _GpuSide(device, remote, dict(zip(_TO_GPU, local, strict=True)))
    finally:
        ours.close()
        owner.join(10)


def _own_gpu_memory(size: int, pipe: Connection) -> None:
    """Export GPU memory until the other end of the pipe closes; runs in a process of its own."""
    from .. import Device, empty

    with empty(size, on="gpu") as memory, Device("soft") as device:
        region = device.register(memory)
        pipe.send_bytes(region.export())
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            pipe.recv_bytes()


class _Rig:
    """Regions of this process and the DPU's, and queues between them.

    Attributes:
        gpu: Name of the GPU, or "emulated GPU".
        size: Bytes of each region.
        gpu_side: Device and regions of the cases with GPU memory; None without such cases.
    """

    gpu_side: _GpuSide | None = None

    def __init__(self, meter: Meter, session: Session, seconds: float) -> None:
        from .. import Device, empty
        from ..gpu_initiated.kernel_benchmark import RATE_RINGS, RATE_SIZE, RATE_THREADS, gpu_name

        size = self.size = RATE_RINGS * RATE_THREADS * RATE_SIZE
        self._meter, self._session, self._seconds = meter, session, seconds
        self._host = session.empty(size, on=meter.local_kind, name="bench host")
        self._dpu = session.empty(size, on="dpu", name="bench DPU")
        self._own, self._device = empty(size), Device("soft")
        assert self._host.local is not None
        self._local = self._device.register(self._host.local.memory)
        self._owned = self._device.register(self._own)
        self._remote = self._device.import_region(self._owned.export())
        self.gpu = gpu_name()

    @contextlib.contextmanager
    def opened(self, case: _Case) -> Iterator[tuple[list[KernelQueue], tuple[int, int]]]:
        """Open the queues of a case; yield them with the ids of the remote and local regions."""
        with ExitStack() as stack:
            queues: list[KernelQueue] = []
            for _ in range(case.rings):
                queue: Any
                side = self.gpu_side
                if case.memory != _HOST and side is not None:
                    pair = side.local[case.memory], side.remote
                    queue = side.device.gpu_queue(4096, regions=pair)
                    ids = pair[1].id, pair[0].id
                elif case.proxy == _HERE:
                    queue = self._device.gpu_queue(4096, regions=(self._local, self._remote))
                    ids = self._remote.id, self._local.id
                else:
                    queue = self._session.gpu_queue(self._dpu, self._host, depth=4096)
                    ids = queue.id_of(self._dpu), queue.id_of(self._host)
                queues.append(stack.enter_context(queue))
            if case.owner == "busy":
                stack.enter_context(self._meter.busy())
            yield queues, ids

    def latency(self, case: _Case, queue: KernelQueue, ids: tuple[int, int]) -> PostedLatencyReport:
        """Measure one operation at a time, with the floor before and after."""
        from ..report import PostedLatencyReport

        before = self._bare_ns()
        kernel = self._meter.start_single(
            queue, ids, op=case.op, size=case.size, fenced=case.fenced is not False,
            count=_SAMPLES, seconds=self._seconds,
        )  # fmt: skip
        taken = kernel.take()
        return PostedLatencyReport.of(
            taken,
            op=case.op,
            size=case.size,
            floor_ns=(before, self._bare_ns()),
            **self._about(case),
        )

    def rate(
        self, case: _Case, queues: Sequence[KernelQueue], ids: tuple[int, int]
    ) -> PostedRateReport:
        """Measure many puts at a time, with the floor before and after."""
        from ..report import PostedRateReport

        before = self._stored_gb_per_s(case)
        done = self._meter.rate(
            queues, *ids, threads=case.threads, fenced=bool(case.fenced), seconds=self._seconds,
            scattered=case.scattered,
        )  # fmt: skip
        return PostedRateReport.of(
            done.ops * case.size, done.ops, done.elapsed_ns, size=case.size, op=case.op,
            window=sum(queue.depth for queue in queues),
            floor_gb_per_s=(before, self._stored_gb_per_s(case)), **self._about(case),
        )  # fmt: skip

    def _bare_ns(self) -> int:
        return int(median(self._meter.bare(_FLOOR_SAMPLES, self._seconds)))

    def _stored_gb_per_s(self, case: _Case) -> float:
        found = self._meter.stored(
            case.rings, case.threads, fenced=bool(case.fenced), seconds=self._seconds
        )
        return found.per_s * case.size / 1e9

    def _about(self, case: _Case) -> dict[str, Any]:
        from ..dma import cpus
        from ..report import GPU_INITIATED, Machine

        owner = os.getpid() if case.proxy == _HERE else self._session.info["dpu"]["pid"]
        pids = f"kernel of pid {os.getpid()}, proxy and memory of pid {owner}"
        if case.memory != _HOST:
            pids = f"kernel and proxy of pid {os.getpid()}, memory of another process"
        return {
            "provider": "soft" if case.memory == _HOST else "cuda", "path": GPU_INITIATED,
            "machine": Machine.here(),
            "spinning": cpus() > 1, "where": pids, "fenced": case.fenced, "gpu": self.gpu,
            "emulated": self._meter.emulated, "owner": case.owner, "proxy": _PROXIES[case.proxy],
            "memory": f"{case.memory}{', scattered' if case.scattered else ''}",
            "rings": case.rings, "threads": case.threads,
        }  # fmt: skip

    def close(self) -> None:
        """Close the device and the memory that do not belong to the session."""
        self._device.close()
        self._own.close()


def _print_results(results: dict[str, Any]) -> None:
    from .tables import floor_note, posted_latency_table, posted_rate_table

    latency: Sequence[PostedLatencyReport] = results["latency"]
    rates: Sequence[PostedRateReport] = results["rates"]
    out = console()
    label = latency[0].label if results["emulated"] else results["gpu"]
    if results["emulated"]:
        out.print(
            f"The kernels ran on the emulated GPU, which is this CPU: these are no GPU figures.\n"
            f"{results['why_emulated']}\n",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    title = f"Latency of one operation of a kernel's thread, µs ({label})"
    out.print(posted_latency_table(latency, title), "")
    title = f"Puts of 64 B, millions per second ({label})"
    out.print(posted_rate_table(rates, title), "")
    if note := floor_note([*latency, *rates]):
        out.print(note, style="yellow", markup=False)
    for what in results["not_measured"]:
        out.print(f"not measured: {what}", style="dim", markup=False, soft_wrap=True)
    where = f"{results['gpu']}; {latency[0].machine}"
    out.print(where, style="dim", markup=False, soft_wrap=True)
