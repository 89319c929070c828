"""What every layer shares: access flags, places, statuses, paths, and the Memory protocol."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Protocol, TypeGuard
else:
    Protocol = object

__all__ = ["DOCA", "MIXED", "Access", "GpuSpan", "Memory", "Op", "Path", "Status"]
__all__ += ["parse_access", "parse_path"]

DOCA = frozenset({"doca", "softdoca"})  # providers that move bytes by DMA tasks of libdoca
MIXED = "mixed"  # the path of several operations, where some went inline and some by the worker


class Access(IntFlag):
    """What DMA may do to a region, seen from the side that moves the bytes."""

    READ = 1
    WRITE = 2
    RW = 3

    def __str__(self) -> str:
        return ("r" if self & Access.READ else "") + ("w" if self & Access.WRITE else "")


class Op(IntEnum):
    """READ brings remote bytes to the DPU; WRITE puts the DPU's bytes into the remote region."""

    READ = 0
    WRITE = 1


class Path(Enum):
    """How an operation is done: at once by the caller, by the engine, or whichever is faster."""

    AUTO = 0
    INLINE = 1
    WORKER = 2

    def __str__(self) -> str:
        return self.name.lower()


class Status(IntEnum):
    """The result of one transfer (`dg_wc.status`)."""

    OK = 0
    LOCAL_ERROR = 1
    REMOTE_ACCESS_ERROR = 2
    PEER_LOST = 3
    TIMED_OUT = 4
    FLUSHED = 5
    IO_FAILED = 6


class GpuSpan:
    """Bytes in the memory of a GPU, and how another process may import the block they lie in.

    `kind` is "vmm" (CUDA virtual memory: `fd` is the block's POSIX fd), "ipc" (cudaMalloc: `handle`
    is its 64-byte CUDA IPC handle) or "none": then `why` says why no other process can have it, and
    what to do. `address`: of the first byte, on GPU number `gpu` of this process, whose UUID is
    `uuid` (16 bytes). `size`, `block` (the whole block) and `offset` (in the block) are bytes.
    """

    __slots__ = ("address", "block", "fd", "gpu", "handle", "kind", "offset", "size", "uuid", "why")

    def __init__(
        self,
        *,
        address: int,
        size: int,
        gpu: int,
        uuid: bytes,
        kind: str,
        fd: int = -1,
        handle: bytes = b"",
        block: int = 0,
        offset: int = 0,
        why: str = "",
    ) -> None:
        self.address, self.size, self.gpu, self.uuid = address, size, gpu, uuid
        self.kind, self.fd, self.handle = kind, fd, handle
        self.block, self.offset, self.why = block, offset, why


class Memory(Protocol):
    """Bytes and where they live. `memory` makes them, `dma` registers them.

    Beside what stands here a Memory of the host has `buffer`, a flat memoryview of its bytes; one
    of a GPU has `gpu`, a GpuSpan, and no buffer.
    """

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def place(self) -> str:
        """`host`, `pinned`, `cuda:0`."""

    @property
    def fd(self) -> int:
        """A sealed memfd that holds the bytes from `fd_offset` on, or -1."""

    @property
    def fd_offset(self) -> int:
        """Bytes."""

    @property
    def share_process(self) -> bool:
        """Whether an importer may open this process to copy the bytes itself."""


_MEMORY = ("size", "place", "fd", "fd_offset", "share_process")


def is_memory(obj: object) -> TypeGuard[Memory]:
    """Whether `obj` has what Memory asks for."""
    if not all(hasattr(obj, name) for name in _MEMORY):
        return False
    return isinstance(getattr(obj, "gpu", None), GpuSpan) or hasattr(obj, "buffer")


def parse_access(access: str | Access) -> Access:
    """`"r"`, `"w"` or `"rw"` as flags. ValueError names what was given."""
    names = {"r": Access.READ, "w": Access.WRITE, "rw": Access.RW, "wr": Access.RW}
    if isinstance(access, Access):
        flags: Access | None = access
    else:
        flags = names.get(access) if isinstance(access, str) else None
    if not flags:
        raise ValueError(f"access is {access!r}; it must be 'r', 'w' or 'rw'")
    return flags


def parse_path(path: str | Path) -> Path:
    """`"auto"`, `"inline"` or `"worker"` as a Path. ValueError shows what was given."""
    if isinstance(path, Path):
        return path
    names = {str(known): known for known in Path}
    if not isinstance(path, str) or path not in names:
        raise ValueError(f"path is {path!r}; it must be 'auto', 'inline' or 'worker'")
    return names[path]
