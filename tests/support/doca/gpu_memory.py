# SPDX-License-Identifier: Apache-2.0
"""GPU memory under maps of dgkit.doca, over softdoca: its owner, and the side that copies it.

Each side runs in its own process, which evaluates the lines that it reads. So the sides are as
separate as a host and a DPU, and the tests' process need not load softdoca.
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
from dgkit.memory import libcuda

MIB = 1 << 20
TASK = 2 * MIB  # most bytes that one task copies
SIZES = [*range(1, 10), 63, 64, 65, 4095, 4096, 4097, 65537, TASK - 1, TASK, TASK + 1, 16 * MIB]
SIZE = 16 * MIB + 4100  # bytes of memory, enough for each of them
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
    """Return the bytes of a seed, slightly over 16 MiB at most; callers must not write to them."""
    return _NOISE[seed * 4099 % MIB :][:size]


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def answer(line: str, it: Any) -> str:
    """Return the value of an expression, or the error it raises, as one line of text."""
    try:
        return str(eval(line, {"it": it, "noise": noise, "digest": digest, "doca": doca}))
    except Exception as error:
        return f"{type(error).__name__} {error}".replace("\n", " ")


def _fake_cuda() -> str:
    """Return the path of the fake driver's library if it is the driver in use, else ""."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.endswith("/libcuda.so.1") and b"dgkitFakeCuda" in Path(f"/{path}").read_bytes():
            return f"/{path}"
    return ""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that recognizes dma-bufs.

    The fake driver's dma-bufs are memfds, which a process with it in LD_PRELOAD takes for dma-bufs.
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
    """Yield a Host, and a Copier that has imported its memory."""
    with side("Host", *args) as host, side("Copier", bytes.fromhex(host.token)) as dpu:
        yield host, dpu


def end(process: Child) -> str:
    """End a process, which must succeed, and return its log."""
    code, said = process.end(60)
    assert code == 0, said
    return said


class Memory:
    """`size` bytes on a GPU as a CuPy array; `kind` is "vmm" (CUDA virtual memory) or "malloc"."""

    def __init__(self, kind: str, size: int) -> None:
        cupy = libcuda.require_cupy()
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
        """Free the memory even if something still uses it."""
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
        """Fill the memory, and return the digest of its content."""
        wanted = noise(self.gpu.size, seed)
        self.gpu.array.set(wanted)
        self.gpu.memory.synchronize()
        return digest(wanted)

    def holds(self, seed: int, at: int, size: int, before: int) -> bool:
        """Return whether a kernel sees the bytes of `seed` there, and of `before` next to them."""
        import cupy

        wanted = noise(self.gpu.size, before).copy()
        wanted[at : at + size] = noise(size, seed)
        return bool(cupy.array_equal(self.gpu.array, cupy.asarray(wanted)))

    def close(self) -> None:
        self.map.close()
        self.device.close()
        self.gpu.free()


class Copier:
    """Copies between the map of a descriptor and a bytearray of the same size, by DMA tasks."""

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
        """Copy the same range between both maps, in tasks of at most TASK bytes."""
        for start in range(at, at + size, TASK):
            part = (start, min(TASK, at + size - start))
            source = self.inventory.buf_by_data(src, *part)
            with source, self.inventory.buf_by_addr(dst, *part) as target:
                with self.dma.memcpy(source, target) as task:
                    task.submit().wait(20)
                assert target.data_size == part[1]
        return size

    def get(self, at: int, size: int) -> str:
        """Read; return the digest of the bytes, if no bytes next to them changed."""
        memory = np.frombuffer(self.memory, "u1")
        memory[:] = 0xEE
        self.copy(self.far, self.near, at, size)
        beside = (memory[:at] == 0xEE).all() and (memory[at + size :] == 0xEE).all()
        return digest(memory[at : at + size]) if beside else "something came beside it"

    def put(self, seed: int, at: int, size: int) -> int:
        """Write the bytes of a seed."""
        np.frombuffer(self.memory, "u1")[at : at + size] = noise(size, seed)
        return self.copy(self.near, self.far, at, size)

    def gather(self, parts: int, size: int) -> str:
        """Read every second block of `size` bytes by one task with a list; return the digest."""
        take = self.inventory.buf_by_data
        with take(self.far, 0, size) as first:
            for i in range(1, parts):
                first.chain(take(self.far, 2 * i * size, size))
            target = self.inventory.buf_by_addr(self.near, 0, parts * size)
            with target, self.dma.memcpy(first, target) as task:
                task.submit().wait(20)
        return digest(np.frombuffer(self.memory, "u1")[: parts * size])

    def close(self) -> None:
        for it in (self.dma, self.pe, self.inventory, self.near, self.far, self.device):
            it.close()


class Both(Copier):
    """Copier over GPU memory of its own process."""

    kept: tuple[Any, ...] = ()

    def through(self, seed: int, at: int, size: int) -> str:
        """Write bytes of the seed to GPU memory and read them back; return their digest.

        It uses a map of that many bytes within one page, which stays open beside the earlier maps.
        """
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
