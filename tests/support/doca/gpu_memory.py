"""GPU memory under maps of dgkit.doca, over softdoca: its owner, and who copies it.

Each runs in its own process, which evaluates the lines that it reads: so both sides are as a
host and a DPU are, and the tests' process need not load softdoca.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from support.gpu.memory import allocator
from support.processes.children import Child, child

import dgkit
from dgkit import doca
from dgkit.doca import Access
from dgkit.memory import cuda

MIB = 1 << 20
TASK = 2 * MIB  # bytes: what one task copies at most
SIZES = [*range(1, 10), 63, 64, 65, 4095, 4096, 4097, 65537, TASK - 1, TASK, TASK + 1, 16 * MIB]
SIZE = 16 * MIB + 4100  # of memory in which each of them has room
IDENTITY = "dma-buf identity only"
BOTH = Access.LOCAL_READ_WRITE | Access.PCI_READ_WRITE

# argv: the class's name and its arguments, as Python writes them.
PROGRAM = """
import sys
from support.doca import gpu_memory as rig
it = getattr(rig, sys.argv[1])(*eval(sys.argv[2]))
print(it.token.hex(), flush=True)
for line in sys.stdin:
    print(rig.answer(line, it), flush=True)
it.close()
"""


_NOISE = np.random.default_rng(1).integers(0, 256, 20 * MIB, "u1")
_NOISE.flags.writeable = False


def noise(size: int, seed: int) -> np.ndarray:
    """Bytes of a seed, up to 16 MiB and some; not to be written to."""
    return _NOISE[seed * 4099 % MIB :][:size]


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def answer(line: str, it: Any) -> str:
    """What a line gives, or the error that it raises, in one line of text."""
    try:
        return str(eval(line, {"it": it, "noise": noise, "digest": digest, "doca": doca}))
    except Exception as error:
        return f"{type(error).__name__} {error}".replace("\n", " ")


def _fake_cuda() -> str:
    """The path of the fake driver's library if that is the driver here; else ""."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.endswith("/libcuda.so.1") and b"dgkitFakeCuda" in Path(f"/{path}").read_bytes():
            return f"/{path}"
    return ""


def environment(**more: str) -> dict[str, str]:
    """Environment of a process that recognizes dma-bufs.

    The fake driver's are memfds, which look like dma-bufs to a process with it in LD_PRELOAD.
    """
    path = _fake_cuda()
    return {"SOFTDOCA_LOG": "info", **({"LD_PRELOAD": path} if path else {}), **more}


@contextlib.contextmanager
def side(name: str, *args: object, **more: str) -> Iterator[Callable[..., str]]:
    """Start a Host or a Copier in its own process; yield `ask`, which evaluates a line in it.

    `ask.token` is the descriptor that it exports; `ask.child` the process."""
    with child(PROGRAM, name, repr(args), **environment(**more)) as process:
        token = process.line(60)

        def ask(line: str, timeout: float = 60.0) -> str:
            return process.ask(line, timeout)

        ask.token, ask.child = token, process
        yield ask


@contextlib.contextmanager
def pair(*args: object) -> Iterator[tuple[Callable[..., str], Callable[..., str]]]:
    """A Host, and a Copier that has imported its memory."""
    with side("Host", *args) as host, side("Copier", bytes.fromhex(host.token)) as dpu:
        yield host, dpu


def end(process: Child) -> str:
    """Its end, which must be a good one; what it logged."""
    code, said = process.end(60)
    assert code == 0, said
    return said


class Memory:
    """`size` bytes of a GPU, as CuPy sees them. kind: "vmm", CUDA virtual memory; "malloc"."""

    def __init__(self, kind: str, size: int) -> None:
        cupy = cuda.require_cupy()
        self._stack = contextlib.ExitStack()
        if kind == "vmm":
            self.memory = self._stack.enter_context(dgkit.empty(size, on="gpu"))
            self.array = self.memory.array
        else:
            whole = -(-size // TASK) * TASK
            address = self._stack.enter_context(allocator()).malloc(whole)
            block = cupy.cuda.UnownedMemory(address, whole, None, 0)
            self.array = cupy.ndarray((size,), "u1", memptr=cupy.cuda.MemoryPointer(block, 0))
            self.memory = dgkit.wrap(self.array, share_block=True)
        self.address, self.size = self.memory.gpu.address, size

    def free(self) -> None:
        """Gives it back to CUDA, whatever still uses it."""
        self.array = self.memory = None
        self._stack.close()


class Host:
    """GPU memory under a map that is exported. way: "dmabuf", by its fd; "address"; "memory", as
    Mmap takes GPU memory."""

    def __init__(self, kind: str, size: int, way: str, permissions: int = int(BOTH)) -> None:
        doca.use("softdoca")
        self.gpu = Memory(kind, size)
        self.device = doca.Device()
        with contextlib.ExitStack() as stack:
            more: dict[str, Any] = {"permissions": Access(permissions)}
            what: Any = (self.gpu.address, size)
            if way == "memory":
                what = self.gpu.memory
            elif way == "dmabuf":
                shared = stack.enter_context(self.gpu.memory.dmabuf())
                more |= {"dmabuf": shared.fd, "dmabuf_offset": shared.offset}
            self.map = doca.Mmap(what, self.device, **more)  # it duplicates the fd
        self.token = self.map.export_pci()

    def set(self, seed: int) -> str:
        """Fills the memory; the digest of what it holds."""
        wanted = noise(self.gpu.size, seed)
        self.gpu.array.set(wanted)
        self.gpu.memory.synchronize()
        return digest(wanted)

    def holds(self, seed: int, at: int, size: int, before: int) -> bool:
        """Whether a kernel sees the bytes of `seed` there, and those of `before` beside them."""
        import cupy

        wanted = noise(self.gpu.size, before).copy()
        wanted[at : at + size] = noise(size, seed)
        return bool(cupy.array_equal(self.gpu.array, cupy.asarray(wanted)))

    def close(self) -> None:
        self.map.close()
        self.device.close()
        self.gpu.free()


class Copier:
    """Copies between the map of a descriptor and a bytearray of its size, by tasks of DMA."""

    def __init__(self, token: bytes) -> None:
        doca.use("softdoca")
        self.token = token
        self.device = doca.Device()
        self.far = doca.Mmap.from_export(token, self.device)
        self._start(bytearray(self.far.size))

    def _start(self, memory: bytearray) -> None:
        self.memory = memory
        self.near = doca.Mmap(memory, self.device)
        self.inventory = doca.BufInventory(128)
        self.pe = doca.ProgressEngine()
        self.dma = doca.Dma(self.device)
        self.pe.connect(self.dma)
        self.dma.start()

    def copy(self, src: doca.Mmap, dst: doca.Mmap, at: int, size: int) -> int:
        """The same bytes of both maps, in tasks that are not too large."""
        for start in range(at, at + size, TASK):
            part = (start, min(TASK, at + size - start))
            source = self.inventory.buf_by_data(src, *part)
            with source, self.inventory.buf_by_addr(dst, *part) as target:
                with self.dma.memcpy(source, target) as task:
                    task.submit().wait(20)
                assert target.data_size == part[1]
        return size

    def get(self, at: int, size: int) -> str:
        """Reads; the digest of what came, if nothing came beside it."""
        memory = np.frombuffer(self.memory, "u1")
        memory[:] = 0xEE
        self.copy(self.far, self.near, at, size)
        beside = (memory[:at] == 0xEE).all() and (memory[at + size :] == 0xEE).all()
        return digest(memory[at : at + size]) if beside else "something came beside it"

    def put(self, seed: int, at: int, size: int) -> int:
        """Writes the bytes of a seed."""
        np.frombuffer(self.memory, "u1")[at : at + size] = noise(size, seed)
        return self.copy(self.near, self.far, at, size)

    def gather(self, parts: int, size: int) -> str:
        """Reads every second `size` bytes by one task with a list; the digest of what came."""
        take = self.inventory.buf_by_data
        with take(self.far, 0, size) as first:
            for i in range(1, parts):
                first.chain(take(self.far, 2 * i * size, size))
            target = self.inventory.buf_by_addr(self.near, 0, parts * size)
            with target, self.dma.memcpy(first, target) as task:
                task.submit().wait(20)
        return digest(np.frombuffer(self.memory, "u1")[: parts * size])

    def too_large(self, size: int) -> str:
        """One task of `size` bytes; the state that its failure leaves behind."""
        with self.inventory.buf_by_data(self.far, 0, size) as source:
            target = self.inventory.buf_by_addr(self.near, 0, size)
            with target, self.dma.memcpy(source, target) as task:
                try:
                    task.submit().wait(20)
                    return "it was copied"
                except doca.IoFailed as error:
                    said = str(error)
        self.pe.progress()
        return f"{said} {self.dma.state.name}"

    def close(self) -> None:
        for it in (self.dma, self.pe, self.inventory, self.near, self.far, self.device):
            it.close()


class Both(Copier):
    """Copier over GPU memory of its own process."""

    kept: tuple[Any, ...] = ()

    def through(self, seed: int, at: int, size: int) -> str:
        """Bytes of the seed go to the GPU's memory by a map of so many bytes of a page alone, and
        come back; the map stays open beside those before it. Their digest."""
        part = memoryview(self.page)[at : at + size]
        near = doca.Mmap(part, self.device)
        self.kept += (near,)
        part[:] = noise(size, seed).tobytes()
        for src, dst in ((near, self.far), (self.far, near)):
            with self.inventory.buf_by_data(src, 0, size) as source:
                target = self.inventory.buf_by_addr(dst, 0, size)
                with target, self.dma.memcpy(source, target) as task:
                    task.submit().wait(20)
            if src is near:
                part[:] = bytes(size)
        return digest(part)

    def __init__(self, kind: str, size: int, way: str) -> None:
        self.host = Host(kind, size, way)
        self.token, self.device, self.far = self.host.token, self.host.device, self.host.map
        self._start(bytearray(size))
        self.page = bytearray(8192)

    def close(self) -> None:
        for it in (self.dma, self.pe, self.inventory, *self.kept, self.near, self.host):
            it.close()
