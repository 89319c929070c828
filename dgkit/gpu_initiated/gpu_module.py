# SPDX-License-Identifier: Apache-2.0
"""Kernels for a real GPU, compiled by CuPy, with GPU queues as arguments."""

from __future__ import annotations

import contextlib

from ..dma import KernelQueue, Region
from ..dma.gpu_queue import collectors
from ..live_set import LiveSet
from ..memory import libcuda
from .compiler import include_dir, verbs_include_dirs

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

# Up to this many bytes of closed queues' rings stay registered with CUDA, because unregistering a
# ring waits for every kernel of the process, including kernels that use no queue.
_KEPT = 16 << 20

_live: LiveSet[_Attached] = LiveSet()
_retired: list[_Attached] = []


class _Attached:
    """Ring of a queue registered with CUDA, and its structure in the memory of each GPU."""

    def __init__(self, queue: KernelQueue) -> None:
        self._events: dict[tuple[int, int], Any] = {}  # the latest launch, by GPU and stream
        self._handles: dict[int, tuple[int, Any]] = {}  # by GPU: version of the structure, copy
        self._free: Callable[[], None] | None = None
        _, self.size, self._address, _ = queue._shared_memory()
        self._gpu = libcuda.current_device()
        module = libcuda.driver()
        flags = module.CU_MEMHOSTREGISTER_PORTABLE | module.CU_MEMHOSTREGISTER_DEVICEMAP
        with libcuda.primary_context(self._gpu):
            libcuda.call("cuMemHostRegister", self._address, self.size, flags)
        _live.add(self)

    def handle(self, queue: KernelQueue) -> Any:
        """Return the queue's structure in the memory of the current GPU."""
        gpu, version = libcuda.current_device(), queue.handle_version
        known, handle = self._handles.get(gpu, (-1, None))
        if known != version:
            handle = _copy_handle(queue, self._address, gpu)
            self._handles[gpu] = version, handle
        return handle

    def used(self, stream: Any) -> None:
        """Record a launch on the current GPU; the ring is freed only after the launch ends."""
        key = libcuda.current_device(), stream.ptr
        if key not in self._events:
            self._events[key] = libcuda.require_cupy().cuda.Event(disable_timing=True)
        self._events[key].record(stream)

    @property
    def idle(self) -> bool:
        """True if every launch that used the ring has ended."""
        return all(event.done for event in list(self._events.values()))

    def release(self, free: Callable[[], None]) -> None:
        """Call `free` once every launch that used the ring has ended. Never waits for a launch."""
        self._free = free
        _retired.append(self)
        _collect(_KEPT)

    def free(self) -> None:
        """Unregister and free the ring."""
        with libcuda.primary_context(self._gpu):
            libcuda.call("cuMemHostUnregister", self._address)
        if self._free is not None:
            self._free()


def _collect(kept: int = 0) -> bool:
    """Free the rings of closed queues if no launch is running; return whether none is running.

    Launches that use other queues count too, because cuMemHostUnregister waits for every kernel of
    the context.

    Args:
        kept: Stop freeing when at most this many bytes of rings are left.
    """
    while sum(attached.size for attached in _retired) > kept and _all_idle():
        try:
            attached = _retired.pop(0)
        except IndexError:  # another thread took the last ring
            break
        attached.free()
    return _all_idle()


def _all_idle() -> bool:
    return all(attached.idle for attached in (*_live, *_retired))


collectors.append(_collect)


def _copy_handle(queue: KernelQueue, address: int, gpu: int) -> Any:
    """Return a CuPy array with a queue's structure, in which the ring has GPU addresses.

    Args:
        address: Host address of its ring, which is registered with CUDA.
        gpu: Number of the GPU.
    """
    import numpy as np

    cupy = libcuda.require_cupy()
    with libcuda.primary_context(gpu):
        start = int(libcuda.call("cuMemHostGetDevicePointer", address, 0))
    moved = start - address
    layout = queue.handle_layout
    words = np.frombuffer(queue._handle_bytes(layout.size), np.uint64).copy()
    places = list(layout.addresses)
    addresses = words[places]
    words[places] = np.where(addresses, addresses + np.uint64(moved % (1 << 64)), 0)
    if layout.limit is not None:
        clock_khz = cupy.cuda.Device().attributes["ClockRate"]
        words[layout.limit] = min(int(queue.timeout * clock_khz * 1000), (1 << 62))
    handle = cupy.asarray(words)
    cupy.cuda.get_current_stream().synchronize()
    return handle


class GpuKernel:
    """Kernel on a GPU, called in the same way as a CuPy kernel. Created by `GpuModule`."""

    label = "GPU"

    def __init__(self, module: GpuModule, name: str) -> None:
        self._module = module
        self._function = module._raw.get_function(name)
        self.name = name

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch a grid on `stream`, or CuPy's current stream, without waiting for its end.

        Args:
            grid: Number of blocks, or up to three sizes.
            block: Number of threads in a block, or up to three sizes.
            args: CuPy arrays, NumPy scalars, numbers, GPU queues, and memory or regions that
                the GPU can access.
            shared_mem: Dynamic shared memory of a block in bytes.
            stream: CuPy stream.
        """
        cupy = libcuda.require_cupy()
        stream = cupy.cuda.get_current_stream() if stream is None else stream
        attached = [_attach(value) for value in args if isinstance(value, KernelQueue)]
        sizes = [(v,) if isinstance(v, int) else tuple(v) for v in (grid, block)]
        with stream:
            self._function(*sizes, tuple(map(_to_cupy, args)), shared_mem=shared_mem)
        for ring in attached:
            ring.used(stream)

    def __repr__(self) -> str:
        return f"<dgkit kernel {self.name}, GPU>"


def _attach(queue: KernelQueue) -> _Attached:
    """Return the queue's registered ring. The first call registers it."""
    _collect(_KEPT)
    for release in queue._on_close:
        owner = getattr(release, "__self__", None)
        if isinstance(owner, _Attached):
            return owner
    attached = _Attached(queue)
    queue._on_close.append(attached.release)
    return attached


def _to_cupy(value: Any) -> Any:
    if isinstance(value, KernelQueue):
        return _attach(value).handle(value)
    if isinstance(value, Region):
        value = value.memory
    if getattr(value, "place", "") == "pinned":
        return value.gpu_array
    if getattr(value, "gpu", None) is not None:
        return value.array
    return value


def _cupy_stream(stream: Any) -> Any:
    """Return a CuPy stream for a stream of any library; CuPy's current stream for None."""
    cupy = libcuda.require_cupy()
    if stream is None:
        return cupy.cuda.get_current_stream()
    if hasattr(stream, "ptr"):
        return stream
    address = stream if isinstance(stream, int) else int(stream.__cuda_stream__()[1])
    return cupy.cuda.ExternalStream(address)


@contextlib.contextmanager
def launching(queue: KernelQueue, *, stream: Any = None) -> Iterator[int]:
    """Yield the address of a queue, for kernels launched by Numba, cuda.core or CuPy itself.

    The queue's memory is freed only after the launches in this block have ended, even if the queue
    is closed earlier.

    Args:
        queue: Queue to which the kernels post; pass them its address as an argument.
        stream: Stream of all launches in the block: a CuPy stream, an object with
            `__cuda_stream__`, or the address of a CUDA stream. Default: CuPy's current stream.
    """
    launched = _cupy_stream(stream)
    ring = _attach(queue)
    address = int(ring.handle(queue).data.ptr)
    try:
        yield address
    finally:
        ring.used(launched)


class GpuModule:
    """Compiled source; `module["kernel"]` returns a kernel. Created by `raw_module`."""

    label = "GPU"

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> GpuKernel:
        return GpuKernel(self, name)

    get_function = __getitem__


def raw_module(source: str, *, options: Sequence[str] = ()) -> GpuModule:
    """Compile CUDA C++ for the current GPU with CuPy (NVRTC), and load it.

    The module is loaded now and not at its first launch, because loading a module while a kernel
    occupies the whole GPU may wait for the end of that kernel.

    Args:
        source: CUDA C++, which may include dgkit_device.cuh, or dgkit's headers of GPUNetIO Verbs.
        options: Further arguments of NVRTC, such as `-DNAME=1`.

    Raises:
        DeviceUnavailable: There is no GPU, or CuPy is not installed.
        cupy.cuda.compiler.CompileException: The source does not compile.
    """
    cupy = libcuda.require_cupy()
    verbs = (f"-I{folder}" for folder in verbs_include_dirs(source))
    flags = ("--std=c++17", f"-I{include_dir()}", *options, *verbs)
    raw = cupy.RawModule(code=source, options=flags, backend="nvrtc")
    with contextlib.suppress(AttributeError):
        raw.compile()
    return GpuModule(raw)
