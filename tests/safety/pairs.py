# SPDX-License-Identifier: Apache-2.0
"""Every two methods of the objects that threads share, in two threads at once.

    tests/run pairs                 all pairs, by hand
    python tests/safety/pairs.py --pairs 60 --seed 7      a sample, as test_pairs.py runs it

Each pair runs in `--rounds` new worlds. A call returns or raises one of dgkit's errors; whatever
else it raises, a hang, and a report of AddressSanitizer fail the run. The pairs run in child
processes that have loaded the extension built with AddressSanitizer (--extension), so a crash is
reported with the pair that caused it, and the other pairs still run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.machinery
import importlib.util
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
BUILD = CACHE / "build/asan"  # of the stage asan, which has compiled most of it
HUNG_S = float(os.environ.get("DGKIT_PAIRS_HUNG_S", "30"))
SIZE = 4096
Pair = tuple[str, ...]  # names of two methods; of one that runs alone, which must not fail


def build() -> Path:
    """Build the extension with AddressSanitizer and UndefinedBehaviorSanitizer; return its file."""
    configure = ["cmake", "--preset", "asan"]
    build = ["cmake", "--build", "--preset", "asan", "--target", "_native", "doca_dma"]
    for command in (configure, build):
        done = subprocess.run(
            command, cwd=ROOT / "native", capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return BUILD / "_native.abi3.so"


def runtime(name: str) -> str:
    """Return the path of a run-time library of the compiler."""
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def sanitized() -> dict[str, str]:
    """Return the environment of a Python that loads the extension of `build()`.

    Python itself is not instrumented: its own allocator would hide uses after free from
    AddressSanitizer, and what it does not free at exit is no leak of dgkit.
    """
    return {
        "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1",
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "SOFTDOCA_LIB": str(BUILD / "_softdoca/lib"),
    }


def load_extension(path: str) -> None:
    """Make `path` the extension that `import dgkit` finds."""
    name = "dgkit._native"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)


class World:
    """Objects of one round, which both threads use."""

    #: Methods of the world that a pair consists of, by name; filled by `method`.
    methods: dict[str, Callable[[Any], object]]

    def close(self) -> None:
        """Close everything, whatever the two threads left."""
        raise NotImplementedError


def method(table: dict[str, Callable[[Any], object]], name: str, *attributes: str) -> Any:
    """Return a decorator that adds a function of the attributes of a world to a table.

    A thread takes its references before it calls, so that `drop` of the other thread takes away
    the world's, not these.
    """

    def add(function: Callable[..., object]) -> Callable[..., object]:
        def call(world: Any) -> object:
            taken = [getattr(world, attribute, None) for attribute in attributes]
            return None if any(each is None for each in taken) else function(*taken)

        table[name] = call
        return function

    return add


def drop(table: dict[str, Callable[[Any], object]], *attributes: str) -> None:
    """Add methods that drop the world's reference to an attribute."""
    for attribute in attributes:
        table[f"{attribute}.drop"] = lambda world, name=attribute: setattr(world, name, None)


CORE: dict[str, Callable[[Any], object]] = {}


_CORE_NAMES = ("ring", "inline", "queue", "remote", "region", "local")


class Core(World):
    """Device with regions, queues, a transfer that is not complete and a prepared operation."""

    methods = CORE

    def __init__(self) -> None:
        import numpy as np

        import dgkit

        self.device: Any = dgkit.Device(spin_us=0)
        self.memory: Any = dgkit.empty(SIZE)
        self.region: Any = self.device.register(self.memory)
        self.local: Any = self.device.register(bytearray(SIZE))
        self.token = self.region.export()
        self.remote: Any = self.device.import_region(self.token)
        self.queue: Any = self.device.queue(depth=16, path="worker")
        self.inline: Any = self.device.queue(depth=16)
        self.op: Any = self.inline.prepare_write(self.local, self.remote, size=64)
        self.batch = np.zeros(4, dgkit.WR_DTYPE)
        self.batch["local"], self.batch["remote"] = self.local.id, self.remote.id
        self.batch["size"] = 64
        self.prepared: Any = self.queue.prepare(self.batch)
        self.transfer: Any = self.queue.write(self.local, self.remote, size=SIZE)
        self.ring: Any = self.device.gpu_queue(64, trace=True, spin_us=0)

    def close(self) -> None:
        for name in ("transfer", "op", "prepared", *_CORE_NAMES):
            setattr(self, name, None)
        if self.device is not None:
            self.device.close(timeout=10)
            assert self.device.closed
        if self.memory is not None:
            self.memory.close()


def _core() -> None:
    import numpy as np

    import dgkit

    def on(name: str, *attributes: str) -> Any:
        return method(CORE, name, *attributes)

    on("device.close", "device")(lambda d: d.close())
    on("device.register", "device")(lambda d: d.register(bytearray(64)).close())
    on("device.register and drop", "device")(lambda d: d.register(bytearray(64)))
    on("device.import_region", "device", "token")(lambda d, token: d.import_region(token).close())
    on("device.queue", "device")(lambda d: d.queue(depth=4).close())
    on("device.queue and drop", "device")(lambda d: d.queue(depth=4))
    on("device.caps", "device")(lambda d: d.caps)
    on("device.repr", "device")(lambda d: (repr(d), d.closed))
    on("device.html", "device")(lambda d: d._repr_html_())
    on("device.with", "device")(lambda d: d.__enter__().__exit__())
    for kind in ("region", "remote", "local"):
        on(f"{kind}.close", kind)(lambda r: r.close())
        on(f"{kind}.repr", kind)(lambda r: (repr(r), r.closed, r.revoked))
        on(f"{kind}.html", kind)(lambda r: r._repr_html_())
    on("region.export", "region")(lambda r: r.export())
    on("region.importers", "region")(lambda r: r.importers)
    on("remote.lost", "remote")(lambda r: r.lost)
    for kind in ("queue", "inline"):
        on(f"{kind}.write", kind, "local", "remote")(
            lambda q, a, b: q.write(a, b, size=SIZE).wait(10)
        )
        on(f"{kind}.read small", kind, "local", "remote")(
            lambda q, a, b: q.read(a, b, size=8).wait(10)
        )
        on(f"{kind}.write and drop", kind, "local", "remote")(
            lambda q, a, b: q.write(a, b, size=SIZE) and None
        )
        on(f"{kind}.prepare", kind, "local", "remote")(
            lambda q, a, b: q.prepare_read(a, b, size=64).run()
        )
        on(f"{kind}.fetch_add", kind, "local", "remote")(
            lambda q, a, b: q.fetch_add(a, b, 1).wait(10)
        )
        on(f"{kind}.compare_swap", kind, "local", "remote")(
            lambda q, a, b: q.compare_swap(a, b, 0, 1, remote_offset=8).wait(10)
        )
        on(f"{kind}.close", kind)(lambda q: q.close())
        on(f"{kind}.repr", kind)(lambda q: (repr(q), q.closed, q.pending))
        on(f"{kind}.html", kind)(lambda q: q._repr_html_())
    on("device.gpu_queue", "device")(lambda d: d.gpu_queue(64).close())
    on("device.gpu_queue and drop", "device")(lambda d: d.gpu_queue(64))
    on("ring.connect", "ring", "device")(lambda q, d: q.connect(d.gpu_queue(64)))
    on("ring.close", "ring")(lambda q: q.close())
    on("ring.stats", "ring")(lambda q: (q.stats(), q.trace()))
    on("ring.repr", "ring")(lambda q: (repr(q), q.closed))
    on("queue.gather", "queue", "local", "remote")(
        lambda q, a, b: q.gather([(a, 0, 8), (a, 16, 8)], b).wait(10)
    )
    on("queue.post and poll", "queue", "batch")(
        lambda q, batch: (q.post(batch), q.poll(np.zeros(4, dgkit.WC_DTYPE), timeout=0.2))
    )
    on("queue.run", "queue", "batch")(
        lambda q, batch: q.run(batch, np.zeros(4, dgkit.WC_DTYPE), timeout=10)
    )
    on("queue.arm", "queue")(lambda q: q.arm())
    on("queue.fileno", "queue")(lambda q: q.fileno())
    on("transfer.wait", "transfer")(lambda t: t.wait(10).size)
    on("transfer.done", "transfer")(lambda t: t.done())
    on("transfer.repr", "transfer")(lambda t: (repr(t), t._repr_html_()))
    on("op.run", "op")(lambda op: op.run().size)
    on("op.post", "op")(lambda op: op.post())
    on("op.close", "op")(lambda op: op.close())
    on("op.repr", "op")(lambda op: (repr(op), op._repr_html_()))
    on("prepared.run", "prepared")(lambda op: op.run()["status"].tolist())
    on("prepared.close", "prepared")(lambda op: op.close())
    on("memory.close", "memory")(lambda m: m.close())
    on("memory.array", "memory")(lambda m: m.array.sum())
    on("memory.fd", "memory")(lambda m: m.fd)
    on("memory.repr", "memory")(lambda m: (repr(m), m._repr_html_()))
    on("memory.register", "memory", "device")(lambda m, d: d.register(m).close())
    drop(CORE, "device", "transfer", "op", "memory", *_CORE_NAMES)


SESSION: dict[str, Callable[[Any], object]] = {}


class SessionWorld(World):
    """Session with regions, a transfer, a monitor and, where the DPU is an agent, a GPU queue.

    `remote`: the DPU is another process. `two`: both sides are.
    """

    methods = SESSION

    def __init__(self, make: Callable[[], Any]) -> None:
        self.session: Any = make()
        self.region: Any = self.session.empty(SIZE)
        self.other: Any = self.session.empty(SIZE)
        self.own: Any = None  # this process's memory
        self.array: Any = None
        self.far: Any = self.session.empty(SIZE, on="dpu")
        self.ring: Any = None
        if self.session.role != "neither":
            self.own = self.session.empty(SIZE, on=self.session.role)
            self.array = bytearray(SIZE)
        if self.session.role == "host":
            self.ring = self.session.gpu_queue(self.far, self.region, depth=64, trace=True)
        self.transfer: Any = self.session.start_write(self.region, b"x" * SIZE)
        self.monitor: Any = self.session.monitor(self.region, every_s=0.01, count=8)

    def close(self) -> None:
        self.transfer = self.monitor = self.region = self.other = self.own = None
        self.ring = self.far = None
        self.session.close()
        assert self.session.closed


def _close_device(session: Any) -> None:
    from dgkit.errors import RegionBusy

    with contextlib.suppress(RegionBusy):  # the agent serves a GPU queue in its memory
        session.device.close()


def _session() -> None:
    def on(name: str, *attributes: str) -> Any:
        return method(SESSION, name, *attributes)

    on("session.close", "session")(lambda s: s.close())
    on("session.write", "session", "region")(lambda s, r: s.write(r, b"y" * 64))
    on("session.read", "session", "region")(lambda s, r: s.read(r, 64))
    on("session.start_write", "session", "region")(lambda s, r: s.start_write(r, b"z" * SIZE))
    on("session.start_read", "session", "region")(lambda s, r: s.start_read(r, SIZE).wait())
    on("session.copy", "session", "region", "other")(lambda s, a, b: s.copy(a, b))
    on("session.digest", "session", "region")(lambda s, r: s.digest(r))
    on("session.latency", "session", "region")(lambda s, r: s.latency(r, count=20))
    on("session.monitor", "session", "region")(lambda s, r: s.monitor(r, every_s=0.01).close())
    on("session.empty", "session")(lambda s: s.empty(64).close())
    on("session.empty dpu", "session")(lambda s: s.empty(64, on="dpu").close())
    on("session.register", "session", "array")(lambda s, a: s.register(a).close())
    on("session.regions", "session")(lambda s: s.regions)
    on("session.stats", "session")(lambda s: s.stats())
    on("session.repr", "session")(lambda s: (repr(s), s._repr_html_(), s.closed))
    on("session kill", "session")(lambda s: os.kill(s.agent.pid, signal.SIGKILL))
    on("region.close", "region")(lambda r: r.close())
    on("own.array", "own")(lambda r: r.array.sum())
    on("own.close", "own")(lambda r: r.close())
    on("region.repr", "region")(lambda r: (repr(r), r._repr_html_()))
    on("other.close", "other")(lambda r: r.close())
    on("transfer.wait", "transfer")(lambda t: t.wait())
    on("transfer.done", "transfer")(lambda t: (t.done(), repr(t)))
    on("monitor.read", "monitor")(lambda m: m.read())
    on("monitor.close", "monitor")(lambda m: m.close())
    on("device.close", "session")(_close_device)
    on("far.close", "far")(lambda r: r.close())
    on("ring.close", "ring")(lambda q: q.close())
    on("ring.words", "ring")(lambda q: (q.completed, q.first_error, q.lost, q.trace()))
    on("ring.repr", "ring")(lambda q: (repr(q), q.closed))
    on("session.gpu_queue", "session", "ring", "far", "region")(
        lambda s, _, a, b: s.gpu_queue(a, b, depth=64).close()
    )
    drop(SESSION, "region", "other", "transfer", "monitor", "ring")


DOCA: dict[str, Callable[[Any], object]] = {}


_DOCA_NAMES = ("task", "dma", "pe", "src", "inventory", "source", "device")


class DocaWorld(World):
    """Objects of dgkit.doca, over softdoca."""

    methods = DOCA

    def __init__(self) -> None:
        from dgkit import doca

        self.device: Any = doca.Device()
        permissions = doca.Access.LOCAL_READ_WRITE | doca.Access.PCI_READ_WRITE
        memory = bytearray(b"x" * SIZE)
        self.source: Any = doca.Mmap(memory, self.device, permissions=permissions)
        self.target: Any = doca.Mmap(bytearray(SIZE), self.device)
        self.inventory: Any = doca.BufInventory(16)
        self.src: Any = self.inventory.buf_by_data(self.source, 0, 64)
        self.list: Any = self.inventory.buf_by_data(self.source, 64, 64)
        self.dst: Any = self.inventory.buf_by_addr(self.target, 0, 64)
        self.pe: Any = doca.ProgressEngine()
        self.dma: Any = doca.Dma(self.device, tasks=8)
        self.pe.connect(self.dma)
        self.dma.start()
        self.task: Any = self.dma.memcpy(self.src, self.dst).submit()

    def close(self) -> None:
        for name in ("list", "dst", *_DOCA_NAMES, "target"):
            taken, _ = getattr(self, name), setattr(self, name, None)
            if taken is not None:
                taken.close()


def _doca() -> None:
    from dgkit import doca

    def on(name: str, *attributes: str) -> Any:
        return method(DOCA, name, *attributes)

    for name in _DOCA_NAMES:
        on(f"{name}.close", name)(lambda handle: handle.close())
        on(f"{name}.repr", name)(lambda handle: (repr(handle), handle._repr_html_()))
    on("device.Mmap", "device")(lambda d: doca.Mmap(bytearray(64), d).close())
    on("device.Mmap and drop", "device")(lambda d: doca.Mmap(bytearray(64), d) and None)
    on("device.Dma", "device")(lambda d: doca.Dma(d).close())
    on("source.export", "source")(lambda m: m.export_pci())
    on("source.bufs", "source")(lambda m: (m.bufs, m.exported, m.permissions))
    on("inventory.buf", "inventory", "source")(lambda i, m: i.buf_by_data(m, 0, 8).close())
    on("inventory.buf and drop", "inventory", "source")(lambda i, m: i.buf_by_data(m, 0, 8))
    on("inventory.free", "inventory")(lambda i: (i.size, i.free))
    on("src.data", "src")(lambda b: (bytes(b.data), b.room, b.refcount))
    on("list.chain", "inventory", "source", "list")(
        lambda i, m, b: b.chain(i.buf_by_data(m, 64, 8)).parts
    )
    on("pe.progress", "pe")(lambda pe: pe.progress())
    on("pe.wait", "pe")(lambda pe: pe.wait(0.1))
    on("dma.state", "dma")(lambda d: d.state)
    on("dma.stop", "dma")(lambda d: d.stop(0.2))
    on("dma.memcpy", "dma", "src", "dst")(lambda d, a, b: d.memcpy(a, b).submit().wait(5))
    on("dma.memcpy and drop", "dma", "src", "dst")(lambda d, a, b: d.memcpy(a, b))
    on("task.wait", "task")(lambda t: t.wait(5).status)
    on("task.submit", "task")(lambda t: (t.wait(5), t.dst.reset_data(), t.submit().wait(5)))
    on("task.src", "task", "list")(lambda t, b: setattr(t.wait(5), "src", b))
    drop(DOCA, *_DOCA_NAMES)


@contextlib.contextmanager
def worlds(kind: str) -> Iterator[Callable[[], World]]:
    """Yield a function that makes a world of a kind."""
    import dgkit

    if kind == "core":
        yield Core
    elif kind == "doca":
        from dgkit import doca

        doca.use("softdoca")
        yield DocaWorld
    elif kind == "remote":  # the DPU is another process
        yield lambda: SessionWorld(dgkit.connect)
    elif kind == "two":
        sys.path.insert(0, str(ROOT / "tests"))
        from support.processes.agents import agent

        with agent(role="host") as host, agent(role="dpu") as dpu:
            yield lambda: SessionWorld(lambda: dgkit.connect(dpu.address, host=host.address))
    else:  # this process is the DPU, the host another one
        yield _LocalWorld


class _LocalWorld(SessionWorld):
    """Session whose DPU is this process. The agent is this round's, as `session kill` ends it."""

    def __init__(self) -> None:
        import dgkit

        sys.path.insert(0, str(ROOT / "tests"))
        from support.processes.agents import agent

        self._stack = contextlib.ExitStack()
        host = self._stack.enter_context(agent(role="host"))
        super().__init__(lambda: dgkit.connect(host.address))

    def close(self) -> None:
        with self._stack:
            super().close()


TWO: dict[str, Callable[[Any], object]] = {}  # of SESSION, those that end no agent of others
KINDS: dict[str, dict[str, Callable[[Any], object]]] = {
    "core": CORE, "doca": DOCA, "remote": SESSION, "local": SESSION, "two": TWO,
}  # fmt: skip


def fill_tables() -> None:
    """Fill the tables of methods."""
    if not CORE:
        _core()
        _doca()
        _session()
        TWO.update({name: call for name, call in SESSION.items() if name != "session kill"})


def _use_after_free(_: object) -> object:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    address = libc.malloc(64)
    libc.free(ctypes.c_void_p(address))
    return ctypes.string_at(address, 64)


#: Methods that fail, for a test of this program.
PROBES: dict[str, Callable[[Any], object]] = {
    "wrong error": lambda _: {}["missing"],
    "hang": lambda _: time.sleep(10 * HUNG_S),
    "use after free": _use_after_free,
}


def all_pairs(kind: str) -> list[Pair]:
    """Return every pair of methods of a kind of world, each method with itself, too."""
    fill_tables()
    return list(itertools.combinations_with_replacement(KINDS[kind], 2))


def alone(kind: str) -> list[Pair]:
    """Return each method by itself: in a new world it succeeds, so that pairs try something."""
    fill_tables()
    return [(name,) for name in KINDS[kind]]


def together(world: World, pair: Pair) -> list[BaseException]:
    """Call methods at once; return what they raised that is not an error of dgkit."""
    from dgkit.errors import DgkitError

    wrong: list[BaseException] = []
    barrier = threading.Barrier(len(pair))
    allowed = (DgkitError, TimeoutError) if len(pair) > 1 else ()

    def run(name: str) -> None:
        call = world.methods.get(name) or PROBES[name]
        barrier.wait()
        try:
            call(world)
        except allowed:
            return
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in pair]
    for thread in threads:
        thread.start()
    end = time.monotonic() + HUNG_S
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            os.write(2, f"Fatal: {' and '.join(pair)} hung for {HUNG_S} s\n".encode())
            faulthandler.dump_traceback()
            os._exit(3)
    return wrong


def child(kind: str, rounds: int) -> None:
    """Run the pairs that stdin has, a JSON list a line; write a line of JSON before and after."""
    from dgkit.errors import DgkitError

    warnings.simplefilter("ignore", ResourceWarning)
    sys.setswitchinterval(1e-6)
    fill_tables()
    with worlds(kind) as make:
        for line in sys.stdin:
            pair: Pair = tuple(json.loads(line))
            wrong: list[str] = []
            for _ in range(rounds):
                world = make()
                wrong += [repr(error) for error in together(world, pair)]
                try:
                    world.close()
                except DgkitError as error:
                    wrong.append(f"the end of the round: {error!r}")
            print(json.dumps({"wrong": wrong[0] if wrong else ""}), flush=True)


class Child:
    """Process that runs pairs, one at a time."""

    def __init__(self, kind: str, rounds: int, extension: str) -> None:
        environment = dict(os.environ, PYTHONFAULTHANDLER="1") | (sanitized() if extension else {})
        command = [sys.executable, __file__, "--child", kind, "--rounds", str(rounds)]
        self._log = (CACHE / f"pairs-{kind}.log").open("w+b")
        self._process = subprocess.Popen(
            [*command, "--extension", extension],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def run(self, pair: Pair) -> str:
        """Run a pair; return what went wrong, or ""."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(f"{json.dumps(pair)}\n".encode())
            stdin.flush()
            if not select.select([stdout], [], [], 3 * HUNG_S)[0]:
                self._process.kill()
            if line := stdout.readline():
                return str(json.loads(line)["wrong"])
        return self.end()

    def end(self) -> str:
        """End the process; return how it ended and what it wrote, or "" if it ended well."""
        self._process.communicate()
        with self._log as log:
            log.seek(0)
            text = log.read().decode(errors="replace")
        code = self._process.returncode
        return f"the process ended with {code}:\n{_gist(text)}" if code else ""


def _gist(text: str) -> str:
    """Return the part of a log that a reader wants: from the sanitizer's report on."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if "ERROR: " in line or "Fatal" in line), 0)
    return "\n".join(lines[first : first + 40])


def run(kind: str, pairs: list[Pair], rounds: int, extension: str) -> dict[Pair, str]:
    """Run pairs; return what went wrong, by pair."""
    CACHE.mkdir(exist_ok=True)
    failed: dict[Pair, str] = {}
    process: Child | None = None
    for pair in pairs:
        process = process or Child(kind, rounds, extension)
        if wrong := process.run(pair):
            failed[pair] = wrong
            if "the process ended" in wrong:
                process = None
    if process is not None and (wrong := process.end()):
        failed[("the end of the process",)] = wrong
    return failed


def main() -> int:
    """Run the pairs that the arguments select; return the exit status."""
    parser = argparse.ArgumentParser(description="two methods in two threads, pair by pair")
    parser.add_argument("--kind", choices=[*KINDS], action="append", help="which objects")
    parser.add_argument("--pairs", type=int, help="how many pairs of each kind; default: all")
    parser.add_argument("--match", default="", help="only pairs with this text in a name")
    parser.add_argument("--rounds", type=int, default=20, help="how often each pair runs")
    parser.add_argument("--seed", type=int, default=0, help="selects the pairs")
    parser.add_argument("--extension", help='the extension to load; "": the installed one')
    parser.add_argument("--child", choices=[*KINDS], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        os.environ.pop("LD_PRELOAD", None)  # not for the processes that this one starts
        if args.extension:
            load_extension(args.extension)
        child(args.child, args.rounds)
        return 0
    extension = str(build()) if args.extension is None else args.extension
    status = 0
    for kind in args.kind or KINDS:
        pairs = [*alone(kind), *all_pairs(kind)]
        pairs = [pair for pair in pairs if any(args.match in name for name in pair)]
        if args.pairs is not None:
            pairs = random.Random(args.seed).sample(pairs, min(args.pairs, len(pairs)))
        began = time.monotonic()
        rounds = args.rounds if kind in ("core", "doca") else max(1, args.rounds // 10)
        failed = run(kind, pairs, rounds, extension)
        for pair, wrong in failed.items():
            print(f"{kind}: {' and '.join(pair)}: {wrong}\n")
        seconds = time.monotonic() - began
        print(f"{kind}: {len(pairs)} pairs, {rounds} rounds each, {seconds:.0f} s, "
              f"{len(failed)} failed", flush=True)  # fmt: skip
        status |= bool(failed)
    return status


if __name__ == "__main__":
    sys.exit(main())
